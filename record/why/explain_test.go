package why

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
)

// story builds a Log tick by tick.
type story struct {
	*Log
	v       record.Visitor
	now     rt.Instant
	seq     uint64
	merged  uint64 // request whose actions run
	step    int64
	session *record.Session
	episode uint32
	place   float32
}

const tickTime = second / 60

func newStory() *story {
	s := &story{Log: newLog(), now: 100 * second, episode: 1}
	s.v = s.visitor()
	s.open("s-1", 1, "box-1")
	return s
}

func (s *story) open(id string, epoch uint32, server string) {
	s.session = &record.Session{ID: id, Epoch: epoch, Service: "@lerobot/a/b/c", ServerID: server}
	_ = s.v.Session(s.session)
}

// ticks adds n ticks, edited by changes. Without a change each of them runs an action.
func (s *story) ticks(n int, changes ...func(*record.Tick)) *story {
	for range n {
		s.now += tickTime
		t := record.Tick{
			At:       s.now,
			RunState: 2,
			Queue:    20,
			Seq:      s.merged,
			Epoch:    1,
			Episode:  s.episode,
			Delay:    3,
			Dropped:  3,
		}
		s.place += 0.1
		t.Action.Set([]float32{s.place, 0})
		for _, change := range changes {
			change(&t)
		}
		if t.Starved || t.Paused {
			t.Action.N = 0
		}
		if t.Action.N > 0 {
			s.step++
		}
		t.Step = s.step
		_ = s.v.Tick(&t)
	}
	return s
}

func starved(t *record.Tick)       { t.Starved, t.Queue = true, 0 }
func silent(t *record.Tick)        { t.Starved, t.BusSilent, t.Stale, t.Frozen = true, true, 3, 3 }
func away(t *record.Tick)          { starved(t); t.NoSession = true }
func paused(t *record.Tick)        { t.Paused = true }
func idle(t *record.Tick)          { t.Action.N = 0 }
func tooOld(t *record.Tick)        { t.Starved, t.TooOld = true, true }
func blind(t *record.Tick)         { t.Action.N, t.NoPicture = 0, true }
func frozen(t *record.Tick)        { t.Frozen = 2 }
func starvedFrozen(t *record.Tick) { starved(t); frozen(t) }

func replies(retried, spoilt uint32) func(*record.Tick) {
	return func(t *record.Tick) { t.Retried, t.Spoilt = retried, spoilt }
}

func inference(took rt.Instant) func(*record.Chunk) {
	return func(c *record.Chunk) { c.Inference = int64(took) }
}

func queued(wait rt.Instant) func(*record.Chunk) {
	return func(c *record.Chunk) { c.QueueWait = int64(wait) }
}

func outcome(word string) func(*record.Chunk) { return func(c *record.Chunk) { c.Outcome = word } }

// ask sends a request when this many ms of actions are left.
func (s *story) ask(runway int64) uint64 {
	s.request(func(q *record.Request) {
		q.Step, q.Delay = s.step+1, 3
		q.Runway = runway * int64(millisecond)
	})
	_ = s.v.Sent(&record.Sent{
		At:       s.now + 2*millisecond,
		Seq:      s.seq,
		Epoch:    s.session.Epoch,
		Observed: s.now - 20*millisecond,
		Bytes:    40_000,
		Outcome:  "sent",
	})
	return s.seq
}

// answer delivers a request's chunk now, edited by changes.
func (s *story) answer(seq uint64, changes ...func(*record.Chunk)) *story {
	q := s.bySeq[seq]
	c := record.Chunk{
		At:        s.now + millisecond,
		Seq:       seq,
		Epoch:     q.Epoch,
		Episode:   q.Episode,
		Outcome:   "joined",
		Step:      q.Step,
		Rows:      50,
		Dropped:   3,
		RTT:       int64(s.now - q.At),
		QueueWait: int64(3 * millisecond),
		Inference: int64(20 * millisecond),
		Session:   s.session,
	}
	for _, change := range changes {
		change(&c)
	}
	if c.Outcome == "joined" {
		s.merged = seq
	}
	_ = s.v.Chunk(&c)
	return s
}

func (s *story) event(code event.Code, a, b int64, text string) *story {
	m := record.Event{At: s.now, Code: uint32(code), A: a, B: b}
	m.Text.Set(text)
	_ = s.v.Event(&m)
	return s
}

// lost, operated, ended and disconnected add an event.
func (s *story) lost(why event.Loss, text string) *story {
	return s.event(event.SessionLost, int64(why), 0, text)
}

func (s *story) operated(word event.Word, text string) *story {
	return s.event(event.Operated, int64(word), 0, text)
}

func (s *story) ended(code int64, lack event.Lack, text string) *story {
	return s.event(event.Ended, code, int64(lack), text)
}

func (s *story) disconnected() *story {
	return s.event(event.LinkDown, int64(event.WhyClosed), 0, "no connection: the peer ended it")
}

// dry adds the ticks that use up 200 ms of actions, and n ticks for which no action is left.
func (s *story) dry(n int) *story { return s.ticks(12).ticks(n, starved) }

// revive adds a request on a tick without actions, its answer, and n ticks that run actions of the answer.
func (s *story) revive(n int) *story {
	seq := s.ask(0)
	return s.ticks(3, starved).answer(seq).ticks(n)
}

// lose loses a request or its answer, so that the arm starves until the next answer.
func (s *story) lose() {
	s.ask(200)
	s.dry(4)
	s.revive(10)
}

// request sends a request with 200 ms of actions left, edited by change, without its observation.
func (s *story) request(change func(*record.Request)) {
	s.seq++
	session := *s.session // as in messages from a file: a copy for each message
	q := &record.Request{
		At:      s.now,
		Seq:     s.seq,
		Epoch:   s.session.Epoch,
		Episode: s.episode,
		Rows:    10,
		Runway:  int64(200 * millisecond),
		Session: &session,
	}
	change(q)
	_ = s.v.Request(q)
}

// cut adds the beginning or the end of an episode of a dataset.
func (s *story) cut(number uint32, outcome string) *story {
	_ = s.v.Episode(&record.Episode{At: s.now, Number: number, Ended: outcome != "", Outcome: outcome})
	return s
}

