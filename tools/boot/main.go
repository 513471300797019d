// Boot installs the Debian packages of dist/ in a new Debian that boots systemd, runs edge-rt@left and
// lean-server there, and breaks them: killed, hung, unplugged, upgraded, with a full disk, with a late
// driver, with all processes gone at once, removed.
//
//	make deb ARCHS=amd64 && go run ./tools/boot
//	make deb ARCHS=arm64 && go run ./tools/boot --arch arm64 --suite trixie --kernel linux-image-arm64-16k
//
// The system runs in systemd-nspawn, with a network and processes of its own and this machine's
// kernel; with --kernel in QEMU with the kernel of that package, and all bounds and ticks six times as
// long unless KVM runs it. The arm is simulated outside of it and goes on when the system ends, as a real arm does.
// For each trial the tool prints the time until the arm was safe and the time until it moved again. It
// wants root, mmdebstrap and systemd-nspawn or QEMU.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"time"

	"github.com/edge-rt/edge-rt/stage"
)

// slowness is the factor of bounds and ticks where QEMU emulates the processor.
const slowness = 6

// options are the flags.
type options struct{ cache, packages, suite, arch, kernel, accel, run string }

func main() {
	var o options
	flag.StringVar(&o.cache, "cache", ".cache/boot", "folder for the new Debian, kept from run to run")
	flag.StringVar(&o.packages, "packages", "dist", "folder of the Debian packages")
	flag.StringVar(&o.suite, "suite", "bookworm", "Debian's release: bookworm or trixie")
	flag.StringVar(&o.arch, "arch", runtime.GOARCH,
		"amd64 or arm64; another architecture than this machine's wants --kernel")
	flag.StringVar(&o.kernel, "kernel", "", "package of a kernel, such as linux-image-rt-amd64, to boot in QEMU")
	flag.StringVar(&o.accel, "accel", "tcg", "QEMU's accelerator: tcg or kvm")
	flag.StringVar(&o.run, "run", "", "only trials whose name matches this expression, such as 'upgrade|full'")
	limit := flag.Duration("limit", time.Hour, "give up after this long")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	ctx, cancel := context.WithTimeout(ctx, *limit)
	err := play(ctx, &o)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "boot: %v\n", err)
		os.Exit(1)
	}
}

// play makes the system, plays all trials in it and returns an error when one failed.
func play(ctx context.Context, o *options) error {
	run, err := regexp.Compile(o.run)
	if err != nil {
		return fmt.Errorf("--run: %w", err)
	}
	if os.Geteuid() != 0 {
		return errors.New("got another user than root, want root: it makes a Debian and boots it")
	}
	packages, err := filepath.Glob(filepath.Join(o.packages, "*_"+o.arch+".deb"))
	if err != nil || len(packages) == 0 {
		return fmt.Errorf("%s holds no package for %s: run make deb ARCHS=%[2]s", o.packages, o.arch)
	}
	if o.arch != runtime.GOARCH && o.kernel == "" {
		return fmt.Errorf("--arch %s without --kernel: want a kernel for QEMU, such as linux-image-%[1]s", o.arch)
	}
	for _, program := range []string{"mmdebstrap", "mke2fs", "systemd-nspawn"} {
		if _, err := exec.LookPath(program); err != nil && (program != "systemd-nspawn" || o.kernel == "") {
			return fmt.Errorf("%w: want Debian's packages mmdebstrap, e2fsprogs and systemd-container", err)
		}
	}
	base := filepath.Join(o.cache, o.suite+"-"+o.arch+"-"+o.kernel)
	if err := command(ctx, "tools/boot/root.sh", base, o.suite, o.arch, o.kernel); err != nil {
		return err
	}
	dir, done, err := stage.Folder("")
	if err != nil {
		return err
	}
	defer done()
	s := &system{root: filepath.Join(dir, "root"), slow: 1}
	if err := s.openArm(dir); err != nil {
		return err
	}
	defer s.arm.Close()
	s.host = &container{root: s.root, state: filepath.Join(dir, "state"), arm: s.arm}
	if o.kernel != "" {
		s.host = &machine{root: s.root, dir: dir, arch: o.arch, accel: o.accel, arm: s.arm}
	}
	if o.kernel != "" && o.accel != "kvm" {
		s.slow = slowness
	}
	defer s.remove()
	if err := s.make(ctx, base, packages); err != nil {
		return err
	}
	for _, t := range trials {
		if !t.always && !run.MatchString(t.name) {
			continue
		}
		if err := s.tries(ctx, &t); err != nil {
			return fmt.Errorf("%s: %w\n%s", t.name, err, s.lastWords(ctx))
		}
	}
	return nil
}
