package servosim

import (
	"bytes"
	"cmp"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim/motor"
)

// posed is a plant whose shafts have the positions that the published vectors expect.
type posed struct {
	place  [7]int
	goal   [7]int
	torque [7]bool
}

func newPosed() *posed {
	return &posed{place: [7]int{2064, 2080, 2096, 2112, 2128, 2144}}
}

func (p *posed) Goal(_ rt.Instant, joint, raw int)       { p.goal[joint] = raw }
func (p *posed) Present(_ rt.Instant, joint int) int     { return p.place[joint] }
func (p *posed) Torque(_ rt.Instant, joint int, on bool) { p.torque[joint] = on }

// alone returns one servo on a posed plant.
func alone(t *testing.T, cfg Config) (trial, *posed) {
	t.Helper()
	plant := newPosed()
	cfg.Plant = plant
	return one(t, cmp.Or(cfg.Model, "sts3215"), cfg), plant
}

func TestNoTableHasAnOverlap(t *testing.T) {
	for _, m := range models {
		end := 0
		for _, r := range m.table.rows {
			if int(r.addr) < end || r.size != 1 && r.size != 2 && r.size != 4 ||
				int(r.addr+uint16(r.size)) > m.table.size {
				t.Errorf("%s: register %d, %d bytes, begins before %d or ends after %d", m.name, r.addr, r.size, end,
					m.table.size)
			}
			end = int(r.addr) + int(r.size)
		}
	}
}

func TestAServoWakesUpLimpWhereItIs(t *testing.T) {
	s, plant := alone(t, Config{Model: "sts3250", Baud: 115_200})
	plant.torque[0] = true
	s.restart()
	for _, tt := range []struct {
		name      string
		reg, want int
	}{
		{"goal", stsGoal, 2064}, {"present", stsPresent, 2064}, {"torque limit", stsTorqueLimit, 1000},
		{"model", 3, 2825}, {"upper limit", 11, 4095},
	} {
		rttest.Want(t, int(s.get(tt.reg)), tt.want, "%s", tt.name)
	}
	if s.mem[stsTorque] != 0 || plant.torque[0] {
		t.Error("torque is on after power-up")
	}
	if s.mem[6] != 4 || s.mem[55] != 1 {
		t.Errorf("baud code %d, lock %d, want 4, 1", s.mem[6], s.mem[55])
	}
}

func TestTheLockDecidesWhatSurvives(t *testing.T) {
	s, _ := alone(t, Config{})
	s.set(21, 16)
	if s.mem[21] != 16 {
		t.Errorf("P = %d with the lock closed, want 16 in the working copy", s.mem[21])
	}
	s.restart()
	rttest.Want(t, s.mem[21], 32, "P after a power cycle with the lock closed")
	s.set(55, 0)
	s.set(21, 16)
	s.set(stsTorqueLimit, 100)
	s.restart()
	if s.mem[21] != 16 || s.get(stsTorqueLimit) != 1000 || s.mem[55] != 1 {
		t.Errorf("after a power cycle with the lock open P = %d, torque limit = %d, lock = %d, want 16, 1000, 1",
			s.mem[21], s.get(stsTorqueLimit), s.mem[55])
	}
}

// A later write with the lock open does not save values that were written while the lock was closed.
func TestOpeningTheLockDoesNotSaveWhatWasWrittenBefore(t *testing.T) {
	s, _ := alone(t, Config{})
	s.set(21, 16)
	s.set(55, 0)
	s.set(22, 7)
	s.restart()
	if s.mem[21] != 32 || s.mem[22] != 7 {
		t.Errorf("P, D = %d, %d after a power cycle, want 32, 7", s.mem[21], s.mem[22])
	}
}

func TestReadOnlyMemoryStays(t *testing.T) {
	s, _ := alone(t, Config{})
	s.write(0, []byte{9, 9, 9, 9, 9})
	s.set(62, 1)
	s.write(255, []byte{1, 2, 3}) // the data extend beyond the end of the memory
	if got := s.read(0, 5); !bytes.Equal(got, []byte{3, 10, 0, 9, 3}) {
		t.Errorf("memory 0 to 4 = %v, want 3 10 0 9 3", got)
	}
	rttest.Want(t, s.seen(62), 74, "voltage")
	if got := s.read(254, 4); !bytes.Equal(got, make([]byte, 4)) {
		t.Errorf("memory beyond its end = %v, want zeros", got)
	}
}

