package edge

import (
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/episode"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/edge/leader"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim/pattern"
)

// fakeLeader is a leader of two joints without motors, whose state the test sets.
type fakeLeader struct {
	pose     leader.Pose
	actuated bool
	number   uint32 // number of the tick's last order
	align    bool
	place    [testDOF]float32
}

func (l *fakeLeader) Choose(robot.Joints) {}
func (l *fakeLeader) Pose() *leader.Pose  { return &l.pose }
func (l *fakeLeader) Actuated() bool      { return l.actuated }
func (l *fakeLeader) Want(_ rt.Instant, number uint32, align bool, place []float32) {
	l.number = number
	l.align = align
	l.place = [testDOF]float32(place)
}

// lead gives the rig a leader with this pose.
func (r *rig) lead(actuated bool, at ...float32) *fakeLeader {
	l := &fakeLeader{actuated: actuated, pose: leader.Pose{At: r.Now(), Joints: at}}
	r.leadWith(l)
	return l
}

// leadWith gives the rig a leader of all its joints.
func (r *rig) leadWith(l leaderArm) {
	r.takeover.leader, r.takeover.parts = l, r.arm.Joints()
	r.takeover.action = make([]float32, testDOF)
}

// newSlowRig returns a rig whose arm starts at half speed.
func newSlowRig(t *testing.T) *rig {
	r := newRig(t)
	r.follow(func(c *follow.Config) { c.Safety.SlewFor, c.Safety.Slew = 5*testPeriod, 0.5 })
	return r
}

// newLedRig lets a person take over a rig that the policy has driven.
func newLedRig(t *testing.T, r *rig) (*rig, *fakeLeader) {
	t.Helper()
	r.serve(60, 1, 10)
	l := r.lead(true, 0, 0)
	r.handOver(t, l)
	return r, l
}

// led runs n ticks, and the leader answers in each of them.
func (r *rig) led(n int, l *fakeLeader) {
	for range n {
		l.pose.At = r.Now()
		r.step(1)
	}
}

// handOver brings the leader to the follower, then hands the follower over.
func (r *rig) handOver(t *testing.T, l *fakeLeader) {
	t.Helper()
	r.operator.correct.Store(true)
	r.pause(false)
	r.led(1, l)
	if !l.actuated {
		return
	}
	if r.holder() != aligning || !l.align {
		t.Fatalf("%v, wanted at the follower: %v, want it aligning", r.holder(), l.align)
	}
	copy(l.pose.Joints, l.place[:])
	l.pose.State, l.pose.Order = leader.Ready, l.number
	r.led(1, l)
	l.pose.State = leader.Limp
	if r.holder() != correcting || l.align {
		t.Fatalf("%v, wanted at the follower: %v, want a person to have the arm", r.holder(), l.align)
	}
}

// giveBack ends the correction, as an operator's resume does.
func (r *rig) giveBack(l *fakeLeader) {
	r.operator.correct.Store(false)
	r.pause(false)
	r.led(1, l)
}

