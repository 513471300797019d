package servosim

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim/motor"
)

// scripted runs a script on a bus in simulated time. at(d) advances the time to d after the start
// and returns the states of the servos.
func scripted(t *testing.T, cfg Config, script string) (b *Bus, at func(time.Duration) []State) {
	t.Helper()
	clock := rttest.NewClock(rt.Instant(time.Second))
	cfg.Clock, cfg.Faults = clock, parseScript(t, script)
	b = open(t, cfg)
	start := clock.Now()
	return b, func(d time.Duration) []State {
		for clock.Now() < start.Add(d) {
			clock.Advance(10 * time.Millisecond)
			b.tick(clock.Now())
			b.States()
		}
		return b.States()
	}
}

func TestAScriptMaySwitchTheSupplyOfSome(t *testing.T) {
	b, at := scripted(t, Config{}, "faults: [{kind: power, ids: [2, 3], from: 1s, until: 2s}]")
	for _, s := range b.servos {
		b.mu.Lock()
		s.write(stsTorque, []byte{1}, b.cfg.Clock.Now())
		s.write(stsTorqueLimit, le(300, 2), b.cfg.Clock.Now())
		b.mu.Unlock()
	}
	for _, tt := range []struct {
		after          time.Duration
		powered, boots bool
		place          int
	}{
		{900 * time.Millisecond, true, false, 2048},
		{1500 * time.Millisecond, false, false, 2048 - 683/2},
		{2500 * time.Millisecond, true, true, 1024},
		{3 * time.Second, true, false, 1024},
	} {
		all := at(tt.after)
		for i, s := range all {
			off := i == 1 || i == 2
			if want := tt.place; off && (s.Powered != tt.powered || s.Boots != tt.boots || s.Place < want-8 ||
				s.Place > want+8 || s.Torque != (tt.after < time.Second)) {
				t.Errorf("after %v servo %d: %+v, want powered %v, boots %v, at %d", tt.after, i+1, s, tt.powered,
					tt.boots, want)
			}
			if off && tt.after == 3*time.Second && s.Goal != s.Place {
				t.Errorf("servo %d has sunk to %d while it booted, and its goal is %d", i+1, s.Place, s.Goal)
			}
			if !off && (!s.Powered || !s.Torque || s.Place != 2048) {
				t.Errorf("after %v servo %d, whose supply stays: %+v", tt.after, i+1, s)
			}
		}
	}
	if got := []int64{b.servos[0].get(stsTorqueLimit),
		b.servos[1].get(stsTorqueLimit)}; !slices.Equal(got, []int64{300, 1000}) {
		t.Errorf("torque limits of servos 1 and 2: %v, want 300 and 1000", got)
	}
}

// The servos lose their torque and RAM in a power cycle even when the adapter is unplugged at that
// time.
func TestUnplugPowerCycleReplug(t *testing.T) {
	link := filepath.Join(t.TempDir(), "bus")
	byScript := Config{Link: link, BootTime: 10 * time.Millisecond,
		Faults: parseScript(t, "faults: [{kind: unplug, from: 100ms, until: 400ms}, {kind: power, from: 150ms, "+
			"until: 200ms}]")}
	for name, cfg := range map[string]Config{"by script": byScript,
		"by call": {Link: link, BootTime: 10 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			b, c := dialed(t, cfg)
			defer b.Close()
			c.ask("FF FF 01 04 03 28 01 CE", "FF FF 01 02 00 FC")
			c.ask("FF FF 01 05 03 30 2C 01 99", "FF FF 01 02 00 FC") // sets the torque limit to 300
			there := func() bool { target, err := os.Readlink(link); return err == nil && target == b.Path() }
			if name == "by call" {
				rttest.Do(t, b.Unplug())
				b.Power(false)
				b.Power(true)
				rttest.Do(t, b.Replug())
			} else {
				rttest.Eventually(t, "the adapter to go", func() bool { return !there() })
			}
			rttest.Eventually(t, "the adapter and the servos to come back", func() bool {
				return there() && !b.States()[5].Boots && b.States()[5].Powered
			})
			c = dial(t, b)
			c.ask("FF FF 01 04 02 28 01 CF", "FF FF 01 03 00 00 FB")    // torque is off
			c.ask("FF FF 01 04 02 30 02 C6", "FF FF 01 04 00 E8 03 0F") // the torque limit is 1000 again
			c.ask("FF FF 01 04 02 37 01 C0", "FF FF 01 03 00 01 FA")    // the EEPROM is locked
		})
	}
}

