// Package episode cuts the record of an arm into episodes, for a dataset. The record holds the beginning of each
// episode, and its end with an outcome. A person or a time limit ends an episode. The words and keys are those of
// LeRobot's recorder (docs/recording.md).
package episode

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
)

// Start begins an episode; a task may follow it on the command line of edge-rt ctl.
const Start = "start"

// Words are all words of edge-rt ctl about episodes. Those after Start are outcomes.
var Words = []string{Start, record.Success, record.Failure, record.Discard, record.Rerecord}

// Times of the attempts to begin the next episode.
const (
	retryEvery = time.Second      // time between two attempts
	warnAfter  = 10 * time.Second // time of failed attempts before the first warning
	warnEvery  = 10 * time.Minute // time between further warnings
)

// Robot controls the arm that is recorded.
type Robot interface {
	// NotReady returns the reason why no episode can begin now; empty if an episode can begin.
	NotReady() string

	// Begin makes the arm start its task anew; a nonempty task replaces the current task.
	Begin(ctx context.Context, task string) error

	// Rest makes the arm hold still until the next Begin, unless a person moves it.
	Rest()

	// Task returns the current task.
	Task() string
}

// Config configures the episodes of one process.
type Config struct {
	Plan
	Robot  Robot
	Record *record.Recorder // nil: no record, and therefore no episodes
	All    bool             // the record holds everything (record.All)
	Clock  rt.Clock

	// Losses returns the numbers of messages and pictures that the record has lost so far.
	Losses func() (messages, pictures uint64)

	// Say informs the person of a change. warn reports that the person must act.
	Say func(text string, warn bool)

	// Done is called after the last episode.
	Done func()
}

// The phases, as in Status.
const (
	none      = "none"      // no episode is in progress, and no episode is scheduled
	waiting   = "waiting"   // the next episode begins as soon as the arm can
	Recording = "recording" // an episode is in progress
	Reset     = "reset"     // pause between two episodes, in which the person resets the scene
	Over      = "over"      // all episodes are complete
)

// Episodes is the state of a process's episodes. A nil Episodes has no episodes. Owner of Do,
// Next, Step and Close: one thread at a time; any thread may call the other methods.
type Episodes struct {
	cfg           Config
	length, reset time.Duration // 0: no limit

	mu      sync.Mutex // guards the fields below
	status  Status     // all fields except those that Status computes: Wanted, Seconds, Left and Open
	since   rt.Instant // beginning of the phase
	until   rt.Instant // end of the phase; 0: no limit
	retryAt rt.Instant
	warnAt  rt.Instant // time of the next warning that no episode begins
	task    string     // task of the newest episode

	messages, pictures uint64 // losses before the newest episode
	failing            string // reason why the recorder cannot write now
	ended              bool   // the process is ending
	corrects           bool   // a person has taken the arm over
}

// New returns the episodes of a plan; Plan.Check must have accepted it.
func New(cfg Config) *Episodes {
	e := &Episodes{cfg: cfg, status: Status{Phase: none}, since: cfg.Clock.Now()}
	e.length, e.reset = cfg.times()
	if cfg.scheduled() {
		e.status.Phase = waiting
	}
	return e
}

// taskWord is the word of edge-rt ctl task.
const taskWord = "task"

