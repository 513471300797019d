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

	"github.com/edge-rt/edge-rt/internal/child"
	"github.com/foxglove/mcap/go/mcap"
	"golang.org/x/sys/unix"
)

// Profile is the profile in the header of our files. The recorder recognizes our files by it.
const Profile = "edge-rt"

// Extension is the suffix of the files' names.
const Extension = ".mcap"

const (
	timeLayout = "20060102T150405.000Z"
	lastYear   = 9998 // last year in a name: later names must still fit
	probeBytes = 4096
	spareShare = 32 // makeRoom frees 1/spareShare of Size more than is needed
	// after writing 1/listShare of Size, the recorder lists the folder again, because other
	// recorders write to it, too
	listShare = 64

	// 1/reserveShare of the disk, at most reserveMax bytes, stays free for other programs, which a
	// full disk harms sooner than the recorder.
	reserveShare = 20
	reserveMax   = 1 << 30

	// Only the owner and its group may read the files, as with the service's state: the files show the robot's
	// surroundings.
	folderMode = 0o750
	fileMode   = 0o640

	repairing = ".repair" // suffix of a file that is being repaired
)

var ourName = regexp.MustCompile(`^(.+)-(\d{8}T\d{6}\.\d{3}Z)\.mcap$`)

// folder is the folder of the files. It may also hold a stranger's files, which the recorder never
// touches.
type folder struct {
	dir  string
	size int64 // maximum bytes of all our files
	disk func(dir string) (free, size int64)
}

// diskOf returns the free bytes of a disk and its size; both are 0 if the system does not report
// them.
func diskOf(dir string) (free, size int64) {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return 0, 0
	}
	return int64(s.Bavail) * s.Bsize, int64(s.Blocks) * s.Bsize
}

// room returns the largest number of bytes that all our files together may have. total is their
// present number of bytes.
func (d folder) room(total int64) int64 {
	free, size := d.disk(d.dir)
	if size == 0 {
		return d.size
	}
	return min(d.size, total+free-min(size/reserveShare, reserveMax))
}

// entry is a file whose name has the form of our files' names.
type entry struct {
	name string // name within the folder
	when string // time in its name
	size int64
}

// list returns the files whose names have the form of our files' names, the oldest first.
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
			continue // another process has removed it
		}
		entries = append(entries, entry{f.Name(), m[2], info.Size()})
		total += info.Size()
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.when+a.name, b.when+b.name) })
	return entries, total, nil
}

// nameAt returns the name of a file that begins at t.
func nameAt(id string, t time.Time) string {
	return id + "-" + t.UTC().Format(timeLayout) + Extension
}

// Reasons for the lack of room after makeRoom has deleted every file that it may delete.
var (
	errOwnFiles = errors.New("the records of this run fill --record-size, or the disk, and stay, since the run has " +
		"episodes: end the run, and go on with a larger --record-size or another --record-dir")
	errReserved = errors.New("the records of another robot in this folder fill --record-size, or the disk, and stay " +
		"while its run goes on, since the run has episodes: give each robot a --record-dir of its own, or a larger " +
		"--record-size")
	errNoRoom = errors.New("the files in the folder have the size of --record-size, and no file may be deleted: " +
		"each is being written, or is not ours")
	errDiskFull = errors.New("no space left on the disk of --record-dir, except for the part that stays free for " +
		"other programs (a twentieth, at most 1 GiB), and no older record to delete")
)

// makeRoom deletes our oldest files if the given number of further bytes does not fit. It then frees a little more than
// needed, because it would be too expensive to list thousands of small files for each chunk. It spares files that a
// process is writing, files of runs with a reservation, and files whose names the function keep accepts. The result
// total is the size of the remaining files, and the result limit is the largest permitted size.
func (d folder) makeRoom(need int64, keep func(name string) bool) (total, limit int64, deleted []string, err error) {
	entries, total, err := d.list()
	limit = d.room(total)
	room := limit
	var reserved []string
	if total+need > limit {
		room -= d.size / spareShare
		reserved = d.reservations()
	}
	var kept, others int64 // in bytes
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

// remove deletes a file if it is ours and no process is writing it.
func (d folder) remove(name string) bool {
	f, err := d.claim(name)
	if err != nil {
		return false
	}
	defer child.Unlock(f)
	return os.Remove(filepath.Join(d.dir, name)) == nil
}

// Reasons for leaving a file alone.
var (
	errInUse    = errors.New("another process writes it")
	errStranger = errors.New("it is not one of ours")
)

// claim opens a file of ours that no process is writing, and locks it until child.Unlock.
func (d folder) claim(name string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(d.dir, name), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	switch {
	case child.Lock(f) != nil:
		err = errInUse
	case !ours(f):
		err = errStranger
	default:
		return f, nil
	}
	f.Close()
	return nil, err
}

// ours reports whether a file begins like a file of this package.
func ours(f io.ReaderAt) bool {
	b := make([]byte, len(mcap.Magic)+9+4+len(Profile))
	if _, err := f.ReadAt(b, 0); err != nil || !bytes.HasPrefix(b, mcap.Magic) {
		return false
	}
	header := b[len(mcap.Magic):]
	return mcap.OpCode(header[0]) == mcap.OpHeader && binary.LittleEndian.Uint32(header[9:]) == uint32(len(Profile)) &&
		string(header[13:]) == Profile
}

// hasEnd reports whether a file ends as a complete file does.
func hasEnd(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Size() < 2*int64(len(mcap.Magic)) {
		return false
	}
	end := make([]byte, len(mcap.Magic))
	_, err = f.ReadAt(end, info.Size()-int64(len(end)))
	return err == nil && bytes.Equal(end, mcap.Magic)
}

// create makes a file for a run that begins at t, and locks the file. Files are deleted in the order of their names,
// so a new name must be later than all existing names, even after the clock was set back. The exact time is in the
// file.
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
	for try := range 10 { // a name has a resolution of 1 ms, and the clock may have been set back
		f, err := os.OpenFile(filepath.Join(d.dir, nameAt(id, t.Add(time.Duration(try)*time.Millisecond))),
			os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := lockNew(f); err != nil {
			os.Remove(f.Name())
			return nil, errors.Join(err, f.Close())
		}
		return f, nil
	}
	return nil, fmt.Errorf("ten files from the name %s on exist already", nameAt(id, t))
}

var lockFile = child.Lock // a test replaces it

// lockNew locks a file that this process has just made.
func lockNew(f *os.File) error {
	err := lockFile(f)
	if err != nil {
		err = fmt.Errorf("lock %s: %w: records need a file system with locks, such as a local disk's", f.Name(), err)
	}
	return err
}

// sync forces the creation or the renaming of files to the disk.
func (d folder) sync() error {
	f, err := os.Open(d.dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil && !errors.Is(err, unix.EINVAL) { // some file systems cannot sync a folder
		return err
	}
	return nil
}

// Probe makes a folder. It returns the reason if files cannot be written into the folder, and
// otherwise nil.
func Probe(dir string) error {
	if err := os.MkdirAll(dir, folderMode); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, probeBytes))
	return errors.Join(err, lockNew(f), f.Sync(), f.Close(), os.Remove(f.Name()))
}
