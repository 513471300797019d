package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/edge-rt/edge-rt/edge/episode"
	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/edge/recording"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/sim/servosim"
	"github.com/edge-rt/edge-rt/stage"
	"github.com/edge-rt/edge-rt/wire"
)

// acknowledge makes the server confirm the begin of each episode.
func (s *holdServer) acknowledge(t *testing.T) {
	t.Helper()
	key, err := wire.ResetKey(s.Prefix, "arm")
	if err == nil {
		_, err = s.Net.Queryable(key, func(q wire.Query) {
			defer q.Finish()
			q.Reply(q.Key(), wire.AppendResetAck(nil, &wire.ResetAck{OK: true}))
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// drift answers with actions that lead away from the arm's position.
func (s *holdServer) drift(sample wire.Sample) {
	if h, o, ok := stage.ParseRequest(sample); ok {
		m := s.Chunk(o.State, func(row []float32, i int) { row[0] += float32(i) })
		go s.Reply(h, &wire.ActionChunk{ChunkModel: m, ChunkRobot: m}) // a callback must not call the transport
	}
}

// ctlOf runs edge-rt ctl with the arguments against the run that uses a state directory.
func ctlOf(t *testing.T, state string, args ...string) (code int, episodes episode.Status, says string) {
	t.Helper()
	cmd := exec.Command(binary, append([]string{"ctl"}, args...)...)
	cmd.Env = append(os.Environ(), "STATE_DIRECTORY="+state)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	var reply struct{ Episodes episode.Status }
	if err == nil {
		if err := json.Unmarshal(out, &reply); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
	}
	return exitCode(err), reply.Episodes, errs.String()
}

// stateOf returns a command's state directory.
func stateOf(cmd *exec.Cmd) string {
	for _, v := range slices.Backward(cmd.Env) {
		if dir, ok := strings.CutPrefix(v, "STATE_DIRECTORY="); ok {
			return dir
		}
	}
	return ""
}

// marksOf returns the episode marks in the records of dir.
func marksOf(t *testing.T, dir string) (marks []string) {
	t.Helper()
	if _, err := record.ReadFolder(dir, record.Visitor{Episode: func(m *record.Episode) error {
		marks = append(marks, strings.TrimSpace(fmt.Sprintf("%d %v %s %s", m.Number, m.Ended, m.Outcome,
			m.Task.String())))
		return nil
	}}); err != nil {
		t.Fatal(err)
	}
	return marks
}

// beginEpisode begins an episode once the arm is ready.
func beginEpisode(t *testing.T, state string, args ...string) (e episode.Status) {
	t.Helper()
	rttest.Eventually(t, "start", func() (begun bool) {
		code, status, _ := ctlOf(t, state, append([]string{"start"}, args...)...)
		e = status
		return code == 0
	})
	return e
}

// startTold starts a run and returns its log once the arm is under torque.
func startTold(t *testing.T, cmd *exec.Cmd, b *servosim.Bus) *rttest.Output {
	t.Helper()
	log := new(rttest.Output)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	awaitTorque(t, b, 6, "armed")
	return log
}

// endOf returns the reason for which a run ended, and its episodes, from its summary.
func endOf(t *testing.T, summary string) (reason string, e episode.Status) {
	t.Helper()
	var end struct {
		Episodes episode.Status
		Exit     struct{ Reason string }
	}
	text, err := os.ReadFile(summary)
	if err == nil {
		err = json.Unmarshal(text, &end)
	}
	if err != nil {
		t.Fatal(err)
	}
	return end.Exit.Reason, end.Episodes
}

// A server that restarts with another policy within an episode ends the run, as it does between
// two. The recorded part of the episode stays on disk without an end, and the log reports it.
func TestRefusalWithinAnEpisode(t *testing.T) {
	t.Parallel()
	s := newHoldServer(t)
	b := simBus(t)
	dir := t.TempDir()
	s.acknowledge(t)
	summary := filepath.Join(dir, "run.json")
	cmd := edgeCommand(t, s, b, "--record", "all", "--record-dir", dir, "--json", summary)
	log := startTold(t, cmd, b)
	beginEpisode(t, stateOf(cmd), "--task", "go")
	s.comeBackAsAnother()
	if code := exitCode(cmd.Wait()); code != 3 || underTorque(b) != 0 {
		t.Errorf("exit code %d, %d motors under torque, want 3 and none\n%s", code, underTorque(b), log)
	}
	if want, marks := []string{"1 false  go"}, marksOf(t, dir); !slices.Equal(marks, want) {
		t.Errorf("on record are %q, want %q", marks, want)
	}
	if _, e := endOf(t, summary); e.Number != 1 || e.Open != 1 ||
		e.Success+e.Failure+e.Timeout+e.Discard+e.Rerecord != 0 {
		t.Errorf("the summary says %+v, want one episode without an end", e)
	}
	if want := "episode 1 has no end: the run ended in it"; !strings.Contains(log.String(), want) {
		t.Errorf("it does not say %q:\n%s", want, log)
	}
	why := exec.Command(binary, "why", dir)
	why.Env = cmd.Env
	if said, err := why.CombinedOutput(); err != nil || !strings.Contains(string(said), "refused") {
		t.Errorf("why: %v\n%s\nwant the refusal", err, said)
	}
}

// A person begins and ends the episodes of a run, also while its server is silent; a command that
// makes no sense is refused with a reason; a run that is killed leaves its episode without an end.
func TestEpisodesByHand(t *testing.T) {
	t.Parallel()
	s := newHoldServer(t)
	b := simBus(t)
	dir := t.TempDir()
	s.acknowledge(t)
	cmd := startArmed(t, s, b, "--record", "all", "--record-dir", dir, "--task", "wave", "--max-offline", "5m")
	state := stateOf(cmd)
	for _, tt := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"success"}, 1, "no episode has begun"},
		{[]string{"success", "now"}, 2, "no text after it"},
		{[]string{"pause", "--task", "x"}, 2, "--task is for ctl start"},
	} {
		if code, _, says := ctlOf(t, state, tt.args...); code != tt.code || !strings.Contains(says, tt.says) {
			t.Errorf("%v: code %d, %s; want %d and %q", tt.args, code, says, tt.code, tt.says)
		}
	}
	if e := beginEpisode(t, state, "--task", "pick up"); e.Phase != episode.Recording || e.Number != 1 || e.Open != 1 {
		t.Fatalf("start: %+v", e)
	}
	if code, _, says := ctlOf(t, state, "start"); code != 1 || !strings.Contains(says, "episode 1 is under way") {
		t.Errorf("start twice: code %d, %s", code, says)
	}
	if code, _, says := ctlOf(t, state, "task", "other"); code != 3 ||
		!strings.Contains(says, "under way with another task") {
		t.Errorf("another task within: code %d, %s", code, says)
	}
	s.SetAnswer(func(wire.Sample) {}) // silent
	rttest.Eventually(t, "the run holds", func() bool {
		out, err := func() ([]byte, error) {
			c := exec.Command(binary, "ctl", "status")
			c.Env = append(os.Environ(), "STATE_DIRECTORY="+state)
			return c.Output()
		}()
		return err == nil && !strings.Contains(string(out), `"STREAMING"`)
	})
	if code, e, says := ctlOf(t, state, "rerecord"); code != 0 || e.Rerecord != 1 || e.Last != record.Rerecord {
		t.Errorf("rerecord of a run without answers: code %d, %+v, %s", code, e, says)
	}
	if code, _, says := ctlOf(t, state, "rerecord"); code != 1 || !strings.Contains(says, "already") {
		t.Errorf("rerecord twice: code %d, %s", code, says)
	}
	s.SetAnswer(nil)
	beginEpisode(t, state)
	rttest.Eventually(t, "it is on disk", func() bool { return slices.Contains(marksOf(t, dir), "2 false  pick up") })
	cmd.Process.Kill()
	cmd.Wait()
	want := []string{"1 false  pick up", "1 true rerecord pick up", "2 false  pick up"}
	if marks := marksOf(t, dir); !slices.Equal(marks, want) {
		t.Errorf("on record are %q, want %q: no end of the last", marks, want)
	}
	// A second run into the same folder counts from 1 again and deletes nothing.
	summary := filepath.Join(dir, "again.json")
	again := startArmed(t, s, b, "--record", "all", "--record-dir", dir, "--json", summary)
	if e := beginEpisode(t, stateOf(again)); e.Number != 1 {
		t.Errorf("start of the second run: %+v", e)
	}
	if code, _, says := ctlOf(t, stateOf(again), "stop"); code != 0 {
		t.Errorf("stop: code %d, %s", code, says)
	}
	if err := again.Wait(); err != nil {
		t.Error(err)
	}
	if reason, e := endOf(t, summary); reason != "stopped by an operator" || e.Number != 1 || e.Open != 1 ||
		e.Last != "" {
		t.Errorf("the summary says %q, %+v; want an operator's stop, and an episode without an end", reason, e)
	}
	if marks := marksOf(t, dir); !slices.Equal(marks, append(want, "1 false")) {
		t.Errorf("on record are %q, want those of both runs", marks)
	}
}

// --episodes records the given number of episodes, moves the arm back to its armed position between
// two of them, requests no chunks meanwhile, and then ends the run.
func TestEpisodicRun(t *testing.T) {
	t.Parallel()
	s := newHoldServer(t)
	b := simBus(t)
	dir := t.TempDir()
	s.acknowledge(t)
	s.SetAnswer(s.drift)
	summary := filepath.Join(dir, "run.json")
	cmd := edgeCommand(t, s, b, "--strategy", "episodic", "--episodes", "2", "--episode-time", "1500ms", "--reset-time",
		"3s",
		"--record-dir", dir, "--json", summary, "--task", "go")
	log := new(rttest.Output)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	if want, marks := []string{"1 false  go", "1 true timeout go", "2 false  go", "2 true timeout go"},
		marksOf(t, dir); !slices.Equal(marks, want) {
		t.Fatalf("on record are %q, want %q\n%s", marks, want, log)
	}
	if reason, e := endOf(t, summary); e.Phase != episode.Over || e.Timeout != 2 || e.Open != 0 ||
		reason != "recorded 2 episodes as asked" {
		t.Errorf("the summary says %q, %+v", reason, e)
	}
	for _, want := range []string{"episode 1 (1 of 2) begins: go", "reset the scene", "all 2 episodes are complete"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, log)
		}
	}
	var from, to []rt.Instant
	if _, err := record.ReadFolder(dir, record.Visitor{Episode: func(m *record.Episode) error {
		if m.Ended {
			to = append(to, m.At)
		} else {
			from = append(from, m.At)
		}
		return nil
	}}); err != nil {
		t.Fatal(err)
	}
	settled := to[0].Add(200e6) // until the tick has noticed the end
	var home, away, back float64
	ticks := 0
	frames := 0
	acted := 0
	asked := 0
	if _, err := record.ReadFolder(dir, record.Visitor{
		Tick: func(m *record.Tick) error {
			here := float64(m.State.V[0])
			if ticks++; ticks == 1 {
				home = here // the arm is not armed yet
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
	}); err != nil {
		t.Fatal(err)
	}
	if frames < 3 || away < 4 || back > 3 || acted+asked > 0 {
		t.Errorf("%d frames, %.1f away, %.1f when the next begins, %d actions and %d requests between; want it away, "+
			"back, and still", frames, away, back, acted, asked)
	}
}

// The run reports an episode that the disk could not take.
func TestLostEpisodeIsTold(t *testing.T) {
	t.Parallel()
	s := newHoldServer(t)
	b := simBus(t)
	dir := filepath.Join(t.TempDir(), "records")
	s.acknowledge(t)
	cmd := edgeCommand(t, s, b, "--record", "all", "--record-dir", dir)
	log := startTold(t, cmd, b)
	beginEpisode(t, stateOf(cmd))
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // no folder can be made in its place
		t.Fatal(err)
	}
	awaitText(t, log, "episode 1 is being lost")
	code, e, says := ctlOf(t, stateOf(cmd), "success")
	if code != 0 || !strings.Contains(e.Warning, "may be lost") || !strings.Contains(e.Warning, "rerecord") {
		t.Errorf("success: code %d, %+v, %s", code, e, says)
	}
	awaitText(t, log, "episode 1 may be lost")
	cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); err != nil {
		t.Errorf("the end: %v, want the code that it would have had", err)
	}
}

