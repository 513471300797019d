package why

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/rt"
)

const (
	// overrunGap is the maximum time between two overruns of one finding.
	overrunGap = second

	// stealLag is the maximum time from an overrun to the tick that reports the host's steal.
	stealLag = 1200 * millisecond

	// waitLimit is the length of a wait that counts as a hold: a wait for the first chunk after a
	// start, or for the next chunk after the arm's return.
	waitLimit = 3 * second

	// repliesSpan, repliesTicks and repliesLeast define a warning for lost or spoilt replies: at
	// least repliesLeast replies on at least repliesTicks ticks, without a gap of half of
	// repliesSpan. A pause of the host costs the replies of one tick.
	repliesSpan  = 5 * second
	repliesTicks = 5
	repliesLeast = 8

	// strangeLeast is the minimum of strange answers for a warning, and jumpsGap the maximum time
	// between two jumps of one finding.
	strangeLeast = 3
	jumpsGap     = second
)

// Explain returns all findings of a run, in order of time. The audit a may be nil.
func Explain(l *Log, a *Audit) []Finding {
	l.sorted()
	x := newExplainer(l, a)
	var all []Finding
	for i := range l.starved {
		all = append(all, x.stutter(&l.starved[i]))
	}
	all = append(all, x.holds(timesOf(all))...)
	waits := timesOf(all)
	all = append(all, slices.DeleteFunc(x.leader(), func(f Finding) bool {
		return f.Cause == LeaderSilent && waits.overlap(f.From, f.To, LeaderSilent) // a wait has this cause, too
	})...)
	all = append(all, x.overruns()...)
	all = append(all, x.jumpFindings()...)
	all = append(all, x.warnings(timesOf(all))...)
	if f, ok := x.exit(); ok {
		all = append(all, f)
	}
	for i := range all {
		f := &all[i]
		slices.SortStableFunc(f.Evidence, func(a, b Evidence) int { return cmp.Compare(a.At, b.At) })
		f.Evidence = slices.Compact(f.Evidence)
	}
	slices.SortStableFunc(all, func(a, b Finding) int { return cmp.Compare(a.From, b.From) })
	return all
}

// holds returns the pauses, the joints that were not driven, and the waits without a due action.
func (x *explainer) holds(stutters times) (all []Finding) {
	l := x.log
	held := times{}
	add := func(f Finding) {
		all = append(all, f)
		held.add(f)
	}
	for i := range l.pauses {
		add(x.pause(&l.pauses[i]))
	}
	for i := range l.idles {
		s := &l.idles[i]
		if s.to-s.from >= waitLimit && l.last-s.to > l.period { // the last wait is the parking of the arm
			add(x.wait(s))
		}
	}
	for i := range l.silents {
		s := &l.silents[i]
		if s.to-s.from >= aroundSilent && !stutters.overlap(s.from-second, s.to+second, silences...) &&
			!held.overlap(s.from-second, s.to+second, silences...) {
			// x.bus cannot return nil here, because each tick of s has the flag BusSilent
			add(s.finding(Hold, x.bus(s, s.from-second)))
		}
	}
	for _, e := range l.between(l.first, l.last-endTicks*l.period, event.JointFrozen, event.BusBack, event.JointHeld,
		event.JointOverloaded, event.JointBlind, event.JointLimp, event.JointStalled, event.ArmHeld) {
		if e.code == event.JointFrozen && x.disturbed(e.At) {
			continue // the replies were lost because the process did not run
		}
		f := x.jointHold(e)
		same := []Cause{f.Cause}
		if slices.Contains(silences, f.Cause) {
			same = silences
		}
		if !stutters.overlap(f.From-second, f.To, same...) && !held.overlap(f.From-second, f.To+second, same...) {
			add(f)
		}
	}
	return slices.DeleteFunc(all, func(f Finding) bool { // leaves out silences that begin a restart or an unplugging
		return (f.Cause == MotorSilent || f.Cause == BusSilent) &&
			held.overlap(f.From, f.To+3*second, Restarted, Unplugged)
	})
}

