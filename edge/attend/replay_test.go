package attend

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/edge/recording"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/record/recordtest"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim/referee"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

const rate = 20 // low, for a busy machine

func so101(t *testing.T) robot.Robot {
	t.Helper()
	return rttest.Must(robot.ByName("so101"))(t)
}

// settings returns the metadata of an arm's record.
func settings(r robot.Robot) map[string]string {
	return map[string]string{"joints": strings.Join(r.ActionNames(), ","), "units": strings.Join(r.Units(), ","),
		"fps": "20", "interpolation_multiplier": "1"}
}

// written writes a record; put fills each tick.
func written(t *testing.T, run map[string]string, ticks int, put func(i int, m *record.Tick)) (file string) {
	t.Helper()
	dir, clock := t.TempDir(), rttest.NewClock(1_000_000_000)
	r := rttest.Must(record.New(record.Config{Mode: record.All, Dir: dir, Size: 1 << 30, ID: "arm", Clock: clock}))(t)
	r.SetRun(run)
	for i := range ticks {
		m := r.Ticks.Put()
		*m = record.Tick{At: clock.Now()}
		put(i, m)
		r.Ticks.Commit()
		r.Collect()
		clock.Advance(time.Second / rate)
	}
	stop := new(atomic.Bool)
	stop.Store(true)
	r.Write(stop)
	files, _ := filepath.Glob(filepath.Join(dir, "*"+record.Extension))
	if len(files) != 1 {
		t.Fatalf("%d files", len(files))
	}
	return files[0]
}

// act fills a tick with an action that the gate (follow.Gate) let pass unchanged: all joints at v.
func act(m *record.Tick, episode uint32, v float32) { actAt(m, episode, v, v) }

// actAt fills a tick with an action and the goal that the gate made of it.
func actAt(m *record.Tick, episode uint32, action, goal float32) {
	m.Action.Set(slices.Repeat([]float32{action}, 6))
	m.Goal.Set(slices.Repeat([]float32{goal}, 6))
	m.Episode = episode
}

func loaded(t *testing.T, file string, number uint32) (recordedEpisode, error) {
	t.Helper()
	in := rttest.Must(os.Open(file))(t)
	defer in.Close()
	return load(in, so101(t), number)
}

// A record that broke off before its metadata named the arm is not refused as the record of another
// arm.
func TestARecordWithoutJoints(t *testing.T) {
	file := written(t, map[string]string{}, 5, func(i int, m *record.Tick) { act(m, 1, 0) })
	rttest.Ends(t, rttest.Err(loaded(t, file, 1)), exit.Config, "names no joints")
}

// The rows of an episode begin with its first action. On a tick without an action the arm keeps its goal.
func TestAnEpisodeIsWhatTheArmWasTold(t *testing.T) {
	file := written(t, settings(so101(t)), 40, func(i int, m *record.Tick) {
		switch {
		case i < 5, i == 12, i >= 35: // before the first chunk, on a starved tick, and at the end
		case i < 20:
			act(m, 1, float32(i))
		default:
			act(m, 2, float32(i))
		}
	})
	e, err := loaded(t, file, 1)
	if err != nil || e.Rate != rate || e.len() != 15 || e.Number != 1 {
		t.Fatalf("%+v, %v", e, err)
	}
	for i := range e.len() {
		want := float32(i + 5)
		if i == 7 {
			want = 11
		}
		rttest.Want(t, e.Rows[i*6+3], want, "row %d", i)
	}
	row := make([]float32, 6)
	for place, want := range map[float64]float32{-1: 5, 0: 5, 0.5: 5.5, 13.5: 18.5, 14: 19, 99: 19} {
		e.at(place, row)
		rttest.Want(t, row[0], want, "at %v", place)
	}
	if e, err = loaded(t, file, 2); err != nil || e.Torn || e.len() != 15 || e.Rows[0] != 20 {
		t.Errorf("the second: %+v, %v", e.len(), err)
	}
}

// shown is a part of a record. Its ticks have the numbers [from, to), and an episode begins or ends in it.
type shown struct {
	name, instance string
	from, to       int
	begins, ends   uint32 // episode; 0: none
}

