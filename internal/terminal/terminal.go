// Package terminal writes log lines and a status line to a terminal without ever
// waiting for it.
package terminal

import (
	"context"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	bufferBytes  = 64 << 10        // log lines that wait for a terminal that takes none; beyond it they are dropped and counted
	flushTimeout = 3 * time.Second // for the last lines
)

// Terminal shows one status line below the log. Write never blocks: a terminal
// that is stopped (Ctrl-S) or hangs must not hold up what runs an arm.
type Terminal struct {
	out *os.File

	wake  chan struct{}      // there is something to show
	flush chan chan struct{} // to be closed when everything was shown

	mu      sync.Mutex
	lines   []byte // log lines to be shown
	status  []byte // the newest status line
	changed bool   // status
	lost    int    // lines dropped

	// Owner: show.
	page []byte // what is being written
	up   bool   // a status line is on the screen
}

// New returns the terminal behind out, which may be any file. Its goroutine runs
// for as long as the program.
func New(out *os.File) *Terminal {
	t := &Terminal{
		out: out, wake: make(chan struct{}, 1), flush: make(chan chan struct{}),
		lines: make([]byte, 0, bufferBytes), status: make([]byte, 0, 512), page: make([]byte, 0, bufferBytes+1024),
	}
	go t.show()
	return t
}

// Is reports whether a file is a terminal.
func Is(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// clearLine moves to the line's start and wipes it.
const clearLine = "\r\x1b[2K"

// Write takes either a log line (it ends in a newline) or the status line.
func (t *Terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	switch {
	case len(p) == 0 || p[len(p)-1] != '\n':
		t.status, t.changed = append(t.status[:0], p...), true
	case len(t.lines)+len(p) > bufferBytes:
		t.lost++
	default:
		t.lines = append(t.lines, p...)
	}
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default: // show wakes anyway
	}
	return len(p), nil
}

// Clear removes the status line.
func (t *Terminal) Clear() { t.Write(nil) }

// Flush waits until everything is shown, or for flushTimeout.
func (t *Terminal) Flush() {
	shown := make(chan struct{})
	wait, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	select {
	case t.flush <- shown:
	case <-wait.Done():
		return
	}
	select {
	case <-shown:
	case <-wait.Done():
	}
}

// show writes what has come, for as long as the program runs.
func (t *Terminal) show() {
	for {
		var shown chan struct{}
		select {
		case <-t.wake:
		case shown = <-t.flush:
		}
		for t.nextPage() {
			t.out.Write(t.page) // a failure cannot be reported anywhere
		}
		if shown != nil {
			close(shown)
		}
	}
}

// nextPage makes page of what has come meanwhile; false when nothing has.
func (t *Terminal) nextPage() bool {
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