// well adds a second without a fault.
func (s *story) well() *story {
	for range 3 {
		seq := s.ask(500)
		s.ticks(3).answer(seq).ticks(17)
	}
	return s
}

var storyRun = map[string]string{"id": "arm", "fps": "60", "interpolation_multiplier": "1", "horizon": "50",
	"schedule": "drtc", "max_action_age": "3s", "joints": "shoulder_pan.pos,gripper.pos",
	"units": "degrees,range_0_100"}

// explain ends the record and returns the findings.
func (s *story) explain(a *Audit) []Finding {
	s.finish(record.Info{Run: storyRun, Torn: s.Torn, Repaired: s.Repaired})
	return Explain(s.Log, a)
}

// expected is an expected finding. words are a part of its evidence.
type expected struct {
	kind  Kind
	cause Cause
	words string
	also  []Cause
}

// testCase is a record and the complete list of its findings.
type testCase struct {
	name  string
	tell  func(*story)
	audit string
	want  []expected
}

func tale(name string, tell func(*story), want ...expected) testCase {
	return testCase{name: name, tell: tell, want: want}
}

func expect(kind Kind, cause Cause, words string, also ...Cause) expected {
	return expected{kind, cause, words, also}
}

// cases has at least one case for each cause; TestEveryCauseIsFound checks this.
var cases = []testCase{
	tale("nothing", func(s *story) { s.well() }),
	tale("a request answered late, with actions left", func(s *story) {
		seq := s.ask(600)
		s.ticks(30).answer(seq).ticks(10)
	}),
	tale("one lost, asked again in time", func(s *story) {
		s.ask(500)
		s.ticks(8)
		seq := s.ask(300)
		s.ticks(3).answer(seq).ticks(10)
	}),
	tale("a message got lost", (*story).lose, expect(Stutter, Lost, "request 4 asked with 200 ms")),
	{
		name:  "the observation got lost",
		tell:  (*story).lose,
		audit: auditOf(1, 2, 3, 5),
		want:  []expected{expect(Stutter, LostThere, "no line of request 4")},
	},
	{
		name:  "the answer got lost",
		tell:  (*story).lose,
		audit: auditOf(1, 2, 3, 4, 5),
		want:  []expected{expect(Stutter, LostBack, "waited 2 ms")},
	},
	{
		name:  "the server's link did not take the answer",
		tell:  (*story).lose,
		audit: strings.ReplaceAll(auditOf(1, 2, 3, 4, 5), `4,"queue_wait_ms":2,"outcome":"ok"`, `4,"outcome":"unsent"`),
		want:  []expected{expect(Stutter, LostBack, "unsent")},
	},
	{
		name: "the server had an error",
		tell: func(s *story) {
			s.ask(200)
			s.dry(4)
		},
		audit: strings.ReplaceAll(auditOf(1, 2, 3, 4), `4,"queue_wait_ms":2,"outcome":"ok"`,
			`4,"outcome":"inference_failed","why":"out of memory"`),
		want: []expected{expect(Stutter, ServerFailed, "out of memory")},
	},
	tale("the server refuses an observation", func(s *story) {
		seq := s.ask(200)
		s.ticks(2).event(event.Notice, int64(event.NoticeBadObservation), int64(seq),
			"bad_observation: state: got 5, want 6").dry(4)
	}, expect(Stutter, ServerFailed, "got 5, want 6")),
	tale("passed over at the server", func(s *story) {
		s.ask(200)
		s.ticks(6)
		seq := s.ask(100)
		s.ticks(6).ticks(4, starved).answer(seq, func(c *record.Chunk) { c.Superseded = 1 }).ticks(10)
	}, expect(Stutter, Superseded, "passed over 1")),
	tale("nothing comes back", func(s *story) {
		s.ask(300)
		for range 8 {
			s.ticks(6)
			s.ask(100)
		}
		s.ticks(60, starved)
	}, expect(Stutter, LinkSilent, "no answer to it")),
	tale("nothing comes back, and the session is given up", func(s *story) {
		s.ask(200)
		s.dry(40).lost(event.LossUnanswered, "session lost: no chunk for 1.0 s").ticks(10, starved)
	}, expect(Stutter, LinkSilent, "session lost")),
	tale("the connection breaks, same server", func(s *story) {
		s.ask(200)
		s.disconnected().ticks(12).lost(event.LossToken, "session lost: token").ticks(30, starved)
		s.open("s-2", 2, "box-1")
		s.revive(9)
	}, expect(Stutter, LinkLost, "session 2 open at box-1")),
	tale("the connection breaks, another server", func(s *story) {
		s.ask(200)
		s.disconnected().ticks(12).lost(event.LossToken, "session lost: token").ticks(30, starved)
		s.open("s-2", 2, "box-2")
		s.revive(9)
	}, expect(Stutter, ServerGone, "box-1 was there, box-2 is now")),
	tale("the token goes and the connection stands", func(s *story) {
		s.ask(200)
		s.ticks(12).lost(event.LossToken, "session lost: token").ticks(30, starved)
	}, expect(Stutter, ServerGone, "")),
	tale("a server drains", func(s *story) {
		s.ask(200)
		s.event(event.Notice, int64(event.NoticeDraining), 0, "draining: open elsewhere").lost(event.LossClosed,
			"session lost: closed").dry(30)
	}, expect(Stutter, ServerDraining, "draining")),
	tale("a server has no room", func(s *story) {
		s.ask(200)
		s.lost(event.LossToken, "session lost: token").event(event.SessionWaits,
			int64(event.WaitFull), 0, "no session: server full").dry(30)
	}, expect(Stutter, ServerFull, "server full")),
	tale("another robot of this name", func(s *story) {
		s.ask(200)
		s.lost(event.LossToken, "session lost: token").event(event.SessionWaits,
			int64(event.WaitTaken), 0, "no session: another robot on host x").dry(30)
	}, expect(Stutter, SameID, "another robot")),
	tale("the session is closed", func(s *story) {
		s.ask(200)
		s.lost(event.LossClosed, "session lost: the server closed it").dry(30)
	}, expect(Stutter, SessionClosed, "")),
	tale("another model begins", func(s *story) {
		s.ask(200)
		s.lost(event.LossToken, "session lost: token").ticks(12).event(event.ModelChanged, 0, 0,
			"the run goes on with another model").ticks(30, starved)
	}, expect(Stutter, ModelChange, "another model")),
	tale("a contract refused ends the run", func(s *story) {
		s.lost(event.LossToken, "session lost: token").event(event.SessionRefused, 0, 0,
			"refused: other weights").ticks(5).ended(3, event.LackNone, "code 3: other weights")
	}, expect(Exit, ServerRefuses, "other weights")),
	tale("the policy takes long", slowly(inference(400*millisecond)), expect(Stutter, ServerSlow, "computed 400 ms")),
	tale("a policy that takes longer than its chunks last", func(s *story) {
		for range 3 {
			seq := s.ask(0)
			for range 8 { // these requests replace each other at the server
				s.ticks(30, starved).ask(0)
			}
			s.answer(seq, inference(4*second)).ticks(47)
		}
	}, expect(Stutter, SlowPolicy, "usually takes 4.00 s"), expect(Stutter, SlowPolicy, ""),
		expect(Stutter, SlowPolicy, "")),
	tale("the line is cut for longer than a slow policy takes", func(s *story) {
		for range 4 {
			seq := s.ask(0)
			s.ticks(70, starved).answer(seq, inference(second)).ticks(47)
		}
		s.ask(300)
		s.ticks(18)
		for range 20 {
			s.ticks(30, starved).ask(0)
		}
	}, expect(Stutter, SlowPolicy, ""), expect(Stutter, SlowPolicy, ""), expect(Stutter, SlowPolicy, ""),
		expect(Stutter, SlowPolicy, ""), expect(Stutter, LinkSilent, "")),
	tale("a slow policy that leaves a few actions of each chunk", func(s *story) {
		for range 9 { // a single stretch, far longer than the time of one answer
			seq := s.ask(0)
			for range 3 {
				s.ticks(35, starved).ask(0)
			}
			s.answer(seq, inference(7*second/4)).ticks(5)
		}
	}, expect(Stutter, SlowPolicy, "usually takes 1.75 s")),
	tale("a slow policy whose actions are all too old", func(s *story) {
		for range 3 {
			seq := s.ask(0)
			s.ticks(180, starved).answer(seq, inference(49*second/10)).ticks(1, tooOld)
		}
	}, expect(Stutter, SlowPolicy, "actions may be 3.00 s old (--max-action-age)")),
	tale("sessions that are given up while the policy computes", func(s *story) {
		for i := range uint32(3) {
			seq := s.ask(0)
			s.ticks(300, starved).lost(event.LossUnanswered, "session lost: no chunk for 5.0 s")
			s.open("s-2", i+2, "box-1")
			s.ticks(180, starved).answer(seq, func(c *record.Chunk) { c.Outcome, c.Inference = "epoch", 0 })
		}
	}, expect(Stutter, SlowPolicy, "no chunk for 5.0 s")),
	tale("a slow policy that no stutter shows", func(s *story) {
		s.event(event.SlowPolicy, 0, 0, "--degraded-after 100ms is shorter than a chunk takes").well()
	}, expect(Warning, SlowPolicy, "--degraded-after")),
	tale("a limit that lets nothing run", func(s *story) {
		s.ticks(5).ended(3, event.LackNone, "code 3: no action could ever run: this policy takes at least 8.0 s")
	}, expect(Exit, SlowPolicy, "")),
	tale("a queue at the server", slowly(queued(400*millisecond)), expect(Stutter, ServerQueue, "waited 400 ms")),
	tale("a slow network", slowly(), expect(Stutter, NetworkSlow, "")),
	tale("a slow network, and the queue longer than usual too", slowly(queued(100*millisecond)),
		expect(Stutter, NetworkSlow, "")),
	tale("a slow network most of the time, and a policy a little slower than usual", func(s *story) {
		slowly(inference(30 * millisecond))(s)
		for range 8 {
			slowly()(s)
		}
	}, expect(Stutter, NetworkSlow, "")),
	tale("so late that little is left", func(s *story) {
		seq := s.ask(500)
		s.ticks(29).answer(seq, func(c *record.Chunk) { c.Dropped = 46 })
		next := s.ask(60)
		s.ticks(4).ticks(2, starved).answer(next).ticks(9)
	}, expect(Stutter, NetworkSlow, "46 of its 50 actions were past")),
	tale("a slow sender", func(s *story) {
		s.request(func(*record.Request) {})
		s.dry(12)
		_ = s.v.Sent(&record.Sent{At: s.now - 50*millisecond, Seq: s.seq, Epoch: 1, Outcome: "sent"})
		s.answer(s.seq).ticks(10)
	}, expect(Stutter, SenderSlow, "")),
	tale("it did not leave", func(s *story) {
		s.request(func(*record.Request) {})
		_ = s.v.Sent(&record.Sent{At: s.now, Seq: s.seq, Epoch: 1, Outcome: "error"})
		s.dry(12)
	}, expect(Stutter, NotSent, "did not leave: error")),
	tale("answers that are no numbers", slowly(outcome("not_finite")), expect(Stutter, BadChunk, "not_finite")),
	tale("answers that cannot be read, and the session is given up", func(s *story) {
		slowly(outcome("body"))(s)
		s.lost(event.LossUnanswered, "session lost: no chunk").ticks(5, starved)
	}, expect(Stutter, BadChunk, "", LinkSilent)),
	tale("a schedule that waits", func(s *story) {
		s.ticks(30)
		seq := s.ask(0)
		s.ticks(6, starved).answer(seq).ticks(10)
	}, expect(Stutter, Schedule, "")),
	tale("too old", func(s *story) {
		s.ticks(9, tooOld)
	}, expect(Stale, ActionTooOld, "--max-action-age 3s")),
	tale("too old for an old picture", func(s *story) {
		seq := s.ask(500)
		s.bySeq[seq].sent.Observed = s.now - 2*second
		s.ticks(3).answer(seq).ticks(10).ticks(9, tooOld)
	}, expect(Stale, CameraSilent, "2.00 s old")),
	tale("no picture since it woke", func(s *story) {
		s.ticks(30).ticks(9, func(t *record.Tick) { starved(t); t.NoPicture = true })
	}, expect(Stutter, NoPicture, "")),
	tale("a camera that the arm does not miss yet", func(s *story) {
		s.event(event.CameraSilent, 0, 0, "camera top gives no usable picture").well().event(event.CameraBack, 0, 0,
			"").well()
	}, expect(Warning, CameraSilent, "camera top")),
	tale("stray bytes", func(s *story) {
		s.event(event.CameraSpoilt, 0, 0, "camera top: stray bytes").well()
	}, expect(Warning, CameraSpoilt, "")),
	tale("a new episode", func(s *story) {
		s.episode++
		s.request(func(q *record.Request) { q.Start, q.Runway = true, 0 })
		s.ticks(5, starved).operated(event.WordReset, "reset").answer(s.seq).ticks(10)
	}, expect(Stutter, NewEpisode, "an operator: reset")),
	tale("paused", func(s *story) {
		s.operated(event.WordPause, "pause").ticks(60, paused).operated(event.WordResume, "resume").ticks(3,
			starved).well()
	}, expect(Hold, Paused, "an operator: pause"), expect(Stutter, Paused, "")),
	tale("between two episodes", func(s *story) {
		s.cut(1, "").ticks(60).cut(1, record.Success).ticks(60, paused).cut(2, "").ticks(3, starved).well()
	}, expect(Hold, Between, "episode 1 of the data set ended (success)"), expect(Stutter, Between, "")),
	tale("paused by a person between two episodes", func(s *story) {
		s.cut(1, "").ticks(60).cut(1, record.Success).operated(event.WordPause, "pause").ticks(60, paused).cut(2,
			"").well()
	}, expect(Hold, Paused, "")),
	tale("paused within an episode", func(s *story) {
		s.cut(1, "").ticks(60).ticks(60, paused).well().cut(1, record.Success)
	}, expect(Hold, Paused, "not on this record")),
	tale("a leader that is silent", func(s *story) {
		s.event(event.LeaderSilent, 0, 0, "the leader does not answer").ticks(30, idle).event(event.LeaderBack, 0, 0,
			"the leader answers").well()
	}, expect(Hold, LeaderSilent, "")),
	tale("a leader that is silent for long", func(s *story) {
		s.event(event.LeaderSilent, 0, 0, "the leader does not answer").ticks(300, idle).event(event.LeaderBack, 0, 0,
			"the leader answers").well()
	}, expect(Hold, LeaderSilent, "")),
	tale("a joint of the leader that does not lead", func(s *story) {
		s.event(event.LeaderHeld, 4, 2, "a joint of the leader does not lead: over its seam").ticks(20).
			event(event.LeaderHeld, 4, 1, "a joint of the leader does not lead: outside").ticks(40).event(
			event.LeaderLeads, 4, 0, "leads again").well().
			event(event.LeaderHeld, 2, 3, "a joint of the leader does not lead: too far").ticks(60).event(
			event.PhaseChanged, 3, 0, "who has the arm").well()
	}, expect(Hold, LeaderJoint, "over its seam"), expect(Hold, LeaderJoint, "too far")),
	tale("nobody has the arm", func(s *story) {
		s.event(event.PhaseChanged, 0, 1, "who has the arm").ticks(300, idle).well()
	}, expect(Hold, HandOver, "")),
	tale("held while it is handed over", func(s *story) {
		s.event(event.PhaseChanged, 0, 2, "who has the arm").ticks(60, paused).well()
	}, expect(Hold, HandOver, "")),
	tale("a person's hand is no jump", func(s *story) {
		s.place += 30
		s.ticks(1, func(t *record.Tick) { t.Intervention = true }).ticks(1).ticks(10)
	}),
	tale("one motor silent, so that nothing is asked", func(s *story) {
		s.event(event.JointFrozen, 2, 0, "a motor does not answer").ticks(20, frozen).ticks(20, starvedFrozen).well()
	}, expect(Stutter, MotorSilent, "gripper")),
	tale("one motor silent, with actions left", func(s *story) {
		s.event(event.JointFrozen, 2, 0, "a motor does not answer  joint gripper").ticks(20, frozen).well()
	}, expect(Hold, MotorSilent, "a motor does not answer")),
	tale("all motors silent", func(s *story) {
		s.event(event.BusLost, 2, 0, "motors do not answer").ticks(60, silent).well()
	}, expect(Stutter, BusSilent, "2 motors silent")),
	tale("a line full of noise", func(s *story) {
		s.event(event.BusLost, 2, 0, "motors do not answer").ticks(60, func(t *record.Tick) {
			silent(t)
			t.Spoilt = 3
		}).well()
	}, expect(Stutter, RepliesSpoilt, "180 runs of bytes")),
	tale("noise on every second tick", func(s *story) {
		s.ticks(60, func(t *record.Tick) { silent(t); t.Spoilt = uint32(t.At/tickTime) % 2 }).well()
	}, expect(Stutter, RepliesSpoilt, "30 runs of bytes")),
	tale("motors silent for a machine that stops", func(s *story) {
		s.gap(20).ticks(12, silent).well()
	}, expect(Stutter, MachineBusy, "20 periods"), expect(Overrun, MachineBusy, "")),
	tale("replies that a machine which stops hears too late", func(s *story) {
		s.gap(20).ticks(12, func(t *record.Tick) { silent(t); t.Spoilt = 1 + uint32(t.At/tickTime)%4/3 }).well()
	}, expect(Stutter, MachineBusy, "20 periods"), expect(Overrun, MachineBusy, "")),
	tale("a line full of noise while the machine stops", func(s *story) {
		s.gap(20).ticks(12, func(t *record.Tick) { silent(t); t.Spoilt = 3 }).well()
	}, expect(Stutter, RepliesSpoilt, "36 runs of bytes", MachineBusy), expect(Overrun, MachineBusy, "")),
	tale("a process that was stopped while it slept", func(s *story) {
		s.now += 24 * tickTime
		s.ticks(1, func(t *record.Tick) {
			silent(t)
			t.Lateness = int64(24 * tickTime)
		}).ticks(1, func(t *record.Tick) { t.Skipped = 24 }).well()
	}, expect(Stutter, MachineBusy, "24 periods"), expect(Overrun, MachineBusy, "")),
	tale("all motors silent in a pause", func(s *story) {
		s.operated(event.WordPause, "pause").ticks(10, paused).event(event.BusLost, 2, 0,
			"motors do not answer").ticks(60, func(t *record.Tick) {
			silent(t)
			t.Starved, t.Paused = false, true
		}).ticks(200, paused).well()
	}, expect(Hold, Paused, ""), expect(Hold, BusSilent, "")),
	tale("the arm unplugged, and the server gone meanwhile", func(s *story) {
		s.ask(300)
		s.ticks(60, silent).lost(event.LossToken, "session lost: token").ticks(60, silent).event(event.BusBack,
			int64(hotplug.Unplugged), 0, "back").ticks(20)
	}, expect(Stutter, Unplugged, "the adapter was unplugged", ServerGone)),
	tale("a motor restarted", func(s *story) {
		s.ticks(30, silent).event(event.BusBack, int64(hotplug.Restarted), 2<<1|1, "back").ticks(60,
			paused).operated(event.WordResume, "resume").well()
	}, expect(Stutter, Restarted, "gripper"), expect(Hold, Restarted, "an operator: resume")),
	tale("a motor restarted in teleop", func(s *story) {
		s.ticks(30).event(event.BusBack, int64(hotplug.Restarted), 2<<1|1, "back").ticks(20).ended(6, event.LackNone,
			"code 6: the arm's motors have restarted")
	}, expect(Hold, Restarted, ""), expect(Exit, Restarted, "gripper")),
	tale("the connection breaks, and a motor is silent much later", func(s *story) {
		s.ask(200)
		s.disconnected().dry(60).event(event.JointFrozen, 2, 0, "silent").ticks(40, starvedFrozen)
		s.open("s-2", 2, "box-1")
		s.well()
	}, expect(Stutter, LinkLost, "", MotorSilent), expect(Hold, MotorSilent, "")),
	tale("two stutters", func(s *story) {
		for range 2 {
			s.lose()
			s.well()
		}
	}, expect(Stutter, Lost, ""), expect(Stutter, Lost, "")),
	tale("replies are spoilt where the machine stops", func(s *story) {
		for range 20 {
			s.ticks(10).ticks(1, func(t *record.Tick) { t.Spoilt = 2 }).gap(1)
		}
	}, expect(Overrun, MachineBusy, "")),
	tale("heat", func(s *story) {
		s.event(event.JointHeld, 1, 0, "complains").ticks(30, held(1)).well()
	}, expect(Hold, HeatOrSupply, "")),
	tale("supply", func(s *story) {
		s.event(event.JointHeld, 1, event.Complaint(event.ComplainsOfSupply, 124), "complains").ticks(30,
			held(1)).well()
	}, expect(Hold, Supply, "")),
	tale("every joint is held", func(s *story) {
		s.event(event.ArmHeld, 3, event.Complaint(event.ComplainsOfSupply, 124), "nothing moves").ticks(30,
			held(3)).well()
	}, expect(Hold, HeldJoints, "")),
	tale("a warning of heat", func(s *story) {
		s.event(event.JointWarned, 1, 0, "hot").well()
	}, expect(Warning, HeatOrSupply, "")),
	tale("a joint's position jumps", func(s *story) {
		s.event(event.JointJumped, 1, event.Way(-40, 48), "jumped").well()
	}, expect(Warning, PositionJump, "")),
	tale("overload", func(s *story) {
		s.event(event.JointOverloaded, 1, 0, "overloaded").ticks(30, held(1)).well()
	}, expect(Hold, Overload, "")),
	tale("stalled", func(s *story) {
		s.event(event.JointStalled, 1, 0, "stalled").ticks(30, held(1)).well()
	}, expect(Hold, Stalled, "")),
	tale("a blind encoder ends the run", func(s *story) {
		s.event(event.JointBlind, 1, 0, "blind").ticks(30, held(1)).ended(6, event.LackNone,
			"code 6: stopped by a motor")
	}, expect(Hold, Encoder, ""), expect(Exit, Encoder, "")),
	tale("heat ends the run at once", func(s *story) {
		s.ended(6, event.LackNone, "code 6: stopped by a motor: servo: motor 3 (elbow_flex) on /dev/ttyACM0: "+
			servo.FaultTemperature.Error())
	}, expect(Exit, HeatOrSupply, "")),
	tale("limp", func(s *story) {
		s.event(event.JointLimp, 1, 0, "limp").ticks(30, held(1))
	}, expect(Hold, Limp, "")),
	tale("replies get lost", func(s *story) {
		for range 20 {
			s.ticks(10).ticks(1, func(t *record.Tick) { t.Retried = 1 })
		}
	}, expect(Warning, RepliesLost, "")),
	tale("a pause of the host costs replies", func(s *story) {
		s.ticks(1, func(t *record.Tick) { t.Lost = 6 }).ticks(3, func(t *record.Tick) { t.Retried = 1 }).well()
	}),
	tale("replies are spoilt, which loses them, too", func(s *story) {
		for range 20 {
			s.ticks(10).ticks(1, replies(1, 2))
		}
	}, expect(Warning, RepliesSpoilt, "")),
	tale("replies are lost, most of them for stray bytes", func(s *story) {
		for i := range 10 {
			s.ticks(20).ticks(1, replies(1, uint32(i%2)))
		}
	}, expect(Warning, RepliesSpoilt, "")),
	tale("replies are lost, few of them for stray bytes", func(s *story) {
		for i := range 10 {
			s.ticks(20).ticks(1, replies(1, uint32(i%5/4)))
		}
	}, expect(Warning, RepliesLost, "")),
	tale("suspended", func(s *story) {
		s.now += second
		s.event(event.Suspended, int64(3600*second), 0, "suspended").ticks(1, func(t *record.Tick) {
			t.Suspended, t.Skipped = int64(3600*second), 60
		}).ticks(10, starved).well()
	}, expect(Stutter, Suspended, "1h0m0s"), expect(Overrun, Suspended, "")),
	tale("the host takes the CPU", func(s *story) {
		s.gap(12).ticks(1, func(t *record.Tick) { t.Stolen = int64(150 * millisecond) }).well()
	}, expect(Overrun, HostSteal, "12 periods")),
	tale("the machine does not run it", func(s *story) {
		s.gap(24).well()
	}, expect(Overrun, MachineBusy, "")),
	tale("the machine does not run it, and the arm starves of that", func(s *story) {
		s.ask(200)
		s.gap(60).ticks(5, starved).well()
	}, expect(Overrun, MachineBusy, ""), expect(Stutter, MachineBusy, "")),
	tale("a slow tick", func(s *story) {
		s.ticks(1, func(t *record.Tick) {
			t.Merge = int64(40 * millisecond)
		}).gap(2).ticks(6).ticks(1, func(t *record.Tick) { t.OverrunOwn = int64(40 * millisecond) }).well()
	}, expect(Overrun, TickSlow, "40 ms to merge")),
	tale("a slow bus", func(s *story) {
		s.ticks(1, func(t *record.Tick) {
			t.Read = int64(40 * millisecond)
		}).gap(2).ticks(6).ticks(1, func(t *record.Tick) { t.OverrunOwn = int64(40 * millisecond) }).well()
	}, expect(Overrun, BusSlow, "40 ms to read")),
	tale("the tick hangs", func(s *story) {
		s.now += second / 2
		s.event(event.TickMissing, int64(second/2), 0, "the tick hangs")
		s.Torn = true
	}, expect(Overrun, TickHung, ""), expect(Exit, TickHung, "", Killed)),
	tale("not conditioned", func(s *story) {
		seq := s.ask(500)
		s.bySeq[seq].Rows = 0
		s.ticks(3).answer(seq)
		s.place += 20
		s.ticks(20)
	}, expect(Jump, Unconditioned, "did not announce")),
	tale("later than announced", func(s *story) {
		seq := s.ask(500)
		s.ticks(9).answer(seq)
		s.place += 20
		s.ticks(30, func(t *record.Tick) { t.Dropped = 9 })
	}, expect(Jump, LateMerge, "announced 3 actions until its chunk, and 9 had run")),
	tale("the policy jumps", func(s *story) {
		s.jump(20)
	}, expect(Jump, PolicyJump, "shoulder_pan")),
	tale("the policy follows a joint whose position has jumped", func(s *story) {
		s.event(event.JointJumped, 1, event.Way(-40, 48), "jumped").jump(20)
	}, expect(Jump, PositionJump, ""), expect(Warning, PositionJump, "")),
	tale("the policy follows with another joint too", func(s *story) {
		s.event(event.JointJumped, 2, event.Way(-40, 48), "jumped")
		s.place += 20
		s.ticks(1, func(t *record.Tick) { t.Action.V[1] = 130 })
		s.ticks(20)
	}, expect(Jump, PositionJump, ""), expect(Warning, PositionJump, "")),
	tale("the policy jumps, and another joint's position had jumped", func(s *story) {
		s.event(event.JointJumped, 2, event.Way(-40, 48), "jumped").jump(20)
	}, expect(Jump, PolicyJump, "shoulder_pan"), expect(Warning, PositionJump, "")),
	tale("a gripper may close at once", func(s *story) {
		s.ticks(20, func(t *record.Tick) { t.Action.V[1] = 95 })
	}),
	tale("a gripper that chatters", func(s *story) {
		s.ticks(1, func(t *record.Tick) { t.Action.V[1] = 95 }).well()
	}, expect(Jump, PolicyJump, "gripper")),
	tale("a fast arm is no jump", func(s *story) { s.jump(3) }),
	tale("killed", func(s *story) { s.Torn = true }, expect(Exit, Killed, "")),
	tale("killed, and repaired", func(s *story) {
		s.Repaired = true
	}, expect(Exit, Killed, "")),
	tale("ended as asked", func(s *story) { s.ended(0, event.LackNone, "code 0: as asked") }),
	tale("broke", func(s *story) {
		s.ended(1, event.LackNone, "code 1: panic")
	}, expect(Exit, Failure, "panic")),
	tale("a wrong setting", func(s *story) {
		s.ended(3, event.LackNone, "code 3: the calibration")
	}, expect(Exit, BadConfig, "")),
	tale("real time refused", func(s *story) {
		s.ended(5, event.LackNone, "code 5: no limit")
	}, expect(Exit, RealTime, "")),
	tale("gave up without a server", func(s *story) {
		s.ask(200)
		s.lost(event.LossToken, "session lost: token").dry(100).ended(4, event.LackNone,
			"code 4: no chunk for 60 s")
	}, expect(Stutter, ServerGone, ""), expect(Exit, ServerGone, "")),
	tale("gave up without motors", func(s *story) {
		s.event(event.BusLost, 2, 0, "motors").ticks(100, silent).ended(4, event.LackNone, "code 4: joints were silent")
	}, expect(Stutter, BusSilent, ""), expect(Exit, BusSilent, "")),
	tale("gave up without a server, and at last a cable", func(s *story) {
		s.lost(event.LossToken, "session lost: token").ticks(360, away).ticks(2,
			func(t *record.Tick) {
				silent(t)
				away(t)
			})
		s.ended(4, event.LackSession, "code 4: no chunk for 6 s")
	}, expect(Stutter, ServerGone, "", BusSilent), expect(Exit, ServerGone, "")),
	tale("likewise, of an older run", func(s *story) {
		s.lost(event.LossToken, "session lost: token").ticks(360, away).ticks(2,
			func(t *record.Tick) {
				silent(t)
				away(t)
			})
		s.ended(4, event.LackNone, "code 4: joints were silent for 6 s")
	}, expect(Stutter, ServerGone, "", BusSilent), expect(Exit, ServerGone, "")),
	tale("gave up without a server, long before what is on record", func(s *story) {
		s.lost(event.LossToken, "session lost: token").ticks(360, blind)
		s.ended(4, event.LackSession, "code 4: no chunk for 6 s")
	}, expect(Exit, ServerGone, "")),
	tale("gave up without motors, which answer at last", func(s *story) {
		s.event(event.BusLost, 2, 0, "motors").ticks(360, silent).ticks(2, starved).ended(4, event.LackJoints,
			"code 4: joints were silent")
	}, expect(Stutter, BusSilent, ""), expect(Exit, BusSilent, "")),
	tale("gave up without one motor", func(s *story) {
		one := func(t *record.Tick) { starved(t); t.Stale, t.Frozen = 2, 2 }
		s.event(event.JointFrozen, 2, 0, "silent").ticks(360, one).ticks(2, starved).ended(4, event.LackNone,
			"code 4: joints were silent")
	}, expect(Stutter, MotorSilent, ""), expect(Exit, MotorSilent, "")),
	tale("gave up without pictures, which come at last", func(s *story) {
		s.ticks(360, blind).ticks(2, idle)
		s.ended(4, event.LackPictures, "code 4: no chunk for 6 s")
	}, expect(Exit, NoPicture, "")),
	tale("the first run of a bundle", func(s *story) {
		s.event(event.FirstRun, 10_000, 30, "this bundle runs on this arm for the first time  speed 30 %").ticks(30)
	}, expect(Warning, FirstRun, "speed 30 %")),
	tale("garbage as answers", func(s *story) {
		for range 5 {
			_ = s.v.Chunk(&record.Chunk{At: s.now, Outcome: "header"})
		}
		_ = s.v.Chunk(&record.Chunk{At: s.now, Outcome: "foreign"})
	}, expect(Warning, StrangeAnswers, "5 header, 1 foreign")),
	tale("answers to another robot", func(s *story) {
		for range 5 {
			_ = s.v.Chunk(&record.Chunk{At: s.now, Outcome: "foreign"})
		}
	}, expect(Warning, SameID, "")),
}