func TestAScriptMayLieBlockAndComplain(t *testing.T) {
	b, at := scripted(t, Config{}, `faults:
  - {kind: encoder, ids: [3], offset: 100, from: 1s, until: 3s}
  - {kind: voltage, ids: [4], volts: 5, from: 1s, until: 3s}
  - {kind: block, ids: [6], at: 1700, holds: true, from: 1s, until: 3s}
  - {kind: block, ids: [5], from: 1s, until: 3s}`)
	goals := []int{2048, 2048, 2048, 2048, 2300, 1500}
	order := func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for i, g := range goals {
			ordered(b.servos[i], g, b.cfg.Clock.Now())
		}
	}
	at(time.Second)
	order()
	s := at(1900 * time.Millisecond)
	if s[2].Fault != faultEncoder || s[2].Position != 2048 || s[2].Place != 1948 {
		t.Errorf("the lying encoder: %+v", s[2])
	}
	if s[3].Fault != faultVoltage || s[3].Volts > 5.01 || s[3].Volts < 4 {
		t.Errorf("the complaint of the supply: %+v", s[3])
	}
	if s[4].Place != 2048 || !s[4].Pressed || s[5].Place != 1700 || !s[5].Pressed || !s[5].Holds || s[5].Duty > -0.9 {
		t.Errorf("the blocked: %+v, %+v", s[4], s[5])
	}
	s = at(5 * time.Second)
	for i := range s {
		if want := goals[i]; s[i].Fault != 0 || s[i].Place != want || s[i].Pressed || s[i].Holds {
			t.Errorf("afterwards servo %d: %+v, want it at %d", i+1, s[i], want)
		}
	}
	rttest.Want(t, b.Counters().Dropped, 0, "objects fell, but the script took this one away")
}

func ordered(s *servo, goal int, now rt.Instant) { s.write(stsGoal, le(int64(goal), 2), now) }

func TestCallsForAnEncoderAndAnObject(t *testing.T) {
	clock := rttest.NewClock(rt.Instant(time.Second))
	b := open(t, Config{Clock: clock})
	b.alter([]uint8{3}, func(s *servo, now rt.Instant) { s.setEncoderFault(motor.EncoderFault{Offset: -7}, now) })
	b.Block(6, 1900, true)
	b.mu.Lock()
	ordered(b.servos[5], 1000, clock.Now())
	b.mu.Unlock()
	look := func() []State {
		for range 30 {
			clock.Advance(10 * time.Millisecond)
			b.States()
		}
		return b.States()
	}
	if s := look(); s[2].Fault != faultEncoder || s[2].Position != 2041 || !s[5].Holds || s[5].Place != 1900 {
		t.Errorf("%+v", s)
	}
	b.alter([]uint8{3}, func(s *servo, now rt.Instant) { s.setEncoderFault(motor.EncoderFault{}, now) })
	b.mu.Lock()
	ordered(b.servos[5], 1900, clock.Now())
	b.mu.Unlock()
	if s := look(); s[2].Fault != 0 || s[5].Holds || b.Counters().Dropped != 1 {
		t.Errorf("%+v, %d dropped", s, b.Counters().Dropped)
	}
}

// The servos still answer during a flood of garbage. After the flood's end only requested bytes
// come.
func TestAFlood(t *testing.T) {
	b, c := dialed(t, Config{})
	spoil(Fault{Kind: "flood", Bytes: 20, Until: time.Second})(b)
	if got := c.receive(500, patience); len(got) < 500 {
		t.Fatalf("%d bytes of a flood", len(got))
	}
	rttest.Eventually(t, "an answer in the flood", func() bool {
		c.send(ping)
		return bytes.Contains(c.receive(200, patience), pong)
	})
	rttest.Eventually(t, "silence", func() bool { return len(c.receive(1, 50*time.Millisecond)) == 0 })
	c.ask("FF FF 01 02 01 FB", "FF FF 01 02 00 FC")
}
