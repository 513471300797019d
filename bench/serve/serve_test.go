package serve

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/stage"
)

// The robots whose actions run out demand the given load, whatever the time of a chunk.
func TestFleetAsksForTheLoad(t *testing.T) {
	for took, targetLoad := range map[time.Duration]float64{time.Millisecond: 0.95, 30 * time.Millisecond: 0.5,
		2 * time.Second: 2} {
		load := 0.0
		robots := fleet(took, targetLoad)
		for _, d := range robots {
			load += float64(took) / float64(d.lasts-d.ahead+2*d.way+2*took)
			if d.ahead >= d.lasts || d.way > 3*took {
				t.Errorf("%v: a robot with actions for %v asks %v before their end over %v", took, d.lasts, d.ahead,
					d.way)
			}
		}
		if load < targetLoad || load > targetLoad+0.2 {
			t.Errorf("%v: %d robots ask for %.2f of the server, want %.2f", took, len(robots), load, targetLoad)
		}
	}
}

// An interrupt ends a robot's turn also while the robot waits: with a slow policy it waits for minutes.
func TestAnInterruptEndsATurn(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	d := dry{robot: &robot{FakeRobot: new(stage.FakeRobot)}, offset: time.Hour}
	if d.play(ctx, time.Now(), 2*time.Hour); d.Header.SeqID != 0 {
		t.Errorf("it has sent %d requests after the interrupt", d.Header.SeqID)
	}
}

// auditLog reads each line once, and an incomplete line only when its rest is written. It leaves
// out the lines of the first reading, which belong to the warm-up.
func TestAuditLogGrows(t *testing.T) {
	l := &auditLog{name: filepath.Join(t.TempDir(), "audit")}
	grow := func(text string) map[int]*load {
		t.Helper()
		f := rttest.Must(os.OpenFile(l.name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600))(t)
		defer f.Close()
		rttest.Must(f.WriteString(text))(t)
		return rttest.Must(l.read())(t)
	}
	const line = `{"queue_wait_ms":10.0,"decode_ms":0.2,"inference_ms":5.0,"service_ms":15.5,"batch":4,"row":0,"outcome":"ok"}` + "\n"
	const other = `{"queue_wait_ms":10.0,"decode_ms":0.2,"inference_ms":5.0,"service_ms":15.5,"batch":4,"row":2,"outcome":"ok"}` + "\n"
	grow(line)
	if got := grow(line + other + other[:40]); got[4].requests != 2 || got[4].runs != 1 {
		t.Errorf("two of a batch: %+v", got[4])
	}
	rttest.Want(t, grow(other[40:] + `{"outcome":"bad_observation"}` + "\n")[4].requests, 1,
		"the whole of half a line")
	if len(l.own) != 3 || l.own[0] < 0.49 || l.own[0] > 0.51 || l.meanBatch() != 3 {
		t.Errorf("own %v, mean batch %v, want three times 0.5 ms, and 3", l.own, l.meanBatch())
	}
}

// Each unsteady figure is named.
func TestBroken(t *testing.T) {
	good := Steady{
		Robots:      8,
		Seconds:     300,
		Requests:    60_000,
		Shared:      100,
		ScrapeCost:  300,
		Allocations: 20,
		RSSBeginMB:  50,
		RSSMostMB:   50.5,
		RSSEndMB:    50.2,
		Provoked:    Provoked{Collections: 9, ByHand: 9, PauseMaxMs: 0.1},
	}
	for _, tt := range []struct {
		change func(*Steady)
		says   string
	}{
		{func(*Steady) {}, ""},
		{func(s *Steady) { *s = Steady{} }, ""},
		{func(s *Steady) { s.Lost = 1 }, "1 of 60001 requests are lost"},
		{func(s *Steady) { s.Shared = 0 }, "no inference had more than one request"},
		{func(s *Steady) { s.Allocations = 601 }, "601 objects were allocated"},
		{func(s *Steady) { s.Collections = 1 }, "1 collections in 300 s"},
		{func(s *Steady) { s.HeapGrewMB = 3 }, "the heap grew by 3.00 MB"},
		{func(s *Steady) { s.RSSMostMB = 54.5 }, "the process grew by 4.50 MB"},
		{func(s *Steady) { s.Provoked.ByHand = 8 }, "1 of 9 collections came by themselves"},
		{func(s *Steady) { s.Provoked.PauseMaxMs = 0.21 }, "stopped all else for 0.210 ms, want at most 0.2"},
	} {
		s := good
		tt.change(&s)
		if got := s.Broken(); !strings.Contains(got, tt.says) || (got == "") != (tt.says == "") {
			t.Errorf("Broken() = %q, want %q", got, tt.says)
		}
	}
}
