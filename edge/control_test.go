package edge

import (
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/chunk/smoothing"
	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/edge/uplink"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/wire"
)

const (
	testDOF     = 2
	testHorizon = 20
	testSMin    = 8
	testPeriod  = 10 * time.Millisecond
)

// fakeBus is two joints that reach their goals at once. As with a real motor, a goal switches the
// torque on.
type fakeBus struct {
	at        [testDOF]float32
	silent    robot.Joints
	torque    bool
	stuck     bool // the joints do not follow their goals
	writes    [][testDOF]float32
	masks     []robot.Joints // the joints of each write
	back      hotplug.Cause
	restarted robot.Joints
	failing   bool
	says      servo.Reactions
	doubted   robot.Joints
	strayed   robot.Joints
	effort    float64
	renewed   robot.Joints
	outside   robot.Joints
	warned    robot.Joints
	fatal     error
	asleep    bool
	steps     int // number of ArmStep calls before the call that completes the arming
	deadline  rt.Instant
}

func (b *fakeBus) Complaint(int) (servo.Fault, int) { return servo.FaultVoltage, 124 }

func (b *fakeBus) RenewTorque(joints robot.Joints) { b.renewed |= joints }

func (b *fakeBus) Push(int, rt.Instant) (float32, bool) { return 0, false }

func (b *fakeBus) SetPeriod(time.Duration) {}

func (b *fakeBus) Read(dst []float32, deadline rt.Instant) robot.Joints {
	b.deadline = deadline
	for j := range dst {
		if !b.silent.Has(j) {
			dst[j] = b.at[j]
		}
	}
	return b.silent
}

func (b *fakeBus) Positions(dst []float32) { copy(dst, b.at[:]) }
func (b *fakeBus) Goals(dst []float32)     { copy(dst, b.at[:]) }

func (b *fakeBus) Write(goal []float32, joints robot.Joints) {
	b.torque = true
	for j := range goal {
		if joints.Has(j) && !b.stuck {
			b.at[j] = goal[j]
		}
	}
	if cap(b.writes) > len(b.writes) {
		b.writes, b.masks = append(b.writes, [testDOF]float32(goal)), append(b.masks, joints)
	}
}

func (b *fakeBus) BusWait() rt.Wait { return rt.Wait{} }

func (b *fakeBus) Stats() servo.Stats { return servo.Stats{} }

func (b *fakeBus) Reconnected() (hotplug.Cause, robot.Joints) {
	why, restarted := b.back, b.restarted
	b.back, b.restarted = 0, 0
	return why, restarted
}

func (b *fakeBus) Reactions() servo.Reactions        { return b.says }
func (b *fakeBus) DisableTorque(joints robot.Joints) { b.says.Limp |= joints }
func (b *fakeBus) Recheck()                          {}
func (b *fakeBus) Unchecked() robot.Joints           { return b.doubted }
func (b *fakeBus) Jumped() robot.Joints              { return 0 }
func (b *fakeBus) GoalMismatch() robot.Joints        { s := b.strayed; b.strayed = 0; return s }
func (b *fakeBus) Effort(int, rt.Instant) float64    { return b.effort }
func (b *fakeBus) Prioritize(robot.Joints)           {}
func (b *fakeBus) MovedWhileArming() robot.Joints    { return 0 }
func (b *fakeBus) OutOfRange() robot.Joints          { return b.outside }
func (b *fakeBus) Rescue() error                     { return nil }
func (b *fakeBus) EndRescue() error                  { return nil }

func (b *fakeBus) Warned() robot.Joints { return b.warned }

func (b *fakeBus) Extremes() (hottest, volts float64) { return 66, 6.3 }

func (b *fakeBus) BusWatchdogFired() bool { return b.asleep && b.torque }

func (b *fakeBus) Wheel(int) (goal, present int) { return 0, 0 }

func (b *fakeBus) Fatal() error { return b.fatal }

func (b *fakeBus) ArmStep(_ rt.Instant, joints robot.Joints) (bool, error) {
	if b.failing {
		return false, errors.New("no answer")
	}
	if b.outside&joints != 0 {
		return false, servo.ErrOutOfRange
	}
	if b.steps > 0 {
		b.steps--
		return false, nil
	}
	b.torque, b.asleep = true, false
	return true, nil
}

