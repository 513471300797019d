package main

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The real binary runs on a terminal that takes no output, as after a dead connection: the run ends
// on time and releases the arm.
func TestRunOnAStoppedTerminal(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs the arm for seconds")
	}
	s, b := newHoldServer(t), simBus(t)
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer master.Close()
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Skip(err)
	}
	slave, err := os.OpenFile(filepath.Join("/dev/pts", strconv.Itoa(n)), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	if err := unix.IoctlSetInt(int(slave.Fd()), unix.TCXONC, unix.TCOOFF); err != nil { // Ctrl-S
		t.Skip(err)
	}
	cmd := edgeCommand(t, s, b, "--duration", "3s")
	cmd.Stderr = slave
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended: // a busy machine may add an exit code of its own
		if n := underTorque(b); n != 0 {
			t.Errorf("%d motors under torque (%v)", n, err)
		}
	case <-time.After(30 * time.Second):
		cmd.Process.Kill()
		t.Error("it waits for its terminal")
	}
}
