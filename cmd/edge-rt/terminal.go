package main

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// terminal shows one status line in place below the log lines.
type terminal struct {
	mu   sync.Mutex
	out  *os.File
	tty  bool
	line []byte // with its control codes
	up   bool   // a status line is on the screen
}

func newTerminal(out *os.File) *terminal {
	_, err := unix.IoctlGetTermios(int(out.Fd()), unix.TCGETS)
	return &terminal{out: out, tty: err == nil, line: make([]byte, 0, 512)}
}

// clearLine moves to the line's start and wipes it.
const clearLine = "\r\x1b[2K"

// Write prints either a log line (it ends in a newline) or the status line.
func (t *terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.line = t.line[:0]
	if t.up {
		t.line = append(t.line, clearLine...)
	}
	t.up = len(p) > 0 && p[len(p)-1] != '\n'
	t.line = append(t.line, p...)
	if _, err := t.out.Write(t.line); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Clear takes the status line away.
func (t *terminal) Clear() { t.Write(nil) }