func TestGoalsReachThePlantInsideTheLimits(t *testing.T) {
	for _, tt := range []struct {
		name        string
		lo, hi, off int
		goal, want  int
	}{
		{"as it is", 0, 4095, 0, 3000, 3000},
		{"below the range", 1000, 3000, 0, 10, 1000},
		{"above the range", 1000, 3000, 0, 4000, 3000},
		{"negative", 0, 4095, 0, -100, 0},
		{"with an offset", 0, 4095, 100, 3000, 3100},
		{"with a negative offset", 0, 4095, -100, 3000, 2900},
		{"the turn wraps", 0, 4095, 100, 4090, 94},
		{"no limits at all", 0, 0, 0, 3000, 3000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, plant := alone(t, Config{})
			s.put(9, int64(tt.lo))
			s.put(11, int64(tt.hi))
			s.put(stsOffset, signed(tt.off, signOffset))
			s.set(stsGoal, signed(tt.goal, signPosition))
			rttest.Want(t, plant.goal[0], tt.want,
				"goal %d in [%d, %d] offset %d: position", tt.goal, tt.lo, tt.hi, tt.off)
		})
	}
}

func TestTheOffsetMovesWhatIsRead(t *testing.T) {
	for _, tt := range []struct {
		name        string
		off, place  int
		phase, want int
	}{
		{"positive", 100, 2064, 12, 1964},
		{"negative", -100, 2064, 12, 2164},
		{"below zero it wraps in a single turn", 2047, 10, 12, 2059},
		{"below zero it is negative over several turns", 2047, 10, 12 | phaseTurns, -2037},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, plant := alone(t, Config{})
			plant.place[0] = tt.place
			s.mem[stsPhase] = byte(tt.phase)
			s.set(stsOffset, signed(tt.off, signOffset))
			rttest.Want(t, magnitude(s.seen(stsPresent), signPosition), tt.want,
				"position at place %d with offset %d", tt.place, tt.off)
		})
	}
}

func TestTorque128CentresAndLeavesTorqueAlone(t *testing.T) {
	s, plant := alone(t, Config{})
	plant.place[0] = 3000
	s.set(stsTorque, torqueOn)
	s.set(stsTorque, torqueCentre)
	if got := s.seen(stsPresent); got != centre || s.mem[stsTorque] != torqueOn || !plant.torque[0] {
		t.Errorf("present = %d, torque register %d, want %d with torque still on", got, s.mem[stsTorque], centre)
	}
}

// With the instruction that reOfsCal of ftservo-python-sdk sends, the shaft's position reads as any
// given position, also beyond the encoder's seam.
func TestAPlaceReadsAsAnyPosition(t *testing.T) {
	for _, position := range []int{0, 1000, 2048, 4000} {
		s, plant := alone(t, Config{})
		plant.place[0] = 3000
		r := request{id: 1, inst: instPlace, data: []byte{byte(position), byte(position >> 8)}}
		if _, code, answers := s.obey(&r, nil, s.Now()); code != 0 || !answers {
			t.Errorf("%d: code %d, answers %v", position, code, answers)
		}
		rttest.Want(t, s.seen(stsPresent), int64(position), "present")
	}
}

func TestCentringSurvivesOnlyWithTheLockOpen(t *testing.T) {
	for lock, want := range []int{3000 - centre, 0} {
		s, plant := alone(t, Config{})
		plant.place[0] = 3000
		s.set(55, int64(lock))
		s.set(stsTorque, torqueCentre)
		s.restart()
		rttest.Want(t, s.offset(), want, "lock %d: offset after a power cycle", lock)
	}
}

func TestTorqueOnTakesTheGoalRegisterAlong(t *testing.T) {
	s, plant := alone(t, Config{GoalLeavesTorque: true})
	s.set(stsGoal, 3000)
	if plant.torque[0] || s.mem[stsTorque] != 0 {
		t.Error("GoalLeavesTorque: a goal alone turns torque on")
	}
	plant.goal[0] = -1
	s.set(stsTorque, torqueOn)
	if plant.goal[0] != 3000 || !plant.torque[0] {
		t.Errorf("torque on: goal %d, torque %v, want 3000, true", plant.goal[0], plant.torque[0])
	}
	s.set(stsTorque, torqueDamp)
	if plant.torque[0] {
		t.Error("a damped servo follows its goal")
	}
}

// A write of torque and goal in one frame switches torque on with the new goal.
func TestOneWriteOverSeveralRegisters(t *testing.T) {
	s, plant := alone(t, Config{})
	s.write(stsTorque, []byte{1, 50, 0xB8, 0x0B})
	if !plant.torque[0] || plant.goal[0] != 3000 || s.mem[41] != 50 {
		t.Errorf("torque %v, goal %d, acceleration %d, want true, 3000, 50", plant.torque[0], plant.goal[0], s.mem[41])
	}
}

