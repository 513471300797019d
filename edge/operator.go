package edge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"edgert/edge/episode"
	"edgert/edge/operator"
	"edgert/record"
	"edgert/rt"
)

// tickTimeout is for the tick to take a command.
const tickTimeout = time.Second

// Command is one word of edge-rt ctl, and one button of the page.
type Command struct {
	Word  string
	Help  string // what it does, for --help
	Text  string // what stands behind the word; empty: nothing
	May   bool   // it may be missing
	Label string // its button's; empty: it has none
	Ask   string // what the page asks before; empty: nothing

	run   func(*Edge, context.Context, string) (acked bool, err error)
	works func(*Edge) bool // whether it would do something now; nil: always
}

const ctlStatus = "status"

// Commands are all of them. One that is added here is a word of edge-rt ctl, has its line
// in --help and its button on the page.
var Commands = []Command{
	{Word: "pause", Label: "Pause", Help: "hold and keep the queue", run: (*Edge).pause, works: (*Edge).moves},
	{Word: "resume", Label: "Resume", Help: "go on; after a correction the policy has the arm again", run: (*Edge).resumeRun, works: (*Edge).canResume},
	{
		Word: "correct", Label: "Take over", Ask: "Take the arm over with the leader? Hold it: it goes limp where the follower is, and the follower goes where it goes.",
		Help: "a person takes the arm over with the leader of --leader: hold it, it goes limp where the follower is", run: (*Edge).correction, works: (*Edge).canCorrect,
	},
	{Word: "reset", Label: "New episode", Help: "new episode, the queue is dropped", run: (*Edge).resetBoth},
	{Word: operator.Task, Text: "TEXT", Help: "new episode with another task, for policies that read it", run: (*Edge).runTask},
	{Word: episode.Start, Label: "Start episode", Text: "TASK", May: true, Help: "begin an episode, with another task where one is given; wants --record all", run: (*Edge).beginEpisode, works: episodeTakes(episode.Start)},
	{Word: record.Success, Label: "Success", Help: "end the episode: it went well", run: endsAs(record.Success), works: episodeTakes(record.Success)},
	{Word: record.Failure, Label: "Failure", Help: "end it: it did not", run: endsAs(record.Failure), works: episodeTakes(record.Failure)},
	{Word: record.Discard, Label: "Discard", Help: "end it, and leave it out of a data set", run: endsAs(record.Discard), works: episodeTakes(record.Discard)},
	{Word: record.Rerecord, Label: "Rerecord", Help: "likewise, and have the next take its place", run: endsAs(record.Rerecord), works: episodeTakes(record.Rerecord)},
	{
		Word: unloadWord, Label: "Take load off", Text: "JOINT", May: true,
		Help: "take the load off an overloaded joint, or all: its goal is where it is, and its motor forgets the overload", run: (*Edge).unload,
	},
	{Word: "save", Label: "Save the record", Help: "write what --record ring has in memory", run: (*Edge).save, works: func(e *Edge) bool { return e.cfg.Record == record.Ring }},
	{Word: "stop", Label: "Stop", Ask: "End the run? The arm does what --on-exit says, and the program ends.", Help: "end the run as Ctrl-C does", run: (*Edge).stopRun},
	{
		Word: "release", Label: "Torque off", Ask: "Take the torque now? The arm falls where nobody holds it, and the program ends.",
		Help: "end the run where the arm stands and let it go, whatever --on-exit says: hold on to it", run: (*Edge).releaseArm,
	},
	{Word: ctlStatus, Help: "print the state", run: func(*Edge, context.Context, string) (bool, error) { return false, nil }},
}

// unloadWord is the command for an overloaded joint.
const unloadWord = "unload"

// working are the words that would do something now, for the page. overloaded: a joint is.
func (e *Edge) working(overloaded bool) []string {
	words := []string{}
	for _, c := range Commands {
		if (c.works == nil || c.works(e)) && (c.Word != unloadWord || overloaded) {
			words = append(words, c.Word)
		}
	}
	return words
}

// moves reports whether there is something to pause.
func (e *Edge) moves() bool { return !e.control.operator.pause.Load() }

// canResume reports whether something waits for resume, or a person has the arm.
func (e *Edge) canResume() bool {
	o := &e.control.operator
	return o.pause.Load() || o.correct.Load() || e.waits() != ""
}

func (e *Edge) canCorrect() bool {
	return !e.control.operator.correct.Load() && e.checkCorrection() == nil
}

