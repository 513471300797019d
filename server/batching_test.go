package server

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/audit"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/server/servertest"
	"github.com/edge-rt/edge-rt/wire"
)

// batching returns a server of the fake policy with maxBatch rows in each of two buffers, and
// robots of these names with open sessions.
func batching(t *testing.T, maxBatch int, names []string, change ...func(*bench)) (*bench, []*robot) {
	t.Helper()
	cfg := config()
	cfg.MaxSessions, cfg.DecodeThreads = manifest.Capacity(max(1, len(names))), 2
	model := servertest.NewBatchModel(maxBatch, 2)
	b := newBench(t, cfg, func(d *Deps) { d.Model = model })
	b.model = model
	b.start(change...)
	var robots []*robot
	for _, name := range names {
		o := fakeOpen(name)
		o.SessionEpoch = 1
		if ack := b.open(o); !ack.Accepted {
			t.Fatalf("open = %+v", ack)
		}
		robots = append(robots, b.robot(name))
	}
	return b, robots
}

// sendState sends request seq of a robot whose first joint is at joint.
func (r *robot) sendState(seq uint64, joint float32) {
	o := fakeObs(r.b.t)
	o.State[0] = joint
	o.HasT, o.T = true, int64(seq)
	r.send(obsHeader(1, seq), o)
}

// wantOwn expects the chunk of request seq, computed from this joint.
func (r *robot) wantOwn(seq uint64, joint float32) {
	r.b.t.Helper()
	got := r.next()
	if got.header.MsgType != wire.MsgActionChunk || got.header.SeqID != seq || got.chunk.T != int64(seq) ||
		!near(got.chunk.ChunkRobot.Data, []float32{joint + 0.01}, 1e-6) {
		r.b.t.Errorf("request %d of joint %g got %+v, want its own chunk", seq, joint, got)
	}
}

// Goal: requests that wait while a run is under way are decoded meanwhile, share the next run, and
// each gets its own chunk; the audit has their batch and row.
func TestRobotsShareARun(t *testing.T) {
	dir, names := t.TempDir(), []string{"a", "b", "c", "d", "e"}
	var entered, leave chan struct{}
	var ran []int
	b, robots := batching(t, 4, names, func(b *bench) {
		b.audited(dir)
		entered, leave = b.holdInferences()
		b.model.Ran = func(_, batch int) { ran = append(ran, batch) }
	})
	blank := b.model.Filled.Load()
	robots[0].sendState(1, 1)
	<-entered
	for i, r := range robots[1:] {
		r.sendState(1, float32(i+2))
	}
	rttest.Eventually(t, "the rows of the next run, while one goes on", func() bool {
		return b.model.Filled.Load() == blank+1+4
	})
	leave <- struct{}{}
	robots[0].wantOwn(1, 1)
	<-entered
	leave <- struct{}{}
	for i, r := range robots[1:] {
		r.wantOwn(1, float32(i+2))
	}
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(ran, []int{1, 4}) || b.server.stats.batches[0].Load() != 1 ||
		b.server.stats.batches[3].Load() != 1 {
		t.Errorf("runs of %v rows, counted %d of one and %d of four, want one of 1 and one of 4", ran,
			b.server.stats.batches[0].Load(), b.server.stats.batches[3].Load())
	}
	rows := map[string]bool{}
	for _, line := range readAudit(t, filepath.Join(dir, "audit.jsonl")) {
		rows[fmt.Sprint(line.Batch, line.Row)] = true
	}
	for _, want := range []string{"1 0", "4 0", "4 1", "4 2", "4 3"} {
		if !rows[want] {
			t.Errorf("the audit has batches and rows %v, want %s among them", rows, want)
		}
	}
}

// Goal: an observation that cannot be decoded is refused alone, in any row; the others of its batch
// get their chunks from one run.
func TestABadObservationFailsAlone(t *testing.T) {
	for bad := range 4 {
		var entered, leave chan struct{}
		b, robots := batching(t, 4, []string{"a", "b", "c", "d", "e"}, func(b *bench) {
			entered, leave = b.holdInferences()
		})
		robots[4].sendState(1, 9)
		<-entered
		for i, r := range robots[:4] {
			if i != bad {
				r.sendState(1, float32(i+1))
				continue
			}
			o := fakeObs(t)
			o.State = o.State[:1]
			r.send(obsHeader(1, 1), o)
		}
		close(leave)
		robots[4].wantOwn(1, 9)
		for i, r := range robots[:4] {
			if i != bad {
				r.wantOwn(1, float32(i+1))
			} else if got := r.next(); got.event.Code != wire.EventBadObservation || got.event.Seq != 1 {
				t.Errorf("the bad one got %+v, want bad_observation", got)
			}
		}
		if err := b.stop(); err != nil {
			t.Error(err)
		}
		if n := b.server.stats.reruns.Load(); n != 0 {
			t.Errorf("%d batches ran again, want none", n)
		}
	}
}

