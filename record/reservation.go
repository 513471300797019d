package record

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/edge-rt/edge-rt/internal/child"
	"golang.org/x/sys/unix"
)

// A run whose files must stay protects them from the other recorders of the folder: it holds the lock of a reservation
// file in the folder. This file contains the name of the run's first file. When the run ends for any reason, the lock
// is free, and other recorders may delete the run's files.
const (
	reservationName  = ".reserved-"
	unlockedName     = ".reserving-" // name of the file before it is locked
	reservationBytes = 512           // largest size in bytes: a file name and a newline
)

// reserve protects the files of a run from other recorders until release. Other recorders take an unlocked reservation
// for the reservation of a dead process, so reserve locks the file before the file gets its final name.
func (d folder) reserve(first string) (*os.File, error) {
	made, err := os.CreateTemp(d.dir, unlockedName+"*")
	if err != nil {
		return nil, err
	}
	defer made.Close()
	name := filepath.Join(d.dir, reservationName+strings.TrimPrefix(filepath.Base(made.Name()), unlockedName))
	_, err = made.WriteString(first + "\n")
	err = errors.Join(err, child.Lock(made))
	fd := -1
	if err == nil {
		fd, err = unix.FcntlInt(made.Fd(), unix.F_DUPFD_CLOEXEC, 0) // the duplicate shares the lock
	}
	if err == nil {
		err = os.Rename(made.Name(), name)
	}
	if err != nil {
		os.Remove(made.Name())
		if fd >= 0 {
			unix.Close(fd)
		}
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// exists reports whether the name of an open file still refers to this file.
func exists(f *os.File) bool {
	mine, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(f.Name())
	return err == nil && os.SameFile(mine, there)
}

// release gives a reservation up.
func release(f *os.File) {
	if f != nil {
		os.Remove(f.Name())
		f.Close()
	}
}

// reservations returns the first files of the runs with a reservation. It removes the reservations
// of processes that were killed.
func (d folder) reservations() (firsts []string) {
	for _, name := range d.glob(reservationName + "*") {
		f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		if locked(f) == nil {
			os.Remove(name)
		} else if text, err := io.ReadAll(io.LimitReader(f, reservationBytes)); err == nil {
			if first, _, whole := bytes.Cut(text, []byte("\n")); whole {
				firsts = append(firsts, string(first))
			}
		}
		f.Close()
	}
	return firsts
}

// glob returns the paths of the files whose names match a pattern.
func (d folder) glob(pattern string) (paths []string) {
	names, _ := fs.Glob(os.DirFS(d.dir), pattern) // fails only for a bad pattern
	for _, name := range names {
		paths = append(paths, filepath.Join(d.dir, name))
	}
	return paths
}

// ofRun reports whether a file is the run's first file, or a later file of the same id. The names
// of one id are in order of time.
func ofRun(first, name string) bool {
	a, b := ourName.FindStringSubmatch(first), ourName.FindStringSubmatch(name)
	return a != nil && b != nil && a[1] == b[1] && a[2] <= b[2]
}
