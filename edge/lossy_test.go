package edge

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim/servosim"
	"github.com/edge-rt/edge-rt/sim/servosim/servosimtest"
)

// Goal: a bus whose cable loses replies is not refused as slow. Up to a bound of losses the run
// starts, and the log names the motors. Each case starts four times, since the failure was random.
func TestALossyBusIsNotASlowOne(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	if testing.Short() {
		t.Skip("real time, which the race detector has not")
	}
	r := rttest.Must(robot.ByName("so101"))(t)
	for _, tt := range []struct {
		name        string
		drop, spoil float64
		ids         []uint8
		starts      int
		code        exit.Code
		says        []string
	}{
		{"0.5 % lost, 0.5 % spoilt", 0.005, 0.005, nil, 4, exit.Clean, []string{"loses or spoils", "motor", "plugs"}},
		{"1 % and 1 %", 0.01, 0.01, nil, 2, exit.Clean, []string{"loses or spoils", "motor"}},
		{"5 % and 5 %", 0.05, 0.05, nil, 1, exit.Clean,
			[]string{"loses or spoils", "motor 1 (shoulder_pan)", "motor 6 (gripper)"}},
		{"30 %", 0.3, 0, nil, 1, exit.Absent, []string{"motor 1 (shoulder_pan)", "20 %", "plugs"}},
		{"one motor's 40 %", 0.2, 0.2, []uint8{5}, 1, exit.Absent, []string{"of motor 5 (wrist_roll)", "20 %"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for seed := range tt.starts {
				faults := servosim.Script{Seed: uint64(seed)}
				for kind, share := range map[string]float64{"drop": tt.drop, "corrupt": tt.spoil} {
					if share > 0 {
						faults.Faults = append(faults.Faults, servosim.Fault{Kind: kind, IDs: tt.ids,
							Probability: &share})
					}
				}
				b := servosimtest.Open(t, servosim.Config{})
				arm := rttest.Must(servo.OpenArm(servo.ArmConfig{Path: b.Path(), Robot: r,
					Calibration: device.SimCalibration(r)}))(t)
				defer arm.Close()
				// The bus loses replies only after the arm was opened: the test is about the
				// measurement.
				rttest.Do(t, b.Inject(faults))
				var log strings.Builder
				// A cycle may take 19.4 ms: less than the 20 ms timeout of a lost reply, and far
				// above the cycles of a busy machine.
				e := &Edge{cfg: Config{FPS: 31}, clock: rt.KernelClock(), log: slog.New(slog.NewTextHandler(&log, nil))}
				e.arms = hotplug.Parts{hotplug.New(arm, servo.ArmConfig{}, rt.KernelClock())}
				err := e.measureBuses(t.Context())
				said := log.String()
				if err != nil {
					said += err.Error()
				}
				if exit.Of(err) != tt.code || strings.Contains(said, "the bus takes") {
					t.Errorf("start %d: code %d, want %d; it says %s", seed, exit.Of(err), tt.code, said)
				}
				for _, words := range tt.says {
					rttest.Contains(t, said, words)
				}
			}
		})
	}
}

// openBusy opens an arm, and like edge-rt tries again after an error that may pass, such as a
// missing reply.
func openBusy(t *testing.T, cfg servo.ArmConfig) *servo.Arm {
	t.Helper()
	arm, err := servo.OpenArm(cfg)
	for try := 0; try < 20 && mayAppear(err, 0); try++ {
		arm, err = servo.OpenArm(cfg)
	}
	rttest.Do(t, err)
	return arm
}

// A machine that boots delays replies for some seconds. The bus is measured again after that time, and a machine that
// stays busy is named as the cause.
func TestABusyMachineIsNotASlowBus(t *testing.T) {
	rttest.RealTime(t)
	r := rttest.Must(robot.ByName("so101"))(t)
	for until, want := range map[time.Duration]string{2 * time.Second: "", time.Hour: "other programs delay this one"} {
		t.Run(until.String(), func(t *testing.T) {
			b := servosimtest.Open(t, servosim.Config{})
			arm := openBusy(t, servo.ArmConfig{Path: b.Path(), Robot: r, Calibration: device.SimCalibration(r)})
			defer arm.Close()
			e := &Edge{cfg: Config{FPS: 40}, clock: rt.KernelClock(), log: slog.New(slog.DiscardHandler)}
			e.arms = hotplug.Parts{hotplug.New(arm, servo.ArmConfig{}, rt.KernelClock())}
			var err error
			for range 5 { // this machine may be busy itself
				rttest.Do(t, b.Inject(servosim.Script{Faults: []servosim.Fault{
					{Kind: "late", By: 15 * time.Millisecond, Probability: new(0.05), Until: until},
				}}))
				if err = e.measureBuses(t.Context()); want != "" || err == nil {
					break
				}
			}
			if want == "" && err != nil || want != "" &&
				(exit.Of(err) != exit.Config || !rttest.Says(err, want)) {
				t.Errorf("got %v, want an error with %q", err, want)
			}
		})
	}
}

// A leader's bus is measured again, too, until a machine that boots no longer delays the replies.
func TestABusyMachineIsNotASlowLeader(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	r := rttest.Must(robot.ByName("so101_leader"))(t)
	b := servosimtest.Open(t, device.SimBus(r, nil, rt.KernelClock()))
	place := device.Place{Bus: b.Path(), Robot: r, Calibration: filepath.Join(t.TempDir(), "leader.json")}
	rttest.Do(t, device.SimCalibration(r).Save(place.Calibration))
	opening := drive.LeaderOpening{
		Places: []device.Place{place},
		Clock:  rt.KernelClock(),
		Say:    func(bool, string) {},
		Open: func(_ *device.Place, cfg *servo.ArmConfig) (*servo.Arm, error) {
			return openBusy(t, *cfg), nil
		},
		Opened: func(hot *hotplug.Arm) {
			t.Cleanup(hot.Close)
			b.Mute(3, true)
			time.AfterFunc(1500*time.Millisecond, func() { b.Mute(3, false) })
		},
	}
	if one, err := opening.Leader(t.Context()); err != nil || one.Every() == 0 {
		t.Errorf("a leader on a busy machine: %v, want an interval", err)
	}
}
