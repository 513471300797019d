package attend

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/episode"
	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/edge/recording"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
)

// recorded makes a run keep its whole record, in a folder of its own.
func recorded(t *testing.T, cfg *TeleopConfig) {
	cfg.Record = record.All
	cfg.RecordDir = t.TempDir()
	cfg.RecordSize = 64 << 20
}

// The record of a teleoperation holds the data of a policy's run: the leader's actions, the
// follower's goals and the cameras' pictures. An operator can pause the follower and set the task.
func TestTeleoperationIsRecorded(t *testing.T) {
	t.Parallel()
	cfg, _, follow, h, f := pair(t, "so101")
	recorded(t, &cfg)
	cfg.Task = "wave"
	cfg.Cameras = []capture.Config{{Name: "top", Source: capture.Pattern, Width: 160, Height: 120, FPS: 30}}
	cfg.Encoding.Quality = 90
	cfg.Arm.ID = "black"
	end := teach(t, cfg, follow)
	h.All(2300)
	f.await(t, "follow", 2300)
	if reply, err := operator.Ctl("black", "pause"); err != nil || !reply.Paused || reply.Task != "wave" ||
		reply.Ticks == 0 {
		t.Errorf("pause: %+v, %v", reply, err)
	}
	h.All(2000)
	awaitTicks(t, "black", 10)
	if !f.near(2300) {
		t.Error("paused, the follower moves")
	}
	rttest.Fails(t, rttest.Err(operator.Ctl("black", "correct")), "a leader arm drives this one")
	rttest.Fails(t, rttest.Err(operator.Ctl("black", "reset")), "no policy")
	if reply, err := operator.Ctl("black", "task point"); err != nil || reply.Task != "point" {
		t.Errorf("task: %+v, %v", reply, err)
	}
	rttest.Must(operator.Ctl("black", "resume"))(t)
	f.await(t, "follow again", 2000)
	awaitTicks(t, "black", 20)
	end()

	var wanted, still, pictures int
	var steps []int64
	infos, err := record.ReadFolder(cfg.RecordDir, record.Visitor{
		Tick: func(m *record.Tick) error {
			switch {
			case m.Intervention || m.State.N != 6 || m.Goal.N != 6 || m.Read <= 0 || m.Act < 0:
				t.Errorf("a tick is %+v", m)
			case m.Action.N > 0:
				steps = append(steps, m.Step)
				if d := math.Abs(float64(m.Action.V[0] - m.State.V[0])); d < 1 {
					wanted++
				}
				if m.Source > m.At || m.Source == 0 || record.RunStates[m.RunState] != drive.Streaming {
					t.Errorf("an action of %v at %v in state %d", m.Source, m.At, m.RunState)
				}
			case m.Paused && record.RunStates[m.RunState] == drive.Stalled:
				still++
			}
			return nil
		},
		Image: func(m *record.Image) error {
			if m.Camera == "top" && m.Format == "jpeg" && len(m.Data.A) > 100 {
				pictures++
			}
			return nil
		},
	})
	if err != nil || len(infos) != 1 {
		t.Fatalf("%d files, %v, want one", len(infos), err)
	}
	for i := range steps {
		if steps[i] != int64(i+1) {
			t.Fatalf("step %d is number %d", steps[i], i+1)
		}
	}
	if wanted < 10 || still < 3 || pictures < 3 {
		t.Errorf("%d actions where the leader is, %d ticks held, %d pictures", wanted, still, pictures)
	}
	run := infos[0].Run
	if c, err := servo.ParseCalibration(run[recording.Calibration]); err != nil || len(c) != 6 {
		t.Errorf("the follower's calibration is on record as %v, %v", c, err)
	}
	for key, want := range map[string]string{"id": "black", "task": "wave", "cameras": "top", "schedule": "teleop",
		"leader": cfg.Leader.Bus, "fps": "50"} {
		rttest.Want(t, run[key], want, "the run's %s", key)
	}
	if joints := strings.Split(run["joints"], ","); len(joints) != 6 || !strings.HasSuffix(joints[0], ".pos") {
		t.Errorf("joints %q", joints)
	}
	rttest.Contains(t, cfg.Out.(*rttest.Output).String(), "record      all, 1 files")
}

// A follower that does not answer gets no actions on record, and no episode begins.
func TestASilentFollowerHasNoActions(t *testing.T) {
	t.Parallel()
	cfg, _, follow, _, _ := pair(t, "so101")
	recorded(t, &cfg)
	end := teach(t, cfg, follow)
	await := func(state string) {
		rttest.Eventually(t, state, func() bool {
			reply, err := operator.Ctl(cfg.Arm.ID, "status")
			return err == nil && reply.State == state
		})
	}
	await(drive.Streaming)
	for id := range byte(6) {
		follow.Mute(id+1, true)
	}
	await(drive.Stalled)
	rttest.Fails(t, rttest.Err(operator.Ctl(cfg.Arm.ID, "start")), "does not answer")
	for id := range byte(6) {
		follow.Mute(id+1, false)
	}
	await(drive.Streaming)
	end()
	silent, acted := 0, 0
	for _, m := range ticks(t, cfg.RecordDir) {
		if m.BusSilent {
			silent++
			acted += m.Action.N
		}
	}
	if silent == 0 || acted > 0 {
		t.Errorf("%d joints got actions in %d silent ticks", acted, silent)
	}
}

