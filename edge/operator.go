package edge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/episode"
	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/edge/uplink"
	"github.com/edge-rt/edge-rt/record"
)

// panel returns the commands of edge-rt ctl as a policy's run carries them out.
func (e *Edge) panel() *operator.Panel {
	actions := map[string]operator.Action{
		operator.Pause:   {Do: operator.Simple(e.pause), Works: e.moves},
		operator.Resume:  {Do: operator.Simple(e.resumeRun), Works: e.canResume},
		operator.Correct: {Do: e.correction, Works: e.canCorrect},
		operator.Reset:   {Do: e.resetBoth},
		operator.Task:    {Do: e.runTask},
		operator.Unload:  {Do: e.unload},
		operator.Save:    {Do: e.save, Works: func() bool { return e.cfg.Record == record.Ring }},
		operator.Stop:    {Do: operator.Simple(func() { e.drive.Leave(drive.Operator) })},
		operator.Release: {Do: operator.Simple(func() { e.drive.Release() })},
	}
	operator.EpisodeActions(actions, func() *episode.Episodes { return e.episodes })
	return &operator.Panel{
		Actions: actions,
		Source:  "a policy drives this arm",
		Parts:   e.partsToTake(),
		State:   e.ctlReply,
		Note:    func(line string, err error) { e.recording.Operator(line, err) },
	}
}

// partsToTake returns the names of the parts with a leader, when there are several.
func (e *Edge) partsToTake() []string {
	if !e.led() {
		return nil
	}
	names := strings.Split(e.partsOf(e.control.takeover.parts), ", ")
	if len(names) < 2 {
		return nil
	}
	return names
}

// working returns the words of the commands that have an effect now, for the page. overloaded
// reports that a joint is overloaded: only then unload is among the words.
func (e *Edge) working(overloaded bool) []string {
	if overloaded {
		return e.commands.Working()
	}
	return e.commands.Working(operator.Unload)
}

// moves reports whether the run is not paused.
func (e *Edge) moves() bool { return !e.control.operator.pause.Load() }

// canResume reports whether the run waits for resume, or a person drives the arm.
func (e *Edge) canResume() bool {
	o := &e.control.operator
	return o.pause.Load() || o.correct.Load() || e.waits() != ""
}

func (e *Edge) canCorrect() bool {
	return !e.control.operator.correct.Load() && e.checkCorrection() == nil
}

func (e *Edge) listenOperator(context.Context) (err error) {
	e.operator, err = operator.Listen(e.identity)
	return err
}

func (e *Edge) pause() {
	e.control.operator.pause.Store(true)
	e.control.operator.correct.Store(false)
}

func (e *Edge) resumeRun() {
	corrected, paused := e.control.operator.correct.Swap(false), e.control.operator.pause.Swap(false)
	if !corrected && !paused && e.episodes.Resting() {
		e.control.operator.rest.Store(false) // the arm moves without an episode
	}
}

// resetBoth begins an episode here and at the server. acked reports the server's confirmation.
func (e *Edge) resetBoth(ctx context.Context, _ string) (acked bool, err error) {
	if e.link.Due() {
		e.control.operator.yields.Store(true)
	}
	if err = e.reset(); err == nil {
		acked, _ = e.link.Reset(ctx, e.control.stats.episode.Load(), "")
	}
	return acked, err
}

func (e *Edge) runTask(ctx context.Context, text string) (acked bool, err error) {
	err = e.changeTask(ctx, text)
	return err == nil && e.link.In.Sessions().Open != nil, err
}

// unload takes the load off an overloaded joint, so that it may be driven again.
func (e *Edge) unload(_ context.Context, joint string) (bool, error) {
	unloaded, err := e.control.arm.Unload(e.robot, joint)
	if err == nil {
		e.log.Info("the load was taken off at an operator's command", "joints", unloaded)
	}
	return false, err
}

func (e *Edge) save(context.Context, string) (bool, error) {
	return false, e.recording.Save()
}

// operatorRequests are the requests of other threads to the tick.
type operatorRequests struct {
	pause   atomic.Bool   // hold and send no observation; the schedule stays
	rest    atomic.Bool   // hold like pause, between two episodes
	correct atomic.Bool   // a person drives the arm with the leader; pause has priority
	taken   atomic.Uint32 // robot.Joints of the parts that correct hands over; 0: of all parts with a leader
	resets  atomic.Uint32 // number of requested episodes

	yields atomic.Bool  // an operator's reset lets another model of the service begin
	anew   atomic.Bool  // the next episode has another model, so the arm starts slowly
	easeIn atomic.Int64 // ns for which that model drives the arm slowly
}

// errNoLeader is the error of a command that needs a leader.
var errNoLeader = errors.New("this run has no leader arm: start it with --leader PORT, or --leader jog for keys")

