package attend

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/episode"
	"github.com/edge-rt/edge-rt/edge/leader"
	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/record"
)

// Live is the JSON of the page.
type Live struct {
	drive.Status
	drive.Live
	Remote *leader.RemoteStats `json:"remote_leader,omitempty"` // with --leader zenoh:NAME
	Jog    []string            `json:"jog,omitempty"`           // joints that the page may jog (POST /jog)
}

// Summary is the result of a run without a policy; its JSON keys are a contract (docs/json.md).
type Summary struct {
	drive.Status
	drive.Totals
	Leader *drive.BusSummary `json:"leader_bus,omitempty"` // teleop: the leader's bus
	// teleop: counts and times of the leaders on other machines
	Remote   *leader.RemoteStats `json:"remote_leader,omitempty"`
	Replayed *Replayed           `json:"replayed,omitempty"` // replay: progress of the episode
}

// Replayed is the progress of a recorded episode.
type Replayed struct {
	File    string  `json:"file"`    // name of the record
	Episode uint32  `json:"episode"` // number of the episode
	Speed   float64 `json:"speed"`   // ratio, --speed
	Seconds float64 `json:"seconds"` // s, length of the part that ran, at this speed
	Whole   float64 `json:"whole_s"` // s, length of the episode at this speed
	Done    bool    `json:"done"`    // the episode ran to its end
}

// status reads the counters of the run.
func (s *session) status() drive.Status {
	st := s.run.Status()
	st.ID, st.FPS = s.identity.ID, s.rate
	st.Schedule, st.Task = s.schedule, *s.task.Load()
	st.Episodes = s.episodes.Status()
	st.InState = map[string]float64{}
	for i := range s.inState {
		if d := time.Duration(s.inState[i].Load()); d > 0 {
			st.InState[record.RunStates[i]] = drive.Seconds(d)
		}
	}
	score := s.sims.Score()
	st.Targets, st.Collisions = score.Reached, score.Collided
	return st
}

func (s *session) live() *Live {
	l := &Live{Status: s.status(), Live: drive.Live{
		Robot:     s.cfg.Arm.Robot.Name,
		State:     record.RunStates[s.state.Load()],
		Paused:    s.paused.Load(),
		Bus:       s.run.Bus(s.arms.Stats()),
		Parts:     s.run.Parts(),
		Frames:    drive.LiveFramesOf(s.cameras),
		Simulated: s.sims.Len() > 0,
	}}
	l.Remote = s.far.Stats(s.clock.Now())
	if s.jog != nil {
		l.Jog = s.jog.Names()
	}
	var not []string
	if !s.viewer.Show(&l.Live, s.clock.Now()) {
		not = append(not, operator.Unload)
	}
	l.Works = s.commands.Working(not...)
	return l
}

func (s *session) summary(err error) *Summary {
	sum := &Summary{Status: s.status(), Totals: s.run.Totals(s.arms.Stats(), s.cameras)}
	sum.HeldAll = s.heldAll.Load()
	sum.Page = s.page.Stats()
	sum.Record = s.recording.Stats()
	sum.Exit = drive.EndingOf(err, s.run.Asked(s.cfg.Episodes.Count, sum.HeldAll))
	s.source.summarize(sum)
	return sum
}

// WriteTable writes the summary for people.
func (sum *Summary) WriteTable(w io.Writer) error {
	return drive.WriteTable(w, sum.Schedule, &sum.Status, &sum.Totals, func(row drive.Row) {
		if b := sum.Leader; b != nil {
			row("leader", "%d cycles, p50 %.0f us, p99 %.0f us, lost %d, corrupt %d", b.Cycles, b.P50, b.P99, b.Lost,
				b.Corrupt)
		}
		if l := sum.Remote; l != nil {
			row("leader", "%s", l)
		}
		if p := sum.Replayed; p != nil {
			how := "stopped"
			if p.Done {
				how = "replayed"
			}
			row("episode", "%s: %.1f of %.1f s", how, p.Seconds, p.Whole)
		}
		row("limits", "%d goals clipped in range, %d in speed", sum.RangeClips, sum.StepClips)
	})
}

// report writes the events of the tick into log and record, and begins and ends episodes on time.
// After the last tick it does both once more.
func (s *session) report() error {
	for ended := false; !ended; {
		ended = s.run.Ending().Load()
		s.events.Drain(s.reporter.Report)
		s.reporter.ReportCameras(s.clock.Now(), s.cameras)
		s.commands.Between(func() { s.episodes.Step(context.Background()) })
		s.clock.SleepUntil(s.clock.Now().Add(reportEvery))
	}
	return nil
}

// refreshPreviews makes the pictures that visitors of the page request.
func (s *session) refreshPreviews() error {
	for !s.run.Ending().Load() {
		for _, p := range s.previews {
			p.Refresh(s.clock.Now())
		}
		for _, e := range s.encoders { // without a policy no sender decodes the first pictures
			e.AwaitFirst(&s.pending)
		}
		s.clock.SleepUntil(s.clock.Now().Add(previewPoll))
	}
	return nil
}

