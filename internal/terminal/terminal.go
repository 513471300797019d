package terminal

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/edge-rt/edge-rt/internal/plain"
)

const (
	// bufferBytes bounds the log lines that wait for a terminal that accepts nothing. Further lines
	// are dropped and counted.
	bufferBytes  = 64 << 10
	flushTimeout = 3 * time.Second // longest time for writing the last lines
	// pieceBytes is the largest size of one write of several lines. A slow terminal must accept a piece within
	// StallTimeout, or it counts as blocked: a serial console of 9600 baud needs half of that time.
	pieceBytes = 512
)

// errStalled marks an output that accepts no bytes.
var errStalled = errors.New("nothing was taken for " + StallTimeout.String() + ": it has no reader, or its disk hangs")

// Terminal shows one status line below the log. Write never blocks: a terminal that is stopped
// (Ctrl-S) or hangs must not delay the program that runs an arm.
type Terminal struct {
	out *os.File

	wake  chan struct{}      // there are lines to show
	flush chan chan struct{} // gets channels that are closed when everything has been shown

	mu      sync.Mutex
	lines   []byte // log lines that are to be shown
	status  []byte // the newest status line
	changed bool   // status has changed
	lost    int    // number of dropped lines that were not reported yet

	// Atomic.
	taken   atomic.Uint64 // number of pieces written
	dropped atomic.Uint64 // lines dropped since New

	// Owner: show.
	page []byte // bytes of the present write
	up   bool   // a status line is on the screen
}

// New returns a terminal that writes to the file out, which may be of any kind. The terminal's goroutine never ends.
func New(out *os.File) *Terminal {
	t := &Terminal{
		out:    out,
		wake:   make(chan struct{}, 1),
		flush:  make(chan chan struct{}),
		lines:  make([]byte, 0, bufferBytes),
		status: make([]byte, 0, 512),
		page:   make([]byte, 0, bufferBytes+1024),
	}
	go t.show()
	return t
}

// Is reports whether a file is a terminal.
func Is(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// Size returns the size of a terminal, 0 where it is unknown.
func Size(f *os.File) (rows, columns int) {
	if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil {
		return int(size.Row), int(size.Col)
	}
	return 0, 0
}

// clearLine moves the cursor to the beginning of the line and erases the line.
const clearLine = "\r\x1b[2K"

// Write takes a log line, which ends in a newline, or the status line. Characters that a terminal
// would obey are escaped, because the text may come from a server or a file.
func (t *Terminal) Write(p []byte) (int, error) {
	if !plain.Safe(p) {
		t.put([]byte(plain.Lines(string(p))))
	} else {
		t.put(p)
	}
	return len(p), nil
}

func (t *Terminal) put(p []byte) {
	t.mu.Lock()
	switch {
	case len(p) == 0 || p[len(p)-1] != '\n':
		t.status, t.changed = append(t.status[:0], p...), true
	case len(t.lines)+len(p) > bufferBytes:
		t.lost++
		t.dropped.Add(1)
	default:
		t.lines = append(t.lines, p...)
	}
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default: // show has already been woken
	}
}

// Clear removes the status line.
func (t *Terminal) Clear() { t.Write(nil) }

// Lost returns the number of log lines dropped since New.
//
// Owner: any goroutine.
func (t *Terminal) Lost() uint64 { return t.dropped.Load() }

// Flush waits until all lines are written, but at most for flushTimeout. If the output accepts
// nothing, it waits only for StallTimeout.
func (t *Terminal) Flush() {
	shown := make(chan struct{})
	go func() { t.flush <- shown }() // blocks until the program ends when the output accepts nothing
	Await(shown, t.taken.Load, flushTimeout)
}

// show writes lines as they come; it never returns.
func (t *Terminal) show() {
	for {
		var shown chan struct{}
		select {
		case <-t.wake:
		case shown = <-t.flush:
		}
		for t.nextPage() {
			for rest := t.page; len(rest) > 0; {
				n := piece(rest)
				t.out.Write(rest[:n]) // a failure cannot be reported anywhere
				t.taken.Add(1)
				rest = rest[n:]
			}
		}
		if shown != nil {
			close(shown)
		}
	}
}

// piece returns the length of the next write: as many whole lines as fit into pieceBytes, and at
// least one.
func piece(page []byte) int {
	if len(page) <= pieceBytes {
		return len(page)
	}
	if n := bytes.LastIndexByte(page[:pieceBytes], '\n'); n >= 0 {
		return n + 1
	}
	if n := bytes.IndexByte(page, '\n'); n >= 0 {
		return n + 1
	}
	return len(page)
}

// Print writes a text at the end of a program, and returns errStalled if the output out has not accepted all of it
// within StallTimeout. The part that was written until then remains.
func Print(out io.Writer, text []byte) error {
	wrote := make(chan error, 1)
	go func() {
		_, err := out.Write(text)
		wrote <- err
	}()
	patience := time.NewTimer(StallTimeout)
	defer patience.Stop()
	select {
	case err := <-wrote:
		return err
	case <-patience.C:
		return errStalled
	}
}

// nextPage fills t.page with the lines since the last page; it returns false if there is nothing to show.
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
		t.page = append(t.page, " lines were dropped while this terminal took no output\n"...)
	}
	if t.up = t.changed && len(t.status) > 0; t.up {
		t.page = append(t.page, t.status...)
	}
	t.lines = t.lines[:0]
	t.changed = false
	t.lost = 0
	return len(t.page) > 0
}