func held(joints uint32) func(*record.Tick) { return func(t *record.Tick) { t.Held = joints } }

// slowly adds an answer that comes 200 ms too late.
func slowly(changes ...func(*record.Chunk)) func(*story) {
	return func(s *story) {
		seq := s.ask(200)
		s.dry(12).answer(seq, changes...)
		if s.bySeq[seq].joined() != nil {
			s.ticks(9)
		}
	}
}

// gap lets n periods pass without a tick.
func (s *story) gap(n uint64) *story {
	s.now += rt.Instant(n) * tickTime
	return s.ticks(1, func(t *record.Tick) { t.Skipped = n })
}

// jump moves the first joint by this distance in one tick.
func (s *story) jump(by float32) {
	seq := s.ask(500)
	s.ticks(3).answer(seq)
	s.place += by
	s.ticks(20)
}

// auditOf returns the audit file of a server that answered these requests.
func auditOf(seqs ...int) string {
	var b strings.Builder
	for _, seq := range seqs {
		fmt.Fprintf(&b,
			`{"ts":"2026-11-24T14:03:20.1Z","session_id":"s-1","client_uuid":"arm","session_epoch":1,"seq_id":%d,"queue_wait_ms":2,"outcome":"ok"}`+"\n", seq)
	}
	fmt.Fprintf(&b,
		`{"ts":"2026-11-24T14:03:20.1Z","session_id":"another","client_uuid":"arm","session_epoch":1,"seq_id":4,"queue_wait_ms":2,"outcome":"ok"}`+"\n")
	return b.String()
}

