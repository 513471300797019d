package edge

import (
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/uplink"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// usual is a link with the default flags.
func usual() uplink.Config {
	return uplink.Config{
		Limits: uplink.Limits{
			MaxActionAge:   uplink.DefaultMaxActionAge,
			DegradedAfter:  uplink.DefaultDegradedAfter,
			RequestTimeout: uplink.DefaultRequestTimeout,
			MaxOffline:     time.Minute,
		},
		Schedule: chunk.Config{Schedule: "drtc"},
	}
}

// slowAnswer answers the newest request after an inference of 8 s, during which the server answers
// a status query every second. says is the time of the inference in the answer, in ms.
func (r *rig) slowAnswer(says float64) {
	asked := r.session.key
	for range 8 {
		r.step(100)
		r.in.AliveAt.Store(int64(r.Now()))
	}
	r.in.Answers.Back().Body.InferenceMs = says
	r.answer(asked, 6)
}

// Goal: in virtual time, a policy with inferences of 8 s drives the arm within the default limits,
// and the run neither reconnects nor gives up while the server works.
func TestAPolicyOfEightSecondsDrivesTheArm(t *testing.T) {
	r := newRig(t)
	cfg := usual()
	r.patience = cfg.Patience(testHorizon, 100)
	r.core.MaxAge = cfg.MaxActionAge
	r.in.Announce(uplink.Pace{Least: 8 * time.Second, Most: 8 * time.Second})
	r.step(1)
	for range 3 {
		r.slowAnswer(8000)
		r.step(testHorizon + 20)
	}
	if got := r.stats.actions.Load(); got < 2*testHorizon {
		t.Errorf("%d actions ran of three chunks, want most of %d (too old %d, dropped %v)", got, 3*testHorizon,
			r.stats.tooOld.Load(), r.drops())
	}
	if r.run.state == stateDead || r.stats.inState[stateReconnecting].Load() > 0 {
		t.Errorf("the run is %v, %v in RECONNECTING", r.run.state,
			time.Duration(r.stats.inState[stateReconnecting].Load()))
	}
	if r.out.TooSlow.Load() {
		t.Error("the policy counts as too slow for the run")
	}
}

// Goal: if all answers are older than a flag permits, the run ends.
func TestAnswersThatAreAllTooOldEndTheRun(t *testing.T) {
	r := newRig(t)
	cfg := usual()
	cfg.Given.MaxActionAge = true
	r.patience = cfg.Patience(testHorizon, 100)
	r.core.MaxAge = cfg.MaxActionAge
	r.step(1)
	for i := range 3 {
		if r.out.TooSlow.Load() {
			t.Fatalf("given up after %d answers", i)
		}
		r.slowAnswer(8000)
		r.step(20)
	}
	if r.stats.actions.Load() != 0 || !r.out.TooSlow.Load() {
		t.Fatalf("%d actions ran, too slow: %v", r.stats.actions.Load(), r.out.TooSlow.Load())
	}
}

// Goal: a reported inference time is limited by the measured round trip: a report of hours does not
// let old actions run.
func TestAnInferenceTakesNoLongerThanItsRoundTrip(t *testing.T) {
	r := newRig(t)
	cfg := usual()
	r.patience = cfg.Patience(testHorizon, 100)
	r.in.Announce(uplink.Pace{Least: time.Hour, Most: time.Hour})
	r.step(5)
	r.in.Answers.Back().Body.InferenceMs = 3_600_000
	r.answer(1, 6)
	r.step(2)
	if r.chunks() != 1 || r.core.MaxAge != uplink.DefaultMaxActionAge {
		t.Errorf("%d chunks; actions may be %v old after an answer that came within 50 ms, want %v",
			r.chunks(), r.core.MaxAge, uplink.DefaultMaxActionAge)
	}
}

// Goal: if an answer has no or an invalid inference time, its round trip counts as the inference
// time.
func TestAnInferenceOfNoTimeTakesItsRoundTrip(t *testing.T) {
	for _, says := range []float64{0, -1} {
		r := newRig(t)
		cfg := usual()
		r.patience = cfg.Patience(testHorizon, 100)
		r.core.MaxAge = cfg.MaxActionAge
		r.step(1)
		for range 2 {
			r.slowAnswer(says)
			r.step(testHorizon + 20)
		}
		if got := r.stats.actions.Load(); got < testHorizon {
			t.Errorf("a server that says %v ms and takes 8 s: %d actions ran of two chunks, too old %d", says, got,
				r.stats.tooOld.Load())
		}
	}
}

// Goal: if a live server was slow and later has no session for the robot, the lack of a session is the reason for the
// end, not the slow server.
func TestTheTimeOfALivingServerIsNoLack(t *testing.T) {
	r := newRig(t)
	r.in.Announce(uplink.Pace{Least: 20 * time.Second, Most: 20 * time.Second})
	r.step(1)
	for range 12 {
		r.step(100)
		r.in.AliveAt.Store(int64(r.Now()))
	}
	r.in.Lose()
	for n := 0; r.run.state != stateDead && n < 300; n++ {
		r.step(1)
	}
	if got := r.run.gaveUp.Longest(); got != event.LackSession ||
		r.run.gaveUp.Lasted(event.LackAnswers) > 100*time.Millisecond {
		t.Errorf("the run ends for lack %d, answers for %v and a session for %v: want the session", got,
			r.run.gaveUp.Lasted(event.LackAnswers), r.run.gaveUp.Lasted(event.LackSession))
	}
}

// Goal: an answer to a lost session moves the arm but does not make the run Streaming.
func TestAnEarlierSessionsAnswerIsMerged(t *testing.T) {
	r := newRig(t)
	r.step(1)
	r.in.Lose()
	r.step(2)
	r.answer(1, 6)
	r.step(4)
	if r.chunks() != 1 || r.stats.actions.Load() == 0 {
		t.Errorf("%d chunks, %d actions, dropped %v", r.chunks(), r.stats.actions.Load(),
			r.drops())
	}
	rttest.Want(t, r.run.state, stateReconnecting, "without a session the run")
}

// Goal: --max-offline counts only the time in which the server does not answer.
func TestAServerThatLivesIsNotOffline(t *testing.T) {
	r := newRig(t)
	r.step(1)
	for range 5 {
		r.step(150)
		r.in.AliveAt.Store(int64(r.Now()))
	}
	if r.run.state == stateDead {
		t.Fatal("given up while the server answered")
	}
	r.step(201)
	rttest.Want(t, r.run.state, stateDead, "2 s after the server last answered the run")
}
