package edge

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/chunk/smoothing"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/uplink"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// recordInto gives the rig a recorder that writes everything into a folder, and a session.
func recordInto(t *testing.T, r *rig) (dir string) {
	t.Helper()
	dir = t.TempDir()
	r.record = rttest.Must(record.New(record.Config{
		Mode:  record.All,
		Dir:   dir,
		Size:  1 << 30,
		ID:    "arm",
		Clock: r.Clock,
	}))(t)
	r.in.Open(&uplink.Session{Session: record.Session{ID: "first", Epoch: 1, SHA256: "aa"}})
	return dir
}

// The link requests an episode and then at once opens a session with another model. A tick that has not begun the
// episode yet sends no request in that session; the next tick begins the episode and sends one.
func TestASessionWaitsForItsEpisode(t *testing.T) {
	r := newRig(t)
	r.operator.resets.Add(1)
	r.ask(r.Now())
	rttest.Want(t, r.session.epoch, 0, "epoch before the episode begins")
	r.step(1)
	snap, _, _ := r.out.Snapshots.Front()
	rttest.Want(t, snap.Episode, 2, "episode of the first request")
}

// flush writes the recorder's content and closes it.
func flush(r *record.Recorder) {
	var stop atomic.Bool
	stop.Store(true)
	r.Collect()
	r.Write(&stop)
}

// Goal: every tick is on record. For each action that ran, the record has its request, row, delay and source.
// Actions left over from an earlier session keep that session's epoch. Requests and chunks are on
// record with their session.
func TestTicksAreRecorded(t *testing.T) {
	r := newRig(t)
	dir := recordInto(t, r)
	r.serve(40, 3, 10)
	r.record.Collect()
	r.in.Open(&uplink.Session{Session: record.Session{ID: "second", Epoch: 2, SHA256: "bb"}})
	r.answer(r.request(), 10) // the ticks meanwhile run the actions left over from the first session
	r.step(5)
	r.answer(r.session.key+1, 10) // an answer without a request
	r.step(1)
	flush(r.record)
	ticks := 0
	actions := int64(0)
	requests := uint64(0)
	joined := uint64(0)
	dropped := ""
	clipped := uint64(0)
	var last record.Tick
	names := map[string]string{}
	infos, err := record.ReadFolder(dir, record.Visitor{
		Tick: func(m *record.Tick) error {
			ticks++
			clipped += uint64(bits.OnesCount32(m.StepClipped))
			if m.At <= last.At || m.State.N != testDOF || m.Goal.N != testDOF || m.Lateness < 0 {
				t.Errorf("tick %d: %+v", ticks, m)
			}
			if last = *m; m.Action.N == 0 {
				return nil
			}
			if m.Step != actions || m.Seq == 0 || m.Epoch == 0 || m.Source >= m.At || m.Action.N != testDOF ||
				m.RunState != uint32(stateStreaming) || m.Queue == 0 {
				t.Errorf("action %d: %+v", actions, m)
			}
			if m.Seq > 1 && m.Epoch == 1 && (m.Delay != 3 || m.Dropped != 3) {
				t.Errorf("action %d: announced %d, dropped %d rows, want 3 and 3", actions, m.Delay, m.Dropped)
			}
			actions++
			return nil
		},
		Request: func(m *record.Request) error {
			requests++
			if m.Seq != requests || m.Session.Epoch != 0 || m.Runway < 0 {
				t.Errorf("request %d: %+v", requests, m)
			}
			names[fmt.Sprint("request ", m.Epoch)] = m.Session.ID
			return nil
		},
		Chunk: func(m *record.Chunk) error {
			if m.Outcome != record.Joined {
				dropped += m.Outcome
				return nil
			}
			joined++
			names[fmt.Sprint("chunk ", m.Epoch)] = m.Session.ID + m.Session.SHA256
			if m.Rows != testHorizon || m.RTT <= 0 || m.Seq > 1 && m.Epoch == 1 && m.Dropped != 3 {
				t.Errorf("chunk %d: %+v", joined, m)
			}
			return nil
		},
	})
	if err != nil || len(infos) != 1 || infos[0].Torn {
		t.Fatalf("%+v, %v", infos, err)
	}
	if uint64(actions) != r.stats.actions.Load() || actions < 40 || ticks <= int(actions) || last.Epoch != 2 {
		t.Errorf("%d actions in %d ticks, the last of epoch %d; want the %d that ran, and epoch 2", actions, ticks,
			last.Epoch, r.stats.actions.Load())
	}
	if requests != r.requests() || joined != r.chunks() || dropped == "" {
		t.Errorf("%d requests and %d chunks, dropped %q; want %d, %d and one dropped", requests, joined, dropped,
			r.requests(), r.chunks())
	}
	if want := map[string]string{
		"request 1": "first", "request 2": "second", "chunk 1": "firstaa",
		"chunk 2": "secondbb"}; !maps.Equal(names, want) {
		t.Errorf("sessions %v, want %v", names, want)
	}
	if clipped != r.arm.Gate().StepClips || clipped == 0 {
		t.Errorf("%d joints clipped on record, the gate counts %d", clipped, r.arm.Gate().StepClips)
	}
}

