package main

import (
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// linesRoom is how much of the log waits for a terminal that is stopped; what
	// comes then is dropped and counted.
	linesRoom = 64 << 10

	// farewell is how long the last lines may take; on a machine that is busy
	// with arms they need a while.
	farewell = 3 * time.Second
)

// terminal shows one status line in place below the log lines. Nobody waits for
// it: a terminal that is stopped (Ctrl-S), or whose connection hangs, must not
// hold up what runs the arm.
type terminal struct {
	out *os.File
	tty bool

	wake  chan struct{}      // there is something to show
	flush chan chan struct{} // to be closed when everything was shown

	mu      sync.Mutex
	lines   []byte // whole log lines that wait
	status  []byte // the newest status line
	changed bool   // the status line has
	lost    int    // lines for which there was no room

	// Owner: show.
	page []byte // what is being written
	up   bool   // a status line is on the screen
}

func newTerminal(out *os.File) *terminal {
	t := &terminal{
		out: out, tty: isTerminal(out), wake: make(chan struct{}, 1), flush: make(chan chan struct{}),
		lines: make([]byte, 0, linesRoom), status: make([]byte, 0, 512), page: make([]byte, 0, linesRoom+1024),
	}
	go t.show()
	return t
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// clearLine moves to the line's start and wipes it.
const clearLine = "\r\x1b[2K"

// Write takes either a log line (it ends in a newline) or the status line.
func (t *terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	switch {
	case len(p) == 0 || p[len(p)-1] != '\n':
		t.status, t.changed = append(t.status[:0], p...), true
	case len(t.lines)+len(p) > linesRoom:
		t.lost++
	default:
		t.lines = append(t.lines, p...)
	}
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default: // it will look anyway
	}
	return len(p), nil
}

// Clear takes the status line away.
func (t *terminal) Clear() { t.Write(nil) }

// Flush waits a moment until everything is shown.
func (t *terminal) Flush() {
	shown, enough := make(chan struct{}), time.After(farewell)
	select {
	case t.flush <- shown:
	case <-enough:
		return
	}
	select {
	case <-shown:
	case <-enough:
	}
}

// show writes what there is, for as long as the program runs.
func (t *terminal) show() {
	for {
		var shown chan struct{}
		select {
		case <-t.wake:
		case shown = <-t.flush:
		}
		for t.turn() {
			t.out.Write(t.page) // nobody to tell when it fails
		}
		if shown != nil {
			close(shown)
		}
	}
}

// turn makes the next page of what has come meanwhile; false when nothing has.
func (t *terminal) turn() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.page = t.page[:0]
	if len(t.lines) == 0 && !t.changed && t.lost == 0 {
		return false
	}
	if t.up {
		t.page = append(t.page, clearLine...)
	}
	t.page = append(t.page, t.lines...)
	if t.lost > 0 {
		t.page = strconv.AppendInt(t.page, int64(t.lost), 10)
		t.page = append(t.page, " lines were dropped while this terminal took none\n"...)
	}
	if t.up = t.changed && len(t.status) > 0; t.up {
		t.page = append(t.page, t.status...)
	}
	t.lines, t.changed, t.lost = t.lines[:0], false, 0
	return len(t.page) > 0
}