// finding returns a stretch of ticks with its reason.
func (s *span) finding(kind Kind, r *reason) Finding {
	f := found(kind, r.cause, s.from, s.to, r.evidence...)
	f.Ticks = s.ticks
	return f
}

// endTicks is the number of ticks at the end of a run on which the arm is released.
const endTicks = 3

// silences are the causes that may be several views of one failure.
var silences = []Cause{MotorSilent, BusSilent, Unplugged, Restarted}

// While no action is due, motors that are silent for at least aroundSilent are reported as a hold.
const aroundSilent = 300 * millisecond

// pause explains a pause: by an operator, or by the restart of a motor.
func (x *explainer) pause(s *span) Finding {
	l := x.log
	r := x.away(s.from-second, s.from+2*l.period)
	if r == nil && !l.askedToPause(s.from-second, s.from+second) {
		r = x.handOver(s.from-second, s.from+second)
	}
	f := s.finding(Hold, cmp.Or(r, x.betweenEpisodes(s), because(Paused)))
	for _, e := range l.between(s.from-second, s.to+second, event.Operated) {
		f.Evidence = append(f.Evidence, Evidence{e.At, "an operator: " + e.Text})
	}
	for _, e := range l.between(s.from+2*l.period, s.to, event.BusBack) {
		if r := x.away(e.At, e.At); r != nil && r.cause != f.Cause {
			f.Also, f.Evidence = append(f.Also, r.cause), append(f.Evidence, r.evidence...)
			if r.cause == Restarted {
				f.Cause, f.Also[len(f.Also)-1] = Restarted, f.Cause
			}
		}
	}
	if len(f.Evidence) == 0 {
		f.Evidence = []Evidence{{s.from, "paused; the reason is not on this record"}}
	}
	return f
}

// askedToPause reports whether an operator requested a pause in a stretch of time.
func (l *Log) askedToPause(from, to rt.Instant) bool {
	return has(l.between(from, to, event.Operated), event.Operated, event.WordPause)
}

// betweenEpisodes explains a pause by the end of an episode, unless an operator requested the
// pause.
func (x *explainer) betweenEpisodes(s *span) *reason {
	l := x.log
	end := len(l.cuts) - len(since(l.cuts, s.from+second/2))
	if end == 0 || !l.cuts[end-1].ended {
		return nil
	}
	last := &l.cuts[end-1]
	if l.askedToPause(last.at, s.from+second/2) {
		return nil
	}
	r := because(Between)
	r.add(last.at, "episode %d of the data set ended (%s)", last.number, last.outcome)
	if end < len(l.cuts) {
		r.add(l.cuts[end].at, "episode %d began", l.cuts[end].number)
	}
	return r
}

// wait explains a stretch of time in which no action ran and no action was due.
func (x *explainer) wait(s *span) Finding {
	var r *reason
	missing, _ := x.log.due(s.to)
	for _, ask := range []func() *reason{
		func() *reason { return x.away(s.from-idleAfter-second, s.to+aroundBack) },
		func() *reason { return x.bus(s, s.from-second) },
		func() *reason {
			silent := x.log.between(s.from-idleAfter-second, s.to, event.LeaderSilent)
			if len(silent) == 0 {
				return nil
			}
			return because(LeaderSilent, evidenceOf(silent)...)
		},
		func() *reason { return x.handOver(s.from-idleAfter-second, s.to) },
		func() *reason { return x.pictures(s, s.from-second) },
		func() *reason { return x.session(s.from-second, s.to) },
		func() *reason {
			if missing == nil {
				return nil
			}
			if r := x.slowPolicy(missing.At, s.from, s.to); r != nil {
				return r
			}
			return x.fate(missing, s.to, s.to)
		},
	} {
		if r = ask(); r != nil {
			break
		}
	}
	f := s.finding(Hold, cmp.Or(r, because(Unknown)))
	if s.from == x.log.first {
		f.What = "nothing has run yet"
	}
	return f
}