// await waits until the tick has carried out a request.
func (e *Edge) await(done func() bool) error { return follow.Await(e.clock, e.cfg.period(), done) }

func (e *Edge) leaderAway() string {
	if why := e.remotes.Why(e.clock.Now()); why != "" {
		return ": " + why
	}
	return cureOfSilence(e.leaderArms)
}

// cureOfSilence returns the end of a sentence about arms that do not answer.
func cureOfSilence(arms hotplug.Parts) string {
	cure := ": check its cable and supply"
	if err := arms.OpenError(); err != nil {
		cure = " (" + err.Error() + ")" + cure
	}
	return cure
}

// holder returns the phase of the take-over, which determines whether the policy or a person drives the arm. Any thread
// may call it.
func (c *control) holder() mode { return mode(c.stats.phase.Load()) }

// phaseText returns the phase as text, "" without a leader.
func (c *control) phaseText() string {
	if c.takeover.leader == nil {
		return ""
	}
	return c.holder().String()
}

// ctlReply returns the status for edge-rt ctl.
func (e *Edge) ctlReply() operator.Reply {
	s, st := e.status(), e.control.stats
	return operator.Reply{
		ID:       s.ID,
		State:    state(st.state.Load()).String(),
		Paused:   e.control.operator.pause.Load(),
		Phase:    e.control.phaseText(),
		Taken:    e.taken(),
		Waits:    e.waits(),
		Episode:  st.episode.Load(),
		Task:     s.Task,
		Ticks:    s.Ticks,
		Queue:    st.size.Load(),
		Starved:  s.StarvedTicks,
		Requests: s.Requests,
		Chunks:   s.Chunks,
		RTTms:    s.RTTms.P50,
		Overruns: s.OverrunsOwn,
		Targets:  s.Targets,
		Episodes: s.Episodes,
		Leader:   s.Leader,
	}
}

// waits returns the step that the operator must take before the run continues, "" if no step is
// needed.
func (e *Edge) waits() string {
	if e.control.stats.needResume.Load() {
		return e.resume
	}
	if e.control.operator.rest.Load() && e.episodes.Resting() {
		return "between two episodes: edge-rt ctl start begins the next, edge-rt ctl resume goes on without"
	}
	return ""
}

// reset requests a new episode from the tick and waits until it has begun.
func (e *Edge) reset() error {
	c := e.control
	before := c.stats.episode.Load()
	c.operator.resets.Add(1)
	return e.await(func() bool { return c.stats.episode.Load() != before })
}

// setTask gives the arm another task and begins a new episode with it. A task that the server
// cannot read or does not confirm changes nothing.
func (e *Edge) setTask(ctx context.Context, text string) error {
	if err := operator.CheckTask("the task", text); err != nil {
		return err
	}
	// without a session there is no server to ask: the next session opens with this task
	if e.link.In.Sessions().Open != nil {
		if acked, err := e.link.Reset(ctx, e.control.stats.episode.Load()+1, text); !acked {
			return fmt.Errorf("the task stays as it was: %w", err)
		}
	}
	before := e.link.Out.Task.Swap(&text)
	if err := e.reset(); err != nil {
		e.link.Out.Task.Store(before)
		return err
	}
	e.log.Info("task", "text", text, "resets", e.control.stats.episode.Load())
	return nil
}

// changeTask is setTask, except while an episode is recorded, since the episode's task is on
// record. A strategy without breaks then ends the episode and begins the next with the new task;
// under other strategies a person must end the episode first.
func (e *Edge) changeTask(ctx context.Context, text string) error {
	if p := e.episodes.Status(); p != nil && p.Phase == episode.Recording {
		return e.episodes.Do(ctx, operator.Task, text)
	}
	return e.setTask(ctx, text)
}

// Key handles a key of the terminal. Any goroutine may call it.
func (e *Edge) Key(ctx context.Context, key string) {
	word := operator.OfKey(key)
	if word == episode.Start {
		word = e.episodes.Next()
	}
	if e.jog != nil && e.control.holder() == correcting {
		if handled, say := e.jog.Key(key); handled {
			if say != "" {
				e.log.Info(say)
			}
			return
		}
	}
	switch o := &e.control.operator; {
	case word == operator.Correct && !e.led(), word == "":
		return
	case word == operator.Correct && e.control.holder() >= aligning, word == operator.Pause && o.pause.Load():
		word = operator.Resume
	case word == operator.Correct, word == operator.Pause, word == operator.Stop:
	case e.cfg.Episodes.Strategy == episode.Highlight && word != record.Success:
		return
	case e.cfg.Episodes.Strategy == episode.Highlight:
		word = operator.Save
	}
	if reply := e.commands.Command(ctx, word); !reply.OK {
		e.log.Warn(reply.Error)
	}
}

