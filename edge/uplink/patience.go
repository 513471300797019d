package uplink

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/recording"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
)

// A slow server is not a dead server. The server's ack and status announce its time for a chunk. If the server does not
// announce it, the edge measures it from the answers. The limits of the run follow from this time unless a flag fixed
// them.

// The limits without a flag, for a policy that is fast enough for them.
const (
	DefaultMaxActionAge   = 3 * time.Second
	DefaultDegradedAfter  = time.Second
	DefaultRequestTimeout = 5 * time.Second
)

const (
	// paceWindow is the number of answers that are remembered.
	paceWindow = 8
	// paceKnown is a number of newest answers; the fastest of them gives the policy's time for a chunk.
	paceKnown = 3
	// paceTimes bounds the announced 99th percentile of inferences to this multiple of the slowest
	// answer in a full window: the server may announce a single slow inference from before the run.
	paceTimes = 5
	// paceMost bounds the announced times of a server.
	paceMost = time.Hour

	// answerTimes bounds how long the edge waits for a chunk from a live server before it opens the session anew, as a
	// multiple of the announced time for a chunk.
	answerTimes = 3
	// ageSlack is the factor by which limits that follow the server exceed its time for an inference. A change of the
	// pace by this factor is logged.
	ageSlack = 1.5
	// The edge refuses a session if the announced time is more than hopelessTimes times the permitted age. The
	// announced time comes from the server's self-test, which measures once, on a machine that may be busy.
	hopelessTimes = 1.5
)

// Patience holds the waiting times of a run and the permitted age of its actions. Constant once the
// first session is open.
type Patience struct {
	maxAge, degraded, request, offline time.Duration // values of the flags, or their defaults
	given                              Given
	compat                             bool
	// only with --compat: engine is set if the schedule abandons late requests, rtc if the schedule is rtc
	engine, rtc bool
	chunk       time.Duration // duration of a chunk's actions; 0: not known yet
	repeat      time.Duration // time after which a newer observation replaces a waiting observation; 0: never
}

// Given marks the limits that a flag fixed. The other limits follow the server.
type Given struct{ MaxActionAge, DegradedAfter, RequestTimeout bool }

// Limits are the limits of a run, as the flags or their defaults give them.
type Limits struct {
	MaxActionAge   time.Duration
	DegradedAfter  time.Duration
	RequestTimeout time.Duration
	MaxOffline     time.Duration
	Given          Given
}

// Patience returns the limits of a run on chunks of horizon actions.
func (c *Config) Patience(horizon int, fps float64) Patience {
	p := Patience{
		maxAge:   c.MaxActionAge,
		degraded: c.DegradedAfter,
		request:  c.RequestTimeout,
		offline:  c.MaxOffline,
		given:    c.Given,
		compat:   c.Schedule.Compat,
	}
	if p.compat {
		p.rtc = c.Schedule.Schedule == "rtc"
		p.engine = c.Schedule.GivesUp()
	}
	if horizon > 0 && fps > 0 {
		p.chunk = time.Duration(float64(horizon) / fps * float64(time.Second))
		if c.Schedule.Schedule == chunk.Schedules[0] && !p.compat {
			p.repeat = p.chunk / 2
		}
	}
	return p
}

// FixedPatience returns limits that do not follow the server.
func FixedPatience(maxAge, degraded, offline time.Duration) Patience {
	return Patience{
		maxAge:   maxAge,
		degraded: degraded,
		offline:  offline,
		given:    Given{true, true, true},
	}
}

// FixedAge reports whether a flag fixed the permitted age of actions.
//
//rt:noalloc
func (p *Patience) FixedAge() bool { return p.given.MaxActionAge }

// waited returns the age of an observation at the beginning of its inference.
//
//rt:noalloc
func (p *Patience) waited(s Pace) time.Duration {
	if p.repeat > 0 {
		return min(s.Queue, p.repeat)
	}
	return s.Queue
}

