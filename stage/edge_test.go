package stage

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// An unfinished line in the audit of a killed server is left out. In the audit of a server that was
// not killed it is an error.
func TestReadAudit(t *testing.T) {
	type line struct{ Seq uint64 }
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	rttest.Do(t, os.WriteFile(file, []byte("{\"seq\": 1}\n{\"seq\": 2}\n{\"se"), 0o600))
	if all, err := ReadAudit[line](file, true); err != nil || len(all) != 2 || all[1].Seq != 2 {
		t.Errorf("of a killed server: %v, %v, want two lines", all, err)
	}
	rttest.Fails(t, rttest.Err(ReadAudit[line](file, false)), "line 3")
}