func TestCauses(t *testing.T) {
	s := newStory()
	s.jump(40)
	info := record.Info{Run: map[string]string{"schedule": "teleop", "fps": "25", "interpolation_multiplier": "2",
		"horizon": "50"}}
	rttest.Do(t, s.pace(&info))
	s.finish(info)
	rttest.Want(t, newExplainer(s.Log, nil).horizon, 2*time.Second, "the horizon, with two ticks for each action")
	if found := (&explainer{log: s.Log}).jumpFindings(); found != nil {
		t.Errorf("a leader that jumps: %v", found)
	}
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			s := newStory()
			s.well()
			tt.tell(s)
			var a *Audit
			if tt.audit != "" {
				a = rttest.Must(readAudit(strings.NewReader(tt.audit), s.Log))(t)
			}
			found := s.explain(a)
			for _, w := range tt.want {
				i := slices.IndexFunc(found, func(f Finding) bool { return f.Kind == w.kind && f.Cause == w.cause })
				if i < 0 {
					t.Errorf("no %s for %s", w.kind, w.cause)
					continue
				}
				f := found[i]
				found = slices.Delete(found, i, i+1)
				var text strings.Builder
				for _, e := range f.Evidence {
					fmt.Fprintln(&text, e.Text)
				}
				rttest.Contains(t, f.What+"\n"+text.String(), w.words)
				rttest.Equal(t, f.Also, w.also, "%s for %s: also", w.kind, w.cause)
				if len(f.Evidence) == 0 || f.From > f.To || f.Cause.Description() == "" {
					t.Errorf("%+v: want evidence, an order of time and a sentence", f)
				}
			}
			for _, f := range found {
				t.Errorf("also found: %s for %s (also %v): %v", f.Kind, f.Cause, f.Also, f.Evidence)
			}
		})
	}
}