// handOver explains a stretch of time by a takeover: a person took the arm or gave it back.
func (x *explainer) handOver(from, to rt.Instant) *reason {
	if told := x.log.between(from, to, event.PhaseChanged); len(told) > 0 {
		return because(HandOver, evidenceOf(told)...)
	}
	return nil
}

// leader returns the findings of a leader arm that was silent while it led.
func (x *explainer) leader() (all []Finding) {
	for _, e := range x.log.between(x.log.first, x.log.last, event.LeaderSilent) {
		f := found(Hold, LeaderSilent, e.At, x.log.last, e.Evidence)
		for back := range x.log.follow(e.At, x.log.last, event.LeaderBack, event.PhaseChanged) {
			f.To = back.At
			f.Evidence = append(f.Evidence, back.Evidence)
			break
		}
		all = append(all, f)
	}
	return append(all, x.leaderJoints()...)
}

// leaderJoints returns the findings of joints of the leader that did not lead. A further reason for the same joints
// within the time of a finding becomes part of this finding.
func (x *explainer) leaderJoints() (all []Finding) {
	l := x.log
	newest := map[int64]int{} // index of the newest finding, by joint set
	for _, e := range l.between(l.first, l.last, event.LeaderHeld) {
		if i, known := newest[e.a]; known && e.At < all[i].To {
			if len(all[i].Evidence) < maxEvidence {
				all[i].Evidence = append(all[i].Evidence, e.Evidence)
			}
			continue
		}
		f := found(Hold, LeaderJoint, e.At, l.last, e.Evidence)
		f.What = l.jointNames(uint32(e.a))
		left := e.a
		for back := range l.follow(e.At, l.last, event.LeaderLeads, event.PhaseChanged) {
			if left &^= back.a; back.code == event.PhaseChanged || back.code == event.LeaderLeads && left == 0 {
				f.To = back.At
				f.Evidence = append(f.Evidence, back.Evidence)
				break
			}
		}
		newest[e.a] = len(all)
		all = append(all, f)
	}
	return all
}

// jointCauses maps the events about joints to causes.
var jointCauses = map[event.Code]Cause{
	event.JointFrozen: MotorSilent, event.JointHeld: HeatOrSupply, event.JointOverloaded: Overload,
	event.JointBlind: Encoder, event.JointLimp: Limp, event.JointStalled: Stalled, event.ArmHeld: HeldJoints,
}

// jointCause returns the cause of an event about joints. For a complaint of a motor about its supply, the cause is
// Supply.
func jointCause(e happened) Cause {
	if of, _ := event.ComplaintOf(e.b); e.code == event.JointHeld && of == event.ComplainsOfSupply {
		return Supply
	}
	return jointCauses[e.code]
}

// jointHold explains an event about joints that were not driven, or about the return of the arm.
func (x *explainer) jointHold(e happened) (f Finding) {
	l := x.log
	text, _, _ := strings.Cut(e.Text, "  ")
	f = found(Hold, jointCause(e), e.At, e.At, Evidence{e.At, text})
	if complaint := event.ComplaintText(e.b); complaint != "" &&
		(e.code == event.JointHeld || e.code == event.ArmHeld) {
		f.Evidence = append(f.Evidence, Evidence{e.At, complaint})
	}
	if e.code == event.BusBack {
		r := x.away(e.At, e.At)
		f.Cause, f.Evidence = r.cause, r.evidence
		f.What = l.jointNames(uint32(e.b >> 1))
		return f
	}
	set := uint32(e.a)
	if f.What = l.jointNames(set); e.code == event.JointFrozen && bits.OnesCount32(set) > 1 {
		f.Cause = BusSilent
	}
	for _, c := range since(l.joints, e.At+1) {
		if c.held&set == 0 {
			f.To = c.at
			return f
		}
	}
	f.To = l.last
	return f
}

