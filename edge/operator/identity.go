package operator

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/edge-rt/edge-rt/internal/child"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/userfile"
	"github.com/edge-rt/edge-rt/wire"
)

const (
	// maxSuffix bounds the number of edges on one host that share a configured id.
	maxSuffix = 64

	maxIDBytes     = wire.MaxUUIDBytes - len("-64") // maximum length of an id; a message has room for every suffix
	maxSocketBytes = 107                            // maximum length of a socket's path, unix(7)
)

// Identity is a robot's name on the network, exclusive while the process locks a file.
type Identity struct {
	ID       string
	Asked    string // requested id; if ID differs, another edge on this host has the requested id
	Dir      string
	Instance string   // random: distinguishes processes with one id
	Host     string   // the host's name; may be empty
	lock     *os.File // the file holds the last session epoch
	epoch    uint32
}

// NextEpoch returns an epoch that this robot has never used, not even before a restart.
func (i *Identity) NextEpoch() uint32 {
	if i.epoch++; i.epoch == 0 {
		i.epoch = 1
	}
	if i.lock != nil {
		// If this write fails, epochs may repeat, but only after the next restart.
		i.lock.WriteAt(fmt.Appendf(nil, "%-10d\n", i.epoch), 0)
	}
	return i.epoch
}

func (i *Identity) resume() {
	var b [16]byte
	n, _ := i.lock.ReadAt(b[:], 0)
	last, err := strconv.ParseUint(strings.TrimSpace(string(b[:n])), 10, 32)
	if err == nil {
		i.epoch = uint32(last)
	}
}

// stateDir returns the folder of the edge's state: the folder that systemd names, otherwise a folder of the user.
func stateDir() (string, error) {
	if dir := os.Getenv("STATE_DIRECTORY"); dir != "" {
		return dir, nil
	}
	if dir := os.Getenv("XDG_STATE_HOME"); dir != "" {
		return filepath.Join(userfile.Expand(dir), "edge-rt"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no folder for this robot's state: %w; set HOME, or XDG_STATE_HOME to a folder that "+
			"this user may write (in a unit of systemd: StateDirectory=edge-rt)", err)
	}
	return filepath.Join(home, ".local", "state", "edge-rt"), nil
}

// serviceDir is the state folder of the unit edge-rt@. Tests change it.
var serviceDir = "/var/lib/edge-rt"

// StateDirs returns the folders in which edges of this host may keep their state: stateDir and serviceDir.
// closed is serviceDir if this user may not read it, else "". If the service manager names a
// folder, StateDirs returns that folder alone.
func StateDirs() (dirs []string, closed string, err error) {
	own, err := stateDir()
	if err == nil {
		dirs = append(dirs, own)
	}
	if os.Getenv("STATE_DIRECTORY") != "" || own == serviceDir {
		return dirs, "", err
	}
	switch _, reading := os.ReadDir(serviceDir); {
	case reading == nil:
		dirs = append(dirs, serviceDir)
	case errors.Is(reading, os.ErrPermission):
		closed = serviceDir
	}
	if len(dirs) > 0 {
		err = nil // a service may have no home
	}
	return dirs, closed, err
}

// SocketPath returns the path of the operator's socket of the edge with this id.
func SocketPath(dir, id string) string { return filepath.Join(dir, id+".sock") }

// Claim locks the id want, or this host's own id when want is empty. If another edge has locked the id, Claim locks the
// first free id of <id>-2, <id>-3, …
func Claim(want string) (*Identity, error) {
	dir, err := stateDir()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, unwritable(err)
	}
	if want == "" {
		if want, err = hostID(filepath.Join(dir, "id")); err != nil {
			return nil, unwritable(err)
		}
	}
	if want, err = RobotID(want); err != nil {
		return nil, err
	}
	if n := len(SocketPath(dir, want)) + len("-64"); n > maxSocketBytes {
		return nil, exit.Errorf(exit.Config, "the operator's socket in %s would have a path of %d bytes, and the "+
			"kernel takes %d: set XDG_STATE_HOME to a shorter directory, or --id to a shorter name", dir, n,
			maxSocketBytes)
	}
	for n := 1; n <= maxSuffix; n++ {
		id := want
		if n > 1 {
			id = fmt.Sprintf("%s-%d", want, n)
		}
		f, err := os.OpenFile(filepath.Join(dir, id+".lock"), os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return nil, unwritable(err)
		}
		err = child.Lock(f)
		if err == nil {
			claimed := &Identity{
				ID:       id,
				Asked:    want,
				Dir:      dir,
				Instance: NewInstance(),
				Host:     hostName(),
				lock:     f,
			}
			claimed.resume()
			return claimed, nil
		}
		f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("robot id %s: lock: %w", id, err)
		}
	}
	return nil, fmt.Errorf("robot id %s and its first %d suffixes are all in use on this host: end some of these "+
		"runs, or give another --id", want, maxSuffix-1)
}

// unwritable adds advice to err, the error of a state folder that cannot be used, or of a file in it.
func unwritable(err error) error {
	cure := "set XDG_STATE_HOME to a folder that this user may write"
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		cure = "the disk is full: make room, or " + cure + " on another"
	case errors.Is(err, unix.EROFS):
		cure = "the file system is read-only: mount it writable, or " + cure
	case errors.Is(err, os.ErrPermission):
		cure = "it belongs to another user (was edge-rt run by root before?): give it to this one with chown, or " +
			cure
	}
	return fmt.Errorf("this robot's state: %w; %s", err, cure)
}

// NewInstance returns a random text that distinguishes processes.
func NewInstance() string {
	var random [8]byte
	_, _ = rand.Read(random[:]) // crypto/rand documents that Read never fails
	return hex.EncodeToString(random[:])
}

// hostName returns this host's name in a form that fits into a message, "" if it is too long.
func hostName() string {
	host, err := os.Hostname()
	if err != nil || len(host) > wire.MaxNameBytes {
		return ""
	}
	return strings.ToValidUTF8(host, "")
}

// RobotID returns the robot's name on the network for a value of --id.
func RobotID(text string) (string, error) {
	id, err := wire.Slug(text)
	switch {
	case len(id) > maxIDBytes:
		return "", exit.Errorf(exit.Usage, "--id has %d bytes, want at most %d", len(id), maxIDBytes)
	case err != nil:
		return "", exit.Errorf(exit.Usage, "--id: %w; use letters, digits, '_', '.' and '-'", err)
	}
	return id, nil
}

// hostID reads this host's id, and makes one at the first run.
func hostID(path string) (string, error) {
	b, err := os.ReadFile(path)
	if id, wrong := RobotID(strings.TrimSpace(string(b))); err == nil && wrong == nil {
		return id, nil
	}
	if err == nil { // a power failure may leave the file without its text
		err = os.Remove(path)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	id := "edge-" + NewInstance()[:8]
	// Several edges may do this at the same time. The id of the edge that links the file first is valid.
	tmp := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := userfile.Replace(tmp, []byte(id+"\n")); err != nil {
		return "", err
	}
	defer os.Remove(tmp)
	if err := os.Link(tmp, path); errors.Is(err, os.ErrExist) {
		b, err := os.ReadFile(path)
		return strings.TrimSpace(string(b)), err
	} else if err != nil {
		return "", err
	}
	return id, nil
}

// Release unlocks the name.
func (i *Identity) Release() { _ = child.Unlock(i.lock) }
