package edge

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim"
	"github.com/edge-rt/edge-rt/sim/referee"
	"github.com/edge-rt/edge-rt/sim/servosim"
	"github.com/edge-rt/edge-rt/sim/servosim/servosimtest"
	"github.com/edge-rt/edge-rt/stage"
	"github.com/edge-rt/edge-rt/systemd/notify"
	"github.com/edge-rt/edge-rt/wire"
)

const (
	swayFPS    = 15 // slow enough for a busy machine
	swayDegree = 4096. / 360
)

// swaying is a server whose policy moves all joints to and fro by 12 degrees, with a period of four
// seconds. It remembers the first observation of each episode.
type swaying struct {
	*stage.FakeServer

	mu      sync.Mutex
	episode uint32 // the newest
	prefix  int    // prefix rows in the first observation
}

func newSwaying(t *testing.T) *swaying {
	t.Helper()
	fake := rttest.Must(stage.OpenFakeServer(t.Context(), stage.FakeConfig{
		Model:   "demo/m",
		Service: "demo",
		Robot:   "arm",
		Rows:    50,
	}))(t)
	t.Cleanup(fake.Close)
	s := &swaying{FakeServer: fake}
	s.SetAck(func(ack *wire.SessionAck) { ack.Nonce, ack.TrainedFPS, ack.RTCExecutionHorizon = 41, swayFPS, 24 })
	s.SetAnswer(s.observe)
	return s
}

func (s *swaying) observe(sample wire.Sample) {
	h, o, ok := stage.ParseRequest(sample)
	if !ok {
		return
	}
	s.mu.Lock()
	if s.episode != h.EpisodeID {
		s.episode, s.prefix = h.EpisodeID, o.PrefixRobot.Rows
	}
	s.mu.Unlock()
	now := float64(time.Now().UnixNano()) / 1e9
	m := s.Chunk(o.State, func(row []float32, i int) {
		for j := range 6 {
			row[j] = float32(12 * math.Sin(math.Pi/2*(now+float64(i)/swayFPS)))
		}
		row[5] += 50
	})
	// in a goroutine, because a callback of the server must not call the server
	go s.Reply(h, &wire.ActionChunk{ChunkModel: m, ChunkRobot: m, Nonce: 41})
}

// startOf returns the newest episode, and the number of prefix rows in its first request.
func (s *swaying) startOf() (episode uint32, rows int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.episode, s.prefix
}

// judged is one simulated arm with its referee.
type judged struct {
	bus   *servosim.Bus
	place device.Place
	rules referee.Config

	mu    sync.Mutex
	judge *referee.Referee
	seen  func(*servosim.Event) // called with the bus's lock held; may be nil
	steps []step
}

// step is the travel of one goal, in counts. The gripper's goals are left out, since its units differ.
type step struct {
	at     rt.Instant
	counts int
}

func newJudged(t *testing.T, name string, pace float64, period time.Duration, plant servosim.Plant) *judged {
	t.Helper()
	rttest.RealTime(t) // simulated motors answer within real time-outs
	r, err := robot.ByName(name)
	rttest.Do(t, err)
	dir := t.TempDir()
	j := &judged{place: device.Place{Bus: filepath.Join(dir, "port"), Robot: r,
		Calibration: filepath.Join(dir, "calibration.json")}}
	cfg := servosim.Config{Plant: plant, Link: j.place.Bus, Clock: rt.KernelClock(), Weightless: true, Watch: j.watch}
	j.rules = referee.Config{Period: period}
	c := device.SimCalibration(r)
	for _, m := range r.Motors {
		cfg.Servos = append(cfg.Servos, servosim.Servo{ID: m.ID, Model: m.Model.Name})
		unit, k := swayDegree, c[m.Name]
		if m.Norm == robot.Range0100 {
			unit = 20
		}
		j.rules.Joints = append(j.rules.Joints, referee.Joint{
			ID:       m.ID,
			Name:     m.Name,
			Min:      k.RangeMin,
			Max:      k.RangeMax,
			Velocity: pace * m.MaxVelocity * unit,
			Degree:   swayDegree,
		})
	}
	j.judge = referee.New(j.rules)
	rttest.Do(t, c.Save(j.place.Calibration))
	j.bus = servosimtest.Open(t, cfg)
	return j
}

func (j *judged) watch(e *servosim.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.judge.Watch(e)
	if j.seen != nil {
		j.seen(e)
	}
	if e.Data != nil && e.After.Aim != e.Before.Aim && e.ID != 6 && len(j.steps) < cap(j.steps) {
		j.steps = append(j.steps, step{e.At, e.After.Aim - e.Before.Aim})
	}
}