// rig is a control with fakes for bus and server, ticked by hand.
type rig struct {
	*control
	*rttest.Clock
	link  *uplink.Link
	bus   *fakeBus
	how   follow.Config
	index uint64
	slope float32 // slope of the answers' rows
}

func newRig(t *testing.T) *rig { return newLookingRig(t, 1) }

// running returns a rig after this number of ticks, with answers of the value 10 after three ticks each.
func running(t *testing.T, ticks int) *rig {
	r := newRig(t)
	r.serve(ticks, 3, 10)
	return r
}

// newLookingRig returns a rig for a policy that looks at this number of observations together.
func newLookingRig(t *testing.T, steps int) *rig {
	t.Helper()
	waker, err := rt.NewWaker()
	if err != nil {
		t.Skipf("no eventfd on this system: %v", err)
	}
	t.Cleanup(func() { waker.Close() })
	schedule := rttest.Must(chunk.New(chunk.Config{
		Schedule: "drtc", Horizon: testHorizon, DOF: testDOF, FPS: 100, PrefixEnd: 10,
		SMin: testSMin, Epsilon: 1, Estimator: "fixed", EstimatorFixed: 30 * time.Millisecond,
	}))(t)
	stages := rttest.Must(smoothing.NewChain(smoothing.Config{}, 100, testDOF))(t)
	clock := rttest.NewClock(rt.Instant(time.Second))
	fake := &fakeBus{at: [testDOF]float32{5, 50}, writes: make([][testDOF]float32, 0, 4096),
		masks: make([]robot.Joints, 0, 4096)}
	r := &rig{bus: fake, Clock: clock, how: follow.Config{
		Period: testPeriod,
		Events: event.NewQueue(1024),
		Exit:   follow.ExitPark,
		Safety: robot.Safety{
			AfterReplug: robot.Resume,
			AfterReset:  robot.Operator,
			Slew:        1,
			Stall:       robot.Ignore,
			StallFor:    time.Hour,
		},
		Gate: follow.Gate{Min: []float32{-90, 0}, Max: []float32{90, 100}, Step: []float32{3, 3}},
	}}
	r.link = uplink.New(uplink.Config{Clock: clock, Log: slog.New(slog.DiscardHandler)})
	r.link.Out.Prepare(testHorizon, testDOF, steps)
	r.control = newControl(controlConfig{
		clock: clock, period: testPeriod, degradedAfter: 100 * time.Millisecond, maxOffline: 2 * time.Second,
		arm: follow.One(follow.New(fake, r.how, testDOF)), bus: fake, events: r.how.Events, waker: waker,
		out: r.link.Out, in: r.link.In, missing: new(atomic.Int32), stats: newTickStats(),
	}, follow.Core{Schedule: schedule, Stages: stages, MaxAge: time.Second})
	r.openSession(1)
	r.follow(func(*follow.Config) {})
	return r
}

// writes counts the goals that were sent to the arm.
func (r *rig) writes() int { return len(r.bus.writes) }

// requests, starved and chunks return counters of the run.
func (r *rig) requests() uint64 { return r.stats.requests.Load() }
func (r *rig) starved() uint64  { return r.stats.starved.Load() }
func (r *rig) chunks() uint64   { return r.stats.chunks.Load() }

func (r *rig) view() chunk.View { return r.core.Schedule.View() }

// pause is the operator's command, or its end.
func (r *rig) pause(on bool) { r.operator.pause.Store(on) }

// openSession opens a session of this epoch.
func (r *rig) openSession(epoch uint32) {
	r.in.Open(&uplink.Session{Session: record.Session{Epoch: epoch}})
}

// drops returns the counts of dropped answers by reason.
func (r *rig) drops() map[string]uint64 { return r.stats.dropTotals(r.link.Stats) }

// follow gives the rig an arm with other settings.
func (r *rig) follow(change func(*follow.Config)) {
	change(&r.how)
	r.arm = follow.One(follow.New(r.bus, r.how, testDOF))
	r.drive = drive.New(drive.Config{Arm: r.arm, Loop: rt.LoopConfig{Clock: r.Clock, Period: testPeriod}})
	r.core.Gate = r.arm.Gate()
}

