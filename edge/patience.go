package edge

import (
	"cmp"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/recording"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/wire"
)

// A slow server is not a dead server. The server's ack and status announce its time for a chunk;
// for a server that does not announce it, the edge measures it on the answers. The limits of the
// run follow from this time unless a flag fixed them.

// The limits without a flag, for a policy that is fast enough for them.
const (
	DefaultMaxActionAge   = 3 * time.Second
	DefaultDegradedAfter  = time.Second
	DefaultRequestTimeout = 5 * time.Second
)

const (
	// paceWindow is the number of answers that are remembered.
	paceWindow = 8
	// paceKnown is the number of answers that determine the time for a chunk, if the server has not
	// announced it or if all of them took long.
	paceKnown = 3
	// paceTimes bounds the announced 99th percentile of inferences to this multiple of the slowest
	// answer in a full window: the server may announce a single slow inference from before the run.
	paceTimes = 5
	// paceMost bounds the announced times of a server.
	paceMost = time.Hour

	// answerTimes is the multiple of the announced time for a chunk that the edge waits for a chunk
	// from a live server, before it opens the session anew.
	answerTimes = 3
	// ageSlack is the ratio by which an inference may exceed the fastest one before its actions are
	// too old, if no flag fixed their age.
	ageSlack = 1.5
	// hopelessTimes is the multiple of the permitted age of actions from which an announced time
	// makes the edge refuse the session. The announced time is that of the server's self-test,
	// which measures once, on a machine that may be busy.
	hopelessTimes = 1.5
)

// serverPace is the server's time for a chunk; 0: not known.
type serverPace struct {
	least time.Duration // fastest recent inference
	most  time.Duration // 99th percentile of inferences
	queue time.Duration // longest wait for a turn
}

// paceOf reads a server's announced times, and accepts any values.
func paceOf(c *wire.Capabilities) serverPace {
	read := func(ms float64) time.Duration {
		if !(ms > 0) {
			return 0
		}
		return time.Duration(min(ms, float64(paceMost/time.Millisecond)) * float64(time.Millisecond))
	}
	p := serverPace{least: read(c.InferenceMsMin), most: read(c.InferenceMsP99), queue: read(c.QueueWaitMs)}
	p.most = max(p.most, p.least)
	return p
}

// sharedPace is a serverPace shared by threads. Atomic.
type sharedPace struct{ least, most, queue atomic.Int64 }

func (s *sharedPace) store(p serverPace) {
	s.least.Store(int64(p.least))
	s.most.Store(int64(p.most))
	s.queue.Store(int64(p.queue))
}

//rt:noalloc
func (s *sharedPace) load() serverPace {
	return serverPace{time.Duration(s.least.Load()), time.Duration(s.most.Load()), time.Duration(s.queue.Load())}
}

// answers are the durations of the last inferences, as their chunks report them. Owner: the tick.
type answers struct {
	took [paceWindow]time.Duration
	n    int
}

//rt:noalloc
func (a *answers) add(ms float64) {
	if ms >= 0 && ms <= float64(paceMost/time.Millisecond) {
		a.took[a.n%paceWindow] = time.Duration(ms * float64(time.Millisecond))
		a.n++
	}
}

// learn combines the announced pace p with the measured answers. The fastest of the last three
// answers is the policy's time, so that one or two slow answers do not let old actions run; with
// fewer answers, the announced time is included in this minimum.
//
//rt:noalloc
func (a *answers) learn(p serverPace) serverPace {
	kept := min(a.n, paceWindow)
	if kept == 0 {
		return p
	}
	most := a.took[0]
	for _, took := range a.took[1:kept] {
		most = max(most, took)
	}
	least := a.took[(a.n-1)%paceWindow]
	for i := 2; i <= min(kept, paceKnown); i++ {
		least = min(least, a.took[(a.n-i)%paceWindow])
	}
	if kept < paceKnown && p.least > 0 {
		least = min(least, p.least)
	}
	if kept == paceWindow {
		p.most = min(p.most, paceTimes*most)
	}
	p.least, p.most = least, max(p.most, most)
	return p
}

// patience holds the waiting times of a run and the permitted age of its actions. Constant once the
// first session is open.
type patience struct {
	maxAge, degraded, request, offline time.Duration // values of the flags, or their defaults
	given                              Given
	compat                             bool
	// with compat: the schedule abandons late requests; the schedule is rtc
	engine, rtc bool
	chunk       time.Duration // duration of a chunk's actions; 0: not known yet
	repeat      time.Duration // time after which a newer observation replaces a waiting one; 0: never
}

