package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/edge-rt/edge-rt/edge/episode"
	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/edge/recording"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/sim/servosim"
	"github.com/edge-rt/edge-rt/stage"
	"github.com/edge-rt/edge-rt/stage/stagetest"
	"github.com/edge-rt/edge-rt/wire"
	"golang.org/x/sys/unix"
)

// acknowledge makes the server confirm the start of each episode.
func (s *holdServer) acknowledge(t *testing.T) {
	t.Helper()
	key, err := wire.ResetKey(s.Prefix, "arm")
	if err == nil {
		_, err = s.Net.Queryable(key, func(q wire.Query) {
			defer q.Finish()
			q.Reply(q.Key(), wire.Append(nil, &wire.ResetAck{OK: true}))
		})
	}
	rttest.Do(t, err)
}

// drift answers with actions that lead away from the arm's position.
func (s *holdServer) drift(sample wire.Sample) {
	if h, o, ok := stage.ParseRequest(sample); ok {
		m := s.Chunk(o.State, func(row []float32, i int) { row[0] += float32(i) })
		go s.Reply(h, &wire.ActionChunk{ChunkModel: m, ChunkRobot: m}) // a callback must not call the transport
	}
}

// marksOf returns the episode marks in the records of dir.
func marksOf(t *testing.T, dir string) (marks []string) {
	t.Helper()
	rttest.Must(record.ReadFolder(dir, record.Visitor{Episode: func(m *record.Episode) error {
		marks = append(marks, strings.TrimSpace(fmt.Sprintf("%d %v %s %s", m.Number, m.Ended, m.Outcome,
			m.Task.String())))
		return nil
	}}))(t)
	return marks
}

// begin begins an episode once the arm is ready.
func (r *process) begin(args ...string) (e *episode.Status) {
	r.t.Helper()
	rttest.Eventually(r.t, "start", func() bool {
		code, reply, _ := r.ctl(append([]string{"start"}, args...)...)
		e = reply.Episodes
		return code == 0
	})
	return e
}

// wants sends a ctl command to the run, checks the command's exit code and error, and returns the status of the
// episodes.
func (r *process) wants(code int, says string, args ...string) *episode.Status {
	r.t.Helper()
	got, reply, said := r.ctl(args...)
	if got != code || !strings.Contains(said, says) {
		r.t.Errorf("ctl %q: code %d, %s; want %d and %q", args, got, said, code, says)
	}
	return reply.Episodes
}

// checkMarks compares the episode marks in the records of dir with want.
func checkMarks(t *testing.T, dir string, want ...string) {
	t.Helper()
	rttest.Equal(t, marksOf(t, dir), want, "on record")
}

// recordingRun returns a run with --record all, not yet started, and a server that confirms the start of each episode.
// dir is the folder of the run's records.
func recordingRun(t *testing.T, args ...string) (r *process, s *holdServer, b *servosim.Bus, dir string) {
	t.Helper()
	s = newHoldServer(t)
	b = simBus(t)
	dir = t.TempDir()
	s.acknowledge(t)
	return runOn(t, s, b, instead([]string{"--record", "all", "--record-dir", dir}, args)...), s, b, dir
}

// A server that restarts with another policy within an episode ends the run, as such a restart does between two
// episodes. The recorded part of the episode stays on disk without an end, and the log reports it.
func TestRefusalWithinAnEpisode(t *testing.T) {
	t.Parallel()
	r, s, b, dir := recordingRun(t)
	r.Start()
	r.begin("--task", "go")
	s.comeBackAsAnother()
	r.ends(b, 3, 0)
	checkMarks(t, dir, "1 false  go")
	if e := r.summary().Episodes; e.Number != 1 || e.Open != 1 ||
		e.Success+e.Failure+e.Timeout+e.Discard+e.Rerecord != 0 {
		t.Errorf("the summary says %+v, want one episode without an end", e)
	}
	r.CheckSays("episode 1 has no end: the run ended in it")
	if said, err := r.beside("why", dir).CombinedOutput(); err != nil || !strings.Contains(string(said), "refused") {
		t.Errorf("why: %v\n%s\nwant the refusal", err, said)
	}
}