func TestEpisodeFlags(t *testing.T) {
	for _, tt := range []struct{ args, says string }{
		{"--strategy dagger", "--leader"},
		{"--strategy dance", "dagger"},
		{"--strategy episodic", "--episodes N"},
		{"--strategy highlight --record all", "highlight"},
		{"--episodes 3 --record ring", "--record is ring"},
		{"--episodes=-1", "--episodes is -1"},
		{"--reset-time 3s", "--episodes N"},
		{"--episodes 2 --episode-time=-1s", "--episode-time is -1s"},
	} {
		code, stdout, stderr := edgeRT(t,
			append([]string{"--bus", "sim", "--connect", unreachable, "--max-offline", "1s"},
				strings.Fields(tt.args)...)...)
		if code != 2 || stdout != "" || !strings.Contains(stderr, tt.says) {
			t.Errorf("%s: code %d, %s%s; want 2 and %q", tt.args, code, stdout, stderr, tt.says)
		}
	}
}

// With --strategy highlight the key s saves the ring in memory; it does not end an episode.
func TestHighlight(t *testing.T) {
	t.Parallel()
	s := newHoldServer(t)
	b := simBus(t)
	dir := t.TempDir()
	master, slave := pty(t)
	cmd := edgeCommand(t, s, b, "--strategy", "highlight", "--record-dir", dir)
	log := new(rttest.Output)
	cmd.Stdin = slave
	cmd.Stdout = log
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	awaitText(t, log, "torque was switched on")
	master.WriteString("fd\x1b[C\x1b[Ds") // only the last key has a meaning here
	awaitText(t, log, "msg=recording")
	master.WriteString("q")
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, log)
	}
	ticks := 0
	infos, err := record.ReadFolder(dir, record.Visitor{Tick: func(*record.Tick) error { ticks++; return nil }})
	if err != nil || len(infos) != 1 || infos[0].Run["why"] != "edge-rt ctl save" || ticks < 3 ||
		len(marksOf(t, dir)) != 0 {
		t.Errorf("%d files (%v) with %d ticks, %v; want the ticks before s, and no episode\n%s", len(infos), infos,
			ticks, err, log)
	}
	if c, err := servo.ParseCalibration(infos[0].Run[recording.Calibration]); err != nil || len(c) != 6 {
		t.Errorf("the arm's calibration is on record as %v, %v", c, err)
	}
	if strings.Contains(log.String(), "level=WARN msg=\"no episode") {
		t.Errorf("it complains of keys:\n%s", log)
	}
}

