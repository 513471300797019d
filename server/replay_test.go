package server

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/audit"
	"github.com/edge-rt/edge-rt/server/servertest"
	"github.com/edge-rt/edge-rt/wire"
)

// capture serves four requests, one of them bad, and returns their captures.
func capture(t *testing.T) []audit.Capture {
	t.Helper()
	dir := t.TempDir()
	b := serve(t, config(), func(b *bench) { b.audited(dir) })
	b.open(process("arm", "one", "left-pi", 1)) // the robot's chunks contain a nonce
	r := b.robot("arm")
	for seq := uint64(1); seq <= 4; seq++ {
		o := prefixed(t)
		o.State[0] = float32(seq)
		o.InferenceDelaySteps, o.T = int(seq)-1, int64(seq)
		o.HasN = true
		o.N = int64(seq)
		if seq == 3 {
			o.State = o.State[:1]
		}
		r.send(obsHeader(1, seq), o)
		r.next()
	}
	b.end()
	return captured(t, dir)
}

// captured returns the captures that a server's audit wrote to dir.
func captured(t *testing.T, dir string) []audit.Capture {
	t.Helper()
	found, _, err := audit.ReadCaptures(filepath.Join(dir, "captures"))
	rttest.Do(t, err)
	return found
}

// replayed answers requests with a model of the fake policy.
func replayed(m *servertest.Model, tolerance float64, requests []audit.Capture) (Replayed, error) {
	p := &replaying{origin: audit.Origin{ModelSHA256: "5ha"}, meta: servertest.Meta(), tolerance: tolerance}
	return p.replay(&loaded{Deps: Deps{Model: m}}, requests)
}

// With a tolerance, the numbers of a chunk may differ by at most the tolerance, and nothing else may differ.
func TestReplayWithinATolerance(t *testing.T) {
	found := capture(t)
	for _, tt := range []struct {
		name           string
		off, tolerance float64
		change         func(*wire.ActionChunk)
		exact, within  int
	}{
		{"the same", 0, 0.01, nil, 1, 0},
		{"a little off", 0.005, 0.01, nil, 0, 1},
		{"a little off, without a tolerance", 0.005, 0, nil, 0, 0},
		{"too far off", 0.02, 0.01, nil, 0, 0},
		{"not a number", math.NaN(), 0.01, nil, 0, 0},
		{"another key", 0, 0.01, func(c *wire.ActionChunk) { c.SeqIDEcho++ }, 0, 0},
		{"a row too few", 0, 0.01, func(c *wire.ActionChunk) {
			for _, m := range []*wire.Matrix{&c.ChunkModel, &c.ChunkRobot} {
				m.Rows, m.Data = m.Rows-1, m.Data[:len(m.Data)-m.Cols]
			}
		}, 0, 0},
	} {
		c := found[1]
		var chunk wire.ActionChunk
		rttest.Do(t, wire.ParseActionChunk(&chunk, c.Reply))
		chunk.ChunkRobot.Data[3] += float32(tt.off)
		if tt.change != nil {
			tt.change(&chunk)
		}
		c.Reply = wire.AppendActionChunk(nil, &chunk)
		r, err := replayed(servertest.NewModel(), tt.tolerance, []audit.Capture{c})
		if err != nil || r.Exact != tt.exact || r.Within != tt.within || r.OK() != (tt.exact+tt.within == 1) {
			t.Errorf("%s: %+v, %v, want %d exact, %d within", tt.name, r, err, tt.exact, tt.within)
		}
	}
}

// Each capture gets exactly its answer again. This includes a capture whose chunk the link refused, because the server
// had computed it.
func TestReplayIsExact(t *testing.T) {
	found := capture(t)
	found[0].Outcome = audit.Unsent.String()
	if r, err := replayed(servertest.NewModel(), 0, found); err != nil || !r.OK() || r.Requests != 4 || r.Exact != 4 {
		t.Errorf("replay = %+v, %v, want 4 of 4 exact", r, err)
	}
}

