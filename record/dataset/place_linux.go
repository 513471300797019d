package dataset

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/edge-rt/edge-rt/internal/child"
	"golang.org/x/sys/unix"
)

var lockFile = child.Lock // a test replaces it

// lock locks a folder for one process until unlock or the process's end.
func lock(dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := lockFile(f); err != nil {
		f.Close()
		return nil, err
	}
	mine, err := f.Stat()
	if there, statErr := os.Lstat(dir); err != nil || statErr != nil || !os.SameFile(mine, there) {
		_ = child.Unlock(f) // another process has renamed the folder since os.Open, as an export does at its end
		return nil, errors.Join(err, statErr, fs.ErrNotExist)
	}
	return func() { _ = child.Unlock(f) }, nil
}

// exchange swaps two folders in one step.
func exchange(a, b string) error {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}

// renameNew renames a folder. It fails with fs.ErrExist if the new name exists.
func renameNew(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	// not every file system can check and rename in one step
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return renameChecked(from, to)
	}
	if err != nil {
		return fmt.Errorf("rename %s to %s: %w", from, to, err)
	}
	return nil
}
