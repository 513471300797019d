package why

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
)

const (
	// maxKept bounds each list of a Log, since a file may come from any source. It is enough for a
	// day of requests.
	maxKept = 1 << 20

	// spanGap is the maximum time between two ticks of one stutter.
	spanGap = 500 * millisecond
)

// span is a stretch of ticks of one kind.
type span struct {
	from, to rt.Instant
	ticks    int

	tooOld, busSilent, noPicture int    // numbers of ticks with these flags
	stale, frozen                uint32 // joints with these flags on any tick
	frozenAt                     rt.Instant
	firstOld                     bool // the first tick found only actions that were too old
}

// skip is a tick that came late by one or more periods.
type skip struct {
	from, to              rt.Instant
	periods               uint64
	read, act, merge, ask int64 // ns that the parts of the previous tick took
	suspended             bool
}

// request is a request with its outcome.
type request struct {
	record.Request
	sent   *record.Sent
	chunks []record.Chunk // in order of arrival
}

// joined returns the merged chunk; nil if no chunk was merged.
func (r *request) joined() *record.Chunk {
	for i := range r.chunks {
		if r.chunks[i].Outcome == record.Joined {
			return &r.chunks[i]
		}
	}
	return nil
}

// happened is an event.
type happened struct {
	Evidence
	code event.Code // None: the event has no code, or a code of a later edge-rt
	a, b int64
}

// cut is the beginning or the end of an episode of a dataset.
type cut struct {
	at      rt.Instant
	number  uint32
	ended   bool
	outcome string
}

// opened is a session with the instant of its opening.
type opened struct {
	at rt.Instant
	record.Session
}

// jump is an action far from the extrapolation of the two actions before it.
type jump struct {
	at     rt.Instant
	joint  int
	by     float64
	within bool // all three actions are from one chunk
	seq    uint64
	delay  int32 // rows announced to run before the chunk's arrival
	ran    int32
}

// count holds the counters of a tick, of the host and the bus.
type count struct {
	at                    rt.Instant
	stolen                int64
	retried, lost, spoilt uint32
}

// overrun reports an earlier tick whose computation and waits took longer than a period.
type overrun struct {
	at   rt.Instant
	took int64
}

// jointsChange is a change of the set of joints that are not driven.
type jointsChange struct {
	at   rt.Instant
	held uint32
}

// Log holds the data of one run's records that a cause may need.
type Log struct {
	Run      map[string]string
	Wall     int64 // Unix time of instant 0, in ns
	Torn     bool  // the last file has no end
	Repaired bool  // the last file had no end and was repaired
	Full     bool  // the record has more than maxKept messages of a kind

	first, last rt.Instant
	Ticks       int
	period      rt.Instant

	starved, pauses, idles []span
	silents                []span // ticks without a due action on which too many motors were silent, so nothing moved
	skips                  []skip
	own                    []overrun
	counts                 []count
	joints                 []jointsChange
	jumps                  []jump
	requests               []*request
	bySeq                  map[uint64]*request
	// for each request, the instant at which goals of its chunk were first written
	ran      map[uint64]rt.Instant
	strange  []record.Chunk // chunks that answer no request of this run
	events   []happened
	sessions []opened
	cuts     []cut

	lacks      event.Lacks // duration of each event.Lack since the last merged chunk
	actions    int         // ticks on which an action began
	prev       record.Tick
	rows       [2]record.Row // actions of the two previous ticks with an action
	rowSeq     uint64
	rowAt      rt.Instant
	haveRows   int
	firstWaits bool // no action has run yet
}

// newLog returns an empty Log.
func newLog() *Log {
	return &Log{
		Run:        map[string]string{},
		bySeq:      map[uint64]*request{},
		ran:        map[uint64]rt.Instant{},
		firstWaits: true,
		period:     second / 60,
	}
}

// finish takes a file's metadata, after its messages. Further files of the same run may follow.
func (l *Log) finish(info record.Info) {
	l.Run = info.Run
	l.Wall = info.Wall
	l.Torn = info.Torn
	l.Repaired = info.Repaired
}

// pace takes the run's rate from the metadata of a file, before its messages.
func (l *Log) pace(info *record.Info) error {
	fps, err := strconv.ParseFloat(info.Run["fps"], 64)
	if n, failed := strconv.Atoi(info.Run["interpolation_multiplier"]); err == nil && failed == nil && n > 0 {
		fps *= float64(n)
	}
	if err == nil && fps >= 1 && fps <= 10_000 {
		l.period = rt.Instant(float64(time.Second) / fps)
	}
	return nil
}

