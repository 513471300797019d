//go:build !linux

package dataset

import (
	"errors"
	"io/fs"
	"os"
)

func lock(string) (unlock func(), err error) { return func() {}, nil }

func exchange(string, string) error { return errors.ErrUnsupported }

func renameNew(from, to string) error {
	if _, there := os.Lstat(to); there == nil {
		return &os.LinkError{
			Op:  "rename",
			Old: from,
			New: to,
			Err: fs.ErrExist,
		}
	}
	return os.Rename(from, to)
}