// Check returns the reason why Do would refuse a word now; nil if Do would try it.
func (e *Episodes) Check(word string) error {
	e.mu.Lock()
	phase, ended := e.status.Phase, e.ended
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

// Do executes one of Words, or taskWord. text is the task, or empty.
func (e *Episodes) Do(ctx context.Context, word, text string) error {
	if err := e.Check(word); err != nil {
		return err
	}
	e.mu.Lock()
	phase := e.status.Phase
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

// roll ends the episode in progress and begins the next one. If the arm cannot begin the next one, the episode in
// progress continues, since the strategy sentry records without a gap.
func (e *Episodes) roll(ctx context.Context, task string) error {
	if err := e.prepare(ctx, task); err != nil {
		err = fmt.Errorf("%w; %s goes on", err, e.name())
		e.cfg.Say("the next episode does not begin: "+err.Error(), true)
		return err
	}
	e.end(record.Timeout, true)
	return nil
}

// checkMark returns the reason why neither the episode in progress nor the newest one can get this outcome now; nil if
// one of them can.
func (e *Episodes) checkMark(phase, outcome string) error {
	e.mu.Lock()
	number, last := e.status.Number, e.status.Last
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

// Next returns Start or, during an episode, the outcome after which the next episode may begin.
func (e *Episodes) Next() (word string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.status.Phase == Recording {
		return record.Success
	}
	return Start
}

// begin begins the next episode.
func (e *Episodes) begin(ctx context.Context, task string) error {
	err := e.prepare(ctx, task)
	if err == nil {
		e.open()
	}
	return err
}

// prepare makes the arm start its task anew, and counts the attempts that fail. An episode of which nothing would be on
// record does not begin.
func (e *Episodes) prepare(ctx context.Context, task string) error {
	e.mu.Lock()
	failing := e.failing
	e.mu.Unlock()
	why := e.cfg.Robot.NotReady()
	if failing != "" {
		why = "nothing can be recorded now, mend this first: " + failing
	}
	var err error
	if why != "" {
		err = errors.New(why)
	} else {
		err = e.cfg.Robot.Begin(ctx, task)
	}
	if err != nil {
		e.mu.Lock()
		e.status.Refused++
		e.mu.Unlock()
	}
	return err
}

// open notes the beginning of an episode.
func (e *Episodes) open() {
	task, now := e.cfg.Robot.Task(), e.cfg.Clock.Now()
	messages, pictures := e.cfg.Losses()
	e.mu.Lock()
	e.status.Number++
	e.status.Phase = Recording
	e.since = now
	e.until = 0
	e.status.Last = ""
	e.status.Waits = ""
	e.status.Warning = ""
	e.task = task
	if e.length > 0 {
		e.until = now.Add(e.length)
	}
	e.messages, e.pictures = messages, pictures
	number, failing := e.status.Number, e.failing
	e.mu.Unlock()
	if !e.cfg.rolling() { // sentry runs for weeks, so its old files may be deleted
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

// end ends the episode in progress. next reports that the next episode of a rolling plan begins at
// once.
func (e *Episodes) end(outcome string, next bool) {
	name, now := e.name(), e.cfg.Clock.Now()
	messages, pictures := e.cfg.Losses()
	e.mu.Lock()
	took := now.Sub(e.since)
	*e.status.count(outcome)++
	e.status.Last = outcome
	e.status.Phase = none
	e.since = now
	e.until = 0
	messages, pictures = messages-e.messages, pictures-e.pictures
	number := e.status.Number
	task := e.task
	failing := e.failing
	done := e.done()
	switch {
	case done:
		e.status.Phase = Over
	case e.cfg.rolling():
		e.status.Phase, e.warnAt = waiting, 0
	case e.cfg.scheduled():
		e.status.Phase, e.until = Reset, now.Add(e.reset)
	}
	phase := e.status.Phase
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
			e.cfg.Say(fmt.Sprintf("reset the scene: the next episode begins in %v, or when you begin it", e.reset),
				false)
		}
	}
}

// change corrects the outcome of the newest episode after its end. In the record, the last outcome
// is the valid one.
func (e *Episodes) change(outcome string) {
	now := e.cfg.Clock.Now()
	e.mu.Lock()
	*e.status.count(e.status.Last)--
	*e.status.count(outcome)++
	e.status.Last = outcome
	number, task := e.status.Number, e.task
	e.mu.Unlock()
	e.cfg.Record.NoteEpisode(now, number, true, outcome, task)
	e.cfg.Say(fmt.Sprintf("episode %d is %s now", number, outcome), false)
	e.mu.Lock()
	done := e.done()
	if done {
		e.status.Phase = Over
	}
	e.mu.Unlock()
	if done {
		e.cfg.Done()
	}
}

// done reports whether all episodes are complete. The caller holds mu.
func (e *Episodes) done() bool { return e.cfg.Count > 0 && e.status.kept() >= e.cfg.Count }

// all returns the sentence that reports the completion.
func (e *Episodes) all() string {
	if e.cfg.Count == 1 {
		return "the episode is complete"
	}
	return fmt.Sprintf("all %d episodes are complete", e.cfg.Count)
}

// name returns the newest episode's name for people.
func (e *Episodes) name() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	text := fmt.Sprintf("episode %d", e.status.Number)
	if e.cfg.Count > 0 && e.status.Phase == Recording {
		text += fmt.Sprintf(" (%d of %d)", e.status.kept()+1, e.cfg.Count)
	}
	return text
}

// Step runs the transitions that are due. Call it every few ticks.
func (e *Episodes) Step(ctx context.Context) {
	now := e.cfg.Clock.Now()
	e.mu.Lock()
	due := e.until != 0 && now >= e.until
	if e.status.Phase == Reset && due {
		e.status.Phase = waiting
		e.since = now
		e.until = 0
		e.warnAt = 0
	}
	phase, ready := e.status.Phase, !e.ended && now >= e.retryAt
	e.mu.Unlock()
	switch {
	case phase == Recording && due:
		e.end(record.Timeout, true)
	case phase == waiting && ready:
		if err := e.begin(ctx, ""); err != nil {
			e.wait(now, err)
		}
	}
}

// wait schedules the next attempt to begin an episode, and reports the reason of the failure: a new
// reason at once, and a lasting one as a warning.
func (e *Episodes) wait(now rt.Instant, why error) {
	e.mu.Lock()
	known := e.status.Waits == why.Error()
	e.status.Waits, e.retryAt = why.Error(), now.Add(retryEvery)
	if e.warnAt == 0 {
		e.warnAt = now.Add(warnAfter)
	}
	warn := now >= e.warnAt
	if warn {
		e.warnAt = now.Add(warnEvery)
	}
	refused, since := e.status.Refused, now.Sub(e.since)
	e.mu.Unlock()
	switch {
	case warn:
		e.warn(fmt.Sprintf("no episode is under way for %.0f s, after %d attempts to begin one: %v", since.Seconds(),
			refused, why))
	case !known:
		e.cfg.Say("the next episode waits: "+why.Error(), false)
	}
}

// Correct begins an episode when a person takes the arm over, and ends it when the person gives the
// arm back, as LeRobot does with corrections. The outcome is a success, unless the person has given
// another outcome.
func (e *Episodes) Correct(correcting bool) {
	e.mu.Lock()
	open := e.status.Phase == Recording
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

// Failing sets the reason why the recorder cannot write; nil: it can. Any thread may call it.
func (e *Episodes) Failing(err error) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	e.mu.Lock()
	before := e.failing
	e.failing = why
	open := e.status.Phase == Recording
	e.mu.Unlock()
	if open && before == "" && why != "" {
		e.warn(e.name() + " is being lost: " + why + "; make room, then rerecord it")
	}
}

func (e *Episodes) warn(text string) {
	e.mu.Lock()
	e.status.Warning = text
	e.mu.Unlock()
	e.cfg.Say(text, true)
}

// Close marks the end of the run. In the record an episode in progress stays without an end.
func (e *Episodes) Close() {
	e.mu.Lock()
	open, ended := e.status.Phase == Recording, e.ended
	e.ended = true
	e.mu.Unlock()
	if open && !ended {
		e.cfg.Say(e.name()+" has no end: the run ended in it", true)
	}
}

// Status is the state of the episodes; its JSON keys are a contract (docs/json.md).
type Status struct {
	// none (no episode in progress), waiting (the next begins when the arm can), recording, reset or over
	Phase   string  `json:"phase"`
	Number  uint32  `json:"number"`                 // number of the newest episode
	Wanted  int     `json:"wanted,omitempty"`       // --episodes
	Seconds float64 `json:"seconds"`                // s, in this phase
	Left    float64 `json:"seconds_left,omitempty"` // s, until the phase ends by itself
	Success int     `json:"success"`                // episodes that ended with success
	Failure int     `json:"failure"`                // episodes that ended with failure
	Timeout int     `json:"timeout"`                // episodes that reached their time limit
	Discard int     `json:"discard"`                // episodes that a dataset leaves out
	// episodes that a dataset leaves out and that were recorded again
	Rerecord int `json:"rerecord"`
	// 1 while an episode is in progress; in the summary: the run ended within it
	Open    int    `json:"open"`
	Last    string `json:"last,omitempty"`           // outcome of the newest episode that has ended
	Waits   string `json:"waits,omitempty"`          // why the next episode does not begin
	Warning string `json:"warning,omitempty"`        // loss in the newest episode
	Refused uint64 `json:"refused_begins,omitempty"` // failed attempts to begin an episode
}

// Status returns the state of the episodes; nil without any past or scheduled episode. Any thread
// may call it.
func (e *Episodes) Status() *Status {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.status.Phase == none && e.status.Number == 0 {
		return nil
	}
	now, s := e.cfg.Clock.Now(), e.status
	s.Wanted, s.Seconds = e.cfg.Count, seconds(now.Sub(e.since))
	if s.Phase == Recording {
		s.Open = 1
	}
	if e.until != 0 {
		s.Left = seconds(e.until.Sub(now))
	}
	return &s
}

// count returns the counter of an outcome.
func (s *Status) count(outcome string) *int {
	switch outcome {
	case record.Success:
		return &s.Success
	case record.Failure:
		return &s.Failure
	case record.Timeout:
		return &s.Timeout
	case record.Discard:
		return &s.Discard
	case record.Rerecord:
		return &s.Rerecord
	}
	panic("episode: no outcome " + outcome)
}

// kept returns the number of episodes that count towards --episodes.
func (s *Status) kept() int { return s.Success + s.Failure + s.Timeout + s.Discard }

func seconds(d time.Duration) float64 { return float64(max(0, d).Milliseconds()) / 1e3 }

// Resting reports whether the arm waits for a person to begin the next episode.
func (e *Episodes) Resting() bool {
	if e == nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.status.Phase == none && e.status.Number > 0
}

// AppendLine appends the state of the episodes to a status line, and nothing if Status returns nil.
//
//rt:noalloc
func (e *Episodes) AppendLine(b []byte, now rt.Instant) []byte {
	if e == nil {
		return b
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.status.Phase == none && e.status.Number == 0 {
		return b
	}
	b = append(append(append(b, "  episode "...), e.status.Phase...), ' ')
	b = strconv.AppendUint(b, uint64(e.status.Number), 10)
	if e.cfg.Count > 0 {
		b = strconv.AppendInt(append(b, " kept "...), int64(e.status.kept()), 10)
		b = strconv.AppendInt(append(b, '/'), int64(e.cfg.Count), 10)
	}
	if e.until != 0 {
		b = strconv.AppendInt(append(b, " left "...), int64(max(0, e.until.Sub(now))/time.Second), 10)
		b = append(b, " s"...)
	}
	return b
}
