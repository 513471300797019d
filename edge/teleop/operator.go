package teleop

import (
	"errors"
	"fmt"
	"strings"

	"edgert/edge/operator"
)

// words are what edge-rt ctl may send; operator.Task is followed by a text.
var words = []string{"pause", "resume", operator.Task, "save", "stop", "release", "status"}

// command carries out one of words.
func (s *session) command(line string) operator.Reply {
	word, text, _ := strings.Cut(line, " ")
	text = strings.TrimSpace(text)
	var err error
	switch word {
	case "pause":
		s.paused.Store(true)
	case "resume":
		s.paused.Store(false)
	case operator.Task:
		if err = operator.CheckTask("the task", text); err == nil {
			s.task.Store(&text)
		}
	case "save":
		err = s.recording.Save()
	case "stop":
		s.leave.Store(true)
	case "release":
		s.limp.Store(true)
		s.leave.Store(true)
	case "status":
	case "reset":
		err = errors.New("there is nothing to reset: a leader arm drives this one, and no policy")
	default:
		err = fmt.Errorf("unknown command %q, want one of %v", word, words)
	}
	if word != "status" {
		s.recording.Operator(line, err)
	}
	reply := s.reply()
	if reply.OK = err == nil; err != nil {
		reply.Error = err.Error()
	}
	return reply
}

// reply is the status as edge-rt ctl prints it.
func (s *session) reply() operator.Reply {
	stats := s.loop.Stats()
	r := operator.Reply{ID: s.identity.ID, State: stateConnecting, Paused: s.paused.Load(), Ticks: stats.Ticks, Overruns: stats.OverrunsOwn}
	switch {
	case s.armed.Load() && r.Paused:
		r.State = stateStalled
	case s.armed.Load():
		r.State = stateStreaming
	}
	if task := s.task.Load(); task != nil {
		r.Task = *task
	}
	return r
}
