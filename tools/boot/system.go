package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim/servosim"
	"github.com/edge-rt/edge-rt/stage"
)

// bootLimit is the longest time in which systemd may boot.
const bootLimit = time.Minute

// host runs a system. The system's files stay when the system's processes end.
type host interface {
	make(ctx context.Context) error // make completes the files of the root, and makes disks with these files
	start(ctx context.Context) error
	process() *stage.Child // the child that runs the system, after start
	// run runs a command line as root and returns its output. A failed command is an error.
	run(ctx context.Context, line string) (string, error)
	plug(ctx context.Context) error
	unplug(ctx context.Context) error
	off() // off ends all processes at once
	remove()
}

// system is a Debian with an arm on its port.
type system struct {
	host
	root string
	slow time.Duration // factor by which bounds and ticks are longer than on this machine's processor
	arm  *stage.Arm

	limp  atomic.Int64 // the latest write that switched a motor's torque off, in nanoseconds of the kernel's clock
	goals atomic.Int64 // writes of a new goal position
}

// openArm makes the simulated arm in a folder.
func (s *system) openArm(dir string) error {
	so101, err := robot.ByName("so101")
	if err != nil {
		return err
	}
	s.arm, err = stage.OpenArm(dir, so101.Parts()[0], func(e *servosim.Event) {
		if e.Before.Torque && !e.After.Torque {
			s.limp.Store(int64(e.At))
		}
		if e.Before.Goal != e.After.Goal {
			s.goals.Add(1)
		}
	}, nil)
	return err
}

// make copies a Debian from base, and adds the packages, the configuration of an arm and a policy.
// The state of the arm's service is on a separate disk of 64 MB.
func (s *system) make(ctx context.Context, base string, packages []string) error {
	boot, etc := filepath.Join(s.root, "boot"), filepath.Join(s.root, "etc/edge-rt")
	policy := filepath.Join(boot, "policy")
	return errors.Join(
		command(ctx, "cp", "-a", base, s.root),
		command(ctx, "mkdir", "-p", etc),
		command(ctx, "cp", append(packages, boot)...),
		command(ctx, "cp", "tools/boot/left.yaml", etc),
		command(ctx, "cp", s.arm.Calibration, filepath.Join(etc, "left.json")),
		command(ctx, "cp", "-r", "testdata/demo/plain", policy),
		command(ctx, "sed", "-i", "/simulation_only/d", filepath.Join(policy, "bundle.json")),
		command(ctx, "sed", "-i", fmt.Sprintf("s/^fps: 30/fps: %d\\nmax-offline: %dm/", 30/s.slow, s.slow),
			filepath.Join(etc, "left.yaml")),
		s.host.make(ctx),
	)
}

// boot starts systemd, and returns when it has started all services.
func (s *system) boot(ctx context.Context) error {
	if err := s.start(ctx); err != nil {
		return err
	}
	booted := stage.Until(s.slow*bootLimit, func() bool {
		out, _ := s.run(ctx, "systemctl is-system-running")
		return strings.HasPrefix(out, "running") || strings.HasPrefix(out, "degraded") || !s.process().Running()
	})
	if p := s.process(); !booted || !p.Running() {
		return fmt.Errorf("systemd did not boot: %s%s", p.Stdout(), p.Log.Tail(5))
	}
	return nil
}

// lastWords returns the end of the system's journal.
func (s *system) lastWords(ctx context.Context) string {
	if p := s.process(); p == nil || !p.Running() {
		return ""
	}
	journal, _ := s.run(ctx, "journalctl -n 40 --no-pager")
	return journal
}

// command runs a command of this machine.
func command(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
