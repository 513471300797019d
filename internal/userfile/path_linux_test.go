package userfile

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// A user may replace another user's file in a folder of theirs, such as a file that root has made there with sudo, but
// only if the readers of the file can still read it.
func TestReplaceAFileOfAnother(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give a file to another user")
	}
	const nobody = 65534
	files := map[string]bool{}
	for mode, replaced := range map[os.FileMode]bool{0o644: true, 0o600: false} {
		file := filepath.Join(t.TempDir(), mode.String())
		rttest.Do(t, os.WriteFile(file, []byte("old"), mode))
		rttest.Do(t, os.Chown(file, nobody, nobody))
		files[file] = replaced
	}
	rttest.Without(t, unix.CAP_CHOWN)
	for file, replaced := range files {
		err := Replace(file, []byte("new"))
		text := rttest.ReadFile(t, file)
		if (err == nil) != replaced || (text == "new") != replaced {
			t.Errorf("%s: %v, and the file has %q; want replaced %v", file, err, text, replaced)
		}
	}
}
