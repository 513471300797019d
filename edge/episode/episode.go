// Package episode cuts what an arm does into episodes, for a data set: each begins and
// ends on record, with an outcome, because a person says so or its time is over. The words
// and keys are those of LeRobot's recorder (docs/recording.md).
package episode

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"edgert/record"
	"edgert/rt"
)

// Words of edge-rt ctl; Start may be followed by a task.
const Start = "start"

// Words are all of them. Those behind Start are outcomes.
var Words = []string{Start, record.Success, record.Failure, record.Discard, record.Rerecord}

// Attempts to begin the next episode.
const (
	retryEvery = time.Second      // between two
	warnAfter  = 10 * time.Second // of attempts that failed, a person is warned
	warnEvery  = 10 * time.Minute // and again, while they go on failing
)

// Robot does what is recorded.
type Robot interface {
	// NotReady says why no episode can begin now; empty: one can.
	NotReady() string

	// Begin has the arm do its task from its beginning, another one unless task is empty.
	Begin(ctx context.Context, task string) error

	// Rest has it hold still until the next Begin, as far as it does anything by itself.
	Rest()

	// Task is what it shall do.
	Task() string
}

// Config is the episodes of one process.
type Config struct {
	Plan
	Robot  Robot
	Record *record.Recorder // nil: nothing is recorded, and there are no episodes
	All    bool             // everything is recorded, not only a ring
	Clock  rt.Clock

	// Losses are the messages and pictures that the record has lost so far.
	Losses func() (messages, pictures uint64)

	// Say tells the person what happens. warn: it needs them.
	Say func(text string, warn bool)

	// Done is called when all episodes are there.
	Done func()
}

// The phases, by their names in Status.
const (
	None      = "none"      // no episode is under way, and none is to begin by itself
	Waiting   = "waiting"   // the next begins as soon as the arm can
	Recording = "recording" // one is under way
	Reset     = "reset"     // time for the person between two
	Over      = "over"      // all are there
)

// Episodes is where the episodes of a process stand; nil is one that has none. Owner of Do, Key, Step and Close: one
// thread at a time; any may call the others.
type Episodes struct {
	cfg           Config
	length, reset time.Duration // 0: no end

	mu      sync.Mutex // guards the rest
	phase   string
	since   rt.Instant // of the phase
	until   rt.Instant // 0: it has no end by itself
	retryAt rt.Instant
	warnAt  rt.Instant // when a person is warned that the next does not begin
	refused uint64     // attempts to begin an episode that failed
	number  uint32     // of the newest episode
	task    string     // its task
	last    string     // outcome of the newest, once it has ended
	counts  [5]int     // by outcomes
	waits   string     // why the next does not begin
	warning string     // what the newest episode has lost

	messages, pictures uint64 // lost when it began
	failing            string // why nothing is recorded now
	ended              bool   // the process ends
	corrects           bool   // a person has the arm
}

// outcomes, in the order of their counts. All but the last count towards --episodes.
var outcomes = [5]string{record.Success, record.Failure, record.Timeout, record.Discard, record.Rerecord}

// New returns the episodes of a plan that Plan.Check has passed.
func New(cfg Config) *Episodes {
	e := &Episodes{cfg: cfg, phase: None, since: cfg.Clock.Now()}
	e.length, e.reset = cfg.times()
	if cfg.scheduled() {
		e.phase = Waiting
	}
	return e
}

// taskWord is edge-rt ctl task, in an episode.
const taskWord = "task"

// Check says why Do would refuse one of Words now; nil: it would try.
func (e *Episodes) Check(word string) error {
	e.mu.Lock()
	phase, ended := e.phase, e.ended
	e.mu.Unlock()
	switch {
	case e.cfg.Record == nil || !e.cfg.All:
		return errors.New("an episode wants everything on record: start with --record all")
	case word == Start && e.cfg.Strategy == DAgger:
		return errors.New("an episode begins with a correction: edge-rt ctl correct, or the tab key")
	case ended:
		return errors.New("the run is ending")
	case word == taskWord && phase == Recording && !e.cfg.rolling():
		return fmt.Errorf("%s is under way with another task: end it first, then edge-rt ctl start --task", e.name())
	case word != Start && word != taskWord:
		return e.checkMark(phase, word)
	case phase == Recording && !e.cfg.rolling():
		return fmt.Errorf("%s is under way: end it first, with success, failure, discard or rerecord", e.name())
	case phase == Over:
		return errors.New(e.all())
	}
	return nil
}

