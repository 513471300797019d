package why

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"time"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/rt"
)

// maxEvidence bounds the evidence of one reason.
const maxEvidence = 8

// reason is a possible explanation.
type reason struct {
	cause    Cause
	evidence []Evidence
	began    rt.Instant // 0: not known; a reason that began after the stutter only prolongs the stutter
}

func because(cause Cause, evidence ...Evidence) *reason {
	return &reason{cause: cause, evidence: evidence}
}

// add adds evidence and returns r.
func (r *reason) add(at rt.Instant, format string, args ...any) *reason {
	r.evidence = append(r.evidence, Evidence{at, fmt.Sprintf(format, args...)})
	return r
}

// explainer explains the parts of one log.
type explainer struct {
	log     *Log
	audit   *Audit
	typical map[Cause]time.Duration
	usual   time.Duration // usual time of a whole round trip
	usually computing     // the server's part of the usual time
	answers []rt.Instant  // sorted instants of the first answers
	overdue stretches     // for answers in a session that had ended: times from request to answer
	slowly  []happened    // events that name a slow policy
	horizon time.Duration // duration of a chunk's actions; 0: unknown
}

func newExplainer(l *Log, a *Audit) *explainer {
	x := &explainer{
		log:     l,
		audit:   a,
		typical: map[Cause]time.Duration{},
		usually: l.usually(),
		answers: l.answers(),
		slowly:  l.between(0, l.last, event.SlowPolicy),
	}
	for _, q := range l.requests {
		for i := range q.chunks {
			if c := &q.chunks[i]; c.Outcome == "epoch" {
				x.overdue.add(q.At, c.At)
			}
		}
	}
	for _, p := range parts {
		x.typical[p.cause] = l.typical(p.took)
	}
	x.usual = l.typical(func(q *request) time.Duration { return time.Duration(q.arrived().At - q.At) })
	rows, _ := strconv.Atoi(l.Run["horizon"])
	ticks, _ := strconv.Atoi(cmp.Or(l.Run["interpolation_multiplier"], "1")) // of one action
	x.horizon = time.Duration(rows) * time.Duration(ticks) * time.Duration(l.period)
	return x
}

// stutter explains a stretch of starved ticks. It tests the reasons in an order in which an earlier reason may cause
// the later reasons: on a suspended machine the bus is silent, and for an unplugged arm no chunk is requested. The
// first reason that fits is the cause; the finding mentions the further reasons.
func (x *explainer) stutter(s *span) Finding {
	l := x.log
	kind := Stutter
	if s.old() {
		kind = Stale
	}
	missing, last := l.due(s.from)
	since := s.from - 5*second // start of the time in which the fault can lie
	if last != nil {
		since = max(since, last.joined().At)
	}
	asked := since // requests before this instant do not matter
	if missing != nil {
		asked = missing.At
	}
	var main *reason
	var also []Cause
	for _, ask := range []func() *reason{
		func() *reason { return x.suspended(since-second, s.to) },
		func() *reason { return x.bus(s, since) },
		func() *reason { return x.newEpisode(s, missing, last) },
		func() *reason { return x.resumed(s) },
		func() *reason { return x.machine(asked, s.to) },
		func() *reason { return x.joint(s, since) },
		func() *reason { return x.old(s, last) },
		func() *reason { return x.pictures(s, since) },
		func() *reason { return x.unusable(missing, s.to) },
		func() *reason { return x.session(asked-100*millisecond, s.to) },
		func() *reason { return x.slowPolicy(asked, s.from, s.to) },
	} {
		r := ask()
		switch {
		case r == nil:
		case r.began > s.from+prolongs:
			also = append(also, r.cause)
		case main == nil:
			main = r
		case r.cause != main.cause && !slices.Contains(also, r.cause):
			also = append(also, r.cause)
			main.evidence = append(main.evidence, r.evidence...)
		}
	}
	if main == nil {
		main = x.request(s, missing, last) // no other reason fits, so the request itself is explained
	}
	if main == nil {
		main = because(Unknown).add(s.from, "the record holds nothing before it that explains it")
	}
	f := s.finding(kind, main)
	f.Also = also
	return f
}

// suspended explains a stretch of time by a suspension of the machine.
func (x *explainer) suspended(from, to rt.Instant) *reason {
	for e := range x.log.follow(from, to, event.Suspended) {
		return because(Suspended).add(e.At, "the machine was suspended for %s; earlier requests are void",
			seconds(e.a))
	}
	return nil
}

const (
	// aroundBack is the maximum time from a silence to the arm's return. In this time the arm is opened and checked.
	aroundBack = 1500 * millisecond

	// A reason that began later than this after the beginning of a stutter only prolongs that stutter.
	prolongs = 250 * millisecond
)

