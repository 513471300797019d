package main

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// player is a server with a slow policy. The action of step j is always path(j), so that a test can
// check the action run on step j whatever the schedule does to chunks.
type player struct {
	*holdServer
	old  bool                 // a draft server: no key t, conditioned on both prefixes
	lose func(chunk int) bool // counted from 1

	mu    sync.Mutex
	line  chan wire.Sample
	seen  []wire.Observation
	sent  int
	wrong string
}

const (
	playHorizon = 50
	playTime    = 50 * time.Millisecond // the policy's inference
)

func path(step int64) float32 { return float32(20 * math.Sin(float64(step)/25)) }

func newPlayer(t *testing.T, old bool, lose func(int) bool) *player {
	t.Helper()
	p := &player{holdServer: newHoldServer(t), old: old, lose: lose, line: make(chan wire.Sample, 64)}
	p.SetAnswer(p.deposit)
	p.SetAck(func(ack *wire.SessionAck) {
		ack.ChunkSize, ack.ModelSHA256 = playHorizon, strings.Repeat("ab", 32)
		if old {
			ack.T, ack.ModelSHA256 = 0, ""
		}
	})
	done := make(chan struct{})
	go func() { defer close(done); p.work() }()
	t.Cleanup(func() { close(p.line); <-done })
	return p
}

func (p *player) deposit(s wire.Sample) {
	s.Payload, s.Attachment = slices.Clone(s.Payload), slices.Clone(s.Attachment)
	select {
	case p.line <- s:
	default: // requests come too fast: the newest is lost, as on a full line
	}
}

// work serves the newest observation, one at a time.
func (p *player) work() {
	step := int64(0)
	for s := range p.line {
		for more := true; more; {
			select {
			case newer, open := <-p.line:
				if !open {
					return
				}
				s = newer
			default:
				more = false
			}
		}
		var o wire.Observation
		h, err := wire.ParseHeader(s.Attachment)
		if err == nil {
			err = wire.ParseObservation(&o, s.Payload)
		}
		if err != nil {
			p.fail(err.Error())
			continue
		}
		time.Sleep(playTime) // in place of the inference
		first := o.N + 1
		if p.old {
			first = step // the observation names no step: chunks follow each other
			step += playHorizon
		}
		p.answer(h, &o, first)
	}
}

func (p *player) answer(h wire.Header, o *wire.Observation, first int64) {
	p.mu.Lock()
	p.seen, p.sent = append(p.seen, *o), p.sent+1
	n := p.sent
	p.mu.Unlock()
	if p.lose != nil && p.lose(n) {
		return
	}
	m := wire.Matrix{Rows: playHorizon, Cols: len(o.State), Data: make([]float32, playHorizon*len(o.State))}
	for i := range playHorizon {
		row := m.Data[i*m.Cols : (i+1)*m.Cols]
		copy(row, o.State)
		row[0] = path(first + int64(i))
	}
	reply := wire.ActionChunk{ChunkModel: m, ChunkRobot: m, HasT: o.HasT, T: o.T, HasN: o.HasN, N: o.N}
	if err := p.Reply(h, &reply); err != nil {
		p.fail(err.Error())
	}
}

func (p *player) fail(why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wrong = why
}

type runSummary struct {
	Ticks, Requests, Chunks, Actions uint64
	Starved                          uint64 `json:"starved_ticks"`
	StarvedBus                       uint64 `json:"starved_by_bus"`
	Record                           struct{ Messages, Lost uint64 }
	Dropped                          map[string]uint64 `json:"chunks_dropped"`
	Schedule                         string
	Compat                           bool
	Mallocs                          uint64 `json:"path_mallocs"`
	Multiplier                       int    `json:"interpolation_multiplier"`
}

