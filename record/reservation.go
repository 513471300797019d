package record

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// A run whose files stay says so to the other recorders of the folder: it holds the lock
// of a file there that names its first one. When the run has ended, whichever way, nobody
// has the lock, and its files are like others.
const (
	reservationName  = ".reserved-"
	unlockedName     = ".reserving-" // until its lock is taken
	reservationBytes = 512           // a file name and a line's end have no more
)

// reserve keeps the files of a run from others until the reservation is released. Other
// recorders take an unlocked reservation for that of a dead process, so it gets its name
// after its lock.
func (d folder) reserve(first string) (*os.File, error) {
	made, err := os.CreateTemp(d.dir, unlockedName+"*")
	if err != nil {
		return nil, err
	}
	defer made.Close()
	name := filepath.Join(d.dir, reservationName+strings.TrimPrefix(filepath.Base(made.Name()), unlockedName))
	_, err = made.WriteString(first + "\n")
	err = errors.Join(err, unix.Flock(int(made.Fd()), unix.LOCK_EX|unix.LOCK_NB))
	fd := -1
	if err == nil {
		fd, err = unix.FcntlInt(made.Fd(), unix.F_DUPFD_CLOEXEC, 0) // it shares the lock
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

// exists reports whether a file still has its name.
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

// reservations returns the first files of the runs whose files stay. Reservations of
// processes that were killed are taken away.
func (d folder) reservations() (firsts []string) {
	names, _ := filepath.Glob(filepath.Join(escapeGlob(d.dir), reservationName+"*")) // fails of a bad pattern only
	for _, name := range names {
		f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil {
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

// escapeGlob has a folder's name match itself only.
func escapeGlob(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}

// ofRun reports whether a file was begun by the run whose first file is named, or later
// with its id: names of one id are in order of time.
func ofRun(first, name string) bool {
	a, b := ourName.FindStringSubmatch(first), ourName.FindStringSubmatch(name)
	return a != nil && b != nil && a[1] == b[1] && a[2] <= b[2]
}
