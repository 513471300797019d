package faults

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/stage/stagetest"
)

const ms = time.Millisecond

// recordRun writes the record of a run of 4 s at a rate. An observation is sent every 200 ms and answered 50 ms later,
// after 20 ms in the server. The observations from 1 s to 2 s get no answer. The function change may change every
// answer.
func recordRun(t *testing.T, fps string, change func(*record.Chunk)) (name string) {
	t.Helper()
	dir := t.TempDir()
	r := rttest.Must(record.New(record.Config{
		Mode:  record.All,
		Dir:   dir,
		Size:  1 << 30,
		ID:    "arm",
		Clock: rttest.NewClock(0),
	}))(t)
	r.SetRun(map[string]string{"fps": fps})
	begin := rt.Instant(time.Hour)
	for i := range 20 {
		at := time.Duration(i) * 200 * ms
		sent := r.Sent.Put()
		*sent = record.Sent{At: begin.Add(at), Seq: uint64(i + 1), Epoch: 1, Outcome: "sent"}
		r.Sent.Commit()
		if at >= time.Second && at < 2*time.Second {
			continue
		}
		m := r.Merges.Put()
		*m = record.Chunk{
			At:        begin.Add(at + 60*ms),
			Arrived:   begin.Add(at + 50*ms),
			Seq:       uint64(i + 1),
			Epoch:     1,
			Outcome:   record.Joined,
			QueueWait: int64(5 * ms),
			Inference: int64(15 * ms),
		}
		change(m)
		r.Merges.Commit()
	}
	for _, at := range []time.Duration{0, 4 * time.Second} {
		tick := r.Ticks.Put()
		*tick = record.Tick{At: begin.Add(at)}
		r.Ticks.Commit()
	}
	var stop atomic.Bool
	stop.Store(true)
	r.Collect()
	r.Write(&stop)
	names, err := record.Files(dir, "")
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	return names[0]
}

// The network's and the server's times in a record become a usual time, which is the shortest, and a trace of the
// excess over it.
func TestLoadRecord(t *testing.T) {
	slow := func(m *record.Chunk) {
		switch m.Seq {
		case 12: // at 2.2 s
			m.Arrived = m.Arrived.Add(100 * ms)
		case 13:
			m.Inference += int64(40 * ms)
			m.Arrived = m.Arrived.Add(40 * ms)
		case 20: // unanswered: the answer may come after the record's end
			m.Epoch = 9
		}
	}
	// twice the factor by which times are scaled
	for fps, scale := range map[string]time.Duration{"60": 2, "30": 1} {
		cfg := Config{Duration: time.Minute}
		rttest.Do(t, cfg.LoadRecord(recordRun(t, fps, slow)))
		if *cfg.Network != 15*ms*scale/2 || *cfg.Compute != 20*ms*scale/2 || cfg.Duration != 4*time.Second*scale/2 {
			t.Errorf("%s fps: %v each way, %v for the policy, %v long", fps, *cfg.Network, *cfg.Compute, cfg.Duration)
		}
		plan := cfg.Scenarios[0].Script.Plan(1, 1)
		for _, tt := range []struct {
			at, delay, compute time.Duration
			lost               bool
		}{
			{0, 0, 0, false}, {900 * ms, 0, 0, false}, {1010 * ms, 0, 0, true}, {1990 * ms, 0, 0, true},
			{2010 * ms, 0, 0, false}, {2210 * ms, 50 * ms, 0, false}, {2410 * ms, 0, 40 * ms, false},
			{2610 * ms, 0, 0, false},
		} {
			at := tt.at * scale / 2
			f, compute := plan.Observation(at), plan.Compute(at)
			if f.Delay != tt.delay*scale/2 || f.Lost != tt.lost || compute != tt.compute*scale/2 {
				t.Errorf("%s fps, at %v: %v, lost %v, %v for the policy, want %+v", fps, at, f.Delay, f.Lost, compute,
					tt)
			}
		}
		if title := cfg.Scenarios[0].Script.Name; !strings.Contains(title, "20 observations, 5 lost; 50ms ") {
			t.Errorf("the title is %q", title)
		}
	}
}