// jointNames returns the names of a set of joints, one bit each.
func (l *Log) jointNames(set uint32) string {
	names := strings.Split(l.Run["joints"], ",")
	var out []string
	for ; set != 0; set &= set - 1 {
		i := bits.TrailingZeros32(set)
		if i < len(names) && names[i] != "" {
			out = append(out, strings.TrimSuffix(names[i], ".pos"))
		} else {
			out = append(out, "joint "+strconv.Itoa(i+1))
		}
	}
	return strings.Join(out, ", ")
}

// partsOf returns the names of the parts whose motors are the cause of a finding, such as "left";
// empty for another cause, and for a robot of one arm.
func (l *Log) partsOf(f *Finding) string {
	if !slices.Contains([]Cause{MotorSilent, BusSilent, Unplugged, Restarted, RepliesSpoilt}, f.Cause) {
		return ""
	}
	var names []string
	for _, e := range l.between(f.From-second, f.To+aroundBack, event.BusLost, event.BusBack) {
		joints := e.b
		if e.code == event.BusBack {
			joints = e.a >> event.CauseBits
		}
		name := strings.TrimPrefix(l.ofPart(joints), " of ")
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// ofPart returns " of left" for joints of the part left, if the robot has several parts, and else "".
func (l *Log) ofPart(joints int64) string {
	first := l.jointNames(uint32(joints & -joints))
	for _, part := range strings.Split(l.Run["parts"], ",") {
		if part != "" && joints != 0 && strings.HasPrefix(first, part+"_") {
			return " of " + part
		}
	}
	return ""
}

// limit returns a limit from the run's metadata; 0 if the record does not have it.
func (l *Log) limit(name string) time.Duration {
	d, _ := time.ParseDuration(l.Run[name])
	return d
}

// median sorts a list and returns its middle element; 0 if the list is empty.
func median(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// keep appends v to a list of a Log, unless the list has maxKept elements.
func keep[T any](l *Log, list []T, v T) []T {
	if len(list) >= maxKept {
		l.Full = true
		return list
	}
	return append(list, v)
}

// visitor returns a visitor that adds the messages of a file to the Log.
func (l *Log) visitor() record.Visitor {
	return record.Visitor{
		Begin: l.pace,
		Tick:  l.tick,
		Request: func(m *record.Request) error {
			r := &request{Request: *m}
			if n := len(l.requests); n > 0 && m.Session != nil {
				if last := l.requests[n-1].Session; last != nil && *last == *m.Session {
					r.Session = last // one copy for all requests of a session
				}
			}
			if l.requests = keep(l, l.requests, r); l.requests[len(l.requests)-1] == r {
				l.bySeq[m.Seq] = r
			}
			return nil
		},
		Sent: func(m *record.Sent) error {
			if r := l.bySeq[m.Seq]; r != nil && r.sent == nil {
				r.sent = new(*m)
			}
			return nil
		},
		Chunk: func(m *record.Chunk) error {
			// messages are in order of time only within their kind
			if m.Outcome == record.Joined && m.At > l.last-second {
				l.lacks.Reset(l.last)
			}
			c := *m
			c.Session = nil // no finding needs the session
			if r := l.bySeq[m.Seq]; r != nil && ours(m.Outcome) && r.Epoch == m.Epoch {
				r.chunks = keep(l, r.chunks, c)
			} else if r != nil || len(l.requests) < maxKept {
				l.strange = keep(l, l.strange, c)
			}
			return nil
		},
		Session: func(m *record.Session) error {
			l.sessions = keep(l, l.sessions, opened{l.last, *m})
			return nil
		},
		Event: func(m *record.Event) error {
			code := event.Code(m.Code)
			if uint32(code) != m.Code {
				code = event.None
			}
			l.events = keep(l, l.events, happened{Evidence{m.At, m.Text.String()}, code, m.A, m.B})
			return nil
		},
		Episode: func(m *record.Episode) error {
			l.cuts = keep(l, l.cuts, cut{m.At, m.Number, m.Ended, m.Outcome})
			return nil
		},
	}
}

// ours reports whether an answer answers a request of this robot.
func ours(outcome string) bool {
	return !slices.Contains([]string{"header", "foreign", "unknown_seq"}, outcome)
}

// sorted puts the messages of different threads in order of time.
func (l *Log) sorted() {
	slices.SortStableFunc(l.events, func(a, b happened) int { return cmp.Compare(a.At, b.At) })
	slices.SortStableFunc(l.cuts, func(a, b cut) int { return cmp.Compare(a.at, b.at) })
	slices.SortStableFunc(l.requests, func(a, b *request) int { return cmp.Compare(a.At, b.At) })
}

// extend adds a tick to the last span if it is near enough, and otherwise begins a new span.
func extend(l *Log, spans []span, t *record.Tick) []span {
	if n := len(spans); n == 0 || t.At-spans[n-1].to > spanGap+l.period {
		spans = keep(l, spans, span{from: t.At, firstOld: t.TooOld})
	}
	s := &spans[len(spans)-1]
	s.to = t.At
	s.ticks++
	if t.TooOld {
		s.tooOld++
	}
	if t.BusSilent {
		s.busSilent++
	}
	if t.NoPicture {
		s.noPicture++
	}
	if s.frozen == 0 && t.Frozen != 0 {
		s.frozenAt = t.At
	}
	s.stale |= t.Stale
	s.frozen |= t.Frozen
	return spans
}

func (l *Log) tick(t *record.Tick) error {
	if l.Ticks++; l.first == 0 {
		l.first = t.At
	}
	acted := t.Action.N > 0
	switch {
	case t.Starved:
		l.starved = extend(l, l.starved, t)
	case t.Paused:
		l.pauses = extend(l, l.pauses, t)
	case !acted && (l.firstWaits || t.At-l.rowAt > idleAfter):
		l.idles = extend(l, l.idles, t)
	}
	if t.BusSilent && !t.Starved {
		l.silents = extend(l, l.silents, t)
	}
	if t.Skipped > 0 {
		s := skip{
			from:      l.prev.At - rt.Instant(max(0, l.prev.Lateness)),
			to:        t.At,
			periods:   t.Skipped,
			read:      l.prev.Read,
			act:       l.prev.Act,
			merge:     l.prev.Merge,
			ask:       l.prev.Ask,
			suspended: t.Suspended > 0,
		}
		if l.prev.At == 0 {
			s.from = t.At - rt.Instant(t.Skipped)*l.period
		}
		l.skips = keep(l, l.skips, s)
	}
	if t.OverrunOwn > 0 {
		l.own = keep(l, l.own, overrun{t.At, t.OverrunOwn})
	}
	if t.Stolen > 0 || t.Retried+t.Lost+t.Spoilt > 0 {
		l.counts = keep(l, l.counts, count{t.At, t.Stolen, t.Retried, t.Lost, t.Spoilt})
	}
	if held := t.Held | t.Frozen; held != l.prev.Held|l.prev.Frozen {
		l.joints = keep(l, l.joints, jointsChange{t.At, held})
	}
	if t.Paused || t.Intervention {
		l.lacks.Reset(t.At)
	}
	l.lacks.Add(t.At, event.Lacking{
		Joints:   robot.Joints(t.Frozen),
		Bus:      t.BusSilent,
		Pictures: t.NoPicture,
		Session:  t.NoSession,
	})
	if acted {
		l.actions++
		if l.ran[t.Seq] == 0 && len(l.ran) < maxKept {
			l.ran[t.Seq] = t.At + rt.Instant(t.Read+t.Act)
		}
		l.firstWaits = false
		l.lookForJump(t)
	}
	l.last = t.At
	step := l.prev.Step
	if acted {
		step = t.Step
	}
	l.prev = *t
	l.prev.Step = step
	return nil
}

const (
	// After idleAfter without an action, an arm for which no action is due counts as holding.
	idleAfter = second

	// jumpLimit is the maximum distance of an action from the extrapolation of the two actions before it, in degrees:
	// twice the travel of a joint of these arms in a tick at 60 Hz. gripLimit is the maximum for a gripper, in
	// percent: a gripper may close in one tick.
	jumpLimit = 8.
	gripLimit = 100.
	gripUnit  = "range_0_100"

	// rowGap is the maximum time between consecutive actions.
	rowGap = 300 * millisecond
)

// lookForJump compares an action with the extrapolation of the two actions before it.
func (l *Log) lookForJump(t *record.Tick) {
	n := t.Action.N
	if t.At-l.rowAt > rowGap || l.rows[0].N != n || t.Intervention { // a person may move the arm in any way
		l.haveRows = 0
	}
	if l.haveRows == 2 {
		for i := range n {
			a := float64(l.rows[1].V[i])
			b := float64(l.rows[0].V[i])
			c := float64(t.Action.V[i])
			if by := math.Abs(c - (2*b - a)); by > jumpLimit && math.Abs(c-b) > jumpLimit/2 {
				l.jumps = keep(l, l.jumps, jump{t.At, i, by, l.rowSeq == t.Seq, t.Seq, t.Delay, t.Dropped})
			}
		}
	}
	l.rows[1], l.rows[0] = l.rows[0], t.Action
	l.haveRows = min(2, l.haveRows+1)
	l.rowSeq, l.rowAt = t.Seq, t.At
}