// bus explains a stretch of ticks on which too many motors were silent, so that nothing moved.
func (x *explainer) bus(s *span, since rt.Instant) *reason {
	if 2*s.busSilent <= s.ticks {
		return nil
	}
	l := x.log
	r := x.away(s.from-second, s.to+aroundBack)
	if r == nil {
		r = because(BusSilent)
	}
	for _, e := range l.between(max(since, s.from-second), s.to, event.BusLost) {
		r.add(e.At, "%d motors%s silent at once: nothing is sent", e.a, l.ofPart(e.b))
	}
	if r.cause != BusSilent {
		return r
	}
	if names := l.jointNames(s.stale | s.frozen); names != "" {
		r.add(s.from, "no answer from %s", names)
		if bits.OnesCount32(s.stale|s.frozen) == 1 {
			r.cause = MotorSilent
		}
	}
	n, late := l.spoilt(s.from-second/2, s.to), x.stopped(s.from-2*second/5, s.to)
	switch {
	case n >= 2*s.ticks, 2*n >= s.ticks && late == nil:
		r.cause = RepliesSpoilt
		r.add(s.from, "%d runs of bytes on the line that were no frame", n)
	case late != nil:
		// a process that does not run misses replies, or reads the reply to an earlier request
		r.cause = late.cause
		r.evidence = append(r.evidence, late.evidence...)
	}
	return r
}

// spoilt returns the number of unexpected frames, and of byte sequences that are not a frame, on the bus.
func (l *Log) spoilt(from, to rt.Instant) (n int) {
	for _, c := range since(l.counts, from) {
		if c.at > to {
			break
		}
		n += int(c.spoilt)
	}
	return n
}

// gone returns for how long no tick ran around a stretch of time, and the longest gap without
// ticks; nil if there is no gap.
func (l *Log) gone(from, to rt.Instant) (gone rt.Instant, worst *skip) {
	skips := since(l.skips, from)
	for i := range skips {
		s := &skips[i]
		if s.from > to {
			break
		}
		if !s.suspended {
			gone += s.to - s.from
			if worst == nil || s.periods > worst.periods {
				worst = s
			}
		}
	}
	return gone, worst
}

// stopped explains a stretch of time if at least a fifth of it passed without ticks. Otherwise it returns nil.
func (x *explainer) stopped(from, to rt.Instant) *reason {
	gone, worst := x.log.gone(from, to)
	if worst == nil || 5*gone < to-from {
		return nil
	}
	return x.late(worst)
}

// away explains a stretch of time by an absence of the arm, which was unplugged or whose motor restarted.
func (x *explainer) away(from, to rt.Instant) *reason {
	backs := x.log.between(from, to, event.BusBack)
	if len(backs) == 0 {
		return nil
	}
	e := backs[0]
	r := because(Unplugged)
	joints := uint32(e.b >> 1)
	why := hotplug.Cause(e.a & (1<<event.CauseBits - 1))
	if why == hotplug.Restarted || joints != 0 {
		r.cause = Restarted
	}
	text := "the arm" + x.log.ofPart(e.a>>event.CauseBits) + " is back: " + why.String()
	if joints != 0 {
		text += " (" + x.log.jointNames(joints) + ")"
	}
	if e.b&1 != 0 {
		text += "; it waits for an operator (edge-rt ctl resume)"
	}
	r.add(e.At, "%s", text)
	return r
}

// newEpisode explains a stutter by a new episode: when an operator began the episode, no action was left.
func (x *explainer) newEpisode(s *span, missing, last *request) *reason {
	if missing == nil || last == nil || !missing.Start || missing.Episode == last.Episode {
		return nil
	}
	r := because(NewEpisode)
	// The text omits missing.Episode, which counts resets, not the episodes of a dataset.
	r.add(missing.At, "the policy begins anew: the actions left are dropped; request %d is its first", missing.Seq)
	// The operator acts first, and the event of the operation is recorded later.
	for _, e := range x.log.between(missing.At-second, s.to+2*second, event.Operated) {
		if e.a == int64(event.WordReset) || e.a == int64(event.WordTask) {
			r.add(e.At, "an operator: %s", e.Text)
		}
	}
	return r
}

// resumed explains a stutter by the pause before it: the actions from before the pause are too old
// or gone.
func (x *explainer) resumed(s *span) *reason {
	pauses := since(x.log.pauses, s.from-spanGap)
	if len(pauses) == 0 || pauses[0].to > s.from {
		return nil
	}
	p := &pauses[0]
	r := because(Paused)
	if x.betweenEpisodes(p) != nil {
		r.cause = Between
	}
	r.add(p.to, "a pause of %s ends: the first chunk after it is on its way", seconds(p.to-p.from))
	return r
}