// A person begins and ends the episodes of a run, also while the server is silent. The run refuses a command that has
// no meaning at the moment, and gives the reason. A run that is killed leaves its episode without an end.
func TestEpisodesByHand(t *testing.T) {
	t.Parallel()
	r, s, b, dir := recordingRun(t, "--task", "wave", "--max-offline", "5m")
	r.Start()
	awaitTorque(t, b, 6)
	r.wants(1, "no episode has begun", "success")
	r.wants(2, "no text after it", "success", "now")
	r.wants(2, "--task is for ctl start", "pause", "--task", "x")
	r.wants(2, "--task is for ctl start", "correct", "--task", "left")
	r.wants(2, `as "two" and as --task "x"`, "start", "two", "--task", "x")
	if e := r.begin("--task", "pick up"); e.Phase != episode.Recording || e.Number != 1 || e.Open != 1 {
		t.Fatalf("start: %+v", e)
	}
	r.wants(1, "episode 1 is under way", "start")
	r.wants(3, "under way with another task", "task", "other")
	s.SetAnswer(func(wire.Sample) {}) // silent
	rttest.Eventually(t, "the run holds", func() bool {
		state := r.status().State
		return state != "" && state != "STREAMING"
	})
	if e := r.wants(0, "", "rerecord"); e.Rerecord != 1 || e.Last != record.Rerecord {
		t.Errorf("rerecord of a run without answers: %+v", e)
	}
	r.wants(1, "already", "rerecord")
	s.SetAnswer(nil)
	r.begin()
	rttest.Eventually(t, "it is on disk", func() bool { return slices.Contains(marksOf(t, dir), "2 false  pick up") })
	r.End(syscall.SIGKILL)
	want := []string{"1 false  pick up", "1 true rerecord pick up", "2 false  pick up"} // the last episode has no end
	checkMarks(t, dir, want...)

	// A second run with the same record folder numbers its episodes from 1 again and deletes nothing.
	r = startArmed(t, s, b, "--record", "all", "--record-dir", dir)
	if e := r.begin(); e.Number != 1 {
		t.Errorf("start of the second run: %+v", e)
	}
	r.wants(0, "", "stop")
	code := r.End()
	if sum := r.summary(); code != 0 || sum.Exit.Reason != "stopped by an operator" || sum.Episodes.Number != 1 ||
		sum.Episodes.Open != 1 || sum.Episodes.Last != "" {
		t.Errorf("code %d, the summary says %+v, %+v; want an operator's stop, and an episode without an end", code,
			sum.Exit, sum.Episodes)
	}
	checkMarks(t, dir, append(want, "1 false")...)
}

// --episodes records the given number of episodes and ends the run after the last one. Between two episodes, the run
// moves the arm back to its position at the time of arming, and requests no chunks.
func TestEpisodicRun(t *testing.T) {
	t.Parallel()
	r, s, _, dir := recordingRun(t, "--strategy", "episodic", "--episodes", "2", "--episode-time", "1500ms",
		"--reset-time", "3s", "--task", "go")
	s.SetAnswer(s.drift)
	if code, sum := r.play(); code != 0 || sum.Episodes.Phase != episode.Over || sum.Episodes.Timeout != 2 ||
		sum.Episodes.Open != 0 || sum.Exit.Reason != "recorded 2 episodes as asked" {
		t.Fatalf("code %d, the summary says %+v, %+v\n%s", code, sum.Exit, sum.Episodes, r.Log)
	}
	checkMarks(t, dir, "1 false  go", "1 true timeout go", "2 false  go", "2 true timeout go")
	r.CheckSays("episode 1 (1 of 2) begins: go|reset the scene|all 2 episodes are complete")
	var from, to []rt.Instant
	var home, away, back float64
	var ticks, frames, acted, asked int
	visit := func(v record.Visitor) {
		t.Helper()
		rttest.Must(record.ReadFolder(dir, v))(t)
	}
	visit(record.Visitor{Episode: func(m *record.Episode) error {
		if m.Ended {
			to = append(to, m.At)
		} else {
			from = append(from, m.At)
		}
		return nil
	}})
	settled := to[0].Add(200e6) // 200 ms after the episode's end: by then the tick must have noticed the end
	visit(record.Visitor{
		Tick: func(m *record.Tick) error {
			here := float64(m.State.V[0])
			if ticks++; ticks == 1 {
				home = here // position of the arm before it is armed
			}
			switch {
			case m.At < to[0]:
				if away = max(away, math.Abs(here-home)); m.Action.N > 0 {
					frames++
				}
			case m.At > settled && m.At < from[1]:
				if back = math.Abs(here - home); m.Action.N > 0 {
					acted++
				}
			}
			return nil
		},
		Request: func(m *record.Request) error {
			if m.At > settled && m.At < from[1].Add(-100e6) {
				asked++
			}
			return nil
		},
	})
	if frames < 3 || away < 4 || back > 3 || acted+asked > 0 {
		t.Errorf("%d frames, %.1f away, %.1f when the next begins, %d actions and %d requests between; want it away, "+
			"back, and still", frames, away, back, acted, asked)
	}
}

