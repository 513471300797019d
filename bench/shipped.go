package bench

import (
	"os"
	"path/filepath"
	"strings"
)

// demoTree is the folder of the demo's files in a checkout, and the default of flags.
const demoTree = "testdata/demo"

// shippedTrees are the folders of the demo's files relative to the program's folder: as `make
// install` puts them, and in a checkout.
var shippedTrees = []string{"../share/edge-rt/demo", "../" + demoTree}

// Shipped changes paths below testdata/demo that do not exist here to the same files of the
// installation or checkout that contains this program.
func Shipped(paths ...*string) {
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil {
		return
	}
	shippedWith(filepath.Dir(self), paths...)
}

func shippedWith(bin string, paths ...*string) {
	for _, path := range paths {
		rest, ours := strings.CutPrefix(filepath.ToSlash(*path), demoTree)
		if !ours || rest != "" && rest[0] != '/' || exists(*path) {
			continue
		}
		for _, tree := range shippedTrees {
			if there := filepath.Join(bin, tree, rest); exists(there) {
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