// The time to explain a record is about linear in its faults of each cause.
func TestManyFaults(t *testing.T) {
	rttest.RealTime(t)
	took := func(n int) (best time.Duration) {
		for range 3 {
			s := newStory()
			for range n {
				for _, tt := range cases {
					s.well()
					tt.tell(s)
				}
			}
			began := time.Now()
			s.explain(nil)
			if d := time.Since(began); best == 0 || d < best {
				best = d
			}
		}
		return best
	}
	few, many := took(5), took(60)
	t.Logf("%v, %v", few, many)
	if many > 80*few { // with a loop over all requests for each stutter the factor would be 153
		t.Errorf("12 times the faults took %v instead of %v", many, few)
	}
}

// If a record has more messages of a kind than a Log keeps, the messages of the other kinds are still matched.
// Requests of one session share one copy of it.
func TestTooManyMessages(t *testing.T) {
	s := newStory()
	s.counts = make([]count, maxKept)
	s.ticks(1, replies(1, 0))
	s.well().lose()
	if found := s.explain(nil); !s.Full || len(found) != 1 || found[0].Cause != Lost {
		t.Errorf("full %v, %+v, want only the lost message", s.Full, found)
	}
	if s.requests[0].Session != s.requests[1].Session {
		t.Error("each request keeps a session of its own")
	}
}