// step ticks n times.
func (r *rig) step(n int) {
	for range n {
		r.index++
		now := r.Now()
		r.tick(rt.Tick{Index: r.index, Deadline: now, Woke: now})
		r.SleepUntil(now.Add(testPeriod))
	}
}

// answer delivers a chunk for the request with this key. Its rows begin at value and rise by slope.
func (r *rig) answer(key int64, value float32) { r.answerEpisode(key, value, 1) }

func (r *rig) answerEpisode(key int64, value float32, episode uint32) {
	a := r.in.Answers.Back()
	a.Epoch, a.Episode = r.in.Sessions().Epoch(), episode
	rows := make([]float32, testHorizon*testDOF)
	for i := range rows {
		rows[i] = value + r.slope*float32(i/testDOF)
	}
	m := wire.Matrix{Rows: testHorizon, Cols: testDOF, Data: rows}
	a.Body.ChunkRobot, a.Body.ChunkModel = m, m
	r.in.Answers.Publish(key)
}

// pictured sets the age of the oldest picture in the request with this key.
func (r *rig) pictured(key int64, age time.Duration) {
	*r.in.Sources.Reserve() = uplink.Source{Key: key, At: r.Now().Add(-age)}
	r.in.Sources.Commit()
}

// told drains the queue of events, and returns the events with these codes, without their instants.
func (r *rig) told(codes ...event.Code) (events []event.Event) {
	r.events.Drain(func(e event.Event) {
		if slices.Contains(codes, e.Code) {
			e.At = 0
			events = append(events, e)
		}
	})
	return events
}

// request ticks until a request leaves, and returns its key.
func (r *rig) request() int64 {
	for before := r.session.key; r.session.key == before; {
		r.step(1)
	}
	return r.session.key
}

// serve answers every request after delay ticks, for n ticks.
func (r *rig) serve(n, delay int, value float32) {
	due := map[int]int64{}
	last := r.session.key
	for i := range n {
		if key, ok := due[i]; ok {
			r.answer(key, value)
		}
		r.step(1)
		if r.session.key != last {
			last = r.session.key
			due[i+delay] = last
		}
	}
}

func TestTorqueIsUntouchedBeforeTheFirstChunk(t *testing.T) {
	r := newRig(t)
	r.step(20)
	if r.bus.torque || r.writes() != 0 || r.starved() != 0 {
		t.Errorf("before a chunk: torque %v, %d writes, %d starved, want none", r.bus.torque, r.writes(),
			r.starved())
	}
	if r.requests() == 0 {
		t.Error("no request was sent")
	}
}

// Goal: the first tick with a valid observation sends a request. After the merge the goal starts at
// the present position and moves no faster than the limit.
func TestFirstActionsAreBlendedAtTheVelocityLimit(t *testing.T) {
	r := newRig(t)
	r.step(1)
	if got := r.requests(); got != 1 {
		t.Fatalf("requests after the first tick = %d, want 1", got)
	}
	r.answer(1, 20)
	r.step(1) // merges
	if r.bus.torque {
		t.Fatal("torque was switched on within the merging tick")
	}
	r.step(1) // arms
	if !r.bus.torque || r.arm.Goal[0] != 5 || r.arm.Goal[1] != 50 {
		t.Fatalf("after arming torque %v goal %v, want true [5 50]", r.bus.torque, r.arm.Goal)
	}
	r.step(6)
	want := [][testDOF]float32{{8, 47}, {11, 44}, {14, 41}, {17, 38}, {20, 35}, {20, 32}}
	for i, w := range want {
		rttest.Want(t, r.bus.writes[i], w, "write %d", i)
	}
	if r.arm.Gate().StepClips == 0 {
		t.Error("no step was counted as clipped")
	}
	rttest.Want(t, r.run.state, stateStreaming, "state")
}

