package servosim

import (
	"fmt"
	"io/fs"
	"os"
	"strconv"
)

// link makes path point to target in one step, so that a client never finds it
// half made. An older link is replaced, anything else is left alone.
func link(target, path string) error {
	if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink == 0 {
		return fmt.Errorf("%w: %s is not a symbolic link; choose another path or remove it", ErrLink, path)
	}
	next := path + ".new" + strconv.Itoa(os.Getpid())
	os.Remove(next)
	if err := os.Symlink(target, next); err != nil {
		return fmt.Errorf("servosim: link: %w", err)
	}
	if err := os.Rename(next, path); err != nil {
		os.Remove(next)
		return fmt.Errorf("servosim: link: %w", err)
	}
	return nil
}

// unlink removes path if it still points to target; somebody else's link stays.
func unlink(target, path string) {
	if now, err := os.Readlink(path); err == nil && now == target {
		os.Remove(path)
	}
}
