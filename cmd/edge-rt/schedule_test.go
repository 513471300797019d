package main

import (
	"bytes"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/stage"
	"github.com/edge-rt/edge-rt/wire"
)

// player is a server with a slow policy. The action of step j is always path(j), so that a test can check which action
// ran on step j for every schedule.
type player struct {
	*holdServer
	old  bool                 // the server follows LeRobot's draft: without the key t, conditioned on both prefixes
	lose func(chunk int) bool // whether a chunk is lost; chunks are counted from 1

	mu   sync.Mutex
	seen []wire.Observation // guarded by mu
}

const (
	playHorizon = 50
	playTime    = 50 * time.Millisecond // the policy's inference
)

func path(step int64) float32 { return float32(20 * math.Sin(float64(step)/25)) }

func newPlayer(t *testing.T, old bool, lose func(int) bool) *player {
	t.Helper()
	p := &player{holdServer: newHoldServer(t), old: old, lose: lose}
	p.Rows = playHorizon
	p.work(t, playTime, p.answer)
	p.SetAck(func(ack *wire.SessionAck) {
		ack.ModelSHA256 = strings.Repeat("ab", 32)
		if old {
			ack.T, ack.ModelSHA256 = 0, ""
		}
	})
	return p
}

func (p *player) answer(o *wire.Observation) *wire.ActionChunk {
	p.mu.Lock()
	n := len(p.seen)
	p.seen = append(p.seen, *o)
	p.mu.Unlock()
	if p.lose != nil && p.lose(n+1) {
		return nil
	}
	first := o.N + 1
	if p.old { // the observation names no step: chunks follow each other
		first = int64(n) * playHorizon
	}
	m := p.Chunk(o.State, func(row []float32, i int) { row[0] = path(first + int64(i)) })
	return &wire.ActionChunk{ChunkModel: m, ChunkRobot: m, HasT: o.HasT, T: o.T, HasN: o.HasN, N: o.N}
}

// work makes the server answer one observation at a time, always the newest; each answer takes the duration took. If
// answer returns nil, the server sends no answer.
func (s *holdServer) work(t *testing.T, took time.Duration, answer func(*wire.Observation) *wire.ActionChunk) {
	newest := make(chan wire.Sample, 1)
	s.SetAnswer(func(sample wire.Sample) { // the transport calls this function on one thread only
		sample.Payload, sample.Attachment = bytes.Clone(sample.Payload), bytes.Clone(sample.Attachment)
		select {
		case <-newest:
		default:
		}
		newest <- sample
	})
	go func() {
		for t.Context().Err() == nil {
			select {
			case sample := <-newest:
				time.Sleep(took) // the inference takes this time
				if h, o, ok := stage.ParseRequest(sample); ok {
					if c := answer(&o); c != nil {
						c.InferenceMs = took.Seconds() * 1e3
						s.Reply(h, c)
					}
				}
			case <-t.Context().Done():
			}
		}
	}()
}

// play runs the program on its own simulated arm and returns its summary and its recorded actions.
func (p *player) play(t *testing.T, d time.Duration, args ...string) (s edge.Summary, actions []record.Tick) {
	t.Helper()
	dir := t.TempDir()
	r := edgeCommand(t, []string{"--bus", "sim", "--connect", p.Endpoint, "--id", "arm", "--fps", "30", "--rt", "off",
		"--on-exit", "off", "--duration", d.String(), "--record", "all", "--record-dir", dir}, args...)
	code, s := r.play()
	if code != 0 {
		t.Fatalf("%v: exit code %d: %s", args, code, r.Log)
	}
	actions = recordedActions(t, dir)
	rttest.Want(t, s.Record.Lost, 0, "messages not on record")
	return s, actions
}

// recordedActions reads the records in dir and returns the ticks on which an action began.
func recordedActions(t *testing.T, dir string) (actions []record.Tick) {
	t.Helper()
	sessions := map[uint32]string{}
	infos, err := record.ReadFolder(dir, record.Visitor{
		Tick: func(m *record.Tick) error {
			if m.Action.N > 0 {
				actions = append(actions, *m)
			}
			return nil
		},
		Session: func(s *record.Session) error { sessions[s.Epoch] = s.ID; return nil },
		Chunk: func(m *record.Chunk) error {
			if m.Outcome == "joined" && (m.Session.ID != sessions[m.Epoch] || m.RTT == 0 || m.Observed == 0) {
				t.Errorf("chunk %+v of session %+v, want %s", m, m.Session, sessions[m.Epoch])
			}
			return nil
		},
	})
	if err != nil || len(infos) == 0 {
		t.Fatalf("%d records, %v", len(infos), err)
	}
	for _, info := range infos {
		if info.Torn {
			t.Errorf("a record has no end: %v", info.Run)
		}
	}
	return actions
}

