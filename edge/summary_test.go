package edge

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// contractKeys are the keys on which scripts rely, written down independently of the struct's tags.
var contractKeys = []string{
	"ticks", "overruns_own", "overruns_host", "starved_ticks", "lateness_us", "requests", "chunks", "chunks_dropped",
	"rtt_ms", "action_age_ms", "network_ms", "path_mallocs", "gc_cycles", "bus", "frames", "targets_reached",
	"collisions",
	"seconds_in_state", "rt", "exit",
}

func TestSummaryKeepsItsKeys(t *testing.T) {
	var out bytes.Buffer
	s := Summary{Status: Status{ChunksDropped: map[string]uint64{"late": 2}}}
	s.InState = map[string]float64{"STREAMING": 1.5}
	s.Frames, s.Exit = map[string]drive.Frames{"top": {Captured: 5}},
		drive.EndingOf(exit.Errorf(exit.Absent, "gone"), "")
	rttest.Do(t, s.WriteJSON(&out))
	var m map[string]json.RawMessage
	rttest.Do(t, json.Unmarshal(out.Bytes(), &m))
	for _, key := range contractKeys {
		if _, ok := m[key]; !ok {
			t.Errorf("key %q is missing", key)
		}
	}
	for key, want := range map[string]string{
		"lateness_us": `{"p50":0,"p99":0,"p999":0,"max":0}`, "rtt_ms": `{"p50":0,"p99":0,"max":0}`,
		"bus": `{"cycles":0,"lost":0,"corrupt":0,"retries":0,"us_p50":0,"us_p99":0}`,
		"rt":  `{"granted":false,"why":""}`, "exit": `{"code":4,"reason":"gone"}`,
		"frames": `{"top":{"captured":5,"dropped":0,"age_ms_p99":0,"errors":0,"missed":0,"skipped":0,"broken":0,"restarts":0,"stale":0,"warned":0,"undecoded":0,"repeated":0}}`,
	} {
		var got bytes.Buffer
		json.Compact(&got, m[key])
		rttest.Want(t, got.String(), want, "%s", key)
	}
}

func TestSummaryTableSaysWhatHappened(t *testing.T) {
	var out bytes.Buffer
	s := Summary{Status: Status{ChunksDropped: map[string]uint64{"late": 2, "epoch": 1}}}
	s.ID, s.Ticks = "arm", 1200
	s.Targets, s.Collisions = 9, 1
	s.InState, s.RT = map[string]float64{"STREAMING": 20, "DEAD": 0}, drive.Granted{Why: "raise LimitRTPRIO"}
	s.Exit = drive.Ending{Code: 3, Reason: "refused"}
	rttest.Do(t, s.WriteTable(&out))
	rttest.Contains(t, out.String(), "arm", "1200", "9 reached, 1 collisions", "epoch 1, late 2", "STREAMING 20.0 s",
		"no: raise LimitRTPRIO", "3, refused")
	if strings.Contains(out.String(), "DEAD") {
		t.Error("a state that never was is listed")
	}
}

func TestStatusLineNoAlloc(t *testing.T) {
	r := running(t, 100)
	e := &Edge{control: r.control, drive: r.drive}
	var l statusLine
	if line := string(l.format(e, r.Now())); !strings.HasPrefix(line, "STREAMING") ||
		!strings.Contains(line, "queue ") {
		t.Errorf("status line %q", line)
	}
	rttest.NoAllocs(t, "format allocates %v times, want 0", 100, func() { l.format(e, r.Now()) })
}