// At least one case finds each cause, except Unknown and the causes before the first action.
func TestEveryCauseIsFound(t *testing.T) {
	found := map[Cause]bool{}
	for _, tt := range cases {
		for _, w := range tt.want {
			found[w.cause] = true
		}
	}
	apart := []Cause{Unknown, OutsideRange}
	for _, c := range causes {
		if !found[c.Cause] && !slices.Contains(apart, c.Cause) {
			t.Errorf("no case finds %s", c.Cause)
		}
		if c.Description == "" || c.Cause.Description() != c.Description {
			t.Errorf("%s: %q and %q", c.Cause, c.Description, c.Cause.Description())
		}
	}
}

// A run's wait for its first chunk is a hold, and the ticks give its cause. For a run whose arm
// cannot be armed, the ticks give the cause of its end. A stutter at the beginning of the record has no known cause.
func TestBeforeTheFirstAction(t *testing.T) {
	for _, tt := range []struct {
		tell func(*story)
		kind Kind
		want Cause
	}{
		{func(s *story) {
			s.ticks(300, blind).well()
		}, Hold, NoPicture},
		{func(s *story) {
			s.ticks(300, idle, func(t *record.Tick) { t.BusSilent, t.Stale, t.Frozen = true, 3, 3 }).well()
		}, Hold, BusSilent},
		{func(s *story) {
			s.ask(0)
			for range 10 {
				s.ticks(30, idle)
				s.ask(0)
			}
			s.ticks(5)
		}, Hold, LinkSilent},
		{func(s *story) {
			seq := s.ask(0)
			s.ticks(5, idle).answer(seq).ticks(20, idle).ended(6, event.LackNone,
				"code 6: shoulder_lift stands outside its range")
		}, Exit, OutsideRange},
		{func(s *story) { s.ticks(20, starved) }, Stutter, Unknown}, // the record begins in the stutter
		{func(s *story) { s.ticks(60, idle).well() }, "", ""},       // one second does not count as a hold
	} {
		s := newStory()
		tt.tell(s)
		found := s.explain(nil)
		switch {
		case tt.kind == "" && len(found) == 0:
		case len(found) != 1 || found[0].Kind != tt.kind || found[0].Cause != tt.want:
			t.Errorf("%+v, want one %s for %s", found, tt.kind, tt.want)
		}
	}
}

