package attend

import (
	"bytes"
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/edge/recording"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// takeOver writes the record of a change of control: the action jumps, and the gate (follow.Gate) moves the
// goals by perTick in each tick until they reach the action.
func takeOver(t *testing.T, perTick float32) string {
	goal := float32(0)
	return written(t, settings(so101(t)), 3*rate, func(i int, m *record.Tick) {
		action := float32(0)
		if i >= rate/2 {
			action = 40
		}
		goal = min(action, goal+perTick)
		actAt(m, 1, action, goal)
	})
}

// goals returns the first joint's goals in the stage's own record, from the first tick of the
// episode on.
func goals(t *testing.T, s *stage) (out []float32) {
	t.Helper()
	for _, m := range ticks(t, s.RecordDir) {
		if len(out) > 0 || m.Action.N > 0 {
			out = append(out, m.Goal.V[0])
		}
	}
	return out
}

// ticks returns the ticks of the records in a folder.
func ticks(t *testing.T, dir string) (all []record.Tick) {
	t.Helper()
	rttest.Must(record.ReadFolder(dir, record.Visitor{Tick: func(m *record.Tick) error {
		all = append(all, *m)
		return nil
	}}))(t)
	return all
}

func fastest(goals []float32) (most float32) {
	for i := range len(goals) - 1 {
		most = max(most, goals[i+1]-goals[i], goals[i]-goals[i+1])
	}
	return most
}

// The recorded goals limit the speed of a replay; the original actions do not.
func TestAReplayIsNoFasterThanWhatWasShown(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	// 80 units per second: below the joint's limit of 250, and faster than the approach after lost replies
	const perTick = 4
	for _, speed := range []float64{1, 0.5} {
		t.Run(fmt.Sprint(speed), func(t *testing.T) {
			t.Parallel()
			s := newStage(t, takeOver(t, perTick))
			s.Speed = speed
			s.replays(t)
			ran := goals(t, s)
			if got, most := fastest(ran), float32(perTick*speed*1.01); got > most || got < most/2 {
				t.Errorf("at speed %v a goal went %v in a tick, want at most %v, as was shown", speed, got, most)
			}
			if last := ran[len(ran)-1]; math.Abs(float64(last-40)) > 1 {
				t.Errorf("at speed %v it ends at %v, want 40", speed, last)
			}
			if n, want := len(ran), int((3*rate-1)/speed)+1; n < want || n > want+3 {
				t.Errorf("at speed %v it takes %d ticks, want %d", speed, n, want)
			}
		})
	}
}

// While the recorded arm was away, a person moved it by hand, so its goals jump. A replay crosses the
// jump slowly and then continues.
func TestAReplayGoesSlowlyToWhereTheArmWasMovedByHand(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	file := written(t, settings(so101(t)), 3*rate, func(i int, m *record.Tick) {
		switch {
		case i < rate:
			act(m, 1, 0)
		case i < rate+5: // the arm is away
			m.Goal.Set(make([]float32, 6))
		default:
			act(m, 1, 30+float32(i-rate)/10)
		}
	})
	s := newStage(t, file)
	s.replays(t)
	ran := goals(t, s)
	most := float32(so101(t).Motors[0].MaxVelocity * approachPace / rate * 1.05)
	if got := fastest(ran); got > most || got < most/2 {
		t.Errorf("a goal went %v in a tick, want at most %v, the pace to an episode's begin", got, most)
	}
	if last := ran[len(ran)-1]; math.Abs(float64(last-33.9)) > 1 {
		t.Errorf("it ends at %v, want 33.9", last)
	}
	rttest.Contains(t, s.String(), "replayed: 3.0 of 3.0 s")
}

// noBus is the bus of an arm without ticks.
type noBus struct{ follow.Bus }

func (noBus) SetPeriod(time.Duration) {}

// A joint whose goal trails the episode's catches up at the approach's pace, or at the maximum
// recorded speed if that is lower.
func TestBehindTheEpisode(t *testing.T) {
	s := &replay{
		row: []float32{50, 50, -50}, before: []float32{49, 50, -50}, bounded: make([]float32, 3),
		catchUp: []float32{0.5, 0.5, 0.25},
	}
	s.arm = follow.One(follow.New(noBus{}, follow.Config{}, 3))
	copy(s.arm.Goal, []float32{10, 10, 10})
	s.bound()
	if want := []float32{11, 10.5, 9.75}; fmt.Sprint(s.bounded) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", s.bounded, want)
	}
	copy(s.arm.Goal, s.row)
	s.row[0] = 52
	if s.bound(); s.bounded[0] != 52 || s.bounded[1] != 50 {
		t.Errorf("%v, want the row %v", s.bounded, s.row)
	}
}

func TestJumpsAndPeaks(t *testing.T) {
	e := recordedEpisode{DOF: 2, Rows: []float32{0, 0, 1, -2, 1, 9, 2, 9}}
	step := []float32{3, 3}
	for i, want := range []bool{false, true, false, false} {
		rttest.Want(t, e.jumps(i, step), want, "from row %d", i)
	}
	if e.jumps(-1, step) {
		t.Error("a jump before the first row")
	}
	peak := []float32{7, 7}
	if e.peak(step, peak); peak[0] != 1 || peak[1] != 2 {
		t.Errorf("peaks %v, want 1 and 2", peak)
	}
}

