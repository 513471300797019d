package dataset

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/edge-rt/edge-rt/record"
)

// marker is a folder inside a dataset that an export is building. It marks the dataset as an export's work; a folder
// without it belongs to a person. The export writes each file in the marker folder and then renames it to its place.
const marker = ".edge-rt-partial"

// folder is a dataset that an export is building.
type folder struct {
	dir       string
	file, sub fs.FileMode // permissions of the dataset's files, and of the folders in the dataset
}

// folderFor returns a folder whose files only readers of the records may read. The process's umask restricts the
// permissions further.
func folderFor(dir string, records []string) (*folder, error) {
	f := &folder{dir: dir, file: 0o666}
	for _, name := range records {
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		f.file &= info.Mode().Perm()
	}
	f.file |= 0o600
	f.sub = f.file | f.file&0o444>>2
	return f, nil
}

// makeFor makes the parent folder of a file of the dataset and returns the file's path. It returns an error for a name
// that leads out of the dataset, since the name may come from a stranger.
func (f *folder) makeFor(rel string) (path string, err error) {
	if !filepath.IsLocal(rel) {
		return "", refuse("%q is no path within a dataset", rel)
	}
	path = filepath.Join(f.dir, rel)
	return path, os.MkdirAll(filepath.Dir(path), f.sub)
}

// open makes a new file in place of an existing file, which may be a link to another dataset's
// file.
func (f *folder) open(path string) (*os.File, error) {
	if err := removeAny(path); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, f.file)
}

// removeAny removes a file if it exists.
func removeAny(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// create makes an empty file for another program to write.
func (f *folder) create(rel string) (path string, err error) {
	if path, err = f.makeFor(rel); err != nil {
		return "", err
	}
	file, err := f.open(path)
	if err != nil {
		return "", err
	}
	return path, file.Close()
}

// write makes a file and forces it to the disk. On an error it makes no file.
func (f *folder) write(rel string, fill func(*os.File) error) error {
	path, err := f.makeFor(rel)
	if err != nil {
		return err
	}
	made := filepath.Join(f.dir, marker, "new")
	file, err := f.open(made)
	if err != nil {
		return err
	}
	if err := errors.Join(fill(file), file.Sync(), file.Close()); err != nil {
		os.Remove(made)
		return err
	}
	return os.Rename(made, path)
}

// claim makes the folder, or takes over the folder of an interrupted export, and locks it for this process. It returns
// an error for a folder that belongs to a person.
func (f *folder) claim(out string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(f.dir), 0o777); err != nil {
		return nil, err
	}
	err = os.Mkdir(f.dir, f.sub)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err != nil {
		if err := f.isAnExports(); err != nil {
			return nil, err
		}
	}
	unlock, err = lock(f.dir)
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK), errors.Is(err, fs.ErrNotExist): // the other export may just have ended
		return nil, refuse("another export is writing %s", out)
	case err != nil:
		return nil, refuse("%s: %w: an export needs a file system with locks: make the dataset on a local disk, and "+
			"copy it", f.dir, err)
	}
	if err := os.MkdirAll(filepath.Join(f.dir, marker), f.sub); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// isAnExports returns an error for a folder that is not the work of an export.
func (f *folder) isAnExports() error {
	info, err := os.Lstat(f.dir)
	if err != nil {
		return err
	}
	const cure = "move it away, or name another place for the dataset"
	if !info.IsDir() {
		return refuse("%s is in the way of the export, which makes a folder there: %s", f.dir, cure)
	}
	if err := f.withoutLinks(); err != nil {
		return err
	}
	if info, err := os.Lstat(filepath.Join(f.dir, marker)); err == nil && info.IsDir() {
		return nil
	}
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return nil
	}
	// An older edge-rt made no marker. Its folder has a journal, but not yet the info.json of a
	// finished dataset.
	_, noJournal := os.Lstat(filepath.Join(f.dir, journalPath))
	_, noInfo := os.Lstat(filepath.Join(f.dir, infoPath))
	if noJournal == nil && errors.Is(noInfo, fs.ErrNotExist) {
		return nil
	}
	return refuse("%s is not the folder of an interrupted export: %s", f.dir, cure)
}

// withoutLinks returns an error if a path that the export will write is a link, or anything else that is neither a file
// nor a folder: a write through a link would change the link's target.
func (f *folder) withoutLinks() error {
	var o own
	if j, err := readJournal(f.dir); err == nil { // without a journal there is no work to continue
		o = of(j)
	}
	return walk(f.dir, func(rel string, d fs.DirEntry) error {
		if (rel == marker || o.leads(rel)) && !d.IsDir() || rel == journalPath && !d.Type().IsRegular() {
			return refuse("%s is no part of what an interrupted export has left: move %s away, or name another place "+
				"for the dataset", filepath.Join(f.dir, rel), f.dir)
		}
		return nil
	})
}

