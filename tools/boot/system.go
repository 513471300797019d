package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim/servosim"
	"github.com/edge-rt/edge-rt/stage"
)

// bootLimit is the longest that systemd may take to boot.
const bootLimit = time.Minute

// system is a Debian under systemd-nspawn, with an arm on its port. Its files outlive its processes.
type system struct {
	dir       string // root, state and link of this run
	arm       *stage.Arm
	container *stage.Child // nil while it is off
	init      string       // process id of the container's systemd

	limp  atomic.Int64 // the latest write that took a motor's torque, in nanoseconds of the kernel's clock
	goals atomic.Int64 // writes of a new goal position
}

// openArm makes the simulated arm.
func (s *system) openArm() error {
	so101, err := robot.ByName("so101")
	if err != nil {
		return err
	}
	s.arm, err = stage.OpenArm(s.dir, so101.Parts()[0], func(e *servosim.Event) {
		if e.Before.Torque && !e.After.Torque {
			s.limp.Store(int64(e.At))
		}
		if e.Before.Goal != e.After.Goal {
			s.goals.Add(1)
		}
	}, nil)
	return err
}

func (s *system) root() string  { return filepath.Join(s.dir, "root") }
func (s *system) state() string { return filepath.Join(s.dir, "state") }

// make copies the new Debian, and adds the packages and the configuration of an arm. The state of the
// arm's service has a disk of its own, of 64 MB.
func (s *system) make(ctx context.Context, base string, packages []string) error {
	boot, etc := filepath.Join(s.root(), "boot"), filepath.Join(s.root(), "etc/edge-rt")
	policy := filepath.Join(boot, "policy")
	return errors.Join(
		command(ctx, "cp", "-a", base, s.root()),
		command(ctx, "mkdir", "-p", etc, s.state()),
		command(ctx, "mount", "-t", "tmpfs", "-o", "size=64m", "edge-rt-boot", s.state()),
		command(ctx, "cp", append(packages, boot)...),
		command(ctx, "cp", "tools/boot/left.yaml", etc),
		command(ctx, "cp", s.arm.Calibration, filepath.Join(etc, "left.json")),
		command(ctx, "cp", "-r", "testdata/demo/plain", policy),
		command(ctx, "sed", "-i", "/simulation_only/d", filepath.Join(policy, "bundle.json")),
	)
}

// remove ends the system and frees its disk.
func (s *system) remove() {
	s.off()
	command(context.Background(), "umount", "-l", s.state())
}

// boot starts systemd, and returns when it has started all services.
func (s *system) boot(ctx context.Context) error {
	cmd := exec.Command("systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--private-network",
		"--machine=edge-rt-boot", "--directory="+s.root(), "--bind="+s.state()+":/var/lib/edge-rt",
		"--bind=/dev/pts:/mnt", "--console=pipe", "--boot")
	var err error
	if s.container, err = stage.Start(cmd); err != nil {
		return err
	}
	children := fmt.Sprintf("/proc/%d/task/%[1]d/children", s.container.PID())
	plugged := false
	booted := stage.Until(bootLimit, func() bool {
		pids, err := os.ReadFile(children)
		s.init = strings.TrimSpace(string(pids))
		if err != nil || s.init == "" {
			return !s.container.Running()
		}
		plugged = plugged || s.plug(ctx) == nil // the service of the arm awaits it
		out, _ := s.run(ctx, "systemctl is-system-running")
		return strings.HasPrefix(out, "running") || strings.HasPrefix(out, "degraded")
	})
	if !booted || !s.container.Running() {
		return fmt.Errorf("systemd did not boot: %s%s", s.container.Stdout(), s.container.Log.Tail(5))
	}
	return nil
}

// plug gives the arm's port the name that the udev rules give it; a container has no udev.
func (s *system) plug(ctx context.Context) error {
	node := "/mnt/" + filepath.Base(s.arm.Path())
	_, err := s.run(ctx, "chgrp dialout "+node+"; chmod 660 "+node+"; mkdir -p /dev/edge-rt; "+
		"ln -sfn "+node+" /dev/edge-rt/bus-EDGERT1")
	return err
}

// off ends all processes of the system at once.
func (s *system) off() {
	if s.container == nil {
		return
	}
	command(context.Background(), "kill", "-9", s.init)
	s.container.Kill()
	s.container = nil
}

// run runs a command line in the system as root and returns its output. A failed command is an error.
func (s *system) run(ctx context.Context, line string) (string, error) {
	cmd := exec.CommandContext(ctx, "nsenter", "-t", s.init, "-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w", "sh", "-c",
		line)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", line, err, out)
	}
	return string(out), err
}

// lastWords returns the end of the system's journal.
func (s *system) lastWords(ctx context.Context) string {
	if s.container == nil {
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