// Goal: the arm holds while the leader moves to it, then follows only the leader. When the person
// has given the arm back, the policy drives it with a chunk that was requested afterwards, without
// a prefix.
func TestTakeover(t *testing.T) {
	r := newSlowRig(t)
	r.slope = 0.5
	r.serve(60, 3, 10)
	r.request()
	l := r.lead(true, -40, 10)
	before := [testDOF]float32(r.arm.Goal)
	asked := r.session.key
	merged := r.chunks()
	r.operator.correct.Store(true)
	r.led(1, l)
	writes, sent := r.writes(), r.requests()
	r.answer(asked, 60) // the answer under way
	r.led(20, l)
	if r.writes() != writes || r.requests() != sent || [testDOF]float32(r.arm.Goal) != before {
		t.Errorf("%d goals and %d requests while the leader comes, goal %v, want none and %v", r.writes()-writes,
			r.requests()-sent, r.arm.Goal, before)
	}
	rttest.Want(t, r.chunks()-merged, 0, "chunks that were under way are merged")
	if l.place != before || l.number != 1 {
		t.Errorf("the leader is wanted at %v, order %d, want the follower's goal %v, order 1", l.place, l.number,
			before)
	}
	l.pose.State = leader.Ready
	l.pose.Order = 1
	l.pose.Stiff = true
	r.led(3, l)
	if r.holder() != aligning || r.writes() != writes {
		t.Fatalf("%v with a stiff leader, want it waited for", r.holder())
	}
	l.pose.Stiff, l.pose.Joints = false, []float32{before[0] + 5, before[1]}
	r.led(1, l)
	l.pose.State = leader.Limp
	if d := r.arm.Goal[0] - before[0]; r.holder() != correcting || d <= 0 || d > 1.5+1e-3 {
		t.Errorf("%v, the first step is %v, want it correcting, and half of the 3 that a tick may travel at most",
			r.holder(), d)
	}
	r.led(20, l)
	rttest.Want(t, r.arm.Goal[0]-before[0], 5, "the follower is from where it was")
	if r.requests() != sent || r.starved() != 0 || r.stats.corrected.Load() == 0 {
		t.Errorf("%d requests, %d starved, %d corrected", r.requests()-sent, r.starved(),
			r.stats.corrected.Load())
	}
	l.pose.Joints = []float32{90, 100}
	from := r.arm.Goal[0]
	r.led(1, l)
	rttest.Want(t, r.arm.Goal[0]-from, 3,
		"a leader that is thrown moves the follower by in a tick (the 3 of the gate)")

	episode := r.session.episode
	r.giveBack(l)
	if r.holder() != autonomous || r.session.episode == episode {
		t.Fatalf("%v, episode %d, want autonomous in a new one", r.holder(), r.session.episode)
	}
	held := [testDOF]float32(r.arm.Goal)
	r.led(3, l)
	if r.requests() == sent {
		t.Fatal("nothing is asked after it was given back")
	}
	if s, _, _ := r.out.Snapshots.Front(); s.Ask.Rows != 0 || !s.Start || s.Episode != r.session.episode {
		t.Errorf("the first request has %d rows of prefix, start %v, episode %d: want none, true, %d", s.Ask.Rows,
			s.Start, s.Episode, r.session.episode)
	}
	if [testDOF]float32(r.arm.Goal) != held {
		t.Errorf("goal %v before an answer, want %v held", r.arm.Goal, held)
	}
	r.answerEpisode(r.session.key, -80, r.session.episode)
	r.led(2, l)
	if d := r.arm.Goal[0] - held[0]; d >= 0 || d < -1.5-1e-3 {
		t.Errorf("the policy's first step is %v, want -1.5: as slowly as the first of a run", d)
	}
}

// Goal: between two episodes the arm returns to its arming pose, also after a person has moved it.
func TestReturnAfterACorrection(t *testing.T) {
	r := newRig(t)
	r.returns = true
	r.serve(60, 3, 10)
	l := r.lead(false, 20, 20)
	r.operator.rest.Store(true)
	for range 2 {
		r.led(1000, l)
		if g := r.arm.Goal; g[0] > 7 || g[1] < 48 {
			t.Errorf("goal %v, want the arming pose, 5 and 50", g)
		}
		r.handOver(t, l)
		r.led(100, l)
		r.giveBack(l)
	}
}

// Goal: an arm that is held at the end of an episode returns to its arming pose as soon as it may move, also if only
// one of its parts is held.
func TestReturnAfterAHold(t *testing.T) {
	one := newRig(t)
	one.serve(60, 3, 10)
	both, _, buses := newPair(t, robot.Together)
	for _, tt := range []struct {
		*rig
		says  *robot.Joints
		held  robot.Joints
		armed float32
	}{{one, &one.bus.says.Hold, 1<<testDOF - 1, 5}, {both, &buses[0].says.Hold, 1, 0}} {
		pose := tt.arm.Goal[0]
		tt.returns = true
		*tt.says = tt.held
		tt.operator.rest.Store(true)
		tt.step(2 * int(returnLimit/testPeriod))
		rttest.Want(t, tt.arm.Goal[0], pose, "goal of the held arm")
		*tt.says = 0
		tt.step(1000)
		if g := tt.arm.Goal[0]; g > tt.armed+2 {
			t.Errorf("goal %v, want the arming pose, %v", g, tt.armed)
		}
	}
}