func TestTorqueThatCannotBeSwitchedOnEndsTheRun(t *testing.T) {
	r := newRig(t)
	r.bus.failing = true
	r.step(1)
	r.answer(1, 20)
	r.step(2)
	if err := r.drive.Failed(); err == nil || !r.drive.Stopped() {
		t.Errorf("failed = %v, stop = %v, want an error and the end", err, r.drive.Stopped())
	}
}

func TestSteadyStreamNeverStarves(t *testing.T) {
	r := running(t, 300)
	rttest.Want(t, r.starved(), 0, "starved ticks")
	if got := r.view().N; got < 290 {
		t.Errorf("executed step %d after 300 ticks, want about 295", got)
	}
}

// Goal: a lost chunk costs about one round trip: the trigger requests again after estimate +
// epsilon + 1 ticks, long before the schedule is empty.
func TestALostChunkIsAskedForAgain(t *testing.T) {
	r := running(t, 60)
	r.request()
	at := r.index
	r.request()
	if again := r.index - at; again > 6 {
		t.Errorf("asked again after %d ticks, want at most 6 (estimate 3 + epsilon 1 + 1)", again)
	}
	r.step(2)
	r.answer(r.session.key, 10)
	r.step(1)
	rttest.Want(t, r.starved(), 0, "starved ticks after one lost chunk")
}

// Goal: an answer has been due since the first request after the newest chunk, however often the
// request is repeated.
func TestAnAnswerIsDueSinceTheFirstRequest(t *testing.T) {
	r := newRig(t)
	r.serve(30, 2, 1)
	for r.out.AskedAt.Load() <= r.out.MergedAt.Load() {
		r.step(1)
	}
	first, sent := r.out.AskedAt.Load(), r.requests()
	r.step(40)
	if got := r.requests(); got < sent+2 {
		t.Fatalf("%d requests without an answer, want at least two more than %d", got, sent)
	}
	if got := r.out.AskedAt.Load(); got != first {
		t.Errorf("an answer is due since %d, want the first request's %d", got, first)
	}
}

func TestRunningDryHoldsAndRecovers(t *testing.T) {
	r := running(t, 40)
	goal := r.arm.Goal[0]
	r.step(testHorizon + 10) // no answers
	if r.run.state != stateStalled {
		t.Fatalf("state %v, want STALLED", r.run.state)
	}
	if r.arm.Goal[0] != goal || r.starved() == 0 {
		t.Errorf("goal %v starved %d, want %v held and counted", r.arm.Goal[0], r.starved(), goal)
	}
	n := r.writes()
	r.step(1)
	if r.writes() != n {
		t.Error("holding writes a goal, which is not safe to send again: reading feeds the servos' own watchdogs")
	}
	r.answer(r.session.key, 12)
	r.step(2)
	rttest.Want(t, r.run.state, stateStreaming, "state after a new chunk")
}

// Goal: with repeat_last a starved arm repeats its last action until that is too old; a joint that
// has not reached its goal keeps moving to it. A pause or a new episode ends the repetition.
func TestFallbackRepeatsTheLastAction(t *testing.T) {
	dry := func(change func(*rig)) (r *rig, repeated int) {
		r = newRig(t)
		r.repeats = true
		r.core.MaxAge = (testHorizon + 20) * testPeriod
		change(r)
		r.serve(40, 3, 10)
		for end := r.starved(); r.starved() == end; {
			r.step(1)
		}
		return r, r.writes()
	}
	r, before := dry(func(*rig) {})
	last := r.arm.Goal[0]
	r.step(30)
	n := uint64(r.writes() - before + 1)
	if got := r.stats.repeated.Load(); got == 0 || got != n || got > 20 || r.starved() < 30 {
		t.Errorf("%d goals in 30 starved ticks, %d counted; want some, until the action is too old", n, got)
	}
	if r.arm.Goal[0] != last || r.run.state != stateStalled {
		t.Errorf("goal %v, was %v, state %v", r.arm.Goal[0], last, r.run.state)
	}
	r, before = dry(func(r *rig) {})
	r.pause(true)
	r.step(2)
	r.pause(false)
	r.step(5)
	rttest.Want(t, r.writes()-before, 0, "goals after a pause (none: the action is from before the pause)")
	r, before = dry(func(r *rig) {})
	r.operator.resets.Add(1)
	r.step(5)
	rttest.Want(t, r.writes()-before, 0, "goals after a new episode")
	r, before = dry(func(r *rig) { r.repeats = false })
	r.step(20)
	if n := r.writes() - before; n != 0 || r.stats.repeated.Load() != 0 {
		t.Errorf("%d goals with --fallback hold, want none", n)
	}
}