// Goal: a run that fails for one of its rows costs only that robot its chunk.
func TestAFailedBatchRunsOneByOne(t *testing.T) {
	for guilty := range 4 {
		var entered, leave chan struct{}
		b, robots := batching(t, 4, []string{"a", "b", "c", "d", "e"}, func(b *bench) {
			entered, leave = b.holdInferences()
			b.model.Poison = float32(guilty + 1)
		})
		blank := b.model.Filled.Load()
		robots[4].sendState(1, 9)
		<-entered
		for i, r := range robots[:4] {
			r.sendState(1, float32(i+1))
		}
		rttest.Eventually(t, "all rows filled", func() bool { return b.model.Filled.Load() == blank+1+4 })
		close(leave)
		robots[4].wantOwn(1, 9)
		for i, r := range robots[:4] {
			if i != guilty {
				r.wantOwn(1, float32(i+1))
			} else if got := r.next(); got.event.Code != wire.EventBadObservation || got.event.Seq != 1 {
				t.Errorf("the guilty one got %+v, want bad_observation", got)
			}
		}
		if ok, why := b.server.Ready(); !ok {
			t.Errorf("the server is not ready: %s", why)
		}
		if err := b.stop(); err != nil {
			t.Error(err)
		}
		if n, failed := b.server.stats.reruns.Load(), b.server.stats.failures[failureRun].Load(); n != 1 ||
			failed != 1 {
			t.Errorf("%d batches ran again with %d failures, want 1 and 1", n, failed)
		}
	}
}

// Goal: a policy that panics when a batch is repeated ends the server with an error, and no
// goroutine goes on waiting for it.
func TestAPanicInARepeatedBatch(t *testing.T) {
	b, robots := batching(t, 4, []string{"a", "b"}, func(b *bench) {
		b.server.cfg.WarmupInferences = 0
		b.server.worker.window = time.Hour
		b.model.Poison = 1
		runs := 0
		b.model.Before = func() error {
			if runs++; runs > 1 {
				panic("bad graph")
			}
			return nil
		}
	})
	robots[0].sendState(1, 1)
	robots[1].sendState(1, 2)
	rttest.Eventually(t, "the worker's end", func() bool { ok, _ := b.server.Ready(); return !ok })
	if err := b.stop(); err == nil || !strings.Contains(err.Error(), "bad graph") {
		t.Errorf("Serve = %v, want the panic", err)
	}
}

// Goal: a batch waits for its window to fill, but not longer than until all robots that could join
// have done so.
func TestBatchWindow(t *testing.T) {
	var ran []int
	b, robots := batching(t, 4, []string{"a", "b"}, func(b *bench) {
		b.server.worker.window = 10 * time.Millisecond
		b.server.cfg.WarmupInferences = 0
		b.model.Ran = func(_, batch int) { ran = append(ran, batch) }
	})
	blank := b.model.Filled.Load()
	robots[0].sendState(1, 1)
	rttest.Eventually(t, "the first row", func() bool { return b.model.Filled.Load() == blank+1 })
	robots[1].sendState(1, 2) // both of two: it begins although no time passes
	robots[0].wantOwn(1, 1)
	robots[1].wantOwn(1, 2)
	robots[0].sendState(2, 3)
	rttest.Eventually(t, "the next row", func() bool { return b.model.Filled.Load() == blank+3 })
	b.clock.Advance(11 * time.Millisecond)
	robots[0].wantOwn(2, 3)
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(ran, []int{2, 1}) {
		t.Errorf("runs of %v rows, want 2 and then 1", ran)
	}
}

// Goal: where a larger batch saves nothing, no robot waits for others.
func TestNoWindowWhereBatchesDoNotPay(t *testing.T) {
	b, robots := batching(t, 4, []string{"a", "b"}, func(b *bench) {
		b.server.worker.window = time.Hour
		b.server.cfg.WarmupInferences = 0
		for _, size := range b.server.worker.engine.sizes.All() {
			b.server.worker.engine.sizes.Learn(size, time.Duration(size)*time.Millisecond)
		}
	})
	robots[0].sendState(1, 1)
	robots[0].wantOwn(1, 1)
	if err := b.stop(); err != nil {
		t.Error(err)
	}
}

