package userfile

import (
	"os"
	"path/filepath"
	"strings"
)

// demoTree is the folder of the demo's files in a checkout, and the default of flags.
const demoTree = "testdata/demo"

// shippedTrees are the folders below Prefix that contain the demo's files: the first in an
// installation, the second in a checkout.
var shippedTrees = []string{"share/edge-rt/demo", demoTree}

// Prefix returns the folder of this program's installation: the parent of the program's folder, such
// as /usr or a Python environment. Links to the program are followed.
func Prefix() (string, error) {
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	return filepath.Dir(filepath.Dir(self)), err
}

// Shipped changes paths below testdata/demo that do not exist here to the same files of the
// installation or checkout that contains this program.
func Shipped(paths ...*string) {
	if prefix, err := Prefix(); err == nil {
		shippedWith(prefix, paths...)
	}
}

func shippedWith(prefix string, paths ...*string) {
	for _, path := range paths {
		rest, ours := strings.CutPrefix(filepath.ToSlash(*path), demoTree)
		if !ours || rest != "" && rest[0] != '/' || exists(*path) {
			continue
		}
		for _, tree := range shippedTrees {
			if there := filepath.Join(prefix, tree, rest); exists(there) {
				*path = there
				break
			}
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