// Goal: a run whose joints are all held is not STREAMING, even if chunks arrive. It is STREAMING
// again after the motors have recovered.
func TestEveryJointHeldIsStalled(t *testing.T) {
	r := running(t, 40)
	r.bus.says.Hold = 1 // the bus holds one of the two joints
	r.serve(40, 3, 10)
	rttest.Want(t, r.run.state, stateStreaming, "one joint is held: state")
	r.bus.says.Hold = 1<<testDOF - 1
	before := r.writes()
	r.serve(60, 3, 20)
	if r.run.state != stateStalled || r.writes() > before+1 || r.stats.heldAll.Load() < 50 {
		t.Errorf("state %v after %d goals, %d ticks counted, want STALLED and none", r.run.state,
			r.writes()-before, r.stats.heldAll.Load())
	}
	r.bus.silent = 1
	r.step(1)
	r.bus.silent = 0
	r.serve(10, 3, 20)
	told := r.told(event.ArmHeld, event.StateChanged)
	want := event.Event{Code: event.ArmHeld, A: 1<<testDOF - 1, B: event.Complaint(event.ComplainsOfSupply, 124)}
	held := slices.DeleteFunc(slices.Clone(told), func(e event.Event) bool { return e.Code == event.StateChanged })
	if len(told) > 7 ||
		!slices.Equal(held, []event.Event{want}) {
		t.Errorf("told %+v, want %+v once, and few changes of state", told, want)
	}
	r.bus.says.Hold = 0
	r.serve(40, 3, 10)
	rttest.Want(t, r.run.state, stateStreaming, "state after the motors are well")
}

func TestOldActionsNeverRun(t *testing.T) {
	r := running(t, 40)
	r.core.MaxAge = 5 * testPeriod
	n := r.view().N
	r.step(10)
	if r.stats.tooOld.Load() == 0 || r.view().N > n+5 {
		t.Errorf("too old %d, n %d → %d: actions past their age ran", r.stats.tooOld.Load(), n,
			r.view().N)
	}
}

func TestStaleJoints(t *testing.T) {
	for _, tt := range []struct {
		name    string
		silent  robot.Joints
		ticks   int
		moves   [testDOF]bool
		stalled bool
	}{
		{"one joint for 90 ms gets no goal, the other moves", 1, 8, [testDOF]bool{false, true}, false},
		{"one joint for 120 ms is frozen, the other moves", 1, 12, [testDOF]bool{false, true}, false},
		{"two joints for 120 ms hold everything", 3, 12, [testDOF]bool{false, false}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.slope = 0.1
			r.serve(60, 3, 10)
			r.bus.silent = tt.silent
			r.step(tt.ticks)
			before := [testDOF]float32(r.arm.Goal)
			r.step(1)
			for j := range testDOF {
				if moved := r.arm.Goal[j] != before[j]; moved != tt.moves[j] {
					t.Errorf("joint %d moved %v, want %v (goal %v → %v)", j, moved, tt.moves[j], before, r.arm.Goal)
				}
			}
			if (r.run.state == stateStalled) != tt.stalled {
				t.Errorf("state %v, want stalled %v", r.run.state, tt.stalled)
			}
		})
	}
}

// Goal: after a pause the first tick that may send a request sends one, because the remaining actions are older than
// their number suggests.
func TestAsksAfterABreak(t *testing.T) {
	var r *rig
	for n := range 20 { // a tick just after a merge
		r = newRig(t)
		if r.serve(40+n, 3, 10); r.view().Size > testHorizon-testSMin+1 {
			break
		}
	}
	asked := r.requests()
	r.pause(true)
	r.step(5)
	r.pause(false)
	r.step(1)
	if left := r.view().Size; left <= testHorizon-testSMin {
		t.Fatalf("%d actions left: the trigger would ask anyway", left)
	}
	rttest.Want(t, r.requests()-asked, 1, "requests until the first tick after a pause")
}