// The run reports an episode that it could not write to the disk.
func TestLostEpisodeIsTold(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "records")
	r, _, _, _ := recordingRun(t, "--record-dir", dir)
	r.Start()
	r.begin()
	rttest.Do(t, os.RemoveAll(dir))
	rttest.WriteFile(t, filepath.Dir(dir), "records", "") // the file prevents a new folder of that name
	r.Await("episode 1 is being lost")
	stagetest.CheckSays(t, r.wants(0, "", "success").Warning, "may be lost|rerecord")
	r.Await("episode 1 may be lost")
	r.EndsWith(0, os.Interrupt)
}

func TestEpisodeFlags(t *testing.T) {
	refuses(t, `
		--strategy dagger => 2 --leader
		--strategy dance => 2 dagger
		--strategy episodic => 2 --episodes N
		--strategy highlight --record all => 2 highlight
		--episodes 3 --record ring => 2 --record is ring
		--episodes=-1 => 2 --episodes is -1
		--reset-time 3s => 2 --episodes N
		--episodes 2 --episode-time=-1s => 2 --episode-time is -1s
	`, atNoServer...)
}

// atTerminal starts a run at a pseudo-terminal and waits until the arm is under torque. It returns the person's side
// of the terminal, and a function that reports whether the terminal has its settings from before the run.
func atTerminal(t *testing.T, r *process) (person *os.File, restored func() bool) {
	t.Helper()
	person, program := pty(t)
	settings := func() unix.Termios {
		s := rttest.Must(unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS))(t)
		return *s
	}
	before := settings()
	r.Stdin, r.SysProcAttr = program, &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	r.Start()
	r.Await("torque was switched on")
	if settings().Lflag&(unix.ICANON|unix.ECHO) != 0 {
		t.Error("the terminal gives no single keys")
	}
	return person, func() bool { return settings() == before }
}

// pty opens a pseudo-terminal: the person's side and the program's side.
func pty(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, program, err := stage.OpenTerminal()
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { person.Close(); program.Close() })
	return person, program
}

// With --strategy highlight, the key s saves the ring in memory and ends no episode.
func TestHighlight(t *testing.T) {
	t.Parallel()
	r, _, _, dir := recordingRun(t, "--strategy", "highlight", "--record", "ring")
	master, _ := atTerminal(t, r)
	master.WriteString("fd\x1b[C\x1b[Ds") // only the last key has a meaning here
	r.Await("msg=recording")
	master.WriteString("q")
	r.EndsWith(0)
	ticks := 0
	infos, err := record.ReadFolder(dir, record.Visitor{Tick: func(*record.Tick) error { ticks++; return nil }})
	if err != nil || len(infos) != 1 || infos[0].Run["why"] != "edge-rt ctl save" || ticks < 3 {
		t.Fatalf("%d files (%v) with %d ticks, %v; want the ticks before s\n%s", len(infos), infos, ticks, err, r.Log)
	}
	checkMarks(t, dir)
	if c, err := servo.ParseCalibration(infos[0].Run[recording.Calibration]); err != nil || len(c) != 6 {
		t.Errorf("the arm's calibration is on record as %v, %v", c, err)
	}
	if strings.Contains(r.Log.String(), "level=WARN msg=\"no episode") {
		t.Errorf("it complains of keys:\n%s", r.Log)
	}
}

// LeRobot's keys work at a real terminal, and the terminal is restored at the run's end.
func TestKeysOfTheTerminal(t *testing.T) {
	t.Parallel()
	press := func(key string) func(*os.File, *process) { return func(p *os.File, _ *process) { p.WriteString(key) } }
	for name, leave := range map[string]func(person *os.File, r *process){
		"Esc":     press("\x1b"),
		"Ctrl-C":  press("\x03"),
		"SIGTERM": func(_ *os.File, r *process) { r.Process.Signal(syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _, _, dir := recordingRun(t)
			person, restored := atTerminal(t, r)
			r.Await(operator.Keys)
			for _, k := range [][2]string{{"\x1b[C", "episode 1 begins"}, {"\x1b[D", "episode 1 ends"},
				{"n", "episode 2 begins"}, {"f", "failure"}, {"s", "episode 2 is success now"}} {
				person.WriteString(k[0])
				r.Await(k[1])
			}
			leave(person, r)
			if code := r.End(); code != 0 || !restored() {
				t.Errorf("code %d, the terminal as it was: %v\n%s", code, restored(), r.Log)
			}
			checkMarks(t, dir, "1 false", "1 true rerecord", "2 false", "2 true failure", "2 true success")
		})
	}
	// Without a terminal the log does not mention keys.
	r, _, _, _ := recordingRun(t, "--duration", "2s")
	if code := r.Start().End(); code != 0 || strings.Contains(r.Log.String(), "keys:") {
		t.Errorf("code %d\n%s", code, r.Log)
	}
}
