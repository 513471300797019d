package stage

import (
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// An unfinished line in the audit of a killed server is left out. In the audit of a server that was
// not killed it is an error.
func TestReadAudit(t *testing.T) {
	type line struct{ Seq uint64 }
	file := rttest.WriteFile(t, t.TempDir(), "audit.jsonl", "{\"seq\": 1}\n{\"seq\": 2}\n{\"se")
	if all, err := ReadAudit[line](file, true); err != nil || len(all) != 2 || all[1].Seq != 2 {
		t.Errorf("of a killed server: %v, %v, want two lines", all, err)
	}
	rttest.Fails(t, rttest.Err(ReadAudit[line](file, false)), "line 3")
}