// Goal: while a person drives the arm, the record has the leader's pose as the action, marked as an intervention.
func TestCorrectionsAreOnRecord(t *testing.T) {
	r := newRig(t)
	dir := recordInto(t, r)
	r.serve(30, 3, 10)
	l := r.lead(true, 0, 0)
	r.operator.rest.Store(true) // also in a break between two episodes
	r.handOver(t, l)
	l.pose.Joints = []float32{7, 8}
	r.led(5, l)
	r.step(20) // the leader is silent
	flush(r.record)
	var ticks []record.Tick
	if _, err := record.ReadFolder(dir, record.Visitor{Tick: func(k *record.Tick) error {
		ticks = append(ticks, *k)
		return nil
	}}); err != nil || len(ticks) == 0 {
		t.Fatalf("%d ticks, %v", len(ticks), err)
	}
	marked := 0
	for _, k := range ticks {
		if !k.Intervention {
			continue
		}
		marked++
		if k.Action.N != testDOF || k.Paused || k.Starved || k.Seq != 0 {
			t.Fatalf("a person's tick is %+v", k)
		}
	}
	last := ticks[len(ticks)-1]
	if marked < 5 || marked > 5+int(leaderSilent/testPeriod)+1 || last.Intervention || last.Action.N != 0 {
		t.Errorf("%d ticks are a person's, the last one %v: want those of which the leader was heard", marked,
			last.Intervention)
	}
}

// Goal: the follower moves slowly to a leader without motors.
func TestTakeoverByALeaderThatCannotCome(t *testing.T) {
	r := newSlowRig(t)
	r.serve(60, 1, 10)
	l := r.lead(false, 70, 10)
	from := r.arm.Goal[0]
	r.handOver(t, l)
	r.led(2, l)
	if d := r.arm.Goal[0] - from; r.holder() != correcting || d < 1 || d > 3*1.5+1e-3 {
		t.Errorf("%v, %v in three ticks, want it on its way at half speed", r.holder(), d)
	}
	r.led(60, l)
	if r.arm.Goal[0] != 70 || l.align {
		t.Errorf("goal %v, want the leader's 70, which nobody drives", r.arm.Goal)
	}
}

// Goal: a silent leader makes the follower hold, with one event, and start slowly when the leader
// is back; the person may give the arm back meanwhile.
func TestLeaderThatFallsSilent(t *testing.T) {
	r, l := newLedRig(t, newSlowRig(t))
	r.led(20, l)
	r.step(int(leaderSilent/testPeriod) + 1)
	held, writes := [testDOF]float32(r.arm.Goal), r.writes()
	l.pose.Joints = []float32{60, 60}
	r.step(30)
	if r.writes() != writes || r.holder() != correcting || r.drive.Stopped() {
		t.Errorf("%d goals, %v, stop %v: want it held", r.writes()-writes, r.holder(), r.drive.Stopped())
	}
	r.led(1, l)
	if d := r.arm.Goal[0] - held[0]; d <= 0 || d > 1.5+1e-3 {
		t.Errorf("the first step after the silence is %v, want half of a tick's 3", d)
	}
	said := r.told(event.LeaderSilent, event.LeaderBack)
	rttest.Equal(t, said, []event.Event{{Code: event.LeaderSilent, B: 1}, {Code: event.LeaderBack}},
		"said (the silence and its end once)")
	r.step(20)
	r.giveBack(l)
	rttest.Want(t, r.holder(), autonomous, "a silent leader keeps the arm")
}