func TestBusDeadlineLeavesRoomForTheRest(t *testing.T) {
	r := newRig(t)
	now := r.Now()
	r.step(1)
	rttest.Want(t, r.bus.deadline.Sub(now), testPeriod-follow.Reserve(testPeriod), "the read's deadline after the tick")
}

func TestLinkLossAndReturn(t *testing.T) {
	r := running(t, 40)
	r.in.Lose()
	sent := r.requests()
	r.step(8)
	if r.run.state != stateReconnecting || r.requests() != sent {
		t.Fatalf("state %v, %d requests without a session, want RECONNECTING and none", r.run.state,
			r.requests()-sent)
	}
	if r.starved() != 0 {
		t.Error("starved although actions were left")
	}
	r.openSession(2)
	r.step(1)
	if r.run.state != stateConnecting || r.requests() != sent+1 {
		t.Fatalf("state %v, %d requests on a new session, want CONNECTING and 1 at once", r.run.state,
			r.requests()-sent)
	}
	r.answer(r.session.key, 10)
	r.step(1)
	rttest.Want(t, r.run.state, stateStreaming, "state")
}

func TestOfflineForTooLongIsDeadAndParks(t *testing.T) {
	r := running(t, 40)
	r.step(int(r.maxOffline/testPeriod) + 1)
	if r.run.state != stateDead || r.arm.Phase != follow.Parking {
		t.Fatalf("state %v phase %d, want DEAD and parking", r.run.state, r.arm.Phase)
	}
	r.step(200)
	if !r.drive.Stopped() || math.Abs(float64(r.arm.Goal[0]-5)) > 1e-3 {
		t.Errorf("stop %v goal %v, want true and back at 5", r.drive.Stopped(), r.arm.Goal)
	}
}

func TestLeavingParksWhereTheArmWasArmed(t *testing.T) {
	for mode, phaseAfter := range map[follow.Exit]follow.Phase{follow.ExitPark: follow.Parking,
		follow.ExitHold: follow.Done, follow.ExitOff: follow.Done} {
		r := newRig(t)
		r.follow(func(c *follow.Config) { c.Exit = mode })
		r.serve(60, 3, 10)
		r.drive.Leave(drive.Operator)
		r.step(1)
		rttest.Want(t, r.arm.Phase, phaseAfter, "mode %d: phase after leaving", mode)
		r.step(200)
		if !r.drive.Stopped() {
			t.Errorf("mode %d: the tick never ended", mode)
		}
	}
}

func TestASecondSignalSkipsParking(t *testing.T) {
	r := newRig(t)
	r.serve(200, 3, 60)
	r.drive.Leave(drive.Operator)
	r.step(2)
	r.drive.Hurry()
	r.step(2)
	if !r.drive.Stopped() {
		t.Error("still parking")
	}
}

// Goal: an arm counts as touched from the first torque write on, so a run that ends before the write is confirmed
// switches the torque off.
func TestTorqueCountsAsTouchedFromTheFirstStep(t *testing.T) {
	r := newRig(t)
	r.bus.steps = 3
	r.step(1)
	r.answer(1, 10)
	r.step(2)
	if !r.drive.Touched() || r.stats.armed.Load() {
		t.Errorf("touched %v armed %v in the middle of arming, want true false", r.drive.Touched(),
			r.stats.armed.Load())
	}
	r.drive.Leave(drive.Operator)
	r.step(1)
	if !r.drive.Stopped() {
		t.Error("the tick goes on")
	}
}

func TestLeavingUnarmedStopsAtOnce(t *testing.T) {
	r := newRig(t)
	r.step(3)
	r.drive.Leave(drive.Operator)
	r.step(1)
	if !r.drive.Stopped() || r.writes() != 0 {
		t.Errorf("stop %v, %d writes, want true and none", r.drive.Stopped(), r.writes())
	}
}

// Goal: the age of an action counts from the oldest picture if that is older than the state.
func TestActionAgeCountsFromTheOldestPicture(t *testing.T) {
	r := newRig(t)
	r.step(1)
	r.pictured(1, 500*time.Millisecond)
	r.answer(1, 6)
	r.step(3)
	if got := r.stats.age.Max(); got < 500*time.Millisecond {
		t.Errorf("action age %v, want at least 500 ms", got)
	}
}

