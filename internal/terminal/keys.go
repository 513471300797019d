package terminal

import (
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// Interval of checks for a key and for Close, and the longest time between the bytes of one key, on a slow link.
	keyPoll  = 100 * time.Millisecond
	keyBytes = 64 // largest number of bytes that one read returns
)

// Keys reads single keys from a terminal, without Enter and without echo. Close restores the terminal.
type Keys struct {
	in     *os.File
	before unix.Termios

	mu      sync.Mutex // guards the terminal's mode
	stop    atomic.Bool
	running sync.WaitGroup
	stopped chan os.Signal
}

// ReadKeys calls key for each key, by name: right, left, up, down, esc, enter, tab, space, backspace, or the character
// itself. It returns nil when the file in is not a terminal, or when another process group owns it.
func ReadKeys(in *os.File, key func(string)) (*Keys, error) {
	if !Is(in) || !ours(in) {
		return nil, nil
	}
	before, err := unix.IoctlGetTermios(int(in.Fd()), unix.TCGETS)
	if err != nil {
		return nil, err
	}
	k := &Keys{in: in, before: *before, stopped: make(chan os.Signal, 1)}
	// In the background a read, or the change of the mode by Close, would stop the process.
	signal.Ignore(unix.SIGTTIN, unix.SIGTTOU)
	if err := k.set(true); err != nil {
		return nil, err
	}
	signal.Notify(k.stopped, unix.SIGCONT)
	k.running.Go(func() { k.read(key) })
	return k, nil
}

// ours reports whether the terminal belongs to this process's group.
func ours(in *os.File) bool {
	group, err := unix.IoctlGetInt(int(in.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// set switches the terminal to single keys if raw is true, and otherwise restores it.
func (k *Keys) set(raw bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.before
	if raw {
		t.Lflag &^= unix.ICANON | unix.ECHO // Ctrl-C still sends a signal
		t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	}
	return unix.IoctlSetTermios(int(k.in.Fd()), unix.TCSETS, &t)
}

// read calls key for each key until Close. It reads only while the terminal belongs to this process's group.
func (k *Keys) read(key func(string)) {
	var b [keyBytes]byte
	rest := b[:0] // the bytes of an incomplete key
	for !k.stop.Load() {
		select {
		case <-k.stopped: // the shell may have changed the terminal's mode meanwhile
			if ours(k.in) {
				_ = k.set(true)
			}
		default:
		}
		fds := []unix.PollFd{{Fd: int32(k.in.Fd()), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int(keyPoll.Milliseconds()))
		switch {
		case err != nil && err != unix.EINTR, n > 0 && fds[0].Revents&unix.POLLIN == 0:
			return // the terminal was closed
		case n <= 0 && len(rest) > 0:
			rest = parse(rest, true, key)
			continue
		case n <= 0 || !ours(k.in):
			if n > 0 {
				time.Sleep(keyPoll) // the keys are now for other programs
			}
			continue
		}
		got, err := unix.Read(int(k.in.Fd()), b[len(rest):])
		if err == unix.EINTR || err == unix.EAGAIN || err == unix.EIO && !ours(k.in) {
			continue
		}
		if err != nil || got == 0 {
			return
		}
		rest = b[:copy(b[:], parse(b[:len(rest)+got], false, key))]
	}
}

var (
	arrows  = map[byte]string{'A': "up", 'B': "down", 'C': "right", 'D': "left"}
	special = map[byte]string{
		'\r': "enter", '\n': "enter", '\t': "tab", ' ': "space", 0x7f: "backspace", 0x08: "backspace"}
)

const esc = 0x1b

// parse calls key for each key in b, and returns the bytes of an incomplete key at the end of b. If the parameter last
// is true, no more bytes of an incomplete key will come.
func parse(b []byte, last bool, key func(string)) (rest []byte) {
	for len(b) > 0 {
		switch {
		case b[0] != esc:
			if name := special[b[0]]; name != "" {
				key(name)
			} else if b[0] > ' ' && b[0] < 0x7f {
				key(string(b[:1]))
			}
			b = b[1:]
		case len(b) == 1 && !last:
			return b
		case len(b) == 1 || b[1] == esc: // a slow link may join two presses of Esc, which ends a run
			key("esc")
			b = b[1:]
		case b[1] == '[' || b[1] == 'O':
			end := 2 // a sequence ends at its first byte of at least 0x40
			for end < len(b) && (b[end] < 0x40 || end == 2 && b[end] == '[') {
				end++
			}
			if end == len(b) {
				if last || len(b) >= keyBytes {
					return nil
				}
				return b
			}
			if name := arrows[b[end]]; name != "" && end == 2 {
				key(name)
			}
			b = b[end+1:]
		default: // Alt together with a key
			b = b[2:]
		}
	}
	return nil
}

// Close restores the terminal. A nil Keys does nothing.
func (k *Keys) Close() {
	if k == nil {
		return
	}
	k.stop.Store(true)
	k.running.Wait()
	signal.Stop(k.stopped)
	if ours(k.in) {
		_ = k.set(false)
	}
}