func episodeTakes(word string) func(*Edge) bool {
	return func(e *Edge) bool { return e.episodes != nil && e.episodes.Check(word) == nil }
}

// FindCommand returns the command of a word.
func FindCommand(word string) (Command, error) {
	i := slices.IndexFunc(Commands, func(c Command) bool { return c.Word == word })
	if i < 0 {
		return Command{}, fmt.Errorf("unknown command %q, want one of %s", word, strings.Join(CommandWords(), ", "))
	}
	return Commands[i], nil
}

// CommandWords are the words of Commands.
func CommandWords() (words []string) {
	for _, c := range Commands {
		words = append(words, c.Word)
	}
	return words
}

func (e *Edge) listenOperator(context.Context) (err error) {
	e.operator, err = operator.Listen(e.identity)
	return err
}

// command carries out one line of Commands.
func (e *Edge) command(ctx context.Context, line string) operator.Reply {
	e.operating.Lock()
	defer e.operating.Unlock()
	word, text, _ := strings.Cut(line, " ")
	acked := false
	c, err := FindCommand(word)
	switch text = strings.TrimSpace(text); {
	case err != nil:
	case c.Text == "" && text != "":
		err = fmt.Errorf("%s takes nothing behind it, got %q", word, text)
	default:
		acked, err = c.run(e, ctx, text)
	}
	if word != ctlStatus {
		e.recording.Operator(line, err)
	}
	reply := e.ctlReply()
	reply.OK, reply.Acked = err == nil, acked
	if err != nil {
		reply.Error = err.Error()
	}
	return reply
}

func (e *Edge) pause(context.Context, string) (bool, error) {
	e.control.operator.pause.Store(true)
	e.control.operator.correct.Store(false)
	return false, nil
}

func (e *Edge) resumeRun(context.Context, string) (bool, error) {
	corrected, paused := e.control.operator.correct.Swap(false), e.control.operator.pause.Swap(false)
	if !corrected && !paused && e.episodes.Resting() {
		e.control.operator.rest.Store(false) // the arm goes on without an episode
	}
	return false, nil
}

// resetBoth begins an episode here and at the server, which may confirm it.
func (e *Edge) resetBoth(ctx context.Context, _ string) (acked bool, err error) {
	if err = e.reset(); err == nil {
		acked, _ = e.link.reset(ctx, e.control.stats.episode.Load(), "")
	}
	return acked, err
}

func (e *Edge) runTask(ctx context.Context, text string) (acked bool, err error) {
	err = e.changeTask(ctx, text)
	return err == nil && e.link.flags.epoch.Load() != 0, err
}

// unload lets an overloaded joint go on.
func (e *Edge) unload(_ context.Context, joint string) (bool, error) {
	unloaded, err := e.control.arm.Unload(e.robot, joint)
	if err == nil {
		e.log.Info("the load was taken off, as an operator wanted", "joints", unloaded)
	}
	return false, err
}

func (e *Edge) save(context.Context, string) (bool, error) {
	return false, e.recording.Save()
}

// operatorRequests is what other threads ask of the tick.
type operatorRequests struct {
	leave   atomic.Bool   // park and stop
	ended   atomic.Uint32 // who wanted that first: endSignal and so on; 0: the run itself
	hurry   atomic.Bool   // stop without parking
	limp    atomic.Bool   // and take the torque, whatever --on-exit says
	pause   atomic.Bool   // hold, and ask for nothing; the schedule stays
	rest    atomic.Bool   // likewise, between two episodes
	correct atomic.Bool   // a person has the arm, with the leader; pause wins
	resets  atomic.Uint32 // episodes asked for so far
}

// Who may want a run to end.
const (
	endSignal uint32 = iota + 1
	endDuration
	endOperator
	endEpisodes // all are there
)

// end has the run end, for who is the first to want it.
func (o *operatorRequests) end(who uint32) {
	o.ended.CompareAndSwap(0, who)
	o.leave.Store(true)
}

func (e *Edge) stopRun(context.Context, string) (bool, error) {
	e.control.operator.end(endOperator)
	return false, nil
}

// releaseArm ends the run without parking, and takes the torque also under --on-exit hold.
func (e *Edge) releaseArm(context.Context, string) (bool, error) {
	o := &e.control.operator
	o.limp.Store(true)
	o.hurry.Store(true)
	o.end(endOperator)
	return false, nil
}

