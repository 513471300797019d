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

	"edgert/record"
)

// marker is a folder within a dataset that is being made. Its owner is the export: a folder
// without it belongs to a person. Files are made in it, and moved to their places.
const marker = ".edge-rt-partial"

// folder is a dataset that is being made.
type folder struct {
	dir       string
	file, sub fs.FileMode // of its files, and of the folders in it
}

// folderFor is a folder whose files nobody may read who may not read the records. The
// process's umask takes more away.
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

// path is the place of a file in the dataset. A name that leads out of it is refused: it
// may be a stranger's.
func (f *folder) path(rel string) (string, error) {
	if !filepath.IsLocal(rel) {
		return "", refuse("%q is no path within a dataset", rel)
	}
	return filepath.Join(f.dir, rel), nil
}

// makeFor makes the folder of a file.
func (f *folder) makeFor(rel string) (path string, err error) {
	if path, err = f.path(rel); err != nil {
		return "", err
	}
	return path, os.MkdirAll(filepath.Dir(path), f.sub)
}

// create makes an empty file for another program, instead of one that may be a link to
// another dataset's.
func (f *folder) create(rel string) (path string, err error) {
	if path, err = f.makeFor(rel); err != nil {
		return "", err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, f.file)
	if err != nil {
		return "", err
	}
	return path, file.Close()
}

// write makes a file whole, and forces it to the disk, or makes none.
func (f *folder) write(rel string, fill func(*os.File) error) error {
	path, err := f.makeFor(rel)
	if err != nil {
		return err
	}
	made := filepath.Join(f.dir, marker, "new")
	if err := os.Remove(made); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(made, os.O_CREATE|os.O_EXCL|os.O_WRONLY, f.file)
	if err != nil {
		return err
	}
	if err := errors.Join(fill(file), file.Sync(), file.Close()); err != nil {
		os.Remove(made)
		return err
	}
	return os.Rename(made, path)
}

// claim makes the folder, or takes one up that an export has left, and keeps it for this
// process. What a person has put there is refused.
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
	if err != nil {
		return nil, refuse("another export is writing %s", out)
	}
	if err := os.MkdirAll(filepath.Join(f.dir, marker), f.sub); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// isAnExports refuses a folder that no export has left.
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
	// An older edge-rt had no marker. Its journal lies there without the info.json that a
	// whole dataset has.
	_, noJournal := os.Lstat(filepath.Join(f.dir, journalPath))
	_, noInfo := os.Lstat(filepath.Join(f.dir, infoPath))
	if noJournal == nil && errors.Is(noInfo, fs.ErrNotExist) {
		return nil
	}
	return refuse("%s is there, and is not what an interrupted export has left: %s", f.dir, cure)
}

// withoutLinks refuses a link, or anything else that is neither file nor folder, at a place
// where an export goes on to write: it would write into what the link leads to.
func (f *folder) withoutLinks() error {
	var o own
	if j, err := readJournal(f.dir); err == nil { // without one nothing is left that goes on
		o = of(j)
	}
	return filepath.WalkDir(f.dir, func(path string, d fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(f.dir, path)
		if err = errors.Join(err, relErr); err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if (rel == marker || o.leads(rel)) && !d.IsDir() || rel == journalPath && !d.Type().IsRegular() {
			return refuse("%s is no part of what an interrupted export has left: move %s away, or name another place for the dataset", path, f.dir)
		}
		return nil
	})
}

// The files that an export makes, by their places. The numbers are those of its episodes.
var (
	numbered = regexp.MustCompile(`^(?:data|videos/([^/]+))/chunk-(\d{3,6})/file-(\d{3})\.(?:parquet|mp4)$`)
	folders  = regexp.MustCompile(`^(?:data|meta|meta/episodes|meta/episodes/chunk-000|data/chunk-\d+|videos|videos/([^/]+)|videos/([^/]+)/chunk-\d+)$`)
	ofMeta   = []string{infoPath, statsPath, tasksPath, journalPath, fill(episodePath, "", 0, 0)}
)

// own are the files of a dataset that an export has made.
type own struct {
	videos   []string
	episodes int
}

// of is what a journal names.
func of(j *journal) own {
	return own{(&Info{Features: j.settings.Features}).videos(), len(j.entries)}
}