func TestARegisteredWriteWaitsForItsAction(t *testing.T) {
	s, plant := alone(t, Config{})
	ask := func(inst uint8, params ...byte) {
		r, _ := parse(frame{1, inst, params}, false)
		s.obey(&r, nil, s.Now())
	}
	ask(instRegWrite, stsGoal, 0, 4)
	ask(instRegWrite, stsGoal, 0, 5)
	if s.mem[64] != 1 || plant.goal[0] != 0 {
		t.Errorf("before the action: flag %d, goal %d, want 1, 0", s.mem[64], plant.goal[0])
	}
	ask(instAction)
	if s.mem[64] != 0 || plant.goal[0] != 0x500 {
		t.Errorf("after the action: flag %d, goal %#x, want 0 and the second one, 0x500", s.mem[64], plant.goal[0])
	}
	plant.goal[0] = 7
	ask(instAction)
	if plant.goal[0] != 7 {
		t.Error("an action without a registered write does something")
	}
}

func TestVelocityAndMovingFollowThePlant(t *testing.T) {
	s, plant := alone(t, Config{})
	s.write(stsTorque, []byte{1, 0, 0xB8, 0x0B})
	plant.place[0] -= 20
	s.Advance(20 * time.Millisecond)
	if v, moving := s.speed(), s.get(66); v != -1000 || moving != 1 {
		t.Errorf("velocity %d, moving %d, want -1000, 1", v, moving)
	}
	plant.place[0] = 3000
	if s.seen(66) != 0 {
		t.Error("still moving at the goal")
	}
}

func TestImpossibleSettingsAreNotTaken(t *testing.T) {
	s, _ := alone(t, Config{})
	s.write(5, []byte{254, 99})
	if s.mem[5] != 1 || s.mem[6] != 0 {
		t.Errorf("id %d, baud code %d, want 1, 0", s.mem[5], s.mem[6])
	}
}

func TestFreeShaftsTurnAtTheirSpeed(t *testing.T) {
	m, _ := modelByName("sts3215")
	f := motor.NewIdeal(joints([]*model{m}, nil))
	const middle, freeSpeed = 2048, 3072
	now := rt.Instant(time.Second)
	f.Goal(now, 0, 4000)
	rttest.Want(t, f.Present(now.Add(time.Second), 0), middle, "position of the shaft without torque")
	now = now.Add(time.Second)
	f.Torque(now, 0, true)
	rttest.Want(t, f.Present(now.Add(time.Second/4), 0), middle+freeSpeed/4, "position after a quarter of a second")
	rttest.Want(t, f.Present(now.Add(time.Second), 0), 4000, "position after a second")
}

// When a client seldom reads the velocity, it reads the shaft's present speed, not the average
// since the last reading.
func TestVelocityOfAShaftThatIsSeldomLookedAt(t *testing.T) {
	for _, fitted := range []bool{false, true} {
		s := one(t, "sts3215", Config{Fitted: fitted})
		look := func(after time.Duration) (velocity int, moving int64) {
			s.Advance(after)
			return s.speed(), s.get(66)
		}
		if v, moving := look(time.Minute); v != 0 || moving != 0 {
			t.Errorf("fitted %v: at rest velocity %d, moving %d", fitted, v, moving)
		}
		s.Advance(time.Minute)
		s.write(stsTorque, []byte{1, 0, 0xE8, 0x03}) // the goal moves the shaft from 2048 to 1000
		if v, moving := look(200 * time.Millisecond); v > -1000 || moving != 1 {
			t.Errorf("fitted %v: under way velocity %d, moving %d, want below -1000, 1", fitted, v, moving)
		}
		if v, moving := look(3 * time.Second); v != 0 || moving != 0 {
			t.Errorf("fitted %v: there velocity %d, moving %d, want 0, 0", fitted, v, moving)
		}
	}
}

// When a client streams goals, and the shaft reaches each goal before the next goal comes, the velocity is the average
// since the last reading.
func TestVelocityOfAShaftThatIsFedWithGoals(t *testing.T) {
	s := one(t, "sts3215", Config{})
	s.write(stsTorque, []byte{1, 0, 0, 8})
	for goal := 2048; goal < 2448; goal += 20 {
		s.Advance(16 * time.Millisecond)
		if v := s.speed(); goal > 2088 && (v < 1000 || v > 1500) {
			t.Errorf("on the way to %d: velocity %d, want some 1250", goal, v)
		}
		s.set(stsGoal, int64(goal+20))
	}
}

// Two readings of a moving shaft, seconds apart, do not count as seconds of effort.
func TestNoOverloadBetweenReadingsFarApart(t *testing.T) {
	s, plant := alone(t, Config{})
	s.set(stsOverload, 1) // from now on any effort is an overload
	s.write(stsTorque, []byte{1, 0, 0xB8, 0x0B})
	run := func(looks int, each time.Duration) byte {
		for range looks {
			s.Advance(each)
			plant.place[0] -= int(3000 * each / time.Second)
			s.obey(&request{inst: instPing}, nil, s.Now())
		}
		return s.alarm
	}
	rttest.Want(t, run(2, 3*time.Second), 0, "fault after two looks")
	rttest.Want(t, run(45, 50*time.Millisecond), faultOverload, "fault after more than two seconds of effort")
}