// Given marks the limits that a flag fixed; the others follow the server.
type Given struct{ MaxActionAge, DegradedAfter, RequestTimeout bool }

// patience returns the limits of a run on chunks of horizon actions.
func (c *Config) patience(horizon int, fps float64) patience {
	p := patience{
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

// waited returns the age of an observation at the beginning of its inference.
//
//rt:noalloc
func (p *patience) waited(s serverPace) time.Duration {
	if p.repeat > 0 {
		return min(s.queue, p.repeat)
	}
	return s.queue
}

// age returns the permitted age of an action, 0 for no limit: the flag's value, or without a flag
// the age that a chunk needs at this pace, if that is more. A fast policy needs half of a chunk,
// since the next chunk arrives before the end of this one.
//
//rt:noalloc
func (p *patience) age(s serverPace) time.Duration {
	due := s.least + p.waited(s)
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
func (p *patience) ageThatWorks(s serverPace) time.Duration {
	need := time.Duration(float64(s.least)*ageSlack) + p.waited(s) + p.chunk
	return (need + time.Second - 1).Truncate(time.Second)
}

// quiet returns the time without a chunk after which the run is Degraded.
//
//rt:noalloc
func (p *patience) quiet(s serverPace) time.Duration {
	if p.given.DegradedAfter {
		return p.degraded
	}
	return max(p.degraded, time.Duration(float64(s.most)*ageSlack)+s.queue)
}

// unheard returns the permitted silence of a server, without a chunk and without a status reply.
func (p *patience) unheard() time.Duration {
	if p.compat {
		return p.request * compatTimeouts
	}
	return p.request
}

// answer returns the time that a live server may take for a chunk before the session is opened
// anew.
func (p *patience) answer(s serverPace) time.Duration {
	if s.most == 0 {
		return max(p.unheard(), p.offline/2)
	}
	return p.unheard() + answerTimes*(s.most+s.queue)
}

// hopeless returns an error when no action of this policy could ever run. The error names a flag
// that helps.
func (p *patience) hopeless(s serverPace) error {
	text := fmt.Sprintf("no action could ever run: this policy takes at least %s for a chunk, and ", seconds(s.least))
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

// never reports whether no action of this policy could ever run.
//
//rt:noalloc
func (p *patience) never(s serverPace) bool { return p.tooOld(s) || p.abandons(s) || p.dropsAll(s) }

//rt:noalloc
func (p *patience) tooOld(s serverPace) bool {
	return p.given.MaxActionAge && p.maxAge > 0 && s.least >= p.maxAge
}

// abandons reports whether every answer comes after --request-timeout: the original of the schedule
// drops it then.
//
//rt:noalloc
func (p *patience) abandons(s serverPace) bool { return p.engine && s.least >= p.request }

// dropsAll reports whether the round trip is longer than a chunk: LeRobot's rtc drops the rows of
// the whole round trip, whether they ran or not.
//
//rt:noalloc
func (p *patience) dropsAll(s serverPace) bool { return p.rtc && p.chunk > 0 && s.least >= p.chunk }

// notes returns a sentence for each limit of the run that this pace exceeds, with its flag.
func (p *patience) notes(s serverPace, horizon, sMin int, fps float64) (notes []string) {
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if s.most == 0 || p.chunk == 0 {
		return nil
	}
	whole := s.most + s.queue
	took := seconds(s.most)
	if s.most >= time.Duration(ageSlack*float64(s.least)) && seconds(s.least) != took {
		took = seconds(s.least) + " to " + took
	}
	if s.queue > 0 {
		took = fmt.Sprintf("%s and up to %s of waiting for other robots", took, seconds(s.queue))
	}
	switch step := time.Duration(float64(time.Second) / fps); {
	case s.least >= p.chunk:
		note("SLOW POLICY: a chunk takes %s, and its %d actions last %s: the arm moves, stops and moves again (%.2g "+
			"of %g actions per second at most); a faster device or fewer inference steps help",
			took, horizon, seconds(p.chunk), float64(horizon)/(s.least+p.chunk).Seconds(), fps)
	case whole > time.Duration(horizon-sMin)*step && whole < time.Duration(horizon-1)*step:
		note("a chunk takes %s, and the next one is asked for when %s of actions are left: the arm stops in between; "+
			"--s-min %d or less asks earlier",
			took, seconds(time.Duration(horizon-sMin)*step), max(1, horizon-int(whole/step)-1))
	}
	switch age := p.age(s); {
	case age > p.maxAge:
		note("--max-action-age is %v for this policy instead of %v, so that its actions run: their observations are "+
			"up to %s old; give the flag to fix it", age, p.maxAge, seconds(s.most+p.waited(s)))
	case age > 0 && age < s.most+p.waited(s)+p.chunk/2:
		works := p.ageThatWorks(serverPace{s.most, s.most, s.queue})
		if p.given.MaxActionAge {
			note("--max-action-age %v lets at most the first of the %d actions of a chunk run, which takes %s: "+
				"--max-action-age %v lets all of them", age, horizon, took, works)
		} else {
			note("--max-action-age is %v, and a chunk has taken %s: when %d take so long in a row, it becomes longer "+
				"by itself; --max-action-age %v lets all of the %d actions run at once", age, seconds(s.most),
				paceKnown, works, horizon)
		}
	}
	if whole > p.request {
		note("--request-timeout %v is shorter than a chunk takes (%s): the session stays while the server answers, "+
			"and is opened anew after %s", p.request, took, seconds(p.answer(s)))
	}
	if p.given.DegradedAfter && s.most > p.degraded {
		note("--degraded-after %v is shorter than a chunk takes (%s): the run is DEGRADED or STALLED before each one",
			p.degraded, took)
	}
	if whole > p.offline {
		note("--max-offline %v is shorter than a chunk takes (%s): it counts only while the server does not answer",
			p.offline, took)
	}
	return notes
}

// learnPace adapts the limits of the run to the server's pace. inferenceMs is the inference time in
// an answer, and rtt the round trip of that answer. The inference took rtt at most, so rtt replaces
// a larger or missing inferenceMs. With rtt 0 there is no new answer.
//
//rt:noalloc
func (c *control) learnPace(inferenceMs float64, rtt time.Duration) {
	if rtt > 0 {
		whole := float64(rtt) / float64(time.Millisecond)
		if !(inferenceMs > 0) {
			inferenceMs = whole
		}
		c.answers.add(min(inferenceMs, whole))
	}
	p := c.answers.learn(c.flags.said.load())
	if c.answers.n > 0 {
		c.flags.pace.store(p)
	}
	if !c.patience.given.MaxActionAge {
		c.core.MaxAge = c.patience.age(p)
	}
	c.stats.maxAge.Store(int64(c.core.MaxAge))
	if c.answers.n >= paceKnown && c.stats.actions.Load() == 0 && c.patience.never(p) {
		c.flags.tooSlow.Store(true)
	}
}

// tellPace logs the limits of the run that the server's pace exceeds: at the first session, and
// when the time for a chunk has grown by half since the last log.
func (l *link) tellPace() {
	s, t := l.flags.knownPace(), &l.contract
	p := l.cfg.patience(t.horizon, t.fps)
	l.tellAge(&p, s)
	if s.most == 0 || l.toldPace > 0 && float64(s.most+s.queue) < ageSlack*float64(l.toldPace) {
		return
	}
	l.toldPace = s.most + s.queue
	sMin := cmp.Or(l.cfg.Schedule.SMin, chunk.DefaultSMin(t.horizon))
	for _, text := range p.notes(s, t.horizon, sMin, t.fps) {
		l.log.Warn(text, "session", l.sessionID)
		recording.Note(l.record, l.clock, event.SlowPolicy, record.LevelWarning, int64(s.least), int64(s.queue), text)
	}
}

// tellAge logs a change of the permitted age of actions by at least half, which follows a change of
// the policy's pace. The first call takes the age over without a log.
func (l *link) tellAge(p *patience, s serverPace) {
	age := p.age(s)
	before := cmp.Or(l.toldAge, age)
	if l.toldAge != 0 && float64(max(age, before)) < ageSlack*float64(min(age, before)) {
		return
	}
	l.toldAge = age
	if before == age {
		return
	}
	text := fmt.Sprintf("--max-action-age is %v now, and was %v: a chunk takes %s", age, before, seconds(s.least))
	l.log.Warn(text, "session", l.sessionID)
	recording.Note(l.record, l.clock, event.SlowPolicy, record.LevelWarning, int64(s.least), int64(s.queue), text)
}

// seconds formats a duration for people.
func seconds(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", int(math.Round(float64(d)/1e6)))
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
