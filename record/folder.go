package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/foxglove/mcap/go/mcap"
	"golang.org/x/sys/unix"
)

// Profile is what the header of our files says, by which we know them again.
const Profile = "edge-rt"

// Extension ends the files' names.
const Extension = ".mcap"

const (
	timeLayout = "20060102T150405.000Z"
	lastYear   = 9998 // whose names can have later ones
	probeBytes = 4096
	spareShare = 32
	listShare  = 64 // the folder is listed anew when so much of its size was written: others write, too

	// What the disk keeps for others, who run out of it before a record does.
	reserveShare = 20
	reserveMax   = 1 << 30

	// Files are for their owner and its group, as the service's state is: they hold
	// pictures of the place where the robot is.
	folderMode = 0o750
	fileMode   = 0o640

	repairing = ".repair" // ends the name of a file that is being made of a torn one
)

var ourName = regexp.MustCompile(`^(.+)-(\d{8}T\d{6}\.\d{3}Z)\.mcap$`)

// folder is where the files are, ours and perhaps a stranger's, which is never touched.
type folder struct {
	dir  string
	size int64 // most bytes of all of ours
	disk func(dir string) (free, size int64)
}

// diskOf is how many bytes a disk has, and how many of them are free for us; 0, 0 when
// it does not say.
func diskOf(dir string) (free, size int64) {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return 0, 0
	}
	return int64(s.Bavail) * s.Bsize, int64(s.Blocks) * s.Bsize
}

// room is how many bytes all files may have, of which there are total now.
func (d folder) room(total int64) int64 {
	free, size := d.disk(d.dir)
	if size == 0 {
		return d.size
	}
	return min(d.size, total+free-min(size/reserveShare, reserveMax))
}

// entry is a file that has the name of one of ours.
type entry struct {
	name string // within the folder
	when string // in its name
	size int64
}

// list returns the files that are named as ours, the oldest first.
func (d folder) list() (entries []entry, total int64, err error) {
	found, err := os.ReadDir(d.dir)
	if err != nil {
		return nil, 0, err
	}
	for _, f := range found {
		m := ourName.FindStringSubmatch(f.Name())
		if m == nil || !f.Type().IsRegular() {
			continue
		}
		info, err := f.Info()
		if err != nil {
			continue // another process has taken it away
		}
		entries = append(entries, entry{f.Name(), m[2], info.Size()})
		total += info.Size()
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.when+a.name, b.when+b.name) })
	return entries, total, nil
}

// nameAt is the name of a file that begins at a time of day.
func nameAt(id string, t time.Time) string {
	return id + "-" + t.UTC().Format(timeLayout) + Extension
}

// Why there is no room, when no file may be deleted any more: all are being written, or
// not ours.
var (
	errOwnFiles = errors.New("what this run has recorded fills --record-size, or the disk, and none of it is deleted, since it has episodes: end the run, and go on with a larger --record-size or another --record-dir")
	errReserved = errors.New("what another robot records in this folder fills --record-size, or the disk, and stays while its run goes on, since that has episodes: give each robot a --record-dir of its own, or a larger --record-size")
	errNoRoom   = errors.New("the files that are there have the size of --record-size, and none of them may be deleted: all are being written, or not ours")
	errDiskFull = errors.New("no space left on the disk of --record-dir but what is kept for others (a twentieth, at most 1 GiB), and no older record to delete")
)

// makeRoom deletes the oldest of our files, if need more bytes do not fit, until there is
// some room to spare: to list thousands of small files for each chunk is too much. Those
// that somebody writes stay, those of runs that have reserved theirs, and those that keep
// names. total is what is left, and limit what it may become.
func (d folder) makeRoom(need int64, keep func(name string) bool) (total, limit int64, deleted []string, err error) {
	entries, total, err := d.list()
	limit = d.room(total)
	room := limit
	var reserved []string
	if total+need > limit {
		room -= d.size / spareShare
		reserved = d.reservations()
	}
	var kept, others int64 // bytes
	for _, e := range entries {
		if err != nil || total+need <= room {
			return total, limit, deleted, err
		}
		switch {
		case keep(e.name):
			kept += e.size
		case slices.ContainsFunc(reserved, func(first string) bool { return ofRun(first, e.name) }):
			others += e.size
		case d.remove(e.name):
			total -= e.size
			deleted = append(deleted, e.name)
		}
	}
	if err == nil && total+need > limit {
		switch {
		case others > 0 && kept+need <= limit:
			err = errReserved
		case kept > 0:
			err = errOwnFiles
		case limit < d.size:
			err = errDiskFull
		default:
			err = errNoRoom
		}
	}
	return total, limit, deleted, err
}

// remove deletes a file, if it is ours and nobody writes it.
func (d folder) remove(name string) bool {
	f, err := d.claim(name)
	if err != nil {
		return false
	}
	defer f.Close()
	return os.Remove(filepath.Join(d.dir, name)) == nil
}

// Why a file is left alone.
var (
	errInUse    = errors.New("another process writes it")
	errStranger = errors.New("it is not one of ours")
)

// claim opens a file of ours that nobody writes, and keeps others from it until it is
// closed.
func (d folder) claim(name string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(d.dir, name), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	switch {
	case unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil:
		err = errInUse
	case !ours(f):
		err = errStranger
	default:
		return f, nil
	}
	f.Close()
	return nil, err
}

// ours reports whether a file begins as one of ours.
func ours(f io.ReaderAt) bool {
	b := make([]byte, len(mcap.Magic)+9+4+len(Profile))
	if _, err := f.ReadAt(b, 0); err != nil || !bytes.HasPrefix(b, mcap.Magic) {
		return false
	}
	header := b[len(mcap.Magic):]
	return mcap.OpCode(header[0]) == mcap.OpHeader && binary.LittleEndian.Uint32(header[9:]) == uint32(len(Profile)) && string(header[13:]) == Profile
}

// whole reports whether a file ends as a complete one does.
func whole(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Size() < 2*int64(len(mcap.Magic)) {
		return false
	}
	end := make([]byte, len(mcap.Magic))
	_, err = f.ReadAt(end, info.Size()-int64(len(end)))
	return err == nil && bytes.Equal(end, mcap.Magic)
}

// create makes a file for a run that begins at a time of day; nobody else may write it.
// Files are deleted in the order of their names, so a name is later than all that are
// there, also after the clock was set back: what the file says of its clock is exact.
func (d folder) create(id string, t time.Time) (*os.File, error) {
	if err := os.MkdirAll(d.dir, folderMode); err != nil {
		return nil, err
	}
	if entries, _, err := d.list(); err == nil && len(entries) > 0 {
		newest, err := time.Parse(timeLayout, entries[len(entries)-1].when)
		if after := newest.Add(time.Millisecond); err == nil && after.Year() <= lastYear && t.Before(after) {
			t = after
		}
	}
	for try := range 10 { // names have milliseconds, and the clock may have been set back
		f, err := os.OpenFile(filepath.Join(d.dir, nameAt(id, t.Add(time.Duration(try)*time.Millisecond))), os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		return f, nil
	}
	return nil, fmt.Errorf("ten files of the name %s are there", nameAt(id, t))
}

// sync makes a name last that was made or replaced.
func (d folder) sync() error {
	f, err := os.Open(d.dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil && !errors.Is(err, unix.EINVAL) { // some file systems have no such thing
		return err
	}
	return nil
}

// Probe says why no file can be written into a folder, which it makes.
func Probe(dir string) error {
	if err := os.MkdirAll(dir, folderMode); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, probeBytes))
	return errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name()))
}
