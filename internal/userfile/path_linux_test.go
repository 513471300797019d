package userfile

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// A user may replace a file that root has made in the user's folder, as with sudo, but only if the readers
// of the file can still read it.
func TestReplaceAFileOfRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be another user for a moment")
	}
	const nobody = 65534
	dir := t.TempDir()
	rttest.Do(t, os.Chmod(filepath.Dir(dir), 0o755))
	rttest.Do(t, os.Chown(dir, nobody, nobody))
	for mode, replaced := range map[os.FileMode]bool{0o644: true, 0o600: false} {
		file := filepath.Join(dir, mode.String())
		rttest.Do(t, os.WriteFile(file, []byte("old"), mode))
		runtime.LockOSThread()
		rttest.Do(t, unix.Setfsuid(nobody))
		err := Replace(file, []byte("new"))
		rttest.Do(t, unix.Setfsuid(0))
		runtime.UnlockOSThread()
		text := rttest.ReadFile(t, file)
		if (err == nil) != replaced || (text == "new") != replaced {
			t.Errorf("mode %v: %v, and the file has %q; want replaced %v", mode, err, text, replaced)
		}
	}
}