// late explains a gap without ticks: by the ticks themselves, by the host, or by the machine.
func (x *explainer) late(s *skip) *reason {
	l := x.log
	r := &reason{}
	took := s.read + s.act + s.merge + s.ask
	if own := since(l.own, s.to); len(own) > 0 && own[0].at <= s.to+stealLag {
		r.cause = TickSlow
		if 2*s.read > took {
			r.cause = BusSlow
		}
		r.add(s.to, "the tick before took %s of its own: %s to read the arm, %s to act, %s to merge, %s to ask",
			seconds(own[0].took), seconds(s.read), seconds(s.act), seconds(s.merge), seconds(s.ask))
		return r
	}
	var stolen time.Duration
	for _, c := range since(l.counts, s.from) {
		if c.at > s.to+stealLag {
			break
		}
		stolen += time.Duration(c.stolen)
	}
	r.cause = MachineBusy
	if lost := time.Duration(s.to - s.from); 3*stolen >= lost {
		r.cause = HostSteal
	}
	r.add(s.to, "%d periods without a tick; the tick itself took %s; the host took %s of the CPUs around it", s.periods,
		seconds(took), seconds(stolen))
	return r
}

// overruns returns the findings of ticks that came late by a period or more.
func (x *explainer) overruns() (all []Finding) {
	for i := range x.log.skips {
		s := &x.log.skips[i]
		if s.suspended {
			continue
		}
		r := x.late(s)
		if n := len(all); n > 0 && all[n-1].Cause == r.cause && s.from-all[n-1].To <= overrunGap {
			f := &all[n-1]
			f.To, f.Ticks = s.to, f.Ticks+int(s.periods)
			if len(f.Evidence) < maxEvidence {
				f.Evidence = append(f.Evidence, r.evidence...)
			}
			continue
		}
		f := found(Overrun, r.cause, s.from, s.to, r.evidence...)
		f.Ticks = int(s.periods)
		all = append(all, f)
	}
	for _, e := range x.log.between(0, x.log.last+minute, event.TickMissing) {
		if n := len(all); n > 0 && all[n-1].Cause == TickHung && e.At-all[n-1].To <= 2*second {
			all[n-1].To = e.At
			all[n-1].Evidence = append(all[n-1].Evidence, e.Evidence)
			continue
		}
		all = append(all, found(Overrun, TickHung, e.At-rt.Instant(e.a), e.At, e.Evidence))
	}
	for _, e := range x.log.between(x.log.first, x.log.last, event.Suspended) {
		all = append(all, found(Overrun, Suspended, e.At, e.At, x.suspended(e.At, e.At).evidence...))
	}
	return all
}

const minute = 60 * second

// jumpFindings returns the findings of actions that are far from the extrapolation of the two actions before them.
func (x *explainer) jumpFindings() (all []Finding) {
	l := x.log
	if s := l.Run["schedule"]; s == "teleop" || s == "replay" {
		return nil // a person may move the arm in any way
	}
	units := strings.Split(l.Run["units"], ",")
	var together int64 // bit set of the joints that jump on this tick
	for i := range l.jumps {
		j := &l.jumps[i]
		if i == 0 || j.at != l.jumps[i-1].at {
			together = 0
			for k := i; k < len(l.jumps) && l.jumps[k].at == j.at; k++ {
				together |= 1 << l.jumps[k].joint
			}
		}
		if j.joint < len(units) && units[j.joint] == gripUnit && j.by < gripLimit {
			continue
		}
		r := because(PolicyJump)
		q := l.bySeq[j.seq]
		switch told := x.jumped(j.at, together); {
		case len(told) > 0:
			r.cause, r.evidence = PositionJump, evidenceOf(told)
		case j.within:
			r.add(j.at, "the chunk of request %d goes that way by itself", j.seq)
		case q != nil && q.Rows == 0:
			r.cause = Unconditioned
			r.add(j.at, "request %d did not announce the actions that would run meanwhile (--schedule %s)", j.seq,
				l.Run["schedule"])
		case j.ran > j.delay:
			r.cause = LateMerge
			r.add(j.at, "request %d announced %d actions until its chunk, and %d had run", j.seq, j.delay, j.ran)
		default:
			r.add(j.at, "request %d announced the actions that would run meanwhile, and its chunk came in time", j.seq)
		}
		if n := len(all); n > 0 && all[n-1].Cause == r.cause && j.at-all[n-1].To <= jumpsGap {
			if j.at > all[n-1].To {
				all[n-1].To, all[n-1].Ticks = j.at, all[n-1].Ticks+1
			}
			continue
		}
		f := found(Jump, r.cause, j.at, j.at, r.evidence...)
		f.Ticks = 1
		f.What = fmt.Sprintf("%s, %.1f units off", l.jointNames(1<<j.joint), j.by)
		all = append(all, f)
	}
	return all
}

