package servo

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
)

const farAway = 13 * time.Millisecond // the deadline of a 60 Hz tick

// never is the due time of the next health window in tests that read no health window.
const never = rt.Instant(1<<63 - 1)

func (l *line) deadline() rt.Instant { return l.Now().Add(farAway) }

// degrees is LeRobot's formula for a range of 0 to 4095.
func degrees(raw int) float32 { return float32((float64(raw) - 2047.5) * 360 / 4095) }

func TestCleanCycleIsOneWriteAndOneRead(t *testing.T) {
	a, l := openLine(t)
	start := l.Now()
	stale := l.read(a)
	took := l.Now().Sub(start)

	want := []float32{degrees(2001), degrees(2002), degrees(2003), degrees(2004), degrees(2005), (2006 - 1000) / 20.}
	if stale != 0 || !slices.Equal(l.dst, want) {
		t.Errorf("Read = %v, stale %06b, want %v, 0", l.dst, stale, want)
	}
	if l.writes != 1 || l.waits != 0 || l.reads != 1 {
		t.Errorf("a clean cycle made %d writes, %d polls, %d reads, want 1, 0, 1", l.writes, l.waits, l.reads)
	}
	// The request has 14 bytes, each of the 6 replies has 8, and there is a gap before each reply.
	if wire := 62*10*time.Microsecond + 6*replyGap; took != wire || a.BusWait().Meant != wire {
		t.Errorf("a clean cycle took %v, waited %v, want %v", took, a.BusWait(), wire)
	}
}

// A request after a sync write waits until the line is free. The driver adds that wait to its sleep
// and wakes up only once.
func TestAReadBehindAWriteIsOneReadToo(t *testing.T) {
	a, l := openLine(t)
	for writes := 1; writes <= 2; writes++ { // the second Write follows the first at once
		l.forget()
		start := l.Now()
		for range writes {
			a.Write(make([]float32, 6), a.Joints())
		}
		stale := l.read(a)
		took := l.Now().Sub(start)
		if wire := time.Duration(writes*26+62)*10*time.Microsecond + 6*replyGap; stale != 0 || took != wire ||
			l.waits != 0 || l.reads != 1 {
			t.Errorf("%d writes and a read took %v with %d polls and %d reads, stale %06b, want %v, 0 and 1", writes,
				took, l.waits, l.reads, stale, wire)
		}
	}
}

func TestReadKeepsWhatAnswered(t *testing.T) {
	const clean = 620*time.Microsecond + 6*replyGap
	for _, tt := range []struct {
		name      string
		set       func(*line)
		wantStale robot.Joints
		wantExtra time.Duration // largest time beyond a clean cycle
		corrupt   uint64
	}{
		{"one silent motor", func(l *line) { l.servos[3].mute = true }, 0b000100, lossMax, 0},
		{"two silent motors", func(l *line) { l.servos[1].mute, l.servos[6].mute = true, true }, 0b100001, lossMax, 0},
		{"all silent", func(l *line) {
			for _, s := range l.servos {
				s.mute = true
			}
		}, 0b111111, farAway, 0},
		{"replies in another order", func(l *line) { l.order = []byte{6, 2, 5, 1, 3, 4} }, 0, 0, 0},
		{"a reply that comes late, but in time", func(l *line) {
			l.servos[6].lateBy = time.Millisecond
		}, 0, 2 * time.Millisecond, 0},
		{"a reply that comes too late", func(l *line) {
			l.servos[6].lateBy = 6 * time.Millisecond
		}, 0b100000, lossMax, 0},
		{"noise before every reply", func(l *line) {
			l.tamper = func(r []byte) []byte { return append([]byte{0xFF}, r...) }
		}, 0, time.Millisecond, 6},
		{"a flipped bit, when asked again too", func(l *line) {
			l.tamper = onlyFor(2, func(r []byte) []byte { r[5] ^= 4; return r })
		}, 0b000010, lossMax, 2},
		{"a lost byte", func(l *line) {
			l.tamper = onlyFor(2, func(r []byte) []byte { return append(r[:5], r[6:]...) })
		}, 0b000010, lossMax, 1},
		{"a length that claims the rest", func(l *line) {
			l.tamper = onlyFor(2, func(r []byte) []byte { r[3] = 200; return r })
		}, 0b000010, lossMax, 2},
		{"a reply of a motor that was not asked", func(l *line) {
			l.tamper = onlyFor(2, reply9)
		}, 0b000010, lossMax, 2},
		{"a reply that comes twice", func(l *line) {
			l.tamper = onlyFor(1, func(r []byte) []byte { return append(r, r...) })
		}, 0, 2 * time.Millisecond, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, l := openLine(t)
			l.read(a)
			for id, s := range l.servos {
				s.put(56, 3000+id) // the new position of this motor
			}
			tt.set(l)
			before, start := a.Stats(), l.Now()
			stale := l.read(a)
			took, after := l.Now().Sub(start), a.Stats()
			rttest.Want(t, stale, tt.wantStale, "stale")
			for i := range 5 {
				want := degrees(3001 + i)
				if tt.wantStale>>i&1 != 0 {
					want = degrees(2001 + i)
				}
				rttest.Want(t, l.dst[i], want, "position %d", i)
			}
			if took > clean+tt.wantExtra {
				t.Errorf("took %v, want at most %v", took, clean+tt.wantExtra)
			}
			rttest.Want(t, after.Corrupt-before.Corrupt, tt.corrupt, "counted corrupt")
			lost := uint64(0)
			for i := range 6 {
				lost += uint64(tt.wantStale >> i & 1)
			}
			rttest.Want(t, after.Lost-before.Lost, lost, "counted lost")
		})
	}
}

