package sim

import (
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim/servosim"
	"golang.org/x/sys/unix"
)

var (
	_ servosim.Turner = (*Live)(nil)
	_ servosim.Sinker = (*Live)(nil)
)

// In simulated time the teacher moves the world's arm through frames on a terminal, a paced wire,
// servos and a camera. Only the servo driver is missing. The teacher's 60 ticks a second need not
// fall on the world's grid. The teacher must do as well as without a bus.
func TestTheTeacherWorksThroughTheBus(t *testing.T) {
	clock := rttest.NewClock(rt.Instant(time.Second))
	world := NewWorld(3, 1)
	live := NewLive(world, clock, clock.Now())
	bus := rttest.Must(servosim.Open(servosim.Config{Plant: live, Clock: clock}))(t)
	defer bus.Close()
	fd := rttest.Must(unix.Open(bus.Path(), unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0))(t)
	defer unix.Close(fd)
	cam := live.Camera("top", camera.Format{})
	frame := frameOf(cam)

	start := clock.Now().Add(28 * time.Millisecond) // a frame is due 5 ms after every other tick
	torque := []byte{0xFE, 16, 0x83, 40, 1, 1, 1, 2, 1, 3, 1, 4, 1, 5, 1, 6, 1}
	var e Teacher
	var raw [DOF]int
	for k := range 20 * ticksPerSecond {
		tick := start + rt.Instant(k)*rt.Instant(time.Second)/ticksPerSecond
		clock.SleepUntil(tick)
		live.mu.Lock()
		live.advance(tick)
		goal := e.Goal(world.tip(), world.Target(), world.Post(), world.Q()[gripper])
		live.mu.Unlock()
		var goals [DOF]int
		for j, q := range goal {
			goals[j] = RawOf(j, q)
		}
		sendGoals(t, fd, goals)
		if k == 0 {
			exchange(t, fd, nil, torque)
		}
		exchange(t, fd, raw[:], []byte{0xFE, 10, 0x82, 56, 2, 1, 2, 3, 4, 5, 6})
		if k%2 == 0 {
			rttest.Do(t, cam.Grab(&frame))
		}
	}
	if s := live.Score(); s.Reached < 8 || s.Collided+s.Timeouts > 0 {
		t.Errorf("Score() = %+v, want at least 8 reached and nothing else", s)
	}
	for j, q := range world.Q() {
		if d := raw[j] - RawOf(j, q); d > 40 || d < -40 { // one tick of motion
			t.Errorf("joint %d reads %d, the world has %d", j, raw[j], RawOf(j, q))
		}
	}
	if late := clock.Now().Sub(start); late > 20*time.Second+100*time.Millisecond {
		t.Errorf("1,200 cycles took %v of simulated time", late)
	}
}

// exchange sends one frame and, unless raw is nil, reads a reply with a position for each element
// of raw.
func exchange(t *testing.T, fd int, raw []int, body []byte) {
	t.Helper()
	frame := append([]byte{0xFF, 0xFF}, body...)
	var sum byte
	for _, v := range body {
		sum += v
	}
	rttest.Must(unix.Write(fd, append(frame, ^sum)))(t)
	replies := make([]byte, 0, 8*len(raw))
	for len(replies) < cap(replies) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(fds, 5000); n == 0 || (err != nil && err != unix.EINTR) {
			t.Fatalf("%d of %d bytes, poll: %v", len(replies), cap(replies), err)
		}
		n, err := unix.Read(fd, replies[len(replies):cap(replies)])
		if err == nil {
			replies = replies[:len(replies)+n]
		}
	}
	for j := range raw {
		raw[j] = int(replies[8*j+5]) | int(replies[8*j+6])<<8
	}
}

// sendGoals sends a goal to each servo.
func sendGoals(t *testing.T, fd int, goals [DOF]int) {
	t.Helper()
	write := []byte{0xFE, 22, 0x83, 42, 2}
	for j, r := range goals {
		write = append(write, byte(j+1), byte(r), byte(r>>8))
	}
	exchange(t, fd, nil, write)
}

// Events on the bus have effects in the world. At an obstacle a joint stops and presses until its protection trips.
// The gripper drops its object when its goal becomes its present position. An arm without power sinks.
func TestFaultsInTheWorld(t *testing.T) {
	clock := rttest.NewClock(rt.Instant(time.Second))
	live := NewLive(NewWorld(3, 1), clock, clock.Now())
	bus := rttest.Must(servosim.Open(servosim.Config{Plant: live, Clock: clock,
		Weights: servosim.ArmWeights(countMax + 1)}))(t)
	defer bus.Close()
	fd := rttest.Must(unix.Open(bus.Path(), unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0))(t)
	defer unix.Close(fd)
	var raw [DOF]int
	read := func(d time.Duration) (all []servosim.State) {
		for end := clock.Now().Add(d); clock.Now() < end; clock.Advance(10 * time.Millisecond) {
			exchange(t, fd, raw[:], []byte{0xFE, 10, 0x82, 56, 2, 1, 2, 3, 4, 5, 6})
		}
		return bus.States()
	}
	read(time.Second) // an arm that has never had torque stays where it is
	start := raw
	if raw[lift] != start[lift] || raw[lift] < 1500 {
		t.Fatalf("shoulder_lift lies at %d", raw[lift])
	}
	bus.Block(gripper+1, start[gripper]+200, true)
	bus.Block(pan+1, start[pan]+100, false)
	goal := start
	goal[gripper] += 600
	goal[pan] += 600
	sendGoals(t, fd, goal)
	s := read(2 * time.Second)
	if raw[gripper] != start[gripper]+200 || !s[gripper].Holds || s[gripper].Duty < 0.9 || raw[pan] != start[pan]+100 ||
		s[pan].Amps < 1 {
		t.Errorf("at %v from %v: %+v", raw, start, s)
	}
	if s = read(2 * time.Second); s[gripper].Fault != 0x20 || s[pan].Fault != 0x20 || !s[gripper].Holds ||
		s[gripper].Duty > 0.21 {
		t.Errorf("after four seconds of it: %+v, %+v", s[gripper], s[pan])
	}
	sendGoals(t, fd, raw)
	if s = read(2 * time.Second); s[gripper].Holds || s[gripper].Fault != 0 || bus.Counters().Dropped != 1 ||
		s[lift].Place != start[lift] {
		t.Errorf("with goal := present: %+v", s[gripper])
	}
	bus.Power(false)
	clock.Advance(time.Second)
	if s = bus.States(); s[lift].Place > start[lift]-250 || s[pan].Place != raw[pan] || s[lift].Torque {
		t.Errorf("a second without power: %+v", s[lift])
	}
}

const lift = 1
