package episode

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// fake is an arm to record.
type fake struct {
	notReady string
	refuses  error
	task     string
	calls    []string
}

func (f *fake) NotReady() string { return f.notReady }
func (f *fake) Task() string     { return f.task }
func (f *fake) Rest()            { f.calls = append(f.calls, "rest") }
func (f *fake) Begin(_ context.Context, task string) error {
	if f.refuses != nil {
		return f.refuses
	}
	f.calls = append(f.calls, "begin "+task)
	if task != "" {
		f.task = task
	}
	return nil
}

// stand holds the episodes of a fake arm, on a clock that the test moves.
type stand struct {
	*Episodes
	arm      *fake
	clock    *rttest.Clock
	dir      string
	said     []string
	warnings []string
	done     int
	lost     uint64
}

func newStand(t *testing.T, plan Plan) *stand {
	t.Helper()
	s := &stand{arm: &fake{task: "wave"}, clock: rttest.NewClock(rt.Instant(time.Second)), dir: t.TempDir()}
	recorder := rttest.Must(record.New(record.Config{
		Mode:  record.All,
		Dir:   s.dir,
		Size:  1 << 30,
		ID:    "arm",
		Clock: s.clock,
	}))(t)
	s.Episodes = New(Config{
		Plan: plan, Robot: s.arm, Record: recorder, All: true, Clock: s.clock,
		Losses: func() (uint64, uint64) { return s.lost, 0 },
		Say: func(text string, warn bool) {
			s.said = append(s.said, text)
			if warn {
				s.warnings = append(s.warnings, text)
			}
		},
		Done: func() { s.done++ },
	})
	return s
}

// after moves the clock by d, and calls Step each second.
func (s *stand) after(d time.Duration) {
	for end := s.clock.Now().Add(d); s.clock.Now() < end; {
		s.clock.SleepUntil(s.clock.Now().Add(time.Second))
		s.Step(context.Background())
	}
}

func (s *stand) do(line string) error {
	word, text, _ := strings.Cut(line, " ")
	return s.Do(context.Background(), word, text)
}

// marks returns the episodes on record.
func (s *stand) marks(t *testing.T) (marks []string) {
	t.Helper()
	s.cfg.Record.Collect()
	var stop atomic.Bool
	stop.Store(true)
	s.cfg.Record.Write(&stop)
	rttest.Must(record.ReadFolder(s.dir, record.Visitor{Episode: func(m *record.Episode) error {
		marks = append(marks, fmt.Sprintf("%d %d %v %s %s", m.At/1e9, m.Number, m.Ended, m.Outcome, m.Task.String()))
		return nil
	}}))(t)
	return marks
}

func lasts(d time.Duration) *time.Duration { return &d }

// Scheduled episodes begin by themselves and last for their time, and a person can have one
// recorded again. The record has each beginning and each end.
func TestScheduledEpisodes(t *testing.T) {
	s := newStand(t, Plan{Count: 3, Time: lasts(30 * time.Second), Reset: lasts(10 * time.Second)})
	s.arm.notReady = "no torque yet"
	s.after(2 * time.Second)
	if st := s.Status(); st.Phase != waiting || st.Waits != "no torque yet" || st.Wanted != 3 || st.Number != 0 {
		t.Fatalf("%+v, want it to wait for torque", st)
	}
	s.arm.notReady = ""
	s.after(2 * time.Second) // the episode begins at 4 or 5 s
	if st := s.Status(); st.Phase != Recording || st.Number != 1 || st.Waits != "" || st.Left < 28 || st.Left > 30 {
		t.Fatalf("%+v, want episode 1", st)
	}
	// a second start
	rttest.Fails(t, s.do("start"), "episode 1 (1 of 3) is under way")
	s.after(30 * time.Second) // the episode's time runs out
	if st := s.Status(); st.Phase != Reset || st.Timeout != 1 || st.Last != record.Timeout {
		t.Fatalf("%+v, want time to reset", st)
	}
	rttest.Do(t, s.do("failure")) // corrects the outcome
	s.after(11 * time.Second)
	if st := s.Status(); st.Phase != Recording || st.Number != 2 || st.Failure != 1 || st.Timeout != 0 {
		t.Fatalf("%+v, want episode 2", st)
	}
	rttest.Do(t, s.do("rerecord"))
	// rerecord twice
	rttest.Fails(t, s.do("rerecord"), "rerecord already")
	rttest.Do(t, s.do(s.Next())) // Next ends the reset
	rttest.Do(t, s.do(s.Next())) // Next ends the episode
	if st := s.Status(); st.Phase != Reset || st.Number != 3 || st.Success != 1 || st.Rerecord != 1 {
		t.Fatalf("%+v, want episode 3 to be a success", st)
	}
	rttest.Do(t, s.do("start pick"))
	rttest.Do(t, s.do("discard"))
	if st := s.Status(); st.Phase != Over || s.done != 1 || st.Discard != 1 {
		t.Errorf("%+v, done %d; want all to be there", st, s.done)
	}
	for _, word := range []string{"start", "success"} {
		rttest.Fails(t, s.do(word), "all 3 episodes")
	}
	want := []string{"4 1 false  wave", "34 1 true timeout wave", "35 1 true failure wave", "44 2 false  wave",
		"46 2 true rerecord wave", "46 3 false  wave", "46 3 true success wave", "46 4 false  pick",
		"46 4 true discard pick"}
	rttest.Equal(t, s.marks(t), want, "on record")
	rttest.Equal(t, s.arm.calls, []string{"begin ", "rest", "begin ", "rest", "begin ", "rest", "begin pick",
		"rest"}, "the arm was told")
}