// When a reply is lost once, the tick still gets its value: the driver repeats the request to the motor within the
// tick.
func TestLostReplyIsAskedForAgain(t *testing.T) {
	for _, id := range []int{1, 3, 6} { // a lost reply of the last motor is noticed later than the others
		a, l := openLine(t)
		l.tick(a)
		l.servos[id].muteTimes = 1
		l.servos[id].put(56, 3000)
		start := l.Now()
		stale := l.read(a)
		const clean = 620*time.Microsecond + 6*replyGap
		if took := l.Now().Sub(start); stale != 0 || took > clean+lossMax {
			t.Errorf("motor %d: stale %06b after %v, want it answered within lossMax beyond %v", id, stale, took, clean)
		}
		// When the last motor has answered, the driver waits only slotWait for the missing reply.
		if took := l.Now().Sub(start); id != 6 && took > clean+slotWait+300*time.Microsecond {
			t.Errorf("motor %d: asked again and answered after %v, want it soon after %v", id, took, clean+slotWait)
		}
		if want := degrees(3000); id != 6 && l.dst[id-1] != want || a.Stats().Retries != 1 || a.Stats().Lost != 0 {
			t.Errorf("motor %d is at %v, %d retries, %d lost", id, l.dst[id-1], a.Stats().Retries, a.Stats().Lost)
		}
		l.Advance(10 * time.Millisecond)
		l.servos[id].muteTimes = 1
		rttest.Want(t, a.Read(l.dst, l.Now().Add(clean+slotWait)), 1<<(id-1),
			"motor %d: stale without time to ask again", id)
	}
}

func onlyFor(id byte, change func([]byte) []byte) func([]byte) []byte {
	return func(r []byte) []byte {
		if r[2] == id {
			return change(r)
		}
		return r
	}
}

func reply9([]byte) []byte { return []byte{0xFF, 0xFF, 9, 4, 0, 0, 8, 0xEA} }

// Goal: a reply that comes after its tick is never taken for a reply of the next tick.
func TestLateBytesAreDrained(t *testing.T) {
	a, l := openLine(t)
	l.servos[6].lateBy = 6 * time.Millisecond
	l.read(a)
	l.servos[6].lateBy = 0
	l.servos[6].put(56, 3000)
	l.Advance(10 * time.Millisecond)
	if stale := l.read(a); stale != 0 || l.dst[5] != 100 {
		t.Errorf("Read after a late reply = %v for the gripper, stale %06b, want 100, 0", l.dst[5], stale)
	}
	l.tamper = onlyFor(2, func(r []byte) []byte { return append(r, r...) })
	if l.read(a); a.Stats().Late != 1 {
		t.Errorf("%d late replies counted, want the one before motor 2's", a.Stats().Late)
	}
	l.tamper = nil
	l.Advance(10 * time.Millisecond)
	l.read(a)
	l.forget()
	if l.read(a); l.reads != 1 {
		t.Errorf("the second cycle after made %d reads, want 1: the line is clean again", l.reads)
	}
}

