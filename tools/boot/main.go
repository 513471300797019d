// Boot installs the Debian packages of dist/ in a new Debian that boots systemd, runs edge-rt@left and
// lean-server there, and breaks them: killed, hung, unplugged, upgraded, with a full disk, with a late
// driver, with all processes gone at once, removed.
//
//	make deb ARCHS=amd64 && go run ./tools/boot
//	make deb ARCHS=arm64 && go run ./tools/boot --arch arm64 --suite trixie --kernel linux-image-arm64-16k
//
// The system runs in systemd-nspawn, with a network and processes of its own, on this machine's kernel. With --kernel
// PACKAGE it runs in QEMU, on that package's kernel; without KVM all bounds and ticks are then six times as long.
// The arm is simulated outside of the system and still runs when the system ends, as a real arm does. For each
// trial the tool prints the time until the arm was safe and the time until it moved again. The tool needs root,
// mmdebstrap, and systemd-nspawn or QEMU.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"time"

	"github.com/edge-rt/edge-rt/stage"
)

// slowness is the factor by which bounds and ticks are longer if QEMU emulates the processor.
const slowness = 6

// options are the flags.
type options struct {
	Cache    string        `default:".cache/boot" help:"folder for the new Debian, kept from run to run"`
	Packages string        `default:"dist" help:"folder of the Debian packages"`
	Suite    string        `default:"bookworm" help:"Debian's release: bookworm or trixie"`
	Arch     string        `help:"amd64 or arm64; default: this machine's; another wants --kernel"`
	Kernel   string        `help:"package of a kernel, such as linux-image-rt-amd64, to boot in QEMU"`
	Accel    string        `default:"tcg" help:"QEMU's accelerator: tcg or kvm"`
	Run      string        `help:"only trials whose name matches this expression, such as 'upgrade|full'"`
	Limit    time.Duration `default:"1h" help:"give up after this long"`
}

func main() {
	stage.LongTool(func(ctx context.Context, o options) error {
		ctx, cancel := context.WithTimeout(ctx, o.Limit)
		defer cancel()
		o.Arch = cmp.Or(o.Arch, runtime.GOARCH)
		return play(ctx, &o)
	})
}

// play makes the system and plays all trials in it. It returns an error if a trial failed.
func play(ctx context.Context, o *options) error {
	run, err := regexp.Compile(o.Run)
	if err != nil {
		return fmt.Errorf("--run: %w", err)
	}
	if os.Geteuid() != 0 {
		return errors.New("got another user than root, want root: it makes a Debian and boots it")
	}
	packages, err := filepath.Glob(filepath.Join(o.Packages, "*_"+o.Arch+".deb"))
	if err != nil || len(packages) == 0 {
		return fmt.Errorf("%s holds no package for %s: run make deb ARCHS=%[2]s", o.Packages, o.Arch)
	}
	if o.Arch != runtime.GOARCH && o.Kernel == "" {
		return fmt.Errorf("--arch %s without --kernel: want a kernel for QEMU, such as linux-image-%[1]s", o.Arch)
	}
	for _, program := range []string{"mmdebstrap", "mke2fs", "systemd-nspawn"} {
		if _, err := exec.LookPath(program); err != nil && (program != "systemd-nspawn" || o.Kernel == "") {
			return fmt.Errorf("%w: want Debian's packages mmdebstrap, e2fsprogs and systemd-container", err)
		}
	}
	base := filepath.Join(o.Cache, o.Suite+"-"+o.Arch+"-"+o.Kernel)
	if err := command(ctx, "tools/boot/root.sh", base, o.Suite, o.Arch, o.Kernel); err != nil {
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
	if o.Kernel != "" {
		s.host = &machine{root: s.root, dir: dir, arch: o.Arch, accel: o.Accel, arm: s.arm}
		if o.Accel != "kvm" {
			s.slow = slowness
		}
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