// errNoLeader is what a command is told that needs one.
var errNoLeader = errors.New("this run has no leader arm: start it with --leader PORT")

// correction hands the arm to the person at the leader, and waits until the tick has
// begun to.
func (e *Edge) correction(context.Context, string) (bool, error) {
	c := e.control
	if err := e.checkCorrection(); err != nil {
		return false, err
	}
	before := c.stats.takeovers.Load()
	c.operator.correct.Store(true)
	c.operator.pause.Store(false)
	for end := e.clock.Now().Add(tickTimeout); c.stats.takeovers.Load() == before && c.holder() < aligning; {
		if e.clock.Now() > end {
			c.operator.correct.Store(false)
			return false, errors.New("the tick does not answer")
		}
		e.clock.SleepUntil(e.clock.Now().Add(e.cfg.period()))
	}
	return false, nil
}

// checkCorrection refuses a take-over from which nothing would come.
func (e *Edge) checkCorrection() error {
	st := e.control.stats
	age := e.clock.Now().Sub(rt.Instant(st.leaderAt.Load()))
	switch {
	case e.leader == nil:
		return errNoLeader
	case e.control.operator.leave.Load() || state(st.state.Load()) == stateDead:
		return errors.New("the run is ending")
	case e.waits() != "":
		return errors.New(e.waits())
	case st.leaderStiff.Load() && e.control.holder() < aligning:
		return errors.New("the leader is stiff and does not let go: see its cable and supply")
	case age >= leaderSilent+leaderGrace:
		return fmt.Errorf("the leader does not answer%s: see its cable and supply", e.leaderAway())
	}
	return nil
}

// leaderGrace is how much older a leader's newest pose may be for a thread that is no tick.
const leaderGrace = 100 * time.Millisecond

func (e *Edge) leaderAway() string {
	if err := e.leaderArm.OpenError(); err != nil {
		return " (" + err.Error() + ")"
	}
	return ""
}

// holder is who has the arm. Any thread may call it.
func (c *control) holder() phase { return phase(c.stats.phase.Load()) }

// phaseText is who has the arm, in words; empty: there is no leader.
func (c *control) phaseText() string {
	if c.takeover.leader == nil {
		return ""
	}
	return c.holder().String()
}

// ctlReply is the status as edge-rt ctl prints it.
func (e *Edge) ctlReply() operator.Reply {
	s, st := e.status(), e.control.stats
	return operator.Reply{
		ID: s.ID, State: state(st.state.Load()).String(), Paused: e.control.operator.pause.Load(), Phase: e.control.phaseText(), Waits: e.waits(), Episode: st.episode.Load(), Task: s.Task,
		Ticks: s.Ticks, Queue: st.size.Load(), Starved: s.StarvedTicks, Requests: s.Requests, Chunks: s.Chunks,
		RTTms: s.RTTms.P50, Overruns: s.OverrunsOwn, Targets: s.Targets, Episodes: s.Episodes,
	}
}

// waits is what an operator has to do before anything moves; empty: nothing.
func (e *Edge) waits() string {
	if e.control.stats.needResume.Load() {
		return e.resume
	}
	if e.control.operator.rest.Load() && e.episodes.Resting() {
		return "between two episodes: edge-rt ctl start begins the next, edge-rt ctl resume goes on without"
	}
	return ""
}

// reset asks the tick for a new episode and waits until it has begun.
func (e *Edge) reset() error {
	c := e.control
	before := c.stats.episode.Load()
	c.operator.resets.Add(1)
	for end := e.clock.Now().Add(tickTimeout); c.stats.episode.Load() == before; {
		if e.clock.Now() > end {
			return errors.New("the tick does not answer")
		}
		e.clock.SleepUntil(e.clock.Now().Add(e.cfg.period()))
	}
	return nil
}

// SetTask is edge-rt ctl task. Any goroutine may call it.
func (e *Edge) SetTask(ctx context.Context, text string) error {
	e.operating.Lock()
	defer e.operating.Unlock()
	err := e.changeTask(ctx, text)
	e.recording.Operator(operator.Task+" "+text, err)
	return err
}