// record writes the parts into a folder. Each goal of a tick is the tick's number.
func (p shown) record(t *testing.T, dir string) (file string) {
	run := settings(so101(t))
	run["instance"] = p.instance
	file = filepath.Join(dir, "arm-20261124T1403"+p.name+".000Z.mcap")
	f := recordtest.Create(t, file, run)
	at := func(i int) rt.Instant { return rt.Instant(i) * rt.Instant(time.Second) / rate }
	if p.begins != 0 {
		f.Episode(&record.Episode{At: at(p.from), Number: p.begins})
	}
	for i := p.from; i < p.to; i++ {
		m := record.Tick{At: at(i)}
		act(&m, uint32(1+p.from/60), float32(i))
		f.Tick(&m)
	}
	if p.ends != 0 {
		f.Episode(&record.Episode{At: at(p.to - 1), Number: p.ends, Ended: true})
	}
	f.Close()
	return file
}

// An episode goes on in the next files of its run, up to its end, to the next episode of a run without marks, or to a
// file that is missing. A file without the episode's beginning is refused.
func TestAnEpisodeThatGoesOnInTheNextFile(t *testing.T) {
	dir := t.TempDir()
	shown{name: "10", instance: "one", to: 20}.record(t, dir)
	first := shown{name: "20", instance: "one", from: 20, to: 40, begins: 3}.record(t, dir)
	shown{name: "21", instance: "two", from: 40, to: 60, begins: 1}.record(t, dir)
	middle := shown{name: "30", instance: "one", from: 38, to: 60}.record(t, dir) // two ticks are in both
	last := shown{name: "40", instance: "one", from: 60, to: 70, ends: 3}.record(t, dir)
	shown{name: "50", instance: "one", from: 70, to: 80}.record(t, dir)
	e, err := loaded(t, first, 0)
	if err != nil || e.Torn || e.len() != 50 || e.Number != 3 {
		t.Fatalf("%d ticks of episode %d, torn %v, %v; want 50 of episode 3", e.len(), e.Number, e.Torn, err)
	}
	for i := range e.len() {
		rttest.Want(t, e.Rows[6*i], float32(20+i), "row %d", i)
	}
	for _, number := range []uint32{0, 3} {
		rttest.Ends(t, rttest.Err(loaded(t, last, number)), exit.Usage, "episode 3 begins in an earlier file")
	}
	rttest.Do(t, os.Remove(middle))
	if e, err = loaded(t, first, 3); err != nil || !e.Torn || e.len() != 20 {
		t.Errorf("%d ticks, torn %v, %v; want the 20 before the missing file", e.len(), e.Torn, err)
	}
	first = shown{name: "51", instance: "three", to: 20}.record(t, dir)
	for i := range 3 {
		shown{name: fmt.Sprint(52 + i), instance: "three", from: 20 * (i + 1), to: 20 * (i + 2)}.record(t, dir)
	}
	if e, err = loaded(t, first, 0); err != nil || e.Torn || e.len() != 60 {
		t.Errorf("%d ticks, torn %v, %v; want the 60 before the next episode", e.len(), e.Torn, err)
	}
}

// The beginning of an episode ends an earlier one whose end the record has lost.
func TestAnEpisodeWithoutAnEnd(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.mcap")
	f := recordtest.Create(t, file, settings(so101(t)))
	for i := range 30 {
		m := record.Tick{At: rt.Instant(1+i) * rt.Instant(time.Second) / rate}
		if i%10 == 0 {
			f.Episode(&record.Episode{At: m.At - 1, Number: 1 + uint32(i/10)})
		}
		act(&m, 1, 0)
		f.Tick(&m)
	}
	f.Close()
	for number, torn := range []bool{1: false, 2: false, 3: true} {
		if e, err := loaded(t, file, uint32(number)); number > 0 && (err != nil || e.len() != 10 || e.Torn != torn) {
			t.Errorf("episode %d has %d ticks, torn %v, %v; want 10", number, e.len(), e.Torn, err)
		}
	}
}

