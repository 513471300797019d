package servosim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
)

// link makes path a symbolic link to target in one step, so that a client always finds the old link
// or the new one. It replaces an older link, and fails when path is another kind of file.
func link(target, path string) error {
	if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink == 0 {
		return fmt.Errorf("%w: %s is not a symbolic link; choose another path or remove it", ErrLink, path)
	}
	next := path + ".new" + strconv.Itoa(os.Getpid())
	os.Remove(next)
	if err := os.Symlink(target, next); err != nil {
		return fmt.Errorf("%w: %w", ErrLink, err)
	}
	if err := os.Rename(next, path); err != nil {
		os.Remove(next)
		return fmt.Errorf("%w: %w", ErrLink, err)
	}
	return nil
}

// lockLink locks path for this process until release is called, so that no bus replaces the link of
// a running bus. The kernel releases the lock of a killed process.
func lockLink(path string) (release func(), err error) {
	release, err = lockName(path)
	switch {
	case errors.Is(err, errLocked):
		return nil, fmt.Errorf("%w: %s leads to a simulated bus that still runs; end that one (SIGTERM or Ctrl-C), "+
			"or give this one another link", ErrLink, path)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrLink, err)
	}
	return release, nil
}

// errLocked is the error of lockName when another bus has locked the link.
var errLocked = errors.New("held")

// unlink removes the link path if it still points to target, so that the link of another bus stays.
func unlink(target, path string) {
	if now, err := os.Readlink(path); err == nil && now == target {
		os.Remove(path)
	}
}

// plugRequest asks the wire to plug the adapter in or to remove it.
type plugRequest struct {
	plug bool
	done chan error
}

func (b *Bus) openTerminal() (err error) {
	if b.cfg.Link != "" {
		if b.release, err = lockLink(b.cfg.Link); err != nil {
			return err
		}
		defer func() {
			if err != nil {
				b.release()
			}
		}()
	}
	if err := b.pty.open(b.cfg.Baud); err != nil {
		return fmt.Errorf("servosim: %w", err)
	}
	if err := b.publish(); err != nil {
		b.pty.close()
		return err
	}
	return nil
}

func (b *Bus) publish() error {
	if b.cfg.Link != "" {
		if err := link(b.pty.name, b.cfg.Link); err != nil {
			return err
		}
	}
	b.mu.Lock()
	b.path = b.pty.name
	b.mu.Unlock()
	return nil
}

// plugPending reports whether the adapter is still to be plugged in or removed.
//
//rt:noalloc
func (b *Bus) plugPending() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.plugged != b.in
}

func (b *Bus) plug() error {
	if !b.plugPending() {
		return nil
	}
	if b.in {
		b.in = false
		b.emitPlug()
		if b.cfg.Link != "" {
			unlink(b.pty.name, b.cfg.Link)
		}
		b.pty.unplug()
		b.wire.head = 0
		b.wire.tail = 0
		b.wire.out.delayedLen = 0
		return nil
	}
	b.in = true
	b.emitPlug()
	if err := b.pty.plug(b.cfg.Baud); err != nil {
		return fmt.Errorf("servosim: plug in again: %w", err)
	}
	return b.publish()
}

// emitPlug reports to the watcher that the adapter was plugged in or removed.
func (b *Bus) emitPlug() {
	now := b.cfg.Clock.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rail.unplugged = !b.in
	for _, s := range b.servos {
		s.emitChange(now)
	}
}

func (b *Bus) requestPlug(plug bool) error {
	o := plugRequest{plug, make(chan error, 1)}
	select {
	case b.plugRequests <- o:
	case <-b.done:
		return errors.New("servosim: the bus is closed")
	}
	b.pty.wake()
	select {
	case err := <-o.done:
		return err
	case <-b.done:
		return errors.New("servosim: the bus is closed")
	}
}