// otherwise returns the text of the stage's calibration, with the elbow's homing offset changed by
// this number.
func otherwise(t *testing.T, s *stage, by int) string {
	t.Helper()
	c := rttest.Must(servo.LoadCalibration(s.Arm.Calibration))(t)
	k := c["elbow_flex"]
	k.HomingOffset += by
	c["elbow_flex"] = k
	return c.Text()
}

// After a calibration the same number means another position: the replay names the joint, and
// refuses a large difference.
func TestCalibrationsAreCompared(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		id   string // empty: the calibration of this arm
		by   int
		any  bool
		code exit.Code
		says string
	}{
		{"the same", "", 0, false, exit.Clean, ""},
		{"nearly", "", 10, false, exit.Clean, "Calibrations differ: elbow_flex: range 200..3900, homing_offset " +
			"10, drive_mode 0 then, and range 200..3900, homing_offset 0"},
		{"far away", "", 300, false, exit.Config, "this arm was calibrated again since: elbow_flex"},
		{"far away, and allowed", "", 300, true, exit.Clean,
			"up to 26.4 degrees elsewhere; the replay continues, since --other-calibration is set"},
		{"another arm's offset", "other", 300, false, exit.Clean, "elbow_flex: range 200..3900, homing_offset 300"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, "")
			run := settings(so101(t))
			run["id"], run[recording.Calibration] = cmp.Or(tt.id, s.Arm.ID), otherwise(t, s, tt.by)
			s.File = still(t, run)
			s.OtherCalibration = tt.any
			err := Replay(t.Context(), s.ReplayConfig)
			said := s.String()
			if err != nil {
				said += err.Error()
			}
			if exit.Of(err) != tt.code || !strings.Contains(said, tt.says) || tt.says == "" &&
				strings.Contains(said, "alibration") {
				t.Errorf("%s: %v (code %d), it says %s; want code %d and %q", tt.name, err, exit.Of(err), said, tt.code,
					tt.says)
			}
		})
	}
}

// Without an id the motors identify the arm's calibration. The replay compares it with the
// record's, and the new record holds it like one named on the command line.
func TestTheCalibrationThatTheMotorsChooseIsCompared(t *testing.T) {
	rttest.RealTime(t) // the motors answer within their time-outs
	for by, code := range map[int]exit.Code{0: exit.Clean, 300: exit.Config} {
		s := newStage(t, "")
		run := settings(so101(t))
		run["id"], run[recording.Calibration] = "other", otherwise(t, s, 0)
		if by != 0 {
			run[recording.Calibration] = strings.Replace(otherwise(t, s, 0), "3900", fmt.Sprint(3900-by), 1)
		}
		s.File = still(t, run)
		folder := t.TempDir()
		t.Setenv("HF_LEROBOT_CALIBRATION", folder)
		c := rttest.Must(servo.LoadCalibration(s.Arm.Calibration))(t)
		s.Arm.ID, s.Arm.Calibration = "", ""
		rttest.Do(t, c.Save(servo.CalibrationPath(s.Arm.Robot, "mine")))
		rttest.Ends(t, Replay(t.Context(), s.ReplayConfig), code)
		if by != 0 {
			continue
		}
		infos, err := record.ReadFolder(s.RecordDir, record.Visitor{})
		if err != nil || len(infos) == 0 {
			t.Fatalf("%d records, %v", len(infos), err)
		}
		rttest.Want(t, infos[0].Run[recording.Calibration], c.Text(), "calibration in the record")
	}
}

// still returns a record of five ticks without a motion.
func still(t *testing.T, run map[string]string) string {
	t.Helper()
	return written(t, run, 5, func(_ int, m *record.Tick) { act(m, 1, 0) })
}

func TestARecordWithoutACalibration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"": "does not hold its arm's calibration",
		"{}": "calibration in its metadata"} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, "")
			run := settings(so101(t))
			run[recording.Calibration] = text
			s.File = still(t, run)
			var log bytes.Buffer
			s.Log = slog.New(slog.NewTextHandler(&log, nil))
			err := Replay(t.Context(), s.ReplayConfig)
			if said := log.String() + fmt.Sprint(err); !strings.Contains(said, want) || (text == "") != (err == nil) {
				t.Errorf("%q: %v, it says %s; want %q", text, err, said, want)
			}
		})
	}
}

// The error at the end names the fault that kept the arm still for long, not the fault of the last
// tick.
func TestTheReasonOfAReplaysEndIsWhatLasted(t *testing.T) {
	for _, tt := range []struct {
		first, last robot.Joints // held joints (first) and silent joints (last), on all ticks but the last
		code        exit.Code
		says        string
	}{
		{4, 0, exit.Fault, "elbow_flex: held for 10s"},
		{0, 1, exit.Absent, "shoulder_pan: silent for 10s"},
	} {
		s := &replay{}
		s.cfg.Arm.Robot = so101(t)
		now := rt.Instant(time.Second)
		s.held.Reset(now)
		s.silent.Reset(now)
		for i := range 100 {
			held, silent := tt.first, tt.last
			if i == 99 { // on the last tick the arm has the other fault
				held, silent = 4-tt.first, 1-tt.last
			}
			now += rt.Instant(100 * time.Millisecond)
			s.silent.Add(now, event.Lacking{Joints: silent})
			s.held.Add(now, event.Lacking{Joints: held})
		}
		if err := s.stillError(); exit.Of(err) != tt.code || !strings.HasPrefix(err.Error(), tt.says) {
			t.Errorf("%v (code %d), want %q and code %d", err, exit.Of(err), tt.says, tt.code)
		}
	}
}