// The rows are the goals that the gate made of the actions.
func TestAnEpisodeIsWhatWasShown(t *testing.T) {
	file := written(t, settings(so101(t)), 10, func(i int, m *record.Tick) { actAt(m, 1, 90, float32(i)) })
	e, err := loaded(t, file, 1)
	if err != nil || e.len() != 10 {
		t.Fatalf("%+v, %v", e, err)
	}
	for i := range e.len() {
		if got := e.Rows[i*6]; got != float32(i) {
			t.Errorf("row %d is %v, want the goal %d", i, got, i)
		}
	}
}

func TestReplayRefusals(t *testing.T) {
	good := func(i int, m *record.Tick) { act(m, 1+uint32(i/10), 1) }
	change := func(key, value string) map[string]string {
		run := settings(so101(t))
		run[key] = value
		return run
	}
	for _, tt := range []struct {
		name   string
		run    map[string]string
		put    func(int, *record.Tick)
		number uint32
		code   exit.Code
		says   string
	}{
		{"several, and none chosen", settings(so101(t)), good, 0, exit.Usage,
			"3 episodes (1, 2, 3): choose one with --episode"},
		{"one that is not there", settings(so101(t)), good, 7, exit.Usage, "no episode 7: it has 1, 2, 3"},
		{"another arm", change("joints", "a.pos,b.pos"), good, 1, exit.Config, "joints \"a.pos,b.pos\""},
		{"other units", change("units", "rad"), good, 1, exit.Config, "would mean something else"},
		{"no rate", change("fps", "fast"), good, 1, exit.Config, `"fast" actions per second`},
		{"a rate that is none", change("fps", "NaN"), good, 1, exit.Config, "want 1 to 1000"},
		{"too fast", change("interpolation_multiplier", "99"), good, 1, exit.Config, "want 1 to 1000"},
		{"nothing ran", settings(so101(t)), func(int, *record.Tick) {}, 0, exit.Config, "nothing to replay"},
		{"an action of fewer joints", settings(so101(t)), func(_ int, m *record.Tick) {
			m.Action.Set([]float32{1})
		}, 0, exit.Config, "1 joints, want 6"},
		{"an action without a goal", settings(so101(t)), func(_ int, m *record.Tick) {
			m.Action.Set(make([]float32, 6))
		}, 0, exit.Config, "goals for 0 joints, want 6"},
		{"a goal that is no number", settings(so101(t)), func(_ int, m *record.Tick) {
			act(m, 1, float32(math.NaN()))
		}, 0, exit.Config, "the goal of joint 1 is NaN"},
		{"a hole", settings(so101(t)), func(i int, m *record.Tick) {
			if act(m, 1, 1); i >= 15 {
				m.At += rt.Instant(2 * time.Second)
			}
		}, 1, exit.Config, "not in the record"},
		{"time that goes back", settings(so101(t)), func(i int, m *record.Tick) {
			if act(m, 1, 1); i == 15 {
				m.At -= rt.Instant(100 * time.Millisecond)
			}
		}, 1, exit.Config, "not in the record"},
	} {
		_, err := loaded(t, written(t, tt.run, 30, tt.put), tt.number)
		rttest.Ends(t, err, tt.code, tt.says)
	}
	cut := written(t, settings(so101(t)), 30, good)
	whole := rttest.Must(os.ReadFile(cut))(t)
	rttest.Do(t, os.WriteFile(cut, whole[:len(whole)-40], 0o600))
	rttest.Ends(t, rttest.Err(loaded(t, cut, 7)), exit.Usage, "1, 2, 3; it is cut or damaged")
	cfg := ReplayConfig{
		File:   "/none.mcap",
		Speed:  1,
		Config: Config{CPU: rt.UnpinnedCPU, OnExit: "park", Arm: device.Place{Bus: "/dev/a", Robot: so101(t)}},
	}
	for _, tt := range []struct {
		change func(*ReplayConfig)
		code   exit.Code
		says   string
	}{
		{func(*ReplayConfig) {}, exit.Usage, "/none.mcap"},
		{func(c *ReplayConfig) { c.File = t.TempDir() }, exit.Usage, "is a folder: name one record"},
		{func(c *ReplayConfig) { c.File = os.DevNull }, exit.Usage, "is no regular file"}, // a pipe would block
		{func(c *ReplayConfig) { c.Arm.Bus = "" }, exit.Usage, "--bus"},
		{func(c *ReplayConfig) { c.Speed = 1.5 }, exit.Usage, "not moved faster"},
		{func(c *ReplayConfig) { c.Speed = math.NaN() }, exit.Usage, "--speed"},
		{func(c *ReplayConfig) { c.OnExit = "fly" }, exit.Usage, "--on-exit"},
		{func(c *ReplayConfig) { c.Arm.Robot.Leader = true }, exit.Usage, "leader"},
	} {
		c := cfg
		tt.change(&c)
		rttest.Ends(t, Replay(t.Context(), c), tt.code, tt.says)
	}
}