// Goal: a person can take the arm over in every state of the run except at its end, even without a server. The run does
// not give up meanwhile.
func TestTakeoverInEveryState(t *testing.T) {
	for _, tt := range []struct {
		state state
		reach func(*rig)
	}{
		{stateConnecting, func(r *rig) { r.step(3) }},
		{stateStreaming, func(r *rig) { r.serve(40, 3, 10) }},
		{stateDegraded, func(r *rig) { r.serve(40, 3, 10); r.step(12) }},
		{stateStalled, func(r *rig) { r.serve(40, 3, 10); r.step(testHorizon + 10) }},
		{stateReconnecting, func(r *rig) {
			r.serve(40, 3, 10)
			r.in.Lose()
			r.step(8)
		}},
	} {
		t.Run(tt.state.String(), func(t *testing.T) {
			r := newRig(t)
			tt.reach(r)
			if r.run.state != tt.state {
				t.Fatalf("state %v, want %v", r.run.state, tt.state)
			}
			l := r.lead(true, 0, 0)
			r.handOver(t, l)
			l.pose.Joints = []float32{33, 44}
			r.led(int(r.maxOffline/testPeriod)+50, l)
			if [testDOF]float32(r.arm.Goal) != [testDOF]float32{33, 44} || r.drive.Stopped() ||
				r.run.state != tt.state {
				t.Errorf("goal %v, stop %v, state %v: want it led to 33, 44 for as long as it takes", r.arm.Goal,
					r.drive.Stopped(), r.run.state)
			}
			r.giveBack(l)
			if tt.state == stateReconnecting {
				r.openSession(2)
			}
			r.led(2, l)
			r.answerEpisode(r.session.key, 20, r.session.episode)
			r.led(8, l)
			if r.run.state != stateStreaming || r.arm.Goal[0] >= 33 {
				t.Errorf("state %v, goal %v: want the policy's 20", r.run.state, r.arm.Goal)
			}
		})
	}
}

// Goal: when the server refuses for good during a correction, the run ends as soon as the arm is
// given back.
func TestRefusalWaitsForThePerson(t *testing.T) {
	r, l := newLedRig(t, newRig(t))
	r.in.Refused.Store(true)
	r.led(20, l)
	if r.holder() != correcting || r.drive.Leaving() {
		t.Fatalf("%v, leaving %v: the arm was taken from a person's hand", r.holder(), r.drive.Leaving())
	}
	r.giveBack(l)
	if r.led(1, l); r.run.state != stateDead {
		t.Errorf("state %v, want DEAD", r.run.state)
	}
	r.operator.correct.Store(true)
	if r.led(3, l); r.holder() != autonomous || l.align {
		t.Errorf("%v: a run that ends was taken over", r.holder())
	}
}

// Goal: a pause takes the arm from the person, and a correction ends the pause.
func TestPauseAndTakeover(t *testing.T) {
	r, l := newLedRig(t, newRig(t))
	l.pose.Joints = []float32{40, 40}
	r.led(3, l)
	r.pause(true)
	r.operator.correct.Store(false)
	r.led(1, l)
	writes := r.writes()
	r.led(20, l)
	if r.holder() != paused || r.writes() != writes || l.align {
		t.Fatalf("%v, %d goals, want it paused", r.holder(), r.writes()-writes)
	}
	r.handOver(t, l)
	l.pose.Joints = []float32{50, 50}
	if r.led(20, l); r.arm.Goal[0] != 50 || l.number != 2 {
		t.Errorf("goal %v, order %d, want the leader's 50 and the second one", r.arm.Goal, l.number)
	}
	r.pause(true)
	r.operator.correct.Store(false)
	r.led(2, l)
	sent := r.requests()
	r.giveBack(l)
	if r.led(2, l); r.holder() != autonomous || r.requests() == sent {
		t.Errorf("%v, %d requests: want the policy asked", r.holder(), r.requests()-sent)
	}
}

// Goal: a failed alignment leaves the arm paused.
func TestAlignmentThatFails(t *testing.T) {
	r := running(t, 40)
	l := r.lead(true, 0, 0)
	r.operator.correct.Store(true)
	r.led(2, l)
	l.pose.State, l.pose.Order = leader.Failed, l.number
	r.led(3, l)
	if r.holder() != paused || !r.operator.pause.Load() || r.operator.correct.Load() || l.align {
		t.Errorf("%v, paused %v, correcting %v", r.holder(), r.operator.pause.Load(), r.operator.correct.Load())
	}
	r.handOver(t, l) // the old failure belongs to another order
}

