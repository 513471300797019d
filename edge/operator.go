package edge

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"edgert/internal/exit"
	"edgert/rt"
	"edgert/wire"
)

// Limits of the operator's socket.
const (
	ctlTimeout  = 5 * time.Second        // one command, answer included
	ctlRead     = 500 * time.Millisecond // for the command itself: the next client waits
	ctlLine     = wire.MaxTextBytes + 64 // bytes of a command
	tickTimeout = time.Second            // for the tick to take a command
)

// Command is one word of edge-rt ctl, and one button of the page.
type Command struct {
	Word  string
	Help  string // what it does, for --help
	Text  string // what stands behind the word; empty: nothing
	Label string // its button's; empty: it has none
	Ask   string // what the page asks before; empty: nothing

	run func(*Edge, context.Context, string) (acked bool, err error)
}

// CtlTask is the word that gives the arm another task.
const CtlTask = "task"

const ctlStatus = "status"

// Commands are all of them. One that is added here is a word of edge-rt ctl, has its line
// in --help and its button on the page.
var Commands = []Command{
	{Word: "pause", Label: "Pause", Help: "hold and keep the queue", run: (*Edge).pause},
	{Word: "resume", Label: "Resume", Help: "go on; after a correction the policy has the arm again", run: (*Edge).resumeRun},
	{
		Word: "correct", Label: "Take over", Ask: "Take the arm over with the leader? Hold it: it goes limp where the follower is, and the follower goes where it goes.",
		Help: "a person takes the arm over with the leader of --leader: hold it, it goes limp where the follower is", run: (*Edge).correction,
	},
	{Word: "reset", Label: "New episode", Help: "new episode, the queue is dropped", run: (*Edge).resetBoth},
	{Word: CtlTask, Text: "TEXT", Help: "new episode with another task, for policies that read it", run: (*Edge).runTask},
	{Word: "save", Label: "Save the record", Help: "write what --record ring has in memory", run: (*Edge).save},
	{Word: "stop", Label: "Stop", Ask: "End the run? The arm does what --on-exit says, and the program ends.", Help: "end the run as Ctrl-C does", run: (*Edge).stopRun},
	{
		Word: "release", Label: "Torque off", Ask: "Take the torque now? The arm falls where nobody holds it, and the program ends.",
		Help: "end the run where the arm stands and let it go, whatever --on-exit says: hold on to it", run: (*Edge).releaseArm,
	},
	{Word: ctlStatus, Help: "print the state", run: func(*Edge, context.Context, string) (bool, error) { return false, nil }},
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

// listenOperator opens the socket; the id is locked, so an old one is a dead edge's.
func (e *Edge) listenOperator(context.Context) (err error) {
	path := socketPath(e.identity.Dir, e.identity.ID)
	os.Remove(path)
	if e.operator, err = net.Listen("unix", path); err != nil {
		return fmt.Errorf("operator socket: %w", err)
	}
	return nil
}

// serveOperator answers one connection at a time, until the socket is closed.
func (e *Edge) serveOperator(ctx context.Context) error {
	for {
		c, err := e.operator.Accept()
		if err != nil {
			return nil // closed: the run is over
		}
		c.SetReadDeadline(time.Now().Add(ctlRead))
		c.SetWriteDeadline(time.Now().Add(ctlTimeout))
		r := bufio.NewReaderSize(c, ctlLine)
		line, err := r.ReadSlice('\n')
		var reply CtlReply
		if err != nil {
			reply.Error = "want one command and a newline"
		} else {
			reply = e.command(ctx, string(line[:len(line)-1]))
		}
		json.NewEncoder(c).Encode(reply)
		c.Close()
	}
}

// command carries out one line of Commands.
func (e *Edge) command(ctx context.Context, line string) CtlReply {
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
		e.noteOperator(line, err)
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
	e.control.operator.correct.Store(false)
	e.control.operator.pause.Store(false)
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
	err = e.setTask(ctx, text)
	return err == nil && e.link.flags.epoch.Load() != 0, err
}

func (e *Edge) save(context.Context, string) (bool, error) {
	if e.record == nil {
		return false, errors.New("nothing is kept that could be saved: the run has --record off")
	}
	e.record.Save(&savedByHand, true)
	return false, nil
}

func (e *Edge) stopRun(context.Context, string) (bool, error) {
	e.control.operator.leave.Store(true)
	return false, nil
}

// releaseArm ends the run without parking, and takes the torque also under --on-exit hold.
func (e *Edge) releaseArm(context.Context, string) (bool, error) {
	o := &e.control.operator
	o.limp.Store(true)
	o.hurry.Store(true)
	o.leave.Store(true)
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
func (e *Edge) ctlReply() CtlReply {
	s, st := e.status(), e.control.stats
	return CtlReply{
		ID: s.ID, State: state(st.state.Load()).String(), Paused: e.control.operator.pause.Load(), Phase: e.control.phaseText(), Waits: e.waits(), Episode: st.episode.Load(), Task: s.Task,
		Ticks: s.Ticks, Queue: st.size.Load(), Starved: s.StarvedTicks, Requests: s.Requests, Chunks: s.Chunks,
		RTTms: s.RTTms.P50, Overruns: s.OverrunsOwn, Targets: s.Targets,
	}
}

// waits is what an operator has to do before anything moves; empty: nothing.
func (e *Edge) waits() string {
	if e.control.stats.needResume.Load() {
		return e.resume
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
	err := e.setTask(ctx, text)
	e.noteOperator(CtlTask+" "+text, err)
	return err
}

// setTask gives the arm another task: a new episode begins with it. One that the
// server cannot read, or that it does not confirm, changes nothing.
func (e *Edge) setTask(ctx context.Context, text string) error {
	if text == "" {
		return errors.New("want a text behind task, such as: task pick up the cube")
	}
	if err := CheckTask("the task", text); err != nil {
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
	e.log.Info("task", "text", text, "episode", e.control.stats.episode.Load())
	return nil
}

// abandoned reports whether nothing listens, without taking the lock of the id.
func abandoned(socket string) bool {
	c, err := net.DialTimeout("unix", socket, ctlTimeout)
	if err == nil {
		c.Close()
	}
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, os.ErrNotExist)
}

// Ctl sends one line to the edge called id, or to the only one when id is empty: a word
// of Commands, and the text that it takes.
func Ctl(id, line string) (CtlReply, error) {
	var reply CtlReply
	dir, err := stateDir()
	if err != nil {
		return reply, exit.With(exit.Config, err)
	}
	if id != "" { // as the edge itself reads its --id
		if id, err = robotID(id); err != nil {
			return reply, err
		}
	}
	path := socketPath(dir, id)
	if id == "" {
		found, err := filepath.Glob(filepath.Join(dir, "*.sock"))
		found = slices.DeleteFunc(found, abandoned)
		if err != nil || len(found) == 0 {
			return reply, exit.Errorf(exit.Absent, "no edge runs here (no socket in %s)", dir)
		}
		if len(found) > 1 {
			return reply, exit.Errorf(exit.Usage, "%d edges run here (%v): choose one with --id", len(found), found)
		}
		path = found[0]
	}
	c, err := net.DialTimeout("unix", path, ctlTimeout)
	if err != nil {
		return reply, exit.Errorf(exit.Absent, "no edge answers at %s: %w; give the --id of one that runs, or leave it out when there is only one", path, err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(ctlTimeout))
	if _, err := fmt.Fprintln(c, line); err != nil {
		return reply, err
	}
	if err := json.NewDecoder(c).Decode(&reply); err != nil {
		return reply, fmt.Errorf("answer of the edge: %w", err)
	}
	if !reply.OK && strings.HasPrefix(line, CtlTask) { // as a session with it is refused
		return reply, exit.With(exit.Config, errors.New(reply.Error))
	}
	if !reply.OK {
		return reply, errors.New(reply.Error)
	}
	return reply, nil
}
