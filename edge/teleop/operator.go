package teleop

import (
	"context"
	"fmt"

	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/episode"
	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/record"
)

// panel returns the commands of edge-rt ctl as a teleoperation carries them out.
func (s *session) panel() *operator.Panel {
	moves := func() bool { return !s.paused.Load() }
	actions := map[string]operator.Action{
		operator.Pause:   {Do: operator.Simple(func() { s.paused.Store(true) }), Works: moves},
		operator.Resume:  {Do: operator.Simple(func() { s.paused.Store(false) }), Works: s.paused.Load},
		operator.Task:    {Do: s.changeTask},
		operator.Unload:  {Do: s.unload},
		operator.Save:    {Do: s.save, Works: func() bool { return s.cfg.Record == record.Ring }},
		operator.Stop:    {Do: operator.Simple(func() { s.run.Leave(drive.Operator) })},
		operator.Release: {Do: operator.Simple(s.run.Release)},
	}
	operator.EpisodeActions(actions, func() *episode.Episodes { return s.episodes })
	return &operator.Panel{
		Actions: actions,
		Source:  "a leader arm drives this one, and no policy",
		State:   s.reply,
		Note:    func(line string, err error) { s.recording.Operator(line, err) },
	}
}

// changeTask sets the task. While an episode is recorded, its task stays.
func (s *session) changeTask(ctx context.Context, text string) (bool, error) {
	if p := s.episodes.Status(); p != nil && p.Phase == episode.Recording {
		return false, s.episodes.Do(ctx, operator.Task, text)
	}
	return false, s.setTask(text)
}

func (s *session) unload(_ context.Context, joint string) (bool, error) {
	_, err := s.arm.Unload(s.cfg.Follower.Robot, joint)
	return false, err
}

func (s *session) save(context.Context, string) (bool, error) { return false, s.recording.Save() }

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
	word := operator.OfKey(key)
	switch word {
	case "", operator.Pause, operator.Correct: // a leader's pause has no key
		return
	case episode.Start:
		word = s.episodes.Next()
	}
	if reply := s.commands.Command(context.Background(), word); !reply.OK {
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
	case record.RunStates[a.state.Load()] == drive.Connecting:
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
		Done: func() { s.run.Leave(drive.Episodes) },
	})
}