func TestReplaySaysWhatDiffers(t *testing.T) {
	found := capture(t)
	for _, tt := range []struct {
		name   string
		change func(c *audit.Capture, m *servertest.Model)
		want   string
	}{
		{"another value in the chunk", func(c *audit.Capture, _ *servertest.Model) {
			var chunk wire.ActionChunk
			rttest.Do(t, wire.ParseActionChunk(&chunk, c.Reply))
			chunk.ChunkRobot.Data[3] += 0.5
			c.Reply = wire.AppendActionChunk(nil, &chunk)
		}, "0 of chunk_model, 0.5 of chunk_robot"},
		{"another robot's echo", func(c *audit.Capture, _ *servertest.Model) {
			c.Header.ClientMonoNs++
		}, "another chunk"},
		{"another conditioning", func(c *audit.Capture, _ *servertest.Model) {
			c.Controls.Mode = policy.ModeFree
		}, "another chunk"},
		{"without conditioning", func(c *audit.Capture, _ *servertest.Model) {
			c.Controls, c.RTC = nil, false
		}, "another chunk"},
		{"from a batch", func(c *audit.Capture, _ *servertest.Model) {
			c.Header.ClientMonoNs++
			c.Batch = 4
		}, "captured in a batch of 4"},
		{"refused then", func(c *audit.Capture, _ *servertest.Model) {
			c.Outcome, c.Why = "bad_observation", "state"
		}, "outcome ok (), was bad_observation (state)"},
		{"refused now", func(c *audit.Capture, _ *servertest.Model) {
			c.Observation = []byte{0xc1}
		}, "outcome bad_observation"},
		{"the model fails now", func(_ *audit.Capture, m *servertest.Model) {
			m.Before = func() error { return policy.ErrRun }
		}, "outcome inference_failed"},
		{"not finite now", func(_ *audit.Capture, m *servertest.Model) {
			m.NotFinite.Store(true)
		}, "outcome not_finite"},
		{"the reply is none", func(c *audit.Capture, _ *servertest.Model) { c.Reply = nil }, "the captured reply"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, model := found[1], servertest.NewModel()
			tt.change(&c, model)
			r, err := replayed(model, 0, []audit.Capture{c})
			if err != nil || r.OK() || r.Requests != 1 || len(r.Differences) != 1 ||
				!strings.Contains(r.Differences[0].Why, tt.want) || r.Differences[0].Seq != 2 {
				t.Errorf("replay = %+v, %v, want one difference with %q", r, err, tt.want)
			}
			var text strings.Builder
			if err := r.Print(&text); err != nil || !strings.Contains(text.String(), tt.want) ||
				!strings.Contains(text.String(), "0 answered byte for byte") {
				t.Errorf("it prints %q, %v", text.String(), err)
			}
		})
	}
}

// Goal: captures of other bundles are reported in one line, whatever their number. They do not
// count as differences.
func TestReplaySaysOnceThatABundleIsAnother(t *testing.T) {
	found := capture(t)
	found[0].ModelSHA256 = "0ther"
	found[2].ModelSHA256 = "0ther"
	found[3].ModelSHA256 = "third"
	r, err := replayed(servertest.NewModel(), 0, found)
	if err != nil || r.OK() || r.Requests != 4 || r.Exact != 1 || r.Otherwise() != 0 || len(r.Differences) != 0 {
		t.Errorf("replay = %+v, %v, want one exact and three of other bundles", r, err)
	}
	var text strings.Builder
	const want = "4 captured requests: 1 answered byte for byte as then, 0 not, 0 unreadable; not compared, of " +
		"another bundle: 2 with bundle 0ther, 1 with bundle third\n"
	if err := r.Print(&text); err != nil || text.String() != want {
		t.Errorf("it prints %q, %v, want %q", text.String(), err, want)
	}
}

// A capture of a thousand requests names few tasks, and a replay tokenises each of them once.
func TestReplayReadsATaskOnce(t *testing.T) {
	tasks, reader := readTasks{}, &taskReader{pinned: "pick"}
	first := rttest.Must(tasks.read(reader, "pick"))(t)
	rttest.Want(t, rttest.Must(tasks.read(reader, "pick"))(t), first, "task of the second reading")
	for range 2 {
		if got, err := tasks.read(reader, "place"); err == nil {
			t.Errorf("a task that is not allowed is read as %v", got)
		}
	}
}
