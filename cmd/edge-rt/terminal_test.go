package main

import (
	"testing"

	"golang.org/x/sys/unix"
)

// The real binary runs on a terminal that takes no output, as after a dead connection: the run ends
// on time and releases the arm.
func TestRunOnAStoppedTerminal(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs the arm for seconds")
	}
	b := simBus(t)
	_, program := pty(t)
	if err := unix.IoctlSetInt(int(program.Fd()), unix.TCXONC, unix.TCOOFF); err != nil { // Ctrl-S
		t.Skip(err)
	}
	r := runOn(t, newHoldServer(t), b, "--duration", "3s")
	r.Stderr = program
	// On a busy machine the run may end with another exit code.
	if code := r.Start().End(); code < 0 || underTorque(b) != 0 {
		t.Errorf("exit code %d, %d motors under torque", code, underTorque(b))
	}
}
