package servo

import (
	"errors"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
)

// Goal: OpenArm can be canceled at any point, returns soon, and leaves no motor with its EEPROM
// unlocked.
func TestOpeningHaltsSoon(t *testing.T) {
	const soon, settled = 200 * time.Millisecond, 4 * time.Second
	for name, spoil := range map[string]func(*line){
		"all is well":       func(*line) {},
		"nobody answers":    func(l *line) { l.lateFrom, l.lateTo, l.lateAll = 1, 1<<30, time.Hour },
		"motor 3 is silent": func(l *line) { l.servos[3].mute = true },
		"every second reply is garbled": func(l *line) {
			n := 0
			l.tamper = func(r []byte) []byte {
				if n++; n%2 == 0 {
					r[len(r)-1]++
				}
				return r
			}
		},
		"every reply is late": func(l *line) { l.lateFrom, l.lateTo, l.lateAll = 1, 1<<30, 60*time.Millisecond },
	} {
		full := time.Duration(0)
		for after := time.Duration(0); after <= full || full == 0; after += max(7*time.Millisecond, full/200) {
			l := sixMotors()
			clock := l.Clock
			spoil(l)
			stop := clock.Now().Add(after)
			cfg := l.config()
			if full == 0 { // first run: measure the whole opening
				arm, _ := OpenArm(cfg)
				if full = clock.Now().Sub(rt.Instant(time.Second)); arm != nil {
					arm.Close()
				}
				continue
			}
			cfg.Canceled = func() bool { return clock.Now() >= stop }
			arm, err := OpenArm(cfg)
			want := soon
			if l.tamper != nil { // a motor whose settings are being written gets all of them
				want = settled
			}
			if late := clock.Now().Sub(stop); late > want {
				t.Errorf("%s, halted after %v of %v: it ended %v later (%v), want %v", name, after, full, late, err,
					want)
			}
			if arm == nil && clock.Now() >= stop && !errors.Is(err, ErrCanceled) && !errors.Is(err, ErrMotorMissing) {
				t.Errorf("%s, halted after %v: %v, want %v", name, after, err, ErrCanceled)
			}
			for id, s := range l.servos {
				if s.mem[55] != 1 || s.mem[40] != 0 {
					t.Fatalf("%s, halted after %v: motor %d has lock %d and torque %d, want 1 and 0", name, after, id,
						s.mem[55], s.mem[40])
				}
			}
		}
	}
}

// When the acknowledgement of the write that unlocks a motor's EEPROM is lost, the driver locks the EEPROM again.
func TestAnUnheardUnlockingIsUndone(t *testing.T) {
	l := newLine(rttest.NewClock(rt.Instant(time.Second)), 1)
	l.tamper = func(r []byte) []byte {
		if q := l.log[len(l.log)-1]; q[4] == 3 && q[5] == 55 && q[6] == 0 {
			return nil
		}
		return r
	}
	b := l.bus()
	err := WriteSettings(b, 1, so101().Motors[0].Model, []robot.Setting{{Register: table.MinPositionLimit, Value: 5}})
	if !errors.Is(err, ErrNoReply) || l.servos[1].mem[55] != 1 || l.servos[1].word(9) != 0 {
		t.Errorf("WriteSettings = %v, the lock is %d, the limit %d; want %v, 1 and 0", err, l.servos[1].mem[55],
			l.servos[1].word(9), ErrNoReply)
	}
}

func TestMeasuringHaltsSoon(t *testing.T) {
	l := sixMotors()
	var stop rt.Instant
	cfg := l.config()
	cfg.Canceled = func() bool { return stop > 0 && l.Now() >= stop }
	a := rttest.Must(OpenArm(cfg))(t)
	l.servos[3].mute = true
	stop = l.Now().Add(100 * time.Millisecond)
	if _, err := a.MeasureCycles(100); !errors.Is(err, ErrCanceled) || l.Now().Sub(stop) > 100*time.Millisecond {
		t.Errorf("MeasureCycles = %v, %v after it was to stop, want %v within 100ms", err, l.Now().Sub(stop),
			ErrCanceled)
	}
	// A cancellation does not prevent switching the torque off.
	l.servos[3].mute = false
	rttest.Do(t, a.TorqueOff())
}