// stage is an arm on simulated motors, with a referee that observes their traffic and the output of
// the replay.
type stage struct {
	ReplayConfig
	bus     *servosim.Bus
	referee *referee.Referee
	said    rttest.Output
}

func (s *stage) String() string { return s.said.String() }

// arms counts the arms. Each arm has its own id, because all arms share the folder for the arms' state.
var arms atomic.Int64

func freshID() string { return fmt.Sprint("arm", arms.Add(1)) }

// TestMain gives the tests a folder for the arms' state.
func TestMain(m *testing.M) {
	dir := rttest.OrPanic(os.MkdirTemp("", "replay-"))
	os.Setenv("STATE_DIRECTORY", dir)
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// replays replays the episode to its clean end.
func (s *stage) replays(t *testing.T) {
	t.Helper()
	if err := Replay(t.Context(), s.ReplayConfig); err != nil {
		t.Fatalf("%v\n%s", err, s)
	}
	s.clean(t)
}

// start starts the replay, and waits until the arm has torque.
func (s *stage) start(ctx context.Context, t *testing.T) (done <-chan error) {
	done = rttest.Go(func() error { return Replay(ctx, s.ReplayConfig) })
	awaitTorque(t, s.bus)
	return done
}

func newStage(t *testing.T, file string) *stage {
	t.Helper()
	rttest.RealTime(t) // the simulated motors keep their own time
	const low, high = 200, 3900
	judge := referee.Config{Period: time.Second / rate}
	for _, m := range so101(t).Motors {
		j := referee.Joint{ID: m.ID, Name: m.Name, Min: low, Max: high, Degree: 4095. / 360}
		j.Velocity = m.MaxVelocity * j.Degree
		if m.Norm == robot.Range0100 {
			j.Velocity = m.MaxVelocity * (high - low) / 100
		}
		judge.Joints = append(judge.Joints, j)
	}
	s := &stage{referee: referee.New(judge)}
	place, bus := simArm(t, "so101", low, high, servosim.Config{Watch: s.referee.Watch})
	place.ID, s.bus = freshID(), bus
	s.referee.FirstChunk(rt.KernelClock().Now())
	s.ReplayConfig = ReplayConfig{File: file, Speed: 1, Config: Config{
		Arm:        place,
		RT:         rt.ModeOff,
		CPU:        rt.UnpinnedCPU,
		OnExit:     "off",
		Record:     record.All,
		RecordDir:  filepath.Join(t.TempDir(), "records"),
		RecordSize: 1 << 30,
		Out:        &s.said,
	}}
	return s
}

// clean checks that no rule of the referee was broken and that no torque is on.
func (s *stage) clean(t *testing.T) {
	t.Helper()
	s.referee.CheckAt(rt.KernelClock().Now())
	v := s.referee.Verdict()
	if v.Goals == 0 {
		t.Error("the referee saw no goal")
	}
	for _, k := range v.Kept {
		t.Errorf("%v", k)
	}
	if slices.Contains(s.bus.TorqueEnabled(), true) {
		t.Errorf("torque %v at the end", s.bus.TorqueEnabled())
	}
}

// wave is two seconds of a swinging joint, far from the arm's position.
func wave(t *testing.T) string {
	return written(t, settings(so101(t)), 2*rate, func(i int, m *record.Tick) {
		act(m, 1, 40+20*float32(math.Sin(float64(i)*4/rate)))
	})
}

// Goal: an arm at another position moves slowly to the episode's first position, replays the record
// within the referee's rules, and is released. The new record holds the replayed actions.
func TestAReplayRunsTheRecord(t *testing.T) {
	t.Parallel()
	s := newStage(t, wave(t))
	s.replays(t)
	rttest.Contains(t, s.String(), "replayed: 2.0 of 2.0 s")
	want := rttest.Must(loaded(t, s.File, 1))(t)
	var ran []float32
	var fastest float32
	var before record.Row
	infos, err := record.ReadFolder(s.RecordDir, record.Visitor{Tick: func(m *record.Tick) error {
		switch {
		case m.Action.N > 0:
			ran = append(ran, m.Action.Values()...)
			if d := m.Goal.V[0] - m.Action.V[0]; d > 8 || d < -8 {
				t.Errorf("tick %d: told %v, wanted %v", len(ran)/6, m.Goal.V[0], m.Action.V[0])
			}
		case before.N > 0 && len(ran) == 0 && m.Skipped == 0:
			fastest = max(fastest, float32(math.Abs(float64(m.Goal.V[0]-before.V[0]))))
		}
		before = m.Goal
		return nil
	}})
	if err != nil || len(infos) != 1 || infos[0].Run["schedule"] != "replay" {
		t.Fatalf("%v, %v", infos, err)
	}
	if c, err := servo.ParseCalibration(infos[0].Run[recording.Calibration]); err != nil ||
		c["elbow_flex"].RangeMax != 3900 {
		t.Errorf("its calibration: %v, %v", c, err)
	}
	if !slices.Equal(ran, want.Rows) {
		t.Errorf("%d rows ran, want the record's %d, as they are", len(ran)/6, want.len())
	}
	if most := float32(so101(t).Motors[0].MaxVelocity * approachPace / rate * 1.05); fastest == 0 || fastest > most {
		t.Errorf("on the way to the start a goal went %v in a tick, want at most %v", fastest, most)
	}
	files, _ := filepath.Glob(filepath.Join(s.RecordDir, "*"+record.Extension))
	if e, err := loaded(t, files[0], 0); err != nil || e.len() < 2*rate-5 { // the new record can be replayed again
		t.Errorf("its own record: %d ticks, %v", e.len(), err)
	}
}

// A paused replay holds the arm on its way to the episode, and continues when an operator resumes
// it.
func TestAPausedReplayHolds(t *testing.T) {
	t.Parallel()
	s := newStage(t, wave(t))
	done := s.start(t.Context(), t)
	for _, word := range []string{operator.Pause, operator.Resume} {
		rttest.Must(operator.Ctl(s.Arm.ID, word))(t)
		awaitTicks(t, s.Arm.ID, 20) // the arming goes on
	}
	if err := <-done; err != nil || !strings.Contains(s.String(), "replayed: 2.0 of 2.0 s") {
		t.Errorf("%v\n%s", err, s)
	}
	s.clean(t)
	var held []float32
	for _, m := range ticks(t, s.RecordDir) {
		if m.Paused && record.RunStates[m.RunState] == drive.Stalled {
			held = append(held, m.Goal.V[0])
		}
	}
	if len(held) < 4 || len(slices.Compact(held)) != 1 {
		t.Errorf("goals while it was paused: %v, want one", held)
	}
}

// Ctrl-C ends a replay as it ends a run: the arm parks and is released, and the end is clean. With --on-exit hold the
// arm stays under torque.
func TestAReplayIsInterrupted(t *testing.T) {
	t.Parallel()
	for how, stiff := range map[string]bool{"park": false, "hold": true} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, wave(t))
			s.OnExit = how
			ctx, cancel := context.WithCancel(t.Context())
			done := s.start(ctx, t)
			cancel()
			if err := <-done; err != nil || !strings.Contains(s.String(), "stopped: 0.0 of 2.0 s") {
				t.Errorf("%s: %v\n%s", how, err, s)
			}
			if slices.Contains(s.bus.TorqueEnabled(), !stiff) {
				t.Errorf("%s: torque %v at the end", how, s.bus.TorqueEnabled())
			}
		})
	}
}

