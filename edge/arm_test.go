package edge

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim/servosim"
	"github.com/edge-rt/edge-rt/sim/servosim/servosimtest"
)

func TestSimCalibrationIsTheCommittedFile(t *testing.T) {
	for _, name := range []string{"so101", "lekiwi"} {
		r := rttest.Must(robot.ByName(name))(t)
		file := rttest.Must(servo.LoadCalibration(filepath.Join("..", "testdata", "demo", name+".json")))(t)
		if got := device.SimCalibration(r); !reflect.DeepEqual(got, file) {
			t.Errorf("SimCalibration(%s) = %+v, want the file's %+v", name, got, file)
		}
	}
}

// Goal: Open retries failures that may pass, such as a port that another program uses or an arm without power. It
// returns a lasting failure at once.
func TestAnArmThatComesLater(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	r := rttest.Must(robot.ByName("so101"))(t)
	const later = 300 * time.Millisecond
	for _, tt := range []struct {
		name    string
		change  func(t *testing.T, b *servosim.Bus, c servo.Calibration)
		code    exit.Code
		offline time.Duration
	}{
		{"at once", func(*testing.T, *servosim.Bus, servo.Calibration) {}, exit.Clean, time.Second},
		{"without power at first", func(_ *testing.T, b *servosim.Bus, _ servo.Calibration) {
			mute(b, true)
			time.AfterFunc(later, func() { mute(b, false) })
		}, exit.Clean, time.Minute},
		{"busy at first", func(t *testing.T, b *servosim.Bus, _ servo.Calibration) {
			port := rttest.Must(servo.OpenPort(b.Path(), 1_000_000))(t)
			time.AfterFunc(later, func() { port.Close() })
		}, exit.Clean, time.Minute},
		{"without power", func(_ *testing.T, b *servosim.Bus, _ servo.Calibration) {
			mute(b, true)
		}, exit.Absent, later},
		{"another arm's calibration", func(_ *testing.T, _ *servosim.Bus, c servo.Calibration) {
			c["gripper"] = servo.MotorCalibration{ID: 6, HomingOffset: 5, RangeMin: 1000, RangeMax: 3000}
		}, exit.Config, time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := servosimtest.Open(t, servosim.Config{})
			c := device.SimCalibration(r)
			tt.change(t, b, c)
			e := waitingEdge(io.Discard)
			e.cfg.MaxOffline = tt.offline
			place := device.Place{Bus: b.Path(), Robot: r}
			arm, err := e.retryArm(t.Context(), &place, &servo.ArmConfig{Path: b.Path(), Robot: r, Calibration: c})
			rttest.Ends(t, err, tt.code)
			if arm != nil {
				arm.Close()
			}
		})
	}
}

// mute silences the six motors of an arm, or ends their silence.
func mute(b *servosim.Bus, on bool) {
	for id := range byte(6) {
		b.Mute(id+1, on)
	}
}

// waitingEdge returns an edge that can wait for an arm. It logs the reasons for the wait to the writer log.
func waitingEdge(log io.Writer) *Edge {
	return &Edge{cfg: Config{MaxOffline: time.Minute, ReconnectInitialBackoff: 50 * time.Millisecond},
		clock: rt.KernelClock(), log: slog.New(slog.NewTextHandler(log, nil))}
}

// journal is a buffer. When its content first includes the text j.until, Write calls j.then.
type journal struct {
	strings.Builder
	until string
	then  func()
}

func (j *journal) Write(p []byte) (int, error) {
	n, err := j.Builder.Write(p)
	if j.then != nil && strings.Contains(j.String(), j.until) {
		j.then()
		j.then = nil
	}
	return n, err
}

// silentArm is a bus whose six motors do not answer.
func silentArm(t *testing.T) (robot.Robot, *servosim.Bus) {
	t.Helper()
	rttest.RealTime(t) // simulated motors answer within real time-outs
	r := rttest.Must(robot.ByName("so101"))(t)
	b := servosimtest.Open(t, servosim.Config{})
	mute(b, true)
	return r, b
}

// Goal: the reason for waiting is logged when it changes, and only then.
func TestWaitReasonIsLoggedWhenItChanges(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	r, b := silentArm(t)
	path := filepath.Join(t.TempDir(), "arm")
	time.AfterFunc(time.Second, func() { os.Symlink(b.Path(), path) })
	log := &journal{until: "no motor answered", then: func() {
		// late enough for one more attempt that fails for the same reason
		time.AfterFunc(4*time.Second, func() { mute(b, false) })
	}}
	arm := rttest.Must(waitingEdge(log).retryArm(t.Context(), &device.Place{Bus: path, Robot: r},
		&servo.ArmConfig{Path: path, Robot: r, Calibration: device.SimCalibration(r)}))(t)
	arm.Close()
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	// A third line appears if the motors answer again during an attempt.
	if len(lines) < 2 || !strings.Contains(lines[0], "no such port") ||
		!strings.Contains(lines[1], "no motor answered") || len(lines) > 3 {
		t.Errorf("it says\n%s\nwant first that there is no port, then that nobody answers, and no more", log)
	}
}

// Goal: Ctrl-C ends the wait before every silent motor has been pinged.
func TestWaitingForAnArmIsCanceled(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	r, b := silentArm(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := waitingEdge(io.Discard).retryArm(ctx, &device.Place{Bus: b.Path(), Robot: r},
			&servo.ArmConfig{Path: b.Path(), Robot: r, Calibration: device.SimCalibration(r)})
		ended <- err
	}()
	rttest.Eventually(t, "the search for the motors", func() bool { return b.Counters().Requests >= 5 })
	cancel()
	err := <-ended
	rttest.FailsAs(t, err, context.Canceled)
	if n := b.Counters().Requests; n > 10 {
		t.Errorf("it asked %d times, though it was told to end after the fifth; all motors are asked 24 times", n)
	}
}

// Goal: a port that refuses access is tried again for udevTime after the first refusal, since udev
// gives a new device its group only after a while.
func TestPermissionIsWaitedForFromWhenItLacks(t *testing.T) {
	denied := fmt.Errorf("%w: arm", servo.ErrPortDenied)
	for _, tt := range []struct {
		err   error
		since time.Duration
		want  bool
	}{
		{denied, 0, true}, {denied, udevTime, false}, {servo.ErrPortAbsent, time.Hour, true},
		{servo.ErrWrongModel, 0, false},
	} {
		rttest.Want(t, mayAppear(tt.err, tt.since), tt.want, "mayAppear(%v, %v)", tt.err, tt.since)
	}
}