// Without --episodes a person begins each episode.
func TestEpisodesByHand(t *testing.T) {
	s := newStand(t, Plan{})
	if s.Status() != nil {
		t.Errorf("%+v before the first, want none", s.Status())
	}
	for _, word := range []string{"success", "failure", "discard", "rerecord"} {
		rttest.Fails(t, s.do(word), "edge-rt ctl start")
	}
	s.arm.notReady = "the run is paused"
	if err := s.do("start"); err == nil || err.Error() != "the run is paused" {
		t.Errorf("start of an arm that cannot: %v", err)
	}
	s.arm.notReady, s.arm.refuses = "", errors.New("the server does not know that task")
	if err := s.do("start fly"); err == nil || s.Status() != nil {
		t.Errorf("a task that is refused: %v, %+v", err, s.Status())
	}
	s.arm.refuses = nil
	rttest.Do(t, s.do("start"))
	s.after(time.Hour)
	if st := s.Status(); st.Phase != Recording || st.Left != 0 {
		t.Errorf("%+v after an hour, want it to go on", st)
	}
	if s.Resting() {
		t.Error("it rests in an episode")
	}
	if err := s.do("success"); err != nil || !s.Resting() {
		t.Errorf("s: %v, resting %v", err, s.Resting())
	}
	s.Close()
	rttest.Fails(t, s.do("start"), "ending") // start after the end
	if len(s.warnings) != 0 {
		t.Errorf("it warns: %q", s.warnings)
	}
}

// sentry's episodes follow each other, without a call to the arm.
func TestSentry(t *testing.T) {
	s := newStand(t, Plan{Strategy: Sentry, Time: lasts(20 * time.Second)})
	s.after(time.Second)
	s.after(41 * time.Second)
	if st := s.Status(); st.Phase != Recording || st.Number != 3 || st.Timeout != 2 {
		t.Fatalf("%+v, want the third", st)
	}
	rttest.Do(t, s.do("success"))
	if st := s.Status(); st.Phase != Recording || st.Number != 4 || st.Success != 1 {
		t.Errorf("%+v, want the next at once", st)
	}
	rttest.Do(t, s.do("start point"))
	if st := s.Status(); st.Phase != Recording || st.Number != 5 {
		t.Errorf("%+v, want the next with another task", st)
	}
	rttest.Equal(t, s.arm.calls, []string{"begin ", "begin point"}, "the arm was told")
	s.Close()
	if len(s.warnings) != 1 || !strings.Contains(s.warnings[0], "episode 5 has no end") {
		t.Errorf("the end of the run warns %q", s.warnings)
	}
	marks := s.marks(t)
	if last := marks[len(marks)-1]; !strings.HasSuffix(last, "5 false  point") {
		t.Errorf("the last mark is %q, want a start without an end", last)
	}
}