// episode is the number of the episode whose file has that place; ok is false for a place
// that no episode has.
func (o *own) episode(rel string) (n int, ok bool) {
	m := numbered.FindStringSubmatch(filepath.ToSlash(rel))
	if m == nil || m[1] != "" && !slices.Contains(o.videos, m[1]) {
		return 0, false
	}
	chunk, err := strconv.Atoi(m[2])
	file, err2 := strconv.Atoi(m[3])
	n = chunk*chunksSize + file
	return n, err == nil && err2 == nil && filepath.ToSlash(rel) == o.place(m[1], n)
}

// place is where an episode's file is: that of a video, or that of the numbers.
func (o *own) place(video string, n int) string {
	template := videoPath
	if video == "" {
		template = dataPath
	}
	return fill(template, video, int64(n/chunksSize), int64(n%chunksSize))
}

// has reports whether the export has made the file of that place.
func (o *own) has(rel string) bool {
	n, ok := o.episode(rel)
	return ok && n < o.episodes || slices.Contains(ofMeta, filepath.ToSlash(rel))
}

// leads reports whether files of the export lie, or will lie, in the folder of that place.
func (o *own) leads(rel string) bool {
	m := folders.FindStringSubmatch(filepath.ToSlash(rel))
	return m != nil && (m[1]+m[2] == "" || slices.Contains(o.videos, m[1]+m[2]))
}

// others calls visit for each file and folder of a dataset that is not the export's own: a
// person's. Folders come before their files.
func (o *own) others(dir string, visit func(rel string, d fs.DirEntry) error) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(dir, path)
		if err = errors.Join(err, relErr); err != nil {
			return err
		}
		switch {
		case rel == ".":
			return nil
		case rel == marker:
			return fs.SkipDir
		case !d.IsDir() && o.has(rel):
			return nil
		}
		return visit(rel, d)
	})
}

// adopt has a person's files of a dataset in this folder too: as links to the same files,
// or as copies where the file system has no links. It may be called again: what has come
// or has changed since is taken then.
func (f *folder) adopt(from string, o own) error {
	return o.others(from, func(rel string, d fs.DirEntry) error {
		there, here := filepath.Join(from, rel), filepath.Join(f.dir, rel)
		if _, taken := o.episode(rel); taken {
			return refuse("%s is no file of an export, and has the place of one that is to come: move it away", there)
		}
		if !d.IsDir() && o.leads(rel) {
			return refuse("%s is no folder, and an export writes into it: export into another place, and join both with LeRobot's lerobot-edit-dataset", there)
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
		if err := os.Remove(here); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return link(there, here)
	})
}

// link has a file, or a link, at another place too.
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

// copyFile copies a file with its mode and its time, by which sameFile knows it again.
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

// sameFile reports whether two places have the same file, or a file and its copy.
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

// clear removes from a folder what an export has made in it, and what another folder has
// too. It returns a file that stays, if there is one: a person's.
func (o *own) clear(dir, other string) (kept string, err error) {
	var within []string
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(dir, path)
		if err = errors.Join(err, relErr); err != nil {
			return err
		}
		switch {
		case rel == marker && d.IsDir():
			return fs.SkipDir
		case d.IsDir():
			if rel != "." {
				within = append(within, path)
			}
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
		os.Remove(path) // fails where something is left in it
	}
	return kept, nil
}

// removeFrom removes a file, from a folder that is read-only too: its owner may have made it so.
func removeFrom(path string) error {
	err := os.Remove(path)
	if !errors.Is(err, fs.ErrPermission) || os.Chmod(filepath.Dir(path), 0o700) != nil {
		return err
	}
	return os.Remove(path)
}

// replace puts the folder, which is whole, into its place. What was there goes when the new
// one is there, but for a person's files that the new one does not have; kept names one.
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
	if err := exchange(f.dir, out); err != nil { // not every file system can
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
		err = fmt.Errorf("%s is whole; what was there before it could not be removed, and is in %s: %w; remove that", out, before, err)
	}
	return kept, err
}

// resolve is the folder that OUT names, behind all links.
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

// syncDir forces a renaming to the disk, where folders can be forced.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	d.Sync() // some file systems refuse
	return nil
}

// checkFeatures refuses names that lead out of the folder of a dataset: they may be a
// stranger's.
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