// Goal: a tick without an action and a tick with a silent bus are recorded as starved; a tick of a
// pause is not.
func TestStarvedTicksAreRecorded(t *testing.T) {
	r := newRig(t)
	dir := recordInto(t, r)
	r.serve(30, 3, 10)
	r.record.Collect()
	r.step(testHorizon + 5) // no answers
	flush(r.record)
	starved := uint64(0)
	rttest.Must(record.ReadFolder(dir, record.Visitor{Tick: func(m *record.Tick) error {
		if m.Starved {
			starved++
			if m.Action.N != 0 || m.BusSilent {
				t.Errorf("starved: %+v", m)
			}
		}
		return nil
	}}))(t)
	if starved == 0 || starved != r.starved() {
		t.Errorf("%d starved ticks on record, want %d", starved, r.starved())
	}
	r.serve(10, 3, 10)
	r.bus.silent = 3
	r.step(20)
	if r.stats.starvedBus.Load() == 0 {
		t.Error("no tick of a silent bus is starved")
	}
	r.pause(true)
	r.step(1)
	before := r.starved()
	r.step(20)
	rttest.Want(t, r.starved(), before, "a pause starves")
	r.pause(false)
	r.bus.silent = 0
	r.serve(10, 3, 10)
	before = r.starved()
	r.operator.resets.Add(1)
	most := uint64(r.degradedAfter / testPeriod)
	r.step(2)
	rttest.Want(t, r.stats.starvedStart.Load(), 2, "ticks before the first chunk")
	r.step(int(2 * most))
	rttest.Want(t, r.stats.starvedStart.Load(), most, "ticks that a chunk may take")
	rttest.Want(t, r.starved()-before, 2+2*most, "ticks without an action")
}

// Goal: record.RunStates has the names of the run's states, in their order.
func TestRecordKnowsTheStates(t *testing.T) {
	if !slices.Equal(record.RunStates, stateNames[:]) {
		t.Errorf("record names %v, want %v", record.RunStates, stateNames)
	}
}

func TestTickWithEverythingNoAlloc(t *testing.T) {
	r := newRig(t)
	recordInto(t, r)
	shape := rttest.Must(smoothing.NewChain(smoothing.Config{
		Cutoff:     10,
		Gain:       1.4,
		Multiplier: 2,
		Velocity:   100,
		Accel:      1000,
	}, 50, testDOF))(t)
	r.core.Stages = shape
	r.serve(200, 3, 10)
	r.bus.writes = r.bus.writes[:0:0]
	rttest.NoAllocs(t, "tick allocates %v times, want 0", 500, func() {
		now := r.Now()
		r.tick(rt.Tick{Deadline: now, Woke: now})
		r.record.Collect()
		r.SleepUntil(now.Add(testPeriod))
	})
	rttest.Want(t, r.record.Stats().Lost, 0, "messages lost")
}

// Goal: with two ticks per action the schedule counts actions, not ticks. Half as many actions as ticks run, and a
// request's runway (the time that its remaining actions last) is two ticks per action.
func TestInterpolatedTicks(t *testing.T) {
	r := newRig(t)
	shape := rttest.Must(smoothing.NewChain(smoothing.Config{Multiplier: 2}, 50, testDOF))(t)
	r.core.Stages, r.slope = shape, 1
	r.serve(201, 3, 10)
	if n := r.view().N; n < 95 || n > 101 {
		t.Errorf("%d actions in 201 ticks, want about 98", n)
	}
	rttest.Want(t, r.starved(), 0, "starved ticks")
	snap, _, _ := r.out.Snapshots.Front()
	if want := time.Duration(2*snap.Ask.Runway) * testPeriod; snap.Runway != want || snap.Ask.Runway == 0 {
		t.Errorf("runway %v for %d actions, want %v", snap.Runway, snap.Ask.Runway, want)
	}
}

