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
	"edgert/wire"
)

// Limits of the operator's socket.
const (
	ctlTimeout  = 5 * time.Second        // one command, answer included
	ctlRead     = 500 * time.Millisecond // for the command itself: the next client waits
	ctlLine     = wire.MaxTextBytes + 64 // bytes of a command
	tickTimeout = time.Second            // for the tick to take a command
)

// CtlCommands are the words of edge-rt ctl; CtlTask is followed by a text.
var CtlCommands = []string{"pause", "resume", "reset", CtlTask, "save", "status"}

// CtlTask is the word that gives the arm another task.
const CtlTask = "task"

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

// command carries out one of CtlCommands.
func (e *Edge) command(ctx context.Context, line string) CtlReply {
	e.operating.Lock()
	defer e.operating.Unlock()
	c := e.control
	var err error
	word, text, _ := strings.Cut(line, " ")
	acked := false
	switch word {
	case "pause":
		c.operator.pause.Store(true)
	case "resume":
		c.operator.pause.Store(false)
	case "reset":
		if err = e.reset(); err == nil {
			acked, _ = e.link.reset(ctx, c.stats.episode.Load(), "")
		}
	case CtlTask:
		err = e.setTask(ctx, strings.TrimSpace(text))
		acked = err == nil && e.link.flags.epoch.Load() != 0
	case "save":
		if e.record == nil {
			err = errors.New("nothing is kept that could be saved: the run has --record off")
		}
		e.record.Save(&savedByHand, true)
	case "status":
	default:
		err = fmt.Errorf("unknown command %q, want one of %v", word, CtlCommands)
	}
	if word != "status" {
		e.noteOperator(line, err)
	}
	reply := e.ctlReply()
	reply.OK, reply.Acked = err == nil, acked
	if err != nil {
		reply.Error = err.Error()
	}
	return reply
}

// ctlReply is the status as edge-rt ctl prints it.
func (e *Edge) ctlReply() CtlReply {
	s, st := e.status(), e.control.stats
	return CtlReply{
		ID: s.ID, State: state(st.state.Load()).String(), Paused: e.control.operator.pause.Load(), Waits: e.waits(), Episode: st.episode.Load(), Task: s.Task,
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

// Ctl sends one line to the edge called id, or to the only one when id is empty: one of
// CtlCommands, and behind CtlTask a text.
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