// A joint that stays silent, or whose motor complains, ends the replay. No joint is driven
// meanwhile.
func TestAnArmThatIsNotDrivenEndsTheReplay(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		how  string
		what func(*servosim.Bus)
		code exit.Code
		says string
	}{
		{"silent", func(b *servosim.Bus) { b.Mute(3, true) }, exit.Absent, "elbow_flex: silent for 10s"},
		{"too hot", func(b *servosim.Bus) { b.SetFault(3, overheated) }, exit.Fault, "elbow_flex"},
	} {
		t.Run(tt.how, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, wave(t))
			done := s.start(t.Context(), t)
			tt.what(s.bus)
			rttest.Ends(t, <-done, tt.code, tt.says)
			rttest.Contains(t, s.String(), "stopped: 0.0 of 2.0 s")
		})
	}
}

// overheated is a bit of a Feetech servo's status.
const overheated = 1 << 2

func TestReplayTickNoAlloc(t *testing.T) {
	s := newStage(t, wave(t))
	r := &replay{file: s.File, speed: 1}
	r.source = r
	r.rate = rate
	r.period = time.Second / rate
	defer r.close()
	rttest.Do(t, errors.Join(r.begin(s.Config, replayed), r.load(0)))
	rttest.Do(t, r.session.open(t.Context()))
	ticksAllocateNothing(t, &r.session)
}