// walk calls visit for each file and folder in dir with its path in dir. A folder comes before its
// files.
func walk(dir string, visit func(rel string, d fs.DirEntry) error) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(dir, path)
		if err = errors.Join(err, relErr); err != nil || rel == "." {
			return err
		}
		return visit(filepath.ToSlash(rel), d)
	})
}

// Patterns of the files and folders that an export makes. The numbers in a file's path give its
// episode.
var (
	numbered = regexp.MustCompile(`^(?:data|videos/([^/]+))/chunk-(\d{3,6})/file-(\d{3})\.(?:parquet|mp4)$`)
	folders  = regexp.MustCompile(
		`^(?:data|meta|meta/episodes|meta/episodes/chunk-000|data/chunk-\d+|videos|videos/([^/]+)|videos/([^/]+)/chunk-\d+)$`)
	ofMeta = []string{infoPath, statsPath, tasksPath, journalPath, fill(episodePath, "", 0, 0)}
)

// own identifies the files of a dataset that an export has made.
type own struct {
	videos   []string
	episodes int
}

// of describes the files that exports have made in the dataset with the journal j.
func of(j *journal) own {
	return own{videosOf(j.settings.Features), len(j.entries)}
}

// episode returns the number of the episode whose file has the path rel; ok is false if rel is not
// the path of an episode's file.
func (o *own) episode(rel string) (n int, ok bool) {
	m := numbered.FindStringSubmatch(rel)
	if m == nil || m[1] != "" && !slices.Contains(o.videos, m[1]) {
		return 0, false
	}
	chunk, err := strconv.Atoi(m[2])
	file, err2 := strconv.Atoi(m[3])
	n = chunk*chunksSize + file
	return n, err == nil && err2 == nil && rel == pathOf(m[1], n)
}

// has reports whether the export has made the file rel.
func (o *own) has(rel string) bool {
	n, ok := o.episode(rel)
	return ok && n < o.episodes || slices.Contains(ofMeta, rel)
}

// leads reports whether the folder rel holds, or will hold, files of the export.
func (o *own) leads(rel string) bool {
	m := folders.FindStringSubmatch(rel)
	return m != nil && (m[1]+m[2] == "" || slices.Contains(o.videos, m[1]+m[2]))
}

// others calls visit for each folder of a dataset, and for each file that the export has not made and that therefore
// belongs to a person. A folder comes before its files.
func (o *own) others(dir string, visit func(rel string, d fs.DirEntry) error) error {
	return walk(dir, func(rel string, d fs.DirEntry) error {
		switch {
		case rel == marker:
			return fs.SkipDir
		case !d.IsDir() && o.has(rel):
			return nil
		}
		return visit(rel, d)
	})
}

// adopt adds to this folder a person's files in another dataset (parameter from). The added files are links to the same
// files, or copies where the file system has no links. A further call adds the files that are new or have changed since
// the previous call.
func (f *folder) adopt(from string, o own) error {
	return o.others(from, func(rel string, d fs.DirEntry) error {
		there, here := filepath.Join(from, rel), filepath.Join(f.dir, rel)
		if _, taken := o.episode(rel); taken {
			return refuse("%s is no file of an export, and has the place of a future file: move it away", there)
		}
		if !d.IsDir() && o.leads(rel) {
			return refuse("%s is no folder, and an export writes into it: export into another place, and join both "+
				"with LeRobot's lerobot-edit-dataset", there)
		}
		switch d.Type() {
		case fs.ModeDir:
			info, err := d.Info()
			if err != nil {
				return err
			}
			err = os.Mkdir(here, info.Mode().Perm()|0o700)
			if errors.Is(err, fs.ErrExist) {
				return nil
			}
			return errors.Join(err, os.Chmod(here, info.Mode().Perm()|0o700))
		case 0, fs.ModeSymlink:
		default:
			return refuse("%s is neither a file nor a folder: move it away before something is added", there)
		}
		if sameFile(there, here) {
			return nil
		}
		if err := removeAny(here); err != nil {
			return err
		}
		return link(there, here)
	})
}

// link makes a second path for a file or a symbolic link. Where the file system has no links, it
// copies the file.
func link(from, to string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if info.Mode().Type() == fs.ModeSymlink {
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	}
	if os.Link(from, to) == nil {
		return nil
	}
	return copyFile(from, to, info)
}

// copyFile copies a file with its mode and its modification time, by which sameFile recognizes the
// copy.
func copyFile(from, to string, info fs.FileInfo) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Chmod(info.Mode().Perm()), out.Sync(), out.Close()); err == nil {
		err = os.Chtimes(to, info.ModTime(), info.ModTime())
	}
	if err != nil {
		os.Remove(to)
	}
	return err
}