// panel returns the commands of edge-rt ctl that have an effect in this session.
func (s *session) panel() *operator.Panel {
	moves := func() bool { return !s.paused.Load() }
	actions := map[string]operator.Action{
		operator.Pause:  {Do: operator.Simple(func() { s.paused.Store(true) }), Works: moves},
		operator.Resume: {Do: operator.Simple(func() { s.paused.Store(false) }), Works: s.paused.Load},
		operator.Task:   {Do: s.changeTask},
		operator.Unload: {Do: func(_ context.Context, joint string) (bool, error) {
			_, err := s.arm.Unload(s.cfg.Arm.Robot, joint)
			return false, err
		}},
		operator.Save: {
			Do:    func(context.Context, string) (bool, error) { return false, s.recording.Save() },
			Works: func() bool { return s.cfg.Record == record.Ring },
		},
		operator.Stop:    {Do: operator.Simple(func() { s.run.Leave(drive.Operator) })},
		operator.Release: {Do: operator.Simple(s.run.Release)},
	}
	operator.EpisodeActions(actions, func() *episode.Episodes { return s.episodes })
	source := "a leader arm drives this one, and no policy"
	switch {
	case s.jog != nil:
		source = "keys drive this arm, and no policy"
	case s.schedule == replayed:
		source = "a recorded episode drives this arm, and no policy"
		delete(actions, operator.Task) // the record already holds the task of its episode
		for _, word := range episode.Words {
			delete(actions, word)
		}
	}
	return &operator.Panel{
		Actions: actions,
		Source:  source,
		State:   s.reply,
		Note:    func(line string, err error) { s.recording.Operator(line, err) },
	}
}

// changeTask sets the task. While an episode is recorded, Episodes.Do either begins the next
// episode with the task or refuses the task.
func (s *session) changeTask(ctx context.Context, text string) (bool, error) {
	if p := s.episodes.Status(); p != nil && p.Phase == episode.Recording {
		return false, s.episodes.Do(ctx, operator.Task, text)
	}
	return false, s.setTask(text)
}

func (s *session) setTask(text string) error {
	err := operator.CheckTask("the task", text)
	if err == nil {
		s.task.Store(&text)
	}
	return err
}

// reply returns the status that edge-rt ctl prints.
func (s *session) reply() operator.Reply {
	st := s.status()
	return operator.Reply{
		ID:       st.ID,
		State:    record.RunStates[s.state.Load()],
		Paused:   s.paused.Load(),
		Task:     st.Task,
		Ticks:    st.Ticks,
		Overruns: st.OverrunsOwn,
		Targets:  st.Targets,
		Episodes: st.Episodes,
		Leader:   s.far.Stats(s.clock.Now()),
	}
}

// key handles a key of the terminal.
func (s *session) key(key string) {
	if s.steering != nil && s.steering.press(s.clock.Now(), key) {
		return
	}
	if s.jog != nil {
		if handled, say := s.jog.Key(key); handled {
			if say != "" {
				fmt.Fprintln(s.cfg.Out, say)
			}
			return
		}
	}
	if s.steering != nil {
		key = strings.ToLower(key) // S, F, D and R, with Shift, are the keys for episodes
	}
	word := operator.OfKey(key)
	switch word {
	case "", operator.Pause, operator.Correct: // these runs have no key for a pause or a correction
		return
	case episode.Start:
		word = s.episodes.Next()
	}
	if reply := s.commands.Command(context.Background(), word); !reply.OK {
		fmt.Fprintln(s.cfg.Out, reply.Error)
	}
}

// attended implements episode.Robot for a follower that a person moves. The person does the task, and may move the
// follower between episodes, too.
type attended struct{ *session }

func (a attended) Task() string { return *a.task.Load() }
func (a attended) Rest()        {}

func (a attended) NotReady() string {
	switch cameras := capture.NotReady(a.cameras, a.pending.Load() > 0); {
	case a.run.Leaving():
		return "the run is ending"
	case a.paused.Load():
		return "the follower is paused: edge-rt ctl resume goes on"
	case record.RunStates[a.state.Load()] == drive.Connecting:
		return "the follower is not under torque yet"
	case record.RunStates[a.state.Load()] == drive.Stalled:
		return "the follower holds: an arm does not answer, or --rescue moves the follower into its range"
	case cameras != "":
		return cameras
	}
	return ""
}

func (a attended) Begin(_ context.Context, task string) error {
	if task == "" {
		return nil
	}
	return a.setTask(task)
}

func (s *session) newEpisodes() *episode.Episodes {
	return episode.New(episode.Config{
		Plan:   s.cfg.Episodes,
		Robot:  attended{s},
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
