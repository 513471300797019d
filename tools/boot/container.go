package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/edge-rt/edge-rt/stage"
)

// container is a system in systemd-nspawn, with this machine's kernel.
type container struct {
	root, state string // folder of the system's files; folder of the arm's service
	arm         *stage.Arm
	child       *stage.Child // nil while the container is off
	init        string       // process id of the container's systemd
}

func (c *container) make(ctx context.Context) error {
	if err := os.Mkdir(c.state, 0o755); err != nil {
		return err
	}
	return command(ctx, "mount", "-t", "tmpfs", "-o", "size=64m", "edge-rt-boot", c.state)
}

func (c *container) remove() {
	c.off()
	command(context.Background(), "umount", "-l", c.state)
}

// start starts the system, and returns once the system has the arm's port, for which the arm's service
// waits.
func (c *container) start(ctx context.Context) error {
	cmd := exec.Command("systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--private-network",
		"--machine=edge-rt-boot", "--directory="+c.root, "--bind="+c.state+":/var/lib/edge-rt",
		"--bind=/dev/pts:/mnt", "--console=pipe", "--boot")
	var err error
	if c.child, err = stage.Start(cmd); err != nil {
		return err
	}
	children := fmt.Sprintf("/proc/%d/task/%[1]d/children", c.child.PID())
	stage.Until(bootLimit, func() bool {
		pids, _ := os.ReadFile(children)
		c.init = strings.TrimSpace(string(pids))
		// Before systemd the container has other processes, which set it up and end.
		name, _ := os.ReadFile("/proc/" + c.init + "/comm")
		return !c.child.Running() || string(name) == "systemd\n" && c.link(ctx) == nil
	})
	if !c.child.Running() {
		return fmt.Errorf("systemd-nspawn ended; it wants root with all capabilities, and cgroups below "+
			"/sys/fs/cgroup: %s", c.child.Log.Tail(5))
	}
	return nil
}

func (c *container) process() *stage.Child { return c.child }

// link gives the arm's port the name that the udev rules give it; a container has no udev.
func (c *container) link(ctx context.Context) error {
	node := "/mnt/" + filepath.Base(c.arm.Path())
	_, err := c.run(ctx, "chgrp dialout "+node+"; chmod 660 "+node+"; mkdir -p /dev/edge-rt; "+
		"ln -sfn "+node+" /dev/edge-rt/bus-EDGERT1")
	return err
}

func (c *container) plug(ctx context.Context) error {
	if err := c.arm.Replug(); err != nil {
		return err
	}
	return c.link(ctx)
}

func (c *container) unplug(context.Context) error { return c.arm.Unplug() }

func (c *container) off() {
	if c.child == nil {
		return
	}
	command(context.Background(), "kill", "-9", c.init)
	c.child.Kill()
	c.child = nil
}

func (c *container) run(ctx context.Context, line string) (string, error) {
	cmd := exec.CommandContext(ctx, "nsenter", "-t", c.init, "-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w", "sh", "-c",
		line)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", line, err, out)
	}
	return string(out), err
}