// Goal: the prefix of a chunk holds the arm's future goals, after the filter, the limits and the
// gate (the last limit before the bus).
func TestPrefixIsWhatWillRun(t *testing.T) {
	for _, slope := range []float32{0.7, 8} { // the gate permits 3 from tick to tick
		r := newRig(t)
		shape := rttest.Must(smoothing.NewChain(smoothing.Config{Cutoff: 20}, 100, testDOF))(t)
		r.core.Stages, r.slope = shape, slope
		r.serve(100, 3, -60)
		r.request()
		snap, _, _ := r.out.Snapshots.Front()
		if snap.Ask.Rows < 3 {
			t.Fatalf("%d rows of prefix", snap.Ask.Rows)
		}
		r.bus.writes = r.bus.writes[:0]
		clipped := r.arm.Gate().StepClips
		r.step(3)
		for i, w := range r.bus.writes {
			if want := [testDOF]float32(snap.Ask.Robot[i*testDOF:]); w != want {
				t.Errorf("slope %v, row %d: the prefix says %v, the arm did %v", slope, i, want, w)
			}
		}
		rttest.Want(t, r.arm.Gate().StepClips > clipped, slope > 3, "slope %v: the gate clips", slope)
	}
}

// Goal: a run whose discipline requests only with an empty schedule is not DEGRADED before a
// request has waited.
func TestRareRequestsAreNotDegraded(t *testing.T) {
	r := newRig(t)
	schedule := rttest.Must(chunk.New(chunk.Config{
		Schedule: "sync",
		Horizon:  testHorizon,
		DOF:      testDOF,
		FPS:      100,
		Epsilon:  1,
	}))(t)
	r.core.Schedule, r.degradedAfter = schedule, 150*time.Millisecond // less than the duration of a chunk
	degraded := false
	due := map[uint64]int64{}
	last := r.session.key
	for range 200 {
		if key, ok := due[r.index]; ok {
			r.answer(key, 10)
		}
		r.step(1)
		degraded = degraded || r.run.state == stateDegraded
		if r.session.key != last {
			last = r.session.key
			due[r.index+3] = last
		}
	}
	if degraded || r.chunks() < 5 {
		t.Errorf("degraded %v with %d chunks, want never", degraded, r.chunks())
	}
}

// Goal: with --actions-per-chunk only the first rows of a chunk are used, both of the robot's and of the model's
// actions. The chunk still counts as well formed.
func TestOnlyTheFirstActionsOfAChunkAreUsed(t *testing.T) {
	r := newRig(t)
	r.actions = testHorizon / 2
	r.answer(r.request(), 10)
	r.step(1)
	if size, n := r.view().Size, r.chunks(); size != testHorizon/2 || n != 1 {
		t.Errorf("%d actions of %d chunks, want %d of 1; dropped: %v", size, n, testHorizon/2, r.drops())
	}
}

// Goal: a series of ticks without an action is reported once, with its cause, and so is the next
// series.
func TestARowOfEmptyTicksIsReported(t *testing.T) {
	r := newRig(t)
	r.maxEmpty = 10
	r.serve(40, 3, 10)
	for range 2 {
		r.step(testHorizon + 9) // nothing answers
		early := r.run.empty < 10 && len(r.told(event.Empty)) > 0
		r.step(testHorizon)
		want := []event.Event{{Code: event.Empty, A: 10, B: int64(event.LackAnswers)}}
		if got := r.told(event.Empty); early || !slices.Equal(got, want) {
			t.Fatalf("%+v, want %+v", got, want)
		}
		r.core.Schedule.RequestNow()
		r.serve(40, 3, 10)
	}
}

// Goal: the network's time is the round trip less the time that the server reports. That time is a duration, so the
// server's clock does not matter.
func TestTheNetworksShareOfARoundTrip(t *testing.T) {
	r := newRig(t)
	key := r.request()
	r.step(2)
	body := &r.in.Answers.Back().Body
	body.QueueWaitMs, body.InferenceMs = 4, 6
	r.answer(key, 10)
	r.step(1)
	rtt, network := r.stats.rtt.Max(), r.stats.network.Max()
	if rtt < 2*testPeriod || network != rtt-10*time.Millisecond {
		t.Errorf("%v of a round trip of %v, want all but 10 ms", network, rtt)
	}
}

// Goal: the prefix that conditions a chunk ends at the policy's row or at --execution-horizon, whichever is lower.
func TestTheExecutionHorizonOnlyShortens(t *testing.T) {
	for _, tt := range []struct{ policys, flag, want int }{{0, 0, 0}, {24, 0, 24}, {0, 10, 10}, {24, 10, 10},
		{10, 24, 10}} {
		e := Edge{contract: uplink.Contract{PrefixEnd: tt.policys}}
		e.cfg.Schedule.PrefixEnd = tt.flag
		rttest.Want(t, e.prefixEnd(), tt.want, "policy %d, flag %d", tt.policys, tt.flag)
	}
}