// sameFile reports whether two paths are the same file, or a file and its copy.
func sameFile(a, b string) bool {
	x, errA := os.Lstat(a)
	y, errB := os.Lstat(b)
	if errA != nil || errB != nil || x.Mode().Type() != y.Mode().Type() {
		return false
	}
	if x.Mode().Type() == fs.ModeSymlink {
		to, errA := os.Readlink(a)
		other, errB := os.Readlink(b)
		return errA == nil && errB == nil && to == other
	}
	return os.SameFile(x, y) || x.Mode().IsRegular() && x.Size() == y.Size() && x.ModTime().Equal(y.ModTime())
}

// clear removes from dir the files that an export has made, and the files that the folder other also has. The result
// kept is the path of a person's file that remains; it is empty if no file remains.
func (o *own) clear(dir, other string) (kept string, err error) {
	var within []string
	err = walk(dir, func(rel string, d fs.DirEntry) error {
		path := filepath.Join(dir, rel)
		switch {
		case rel == marker && d.IsDir():
			return fs.SkipDir
		case d.IsDir():
			within = append(within, path)
			return nil
		case o.has(rel) || other != "" && sameFile(path, filepath.Join(other, rel)):
			return removeFrom(path)
		}
		kept = path
		return nil
	})
	if err != nil {
		return kept, err
	}
	for _, path := range slices.Backward(within) {
		os.Remove(path) // fails, as intended, for a folder that is not empty
	}
	return kept, nil
}

// removeFrom removes a file, even if its folder is read-only for its owner.
func removeFrom(path string) error {
	err := os.Remove(path)
	if !errors.Is(err, fs.ErrPermission) || os.Chmod(filepath.Dir(path), 0o700) != nil {
		return err
	}
	return os.Remove(path)
}

// replace moves the finished folder to its place. It then removes the old dataset, except for a person's files that
// the new dataset lacks. The result kept names one of these files.
func (f *folder) replace(out string, old *own) (kept string, err error) {
	if old == nil {
		if err := renameNew(f.dir, out); err != nil {
			if errors.Is(err, fs.ErrExist) {
				return "", refuse("%s was made by another program meanwhile: the dataset is whole in %s", out, f.dir)
			}
			return "", err
		}
		return "", errors.Join(os.RemoveAll(filepath.Join(out, marker)), syncDir(filepath.Dir(out)))
	}
	before := f.dir
	if err := exchange(f.dir, out); err != nil { // not every file system can exchange folders
		before = out + ".before"
		if err := renameNew(out, before); err != nil {
			return "", err
		}
		if err := renameNew(f.dir, out); err != nil {
			return "", errors.Join(err, renameNew(before, out))
		}
	}
	if err := errors.Join(os.RemoveAll(filepath.Join(out, marker)), syncDir(filepath.Dir(out))); err != nil {
		return "", err
	}
	if kept, err = old.clear(before, out); err == nil && kept == "" {
		err = os.RemoveAll(before)
	}
	if err != nil {
		err = fmt.Errorf("%s is whole; the previous dataset could not be removed, and is in %s: %w; remove it", out,
			before, err)
	}
	return kept, err
}

// renameChecked is renameNew in two steps, for systems that cannot check and rename in one step.
func renameChecked(from, to string) error {
	if _, err := os.Lstat(to); err == nil {
		return fmt.Errorf("rename %s to %s: %w", from, to, fs.ErrExist)
	}
	return os.Rename(from, to)
}

// resolve returns the absolute path that OUT names, with links resolved, and whether it exists.
func resolve(out string) (path string, there bool, err error) {
	if path, err = filepath.Abs(out); err != nil {
		return "", false, err
	}
	if path == filepath.Dir(path) {
		return "", false, refuse("%s is no place for a dataset: name a folder in it", path)
	}
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, false, nil
	}
	if err == nil && info.Mode().Type() == fs.ModeSymlink {
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			return "", false, refuse("%s is a link that leads nowhere: %w", out, err)
		}
		path = real
	}
	return path, err == nil, err
}

// syncDir forces a rename to the disk, on file systems that support it for folders.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	d.Sync() // some file systems refuse to sync a folder
	return nil
}

// checkFeatures returns an error for names that lead out of the folder of a dataset, since the names may come from a
// stranger.
func checkFeatures(features map[string]Feature) error {
	for name, f := range features {
		if name == "" || !filepath.IsLocal(filepath.FromSlash("videos/"+name)) || filepath.Base(name) != name {
			return fmt.Errorf("a feature is named %q, want a name without / in it", name)
		}
		if f.DType != videoType {
			continue
		}
		camera, ok := strings.CutPrefix(name, imagePrefix)
		if !ok {
			return fmt.Errorf("a video is named %q, want %sNAME", name, imagePrefix)
		}
		if err := record.CheckCamera(camera); err != nil {
			return err
		}
		if len(f.Shape) != 3 {
			return fmt.Errorf("the video %s has the shape %v, want height, width and channels", name, f.Shape)
		}
	}
	return nil
}
