package why

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
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
	s := &story{Log: NewLog(), now: 100 * second, episode: 1}
	s.v = s.Visitor()
	s.open("s-1", 1, "box-1")
	return s
}

func (s *story) open(id string, epoch uint32, server string) {
	s.session = &record.Session{ID: id, Epoch: epoch, Service: "@lerobot/a/b/c", ServerID: server}
	_ = s.v.Session(s.session)
}

// ticks adds n ticks, edited by change. Without change each of them runs an action.
func (s *story) ticks(n int, change func(*record.Tick)) *story {
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
		if change != nil {
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

func starved(t *record.Tick) { t.Starved, t.Queue = true, 0 }
func silent(t *record.Tick)  { t.Starved, t.BusSilent, t.Stale, t.Frozen = true, true, 3, 3 }
func away(t *record.Tick)    { starved(t); t.NoSession = true }
func paused(t *record.Tick)  { t.Paused = true }

// ask sends a request with so many ms of actions left.
func (s *story) ask(runway int64) uint64 {
	s.seq++
	_ = s.v.Request(&record.Request{
		At:      s.now,
		Seq:     s.seq,
		Epoch:   s.session.Epoch,
		Episode: s.episode,
		Step:    s.step + 1,
		Delay:   3,
		Rows:    10,
		Runway:  runway * int64(millisecond),
		Session: s.session,
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

// answer delivers a request's chunk now.
func (s *story) answer(seq uint64, change func(*record.Chunk)) *story {
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
	if change != nil {
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

// cut adds the beginning or the end of an episode of a dataset.
func (s *story) cut(number uint32, outcome string) *story {
	_ = s.v.Episode(&record.Episode{At: s.now, Number: number, Ended: outcome != "", Outcome: outcome})
	return s
}

// well adds a second without a fault.
func (s *story) well() *story {
	for range 3 {
		seq := s.ask(500)
		s.ticks(3, nil).answer(seq, nil).ticks(17, nil)
	}
	return s
}

var storyRun = map[string]string{"id": "arm", "fps": "60", "interpolation_multiplier": "1", "horizon": "50",
	"schedule": "drtc", "max_action_age": "3s", "joints": "shoulder_pan.pos,gripper.pos"}

// explain ends the record and returns the findings.
func (s *story) explain(a *Audit) []Finding {
	s.End(record.Info{Run: storyRun, Torn: s.Torn, Repaired: s.Repaired})
	return Explain(s.Log, a)
}

// expected is an expected finding.
type expected struct {
	kind  Kind
	cause Cause
	also  []Cause
	words string // part of its evidence
}

// cases has at least one case for each cause; TestEveryCauseIsFound checks this.
var cases = []struct {
	name  string
	tell  func(*story)
	audit func(*story) string
	want  []expected // the complete list of findings
}{
	{name: "nothing", tell: func(s *story) { s.well() }},
	{name: "a request answered late, with actions left", tell: func(s *story) {
		seq := s.ask(600)
		s.ticks(30, nil).answer(seq, nil).ticks(10, nil)
	}},
	{name: "one lost, asked again in time", tell: func(s *story) {
		s.ask(500)
		s.ticks(8, nil)
		seq := s.ask(300)
		s.ticks(3, nil).answer(seq, nil).ticks(10, nil)
	}},
	{name: "a message got lost", tell: func(s *story) {
		s.ask(200)
		s.ticks(12, nil).ticks(4, starved)
		seq := s.ask(0)
		s.ticks(3, starved).answer(seq, nil).ticks(10, nil)
	}, want: []expected{{kind: Stutter, cause: Lost, words: "request 4 asked with 200 ms"}}},
	{
		name: "the observation got lost",
		tell: func(s *story) {
			s.ask(200)
			s.ticks(12, nil).ticks(4, starved)
			seq := s.ask(0)
			s.ticks(3, starved).answer(seq, nil).ticks(10, nil)
		},
		audit: func(s *story) string { return auditOf(1, 2, 3, 5) },
		want:  []expected{{kind: Stutter, cause: LostThere, words: "no line of request 4"}},
	},
	{
		name: "the answer got lost",
		tell: func(s *story) {
			s.ask(200)
			s.ticks(12, nil).ticks(4, starved)
			seq := s.ask(0)
			s.ticks(3, starved).answer(seq, nil).ticks(10, nil)
		},
		audit: func(s *story) string { return auditOf(1, 2, 3, 4, 5) },
		want:  []expected{{kind: Stutter, cause: LostBack, words: "waited 2 ms"}},
	},
	{name: "the server had an error", tell: func(s *story) {
		s.ask(200)
		s.ticks(12, nil).ticks(4, starved)
	}, audit: func(s *story) string {
		return strings.ReplaceAll(auditOf(1, 2, 3, 4), `4,"queue_wait_ms":2,"outcome":"ok"`,
			`4,"outcome":"inference_failed","why":"out of memory"`)
	},
		want: []expected{{kind: Stutter, cause: ServerFailed, words: "out of memory"}}},
	{name: "the server refuses an observation", tell: func(s *story) {
		seq := s.ask(200)
		s.ticks(2, nil).event(event.Notice, int64(event.NoticeBadObservation), int64(seq),
			"bad_observation: state: got 5, want 6").ticks(12, nil).ticks(4, starved)
	}, want: []expected{{kind: Stutter, cause: ServerFailed, words: "got 5, want 6"}}},
	{name: "passed over at the server", tell: func(s *story) {
		s.ask(200)
		s.ticks(6, nil)
		seq := s.ask(100)
		s.ticks(6, nil).ticks(4, starved).answer(seq, func(c *record.Chunk) { c.Superseded = 1 }).ticks(10, nil)
	}, want: []expected{{kind: Stutter, cause: Superseded, words: "passed over 1"}}},
	{name: "nothing comes back", tell: func(s *story) {
		s.ask(300)
		for range 8 {
			s.ticks(6, nil)
			s.ask(100)
		}
		s.ticks(60, starved)
	}, want: []expected{{kind: Stutter, cause: LinkSilent, words: "no answer to it"}}},
	{name: "nothing comes back, and the session is given up", tell: func(s *story) {
		s.ask(200)
		s.ticks(12, nil).ticks(40, starved).event(event.SessionLost, int64(event.LossUnanswered), 0,
			"session lost: no chunk for 1.0 s").ticks(10, starved)
	}, want: []expected{{kind: Stutter, cause: LinkSilent, words: "session lost"}}},
	{name: "the connection breaks, same server", tell: func(s *story) {
		s.ask(200)
		s.event(event.LinkDown, int64(event.WhyClosed), 0, "no connection: the peer ended it").ticks(12,
			nil).event(event.SessionLost, int64(event.LossToken), 0, "session lost: token").ticks(30, starved)
		s.open("s-2", 2, "box-1")
		seq := s.ask(0)
		s.ticks(3, starved).answer(seq, nil).ticks(9, nil)
	}, want: []expected{{kind: Stutter, cause: LinkLost, words: "session 2 open at box-1"}}},
	{name: "the connection breaks, another server", tell: func(s *story) {
		s.ask(200)
		s.event(event.LinkDown, int64(event.WhyClosed), 0, "no connection: the peer ended it").ticks(12,
			nil).event(event.SessionLost, int64(event.LossToken), 0, "session lost: token").ticks(30, starved)
		s.open("s-2", 2, "box-2")
		seq := s.ask(0)
		s.ticks(3, starved).answer(seq, nil).ticks(9, nil)
	}, want: []expected{{kind: Stutter, cause: ServerGone, words: "box-1 was there, box-2 is now"}}},
	{name: "the token goes and the connection stands", tell: func(s *story) {
		s.ask(200)
		s.ticks(12, nil).event(event.SessionLost, int64(event.LossToken), 0, "session lost: token").ticks(30, starved)
	}, want: []expected{{kind: Stutter, cause: ServerGone}}},
	{name: "a server drains", tell: func(s *story) {
		s.ask(200)
		s.event(event.Notice, int64(event.NoticeDraining), 0, "draining: open elsewhere").event(event.SessionLost,
			int64(event.LossClosed), 0, "session lost: closed").ticks(12, nil).ticks(30, starved)
	}, want: []expected{{kind: Stutter, cause: ServerDraining, words: "draining"}}},
	{name: "a server has no room", tell: func(s *story) {
		s.ask(200)
		s.event(event.SessionLost, int64(event.LossToken), 0, "session lost: token").event(event.SessionWaits,
			int64(event.WaitFull), 0, "no session: server full").ticks(12, nil).ticks(30, starved)
	}, want: []expected{{kind: Stutter, cause: ServerFull, words: "server full"}}},
	{name: "another robot of this name", tell: func(s *story) {
		s.ask(200)
		s.event(event.SessionLost, int64(event.LossToken), 0, "session lost: token").event(event.SessionWaits,
			int64(event.WaitTaken), 0, "no session: another robot on host x").ticks(12, nil).ticks(30, starved)
	}, want: []expected{{kind: Stutter, cause: SameID, words: "another robot"}}},
	{name: "the session is closed", tell: func(s *story) {
		s.ask(200)
		s.event(event.SessionLost, int64(event.LossClosed), 0, "session lost: the server closed it").ticks(12,
			nil).ticks(30, starved)
	}, want: []expected{{kind: Stutter, cause: SessionClosed}}},
	{name: "a contract refused ends the run", tell: func(s *story) {
		s.event(event.SessionLost, int64(event.LossToken), 0, "session lost: token").event(event.SessionRefused, 0, 0,
			"refused: other weights").ticks(5, nil).event(event.Ended, 3, 0, "code 3: other weights")
	}, want: []expected{{kind: Exit, cause: ServerRefuses, words: "other weights"}}},
	{name: "the policy takes long", tell: slowly(func(c *record.Chunk) {
		c.Inference = int64(400 * millisecond)
	}), want: []expected{{kind: Stutter, cause: ServerSlow, words: "computed 400 ms"}}},
	{name: "a policy that takes longer than its chunks last", tell: func(s *story) {
		for range 3 {
			seq := s.ask(0)
			for range 8 { // these displace each other at the server
				s.ticks(30, starved).ask(0)
			}
			s.answer(seq, func(c *record.Chunk) { c.Inference = int64(4 * second) }).ticks(47, nil)
		}
	}, want: []expected{{kind: Stutter, cause: SlowPolicy, words: "usually takes 4.00 s"},
		{kind: Stutter, cause: SlowPolicy}, {kind: Stutter, cause: SlowPolicy}}},
	{name: "the line is cut for longer than a slow policy takes", tell: func(s *story) {
		for range 4 {
			seq := s.ask(0)
			s.ticks(70, starved).answer(seq, func(c *record.Chunk) { c.Inference = int64(second) }).ticks(47, nil)
		}
		s.ask(300)
		s.ticks(18, nil)
		for range 20 {
			s.ticks(30, starved).ask(0)
		}
	}, want: []expected{{kind: Stutter, cause: SlowPolicy}, {kind: Stutter, cause: SlowPolicy},
		{kind: Stutter, cause: SlowPolicy}, {kind: Stutter, cause: SlowPolicy}, {kind: Stutter, cause: LinkSilent}}},
	{name: "a slow policy that leaves a few actions of each chunk", tell: func(s *story) {
		for range 9 { // one stretch, far longer than one answer takes
			seq := s.ask(0)
			for range 3 {
				s.ticks(35, starved).ask(0)
			}
			s.answer(seq, func(c *record.Chunk) { c.Inference = int64(7 * second / 4) }).ticks(5, nil)
		}
	}, want: []expected{{kind: Stutter, cause: SlowPolicy, words: "usually takes 1.75 s"}}},
	{name: "a slow policy whose actions are all too old", tell: func(s *story) {
		for range 3 {
			seq := s.ask(0)
			s.ticks(180, starved).answer(seq, func(c *record.Chunk) {
				c.Inference = int64(49 * second / 10)
			}).ticks(1, func(t *record.Tick) { t.Starved, t.TooOld = true, true })
		}
	}, want: []expected{{kind: Stutter, cause: SlowPolicy, words: "actions may be 3.00 s old (--max-action-age)"}}},
	{name: "sessions that are given up while the policy computes", tell: func(s *story) {
		for i := range uint32(3) {
			seq := s.ask(0)
			s.ticks(300, starved).event(event.SessionLost, int64(event.LossUnanswered), 0,
				"session lost: no chunk for 5.0 s")
			s.open("s-2", i+2, "box-1")
			s.ticks(180, starved).answer(seq, func(c *record.Chunk) { c.Outcome, c.Inference = "epoch", 0 })
		}
	}, want: []expected{{kind: Stutter, cause: SlowPolicy, words: "no chunk for 5.0 s"}}},
	{name: "a slow policy that no stutter shows", tell: func(s *story) {
		s.event(event.SlowPolicy, 0, 0, "--degraded-after 100ms is shorter than a chunk takes").well()
	}, want: []expected{{kind: Warning, cause: SlowPolicy, words: "--degraded-after"}}},
	{name: "a limit that lets nothing run", tell: func(s *story) {
		s.ticks(5, nil).event(event.Ended, 3, 0, "code 3: no action could ever run: this policy takes at least 8.0 s")
	}, want: []expected{{kind: Exit, cause: SlowPolicy}}},
	{name: "a queue at the server", tell: slowly(func(c *record.Chunk) {
		c.QueueWait = int64(400 * millisecond)
	}), want: []expected{{kind: Stutter, cause: ServerQueue, words: "waited 400 ms"}}},
	{name: "a slow network", tell: slowly(nil), want: []expected{{kind: Stutter, cause: NetworkSlow}}},
	{name: "a slow network, and the queue longer than usual too", tell: slowly(func(c *record.Chunk) {
		c.QueueWait = int64(100 * millisecond)
	}), want: []expected{{kind: Stutter, cause: NetworkSlow}}},
	{name: "a slow network most of the time, and a policy a little slower than usual", tell: func(s *story) {
		slowly(func(c *record.Chunk) { c.Inference = int64(30 * millisecond) })(s)
		for range 8 {
			slowly(nil)(s)
		}
	}, want: []expected{{kind: Stutter, cause: NetworkSlow}}},
	{name: "so late that little is left", tell: func(s *story) {
		seq := s.ask(500)
		s.ticks(29, nil).answer(seq, func(c *record.Chunk) { c.Dropped = 46 })
		next := s.ask(60)
		s.ticks(4, nil).ticks(2, starved).answer(next, nil).ticks(9, nil)
	}, want: []expected{{kind: Stutter, cause: NetworkSlow, words: "46 of its 50 actions were past"}}},
	{name: "a slow sender", tell: func(s *story) {
		s.seq++
		_ = s.v.Request(&record.Request{
			At:      s.now,
			Seq:     s.seq,
			Epoch:   1,
			Episode: 1,
			Runway:  int64(200 * millisecond),
			Rows:    10,
			Session: s.session,
		})
		s.ticks(12, nil).ticks(12, starved)
		_ = s.v.Sent(&record.Sent{At: s.now - 50*millisecond, Seq: s.seq, Epoch: 1, Outcome: "sent"})
		s.answer(s.seq, nil).ticks(10, nil)
	}, want: []expected{{kind: Stutter, cause: SenderSlow}}},
	{name: "it did not leave", tell: func(s *story) {
		s.seq++
		_ = s.v.Request(&record.Request{
			At:      s.now,
			Seq:     s.seq,
			Epoch:   1,
			Episode: 1,
			Runway:  int64(200 * millisecond),
			Rows:    10,
			Session: s.session,
		})
		_ = s.v.Sent(&record.Sent{At: s.now, Seq: s.seq, Epoch: 1, Outcome: "error"})
		s.ticks(12, nil).ticks(12, starved)
	}, want: []expected{{kind: Stutter, cause: NotSent, words: "did not leave: error"}}},
	{name: "answers that are no numbers", tell: slowly(func(c *record.Chunk) {
		c.Outcome = "not_finite"
	}), want: []expected{{kind: Stutter, cause: BadChunk, words: "not_finite"}}},
	{name: "answers that cannot be read, and the session is given up", tell: func(s *story) {
		slowly(func(c *record.Chunk) { c.Outcome = "body" })(s)
		s.event(event.SessionLost, int64(event.LossUnanswered), 0, "session lost: no chunk").ticks(5, starved)
	}, want: []expected{{kind: Stutter, cause: BadChunk, also: []Cause{LinkSilent}}}},
	{name: "a schedule that waits", tell: func(s *story) {
		s.ticks(30, nil)
		seq := s.ask(0)
		s.ticks(6, starved).answer(seq, nil).ticks(10, nil)
	}, want: []expected{{kind: Stutter, cause: Schedule}}},
	{name: "too old", tell: func(s *story) {
		s.ticks(9, func(t *record.Tick) { t.Starved, t.TooOld = true, true })
	}, want: []expected{{kind: Stale, cause: ActionTooOld, words: "--max-action-age 3s"}}},
	{name: "too old for an old picture", tell: func(s *story) {
		seq := s.ask(500)
		s.bySeq[seq].sent.Observed = s.now - 2*second
		s.ticks(3, nil).answer(seq, nil).ticks(10, nil).ticks(9, func(t *record.Tick) {
			t.Starved, t.TooOld = true, true
		})
	}, want: []expected{{kind: Stale, cause: CameraSilent, words: "2.00 s old"}}},
	{name: "no picture since it woke", tell: func(s *story) {
		s.ticks(30, nil).ticks(9, func(t *record.Tick) { starved(t); t.NoPicture = true })
	}, want: []expected{{kind: Stutter, cause: NoPicture}}},
	{name: "a camera that the arm does not miss yet", tell: func(s *story) {
		s.event(event.CameraSilent, 0, 0, "camera top gives no usable picture").well().event(event.CameraBack, 0, 0,
			"").well()
	}, want: []expected{{kind: Warning, cause: CameraSilent, words: "camera top"}}},
	{name: "stray bytes", tell: func(s *story) {
		s.event(event.CameraSpoilt, 0, 0, "camera top: stray bytes").well()
	}, want: []expected{{kind: Warning, cause: CameraSpoilt}}},
	{name: "a new episode", tell: func(s *story) {
		s.episode++
		s.seq++
		_ = s.v.Request(&record.Request{
			At:      s.now,
			Seq:     s.seq,
			Epoch:   1,
			Episode: 2,
			Start:   true,
			Session: s.session,
			Rows:    10,
		})
		s.ticks(5, starved).event(event.Operated, int64(event.WordReset), 0, "reset").answer(s.seq, nil).ticks(10, nil)
	}, want: []expected{{kind: Stutter, cause: NewEpisode, words: "an operator: reset"}}},
	{name: "paused", tell: func(s *story) {
		s.event(event.Operated, int64(event.WordPause), 0, "pause").ticks(60, paused).event(event.Operated,
			int64(event.WordResume), 0, "resume").ticks(3, starved).well()
	}, want: []expected{{kind: Hold, cause: Paused, words: "an operator: pause"}, {kind: Stutter, cause: Paused}}},
	{name: "between two episodes", tell: func(s *story) {
		s.cut(1, "").ticks(60, nil).cut(1, record.Success).ticks(60, paused).cut(2, "").ticks(3, starved).well()
	}, want: []expected{{kind: Hold, cause: Between, words: "episode 1 of the data set ended (success)"},
		{kind: Stutter, cause: Between}}},
	{name: "paused by a person between two episodes", tell: func(s *story) {
		s.cut(1, "").ticks(60, nil).cut(1, record.Success).event(event.Operated, int64(event.WordPause), 0,
			"pause").ticks(60, paused).cut(2, "").well()
	}, want: []expected{{kind: Hold, cause: Paused}}},
	{name: "paused within an episode", tell: func(s *story) {
		s.cut(1, "").ticks(60, nil).ticks(60, paused).well().cut(1, record.Success)
	}, want: []expected{{kind: Hold, cause: Paused, words: "not on this record"}}},
	{name: "a leader that is silent", tell: func(s *story) {
		s.event(event.LeaderSilent, 0, 0, "the leader does not answer").ticks(30, func(t *record.Tick) {
			t.Action.N = 0
		}).event(event.LeaderBack, 0, 0, "the leader answers").well()
	}, want: []expected{{kind: Hold, cause: LeaderSilent}}},
	{name: "a joint of the leader that does not lead", tell: func(s *story) {
		s.event(event.LeaderHeld, 4, 2, "a joint of the leader does not lead: over its seam").ticks(20, nil).
			event(event.LeaderHeld, 4, 1, "a joint of the leader does not lead: outside").ticks(40,
			nil).event(event.LeaderLeads, 4, 0, "leads again").well().
			event(event.LeaderHeld, 2, 3, "a joint of the leader does not lead: too far").ticks(60,
			nil).event(event.PhaseChanged, 3, 0, "who has the arm").well()
	}, want: []expected{{kind: Hold, cause: LeaderJoint, words: "over its seam"},
		{kind: Hold, cause: LeaderJoint, words: "too far"}}},
	{name: "nobody has the arm", tell: func(s *story) {
		s.event(event.PhaseChanged, 0, 1, "who has the arm").ticks(300, func(t *record.Tick) { t.Action.N = 0 }).well()
	}, want: []expected{{kind: Hold, cause: HandOver}}},
	{name: "held while it is handed over", tell: func(s *story) {
		s.event(event.PhaseChanged, 0, 2, "who has the arm").ticks(60, paused).well()
	}, want: []expected{{kind: Hold, cause: HandOver}}},
	{name: "a person's hand is no jump", tell: func(s *story) {
		s.place += 30
		s.ticks(1, func(t *record.Tick) { t.Intervention = true }).ticks(1, nil).ticks(10, nil)
	}},
	{name: "one motor silent, so that nothing is asked", tell: func(s *story) {
		s.event(event.JointFrozen, 2, 0, "a motor does not answer").ticks(20, func(t *record.Tick) {
			t.Frozen = 2
		}).ticks(20, func(t *record.Tick) { starved(t); t.Frozen = 2 }).well()
	}, want: []expected{{kind: Stutter, cause: MotorSilent, words: "gripper"}}},
	{name: "one motor silent, with actions left", tell: func(s *story) {
		s.event(event.JointFrozen, 2, 0, "a motor does not answer  joint gripper").ticks(20, func(t *record.Tick) {
			t.Frozen = 2
		}).well()
	}, want: []expected{{kind: Hold, cause: MotorSilent, words: "a motor does not answer"}}},
	{name: "all motors silent", tell: func(s *story) {
		s.event(event.BusLost, 2, 0, "motors do not answer").ticks(60, silent).well()
	}, want: []expected{{kind: Stutter, cause: BusSilent, words: "2 motors silent"}}},
	{name: "a line full of noise", tell: func(s *story) {
		s.event(event.BusLost, 2, 0, "motors do not answer").ticks(60, func(t *record.Tick) {
			silent(t)
			t.Spoilt = 3
		}).well()
	}, want: []expected{{kind: Stutter, cause: RepliesSpoilt, words: "180 runs of bytes"}}},
	{name: "noise on every second tick", tell: func(s *story) {
		s.ticks(60, func(t *record.Tick) { silent(t); t.Spoilt = uint32(t.At/tickTime) % 2 }).well()
	}, want: []expected{{kind: Stutter, cause: RepliesSpoilt, words: "30 runs of bytes"}}},
	{name: "motors silent for a machine that stops", tell: func(s *story) {
		s.gap(20).ticks(12, silent).well()
	}, want: []expected{{kind: Stutter, cause: MachineBusy, words: "20 periods"}, {kind: Overrun, cause: MachineBusy}}},
	{name: "replies that a machine which stops hears too late", tell: func(s *story) {
		s.gap(20).ticks(12, func(t *record.Tick) { silent(t); t.Spoilt = 1 + uint32(t.At/tickTime)%4/3 }).well()
	}, want: []expected{{kind: Stutter, cause: MachineBusy, words: "20 periods"}, {kind: Overrun, cause: MachineBusy}}},
	{name: "a line full of noise while the machine stops", tell: func(s *story) {
		s.gap(20).ticks(12, func(t *record.Tick) { silent(t); t.Spoilt = 3 }).well()
	}, want: []expected{{
		kind:  Stutter,
		cause: RepliesSpoilt,
		words: "36 runs of bytes",
		also:  []Cause{MachineBusy},
	}, {kind: Overrun, cause: MachineBusy}}},
	{name: "a process that was stopped while it slept", tell: func(s *story) {
		s.now += 24 * tickTime
		s.ticks(1, func(t *record.Tick) {
			silent(t)
			t.Lateness = int64(24 * tickTime)
		}).ticks(1, func(t *record.Tick) { t.Skipped = 24 }).well()
	}, want: []expected{{kind: Stutter, cause: MachineBusy, words: "24 periods"}, {kind: Overrun, cause: MachineBusy}}},
	{name: "all motors silent in a pause", tell: func(s *story) {
		s.event(event.Operated, int64(event.WordPause), 0, "pause").ticks(10, paused).event(event.BusLost, 2, 0,
			"motors do not answer").ticks(60, func(t *record.Tick) {
			silent(t)
			t.Starved, t.Paused = false, true
		}).ticks(200, paused).well()
	}, want: []expected{{kind: Hold, cause: Paused}, {kind: Hold, cause: BusSilent}}},
	{name: "the arm unplugged, and the server gone meanwhile", tell: func(s *story) {
		s.ask(300)
		s.ticks(60, silent).event(event.SessionLost, int64(event.LossToken), 0, "session lost: token").ticks(60,
			silent).event(event.BusBack, int64(hotplug.Unplugged), 0, "back").ticks(20, nil)
	}, want: []expected{{kind: Stutter, cause: Unplugged, also: []Cause{ServerGone},
		words: "the adapter was unplugged"}}},
	{name: "a motor restarted", tell: func(s *story) {
		s.ticks(30, silent).event(event.BusBack, int64(hotplug.Restarted), 2<<1|1, "back").ticks(60,
			paused).event(event.Operated, int64(event.WordResume), 0, "resume").well()
	}, want: []expected{{kind: Stutter, cause: Restarted, words: "gripper"},
		{kind: Hold, cause: Restarted, words: "an operator: resume"}}},
	{name: "the connection breaks, and a motor is silent much later", tell: func(s *story) {
		s.ask(200)
		s.event(event.LinkDown, int64(event.WhyClosed), 0, "no connection: the peer ended it").ticks(12, nil).ticks(60,
			starved).event(event.JointFrozen, 2, 0, "silent").ticks(40, func(t *record.Tick) {
			starved(t)
			t.Frozen = 2
		})
		s.open("s-2", 2, "box-1")
		s.well()
	}, want: []expected{{kind: Stutter, cause: LinkLost, also: []Cause{MotorSilent}},
		{kind: Hold, cause: MotorSilent}}},
	{name: "two stutters", tell: func(s *story) {
		for range 2 {
			s.ask(200)
			s.ticks(12, nil).ticks(4, starved)
			seq := s.ask(0)
			s.ticks(3, starved).answer(seq, nil).ticks(60, nil)
			s.well()
		}
	}, want: []expected{{kind: Stutter, cause: Lost}, {kind: Stutter, cause: Lost}}},
	{name: "replies are spoilt where the machine stops", tell: func(s *story) {
		for range 20 {
			s.ticks(10, nil).ticks(1, func(t *record.Tick) { t.Spoilt = 2 }).gap(1)
		}
	}, want: []expected{{kind: Overrun, cause: MachineBusy}}},
	{name: "heat", tell: func(s *story) {
		s.event(event.JointHeld, 1, 0, "complains").ticks(30, held(1)).well()
	}, want: []expected{{kind: Hold, cause: HeatOrSupply}}},
	{name: "supply", tell: func(s *story) {
		s.event(event.JointHeld, 1, event.Complaint(event.ComplainsOfSupply, 124), "complains").ticks(30,
			held(1)).well()
	}, want: []expected{{kind: Hold, cause: Supply}}},
	{name: "every joint is held", tell: func(s *story) {
		s.event(event.ArmHeld, 3, event.Complaint(event.ComplainsOfSupply, 124), "nothing moves").ticks(30,
			held(3)).well()
	}, want: []expected{{kind: Hold, cause: HeldJoints}}},
	{name: "a warning of heat", tell: func(s *story) {
		s.event(event.JointWarned, 1, 0, "hot").well()
	}, want: []expected{{kind: Warning, cause: HeatOrSupply}}},
	{name: "overload", tell: func(s *story) {
		s.event(event.JointOverloaded, 1, 0, "overloaded").ticks(30, held(1)).well()
	}, want: []expected{{kind: Hold, cause: Overload}}},
	{name: "stalled", tell: func(s *story) {
		s.event(event.JointStalled, 1, 0, "stalled").ticks(30, held(1)).well()
	}, want: []expected{{kind: Hold, cause: Stalled}}},
	{name: "a blind encoder ends the run", tell: func(s *story) {
		s.event(event.JointBlind, 1, 0, "blind").ticks(30, held(1)).event(event.Ended, 6, 0,
			"code 6: stopped by a motor")
	}, want: []expected{{kind: Hold, cause: Encoder}, {kind: Exit, cause: Encoder}}},
	{name: "heat ends the run at once", tell: func(s *story) {
		s.event(event.Ended, 6, 0, "code 6: stopped by a motor: servo: motor 3 (elbow_flex) on /dev/ttyACM0: "+
			servo.FaultTemperature.Error())
	}, want: []expected{{kind: Exit, cause: HeatOrSupply}}},
	{name: "limp", tell: func(s *story) {
		s.event(event.JointLimp, 1, 0, "limp").ticks(30, held(1))
	}, want: []expected{{kind: Hold, cause: Limp}}},
	{name: "replies get lost", tell: func(s *story) {
		for range 20 {
			s.ticks(10, nil).ticks(1, func(t *record.Tick) { t.Retried = 1 })
		}
	}, want: []expected{{kind: Warning, cause: RepliesLost}}},
	{name: "a pause of the host costs replies", tell: func(s *story) {
		s.ticks(1, func(t *record.Tick) { t.Lost = 6 }).ticks(3, func(t *record.Tick) { t.Retried = 1 }).well()
	}},
	{name: "replies are spoilt, which loses them, too", tell: func(s *story) {
		for range 20 {
			s.ticks(10, nil).ticks(1, func(t *record.Tick) { t.Retried, t.Spoilt = 1, 2 })
		}
	}, want: []expected{{kind: Warning, cause: RepliesSpoilt}}},
	{name: "replies are lost, most of them for stray bytes", tell: func(s *story) {
		for i := range 10 {
			s.ticks(20, nil).ticks(1, func(t *record.Tick) { t.Retried, t.Spoilt = 1, uint32(i%2) })
		}
	}, want: []expected{{kind: Warning, cause: RepliesSpoilt}}},
	{name: "replies are lost, few of them for stray bytes", tell: func(s *story) {
		for i := range 10 {
			s.ticks(20, nil).ticks(1, func(t *record.Tick) { t.Retried, t.Spoilt = 1, uint32(i%5/4) })
		}
	}, want: []expected{{kind: Warning, cause: RepliesLost}}},
	{name: "suspended", tell: func(s *story) {
		s.now += second
		s.event(event.Suspended, int64(3600*second), 0, "suspended").ticks(1, func(t *record.Tick) {
			t.Suspended, t.Skipped = int64(3600*second), 60
		}).ticks(10, starved).well()
	}, want: []expected{{kind: Stutter, cause: Suspended, words: "1h0m0s"}, {kind: Overrun, cause: Suspended}}},
	{name: "the host takes the CPU", tell: func(s *story) {
		s.gap(12).ticks(1, func(t *record.Tick) { t.Stolen = int64(150 * millisecond) }).well()
	},
		want: []expected{{kind: Overrun, cause: HostSteal, words: "12 periods"}}},
	{name: "the machine does not run it", tell: func(s *story) {
		s.gap(24).well()
	}, want: []expected{{kind: Overrun, cause: MachineBusy}}},
	{name: "the machine does not run it, and the arm starves of that", tell: func(s *story) {
		s.ask(200)
		s.gap(60).ticks(5, starved).well()
	}, want: []expected{{kind: Overrun, cause: MachineBusy}, {kind: Stutter, cause: MachineBusy}}},
	{name: "a slow tick", tell: func(s *story) {
		s.ticks(1, func(t *record.Tick) {
			t.Merge = int64(40 * millisecond)
		}).gap(2).ticks(6, nil).ticks(1, func(t *record.Tick) { t.OverrunOwn = int64(40 * millisecond) }).well()
	}, want: []expected{{kind: Overrun, cause: TickSlow, words: "40 ms to merge"}}},
	{name: "a slow bus", tell: func(s *story) {
		s.ticks(1, func(t *record.Tick) {
			t.Read = int64(40 * millisecond)
		}).gap(2).ticks(6, nil).ticks(1, func(t *record.Tick) { t.OverrunOwn = int64(40 * millisecond) }).well()
	}, want: []expected{{kind: Overrun, cause: BusSlow, words: "40 ms to read"}}},
	{name: "the tick hangs", tell: func(s *story) {
		s.now += second / 2
		s.event(event.TickMissing, int64(second/2), 0, "the tick hangs")
		s.Torn = true
	}, want: []expected{{kind: Overrun, cause: TickHung}, {kind: Exit, cause: TickHung, also: []Cause{Killed}}}},
	{name: "not conditioned", tell: func(s *story) {
		seq := s.ask(500)
		s.bySeq[seq].Rows = 0
		s.ticks(3, nil).answer(seq, nil)
		s.place += 20
		s.ticks(20, nil)
	}, want: []expected{{kind: Jump, cause: Unconditioned, words: "did not announce"}}},
	{name: "later than announced", tell: func(s *story) {
		seq := s.ask(500)
		s.ticks(9, nil).answer(seq, nil)
		s.place += 20
		s.ticks(30, func(t *record.Tick) { t.Dropped = 9 })
	}, want: []expected{{kind: Jump, cause: LateMerge, words: "announced 3 actions until its chunk, and 9 had run"}}},
	{name: "the policy jumps", tell: func(s *story) {
		s.jump(20)
	}, want: []expected{{kind: Jump, cause: PolicyJump, words: "shoulder_pan"}}},
	{name: "a fast arm is no jump", tell: func(s *story) { s.jump(3) }},
	{name: "killed", tell: func(s *story) { s.Torn = true }, want: []expected{{kind: Exit, cause: Killed}}},
	{name: "killed, and repaired", tell: func(s *story) {
		s.Repaired = true
	}, want: []expected{{kind: Exit, cause: Killed}}},
	{name: "ended as asked", tell: func(s *story) { s.event(event.Ended, 0, 0, "code 0: as asked") }},
	{name: "broke", tell: func(s *story) {
		s.event(event.Ended, 1, 0, "code 1: panic")
	}, want: []expected{{kind: Exit, cause: Failure, words: "panic"}}},
	{name: "a wrong setting", tell: func(s *story) {
		s.event(event.Ended, 3, 0, "code 3: the calibration")
	}, want: []expected{{kind: Exit, cause: BadConfig}}},
	{name: "real time refused", tell: func(s *story) {
		s.event(event.Ended, 5, 0, "code 5: no limit")
	}, want: []expected{{kind: Exit, cause: RealTime}}},
	{name: "gave up without a server", tell: func(s *story) {
		s.ask(200)
		s.event(event.SessionLost, int64(event.LossToken), 0, "session lost: token").ticks(12, nil).ticks(100,
			starved).event(event.Ended, 4, 0, "code 4: no chunk for 60 s")
	}, want: []expected{{kind: Stutter, cause: ServerGone}, {kind: Exit, cause: ServerGone}}},
	{name: "gave up without motors", tell: func(s *story) {
		s.event(event.BusLost, 2, 0, "motors").ticks(100, silent).event(event.Ended, 4, 0, "code 4: joints were silent")
	}, want: []expected{{kind: Stutter, cause: BusSilent}, {kind: Exit, cause: BusSilent}}},
	{name: "gave up without a server, and at last a cable", tell: func(s *story) {
		s.event(event.SessionLost, int64(event.LossToken), 0, "session lost: token").ticks(360, away).ticks(2,
			func(t *record.Tick) {
				silent(t)
				away(t)
			})
		s.event(event.Ended, 4, int64(event.LackSession), "code 4: no chunk for 6 s")
	}, want: []expected{{kind: Stutter, cause: ServerGone, also: []Cause{BusSilent}}, {kind: Exit, cause: ServerGone}}},
	{name: "likewise, of an older run", tell: func(s *story) {
		s.event(event.SessionLost, int64(event.LossToken), 0, "session lost: token").ticks(360, away).ticks(2,
			func(t *record.Tick) {
				silent(t)
				away(t)
			})
		s.event(event.Ended, 4, 0, "code 4: joints were silent for 6 s")
	}, want: []expected{{kind: Stutter, cause: ServerGone, also: []Cause{BusSilent}}, {kind: Exit, cause: ServerGone}}},
	{name: "gave up without a server, long before what is on record", tell: func(s *story) {
		s.event(event.SessionLost, int64(event.LossToken), 0, "session lost: token").ticks(360, func(t *record.Tick) {
			t.Action.N, t.NoPicture = 0, true
		})
		s.event(event.Ended, 4, int64(event.LackSession), "code 4: no chunk for 6 s")
	}, want: []expected{{kind: Exit, cause: ServerGone}}},
	{name: "gave up without motors, which answer at last", tell: func(s *story) {
		s.event(event.BusLost, 2, 0, "motors").ticks(360, silent).ticks(2, starved).event(event.Ended, 4,
			int64(event.LackJoints), "code 4: joints were silent")
	}, want: []expected{{kind: Stutter, cause: BusSilent}, {kind: Exit, cause: BusSilent}}},
	{name: "gave up without one motor", tell: func(s *story) {
		one := func(t *record.Tick) { starved(t); t.Stale, t.Frozen = 2, 2 }
		s.event(event.JointFrozen, 2, 0, "silent").ticks(360, one).ticks(2, starved).event(event.Ended, 4, 0,
			"code 4: joints were silent")
	}, want: []expected{{kind: Stutter, cause: MotorSilent}, {kind: Exit, cause: MotorSilent}}},
	{name: "gave up without pictures, which come at last", tell: func(s *story) {
		s.ticks(360, func(t *record.Tick) {
			t.Action.N, t.NoPicture = 0, true
		}).ticks(2, func(t *record.Tick) { t.Action.N = 0 })
		s.event(event.Ended, 4, int64(event.LackPictures), "code 4: no chunk for 6 s")
	}, want: []expected{{kind: Exit, cause: NoPicture}}},
	{name: "the first run of a bundle", tell: func(s *story) {
		s.event(event.FirstRun, 10_000, 30, "this bundle runs on this arm for the first time  speed 30 %").ticks(30,
			nil)
	}, want: []expected{{kind: Warning, cause: FirstRun, words: "speed 30 %"}}},
	{name: "garbage as answers", tell: func(s *story) {
		for range 5 {
			_ = s.v.Chunk(&record.Chunk{At: s.now, Outcome: "header"})
		}
		_ = s.v.Chunk(&record.Chunk{At: s.now, Outcome: "foreign"})
	}, want: []expected{{kind: Warning, cause: StrangeAnswers, words: "5 header, 1 foreign"}}},
	{name: "answers to another robot", tell: func(s *story) {
		for range 5 {
			_ = s.v.Chunk(&record.Chunk{At: s.now, Outcome: "foreign"})
		}
	}, want: []expected{{kind: Warning, cause: SameID}}},
}

func held(joints uint32) func(*record.Tick) { return func(t *record.Tick) { t.Held = joints } }

// slowly adds an answer that comes 200 ms too late.
func slowly(change func(*record.Chunk)) func(*story) {
	return func(s *story) {
		seq := s.ask(200)
		s.ticks(12, nil).ticks(12, starved).answer(seq, change)
		if change == nil || s.bySeq[seq].joined() != nil {
			s.ticks(9, nil)
		}
	}
}

// gap lets n periods pass without a tick.
func (s *story) gap(n uint64) *story {
	s.now += rt.Instant(n) * tickTime
	return s.ticks(1, func(t *record.Tick) { t.Skipped = n })
}

// jump moves the first joint by so much at once.
func (s *story) jump(by float32) {
	seq := s.ask(500)
	s.ticks(3, nil).answer(seq, nil)
	s.place += by
	s.ticks(20, nil)
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
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			s := newStory()
			s.well()
			tt.tell(s)
			var a *Audit
			if tt.audit != nil {
				var err error
				if a, err = ReadAudit(strings.NewReader(tt.audit(s)), s.Log); err != nil {
					t.Fatal(err)
				}
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
				if !strings.Contains(f.What+"\n"+text.String(), w.words) {
					t.Errorf("%s for %s says\n%swant %q", w.kind, w.cause, &text, w.words)
				}
				if !slices.Equal(f.Also, w.also) {
					t.Errorf("%s for %s: also %v, want %v", w.kind, w.cause, f.Also, w.also)
				}
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

// At least one case finds each cause, except Unknown and those before the first action.
func TestEveryCauseIsFound(t *testing.T) {
	found := map[Cause]bool{}
	for _, tt := range cases {
		for _, w := range tt.want {
			found[w.cause] = true
		}
	}
	apart := []Cause{Unknown, OutsideRange}
	for _, c := range Causes {
		if !found[c.Cause] && !slices.Contains(apart, c.Cause) {
			t.Errorf("no case finds %s", c.Cause)
		}
		if c.Description == "" || c.Cause.Description() != c.Description {
			t.Errorf("%s: %q and %q", c.Cause, c.Description, c.Cause.Description())
		}
	}
}

// A run that waits for its first chunk holds, for the reason that its ticks give. A run whose arm
// cannot be armed ends for that reason.
func TestBeforeTheFirstAction(t *testing.T) {
	none := func(flag func(*record.Tick)) func(*record.Tick) {
		return func(t *record.Tick) { t.Action.N = 0; flag(t) }
	}
	for _, tt := range []struct {
		tell func(*story)
		kind Kind
		want Cause
	}{
		{func(s *story) {
			s.ticks(300, none(func(t *record.Tick) { t.NoPicture = true })).well()
		}, Hold, NoPicture},
		{func(s *story) {
			s.ask(0)
			for range 10 {
				s.ticks(30, none(func(*record.Tick) {}))
				s.ask(0)
			}
			s.ticks(5, nil)
		}, Hold, LinkSilent},
		{func(s *story) {
			seq := s.ask(0)
			s.ticks(5, none(func(*record.Tick) {})).answer(seq, nil).ticks(20,
				none(func(*record.Tick) {})).event(event.Ended, 6, 0, "code 6: shoulder_lift stands outside its range")
		}, Exit, OutsideRange},
		{func(s *story) { s.ticks(60, none(func(*record.Tick) {})).well() }, "", ""}, // a second is not a hold
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

// For a record that begins in the middle of a stutter, the cause is Unknown.
func TestARecordThatBeginsInAStutter(t *testing.T) {
	s := newStory()
	s.ticks(20, starved)
	if found := s.explain(nil); len(found) != 1 || found[0].Cause != Unknown {
		t.Errorf("%+v, want one that is unknown", found)
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
		if _, err := ReadAudit(strings.NewReader(text), s.Log); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
	}
	a, err := ReadAudit(strings.NewReader(auditOf(1)+"torn{"), s.Log)
	if err != nil || a.Lines != 3 || a.Matched != 1 || a.Broken != 1 {
		t.Errorf("%+v, %v, want 3 lines, 1 of this robot, 1 broken", a, err)
	}
}

// An event code of a later edge-rt is not mistaken for the code with the same low bits. Findings
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
		if err := s.v.Event(&e); err != nil {
			t.Fatal(err)
		}
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
		a, err := ReadAudit(bytes.NewReader(data), s.Log)
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
	})
}