// If the next episode cannot begin, sentry's current episode continues, for every reason of the arm's refusal. A
// person's request for another task does not end the recording.
func TestSentryGoesOnWhereTheNextCannotBegin(t *testing.T) {
	for _, tt := range []struct {
		name     string
		notReady string
		refuses  error
	}{
		{"not ready", "the run is paused", nil},
		{"refused", "", errors.New("the server does not know that task")},
	} {
		for _, line := range []string{"start", "start fly", "task fly"} {
			s := newStand(t, Plan{Strategy: Sentry, Time: lasts(20 * time.Second)})
			s.after(time.Second)
			s.arm.notReady, s.arm.refuses = tt.notReady, tt.refuses
			err := s.do(line)
			rttest.Fails(t, err, tt.notReady, "episode 1 goes on")
			if st := s.Status(); st.Phase != Recording || st.Number != 1 || st.Refused != 1 || len(s.warnings) != 1 {
				t.Errorf("%s, %s: %+v, it warns %q; want episode 1, one refusal and one warning", tt.name, line, st,
					s.warnings)
			}
			s.after(25 * time.Second) // the episode's time runs out
			if st := s.Status(); st.Phase != Recording || st.Number != 2 {
				t.Errorf("%s, %s: %+v, want episode 2", tt.name, line, st)
			}
			s.arm.notReady, s.arm.refuses = "", nil
			if err := s.do(line); err != nil || s.Status().Number != 3 || s.Status().Phase != Recording {
				t.Errorf("%s, %s again: %v, %+v; want episode 3", tt.name, line, err, s.Status())
			}
		}
	}
}

// An episode that cannot begin is tried again each second and counted. Each reason is reported once, and a lasting
// reason at most every ten minutes as a warning.
func TestAnEpisodeThatCannotBeginIsReported(t *testing.T) {
	for _, plan := range []Plan{{Strategy: Sentry}, {Count: 3}, {Strategy: Episodic, Count: 3}} {
		s := newStand(t, plan)
		s.arm.notReady = "there is no session with a server"
		s.after(9 * time.Second)
		if len(s.said) != 1 || len(s.warnings) != 0 || s.Status().Refused != 9 {
			t.Errorf("%+v: after 9 s it says %q, refused %d times; want it once, and 9", plan, s.said,
				s.Status().Refused)
		}
		s.after(2 * time.Second)
		if len(s.warnings) != 1 || !strings.Contains(s.warnings[0], "no session") ||
			s.Status().Warning != s.warnings[0] {
			t.Errorf("%+v: after 11 s it warns %q", plan, s.warnings)
		}
		s.after(20 * time.Minute)
		if len(s.warnings) != 3 {
			t.Errorf("%+v: after 20 minutes it warns %q, want three times", plan, s.warnings)
		}
		s.arm.notReady = ""
		s.after(2 * time.Second)
		if st := s.Status(); st.Phase != Recording || st.Number != 1 || st.Waits != "" || st.Warning != "" {
			t.Errorf("%+v: %+v, want episode 1", plan, st)
		}
	}
}

// DAgger's episodes are the corrections. Episodes does not call the arm's methods, because a person drives the arm.
func TestCorrections(t *testing.T) {
	s := newStand(t, Plan{Strategy: DAgger, Leader: true, Count: 2})
	s.Failing(errors.New("no space left")) // a person may take over all the same
	for _, has := range []bool{false, true, true, false, false, true} {
		s.Correct(has)
		s.after(time.Second)
	}
	rttest.Fails(t, s.do("start"), "correction")
	rttest.Do(t, s.do("discard")) // during the episode
	s.Correct(true)
	if st := s.Status(); st.Phase != Over || st.Success != 1 || st.Discard != 1 || st.Number != 2 || s.done != 1 {
		t.Errorf("%+v", st)
	}
	rttest.Contains(t, s.warnings[0], "nothing of episode 1 (1 of 2) is recorded now: no space left")
	rttest.Equal(t, s.arm.calls, []string{"rest"}, "the arm was told")
	want := []string{"2 1 false  wave", "4 1 true success wave", "6 2 false  wave", "7 2 true discard wave"}
	rttest.Equal(t, s.marks(t), want, "on record")
}

