package servo

import (
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// chain is a Port in simulated time with Dynamixels that answer sync reads of positions. Its frames
// follow the pictures in the manual. It does not allocate once its buffer has grown.
type chain struct {
	clock  *rttest.Clock
	value  int           // position of all motors
	silent uint32        // bit i: motor i+1 does not answer
	torn   bool          // merged replies break off
	blocks int           // if torn: number of motors before the break
	fast   []rt.Instant  // times of the requests for a merged reply
	plain  int           // number of plain sync reads
	hold   time.Duration // time from the request to a merged reply
	ready  rt.Instant    // instant at which the bytes of in arrive
	in     []byte
}

func (p *chain) Write(q []byte) (int, error) {
	ids := q[12 : len(q)-2]
	switch q[7] {
	case 0x8A:
		p.fast = append(p.fast, p.clock.Now())
		p.ready = p.clock.Now().Add(p.hold)
		n := 1 + len(ids)*8
		p.in = append(p.in, 0xFF, 0xFF, 0xFD, 0, 0xFE, byte(n), byte(n>>8), 0x55)
		start := len(p.in) - 8
		for i, id := range ids {
			if p.silent>>(id-1)&1 != 0 || p.torn && i == p.blocks {
				break
			}
			p.in = append(p.in, 0, id, byte(p.value), byte(p.value>>8), 0, 0)
			p.in = append(p.in[:start], crced(p.in[start:])...)
		}
	case 0x82:
		p.plain++
		for _, id := range ids {
			if p.silent>>(id-1)&1 != 0 {
				continue
			}
			start := len(p.in)
			p.in = append(p.in, 0xFF, 0xFF, 0xFD, 0, id, 8, 0, 0x55, 0, byte(p.value), byte(p.value>>8), 0, 0)
			p.in = append(p.in[:start], crced(p.in[start:])...)
		}
	}
	return len(q), nil
}

func (p *chain) Read(b []byte) (int, error) {
	if p.clock.Now() < p.ready {
		return 0, nil
	}
	n := copy(b, p.in)
	p.in = p.in[:copy(p.in, p.in[n:])]
	return n, nil
}

func (p *chain) Wait(timeout time.Duration) error {
	p.clock.Advance(min(timeout, 100*time.Microsecond))
	return nil
}

func (p *chain) Close() error { return nil }

// linked is a Koch arm, read each tick through chain.
type linked struct {
	*chain
	t      *testing.T
	arm    *Arm
	at     []float32
	next   rt.Instant
	period time.Duration
}

func link(t *testing.T, period time.Duration) *linked {
	r := rttest.Must(robot.ByName("koch"))(t)
	cal := Calibration{}
	for _, m := range r.Motors {
		cal[m.Name] = MotorCalibration{ID: int(m.ID), RangeMax: m.Model.MaxRaw()}
	}
	clock := rttest.NewClock(rt.Instant(time.Second))
	l := &linked{chain: &chain{clock: clock, blocks: 2}, t: t, at: make([]float32, len(r.Motors)), period: period}
	l.arm = newArm(ArmConfig{Path: "chain", Robot: r, Calibration: cal, Clock: clock, Port: l.chain})
	l.arm.probeFast()
	l.arm.health.due = never
	if !l.arm.positions.fast {
		t.Fatal("the motors do not know the fast sync read")
	}
	l.fast, l.next = nil, clock.Now()
	return l
}

// tick reads once and compares the positions with the true positions. It returns the stale joints.
func (l *linked) tick() (stale uint32) {
	l.clock.SleepUntil(l.next)
	l.next = l.next.Add(l.period)
	deadline := l.clock.Now().Add(l.period - 3*time.Millisecond)
	l.value = (l.value + 1) % 4000
	stale = uint32(l.arm.Read(l.at, deadline))
	// see windowDeadline
	if over := l.clock.Now().Sub(deadline); over > 200*time.Microsecond && l.arm.Unchecked() == 0 {
		l.t.Fatalf("a read came back %v after its deadline", over)
	}
	for i := range l.at {
		if stale>>i&1 == 0 && l.arm.rawPosition(i) != l.value {
			l.t.Fatalf("motor %d is taken to be at %d, it is at %d", i+1, l.arm.rawPosition(i), l.value)
		}
	}
	return stale
}

// run ticks for d and fails unless the stale joints of each tick are those in wanted.
func (l *linked) run(d time.Duration, wanted uint32) {
	l.t.Helper()
	for end := l.clock.Now().Add(d); l.clock.Now() < end; {
		if stale := l.tick(); stale != wanted {
			l.t.Fatalf("stale %06b, want %06b", stale, wanted)
		}
	}
}

// bad tears the replies of fastTornMax ticks, as a late host does, so that plain reads replace the fast reads.
func (l *linked) bad() {
	l.t.Helper()
	l.torn = true
	for range fastTornMax {
		l.tick()
	}
	if l.arm.positions.fast {
		l.t.Fatal("three torn replies, and the reads are still fast")
	}
	l.fast = nil
}

const sixtyHz = time.Second / 60

// When a host was late for a moment, the arm returns to fast reads.
func TestFastReadsComeBack(t *testing.T) {
	l := link(t, sixtyHz)
	l.run(2*time.Second, 0)
	l.bad()
	l.torn = false
	fell := l.clock.Now()
	l.run(2*time.Second, 0)
	if len(l.fast) == 0 || !l.arm.positions.fast {
		t.Fatal("two seconds of whole plain reads, and the fast ones are not back")
	}
	if after := l.fast[0].Sub(fell); after < fastWait-2*sixtyHz || after > fastWait+2*sixtyHz {
		t.Errorf("they are tried %v later, want %v", after, fastWait)
	}
	if s := l.arm.Stats(); s.Fallbacks != 1 || s.FastTries != 1 || s.FastReads < 170 || s.FastReads > s.Cycles-3-55 {
		t.Errorf("of %d cycles %d fast; %d fallbacks, %d tries; want all but a second's, 1, 1", s.Cycles, s.FastReads,
			s.Fallbacks, s.FastTries)
	}
	// Fast reads have now lasted for longer than the wait, so the next wait is short again.
	l.bad()
	l.torn = false
	l.run(2*time.Second, 0)
	if !l.arm.positions.fast {
		t.Error("the second time they do not come back after the first wait")
	}
}

// When every merged reply is torn, a try of the fast read loses no values, and tries become rare.
func TestFastTriesBecomeRareAndCostNoValues(t *testing.T) {
	l := link(t, sixtyHz)
	l.run(2*time.Second, 0)
	l.bad()
	last := l.clock.Now()
	l.run(5*time.Minute, 0)
	want := fastWait
	for i, at := range l.fast {
		if got := at.Sub(last); got < want-2*sixtyHz || got > want+2*sixtyHz {
			t.Errorf("try %d comes %v after the one before, want %v", i, got, want)
		}
		last, want = at, min(2*want, fastWaitMax)
	}
	if s := l.arm.Stats(); len(l.fast) != 9 || s.FastTries != 9 || s.Fallbacks != 1 {
		t.Errorf("%d tries in 5 minutes (%d counted, %d fallbacks), want 9: after 1, 2, 4 ... 32 s and then every "+
			"minute", len(l.fast), s.FastTries, s.Fallbacks)
	}
}

// While a motor is silent, the fast read is not tried: its reply would end at that motor.
func TestNoFastTriesBesideASilentMotor(t *testing.T) {
	l := link(t, sixtyHz)
	l.run(2*time.Second, 0)
	l.silent = 0b000100
	for range fastTornMax {
		l.tick()
	}
	l.fast = nil
	l.run(2*time.Minute, 0b000100)
	rttest.Want(t, len(l.fast), 0, "fast reads beside a silent motor")
	l.silent = 0
	l.tick()
	l.run(2*time.Second, 0)
	if !l.arm.positions.fast {
		t.Error("the motor is back for two seconds, the fast reads are not")
	}
}

// In a tick that is too short for a fast read and a plain read, a try of the fast read may lose the
// values, but never overruns the deadline, and tries continue.
func TestFastTriesInAShortTick(t *testing.T) {
	// the deadline leaves 1.5 ms of a period; the fast read needs 0.8 ms, and the plain read after it 1 ms
	const period = 4500 * time.Microsecond
	l := link(t, period)
	l.run(2*time.Second, 0)
	l.bad()
	lost := 0
	for end := l.clock.Now().Add(10 * time.Second); l.clock.Now() < end; {
		if l.tick() != 0 {
			lost++
		}
	}
	if len(l.fast) != 3 || lost != 3 {
		t.Errorf("%d tries in 10 s, %d cycles with stale joints, want 3 and 3", len(l.fast), lost)
	}
	l.torn = false
	for end := l.clock.Now().Add(10 * time.Second); l.clock.Now() < end; {
		l.tick()
	}
	if !l.arm.positions.fast {
		t.Error("the fast reads do not come back")
	}
}

func TestFastTriesNoAlloc(t *testing.T) {
	l := link(t, sixtyHz)
	l.run(2*time.Second, 0)
	l.bad()
	l.fast = make([]rt.Instant, 0, 1000)
	l.run(2*time.Second, 0) // buffers grow
	n := testing.AllocsPerRun(1000, func() {
		l.torn = l.arm.Stats().FastTries%3 != 0
		l.tick()
	})
	if s := l.arm.Stats(); n != 0 || s.FastTries < 4 {
		t.Errorf("%v allocations per cycle, %d tries, want 0 and some", n, s.FastTries)
	}
}

// The fast read is tried even on a tick that is too short for a fast read and a plain one, and its
// reply may come a little later than before.
func TestAFastTryHasSlack(t *testing.T) {
	l := link(t, 5*time.Millisecond)
	l.arm.positions.startTuning()
	l.run(100*time.Millisecond, 0)
	l.hold = l.arm.bus.due(l.arm.positions) + fastSlack/2
	l.bad()
	l.torn = false
	l.run(2*fastWait, 0)
	if s := l.arm.Stats(); !l.arm.positions.fast || s.FastTries != 1 {
		t.Errorf("fast %v after %d tries, want the first to do", l.arm.positions.fast, s.FastTries)
	}
}

// A failed try of the fast read makes a tick longer than the plain read alone, but at most by
// lossMax, the cost of a lost reply.
func TestAFastTryIsBounded(t *testing.T) {
	l := link(t, sixtyHz)
	l.bad()
	l.blocks = 0
	took := func() time.Duration {
		l.arm.health.unchecked = 0 // the health reads compare no registers
		start := max(l.clock.Now(), l.next)
		l.tick()
		return l.clock.Now().Sub(start)
	}
	plain, most := took(), time.Duration(0)
	for len(l.fast) < 3 {
		most = max(most, took())
	}
	if cost := most - plain; cost > lossMax || cost < lossMax/2 {
		t.Errorf("a try costs %v beyond a plain read, want up to %v", cost, lossMax)
	}
}