// Goal: a take-over that the tick does not begin leaves the arm paused.
func TestATakeoverThatDoesNotBegin(t *testing.T) {
	r := newRig(t)
	l := r.lead(false, 0, 0)
	r.pause(true)
	r.led(2, l)
	e := &Edge{control: r.control, clock: r.Clock, drive: r.drive, cfg: Config{FPS: 100}}
	_, err := e.correction(t.Context(), "")
	rttest.Fails(t, err, "the tick does not answer")
	if o := &r.operator; !o.pause.Load() || o.correct.Load() {
		t.Errorf("paused %v, correcting %v: want the pause as it was", o.pause.Load(), o.correct.Load())
	}
}

// acting is a clock with another thread, which acts during each wait.
type acting struct {
	rt.Clock
	act func()
}

func (c acting) SleepUntil(at rt.Instant) {
	c.act()
	c.Clock.SleepUntil(at)
}

// Goal: a pause that comes before the take-over is the reason of the refusal. A take-over begins although the machine
// has stood still.
func TestATakeoverThatWaitsForTheTick(t *testing.T) {
	r := newRig(t)
	l := r.lead(false, 0, 0)
	r.led(2, l)
	e := &Edge{control: r.control, drive: r.drive, cfg: Config{FPS: 100}}
	e.clock = acting{r.Clock, func() { e.pause(); r.led(1, l) }}
	began := r.Now()
	rttest.Fails(t, rttest.Err(e.correction(t.Context(), "")), "a pause came first")
	if o := &r.operator; !o.pause.Load() || o.correct.Load() || r.Now().Sub(began) > follow.ParkLimit/30 {
		t.Errorf("paused %v, correcting %v after %v, want a pause at once", o.pause.Load(), o.correct.Load(),
			r.Now().Sub(began))
	}
	stood := false
	e.clock = acting{r.Clock, func() {
		if !stood {
			stood = true
			r.SleepUntil(r.Now().Add(time.Minute))
			return
		}
		r.led(1, l)
	}}
	r.pause(false)
	r.led(2, l)
	l.pose.At = r.Now()
	if _, err := e.correction(t.Context(), ""); err != nil || r.holder() != correcting {
		t.Errorf("after a stop of the machine: %v, %v", err, r.holder())
	}
}

// away is a camera that is unplugged.
type away struct{ camera.Source }

func (away) Grab(*camera.Frame) error { return camera.ErrGone }

// Goal: no episode begins while the arm does not answer, or a camera is away.
func TestNoEpisodeOfASilentArm(t *testing.T) {
	r := running(t, 60)
	a := policyArm{&Edge{control: r.control, drive: r.drive, clock: r.Clock, link: r.link}}
	rttest.Want(t, a.NotReady(), "", "the arm answers: not ready")
	r.bus.silent = 3
	r.step(30)
	rttest.Contains(t, a.NotReady(), "the arm does not answer")
	r.bus.silent = 0
	r.step(30)
	rttest.Want(t, a.NotReady(), "", "it answers again: not ready")
	source := pattern.NewSource(r.Clock, camera.Format{Width: 160, Height: 120, Pixels: camera.RGB8, FPS: 30})
	top := capture.New("top", away{source}, time.Millisecond)
	a.cameras = []*capture.Camera{top}
	end := new(atomic.Bool)
	top.Run(acting{r.Clock, func() { end.Store(top.Err() != nil) }}, end, new(atomic.Int32))
	rttest.Contains(t, a.NotReady(), "not every camera gives pictures; camera top: ")
}

// Goal: a push takes over only from a policy that drives the arm.
func TestPushTakesOver(t *testing.T) {
	r := newRig(t)
	l := r.lead(true, 0, 0)
	l.pose.Pushes = 1
	if r.led(3, l); r.holder() != autonomous {
		t.Errorf("%v: a push before the arm was armed", r.holder())
	}
	r.serve(40, 3, 10)
	r.pause(true)
	r.led(2, l)
	l.pose.Pushes = 2
	if r.led(2, l); r.holder() != paused {
		t.Errorf("%v: a push ended a pause", r.holder())
	}
	r.pause(false)
	if r.led(2, l); r.holder() != autonomous {
		t.Errorf("%v: an earlier push counts", r.holder())
	}
	l.pose.Pushes = 3
	if r.led(2, l); r.holder() != aligning {
		t.Errorf("%v: a push did nothing", r.holder())
	}
}