// pty opens a pseudo-terminal: the person's side and the program's side.
func pty(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { master.Close() })
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		slave, err = os.OpenFile(filepath.Join("/dev/pts", strconv.Itoa(n)), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

func settings(t *testing.T, f *os.File) unix.Termios {
	t.Helper()
	s, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *s
}

// LeRobot's keys work at a real terminal, and the terminal is restored at the run's end.
func TestKeysOfTheTerminal(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(master *os.File, cmd *exec.Cmd){
		"Esc":     func(m *os.File, _ *exec.Cmd) { m.WriteString("\x1b") },
		"Ctrl-C":  func(m *os.File, _ *exec.Cmd) { m.WriteString("\x03") },
		"SIGTERM": func(_ *os.File, c *exec.Cmd) { c.Process.Signal(syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newHoldServer(t)
			b := simBus(t)
			dir := t.TempDir()
			s.acknowledge(t)
			master, slave := pty(t)
			before := settings(t, slave)
			cmd := edgeCommand(t, s, b, "--record", "all", "--record-dir", dir)
			log := new(rttest.Output)
			cmd.Stdin = slave
			cmd.Stdout = log
			cmd.Stderr = log
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { cmd.Process.Kill() })
			awaitText(t, log, operator.Keys)
			awaitText(t, log, "torque was switched on")
			if raw := settings(t, slave); raw.Lflag&(unix.ICANON|unix.ECHO) != 0 {
				t.Error("the terminal gives no single keys")
			}
			press := func(key, says string) {
				master.WriteString(key)
				awaitText(t, log, says)
			}
			press("\x1b[C", "episode 1 begins")
			press("\x1b[D", "episode 1 ends")
			press("n", "episode 2 begins")
			press("f", "failure")
			press("s", "episode 2 is success now")
			leave(master, cmd)
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v\n%s", err, log)
			}
			if settings(t, slave) != before {
				t.Error("the terminal is not as it was")
			}
			want := []string{"1 false", "1 true rerecord", "2 false", "2 true failure", "2 true success"}
			if marks := marksOf(t, dir); !slices.Equal(marks, want) {
				t.Errorf("on record are %q, want %q", marks, want)
			}
		})
	}
	// Without a terminal the log does not mention keys.
	s, b := newHoldServer(t), simBus(t)
	s.acknowledge(t)
	cmd := edgeCommand(t, s, b, "--record", "all", "--record-dir", t.TempDir(), "--duration", "2s")
	if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "keys:") {
		t.Errorf("%v\n%s", err, out)
	}
}