// unusable explains a stutter by answers that came but could not be used.
func (x *explainer) unusable(missing *request, until rt.Instant) *reason {
	if missing == nil {
		return nil
	}
	for _, q := range since(x.log.requests, missing.At) {
		if q.At > until {
			break
		}
		if q.Seq >= missing.Seq && len(q.chunks) > 0 && badChunk(q.arrived().Outcome) {
			c := q.arrived()
			return because(BadChunk).add(c.At, "the chunk of request %d came after %s and was dropped: %s", q.Seq,
				seconds(c.At-q.At), c.Outcome)
		}
	}
	return nil
}

// machine explains a stutter by missing ticks, if at least a third of the stretch of time passed without ticks.
func (x *explainer) machine(since, to rt.Instant) *reason {
	gone, worst := x.log.gone(since, to)
	if worst == nil || gone < machineShare || 3*gone < to-since {
		return nil
	}
	r := x.late(worst)
	r.add(worst.to, "of the %s since the request %s went by without ticks", seconds(to-since),
		seconds(gone))
	return r
}

// machineShare is the shortest time without ticks that machine accepts as a cause.
const machineShare = 150 * millisecond

// joint explains a stutter by a silent motor, which keeps the robot from requesting chunks.
func (x *explainer) joint(s *span, since rt.Instant) *reason {
	if 2*s.busSilent > s.ticks {
		return nil
	}
	frozen := x.log.between(max(since, s.from-2*second), s.to, event.JointFrozen)
	if len(frozen) == 0 && s.frozen == 0 {
		return nil
	}
	r := x.away(s.from-second, s.to+aroundBack)
	if r == nil {
		r = because(MotorSilent)
	}
	all := s.frozen
	for _, e := range frozen[:min(len(frozen), maxEvidence)] {
		r.add(e.At, "no answer from %s: no chunk is requested until it answers", x.log.jointNames(uint32(e.a)))
		all |= uint32(e.a)
	}
	if len(frozen) > 0 {
		r.began = frozen[0].At
	} else {
		r.began = s.frozenAt
		r.add(max(s.from, s.frozenAt), "no answer from %s: no chunk is requested until it answers",
			x.log.jointNames(s.frozen))
	}
	if bits.OnesCount32(all) > 1 && r.cause == MotorSilent {
		r.cause = BusSilent
	}
	return r
}

// old reports whether the ticks starved because the remaining actions were too old. The first such tick drops these
// actions, so that the later ticks have no action left.
func (s *span) old() bool { return s.firstOld || 4*s.tooOld >= s.ticks && s.tooOld > 0 }

// old explains a stutter by actions that were too old to run.
func (x *explainer) old(s *span, last *request) *reason {
	if !s.old() {
		return nil
	}
	r := because(ActionTooOld)
	if last != nil && last.sent != nil && last.sent.Observed != 0 {
		picture := time.Duration(last.At - last.sent.Observed)
		r.add(last.At, "request %d went out with a picture that was %s old", last.Seq, seconds(picture))
		if limit := x.log.limit("max_action_age"); limit > 0 && 2*picture > limit {
			r.cause = CameraSilent
		}
	}
	if x.tooSlow() && r.cause == ActionTooOld {
		r.cause = SlowPolicy
		x.addUsual(r, s.from)
	}
	r.add(s.from, "actions were left, all older than --max-action-age %s", x.log.Run["max_action_age"])
	return r
}

// pictures explains a stretch of time by a camera without pictures.
func (x *explainer) pictures(s *span, since rt.Instant) *reason {
	silent := x.log.between(since, s.to, event.CameraSilent)
	if 2*s.noPicture < s.ticks || s.noPicture == 0 {
		return nil // old pictures are sent, too
	}
	r := because(NoPicture, evidenceOf(silent)...)
	if len(silent) > 0 {
		r.cause = CameraSilent
	}
	r.add(s.from, "on %d of %d ticks a camera had given no picture yet", s.noPicture, s.ticks)
	return r
}

// request explains a stutter by the fate of the request whose answer was missing.
func (x *explainer) request(s *span, missing, last *request) *reason {
	l := x.log
	if missing == nil || missing.At >= s.from-2*l.period {
		if last == nil {
			return nil
		}
		if missing != nil && (l.Run["schedule"] == "sync" || missing.At-last.joined().At > rt.Instant(x.horizon/2)) {
			return because(Schedule).add(missing.At, "--schedule %s asked when nothing was left: request %d",
				l.Run["schedule"], missing.Seq)
		}
		return x.blame(last)
	}
	// If the request had less time than two usual round trips, the cause is not this request but the previous request.
	if last != nil && time.Duration(missing.Runway) < 2*x.usual {
		if r := x.blame(last); r != nil {
			return r
		}
	}
	return x.fate(missing, s.from, s.to)
}

// blame explains a stutter by the last merged chunk, if this chunk arrived so late that few of its
// actions were left.
func (x *explainer) blame(last *request) *reason {
	if c := last.joined(); 2*c.Dropped < c.Rows {
		return nil
	}
	return x.slow(last)
}