// jumped returns the jumps in the positions of the given joints shortly before their actions
// jumped. One wrong position changes the policy's actions for all joints.
func (x *explainer) jumped(at rt.Instant, joints int64) []happened {
	return slices.DeleteFunc(x.log.between(at-jumpsGap, at, event.JointJumped), func(e happened) bool {
		return e.a&joints == 0
	})
}

// warnings returns the faults without an effect on the arm.
func (x *explainer) warnings(others times) (all []Finding) {
	l := x.log
	spoilt := x.replies(RepliesSpoilt, others, func(c count) uint32 {
		return c.spoilt
	}, "runs of bytes that were no frame")
	lost := x.replies(RepliesLost, others, func(c count) uint32 { return c.retried + c.lost },
		"replies that did not come at first")
	same := timesOf(spoilt)
	lost = slices.DeleteFunc(lost, func(f Finding) bool { return same.overlap(f.From, f.To, RepliesSpoilt) })
	x.spoiltReplies(lost)
	all = append(lost, spoilt...)
	if len(l.strange) >= strangeLeast {
		all = append(all, x.strangeAnswers())
	}
	all = append(all, x.slowWarning(others)...)
	for _, c := range []struct {
		code  event.Code
		cause Cause
	}{{event.JointWarned, HeatOrSupply}, {event.JointJumped, PositionJump}, {event.CameraSilent, CameraSilent},
		{event.CameraSpoilt, CameraSpoilt}, {event.FirstRun, FirstRun}} {
		for _, e := range l.between(0, l.last+minute, c.code) {
			to := e.At
			if c.code == event.CameraSilent {
				for back := range l.follow(e.At, l.last, event.CameraBack) {
					if back.a == e.a {
						to = back.At
						break
					}
				}
			}
			if !others.overlap(e.At-second, to, c.cause) {
				all = append(all, found(Warning, c.cause, e.At, to, e.Evidence))
			}
		}
	}
	return all
}

// disturbed reports whether the machine kept the tick from running around an instant. Then replies are lost, too.
func (x *explainer) disturbed(at rt.Instant) bool {
	const around = 200 * millisecond
	skips := since(x.log.skips, at-around)
	return len(skips) > 0 && skips[0].from <= at+around
}

// strangeAnswers warns of answers that belong to no request of this robot. If such answers can be decoded, another
// robot uses the same name; garbage cannot be decoded.
func (x *explainer) strangeAnswers() Finding {
	s := x.log.strange
	n, order := map[string]int{}, []string{}
	for _, c := range s {
		if n[c.Outcome] == 0 {
			order = append(order, c.Outcome)
		}
		n[c.Outcome]++
	}
	var text []string
	for _, o := range order {
		text = append(text, strconv.Itoa(n[o])+" "+o)
	}
	f := found(Warning, StrangeAnswers, s[0].At, s[len(s)-1].At, Evidence{s[0].At,
		fmt.Sprintf("%d answers to no request of this run were dropped: %s", len(s), strings.Join(text, ", "))})
	if n["foreign"] > 0 && n["header"]+n["body"] == 0 {
		f.Cause = SameID
		f.Evidence = append(f.Evidence, Evidence{f.From,
			"they can be read: they answer the requests of another robot with this name"})
	}
	return f
}
