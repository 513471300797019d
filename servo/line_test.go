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

// line is a Port in simulated time with a chain of servos. Replies arrive byte by byte, at the
// times of a real line. Its frames follow the picture in the datasheet. It shares no code with the
// package, and does not allocate once its buffers have grown.
type line struct {
	*rttest.Clock
	byteTime time.Duration
	gap      time.Duration
	servos   map[int]*fakeServo // by id
	order    []byte             // ids in the order in which servos answer a sync read; nil: the request's order
	tamper   func(reply []byte) []byte
	dead     bool
	narrow   bool // the servos do not answer reads of many bytes from address 0
	refuses  bool // the servos refuse reads of many bytes from address 0
	// The answers with the numbers lateFrom to lateTo, both included, are late by lateAll.
	answers, lateFrom, lateTo int
	lateAll                   time.Duration

	keep   bool // log keeps the requests
	log    [][]byte
	free   rt.Instant // instant at which the line is idle again
	bytes  []byte     // bytes on their way to the host
	at     []rt.Instant
	next   int // index of the first unread byte in bytes
	writes int
	waits  int
	reads  int

	dst []float32 // positions that read has returned
}

type fakeServo struct {
	mem       [128]byte
	err       byte
	mute      bool
	lateBy    time.Duration
	muteTimes int // number of further requests to ignore
	unlocked  int // number of writes while the EEPROM was open
}

func newLine(clock *rttest.Clock, ids ...byte) *line {
	l := &line{
		Clock:    clock,
		byteTime: 10 * time.Microsecond,
		gap:      replyGap,
		servos:   map[int]*fakeServo{},
		keep:     true,
		dst:      make([]float32, 6),
	}
	for _, id := range ids {
		s := &fakeServo{}
		s.put(3, 777)
		s.mem[5], s.mem[8] = id, 1
		s.put(11, 4095)
		s.mem[18] = 12
		s.mem[21], s.mem[22] = 32, 32
		s.put(16, 1000)
		s.put(48, 1000)
		s.mem[55] = 1
		s.put(56, 2000+int(id))
		l.servos[int(id)] = s
	}
	return l
}

func (s *fakeServo) put(addr, v int) { s.mem[addr], s.mem[addr+1] = byte(v), byte(v>>8) }
func (s *fakeServo) word(addr int) int {
	return int(s.mem[addr]) | int(s.mem[addr+1])<<8
}

func (l *line) Write(p []byte) (int, error) {
	l.writes++
	if l.dead {
		return 0, ErrPortLost
	}
	if l.keep {
		l.log = append(l.log, append([]byte(nil), p...))
	}
	l.free = max(l.free, l.Now()).Add(time.Duration(len(p)) * l.byteTime)
	sum := byte(0)
	for _, b := range p[2:] {
		sum += b
	}
	if p[0] != 0xFF || p[1] != 0xFF || sum != 0xFF || int(p[3]) != len(p)-4 {
		return len(p), nil // servos do not answer a malformed frame
	}
	id := p[2]
	inst := p[4]
	par := p[5 : len(p)-1]
	switch inst {
	case 1:
		l.answer(id, 0, 0)
	case 2:
		switch wide := l.narrow && par[0] == 0 && par[1] > 8; {
		case wide && l.refuses:
			l.servos[int(id)].err = 8 // value out of range
			l.answer(id, 0, 0)
			l.servos[int(id)].err = 0
		case !wide:
			l.answer(id, int(par[0]), int(par[1]))
		}
	case 3:
		if l.set(id, int(par[0]), par[1:]) {
			l.answer(id, 0, 0)
		}
	case 0x82:
		ids := par[2:]
		if l.order != nil {
			ids = l.order
		}
		for _, id := range ids {
			l.answer(id, int(par[0]), int(par[1]))
		}
	case 0x83:
		size := int(par[1])
		for rest := par[2:]; len(rest) > size; rest = rest[1+size:] {
			l.set(rest[0], int(par[0]), rest[1:1+size])
		}
	}
	return len(p), nil
}

func (l *line) set(id byte, addr int, data []byte) bool {
	s := l.servos[int(id)]
	if s == nil || s.mute {
		return false
	}
	if addr < 40 && s.mem[55] == 0 {
		s.unlocked++
	}
	copy(s.mem[addr:], data)
	return true
}

