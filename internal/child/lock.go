//go:build unix

package child

import (
	"errors"
	"os"
	"syscall"
)

// Lock locks an open file for this process alone, until Unlock. The error is syscall.EWOULDBLOCK while another
// process has the lock.
func Lock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }

// Unlock unlocks a file and closes it. Closing the file would not be enough: from its fork to its
// exec a child process shares the open file and so the lock, and on a busy machine this takes long.
func Unlock(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}