// Goal: after a restart of a follower's motor the arm waits for an operator's resume, whether the policy or a person
// drives. A correction does not replace the resume.
func TestRestartDuringACorrection(t *testing.T) {
	r, l := newLedRig(t, newRig(t))
	r.led(5, l)
	r.bus.back = hotplug.Restarted
	r.bus.restarted = 1
	r.bus.torque = false
	writes := r.writes()
	r.led(2, l)
	r.operator.correct.Store(true) // some program requests a correction in spite of the refusal
	r.pause(false)
	r.led(20, l)
	if r.bus.torque || r.writes() != writes || r.holder() != paused {
		t.Fatalf("torque %v, %d goals, %v, want it to wait", r.bus.torque, r.writes()-writes, r.holder())
	}
	r.giveBack(l)
	r.handOver(t, l)
	if r.led(20, l); !r.bus.torque || r.arm.Phase != follow.Armed {
		t.Errorf("torque %v, phase %v after the resume", r.bus.torque, r.arm.Phase)
	}
}

// Goal: a follower that was unplugged during a correction continues slowly from its measured
// position.
func TestFollowerUnpluggedDuringACorrection(t *testing.T) {
	r, l := newLedRig(t, newSlowRig(t))
	r.led(5, l)
	r.bus.silent = 3
	r.led(30, l)
	r.bus.silent = 0
	r.bus.back = hotplug.Unplugged
	r.bus.torque = false
	r.bus.at = [testDOF]float32{-30, 20}
	from := r.writes()
	l.pose.Joints = []float32{30, 30}
	r.led(6, l)
	if r.writes() == from || !r.bus.torque {
		t.Fatalf("it does not go on: phase %v", r.arm.Phase)
	}
	if first := r.bus.writes[from]; first[0] < -30 || first[0] > -30+1.5+1e-3 {
		t.Errorf("the first goal is %v, want it half a step from -30, where the arm stands", first)
	}
}

// Goal: a leader's pose from before a suspension does not move the follower.
func TestSuspendDuringACorrection(t *testing.T) {
	r, l := newLedRig(t, newRig(t))
	r.led(5, l)
	l.pose.Joints = []float32{80, 80}
	writes := r.writes()
	l.pose.At = r.Now().Add(-time.Millisecond)
	r.index++
	r.tick(rt.Tick{Index: r.index, Deadline: r.Now(), Woke: r.Now(), Suspended: time.Hour})
	if r.writes() != writes {
		t.Errorf("the follower was driven to %v, where the leader stood an hour ago", r.bus.writes[r.writes()-1])
	}
	r.SleepUntil(r.Now().Add(testPeriod))
	if r.led(3, l); r.writes() == writes {
		t.Error("it is not driven any more")
	}
}

// Goal: an end during a correction parks the follower and leaves the leader as it is.
func TestEndDuringACorrection(t *testing.T) {
	for _, during := range []mode{aligning, correcting} {
		r := running(t, 60)
		l := r.lead(true, 0, 0)
		r.operator.correct.Store(true)
		r.led(2, l)
		if during == correcting {
			r.handOver(t, l)
			l.pose.Joints = []float32{60, 60}
			r.led(30, l)
		}
		r.drive.Leave(drive.Operator)
		r.led(2, l)
		if l.align || r.arm.Phase != follow.Parking {
			t.Errorf("%v: the leader is wanted at the follower: %v, phase %v, want it let go and parking", during,
				l.align, r.arm.Phase)
		}
		r.led(300, l)
		if !r.drive.Stopped() || r.drive.Failed() != nil {
			t.Errorf("%v: stop %v, failed %v", during, r.drive.Stopped(), r.drive.Failed())
		}
	}
}