// From the transport's callback to the transport's Put, a batch allocates nothing, with both
// buffers, decoding threads, audit and captures.
func TestBatchPathNoAlloc(t *testing.T) {
	cfg := config()
	const robots = 8
	cfg.MaxSessions, cfg.DecodeThreads = robots, 2
	b := newBench(t, cfg, func(d *Deps) { d.Model = servertest.NewBatchModel(4, 2) })
	w := b.audited(t.TempDir())
	stop := w.Start(audit.Origin{ModelSHA256: "5ha"})
	var keys []string
	for i := range robots {
		o := fakeOpen(fmt.Sprintf("arm-%d", i))
		if ack := b.server.opener.open(&o, wire.Origin{}); !ack.Accepted {
			t.Fatalf("open = %+v", ack)
		}
		key, err := wire.ObsKey(b.server.Prefix(), o.ClientUUID)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	obs := fakeObs(t)
	obs.PrefixRobot = wire.Matrix{Rows: 3, Cols: 2, Data: make([]float32, 6)}
	obs.InferenceDelaySteps, obs.HasT = 2, true
	body, seq := wire.AppendObservation(nil, obs), uint64(0)
	attachment := make([]byte, 0, wire.HeaderSize)
	worker := b.server.worker
	cycle := func() {
		seq++
		attachment = wire.AppendHeader(attachment[:0], obsHeader(0, seq))
		for _, key := range keys {
			b.server.receiver.onObservation(wire.Sample{Key: key, Payload: body, Attachment: attachment})
		}
		for serveOne(worker) {
		}
	}
	for range 50 {
		cycle()
	}
	if n := testing.AllocsPerRun(100, cycle); n != 0 {
		t.Errorf("a batch allocates %v times, want 0", n)
	}
	stop()
	if n, batches := b.server.stats.outcomes[audit.Answered].Load(), b.server.stats.batches[3].Load(); n < 150*robots ||
		batches < 200 {
		t.Errorf("served %d requests, %d times four of them at once, want %d and 200", n, batches, 150*robots)
	}
}

// Goal: with any mix of robots, bad observations and failing rows, no robot gets the chunk of
// another or two answers to one request. The race detector watches.
func TestNobodyGetsTheChunkOfAnother(t *testing.T) {
	for _, maxBatch := range []int{1, 2, 4} {
		t.Run(fmt.Sprint(maxBatch), func(t *testing.T) { nobodyGetsTheChunkOfAnother(t, maxBatch) })
	}
}

func nobodyGetsTheChunkOfAnother(t *testing.T, maxBatch int) {
	var names []string
	for i := range 7 {
		names = append(names, fmt.Sprintf("arm-%d", i))
	}
	const poison, requests = 1e6, 100
	b, robots := batching(t, maxBatch, names, func(b *bench) { b.model.Poison = poison })
	var wg sync.WaitGroup
	for i, r := range robots {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for seq := uint64(1); seq <= requests; seq++ {
				b.clock.Advance(eventInterval) // each may get an event
				joint := float32(1000*i) + float32(seq)
				bad := random.IntN(10)
				switch bad {
				case 0:
					o := fakeObs(t)
					o.State = o.State[:1]
					r.send(obsHeader(1, seq), o)
				case 1:
					r.sendState(seq, poison)
				default:
					r.sendState(seq, joint)
				}
				got := r.next()
				if got.header.SeqID != seq {
					t.Errorf("request %d of %d got the answer to %d", seq, i, got.header.SeqID)
				}
				if got.header.MsgType == wire.MsgActionChunk &&
					(bad <= 1 || !near(got.chunk.ChunkRobot.Data, []float32{joint + 0.01}, 1e-2)) {
					t.Errorf("request %d of %d (%d) got the chunk %v", seq, i, bad, got.chunk.ChunkRobot.Data[:2])
				}
			}
		})
	}
	wg.Wait()
	if err := b.stop(); err != nil {
		t.Error(err)
	}
	counts := &b.server.stats.outcomes
	if n := sum(counts[:]); n != requests*uint64(len(names)) || (b.server.stats.reruns.Load() > 0) != (maxBatch > 1) {
		t.Errorf("%d turns for %d requests, %d batches ran again, want each once and some again", n,
			requests*len(names), b.server.stats.reruns.Load())
	}
}

// Goal: a robot's next request waits for the previous chunk, whose rows it may name, although the
// other buffer is free.
func TestTheNextRequestFindsTheChunkBefore(t *testing.T) {
	var entered, leave chan struct{}
	b, robots := batching(t, 4, []string{"a"}, func(b *bench) { entered, leave = b.holdInferences() })
	robots[0].sendState(1, 1)
	<-entered
	o := fakeObs(t)
	o.HasT = true
	o.T = 2
	o.InferenceDelaySteps = 2
	o.Spans = []wire.Span{{Source: 1, Start: 1, End: 4}}
	robots[0].send(obsHeader(1, 2), o)
	for range 3 { // the worker has seen it, and any other thread would have begun
		rttest.Eventually(t, "the worker looks", func() bool { return len(b.server.worker.work) == 0 })
		b.server.worker.work.Wake()
	}
	close(leave)
	robots[0].wantOwn(1, 1)
	if got := robots[0].next(); got.header.SeqID != 2 || !near(got.chunk.ChunkRobot.Data, []float32{1.02}, 1e-6) {
		t.Errorf("the next request got %+v, want the row of the chunk before that it names", got)
	}
	if n := b.server.stats.spans[spansFound].Load(); n != 1 {
		t.Errorf("%d requests found their rows, want 1", n)
	}
}