// Age returns the permitted age of an action; 0: no limit. It is the flag's value. Without a flag it is the default or,
// if longer, the age that a chunk needs at this pace. A fast policy needs the time of an answer and half the duration
// of a chunk, since the next chunk then arrives.
//
//rt:noalloc
func (p *Patience) Age(s Pace) time.Duration {
	due := s.Least + p.waited(s)
	need := due + p.chunk/2
	if due > p.maxAge/3 {
		need = due + p.chunk
	}
	if p.given.MaxActionAge || p.maxAge == 0 || p.maxAge >= need {
		return p.maxAge
	}
	return max(p.maxAge, p.ageThatWorks(s))
}

// ageThatWorks returns an age, in whole seconds, within which whole chunks run at this pace.
//
//rt:noalloc
func (p *Patience) ageThatWorks(s Pace) time.Duration {
	need := time.Duration(float64(s.Least)*ageSlack) + p.waited(s) + p.chunk
	return (need + time.Second - 1).Truncate(time.Second)
}

// Quiet returns the time without a chunk after which the run is Degraded.
//
//rt:noalloc
func (p *Patience) Quiet(s Pace) time.Duration {
	if p.given.DegradedAfter {
		return p.degraded
	}
	return max(p.degraded, time.Duration(float64(s.Most)*ageSlack)+s.Queue)
}

// unheard returns the permitted silence of a server, without a chunk and without a status reply.
func (p *Patience) unheard() time.Duration {
	if p.compat {
		return p.request * compatTimeouts
	}
	return p.request
}

// answer returns the time that a live server may take for a chunk before the session is opened
// anew.
func (p *Patience) answer(s Pace) time.Duration {
	if s.Most == 0 {
		return max(p.unheard(), p.offline/2)
	}
	return p.unheard() + answerTimes*(s.Most+s.Queue)
}

// hopeless returns an error when no action of this policy could ever run. The error names a flag
// that helps.
func (p *Patience) hopeless(s Pace) error {
	text := fmt.Sprintf("no action could ever run: this policy takes at least %s for a chunk, and ", seconds(s.Least))
	switch {
	case p.dropsAll(s):
		text += fmt.Sprintf("--compat with --schedule rtc drops as many of its actions, which last %s: leave "+
			"--compat out", seconds(p.chunk))
	case p.abandons(s):
		text += fmt.Sprintf("--compat gives a request up after --request-timeout %v: give --request-timeout %v or "+
			"more, or leave --compat out", p.request, p.ageThatWorks(s))
	case p.tooOld(s):
		text += fmt.Sprintf("--max-action-age is %v: give --max-action-age %v or more, or leave the flag out", p.maxAge,
			p.ageThatWorks(s))
	default:
		return nil
	}
	return exit.Errorf(exit.Config, "%s", text)
}

// Never reports whether no action of this policy could ever run.
//
//rt:noalloc
func (p *Patience) Never(s Pace) bool { return p.tooOld(s) || p.abandons(s) || p.dropsAll(s) }

//rt:noalloc
func (p *Patience) tooOld(s Pace) bool {
	return p.given.MaxActionAge && p.maxAge > 0 && s.Least >= p.maxAge
}

// abandons reports whether every answer comes after --request-timeout, so that the schedule's original drops it.
//
//rt:noalloc
func (p *Patience) abandons(s Pace) bool { return p.engine && s.Least >= p.request }

// dropsAll reports whether the round trip is longer than a chunk: LeRobot's rtc drops the rows of
// the whole round trip, whether they ran or not.
//
//rt:noalloc
func (p *Patience) dropsAll(s Pace) bool { return p.rtc && p.chunk > 0 && s.Least >= p.chunk }