func TestAuditFilesOfOthersAreRefused(t *testing.T) {
	s := newStory()
	s.well()
	for text, want := range map[string]string{
		"hello\nworld\n":                        "no audit line in its 2 lines",
		strings.Repeat("x", maxAuditLine+1):     "line 1 has more than",
		`{"a": 1}` + "\n" + `{"session_id": 7}`: "no audit line in its 2 lines",
	} {
		rttest.Fails(t, rttest.Err(readAudit(strings.NewReader(text), s.Log)), want)
	}
	a, err := readAudit(strings.NewReader("\ufeff"+auditOf(1)+"torn{"), s.Log)
	if err != nil || a.Lines != 3 || a.Matched != 1 || a.Broken != 1 {
		t.Errorf("%+v, %v, want 3 lines, 1 of this robot, 1 broken", a, err)
	}
}

// An event code of a later edge-rt is not taken for a known code with the same low bits. Findings
// are in order even if they are far apart.
func TestAStrangersEvents(t *testing.T) {
	s := newStory()
	s.well()
	for _, e := range []record.Event{
		{At: s.now, Code: 256 + uint32(event.Ended), A: 1},
		{At: s.now, Code: 1<<32 - 1},
		{At: s.now - 3*second, Code: uint32(event.TickMissing), A: -1 << 62},
		{At: s.now, Code: uint32(event.TickMissing), A: 1 << 62},
	} {
		rttest.Do(t, s.v.Event(&e))
	}
	if all := s.explain(nil); len(all) != 2 || all[0].From > 0 || all[1].From < 1<<62 || all[1].Kind != Overrun {
		t.Errorf("%+v, want the two gaps, the earlier first, and no end", all)
	}
}