// Do carries out one of Words; text is Start's task, or another one for what is under way.
func (e *Episodes) Do(ctx context.Context, word, text string) error {
	if err := e.Check(word); err != nil {
		return err
	}
	e.mu.Lock()
	phase := e.phase
	e.mu.Unlock()
	switch {
	case word == Start || word == taskWord:
		if phase == Recording {
			return e.roll(ctx, text)
		}
		return e.begin(ctx, text)
	case phase == Recording:
		e.end(word, true)
	default:
		e.change(word)
	}
	return nil
}

// roll ends the episode that is under way and begins the next in its place. If the arm
// cannot begin, the episode goes on: sentry records without a break.
func (e *Episodes) roll(ctx context.Context, task string) error {
	if err := e.prepare(ctx, task); err != nil {
		err = fmt.Errorf("%w; %s goes on", err, e.name())
		e.cfg.Say("the next episode does not begin: "+err.Error(), true)
		return err
	}
	e.end(record.Timeout, true)
	return nil
}

// checkMark says why no episode can have this outcome now: neither the one that is under way,
// nor the one before.
func (e *Episodes) checkMark(phase, outcome string) error {
	e.mu.Lock()
	number, last := e.number, e.last
	e.mu.Unlock()
	switch {
	case phase == Recording:
	case number == 0:
		return errors.New("no episode has begun: edge-rt ctl start begins one")
	case phase == Over:
		return errors.New(e.all() + ", and the run ends")
	case last == outcome:
		return fmt.Errorf("%s has ended as %s already: edge-rt ctl start begins the next", e.name(), outcome)
	}
	return nil
}

// Key is what a key does now; of one without a meaning, nothing.
func (e *Episodes) Key(key string) (word string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch key {
	case "right", "n":
		if e.phase == Recording {
			return record.Success
		}
		return Start
	case "left", "r":
		return record.Rerecord
	case "s":
		return record.Success
	case "f":
		return record.Failure
	case "d":
		return record.Discard
	}
	return ""
}

// Keys says which there are, for the terminal of a run or a teleoperation; PolicyKeys, what
// a run has besides.
const (
	Keys       = "keys: right arrow or s: success, and on to the next; f: failure; d: discard; left arrow: rerecord; Esc ends the run (also n, r and q)"
	PolicyKeys = "; space: pause, or go on; tab: take the arm over with the leader, or give it back"
)

// begin begins the next episode.
func (e *Episodes) begin(ctx context.Context, task string) error {
	err := e.prepare(ctx, task)
	if err == nil {
		e.open()
	}
	return err
}

// prepare has the arm begin its task anew. It counts each failure.
func (e *Episodes) prepare(ctx context.Context, task string) error {
	var err error
	if why := e.cfg.Robot.NotReady(); why != "" {
		err = errors.New(why)
	} else {
		err = e.cfg.Robot.Begin(ctx, task)
	}
	if err != nil {
		e.mu.Lock()
		e.refused++
		e.mu.Unlock()
	}
	return err
}

// open notes the begin of an episode.
func (e *Episodes) open() {
	task, now := e.cfg.Robot.Task(), e.cfg.Clock.Now()
	messages, pictures := e.cfg.Losses()
	e.mu.Lock()
	e.number++
	e.phase, e.since, e.until, e.last, e.waits, e.warning, e.task = Recording, now, 0, "", "", "", task
	if e.length > 0 {
		e.until = now.Add(e.length)
	}
	e.messages, e.pictures = messages, pictures
	number, failing := e.number, e.failing
	e.mu.Unlock()
	if !e.cfg.rolling() { // sentry runs for weeks
		e.cfg.Record.Keep()
	}
	e.cfg.Record.NoteEpisode(now, number, false, "", task)
	text := e.name() + " begins"
	if task != "" {
		text += ": " + task
	}
	e.cfg.Say(text, false)
	if failing != "" {
		e.warn("nothing of " + e.name() + " is recorded now: " + failing)
	}
}