// Each discipline works in the real program. The arm moves, and each step runs once, with the policy's action for
// that step and the right provenance. The schedules with Compat shift rows as their originals do; the tests of
// package chunk check those.
func TestEveryScheduleRunsTheArm(t *testing.T) {
	rttest.RealTime(t) // on a busy machine a run of four seconds may get only two chunks
	t.Parallel()
	const d = 4 * time.Second
	for _, c := range []struct {
		name  string
		args  string
		exact bool // the action of step j is path(j)
		lose  func(int) bool
	}{
		{"drtc", "", true, nil},
		{"drtc with every third chunk lost", "", true, func(n int) bool { return n%3 == 0 }},
		{"drtc spans", "--prefix spans", true, nil},
		{"drtc compat", "--compat", true, nil},
		{"rtc", "--schedule rtc", true, nil},
		{"rtc compat", "--schedule rtc --compat", false, nil},
		{"append", "--schedule append", false, nil},
		{"async", "--schedule async", true, nil},
		{"async compat", "--schedule async --compat --aggregate-fn-name latest_only", true, nil},
		{"v1", "--schedule v1", true, nil},
		{"sync", "--schedule sync", true, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && c.name != "drtc" && c.name != "rtc" {
				t.Skip("four seconds each")
			}
			p := newPlayer(t, false, c.lose)
			s, actions := p.play(t, d, strings.Fields(c.args)...)
			if s.Chunks < 2 || s.Requests < s.Chunks || s.Actions < 30 || s.Actions != uint64(len(actions)) {
				t.Errorf("%d requests, %d chunks, %d actions, %d recorded", s.Requests, s.Chunks, s.Actions,
					len(actions))
			}
			if want := strings.Fields(c.name)[0]; s.Schedule != want ||
				s.Compat != strings.HasSuffix(c.name, "compat") {
				t.Errorf("the summary says schedule %q, compat %v", s.Schedule, s.Compat)
			}
			checkActions(t, actions, c.exact)
			p.checkAsked(t, c.name)
		})
	}
}

func checkActions(t *testing.T, actions []record.Tick, exact bool) {
	t.Helper()
	if len(actions) == 0 {
		t.Fatal("nothing ran")
	}
	low, high := math.Inf(1), math.Inf(-1)
	for i, a := range actions {
		if i > 0 && a.Step != actions[i-1].Step+1 {
			t.Fatalf("step %d ran after %d", a.Step, actions[i-1].Step)
		}
		if exact && math.Abs(float64(a.Action.V[0]-path(a.Step))) > 1e-4 {
			t.Fatalf("step %d ran %v of request %d row %d, want %v", a.Step, a.Action.V[0], a.Seq, a.Index,
				path(a.Step))
		}
		if a.Epoch == 0 || a.Episode != 1 || a.Seq == 0 || a.Source >= a.At || a.Index < 0 || a.Index >= playHorizon {
			t.Fatalf("provenance %+v", a)
		}
		low, high = math.Min(low, float64(a.Goal.V[0])), math.Max(high, float64(a.Goal.V[0]))
	}
	if high-low < 10 {
		t.Errorf("the arm moved %v degrees, want more than 10", high-low)
	}
}

// checkAsked checks the prefixes and steps in the observations that the server has received.
func (p *player) checkAsked(t *testing.T, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var rows, models, spans int
	for _, o := range p.seen {
		rows = max(rows, o.PrefixRobot.Rows)
		models = max(models, o.PrefixModel.Rows)
		spans = max(spans, len(o.Spans))
		if !o.HasT || !o.HasN || !o.HasOverlapEnd || o.InferenceDelaySteps > playHorizon {
			t.Fatalf("observation without its keys: %+v", o)
		}
	}
	rtc := strings.HasPrefix(name, "rtc")
	want := [3]bool{rtc || strings.HasPrefix(name, "drtc") && name != "drtc spans", rtc, name == "drtc spans"}
	rttest.Want(t, [3]bool{rows > 0, models > 0, spans > 0}, want, "robot rows, model rows, spans sent")
}

// A server that follows LeRobot's draft does not use our optional keys. Under every schedule, such a server gets
// the prefix in robot units and in the policy's units, with the same number of rows.
func TestDraftServerAsPeer(t *testing.T) {
	for _, name := range []string{"drtc", "rtc", "append"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlayer(t, true, nil)
			s, actions := p.play(t, 3*time.Second, "--schedule", name)
			if s.Chunks < 2 || len(actions) < 20 {
				t.Errorf("%d chunks, %d actions", s.Chunks, len(actions))
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			prefixed := false
			for _, o := range p.seen {
				if o.HasT || o.HasN || o.HasOverlapEnd || len(o.Spans) > 0 || o.PrefixRobot.Rows != o.PrefixModel.Rows {
					t.Fatalf("observation with our keys, or prefixes of %d and %d rows", o.PrefixRobot.Rows,
						o.PrefixModel.Rows)
				}
				prefixed = prefixed || o.PrefixModel.Rows > 0
			}
			rttest.Want(t, prefixed, name != "append", "prefix sent")
		})
	}
}

// The stages after the schedule work in the real program: two ticks for each action, smoothed and
// slowed down.
func TestStagesRun(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	p := newPlayer(t, false, nil)
	s, actions := p.play(t, 4*time.Second, "--interpolation-multiplier", "2", "--filter-cutoff", "3", "--filter-gain",
		"1.4", "--max-velocity", "10", "--max-acceleration", "100")
	if s.Multiplier != 2 || s.FPS != 60 || s.Ticks < 2*s.Actions || s.Ticks > 300 || s.Actions < 20 {
		t.Errorf("multiplier %d, %v Hz, %d ticks, %d actions; want 60 Hz and two ticks for each", s.Multiplier, s.FPS,
			s.Ticks, s.Actions)
	}
	// The test measures the speed over half a second. On a busy machine there may be ticks without an action between
	// two records. The goal moves on these ticks, too, and later records follow each other closely.
	first := 0
	for i, a := range actions {
		for a.At.Sub(actions[first+1].At) > time.Second/2 {
			first++
		}
		took := a.At.Sub(actions[first].At).Seconds()
		if way := math.Abs(float64(a.Goal.V[0] - actions[first].Goal.V[0])); took > 0.5 && way > 10*took*1.05+0.4 {
			t.Fatalf("the goal moved %v degrees in %v s up to action %d, want at most 10 degrees per second", way, took,
				i)
		}
	}
}