// notes returns a sentence for each limit of the run that this pace exceeds, with its flag. It allocates only for a
// limit that is exceeded: the run measures its pace on the path that allocates nothing.
func (p *Patience) notes(s Pace, horizon, sMin int, fps float64) (notes []string) {
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if s.Most == 0 || p.chunk == 0 {
		return nil
	}
	whole := s.Most + s.Queue
	switch step := time.Duration(float64(time.Second) / fps); {
	case s.Least >= p.chunk:
		note("SLOW POLICY: a chunk takes %s, and its %d actions last %s: the arm moves, stops and moves again (%.2g "+
			"of %g actions per second at most); a faster device or fewer inference steps help",
			s.took(), horizon, seconds(p.chunk), float64(horizon)/(s.Least+p.chunk).Seconds(), fps)
	case whole > time.Duration(horizon-sMin)*step && whole < time.Duration(horizon-1)*step:
		note("a chunk takes %s, and the next one is asked for when %s of actions are left: the arm stops in between; "+
			"--s-min %d or less asks earlier",
			s.took(), seconds(time.Duration(horizon-sMin)*step), max(1, horizon-int(whole/step)-1))
	}
	switch age := p.Age(s); {
	case age > p.maxAge:
		note("--max-action-age is %v for this policy instead of %v, so that its actions run: their observations are "+
			"up to %s old; give the flag to fix it", age, p.maxAge, seconds(s.Most+p.waited(s)))
	case age > 0 && age < s.Most+p.waited(s)+p.chunk/2:
		works := p.ageThatWorks(Pace{s.Most, s.Most, s.Queue})
		if p.given.MaxActionAge {
			note("--max-action-age %v lets at most the first of the %d actions of a chunk run, which takes %s: "+
				"--max-action-age %v lets all of them", age, horizon, s.took(), works)
		} else {
			note("--max-action-age is %v, and a chunk has taken %s: when %d take so long in a row, it becomes longer "+
				"by itself; --max-action-age %v lets all of the %d actions run at once", age, seconds(s.Most),
				paceKnown, works, horizon)
		}
	}
	if whole > p.request {
		note("--request-timeout %v is shorter than a chunk takes (%s): the session stays while the server answers, "+
			"and is opened anew after %s", p.request, s.took(), seconds(p.answer(s)))
	}
	if p.given.DegradedAfter && s.Most > p.degraded {
		note("--degraded-after %v is shorter than a chunk takes (%s): the run is DEGRADED or STALLED before each one",
			p.degraded, s.took())
	}
	if whole > p.offline {
		note("--max-offline %v is shorter than a chunk takes (%s): it counts only while the server does not answer",
			p.offline, s.took())
	}
	return notes
}

// took formats the time of a chunk for people.
func (s Pace) took() string {
	text := seconds(s.Most)
	if s.Most >= time.Duration(ageSlack*float64(s.Least)) && seconds(s.Least) != text {
		text = seconds(s.Least) + " to " + text
	}
	if s.Queue > 0 {
		text = fmt.Sprintf("%s and up to %s of waiting for other robots", text, seconds(s.Queue))
	}
	return text
}

// tellPace logs the limits of the run that the server's pace exceeds: at the first session, and
// when the time for a chunk has grown by half since the last log.
func (l *Link) tellPace() {
	s, t := l.KnownPace(), &l.contract
	p := l.Patience(t.Horizon, t.FPS)
	l.tellAge(&p, s)
	if s.Most == 0 || l.toldPace > 0 && float64(s.Most+s.Queue) < ageSlack*float64(l.toldPace) {
		return
	}
	l.toldPace = s.Most + s.Queue
	sMin := cmp.Or(l.Schedule.SMin, chunk.DefaultSMin(t.Horizon))
	for _, text := range p.notes(s, t.Horizon, sMin, t.FPS) {
		l.warnSlow(text, s)
	}
}

// warnSlow logs and records that the server's pace s changes a limit of the run, or exceeds it.
func (l *Link) warnSlow(text string, s Pace) {
	l.Log.Warn(text, "session", l.In.Sessions().ID())
	recording.Note(l.Record, l.Clock, event.SlowPolicy, record.LevelWarning, int64(s.Least), int64(s.Queue), text)
}

// tellAge logs a change of the permitted age of actions by at least half, which follows a change of the policy's pace.
// The first call stores the age without a log line.
func (l *Link) tellAge(p *Patience, s Pace) {
	age := p.Age(s)
	before := cmp.Or(l.toldAge, age)
	if l.toldAge != 0 && float64(max(age, before)) < ageSlack*float64(min(age, before)) {
		return
	}
	l.toldAge = age
	if before == age {
		return
	}
	l.warnSlow(fmt.Sprintf("--max-action-age is %v now, and was %v: a chunk takes %s", age, before, seconds(s.Least)),
		s)
}

// seconds formats a duration for people.
func seconds(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", int(math.Round(float64(d)/1e6)))
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