// The simulated arm and its camera share one world. A missing camera ends the start.
func TestSimulatedFollower(t *testing.T) {
	t.Parallel()
	cfg, _, _, h, _ := pair(t, "so101")
	cfg.Arm.Bus, cfg.Arm.Calibration = "sim", ""
	recorded(t, &cfg)
	cfg.Cameras = []capture.Config{{Name: "top", Source: capture.Sim, Width: 64, Height: 48}}
	h.All(2047)
	end := start(t, cfg)
	rttest.Eventually(t, "it follows", func() bool {
		reply, err := operator.Ctl(cfg.Arm.ID, "status")
		return err == nil && reply.State == drive.Streaming
	})
	end()
	cfg.Cameras[0].Source = "/dev/video-none"
	rttest.Ends(t, Teleop(t.Context(), cfg), exit.Absent) // the camera's device does not exist
}

// awaitTicks waits for n more ticks of the teleoperation with the given id.
func awaitTicks(t *testing.T, id string, n uint64) {
	t.Helper()
	begin := rttest.Must(operator.Ctl(id, "status"))(t)
	rttest.Eventually(t, "ticks", func() bool {
		reply, err := operator.Ctl(id, "status")
		return err == nil && reply.Ticks >= begin.Ticks+n
	})
}

// edge-rt ctl can end the teleoperation. Its command release switches the torque off, regardless of --on-exit.
func TestOperatorEndsTheTeleoperation(t *testing.T) {
	t.Parallel()
	for word, stiff := range map[string]bool{"stop": true, "release": false} {
		cfg, _, follow, _, _ := pair(t, "so101")
		cfg.OnExit = "hold"
		done := rttest.Go(func() error { return Teleop(t.Context(), cfg) })
		awaitTorque(t, follow)
		awaitTicks(t, cfg.Arm.ID, 5) // within these ticks the last joint gets its torque, too
		rttest.Must(operator.Ctl(cfg.Arm.ID, word))(t)
		if err := <-done; err != nil || slices.Contains(follow.TorqueEnabled(), true) != stiff {
			t.Errorf("%s: %v, torque %v, want %v", word, err, follow.TorqueEnabled(), stiff)
		}
	}
}

// The person and the clock begin and end the episodes of a teleoperation. The follower continues
// between them, and the run ends with the last one.
func TestEpisodesOfATeleoperation(t *testing.T) {
	t.Parallel()
	cfg, _, _, h, f := pair(t, "so101")
	recorded(t, &cfg)
	cfg.Task = "wave"
	length, reset := 300*time.Millisecond, time.Hour
	cfg.Episodes = episode.Plan{Count: 2, Time: &length, Reset: &reset}
	var key func(string)
	deaf := false
	cfg.Listen = func(k func(string)) func() { key = k; return func() { deaf = true } }
	done := rttest.Go(func() error { return Teleop(t.Context(), cfg) })
	status := func() *episode.Status {
		reply, err := operator.Ctl(cfg.Arm.ID, "status")
		if err != nil || reply.Episodes == nil {
			return &episode.Status{}
		}
		return reply.Episodes
	}
	rttest.Eventually(t, "the first is over", func() bool { return status().Phase == episode.Reset })
	if s := status(); s.Timeout != 1 || s.Number != 1 || s.Wanted != 2 || s.Left < 3000 {
		t.Errorf("%+v", s)
	}
	h.All(2200)
	f.await(t, "it follows between them", 2200)
	rttest.Must(operator.Ctl(cfg.Arm.ID, "task point"))(t)
	key("right") // the key ends the reset
	if s := status(); s.Phase != episode.Recording || s.Number != 2 {
		t.Errorf("after the right arrow: %+v", s)
	}
	// a second start is refused
	rttest.Fails(t, rttest.Err(operator.Ctl(cfg.Arm.ID, "start")), "under way")
	// The task cannot change within an episode.
	rttest.Fails(t, rttest.Err(operator.Ctl(cfg.Arm.ID, "task other")), "under way")
	rttest.Do(t, <-done) // the last episode's time ran out
	if !deaf {
		t.Error("the terminal is still listened to")
	}
	var marks []string
	var inside, outside int
	var from, to []rt.Instant
	rttest.Must(record.ReadFolder(cfg.RecordDir, record.Visitor{Episode: func(m *record.Episode) error {
		marks = append(marks, fmt.Sprintf("%d %v %s %s", m.Number, m.Ended, m.Outcome, m.Task.String()))
		if m.Ended {
			to = append(to, m.At)
		} else {
			from = append(from, m.At)
		}
		return nil
	}}))(t)
	if want := []string{"1 false  wave", "1 true timeout wave", "2 false  point",
		"2 true timeout point"}; !slices.Equal(marks, want) {
		t.Fatalf("on record are %q, want %q", marks, want)
	}
	for _, m := range ticks(t, cfg.RecordDir) {
		switch {
		case m.Action.N == 0:
		case m.At >= from[0] && m.At < to[0], m.At >= from[1] && m.At < to[1]:
			inside++
		default:
			outside++
		}
	}
	if inside < 10 || outside < 1 {
		t.Errorf("%d frames and %d actions beside", inside, outside)
	}
	text := cfg.Out.(*rttest.Output).String()
	rttest.Contains(t, text, "episode 1 (1 of 2) begins: wave", "timeout", "reset the scene",
		"all 2 episodes are complete")
}