// A base drives the recorded path, also at half the speed. It stops where the recorded base stopped for
// lack of an action.
func TestABaseReplaysItsWay(t *testing.T) {
	t.Parallel()
	kiwi := rttest.Must(robot.ByName("lekiwi"))(t)
	drives := func(i int) bool { return i < 10 || i >= 20 }
	file := written(t, settings(kiwi), 30, func(i int, m *record.Tick) {
		row := []float32{0, 0, 0, 0, 0, 50, 0, 0, 0}
		if m.Episode = 1; drives(i) {
			row[6] = 0.1
			m.Action.Set(row)
		}
		m.Goal.Set(row)
	})
	in := rttest.Must(os.Open(file))(t)
	defer in.Close()
	e, err := load(in, kiwi, 1)
	if err != nil || e.len() != 30 {
		t.Fatalf("%d ticks, %v", e.len(), err)
	}
	for i := range e.len() {
		if row := e.Rows[i*e.DOF:]; (row[6] == 0.1) != drives(i) || row[5] != 50 {
			t.Errorf("row %d is %v, drives %v", i, row[:e.DOF], drives(i))
		}
	}
	f := new(joints)
	f.All(2047)
	var fastest atomic.Int32
	place, bus := simArm(t, "lekiwi", 0, 4095, servosim.Config{Plant: f, Wheels: 3, Watch: func(e *servosim.Event) {
		if e.ID == 9 && e.After.Torque {
			fastest.Store(max(fastest.Load(), int32(e.After.Spin)))
		}
	}})
	place.ID = freshID()
	said := new(rttest.Output)
	err = Replay(t.Context(), ReplayConfig{File: file, Speed: 0.5, Config: Config{
		Arm:    place,
		RT:     rt.ModeOff,
		CPU:    rt.UnpinnedCPU,
		OnExit: "off",
		Out:    said,
	}})
	// LeRobot computes the wheel velocity 565 for 0.05 m/s.
	if got := fastest.Load(); err != nil || got < 560 || got > 569 {
		t.Errorf("%v, a wheel at %d counts per second, want 565\n%s", err, got, said)
	}
	if slices.Contains(bus.TorqueEnabled(), true) {
		t.Errorf("torque %v at the end", bus.TorqueEnabled())
	}
}