func (j *judged) stiff() bool { return slices.Contains(j.bus.TorqueEnabled(), true) }

// realRun is a real run on two simulated arms.
type realRun struct {
	*Edge
	t              *testing.T
	server         *swaying
	follower, lead *judged
	hand           *sim.Hand
	log            *rttest.Output
	stop           context.CancelFunc
	done           chan error
	summary        *Summary
}

// newRealRun starts a run whose policy drives the follower; change may be nil.
func newRealRun(t *testing.T, change func(*Config)) *realRun {
	t.Helper()
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	period := time.Second / swayFPS
	r := &realRun{
		t:      t,
		server: newSwaying(t),
		hand:   sim.NewHand(6, 2048),
		log:    new(rttest.Output),
		done:   make(chan error, 1),
	}
	r.follower = newJudged(t, "so101", 1, period, nil)
	r.lead = newJudged(t, "so101_leader", 0.12, 10*time.Millisecond, r.hand)
	r.follower.steps = make([]step, 0, 1<<18)
	cfg := Config{
		FPS:                     swayFPS,
		Bus:                     r.follower.place.Bus,
		Calibration:             r.follower.place.Calibration,
		Robot:                   "so101",
		ID:                      "arm",
		Connect:                 []string{r.server.Endpoint},
		Leader:                  device.Place{Bus: r.lead.place.Bus, Calibration: r.lead.place.Calibration},
		Schedule:                chunk.Config{Schedule: "drtc", Epsilon: chunk.DefaultEpsilon},
		CPU:                     rt.UnpinnedCPU,
		JPEGQuality:             90,
		OnExit:                  "off",
		Fallback:                "hold",
		MaxActionAge:            3 * time.Second,
		DegradedAfter:           time.Second,
		RequestTimeout:          5 * time.Second,
		ReconnectInitialBackoff: 100 * time.Millisecond,
		ReconnectMaxBackoff:     time.Second,
		MaxOffline:              20 * time.Second,
		Log:                     slog.New(slog.NewTextHandler(r.log, nil)),
	}
	if change != nil {
		change(&cfg)
	}
	r.Edge = rttest.Must(Open(t.Context(), cfg))(t)
	r.lead.mu.Lock() // the leader's read interval depends on its bus
	r.lead.rules.Period = r.leaders[0].Every()
	r.lead.judge = referee.New(r.lead.rules)
	r.lead.mu.Unlock()
	r.follower.judge.FirstChunk(0)
	r.lead.judge.FirstChunk(0)
	ctx, stop := context.WithCancel(t.Context())
	r.stop = stop
	go func() {
		var err error
		r.summary, err = r.Run(ctx)
		r.done <- err
	}()
	rttest.Eventually(t, "the policy drives", func() bool { return r.control.stats.actions.Load() > 10 })
	return r
}

// say sends an operator's command, which must succeed.
func (r *realRun) say(word string) {
	r.t.Helper()
	if reply := r.commands.Command(r.t.Context(), word); !reply.OK {
		r.t.Fatalf("ctl %s: %s", word, reply.Error)
	}
}

func (r *realRun) until(p mode) {
	r.t.Helper()
	rttest.Eventually(r.t, fmt.Sprintf("%v (the log says %s)", p, r.log), func() bool {
		return r.control.holder() == p
	})
}

// takeOver hands the follower to the person.
func (r *realRun) takeOver() {
	r.t.Helper()
	r.lead.judge.Consent(r.clock.Now())
	var reply operator.Reply
	rttest.Eventually(r.t, "ctl correct", func() bool { // a leader may be late on a busy machine
		reply = r.commands.Command(r.t.Context(), "correct")
		return reply.OK || !strings.Contains(reply.Error, "does not answer")
	})
	if !reply.OK {
		r.t.Fatalf("ctl correct: %s", reply.Error)
	}
	r.until(correcting)
}

// end ends the run and checks for a clean exit, two limp arms, and no complaint by the referees.
func (r *realRun) end(code exit.Code) {
	r.t.Helper()
	r.stop()
	r.ended(code)
}

func (r *realRun) ended(code exit.Code) {
	r.t.Helper()
	rttest.Ends(r.t, <-r.done, code)
	for name, arm := range map[string]*judged{"follower": r.follower, "leader": r.lead} {
		if arm.stiff() {
			r.t.Errorf("the %s's torque is %v at the end", name, arm.bus.TorqueEnabled())
		}
		arm.judge.Ended(r.clock.Now())
		if v := arm.judge.Verdict(); len(v.Kept) > 0 {
			r.t.Errorf("the %s's referee saw %d goals and says %v", name, v.Goals, v.Kept[:min(4, len(v.Kept))])
		}
	}
}