// setTask gives the arm another task: a new episode begins with it. One that the
// server cannot read, or that it does not confirm, changes nothing.
func (e *Edge) setTask(ctx context.Context, text string) error {
	if err := operator.CheckTask("the task", text); err != nil {
		return err
	}
	flags := e.link.flags
	if flags.epoch.Load() != 0 { // else the next session opens with it
		if acked, err := e.link.reset(ctx, e.control.stats.episode.Load()+1, text); !acked {
			return fmt.Errorf("the task stays as it was: %w", err)
		}
	}
	before := flags.task.Swap(&text)
	if err := e.reset(); err != nil {
		flags.task.Store(before)
		return err
	}
	e.log.Info("task", "text", text, "resets", e.control.stats.episode.Load())
	return nil
}

// changeTask is setTask, but for an episode that is under way: its task is on record, so
// where one begins as another ends it ends, and elsewhere a person ends it first.
func (e *Edge) changeTask(ctx context.Context, text string) error {
	if p := e.episodes.Status(); p != nil && p.Phase == episode.Recording {
		return e.episodes.Do(ctx, operator.Task, text)
	}
	return e.setTask(ctx, text)
}

func (e *Edge) beginEpisode(ctx context.Context, task string) (bool, error) {
	return false, e.episodes.Do(ctx, episode.Start, task)
}

// endsAs is the command of an outcome.
func endsAs(outcome string) func(*Edge, context.Context, string) (bool, error) {
	return func(e *Edge, ctx context.Context, _ string) (bool, error) {
		return false, e.episodes.Do(ctx, outcome, "")
	}
}

// Key is a key of the terminal. Any goroutine may call it.
func (e *Edge) Key(ctx context.Context, key string) {
	word := e.episodes.Key(key)
	switch {
	case key == "esc" || key == "q":
		word = "stop"
	case key == "tab" && e.leader != nil && e.control.holder() < aligning:
		word = "correct"
	case key == "tab" && e.leader != nil, key == "space" && e.control.operator.pause.Load():
		word = "resume"
	case key == "space":
		word = "pause"
	case e.cfg.Episodes.Strategy == episode.Highlight && word != record.Success:
		return
	case e.cfg.Episodes.Strategy == episode.Highlight:
		word = "save"
	case word == "":
		return
	}
	if reply := e.command(ctx, word); !reply.OK {
		e.log.Warn(reply.Error)
	}
}

// policyArm is the arm to its episodes: a policy does what is recorded.
type policyArm struct{ *Edge }

func (a policyArm) Task() string { return a.control.flags.taskText() }

func (a policyArm) Rest() { a.control.operator.rest.Store(true) }

func (a policyArm) NotReady() string {
	c := a.control
	switch {
	case c.operator.leave.Load():
		return "the run is ending"
	case c.stats.needResume.Load():
		return a.resume
	case c.operator.pause.Load():
		return "the run is paused: edge-rt ctl resume goes on"
	case c.holder() >= aligning:
		return "a person has the arm: edge-rt ctl resume gives it back"
	case c.flags.epoch.Load() == 0:
		return "there is no session with a server"
	case c.flags.missingCameras.Load() > 0:
		return "a camera has not given its first picture" + a.cameraErrors()
	case !c.stats.armed.Load():
		return "the arm is not under torque: no chunk has come"
	}
	return ""
}

// Begin has the policy begin anew, here and at the server. operating is held.
func (a policyArm) Begin(ctx context.Context, task string) error {
	err := error(nil)
	if task != "" {
		err = a.setTask(ctx, task)
	} else {
		_, err = a.resetBoth(ctx, "")
	}
	if err == nil {
		a.control.operator.rest.Store(false)
	}
	return err
}

func (e *Edge) newEpisodes() *episode.Episodes {
	return episode.New(episode.Config{
		Plan: e.cfg.Episodes, Robot: policyArm{e}, Record: e.record, All: e.cfg.Record == record.All, Clock: e.clock, Losses: e.recording.Losses,
		Say: func(text string, warn bool) {
			if warn {
				e.log.Warn(text)
			} else {
				e.log.Info(text)
			}
		},
		Done: func() { e.control.operator.end(endEpisodes) },
	})
}

// episodePoll is between looks at an episode's time.
const episodePoll = 50 * time.Millisecond

// stepEpisodes begins and ends episodes when it is time, until the run has ended.
func (e *Edge) stepEpisodes(ctx context.Context) {
	for !e.ending.Load() {
		e.operating.Lock()
		if e.cfg.Episodes.Strategy == episode.DAgger {
			e.episodes.Correct(e.control.holder() == correcting)
		}
		e.episodes.Step(ctx)
		e.operating.Unlock()
		e.clock.SleepUntil(e.clock.Now().Add(episodePoll))
	}
}
