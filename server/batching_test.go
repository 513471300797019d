package server

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
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
	b := newBench(t, cfg, func(d *Deps) { d.Model = servertest.NewBatchModel(maxBatch, 2) })
	b.start(change...)
	var robots []*robot
	for _, name := range names {
		b.admits(b.open(process(name, "", "", 1)), "an open")
		robots = append(robots, b.robot(name))
	}
	return b, robots
}

// holding returns a function for beforeRuns. It holds each run, as hold does, until the test lets it continue; the run
// then returns err.
func holding(b *bench, err error) func(run int) error {
	b.entered, b.leave = make(chan struct{}, 100), make(chan struct{})
	return func(run int) error {
		b.entered <- struct{}{}
		<-b.leave
		return err
	}
}

// heldBatch returns a server of batches and its five robots. It holds the run for the last robot while the
// observations of the other four fill the next batch. The first joint of robot i is at i+1. The function send may
// send robot i's observation instead of heldBatch, and then returns true.
func heldBatch(t *testing.T, maxBatch int, change func(*bench), send func(i int, r *robot) bool) (*bench, []*robot) {
	t.Helper()
	b, robots := batching(t, maxBatch, []string{"a", "b", "c", "d", "e"}, change)
	blank := b.model.Filled.Load()
	robots[4].sendState(1, 5)
	<-b.entered
	filled := int64(1)
	for i, r := range robots[:4] {
		if send != nil && send(i, r) {
			continue
		}
		r.sendState(1, float32(i+1))
		filled = min(filled+1, int64(1+maxBatch))
	}
	rttest.Eventually(t, "the rows of the next run, while one goes on", func() bool {
		return b.model.Filled.Load() == blank+filled
	})
	return b, robots
}

// wantOwnBut expects that each of heldBatch's robots gets the chunk of its own request, except robot number bad, which
// gets an event whose text contains these words.
func wantOwnBut(robots []*robot, bad int, words string) {
	for i, r := range robots {
		r.b.t.Helper()
		if i != bad {
			r.wantOwn(1, float32(i+1))
		} else if got := r.wantEvent(wire.EventBadObservation, words); got.event.Seq != 1 {
			r.b.t.Errorf("the event is about request %d", got.event.Seq)
		}
	}
}

// sendState sends request seq with the robot's first joint at this position.
func (r *robot) sendState(seq uint64, joint float32) {
	o := fakeObs(r.b.t)
	o.State[0] = joint
	o.HasT, o.T = true, int64(seq)
	r.send(obsHeader(1, seq), o)
}

// wantOwn expects the chunk of request seq, computed from an observation with the first joint at this position.
func (r *robot) wantOwn(seq uint64, joint float32) {
	r.b.t.Helper()
	if got := r.wantChunk(seq); got.chunk.T != int64(seq) ||
		!near(got.chunk.ChunkRobot.Data, []float32{joint + 0.01}, 1e-6) {
		r.b.t.Errorf("request %d of joint %g got %+v, want its own chunk", seq, joint, got)
	}
}

// Goal: requests that wait while a run is under way are decoded meanwhile and share the next run, and each request gets
// its own chunk. The audit has the batch and the row of each.
func TestRobotsShareARun(t *testing.T) {
	dir := t.TempDir()
	var ran []int
	b, robots := heldBatch(t, 4, func(b *bench) {
		b.audited(dir)
		b.hold()
		b.model.Ran = func(_, batch int) { ran = append(ran, batch) }
	}, nil)
	close(b.leave)
	wantOwnBut(robots, -1, "")
	b.end()
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

// Goal: an observation that cannot be decoded is refused alone, in any row; the other observations of its batch get
// their chunks from one run.
func TestABadObservationFailsAlone(t *testing.T) {
	for bad := range 4 {
		b, robots := heldBatch(t, 4, (*bench).hold, func(i int, r *robot) bool {
			if i == bad {
				r.askBadly(1, 1)
			}
			return i == bad
		})
		close(b.leave)
		wantOwnBut(robots, bad, "state")
		b.end()
		rttest.Want(t, b.server.stats.reruns.Load(), 0, "batches that ran again")
	}
}

// Goal: if a run fails because of one of its rows, only the robot of that row gets no chunk.
func TestAFailedBatchRunsOneByOne(t *testing.T) {
	for guilty := range 4 {
		b, robots := heldBatch(t, 4, func(b *bench) {
			b.hold()
			b.model.Poison = float32(guilty + 1)
		}, nil)
		close(b.leave)
		wantOwnBut(robots, guilty, "")
		b.wantReady()
		b.end()
		if n, failed := b.server.stats.reruns.Load(), b.server.stats.failures[failureRun].Load(); n != 1 ||
			failed != 1 {
			t.Errorf("%d batches ran again with %d failures, want 1 and 1", n, failed)
		}
	}
}

// Goal: a policy that panics when a batch is repeated ends the server with an error, and no goroutine waits for the
// policy for ever.
func TestAPanicInARepeatedBatch(t *testing.T) {
	b, robots := batching(t, 4, []string{"a", "b"}, func(b *bench) {
		b.server.worker.window = time.Hour
		b.model.Poison = 1
		b.beforeRuns(func(run int) error {
			if run > 1 {
				panic("bad graph")
			}
			return nil
		})
	})
	robots[0].sendState(1, 1)
	robots[1].sendState(1, 2)
	b.wantError("bad graph")
}

// Goal: a batch waits for its window to end, or until all robots that could join have joined.
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
	robots[1].sendState(1, 2) // the batch begins without waiting, because the requests of both robots have arrived
	robots[0].wantOwn(1, 1)
	robots[1].wantOwn(1, 2)
	robots[0].sendState(2, 3)
	rttest.Eventually(t, "the next row", func() bool { return b.model.Filled.Load() == blank+3 })
	b.clock.Advance(11 * time.Millisecond)
	robots[0].wantOwn(2, 3)
	b.end()
	if !slices.Equal(ran, []int{2, 1}) {
		t.Errorf("runs of %v rows, want 2 and then 1", ran)
	}
}