// Goal: in four take-overs and returns, or in EDGERT_TAKEOVERS of them, while both arms move, neither arm
// jumps, the leader is limp whenever a person leads, and the first request after each return has no
// prefix.
func TestTakeoverThereAndBack(t *testing.T) {
	rttest.RealTime(t)
	rounds := rttest.Must(strconv.Atoi(cmp.Or(os.Getenv("EDGERT_TAKEOVERS"), "4")))(t)
	r := newRealRun(t, nil)
	stiff := 0
	r.lead.mu.Lock()
	r.lead.seen = func(e *servosim.Event) {
		if e.After.Torque && r.control.holder() == correcting {
			stiff++
		}
	}
	r.lead.mu.Unlock()
	var handed []rt.Instant
	for i := range rounds {
		r.takeOver()
		handed = append(handed, r.clock.Now())
		if r.lead.stiff() {
			t.Errorf("round %d: the leader's torque is %v while a person leads", i, r.lead.bus.TorqueEnabled())
		}
		to := 2048 + 150 - 300*(i%2)
		r.hand.Move(r.clock.Now(), to, 60*swayDegree)
		asked := r.control.stats.requests.Load()
		rttest.Eventually(t, "the follower goes where the leader goes", func() bool {
			for _, s := range r.follower.bus.States()[:5] {
				if d := int(s.Place) - to; d < -8 || d > 8 {
					return false
				}
			}
			return true
		})
		rttest.Want(t, r.control.stats.requests.Load()-asked, 0, "round %d: requests while a person leads", i)
		before, _ := r.server.startOf()
		actions := r.control.stats.actions.Load()
		r.say("resume")
		handed = append(handed, r.clock.Now())
		rttest.Eventually(t, "the policy drives again", func() bool {
			return r.control.stats.actions.Load() > actions+5
		})
		if episode, rows := r.server.startOf(); episode <= before || rows != 0 {
			t.Errorf("round %d: episode %d after %d, its first request with %d rows of prefix, want a new one with "+
				"none", i, episode, before, rows)
		}
	}
	r.end(exit.Clean)
	if stiff > 0 {
		t.Errorf("the leader was under torque %d times while a person led", stiff)
	}
	const slow = 60 // counts in 1/15 s at the slew's speed, 0.3 of 250 degrees per second
	for _, s := range r.follower.steps {
		for _, at := range handed {
			if since := s.at.Sub(at); since > 0 && since < 500*time.Millisecond &&
				(s.counts > slow || s.counts < -slow) {
				t.Errorf("%v after a change of hands a goal goes %d counts, want at most %d", since, s.counts, slow)
			}
		}
	}
	if v := r.lead.judge.Verdict(); v.Goals == 0 {
		t.Error("the leader was never driven")
	}
}

// Goal: a leader that is unplugged while it leads makes the follower hold until the leader is back;
// the arm may be given back meanwhile.
func TestLeaderIsUnpluggedWhileItLeads(t *testing.T) {
	rttest.RealTime(t)
	r := newRealRun(t, nil)
	r.takeOver()
	r.lead.bus.Unplug()
	rttest.Eventually(t, "it is said", func() bool {
		return strings.Contains(r.log.String(), "the leader does not answer")
	})
	var still []servosim.State
	rttest.Eventually(t, "the follower stands", func() bool {
		before := still
		still = r.follower.bus.States()
		time.Sleep(100 * time.Millisecond) // some ticks
		return before != nil && before[0].Place == still[0].Place
	})
	r.hand.Move(r.clock.Now(), 2048+300, 1e5)
	r.lead.bus.Replug()
	rttest.Eventually(t, "the follower goes on", func() bool { return r.follower.bus.States()[0].Place > 2048+290 })
	r.lead.bus.Unplug()
	rttest.Eventually(t, "it is away", func() bool {
		return r.control.stats.leaderAt.Load() < int64(r.clock.Now().Add(-time.Second))
	})
	actions := r.control.stats.actions.Load()
	r.say("resume")
	rttest.Eventually(t, "the policy drives", func() bool { return r.control.stats.actions.Load() > actions+5 })
	if reply := r.commands.Command(t.Context(), "correct"); reply.OK ||
		!strings.Contains(reply.Error, "the leader does not answer") || reply.Phase != "autonomous" {
		t.Errorf("ctl correct without a leader: %+v", reply)
	}
	r.end(exit.Clean)
}

