package userfile

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Replace replaces another user's file in the caller's folder, for example a file that the caller made with sudo. It
// fails if the readers of the old file could not read the new file.
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