// Goal: if a larger batch saves nothing, no robot waits for others.
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
	b.end()
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
		keys = append(keys, obsKey(t, b.opened(fmt.Sprintf("arm-%d", i)).uuid))
	}
	body, seq := wire.AppendObservation(nil, prefixed(t)), uint64(0)
	attachment := make([]byte, 0, wire.HeaderSize)
	cycle := func() {
		seq++
		attachment = wire.AppendHeader(attachment[:0], obsHeader(0, seq))
		for _, key := range keys {
			b.server.receiver.onObservation(wire.Sample{Key: key, Payload: body, Attachment: attachment})
		}
		for serveOne(b.server.worker) {
		}
	}
	for range 50 {
		cycle()
	}
	rttest.NoAllocs(t, "a batch allocates %v times, want 0", 100, cycle)
	stop()
	if n, batches := b.server.stats.outcomes[audit.Answered].Load(), b.server.stats.batches[3].Load(); n < 150*robots ||
		batches < 200 {
		t.Errorf("served %d requests, %d times four of them at once, want %d and 200", n, batches, 150*robots)
	}
}

// Goal: with any mix of robots, bad observations and failing rows, no robot gets another robot's chunk or two answers
// to one request. The race detector watches.
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
				b.clock.Advance(eventInterval) // after this time an event to each robot is allowed
				joint := float32(1000*i) + float32(seq)
				bad := random.IntN(10)
				switch bad {
				case 0:
					r.askBadly(1, seq)
				case 1:
					r.sendState(seq, poison)
				default:
					r.sendState(seq, joint)
				}
				got := r.next()
				rttest.Want(t, got.header.SeqID, seq, "the request answered to robot %d", i)
				if got.header.MsgType == wire.MsgActionChunk &&
					(bad <= 1 || !near(got.chunk.ChunkRobot.Data, []float32{joint + 0.01}, 1e-2)) {
					t.Errorf("request %d of %d (%d) got the chunk %v", seq, i, bad, got.chunk.ChunkRobot.Data[:2])
				}
			}
		})
	}
	wg.Wait()
	b.end()
	counts := &b.server.stats.outcomes
	if n := sum(counts[:]); n != requests*uint64(len(names)) || (b.server.stats.reruns.Load() > 0) != (maxBatch > 1) {
		t.Errorf("%d turns for %d requests, %d batches ran again, want each once and some again", n,
			requests*len(names), b.server.stats.reruns.Load())
	}
}

// Goal: a robot's next request waits until the robot's previous chunk is ready, even if a buffer is free, because the
// request may name rows of that chunk.
func TestTheNextRequestFindsTheChunkBefore(t *testing.T) {
	b, robots := batching(t, 4, []string{"a"}, (*bench).hold)
	robots[0].sendState(1, 1)
	<-b.entered
	o := fakeObs(t)
	o.HasT = true
	o.T = 2
	o.InferenceDelaySteps = 2
	o.Spans = []wire.Span{{Source: 1, Start: 1, End: 4}}
	robots[0].send(obsHeader(1, 2), o)
	for range 3 { // a worker that does not wait for the chunk would begin the request meanwhile
		rttest.Eventually(t, "the worker looks", func() bool { return len(b.server.worker.work) == 0 })
		b.server.worker.work.Wake()
	}
	close(b.leave)
	robots[0].wantOwn(1, 1)
	if got := robots[0].wantChunk(2); !near(got.chunk.ChunkRobot.Data, []float32{1.02}, 1e-6) {
		t.Errorf("the next request got %+v, want the row of the chunk before that it names", got)
	}
	rttest.Want(t, b.server.stats.spans[spansFound].Load(), 1, "requests whose spans were found")
}
