// Boot installs the Debian packages of dist/ in a new Debian that boots systemd, runs edge-rt@left and
// lean-server there, and breaks them: killed, hung, unplugged, upgraded, with a full disk, with a late
// driver, with all processes gone at once, removed.
//
//	make deb ARCHS=amd64 && go run ./tools/boot
//
// The system runs in systemd-nspawn, with a network and processes of its own and this machine's
// kernel. The arm is simulated outside of it and goes on when the system ends, as a real arm does. For
// each trial the tool prints the time until the arm was safe and the time until it moved again. It
// wants root, mmdebstrap and systemd-nspawn.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/stage"
)

func main() {
	cache := flag.String("cache", ".cache/boot", "folder for the new Debian, kept from run to run")
	packages := flag.String("packages", "dist", "folder of the Debian packages")
	suite := flag.String("suite", "bookworm", "Debian's release: bookworm or trixie")
	run := flag.String("run", "", "only the trials whose name contains this")
	limit := flag.Duration("limit", 10*time.Minute, "give up after this long")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	ctx, cancel := context.WithTimeout(ctx, *limit)
	err := play(ctx, filepath.Join(*cache, *suite), *suite, *packages, *run)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "boot: %v\n", err)
		os.Exit(1)
	}
}

// play makes the system, plays all trials in it and returns an error when one failed.
func play(ctx context.Context, base, suite, folder, run string) error {
	packages, err := filepath.Glob(filepath.Join(folder, "*_"+runtime.GOARCH+".deb"))
	if err != nil || len(packages) == 0 {
		return fmt.Errorf("%s holds no package for %s: run make deb ARCHS=%[2]s", folder, runtime.GOARCH)
	}
	for _, program := range []string{"mmdebstrap", "systemd-nspawn"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%w: it comes with Debian's packages mmdebstrap and systemd-container", err)
		}
	}
	if err := command(ctx, "tools/boot/root.sh", base, suite); err != nil {
		return err
	}
	dir, done, err := stage.Folder("")
	if err != nil {
		return err
	}
	defer done()
	s := &system{dir: dir}
	if err := s.openArm(); err != nil {
		return err
	}
	defer s.arm.Close()
	defer s.remove()
	if err := s.make(ctx, base, packages); err != nil {
		return err
	}
	var checks stage.Checks
	for _, t := range trials {
		if !strings.Contains(t.name, run) && !t.always {
			continue
		}
		if err := s.play(ctx, &t, &checks); err != nil {
			return fmt.Errorf("%s: %w\n%s", t.name, err, s.lastWords(ctx))
		}
	}
	return checks.Err()
}