// A stalled run stays stalled after a chunk whose actions are all too old to run. Such chunks come while a camera is
// away.
func TestAChunkTooOldToRunStaysStalled(t *testing.T) {
	r := running(t, 40)
	r.step(2 * testHorizon)
	r.pictured(r.session.key, 2*time.Second)
	r.answer(r.session.key, 6)
	r.told()
	r.step(3)
	if told := r.told(event.StateChanged); r.run.state != stateStalled || len(told) > 0 {
		t.Errorf("state %v after %+v, want STALLED throughout", r.run.state, told)
	}
}

func TestChunksThatAnswerNothingAreDroppedByReason(t *testing.T) {
	for _, tt := range []struct {
		name   string
		break_ func(r *rig, a *uplink.Answer) int64
		reason int
	}{
		{"earlier session", func(r *rig, a *uplink.Answer) int64 { a.Epoch = 7; return 1 }, uplink.DropEpoch},
		{"earlier episode", func(r *rig, a *uplink.Answer) int64 { a.Episode = 9; return 1 }, uplink.DropEpisode},
		{"never asked", func(r *rig, a *uplink.Answer) int64 { return 40 }, uplink.DropUnknown},
		{"wrong width", func(r *rig, a *uplink.Answer) int64 {
			a.Body.ChunkRobot = wire.Matrix{Rows: 2, Cols: 3, Data: make([]float32, 6)}
			return 1
		}, dropOutcome + int(chunk.BadShape)},
		{"not a number", func(r *rig, a *uplink.Answer) int64 {
			a.Body.ChunkRobot.Data[3] = float32(math.NaN())
			return 1
		}, dropOutcome + int(chunk.NotFinite)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.step(1)
			a := r.in.Answers.Back()
			a.Epoch, a.Episode = 1, 1
			m := wire.Matrix{Rows: 2, Cols: testDOF, Data: make([]float32, 4)}
			a.Body.ChunkRobot, a.Body.ChunkModel = m, m
			r.in.Answers.Publish(tt.break_(r, a))
			r.step(1)
			if got := r.stats.dropped[tt.reason].Load(); got != 1 || r.chunks() != 0 {
				t.Errorf("%s: %d dropped as %q, %d merged; want 1 and 0 (all: %v)", tt.name, got, dropNames[tt.reason],
					r.chunks(), r.drops())
			}
		})
	}
}

// Goal: no observation leaves while its answer could not be used.
func TestNoObservationLeaves(t *testing.T) {
	for name, begin := range map[string]func(*rig){
		"an operator pauses":         func(r *rig) { r.pause(true) },
		"a joint is silent":          func(r *rig) { r.bus.silent = 1 },
		"the bus is silent":          func(r *rig) { r.bus.silent = 3 },
		"a camera has shown nothing": func(r *rig) { r.missing.Store(1) },
		"there is no session":        func(r *rig) { r.in.Lose() },
		"the arm parks":              func(r *rig) { r.drive.Leave(drive.Operator) },
	} {
		r := newRig(t)
		r.slope = 1
		r.serve(60, 3, 10)
		r.request()
		begin(r)
		r.step(11) // long enough for a joint to become frozen
		asked := r.requests()
		r.step(10) // the last request is unanswered: the trigger would repeat it
		rttest.Want(t, r.requests()-asked, 0, "%s: requests", name)
	}
}

// Goal: the stages begin at the arming pose.
func TestStagesBeginWhereTheArmStands(t *testing.T) {
	r := newRig(t)
	stages := rttest.Must(smoothing.NewChain(smoothing.Config{Velocity: 100}, 100, testDOF))(t)
	r.core.Stages = stages
	r.step(1)
	r.answer(1, 20)
	r.step(3) // merges, arms, acts
	if got, want := r.bus.writes[0], [testDOF]float32{6, 49}; got != want {
		t.Errorf("first goal %v, want %v: a hundredth of 100 units/s from where the arm stands", got, want)
	}
}