// The person gets a warning about lost data at once, and at the end. No further episode begins while nothing can be
// recorded.
func TestLossesAreTold(t *testing.T) {
	s := newStand(t, Plan{})
	rttest.Do(t, s.do("start"))
	s.Failing(errors.New("no space left"))
	s.Failing(errors.New("no space left at all")) // the fault is the same, with another text
	if len(s.warnings) != 1 || !strings.Contains(s.warnings[0], "episode 1 is being lost: no space left") ||
		s.Status().Warning != s.warnings[0] {
		t.Errorf("it warns %q", s.warnings)
	}
	s.lost = 7
	rttest.Do(t, s.do("success"))
	if len(s.warnings) != 2 || !strings.Contains(s.warnings[1], "episode 1 may be lost") {
		t.Errorf("it warns %q", s.warnings)
	}
	rttest.Fails(t, s.do("start"), "nothing can be recorded now, mend this first: no space left at all")
	s.Failing(nil)
	rttest.Do(t, s.do("start"))
	s.lost = 12
	if err := s.do("success"); err != nil || len(s.warnings) != 3 || !strings.Contains(s.warnings[2], "5 messages") {
		t.Errorf("%v, it warns %q", err, s.warnings)
	}
}

func TestPlanIsChecked(t *testing.T) {
	for _, tt := range []struct {
		name  string
		plan  Plan
		mode  record.Mode
		given bool
		want  record.Mode
		says  string
	}{
		{"nothing", Plan{}, record.Ring, false, record.Ring, ""},
		{"base", Plan{Strategy: Base}, record.Off, true, record.Off, ""},
		{"episodes", Plan{Count: 2}, record.Ring, false, record.All, ""},
		{"episodes and a ring", Plan{Count: 2}, record.Ring, true, "", "--record"},
		{"episodes and no record", Plan{Count: 2}, record.Off, true, "", "--record"},
		{"a time by hand", Plan{Time: lasts(time.Second)}, record.All, true, record.All, ""},
		{"a reset by hand", Plan{Reset: lasts(time.Second)}, record.All, true, "", "--episodes"},
		{"sentry", Plan{Strategy: Sentry}, record.Ring, false, record.All, ""},
		{"sentry without an end", Plan{Strategy: Sentry, Time: lasts(0)}, record.Ring, false, "", "--episode-time"},
		{"sentry with a rest", Plan{Strategy: Sentry, Reset: lasts(1)}, record.Ring, false, "", "--reset-time"},
		{"highlight", Plan{Strategy: Highlight}, record.Ring, false, record.Ring, ""},
		{"highlight of everything", Plan{Strategy: Highlight}, record.All, true, "", "highlight"},
		{"highlight of episodes", Plan{Strategy: Highlight, Count: 1}, record.Ring, false, "", "--episodes"},
		{"episodic", Plan{Strategy: Episodic, Count: 1}, record.Ring, false, record.All, ""},
		{"episodic of none", Plan{Strategy: Episodic}, record.Ring, false, "", "--episodes"},
		{"dagger", Plan{Strategy: DAgger}, record.Ring, false, "", "--leader"},
		{"dagger with one", Plan{Strategy: DAgger, Leader: true}, record.Ring, false, record.All, ""},
		{"dagger by the clock", Plan{Strategy: DAgger, Leader: true, Time: lasts(1)}, record.Ring, false, "",
			"corrections"},
	} {
		mode, err := tt.plan.Check(tt.mode, tt.given)
		switch {
		case tt.says == "" && (err != nil || mode != tt.want):
			t.Errorf("%s: %s, %v, want %s", tt.name, mode, err, tt.want)
		case tt.says != "" && (exit.Of(err) != exit.Usage || !rttest.Says(err, tt.says)):
			t.Errorf("%s: %v (code %d), want %q and code 2", tt.name, err, exit.Of(err), tt.says)
		}
	}
}

func TestAppendLineNoAlloc(t *testing.T) {
	s := newStand(t, Plan{Count: 3, Time: lasts(30 * time.Second)})
	s.after(time.Second)
	line := make([]byte, 0, 256)
	rttest.NoAllocs(t, "%v allocations", 100, func() { line = s.AppendLine(line[:0], s.clock.Now()) })
	rttest.Want(t, string(line), "  episode recording 1 kept 0/3 left 30 s", "line")
	rttest.NoAllocs(t, "a step without anything to do: %v allocations", 100, func() { s.Step(context.Background()) })
}