// Goal: two simultaneous take-overs count as one. After a pause in the correction and a new take-over, an end during
// the alignment is clean.
func TestTakeoverByTwoAndItsEnd(t *testing.T) {
	rttest.RealTime(t)
	r := newRealRun(t, func(c *Config) { c.OnExit = "park" })
	r.lead.judge.Consent(r.clock.Now())
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if reply := r.commands.Command(t.Context(), "correct"); !reply.OK || reply.Phase == "autonomous" {
				t.Errorf("ctl correct: %+v", reply)
			}
		})
	}
	both.Wait()
	rttest.Want(t, r.control.stats.takeovers.Load(), 1, "take-overs")
	r.until(correcting)
	r.say("pause")
	r.until(paused)
	r.hand.Move(r.clock.Now(), 2048+900, 1e5)
	rttest.Eventually(t, "the leader is elsewhere", func() bool { return r.lead.bus.States()[0].Place > 2048+890 })
	r.lead.judge.Consent(r.clock.Now())
	r.say("correct")
	rttest.Eventually(t, "the leader is driven", r.lead.stiff)
	r.end(exit.Clean)
}

// leaderless returns an edge that has opened nothing yet.
func leaderless(t *testing.T) *Edge {
	t.Helper()
	e := waitingEdge(new(bytes.Buffer))
	e.notifier = rttest.Must(notify.Open())(t)
	return e
}

// Goal: the start switches off torque that a killed run has left on, and then writes the motors' settings.
func TestStiffLeaderAtTheStart(t *testing.T) {
	rttest.RealTime(t)
	lead := newJudged(t, "so101_leader", 1, 10*time.Millisecond, sim.NewHand(6, 2048))
	cal := rttest.Must(lead.place.Load())(t)
	arm := rttest.Must(servo.OpenArm(servo.ArmConfig{Path: lead.place.Bus, Robot: lead.place.Robot,
		Calibration: cal}))(t)
	for n := 0; ; n++ {
		arm.Read(make([]float32, 6), rt.KernelClock().Now().Add(10*time.Millisecond))
		if armed, err := arm.ArmStep(rt.KernelClock().Now().Add(20*time.Millisecond), arm.Joints()); armed {
			break
		} else if err != nil || n > 500 {
			t.Fatal(n, err)
		}
	}
	arm.Close()
	if !lead.stiff() {
		t.Fatal("it is not stiff")
	}
	so101 := rttest.Must(robot.ByName("so101"))(t)
	e := leaderless(t)
	e.robot, e.cfg.Leader = so101, device.Place{Bus: lead.place.Bus, Calibration: lead.place.Calibration}
	rttest.Do(t, e.openLeader(t.Context()))
	defer e.release()
	if lead.stiff() {
		t.Errorf("torque %v, want it let go", lead.bus.TorqueEnabled())
	}
}

// Goal: a run that ends before it begins leaves no trigger of a leader under torque.
func TestATriggerIsReleasedBeforeTheRun(t *testing.T) {
	lead := newJudged(t, "koch_leader", 1, 10*time.Millisecond, sim.NewHand(6, 2048))
	e := leaderless(t)
	e.robot = rttest.Must(robot.ByName("koch"))(t)
	e.cfg.Leader = device.Place{Bus: lead.place.Bus, Calibration: lead.place.Calibration}
	rttest.Do(t, e.openLeader(t.Context()))
	if !lead.stiff() {
		t.Error("the trigger is limp in an open leader")
	}
	if e.release(); lead.stiff() {
		t.Errorf("torque %v at the end", lead.bus.TorqueEnabled())
	}
}

// Goal: a leader that does not fit, or cannot move to the follower, is refused before anything
// moves.
func TestLeadersThatAreRefused(t *testing.T) {
	so101 := rttest.Must(robot.ByName("so101"))(t)
	for _, tt := range []struct {
		name, robot, takeover string
		code                  exit.Code
		says                  string
	}{
		{"no such arm", "r2d2", "", exit.Usage, "r2d2"},
		{"a push at an arm that cannot come", "so101", takeoverPush, exit.Usage, "actuated: true"},
	} {
		e := leaderless(t)
		e.robot = so101
		e.cfg.Leader = device.Place{Bus: "/dev/none", Calibration: "/none.json"}
		e.cfg.LeaderRobot = tt.robot
		e.cfg.Takeover = tt.takeover
		rttest.Ends(t, e.openLeader(t.Context()), tt.code, tt.says)
	}
}
