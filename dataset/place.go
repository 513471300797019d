package dataset

import (
	"os"
	"path/filepath"
)

// replace puts a folder that is whole into its place. What was there goes when the new one
// is there.
func replace(whole, out string) error {
	there, err := exists(out)
	if err != nil {
		return err
	}
	if !there {
		if err := os.Rename(whole, out); err != nil {
			return err
		}
		return syncDir(filepath.Dir(out))
	}
	old := whole
	if err := exchange(whole, out); err != nil { // not every file system can
		old = out + ".before"
		if err := os.Rename(out, old); err != nil {
			return err
		}
		if err := os.Rename(whole, out); err != nil {
			return err
		}
	}
	if err := syncDir(filepath.Dir(out)); err != nil {
		return err
	}
	return os.RemoveAll(old)
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