// play runs the program on its own simulated arm and returns its summary and its recorded actions.
func (p *player) play(t *testing.T, d time.Duration, args ...string) (s runSummary, actions []record.Tick) {
	t.Helper()
	dir := t.TempDir()
	args = instead([]string{"--bus", "sim", "--connect", p.Endpoint, "--id", "arm", "--fps", "30", "--rt", "off",
		"--on-exit", "off", "--duration", d.String(), "--record", "all", "--record-dir", dir, "--json", "-"},
		append(args, "--quiet"))
	code, stdout, stderr := edgeRTFor(t, d+20*time.Second, args...)
	if code != 0 {
		t.Fatalf("%v: exit code %d: %s", args, code, stderr)
	}
	if err := json.Unmarshal([]byte(stdout), &s); err != nil {
		t.Fatalf("summary: %v\n%s", err, stdout)
	}
	actions = recordedActions(t, dir)
	if s.Record.Lost != 0 {
		t.Errorf("%d messages are not on record", s.Record.Lost)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wrong != "" {
		t.Errorf("the server says: %s", p.wrong)
	}
	return s, actions
}

// recordedActions reads the ticks on which an action began from the records in dir.
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

// Each discipline works in the real program: the arm moves, each step runs once with the action
// that the policy gave for it, and the action's provenance agrees. The arithmetic of the compat
// schedules, whose originals shift rows, is checked in package chunk.
func TestEveryScheduleRunsTheArm(t *testing.T) {
	t.Parallel()
	const d = 5 * time.Second
	for _, c := range []struct {
		name  string
		args  []string
		exact bool // the action of step j is path(j)
		few   uint64
	}{
		{"drtc", nil, true, 2},
		{"drtc spans", []string{"--prefix", "spans"}, true, 2},
		{"drtc compat", []string{"--compat"}, true, 2},
		{"rtc", []string{"--schedule", "rtc"}, true, 2},
		{"rtc compat", []string{"--schedule", "rtc", "--compat"}, false, 2},
		{"append", []string{"--schedule", "append"}, false, 2},
		{"async", []string{"--schedule", "async"}, true, 2},
		{"async compat", []string{"--schedule", "async", "--compat", "--aggregate-fn-name", "latest_only"}, true, 2},
		{"v1", []string{"--schedule", "v1"}, true, 2},
		{"sync", []string{"--schedule", "sync"}, true, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && c.name != "drtc" && c.name != "rtc" {
				t.Skip("five seconds each")
			}
			p := newPlayer(t, false, nil)
			s, actions := p.play(t, d, c.args...)
			if s.Chunks < c.few || s.Requests < s.Chunks || s.Actions < 30 || s.Actions != uint64(len(actions)) {
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

// checkAsked checks the prefixes and steps in the observations.
func (p *player) checkAsked(t *testing.T, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rows := 0
	models := 0
	spans := 0
	for _, o := range p.seen {
		rows = max(rows, o.PrefixRobot.Rows)
		models = max(models, o.PrefixModel.Rows)
		spans = max(spans, len(o.Spans))
		if !o.HasT || !o.HasN || !o.HasOverlapEnd || o.InferenceDelaySteps > playHorizon {
			t.Fatalf("observation without its keys: %+v", o)
		}
	}
	want := [3]bool{name == "drtc" || name == "drtc compat" || strings.HasPrefix(name, "rtc"),
		strings.HasPrefix(name, "rtc"), name == "drtc spans"}
	if got := [3]bool{rows > 0, models > 0, spans > 0}; got != want {
		t.Errorf("robot rows, model rows, spans sent: %v, want %v", got, want)
	}
}

// A server of the draft does not know our optional keys. It gets both prefixes, of equal length, under
// every schedule.
func TestDraftServerAsPeer(t *testing.T) {
	for _, name := range []string{"drtc", "rtc", "append"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlayer(t, true, nil)
			s, actions := p.play(t, 4*time.Second, "--schedule", name)
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
			if prefixed != (name != "append") {
				t.Errorf("prefix sent: %v", prefixed)
			}
		})
	}
}

// With every third chunk lost, a policy of 50 ms and 30 actions per second, each step runs the
// policy's action for it, and at most 5 of the ticks after the first action have no action. Ticks
// that the simulated bus misses when the host takes its core away are not counted: the bus has no
// real-time priority.
func TestEveryThirdChunkLost(t *testing.T) {
	rttest.RealTime(t)
	d := 10 * time.Second
	if testing.Short() {
		d = 5 * time.Second
	}
	p := newPlayer(t, false, func(n int) bool { return n%3 == 0 })
	s, actions := p.play(t, d, "--rt", "auto")
	t.Logf("%d ticks, %d starved, %d of them by the bus, %d requests, %d chunks merged of %d", s.Ticks, s.Starved,
		s.StarvedBus, s.Requests, s.Chunks, p.sent)
	if s.Starved-s.StarvedBus > 5 {
		t.Errorf("%d ticks without an action, want at most 5", s.Starved-s.StarvedBus)
	}
	if s.Chunks*3 > uint64(p.sent)*2+3 {
		t.Errorf("%d of %d chunks came: none were lost", s.Chunks, p.sent)
	}
	checkActions(t, actions, true)
}

// The stages after the schedule work in the real program: two ticks for each action, smoothed and
// slowed down.
func TestStagesRun(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	p := newPlayer(t, false, nil)
	s, actions := p.play(t, 4*time.Second, "--interpolation-multiplier", "2", "--filter-cutoff", "3", "--filter-gain",
		"1.4", "--max-velocity", "10", "--max-acceleration", "100")
	if s.Multiplier != 2 || s.Ticks < 2*s.Actions || s.Ticks > 300 || s.Actions < 20 {
		t.Errorf("multiplier %d, %d ticks, %d actions; want two ticks for each", s.Multiplier, s.Ticks, s.Actions)
	}
	// The speed is taken over half a second: on a busy machine two records may have ticks without
	// an action between them, in which the goal still moves, and other records follow each other
	// closely.
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
