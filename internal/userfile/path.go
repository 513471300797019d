package userfile

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

// variable is a name that Expand replaces: $HOME or ${HOME}.
var variable = regexp.MustCompile(`\$([A-Za-z0-9_]+|\{[^}]*\})`)

// readableByAll is the permission bit with which every user may read a file.
const readableByAll = 0o004

// Replace writes a file so that a reader sees either the old or the new file, never a part, also after a power failure.
// If path is a link, Replace writes the file that the link leads to. An existing file keeps its permissions and its
// owner. If this user may not set the owner, a file that everybody may read gets this user as its owner. For any other
// file Replace returns an error.
func Replace(path string, data []byte) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	tmp, mode := path+".tmp", os.FileMode(0o644)
	old, absent := os.Stat(path)
	if absent == nil {
		mode = old.Mode().Perm()
	}
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	if absent == nil {
		if err = f.Chmod(mode); err == nil {
			owner := old.Sys().(*syscall.Stat_t)
			err = f.Chown(int(owner.Uid), int(owner.Gid))
			if errors.Is(err, os.ErrPermission) && mode&readableByAll != 0 {
				err = nil
			}
		}
	}
	if err == nil {
		_, err = f.Write(data)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return nil
}

// Write writes the output of a command as Replace does, so that a failure leaves an earlier file as it is.
// It writes directly into a device, a pipe, or a file in whose folder this user can create no file.
func Write(path string, data []byte) error {
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		err = Replace(path, data)
		if !errors.Is(err, os.ErrPermission) && !errors.Is(err, syscall.EBUSY) && !errors.Is(err, syscall.EROFS) {
			return err
		}
	}
	return os.WriteFile(path, data, 0o644)
}

// Unchanged compares two results of os.Stat, of which nil means an absent file. It reports whether both files are
// absent, or both are the same file with the same size and time. Equal size and time do not suffice: if a link is
// moved to another folder, the new file may have the size and the time of the old one.
func Unchanged(a, b os.FileInfo) bool {
	return a == b || os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// Expand replaces ~, ~user, $NAME and ${NAME} as Python's os.path.expandvars(os.path.expanduser(path)) does, which
// huggingface_hub uses. An unknown user or variable is left as written; CheckPath refuses an unknown user.
func Expand(path string) string {
	return variable.ReplaceAllStringFunc(ExpandHome(path), func(text string) string {
		name := text[1:]
		if name[0] == '{' {
			name = name[1 : len(name)-1]
		}
		if value, ok := os.LookupEnv(name); ok {
			return value
		}
		return text
	})
}

// ExpandHome replaces a leading ~ or ~user as Python's os.path.expanduser does.
func ExpandHome(path string) string {
	if !strings.HasPrefix(path, "~") {
		return path
	}
	name, rest := path[1:], ""
	if i := strings.IndexByte(path, '/'); i >= 0 {
		name, rest = path[1:i], path[i:]
	}
	home, ok := homeOf(name)
	if !ok {
		return path
	}
	if home = strings.TrimRight(home, "/"); home+rest == "" {
		return "/"
	}
	return home + rest
}

// homeOf finds a user's home; an empty name is the user of this process.
func homeOf(name string) (home string, ok bool) {
	if name != "" {
		u, err := user.Lookup(name)
		if err != nil {
			return "", false
		}
		return u.HomeDir, true
	}
	if home, ok = os.LookupEnv("HOME"); ok {
		return home, true
	}
	u, err := user.LookupId(strconv.Itoa(os.Getuid()))
	if err != nil {
		return "", false
	}
	return u.HomeDir, true
}

// CheckPath refuses an expanded path that still begins with ~. A file of such a name is written ./~name.
func CheckPath(path string) error {
	if !strings.HasPrefix(path, "~") {
		return nil
	}
	first, _, _ := strings.Cut(path, "/")
	return fmt.Errorf("%s: this machine has no user for %s; write the whole path (or ./%s for a name that begins "+
		"with ~)", path, first, first)
}