// After a repeated request the answer to the first request may still come, even after the next cycle. The driver does
// not use this answer.
func TestTheFirstOfTwoAnswersComesCyclesLater(t *testing.T) {
	a, l := openLine(t)
	l.servos[6].muteTimes = 1
	for range 2 { // a repeated request, then a clean read
		if stale := l.read(a); stale != 0 {
			t.Fatalf("stale %06b", stale)
		}
		l.Advance(10 * time.Millisecond)
	}
	was := l.dst[5]
	l.noise(0xFF, 0xFF, 6, 4, 0, 0xB0, 0x04, 0x41) // 1200
	l.servos[6].muteTimes = 2
	if stale := l.read(a); stale != 1<<5 || l.dst[5] != was {
		t.Errorf("the gripper is at %v, stale %06b, want %v and stale: it has said nothing since", l.dst[5], stale, was)
	}
}

// A late reply may come at the worst moment: after the next tick's drain and before its replies. Each later Read still
// returns the newest position.
func TestLateReplyInsideTheNextCycle(t *testing.T) {
	a, l := openLine(t)
	l.gap = 2 * replyGap // the replies take longer than computed, so that Read ends with the sixth
	l.servos[6].mute = true
	l.read(a)
	l.servos[6].mute = false
	l.Advance(10 * time.Millisecond)
	late := true
	l.tamper = func(r []byte) []byte {
		if late { // a late reply of the gripper with 1200, then the reply of motor 1
			late = false
			return append([]byte{0xFF, 0xFF, 6, 4, 0, 0xB0, 0x04, 0x41}, r...)
		}
		return r
	}
	l.read(a) // stores the gripper's late reply and leaves its new one in the buffer
	for raw, want := range map[int]float32{1500: 25, 2000: 50, 3000: 100} {
		l.servos[6].put(56, raw)
		l.Advance(10 * time.Millisecond)
		if stale := l.read(a); stale != 0 || l.dst[5] != want {
			t.Errorf("the gripper is at %v, stale %06b, want %v, 0: it must not lag a cycle behind", l.dst[5], stale,
				want)
		}
	}
}

// After a cycle with answers, Read waits for a late host; from the second silent cycle on it does
// not wait for a dead bus.
func TestSilenceOfAll(t *testing.T) {
	a, l := openLine(t)
	a.health.due = never
	cycle := func(late time.Duration) (robot.Joints, time.Duration) {
		for _, s := range l.servos {
			s.mute = late < 0
		}
		l.free = l.Now().Add(late)
		start := l.Now()
		stale := l.read(a)
		took := l.Now().Sub(start)
		l.Advance(50 * time.Millisecond)
		return stale, took
	}
	const clean = 620*time.Microsecond + 6*replyGap
	for _, tt := range []struct {
		name      string
		late      time.Duration // < 0: no reply at all
		wantStale robot.Joints
		wantTook  time.Duration
	}{
		{"clean", 0, 0, clean},
		{"the host is late", 8 * time.Millisecond, 0, clean + 8*time.Millisecond},
		{"the bus goes dead", -1, 0b111111, farAway},
		{"the bus stays dead", -1, 0b111111, clean + lossWait},
		{"the bus comes back, and each motor is compared", 0, 0, clean + 6*(450*time.Microsecond+replyGap)},
		{"clean again", 0, 0, clean},
	} {
		if stale, took := cycle(tt.late); stale != tt.wantStale || took != tt.wantTook {
			t.Errorf("%s: stale %06b after %v, want %06b after %v", tt.name, stale, took, tt.wantStale, tt.wantTook)
		}
	}
}