// policyArm implements episode.Robot for a run in which a policy moves the arm.
type policyArm struct{ *Edge }

func (a policyArm) Task() string { return a.control.out.TaskText() }

func (a policyArm) Rest() { a.control.operator.rest.Store(true) }

func (a policyArm) NotReady() string {
	c := a.control
	switch cameras := capture.NotReady(a.cameras, a.missing.Load() > 0); {
	case a.Edge.drive.Leaving():
		return "the run is ending"
	case c.stats.needResume.Load():
		return a.resume
	case c.operator.pause.Load():
		return "the run is paused: edge-rt ctl resume goes on"
	case c.holder() >= aligning:
		return "a person has the arm: edge-rt ctl resume gives it back"
	case c.in.Sessions().Open == nil:
		return "there is no session with a server"
	case a.link.Due():
		return "the server has another model for this robot, which begins first"
	case cameras != "":
		return cameras
	case !c.stats.armed.Load():
		return "the arm is not under torque: no chunk has arrived"
	case c.stats.silent.Load():
		return "the arm does not answer" + cureOfSilence(a.arms)
	}
	return ""
}

// Begin restarts the policy, here and at the server. Owner: a command.
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
		Plan:   e.cfg.Episodes,
		Robot:  policyArm{e},
		Record: e.record,
		All:    e.cfg.Record == record.All,
		Clock:  e.clock,
		Losses: e.recording.Losses,
		Say: func(text string, warn bool) {
			if warn {
				e.log.Warn(text)
			} else {
				e.log.Info(text)
			}
		},
		Done: func() { e.drive.Leave(drive.Episodes) },
	})
}

// episodePoll is the interval at which stepEpisodes checks an episode's time.
const episodePoll = 50 * time.Millisecond

// stepEpisodes begins and ends episodes on time, until the run has ended.
func (e *Edge) stepEpisodes(ctx context.Context) {
	for !e.drive.Ending().Load() {
		e.commands.Between(func() { e.stepEpisode(ctx) })
		e.clock.SleepUntil(e.clock.Now().Add(episodePoll))
	}
}

func (e *Edge) stepEpisode(ctx context.Context) {
	// the end of a run takes the arm from a person who has not given it back: that correction is no success
	if e.cfg.Episodes.Strategy == episode.DAgger && !e.drive.Leaving() {
		e.episodes.Correct(e.control.holder() == correcting)
	}
	e.rollOver(ctx)
	e.episodes.Step(ctx)
}

// modelChange returns the way in which the run takes another model of its service; nil: it does not.
func (e *Edge) modelChange() *uplink.Change {
	if e.cfg.ModelChange != modelEpisode {
		return nil
	}
	return &uplink.Change{Between: e.between, Begin: e.takeModel}
}

// between reports whether another model may begin: between two episodes, in a pause, after an
// operator's reset, before the first arming, or without a session once all actions have run. While
// an episode is recorded no other model may begin, except under a strategy without breaks. Any
// thread may call it.
func (e *Edge) between() bool {
	if p := e.episodes.Status(); p != nil && p.Phase == episode.Recording && !e.rolls() {
		return false
	}
	c := e.control
	o := &c.operator
	return o.pause.Load() || o.rest.Load() || o.yields.Load() || !c.stats.armed.Load() ||
		c.in.Sessions().Open == nil && c.stats.size.Load() == 0
}

// rolls reports whether an episode is always under way.
func (e *Edge) rolls() bool { return e.cfg.Episodes.Strategy == episode.Sentry }

// takeModel begins an episode with another model, while no session is open. Owner: the link's thread.
func (e *Edge) takeModel(to uplink.Contract) {
	o := &e.control.operator
	before := []string{e.contract.SHA256}
	if known := e.models.Load(); known != nil {
		before = *known
	}
	models := append(slices.Clone(before), to.SHA256)
	e.models.Store(&models)
	e.model.Store(&to)
	e.record.ChangeRun("model_sha256", to.SHA256)
	o.easeIn.Store(int64(e.easeIn(&to)))
	o.anew.Store(true)
	if e.rolls() {
		o.rest.Store(true) // the arm holds until rollOver begins the next recorded episode
	}
	o.resets.Add(1) // the session opens at once, and the next tick begins its episode and takes the session
	o.yields.Store(false)
}

// rollOver ends the former model's recorded episode and begins the next, if an episode must always
// be under way (e.rolls).
func (e *Edge) rollOver(ctx context.Context) {
	if e.rolls() && e.control.operator.rest.Load() && e.link.In.Sessions().Open != nil {
		if e.episodes.Do(ctx, operator.Task, "") != nil { // Do has reported the error
			e.control.operator.rest.Store(false) // the new model drives in the former model's episode
		}
	}
}
