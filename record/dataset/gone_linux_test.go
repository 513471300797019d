package dataset

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/edge-rt/edge-rt/internal/child"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"golang.org/x/sys/unix"
)

// --append works on a dataset with read-only folders, and leaves no folder beside the dataset that
// would block the next export.
func TestAppendToReadOnlyFolders(t *testing.T) {
	dir := t.TempDir()
	cfg := testConfig(t, plainRun("one", 1).write(t, dir, "a.mcap"))
	cfg.Out = filepath.Join(dir, "set")
	cfg.Records = append(cfg.Records, plainRun("two", 1).write(t, dir, "b.mcap"))
	second := cfg
	cfg.Records = cfg.Records[:1]
	exporting(t, cfg)
	for _, rel := range []string{"meta", "data/chunk-000"} {
		rttest.Do(t, os.Chmod(filepath.Join(cfg.Out, rel), 0o555))
	}
	rttest.Without(t, unix.CAP_DAC_OVERRIDE) // for root no folder is read-only
	second.Append = true
	exporting(t, second)
	absent(t, partialOf(cfg.Out))
	exporting(t, second)
}

// On a file system without locks, the error does not name another export.
func TestExportWithoutLocks(t *testing.T) {
	defer func() { lockFile = child.Lock }()
	lockFile = func(*os.File) error { return unix.EOPNOTSUPP }
	refused(t, plainRun("one", 1).config(t), "needs a file system with locks")
}