func TestReadEndsAtTheDeadline(t *testing.T) {
	a, l := openLine(t)
	start := l.Now()
	stale := a.Read(make([]float32, 6), start.Add(500*time.Microsecond))
	if took := l.Now().Sub(start); took != 500*time.Microsecond || stale != 0b111100 {
		t.Errorf("Read took %v, stale %06b, want 500us with the first two motors", took, stale)
	}
}

func TestFaultComesWithThePosition(t *testing.T) {
	a, l := openLine(t)
	l.servos[6].err = 0x20
	if stale := l.read(a); stale != 0 || l.dst[5] != (2006-1000)/20. {
		t.Errorf("Read with an overloaded gripper = %v, stale %06b, want its position, 0", l.dst[5], stale)
	}
	if a.faults[5] != FaultOverload || a.faults[0] != 0 || a.Stats().Alerts != 1 {
		t.Errorf("faults %02X, %02X, %d alerts, want 20, 0 and one", a.faults[5], a.faults[0], a.Stats().Alerts)
	}
}

func TestWriteLimitsAndRefuses(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	for _, tt := range []struct {
		name        string
		goal        []float32
		want        []int // raw; nil: nothing may be sent
		wantClipped uint64
		wantRefused uint64
	}{
		{"inside", []float32{0, 10, -10, 90, -90, 50}, []int{2047, 2161, 1933, 3071, 1023, 2000}, 0, 0},
		{"beyond the range", []float32{181, -181, 0, 0, 0, 100.5}, []int{4095, 0, 2047, 2047, 2047, 3000}, 3, 0},
		{"far beyond", []float32{1e30, -1e30, 0, 0, 0, -1e30}, []int{4095, 0, 2047, 2047, 2047, 1000}, 3, 0},
		{"a NaN", []float32{0, 0, nan, 0, 0, 0}, nil, 0, 1},
		{"an infinity", []float32{0, 0, 0, 0, 0, inf}, nil, 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, l := openLine(t)
			a.Write(tt.goal, a.Joints())
			if tt.want == nil && l.writes != 0 {
				t.Errorf("Write(%v) sent % X, want nothing", tt.goal, l.log)
			}
			for i, want := range tt.want {
				rttest.Want(t, l.servos[i+1].word(42), want, "goal of motor %d", i+1)
			}
			if s := a.Stats(); s.ClippedGoals != tt.wantClipped || s.RefusedGoals != tt.wantRefused {
				t.Errorf("counted %d clipped, %d refused, want %d, %d", s.ClippedGoals, s.RefusedGoals, tt.wantClipped,
					tt.wantRefused)
			}
		})
	}
}

// An arm whose positions are written back as its goals does not creep.
func TestPresentWrittenBackMovesNothing(t *testing.T) {
	a, l := openLine(t)
	for raw := 1000; raw < 3000; raw += 7 {
		for _, s := range l.servos {
			s.put(56, raw)
		}
		l.read(a)
		a.Write(l.dst, a.Joints())
		l.Advance(time.Millisecond)
		for id, s := range l.servos {
			if got := s.word(42); got != raw && got != raw-1 {
				t.Fatalf("motor %d at %d gets goal %d, want it within LeRobot's one step", id, raw, got)
			}
		}
	}
}

func TestMeasureCyclesLearnsTheAdapter(t *testing.T) {
	a, l := openLine(t)
	a.health.due = never
	l.gap = replyGap + 100*time.Microsecond // six servos that take longer than assumed
	p99, err := a.MeasureCycles(100)
	want := 620*time.Microsecond + 6*150*time.Microsecond + 260*time.Microsecond
	if err != nil || p99 != want {
		t.Errorf("MeasureCycles = %v, %v, want %v", p99, err, want)
	}
	const early, reads = 60, 30
	for i := range early + reads {
		if i == early {
			l.forget()
		}
		rttest.Want(t, l.read(a), 0, "Read then: stale")
	}
	if l.waits > reads/2+2 || l.reads != reads+l.waits {
		t.Errorf("%d reads then polled %d times and looked %d times, want half as many polls at most", reads, l.waits,
			l.reads)
	}
	l.servos[4].mute = true
	rttest.Fails(t, rttest.Err(a.MeasureCycles(20)))
}

