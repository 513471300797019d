package teleop

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/edge-rt/edge-rt/edge/direct"
	"github.com/edge-rt/edge-rt/edge/episode"
	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/record"
)

// words are the commands of edge-rt ctl; a text follows operator.Task.
var words = []string{"pause", "resume", operator.Task, episode.Start, record.Success, record.Failure, record.Discard,
	record.Rerecord, "unload", "save", "stop", "release", "status"}

// command executes one of words.
func (s *session) command(line string) operator.Reply {
	s.operating.Lock()
	defer s.operating.Unlock()
	word, text, _ := strings.Cut(line, " ")
	text = strings.TrimSpace(text)
	var err error
	switch word {
	case "pause":
		s.paused.Store(true)
	case "resume":
		s.paused.Store(false)
	case operator.Task:
		if p := s.episodes.Status(); p != nil && p.Phase == episode.Recording {
			err = s.episodes.Do(context.Background(), word, text)
		} else {
			err = s.setTask(text)
		}
	case episode.Start, record.Success, record.Failure, record.Discard, record.Rerecord:
		err = s.episodes.Do(context.Background(), word, text)
	case "unload":
		_, err = s.arm.Unload(s.cfg.Follower.Robot, text)
	case "save":
		err = s.recording.Save()
	case "stop":
		s.run.Leave()
	case "release":
		s.run.Release()
	case "status":
	case "reset":
		err = errors.New("there is nothing to reset: a leader arm drives this one, and no policy")
	case "correct":
		err = errors.New("a leader arm drives this one already, and no policy: there is nothing to take over")
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

// reply returns the status that edge-rt ctl prints.
func (s *session) reply() operator.Reply {
	stats := s.run.Stats()
	r := operator.Reply{
		ID:       s.identity.ID,
		State:    record.RunStates[s.state.Load()],
		Paused:   s.paused.Load(),
		Ticks:    stats.Ticks,
		Overruns: stats.OverrunsOwn,
	}
	r.Task, r.Episodes = *s.task.Load(), s.episodes.Status()
	return r
}

func (s *session) setTask(text string) error {
	err := operator.CheckTask("the task", text)
	if err == nil {
		s.task.Store(&text)
	}
	return err
}

// key handles a key of the terminal.
func (s *session) key(key string) {
	word := s.episodes.Key(key)
	if key == "esc" || key == "q" {
		word = "stop"
	}
	if word == "" {
		return
	}
	if reply := s.command(word); !reply.OK {
		fmt.Fprintln(s.cfg.Out, reply.Error)
	}
}

// leaderArm is the episodes' view of the follower: a person at the leader does the task, and
// continues between episodes.
type leaderArm struct{ *session }

func (a leaderArm) Task() string { return *a.task.Load() }
func (a leaderArm) Rest()        {}

func (a leaderArm) NotReady() string {
	switch {
	case a.run.Leaving():
		return "the run is ending"
	case a.paused.Load():
		return "the follower is paused: edge-rt ctl resume goes on"
	case record.RunStates[a.state.Load()] == direct.Connecting:
		return "the follower is not under torque yet"
	case a.pending.Load() > 0:
		return "a camera has not given its first picture"
	}
	return ""
}

func (a leaderArm) Begin(_ context.Context, task string) error {
	if task == "" {
		return nil
	}
	return a.setTask(task)
}

func (s *session) newEpisodes() *episode.Episodes {
	return episode.New(episode.Config{
		Plan:   s.cfg.Episodes,
		Robot:  leaderArm{s},
		Record: s.record,
		All:    s.cfg.Record == record.All,
		Clock:  s.clock,
		Losses: s.recording.Losses,
		Say: func(text string, warn bool) {
			if warn {
				text = "warning: " + text
			}
			fmt.Fprintln(s.cfg.Out, text)
		},
		Done: func() { s.run.Leave() },
	})
}
