package servosim

import (
	"testing"
	"time"
)

// watched returns a servo and its recorded events.
func watched(t *testing.T, cfg Config) (s trial, events *[]Event) {
	t.Helper()
	events = new([]Event)
	cfg.Watch = func(e *Event) {
		kept := *e
		kept.Data = append([]byte(nil), e.Data...)
		if e.Data == nil {
			kept.Data = nil
		}
		*events = append(*events, kept)
	}
	s = one(t, "sts3215", cfg)
	*events = nil
	return s, events
}

// A write is reported with the servo's states before and after it.
func TestAWriteIsTold(t *testing.T) {
	s, events := watched(t, Config{})
	s.set(stsGoal, 2100)
	if len(*events) != 1 {
		t.Fatalf("%d events of one write, want 1", len(*events))
	}
	e := (*events)[0]
	if e.Addr != stsGoal || string(e.Data) != string(le(2100, 2)) || e.ID != 1 {
		t.Errorf("told of % X at %d of servo %d, want the goal of servo 1", e.Data, e.Addr, e.ID)
	}
	if b := e.Before; b.Torque || b.Goal != 2048 || b.Present != 2048 || b.Boots != 1 || !b.Answers || !b.EncoderOK {
		t.Errorf("before it the servo is %+v, want limp in the middle after its first boot", b)
	}
	if a := e.After; !a.Torque || a.Goal != 2100 || a.Aim != 2100 {
		t.Errorf("after it the servo is %+v, want under torque towards 2100", a)
	}
}

// When the goal is outside the servo's EEPROM range, Goal is the goal register, and Aim is the
// position to which the servo moves.
func TestTheEEPROMRangeShowsInTheAim(t *testing.T) {
	s, events := watched(t, Config{})
	s.put(s.at.minLimit, 2500)
	s.put(s.at.maxLimit, 3000)
	s.set(stsGoal, 2048)
	if a := (*events)[0].After; a.Goal != 2048 || a.Aim != 2500 {
		t.Errorf("goal %d and aim %d, want 2048 and 2500", a.Goal, a.Aim)
	}
}

// A change that a servo makes by itself is reported once, when it happens.
func TestAChangeIsTold(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(trial)
		holds  func(was, is Snapshot) bool
	}{
		{"a restart", func(s trial) {
			s.restart()
		}, func(was, is Snapshot) bool { return was.Torque && !is.Torque && is.Boots == was.Boots+1 }},
		{"an overload", func(s trial) {
			s.overload(s.Now())
			s.emitChange(s.Now())
		}, func(was, is Snapshot) bool { return is.Alarm&faultOverload != 0 }},
		{"an encoder that is not to be believed", func(s trial) {
			s.forced = faultEncoder
		}, func(was, is Snapshot) bool { return was.EncoderOK && !is.EncoderOK }},
		{"silence", func(s trial) {
			s.mute = true
		}, func(was, is Snapshot) bool { return was.Answers && !is.Answers }},
		{"the plug", func(s trial) {
			s.rail.unplugged = true
		}, func(was, is Snapshot) bool { return was.Answers && is.Unplugged && !is.Answers }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, events := watched(t, Config{})
			s.set(stsTorque, 1)
			s.set(stsGoal, 2200)
			s.Advance(10 * time.Millisecond)
			s.monitor() // the shaft moves
			*events = nil
			tt.change(s)
			s.passes(30 * time.Millisecond)
			if len(*events) != 1 {
				t.Fatalf("%d events, want 1: %+v", len(*events), *events)
			}
			if e := (*events)[0]; e.Data != nil || !tt.holds(e.Before, e.After) {
				t.Errorf("told %+v", e)
			}
		})
	}
}

// A reboot is reported when it begins, and again when the servo is ready. At the second report
// torque is on if the servo boots with torque.
func TestABootIsTold(t *testing.T) {
	s, events := watched(t, Config{BootTorque: []uint8{1}, BootTime: 5 * time.Millisecond})
	s.reboot(s.Now())
	s.waits(5 * time.Millisecond)
	if len(*events) != 2 {
		t.Fatalf("%d events of a boot, want 2: %+v", len(*events), *events)
	}
	gone, back := (*events)[0], (*events)[1]
	if gone.Before.Boots+1 != gone.After.Boots || gone.After.Answers || gone.After.Torque || !gone.Before.Torque {
		t.Errorf("its beginning is %+v", gone)
	}
	if !back.After.Answers || !back.After.Torque || back.After.Boots != gone.After.Boots || back.Data != nil {
		t.Errorf("its end is %+v", back)
	}
}

// Config.Watch adds no allocation to a transaction.
func TestWatchingAllocatesNothing(t *testing.T) {
	n := 0
	s := one(t, "sts3215", Config{Watch: func(*Event) { n++ }})
	goal := le(2100, 2)
	if got := testing.AllocsPerRun(100, func() {
		s.write(stsGoal, goal)
		s.monitor()
		s.forced ^= faultEncoder
		s.emitChange(s.Now())
	}); got != 0 || n == 0 {
		t.Errorf("%v allocations with %d events, want 0 with some", got, n)
	}
}