// drowsy is a line whose sleeps and waits end late.
type drowsy struct {
	*line
	late time.Duration
}

func (d *drowsy) SleepUntil(t rt.Instant) { d.Clock.SleepUntil(t.Add(d.late)) }

func (d *drowsy) Wait(timeout time.Duration) error {
	defer d.Clock.Advance(d.late)
	return d.line.Wait(timeout)
}

// Goal: when sleeps end late, a read sleeps for a shorter time, so that it takes no longer than a read that polls. The
// planned end is never before the line has carried all bytes, so very late sleeps still make reads longer.
func TestMeasureCyclesAllowsForLateSleeps(t *testing.T) {
	const clean, behind = 620*time.Microsecond + 6*replyGap, 100 * time.Microsecond
	sleepsLate(t, 40*time.Microsecond, behind, clean+behind)
	sleepsLate(t, time.Millisecond, behind, clean-6*replyGap+time.Millisecond)
}

func sleepsLate(t *testing.T, late, behind, want time.Duration) {
	t.Helper()
	l := sixMotors()
	d := &drowsy{l, late}
	cfg := l.config()
	cfg.Clock, cfg.Port = d, d
	a := rttest.Must(OpenArm(cfg))(t)
	a.health.due = never
	l.gap = replyGap + behind/6
	rttest.Must(a.MeasureCycles(100))(t)
	for range 100 {
		start := l.Now()
		stale := l.read(a)
		took := l.Now().Sub(start).Round(time.Microsecond)
		if a.bus.polled { // a poll ends late as well
			took -= late
		}
		if stale != 0 || took < want || took > want+2*tuneFirst>>(tuneTick/tuneEach) {
			t.Fatalf("sleeps that end %v late: a read took %v, stale %06b; want %v", late, took, stale, want)
		}
	}
}

// When each motor gets its own request, the delay that other reads expect is the delay of the slowest motor.
func TestMeasureCyclesOfSingleReads(t *testing.T) {
	const late = 20 * time.Microsecond
	l := newLine(rttest.NewClock(rt.Instant(time.Second)), 1, 2, 3)
	l.servos[1].lateBy = late // the other two servos have answered when the sleep ends
	ids := []ID{1, 2, 3}
	a := &Arm{armConst: armConst{clock: l.Clock, joints: make([]joint, len(ids)), all: ids},
		bus: NewBus(l, 1_000_000, table.Dynamixel1, l.Clock), goals: goals{raw: make([]int, len(ids))}}
	a.rows.goal = so101().Motors[0].Model.Row(table.GoalPosition)
	a.positions = a.bus.newGroup(56, 2, ids)
	if _, err := a.MeasureCycles(100); err != nil || a.bus.replyDelay > late || a.bus.replyDelay < late-2*tuneLast {
		t.Errorf("MeasureCycles = %v and learns %v, want %v", err, a.bus.replyDelay, late)
	}
}

func TestLostPort(t *testing.T) {
	a, l := openLine(t)
	l.dead = true
	start := l.Now()
	stale := l.read(a)
	a.Write(make([]float32, 6), a.Joints())
	if stale != 0b111111 || !a.Lost() || l.Now() != start {
		t.Errorf("Read on a dead port: stale %06b, lost %v after %v, want all, true, at once", stale, a.Lost(),
			l.Now().Sub(start))
	}
}

func TestCycleNoAlloc(t *testing.T) {
	a, l := openLine(t)
	l.keep = false
	for _, faulty := range []bool{false, true} {
		l.servos[2].mute = faulty
		l.servos[6].lateBy = 0
		if faulty {
			l.servos[6].lateBy = 6 * time.Millisecond
		}
		if n := testing.AllocsPerRun(1000, func() {
			l.read(a)
			a.Write(l.dst, a.Joints())
			l.Advance(10 * time.Millisecond)
		}); n != 0 {
			t.Errorf("a cycle (faulty %v) allocates %v times, want 0", faulty, n)
		}
	}
}