// An observation that the server had passed over for a newer one is not lost. An older record lacks
// the arrival of an answer, so the merge counts as the arrival.
func TestLoadOlderRecord(t *testing.T) {
	var cfg Config
	cfg.Duration = time.Second
	rttest.Do(t, cfg.LoadRecord(recordRun(t, "60", func(m *record.Chunk) {
		m.Arrived = 0
		if m.Seq == 11 {
			m.Superseded = 4
		}
	})))
	title := cfg.Scenarios[0].Script.Name
	if !strings.Contains(title, "20 observations, 1 lost; 60ms ") || *cfg.Network != 20*ms ||
		cfg.Duration != time.Second {
		t.Errorf("%q, %v each way, %v long; want 1 lost, 20ms and 1s", title, *cfg.Network, cfg.Duration)
	}
}

// Times that cannot be true are not used: an answer with such times gets the times of the answer before
// it.
func TestLoadForeignRecord(t *testing.T) {
	cfg := Config{Duration: time.Minute}
	rttest.Do(t, cfg.LoadRecord(recordRun(t, "60", func(m *record.Chunk) {
		switch m.Seq {
		case 2:
			m.QueueWait = -1 << 62
		case 3:
			m.Inference = 1 << 62
		case 4:
			m.Arrived = 1 << 62
		}
	})))
	plan := cfg.Scenarios[0].Script.Plan(1, 1)
	for at := time.Duration(0); at < time.Second; at += 10 * ms {
		if f := plan.Observation(at); f.Lost || f.Delay != 0 || plan.Compute(at) != 0 {
			t.Errorf("at %v: %+v, %v for the policy, want the least times", at, f, plan.Compute(at))
		}
	}
	if *cfg.Network != 15*ms || *cfg.Compute != 20*ms {
		t.Errorf("%v each way, %v for the policy, want 15ms and 20ms", *cfg.Network, *cfg.Compute)
	}
}

func TestLoadRecordRefuses(t *testing.T) {
	other := rttest.WriteFile(t, t.TempDir(), "other.mcap", "faults: []")
	for name, tt := range map[string]struct {
		file string
		cfg  Config
		code exit.Code
		want string
	}{
		"no file":   {other + "x", Config{}, exit.Usage, "no such file"},
		"no record": {other, Config{}, exit.Config, "a record that edge-rt has written"},
		"no rate":   {recordRun(t, "", func(*record.Chunk) {}), Config{}, exit.Config, `its rate is ""`},
		"no answer": {recordRun(t, "60", func(m *record.Chunk) {
			m.Epoch = 9
		}), Config{}, exit.Config, "was answered"},
		"two of each": {other, Config{Network: new(time.Second)}, exit.Usage, "leave out --network"},
	} {
		t.Run(name, func(t *testing.T) { rttest.Ends(t, tt.cfg.LoadRecord(tt.file), tt.code, tt.want) })
	}
}

// The contenders play with a record's times: they starve while the record lost everything, and wait
// while its server was slow.
func TestPlayRecord(t *testing.T) {
	stagetest.NeedsRuntime(t)
	cfg := config(t)
	cfg.Duration, cfg.Contenders = time.Minute, cfg.Contenders[:1]
	if err := cfg.LoadRecord(recordRun(t, "60", func(m *record.Chunk) {
		if m.Seq > 14 { // from 2.8 s on
			m.Inference, m.Arrived = m.Inference+int64(150*ms), m.Arrived.Add(150*ms)
		}
	})); err != nil {
		t.Fatal(err)
	}
	report := rttest.Must(Play(context.Background(), cfg))(t)
	starved, slow := 0, 0
	for _, tick := range report.traces[0] {
		at := time.Duration(tick.Tick) * time.Second / 60
		if tick.Measured > 150*ms {
			slow++
			if tick.Sent < 2700*ms {
				t.Errorf("an answer took %v at %v", tick.Measured, at)
			}
		}
		if tick.Starved {
			starved++
			if at < time.Second || at > 2200*ms {
				t.Errorf("starved at %v", at)
			}
		}
	}
	if starved == 0 || slow == 0 || report.Seconds != 4 {
		t.Errorf("%d ticks starved and %d answers were slow in %v s, want some of both, in 4 s", starved, slow,
			report.Seconds)
	}
}