func (l *line) answer(id byte, addr, n int) {
	s := l.servos[int(id)]
	if s == nil || s.mute {
		return
	}
	if s.muteTimes > 0 {
		s.muteTimes--
		return
	}
	var buf [260]byte
	reply := append(buf[:0], 0xFF, 0xFF, id, byte(n+2), s.err)
	reply = append(reply, s.mem[addr:addr+n]...)
	sum := byte(0)
	for _, b := range reply[2:] {
		sum += b
	}
	reply = append(reply, ^sum)
	if l.tamper != nil {
		reply = l.tamper(append([]byte(nil), reply...))
	}
	late := s.lateBy
	if l.answers++; l.lateAll > 0 && l.answers >= l.lateFrom && l.answers <= l.lateTo {
		late = l.lateAll
	}
	t := l.free.Add(l.gap + late)
	if l.next == len(l.bytes) {
		l.bytes = l.bytes[:0]
		l.at = l.at[:0]
		l.next = 0
	}
	for _, b := range reply {
		t = t.Add(l.byteTime)
		l.bytes, l.at = append(l.bytes, b), append(l.at, t)
	}
	if late == 0 {
		l.free = t
	}
}

func (l *line) Read(p []byte) (int, error) {
	l.reads++
	if l.dead {
		return 0, ErrPortLost
	}
	n, now := 0, l.Now()
	for n < len(p) && l.next < len(l.bytes) && l.at[l.next] <= now {
		p[n] = l.bytes[l.next]
		n++
		l.next++
	}
	return n, nil
}

func (l *line) Wait(timeout time.Duration) error {
	l.waits++
	if l.dead {
		return ErrPortLost
	}
	until := l.Now().Add(timeout)
	if l.next < len(l.bytes) {
		until = min(until, max(l.at[l.next], l.Now()))
	}
	l.SleepUntil(until)
	return nil
}

func (l *line) Close() error { return nil }

// noise puts bytes on the line right now.
func (l *line) noise(b ...byte) {
	for _, v := range b {
		l.bytes, l.at = append(l.bytes, v), append(l.at, l.Now())
	}
}

// forget clears the log and the call counts.
func (l *line) forget() { l.log, l.writes, l.waits, l.reads = nil, 0, 0, 0 }

func so101() robot.Robot {
	return rttest.OrPanic(robot.ByName("so101"))
}

func demoCalibration() Calibration {
	c := Calibration{}
	for i, m := range so101().Motors {
		c[m.Name] = MotorCalibration{ID: i + 1, RangeMax: 4095}
	}
	c["gripper"] = MotorCalibration{ID: 6, RangeMin: 1000, RangeMax: 3000}
	return c
}

// sixMotors returns a line with an SO-101's motors.
func sixMotors() *line { return newLine(rttest.NewClock(rt.Instant(time.Second)), 1, 2, 3, 4, 5, 6) }

// openLine opens an SO-101 on a line of six servos.
func openLine(t testing.TB) (*Arm, *line) {
	t.Helper()
	l := sixMotors()
	return l.mustOpen(t), l
}

// armedLine is openLine with the arm under torque.
func armedLine(t testing.TB) (*Arm, *line) {
	t.Helper()
	a, l := openLine(t)
	arm(t, a)
	return a, l
}

func arm(t testing.TB, a *Arm) {
	t.Helper()
	rttest.Do(t, a.TorqueOn())
}

// mustOpen opens the arm and clears the log of requests.
func (l *line) mustOpen(t testing.TB) *Arm {
	t.Helper()
	a, err := l.open()
	if err != nil {
		t.Fatalf("OpenArm: %v", err)
	}
	l.forget()
	return a
}

func (l *line) open() (*Arm, error) { return OpenArm(l.config()) }

func (l *line) config() ArmConfig {
	return ArmConfig{
		Path:        "fake",
		Robot:       so101(),
		Calibration: demoCalibration(),
		File:        "black.json",
		Clock:       l.Clock,
		Port:        l,
	}
}

// bus returns a bus of Feetech servos on the line, without an arm.
func (l *line) bus() *Bus { return NewBus(l, 1_000_000, table.Feetech, l.Clock) }

// stiffen sets Torque_Enable of every motor.
func (l *line) stiffen(torque byte) {
	for _, s := range l.servos {
		s.mem[40] = torque
	}
}

// read reads the arm once into l.dst; it returns the stale joints.
func (l *line) read(a *Arm) robot.Joints { return a.Read(l.dst, l.deadline()) }

// tick does the same as read, and advances the time.
func (l *line) tick(a *Arm) (stale robot.Joints) {
	stale = l.read(a)
	l.Advance(10 * time.Millisecond)
	return stale
}

// arming arms an arm tick by tick, and calls the function each before every read. It returns the first error, or an
// error if the arm is not armed after 500 ticks.
func (l *line) arming(a *Arm, each func()) error {
	for range 500 {
		each()
		l.read(a)
		if armed, err := a.ArmStep(l.deadline(), a.Joints()); armed || err != nil {
			return err
		}
		l.Advance(10 * time.Millisecond)
	}
	return errors.New("not armed after 500 ticks")
}

// held returns the joints under a reaction that keeps them from their goals.
func held(a *Arm) robot.Joints {
	r := a.Reactions()
	return r.Hold | r.Overload | r.Limp
}