// end ends the episode that is under way. next: what comes behind it does so by itself.
func (e *Episodes) end(outcome string, next bool) {
	name, now := e.name(), e.cfg.Clock.Now()
	messages, pictures := e.cfg.Losses()
	e.mu.Lock()
	took := now.Sub(e.since)
	e.counts[index(outcome)]++
	e.last, e.phase, e.since, e.until = outcome, None, now, 0
	messages, pictures = messages-e.messages, pictures-e.pictures
	number, task, failing, done := e.number, e.task, e.failing, e.done()
	switch {
	case done:
		e.phase = Over
	case e.cfg.rolling():
		e.phase, e.warnAt = Waiting, 0
	case e.cfg.scheduled():
		e.phase, e.until = Reset, now.Add(e.reset)
	}
	phase := e.phase
	e.mu.Unlock()
	e.cfg.Record.NoteEpisode(now, number, true, outcome, task)
	text := fmt.Sprintf("%s ends after %.1f s: %s", name, took.Seconds(), outcome)
	if pictures > 0 {
		text += fmt.Sprintf("; %d pictures of it are lost", pictures)
	}
	e.cfg.Say(text, false)
	if messages > 0 || failing != "" {
		lost := fmt.Sprintf("%s is not whole: %d messages and %d pictures of it are lost", name, messages, pictures)
		if failing != "" {
			lost = fmt.Sprintf("%s may be lost: %s", name, failing)
		}
		e.warn(lost + "; make room, and rerecord it")
	}
	switch {
	case phase == Over:
		e.cfg.Robot.Rest()
		e.cfg.Say(e.all(), false)
		e.cfg.Done()
	case e.cfg.rolling() && next:
		e.open()
	case !e.cfg.rolling() && e.cfg.Strategy != DAgger:
		e.cfg.Robot.Rest()
		if phase == Reset {
			e.cfg.Say(fmt.Sprintf("reset the scene: the next episode begins in %v, or when you say so", e.reset), false)
		}
	}
}

// change has the newest episode, which has ended, end otherwise: the record's last word
// counts.
func (e *Episodes) change(outcome string) {
	now := e.cfg.Clock.Now()
	e.mu.Lock()
	e.counts[index(e.last)]--
	e.counts[index(outcome)]++
	e.last = outcome
	number, task := e.number, e.task
	e.mu.Unlock()
	e.cfg.Record.NoteEpisode(now, number, true, outcome, task)
	e.cfg.Say(fmt.Sprintf("episode %d is %s now", number, outcome), false)
	e.mu.Lock()
	done := e.done()
	if done {
		e.phase = Over
	}
	e.mu.Unlock()
	if done {
		e.cfg.Done()
	}
}

// done reports whether all episodes are there. mu is held.
func (e *Episodes) done() bool { return e.cfg.Count > 0 && e.kept() >= e.cfg.Count }

// all says that they are there.
func (e *Episodes) all() string {
	if e.cfg.Count == 1 {
		return "the episode is there"
	}
	return fmt.Sprintf("all %d episodes are there", e.cfg.Count)
}

// kept is how many count towards --episodes. mu is held.
func (e *Episodes) kept() (n int) {
	for i := range len(e.counts) - 1 {
		n += e.counts[i]
	}
	return n
}

// name is the newest episode's, for people.
func (e *Episodes) name() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	text := fmt.Sprintf("episode %d", e.number)
	if e.cfg.Count > 0 && e.phase == Recording {
		text += fmt.Sprintf(" (%d of %d)", e.kept()+1, e.cfg.Count)
	}
	return text
}

func index(outcome string) int {
	for i, o := range outcomes {
		if o == outcome {
			return i
		}
	}
	panic("episode: no outcome " + outcome)
}

// Step does what the time says: call it every few ticks.
func (e *Episodes) Step(ctx context.Context) {
	now := e.cfg.Clock.Now()
	e.mu.Lock()
	due := e.until != 0 && now >= e.until
	if e.phase == Reset && due {
		e.phase, e.since, e.until, e.warnAt = Waiting, now, 0, 0
	}
	phase, ready := e.phase, !e.ended && now >= e.retryAt
	e.mu.Unlock()
	switch {
	case phase == Recording && due:
		e.end(record.Timeout, true)
	case phase == Waiting && ready:
		if err := e.begin(ctx, ""); err != nil {
			e.wait(now, err)
		}
	}
}

// wait has the next episode tried again later, and reports why it does not begin: each
// reason when it is new, and a reason that lasts as a warning.
func (e *Episodes) wait(now rt.Instant, why error) {
	e.mu.Lock()
	known := e.waits == why.Error()
	e.waits, e.retryAt = why.Error(), now.Add(retryEvery)
	if e.warnAt == 0 {
		e.warnAt = now.Add(warnAfter)
	}
	warn := now >= e.warnAt
	if warn {
		e.warnAt = now.Add(warnEvery)
	}
	refused, since := e.refused, now.Sub(e.since)
	e.mu.Unlock()
	switch {
	case warn:
		e.warn(fmt.Sprintf("no episode is under way for %.0f s, after %d attempts to begin one: %v", since.Seconds(), refused, why))
	case !known:
		e.cfg.Say("the next episode waits: "+why.Error(), false)
	}
}