// Goal: a correction in which the run ends stays without an outcome, like every episode in which the run ends.
func TestEndDuringACorrectionsEpisode(t *testing.T) {
	r := newRig(t)
	recordInto(t, r)
	e := &Edge{
		control: r.control, drive: r.drive, clock: r.Clock, link: r.link, record: r.record,
		log: slog.New(slog.DiscardHandler),
		cfg: Config{Record: record.All, Episodes: episode.Plan{Strategy: episode.DAgger, Leader: true}},
	}
	e.episodes = e.newEpisodes()
	_, l := newLedRig(t, r)
	e.stepEpisode(t.Context())
	r.drive.Leave(drive.Operator)
	r.led(2, l)
	e.stepEpisode(t.Context())
	if st := e.episodes.Status(); r.holder() == correcting || st.Number != 1 || st.Open != 1 || st.Success != 0 {
		t.Errorf("%v, %+v: want episode 1 without an end", r.holder(), st)
	}
}

func TestLeaderSettings(t *testing.T) {
	good := func() Config { return Config{Bus: "/dev/a"} }
	for _, tt := range []struct {
		name   string
		change func(*Config)
		says   string
	}{
		{"none", func(*Config) {}, ""},
		{"one", func(c *Config) { c.Leader.Bus = "/dev/b" }, ""},
		{"a robot without a port", func(c *Config) { c.LeaderRobot = "koch_leader" }, "--leader-robot"},
		{"a name without a port", func(c *Config) { c.Leader.ID = "white" }, "--leader-id"},
	} {
		c := good()
		tt.change(&c)
		err := c.checkLeader()
		if (err == nil) != (tt.says == "") || err != nil &&
			(exit.Of(err) != exit.Usage || !rttest.Says(err, tt.says)) {
			t.Errorf("%s: %v, want %q and code 2", tt.name, err, tt.says)
		}
	}
}

// Goal: the follower's joint holds while the leader's joint does not lead, and follows slowly at
// first when it leads again.
func TestLeaderJointsThatDoNotLead(t *testing.T) {
	r, l := newLedRig(t, newSlowRig(t))
	r.led(60, l)
	held := r.arm.Goal[1]
	l.pose.Held, l.pose.Joints = 2, []float32{30, 60}
	r.led(30, l)
	if r.arm.Goal[1] != held || r.arm.Goal[0] < 29 {
		t.Errorf("goal %v, want joint 1 at %v and joint 0 at its leader's 30", r.arm.Goal, held)
	}
	l.pose.Held = 0
	r.led(1, l)
	if d := r.arm.Goal[1] - held; d <= 0 || d > 1.5+1e-3 {
		t.Errorf("the first step of a joint that leads again is %v, want half of a tick's 3", d)
	}
}

// Goal: like teleop, the record names the leader's joints that do not lead, including joints that
// had stopped leading before the correction. When a joint leads again,
// the follower at first follows it slowly.
func TestLeadersJointsThatDoNotLeadAreOnRecord(t *testing.T) {
	r := newSlowRig(t)
	l := r.lead(false, 0, 0)
	l.pose.Causes = []leader.Cause{0, leader.OutsideRange}
	l.pose.Held = 2
	r.serve(40, 3, 10)
	r.led(20, l)
	if told := r.told(event.LeaderHeld); len(told) > 0 {
		t.Errorf("%+v while the policy has the arm", told)
	}
	r.handOver(t, l)
	r.led(5, l)
	l.pose.Held, l.pose.Causes = 1, []leader.Cause{leader.OverSeam, 0}
	r.led(5, l)
	l.pose.Held, l.pose.Causes = 0, []leader.Cause{0, 0}
	l.pose.Joints = []float32{60, 60}
	before := r.arm.Goal[0]
	r.led(1, l)
	if d := r.arm.Goal[0] - before; d <= 0 || d > 1.5+1e-3 {
		t.Errorf("the first step of a joint that leads again is %v, want half of a tick's 3", d)
	}
	told := r.told(event.LeaderHeld, event.LeaderLeads)
	want := []event.Event{
		{Code: event.LeaderHeld, A: 2, B: int64(leader.OutsideRange)},
		{Code: event.LeaderHeld, A: 1, B: int64(leader.OverSeam)},
		{Code: event.LeaderLeads, A: 2}, {Code: event.LeaderLeads, A: 1},
	}
	rttest.Equal(t, told, want, "told")
}