func FuzzReadAudit(f *testing.F) {
	f.Add([]byte(auditOf(1, 2)))
	f.Add([]byte(`{"ts":"x"}`))
	f.Add([]byte("\n\n\xff"))
	s := newStory()
	s.well()
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := readAudit(bytes.NewReader(data), s.Log)
		if err == nil && (a.Matched > a.Lines || a.Broken > a.Lines) {
			t.Errorf("%+v", a)
		}
	})
}

// FuzzExplain explains arbitrary records: it always ends, and the findings are in order of time.
func FuzzExplain(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8})
	f.Add(bytes.Repeat([]byte{9, 0, 3, 200, 7}, 40))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := newStory()
		for _, b := range data[:min(len(data), 400)] {
			switch b % 8 {
			case 0:
				s.ask(int64(b))
			case 1:
				if s.seq > 0 {
					s.answer(s.seq-min(s.seq-1, uint64(b/64)), func(c *record.Chunk) {
						c.Dropped = int32(b) - 60
						c.Inference = -int64(b)
					})
				}
			case 2:
				s.event(event.Code(b/4), int64(b)-9, int64(b)<<3, "x")
			case 3:
				s.ticks(int(b/16), starved)
			case 4:
				s.ticks(2, silent)
			case 5:
				s.now -= rt.Instant(b) * millisecond // in a foreign file, times may go back
			default:
				s.ticks(int(b/8), func(t *record.Tick) {
					t.Skipped = uint64(b % 3)
					t.OverrunOwn = int64(b)
					t.Retried = uint32(b)
				})
			}
		}
		last := rt.Instant(-1 << 62)
		for _, found := range s.explain(nil) {
			if found.From < last || found.Cause.Description() == "" {
				t.Errorf("%+v behind %v", found, last)
			}
			last = found.From
		}
		for _, stage := range Latency(s.Log, nil) {
			if stage.P50 < 0 || stage.P99 < stage.P50 {
				t.Errorf("%+v", stage)
			}
		}
	})
}