// Correct begins an episode where a person takes the arm over, and ends it, as a success
// unless they said otherwise before, where they give it back: LeRobot's corrections.
func (e *Episodes) Correct(correcting bool) {
	e.mu.Lock()
	open := e.phase == Recording
	fresh := correcting && !e.corrects
	e.corrects = correcting
	e.mu.Unlock()
	switch {
	case fresh && !open:
		e.open()
	case !correcting && open:
		e.end(record.Success, false)
	}
}

// Failing says why nothing can be recorded, nil that it can be again; any thread may call
// it.
func (e *Episodes) Failing(err error) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	e.mu.Lock()
	before := e.failing
	e.failing = why
	open := e.phase == Recording
	e.mu.Unlock()
	if open && before == "" && why != "" {
		e.warn(e.name() + " is being lost: " + why + "; make room, then rerecord it")
	}
}

func (e *Episodes) warn(text string) {
	e.mu.Lock()
	e.warning = text
	e.mu.Unlock()
	e.cfg.Say(text, true)
}

// Close says that the run ends: an episode that is under way stays without an end.
func (e *Episodes) Close() {
	e.mu.Lock()
	open, ended := e.phase == Recording, e.ended
	e.ended = true
	e.mu.Unlock()
	if open && !ended {
		e.cfg.Say(e.name()+" has no end: the run ended in it", true)
	}
}

// Status is where the episodes stand; its JSON keys are a contract (docs/json.md).
type Status struct {
	Phase    string  `json:"phase"`
	Number   uint32  `json:"number"`
	Wanted   int     `json:"wanted,omitempty"`
	Seconds  float64 `json:"seconds"`
	Left     float64 `json:"seconds_left,omitempty"`
	Success  int     `json:"success"`
	Failure  int     `json:"failure"`
	Timeout  int     `json:"timeout"`
	Discard  int     `json:"discard"`
	Rerecord int     `json:"rerecord"`
	Open     int     `json:"open"` // 1: one is under way, or the run ended in it
	Last     string  `json:"last,omitempty"`
	Waits    string  `json:"waits,omitempty"`
	Warning  string  `json:"warning,omitempty"`
	Refused  uint64  `json:"refused_begins,omitempty"` // attempts to begin an episode that failed
}

// Status may be called by any thread; nil where there are no episodes and none are to
// come.
func (e *Episodes) Status() *Status {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.phase == None && e.number == 0 {
		return nil
	}
	now := e.cfg.Clock.Now()
	s := &Status{
		Phase: e.phase, Number: e.number, Wanted: e.cfg.Count, Seconds: seconds(now.Sub(e.since)), Last: e.last, Waits: e.waits, Warning: e.warning, Refused: e.refused,
		Success: e.counts[0], Failure: e.counts[1], Timeout: e.counts[2], Discard: e.counts[3], Rerecord: e.counts[4],
	}
	if e.phase == Recording {
		s.Open = 1
	}
	if e.until != 0 {
		s.Left = seconds(e.until.Sub(now))
	}
	return s
}

func seconds(d time.Duration) float64 { return float64(max(0, d).Milliseconds()) / 1e3 }

// Resting reports whether the arm waits for the next episode, because a person begins it.
func (e *Episodes) Resting() bool {
	if e == nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.phase == None && e.number > 0
}

// AppendLine appends where the episodes stand to a status line; nothing where there are
// none.
//
//rt:noalloc
func (e *Episodes) AppendLine(b []byte, now rt.Instant) []byte {
	if e == nil {
		return b
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.phase == None && e.number == 0 {
		return b
	}
	b = append(append(append(b, "  episode "...), e.phase...), ' ')
	b = strconv.AppendUint(b, uint64(e.number), 10)
	if e.cfg.Count > 0 {
		b = strconv.AppendInt(append(b, " kept "...), int64(e.kept()), 10)
		b = strconv.AppendInt(append(b, '/'), int64(e.cfg.Count), 10)
	}
	if e.until != 0 {
		b = strconv.AppendInt(append(b, " left "...), int64(max(0, e.until.Sub(now))/time.Second), 10)
		b = append(b, " s"...)
	}
	return b
}
