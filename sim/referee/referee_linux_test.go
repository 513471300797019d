package referee

import (
	"sync"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim/servosim"
	"github.com/edge-rt/edge-rt/sim/servosim/servosimtest"
	"golang.org/x/sys/unix"
)

// match is one run on a simulated bus of two STS3215. The test advances its clock and builds the
// frames by hand.
type match struct {
	t     *testing.T
	clock *rttest.Clock
	bus   *servosim.Bus
	fd    int
	shaft *plant
	*Referee
}

const (
	period = 10 * time.Millisecond
	tick   = 20 // counts of one tick at 2000 counts a second
	lift   = 1  // ids of the servos
	grip   = 2
)

// kick returns a match before its first chunk, with two joints in the middle of their range of 1000 to 3000.
func kick(t *testing.T, cfg servosim.Config) *match {
	t.Helper()
	rttest.RealTime(t) // simulated motors answer within real time-outs
	m := &match{t: t, clock: rttest.NewClock(rt.Instant(time.Second))}
	m.Referee = New(Config{Period: period, Joints: []Joint{
		{ID: lift, Name: "lift", Min: 1000, Max: 3000, Velocity: tick * 100, Degree: 4096. / 360},
		{ID: grip, Name: "grip", Min: 1000, Max: 3000, Velocity: tick * 100, Degree: 4096. / 360},
	}})
	m.shaft = &plant{place: [2]int{2048, 2048}}
	cfg.Plant = m.shaft
	cfg.IDs = []uint8{lift, grip}
	cfg.Clock = m.clock
	cfg.Unpaced = true
	cfg.Watch = m.Referee.Watch
	cfg.BootTime = time.Millisecond // shorter than a tick
	m.bus = servosimtest.Open(t, cfg)
	m.dial()
	return m
}

func (m *match) dial() {
	m.t.Helper()
	m.fd = rttest.OrPanic(unix.Open(m.bus.Path(), unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0))
	fd := m.fd
	m.t.Cleanup(func() { unix.Close(fd) })
}

// write sends a WRITE instruction to a servo and waits for the answer. The test fails if none comes within 10 s.
func (m *match) write(id uint8, addr byte, data ...byte) {
	m.t.Helper()
	frame := append([]byte{0xFF, 0xFF, id, byte(3 + len(data)), 3, addr}, data...)
	var sum byte
	for _, b := range frame[2:] {
		sum += b
	}
	rttest.OrPanic(unix.Write(m.fd, append(frame, ^sum)))
	var reply [64]byte
	for n := 0; n < 6; {
		fds := []unix.PollFd{{Fd: int32(m.fd), Events: unix.POLLIN}}
		if k, err := unix.Poll(fds, 10_000); k == 0 || err != nil && err != unix.EINTR {
			m.t.Fatalf("servo %d does not answer: %v", id, err)
		}
		if k, err := unix.Read(m.fd, reply[n:]); err == nil {
			n += k
		}
	}
}

func (m *match) goal(id uint8, raw int)     { m.write(id, 42, byte(raw), byte(raw>>8)) }
func (m *match) torque(id uint8, on byte)   { m.write(id, 40, on) }
func (m *match) wait(d time.Duration)       { m.clock.Advance(d); m.CheckAt(m.clock.Now()) }
func (m *match) now() rt.Instant            { return m.clock.Now() }
func (m *match) supply(id uint8, v float64) { m.bus.SetSupply(id, v); m.wait(time.Second) }

// arm sends the first chunk and gives both servos torque at their present positions.
func (m *match) arm() {
	m.FirstChunk(m.now())
	for _, id := range []uint8{lift, grip} {
		m.goal(id, 2048)
		m.torque(id, 1)
	}
	m.wait(period)
}

// walk moves a goal in equal steps, one step per tick, and returns the last goal. The parameter from is the goal before
// the first step, and the parameter by is the size of a step in counts.
func (m *match) walk(id uint8, from, by, steps int) (to int) {
	for range steps {
		from += by
		m.goal(id, from)
		m.wait(period)
	}
	return from
}

// plant has shafts that reach their goal at once under torque, unless they are blocked.
type plant struct {
	mu     sync.Mutex
	place  [2]int // guarded by mu, like all fields of plant
	goal   [2]int
	on     [2]bool
	blocks bool
}

func (p *plant) Goal(_ rt.Instant, joint, raw int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.goal[joint] = raw
	p.move(joint)
}

func (p *plant) Torque(_ rt.Instant, joint int, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.on[joint] = on
	p.move(joint)
}

func (p *plant) Present(_ rt.Instant, joint int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.place[joint]
}

func (p *plant) move(i int) {
	if p.on[i] && !p.blocks {
		p.place[i] = p.goal[i]
	}
}

// push moves a servo's shaft to raw, as an external force does.
func (p *plant) push(id uint8, raw int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.place[id-1] = raw
}

// block keeps the shafts at their positions.
func (p *plant) block() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blocks = true
}

// Every rule detects its violations, and accepts behaviour that is close to a violation.
func TestRules(t *testing.T) {
	const overload, encoder = 1 << 5, 1 << 1
	for _, tt := range []struct {
		name string
		play func(*match)
		want []Rule // rules that the case violates, each at least once, and no other rule
	}{
		{"arming where it stands and a walk at full speed", func(m *match) {
			m.arm()
			m.walk(lift, 2048, tick, 40)
		}, nil},

		{"a goal at the range's end", func(m *match) {
			m.arm()
			m.walk(lift, m.walk(lift, 2048, tick, 47), 12, 1)
		}, nil},
		{"a goal beyond it", func(m *match) {
			m.arm()
			m.walk(lift, m.walk(lift, 2048, tick, 47), 13, 1)
		}, []Rule{rangeRule}},
		{"a joint outside that is moved in", func(m *match) {
			m.shaft.push(lift, 3200)
			m.FirstChunk(m.now())
			m.goal(lift, 3190)
			m.torque(lift, 1)
			m.walk(lift, 3190, -tick, 5)
		}, nil},
		{"a joint outside that is moved further", func(m *match) {
			m.shaft.push(lift, 3200)
			m.FirstChunk(m.now())
			m.goal(lift, 3190)
			m.torque(lift, 1)
			m.walk(lift, 3190, 5, 1)
		}, []Rule{rangeRule}},

		{"a step a count too long", func(m *match) { m.arm(); m.goal(lift, 2048+tick+2) }, []Rule{stepRule}},
		{"a goal where a joint stands that could not follow", func(m *match) {
			m.arm()
			m.shaft.block()
			m.walk(lift, 2048, tick, 20)
			m.goal(lift, 2048+tick)
		}, nil},
		{"a goal towards such a joint, and too far", func(m *match) {
			m.arm()
			m.shaft.block()
			m.walk(lift, 2048, tick, 20)
			m.goal(lift, 2048+2*tick)
		}, []Rule{stepRule}},
		{"the longest step with a count of rounding", func(m *match) { m.arm(); m.goal(lift, 2048+tick+1) }, nil},
		{"two steps in a tick", func(m *match) {
			m.arm()
			for i := range 10 {
				m.goal(lift, 2048+(2*i+1)*tick)
				m.goal(lift, 2048+(2*i+2)*tick)
				m.wait(period)
			}
		}, []Rule{stepRule}},
		{"a tick late and the next on time", func(m *match) {
			m.arm()
			m.wait(period / 2)
			m.goal(lift, 2048+tick)
			m.wait(period / 2)
			m.goal(lift, 2048+2*tick)
		}, nil},
		{"a first goal that is not where it stands", func(m *match) {
			m.FirstChunk(m.now())
			m.goal(lift, 2048+2*tick)
		}, []Rule{stepRule}},
		{"torque on a goal that was left behind", func(m *match) {
			m.shaft.push(lift, 1900)
			m.FirstChunk(m.now())
			m.torque(lift, 1)
		}, []Rule{stepRule}},
		{"torque on a goal that the EEPROM range moves", func(m *match) {
			m.write(grip, 55, 0)
			m.write(grip, 9, 0x60, 0x09) // Min_Position_Limit becomes 2400
			m.FirstChunk(m.now())
			m.goal(grip, 2048)
		}, []Rule{stepRule}},
		{"a goal too far ahead of a servo that is held", func(m *match) {
			m.arm()
			m.shaft.block()
			m.walk(lift, m.walk(lift, 2048, -tick, 47), -12, 3) // ends at 976 counts
		}, nil},
		{"a goal further ahead than half a second's way", func(m *match) {
			m.arm()
			m.walk(lift, 2048, -tick, 52)
			m.shaft.block()
			m.walk(lift, 2048-52*tick, tick, 52)
		}, []Rule{stepRule}},
		{"the old goal again after a silence", func(m *match) {
			m.arm()
			m.mute(lift, time.Second)
			m.goal(lift, 2048)
		}, nil},
		{"a goal from where it stands after a silence", func(m *match) {
			m.arm()
			m.mute(lift, time.Second)
			m.shaft.push(lift, 1900)
			m.goal(lift, 1910)
		}, nil},
		{"a goal on from the old one, which it still has, after a silence", func(m *match) {
			m.arm()
			m.mute(lift, time.Second)
			m.shaft.push(lift, 1900)
			m.goal(lift, 2048-tick)
		}, nil},
		{"a goal far from the old one and from where it stands after a silence", func(m *match) {
			m.arm()
			m.mute(lift, time.Second)
			m.shaft.push(lift, 1900)
			m.goal(lift, 2048-3*tick)
		}, []Rule{stepRule}},
		{"one goal missed", func(m *match) { m.arm(); m.mute(lift, period); m.goal(lift, 2048+2*tick) }, nil},
		{"five goals missed", func(m *match) {
			m.arm()
			m.mute(lift, 5*period)
			m.goal(lift, 2048+6*tick)
		}, []Rule{stepRule}},

		{"torque without a chunk", func(m *match) { m.torque(lift, 1); m.wait(time.Second) }, []Rule{torqueRule}},
		{"a goal without a chunk", func(m *match) { m.goal(lift, 2048); m.wait(time.Second) }, []Rule{torqueRule}},
		{"torque whose chunk the network tells late", func(m *match) {
			at := m.now()
			m.torque(lift, 1)
			m.wait(50 * time.Millisecond)
			m.FirstChunk(at)
			m.wait(time.Second)
		}, nil},
		{"torque off without a chunk", func(m *match) { m.torque(lift, 0); m.wait(time.Second) }, nil},
		{"torque while paused", func(m *match) {
			m.FirstChunk(m.now())
			m.Paused(m.now(), true)
			m.goal(lift, 2048)
		}, []Rule{torqueRule}},
		{"the old goal while paused", func(m *match) { m.arm(); m.Paused(m.now(), true); m.goal(lift, 2048) }, nil},

		{"a goal after a restart", func(m *match) {
			m.arm()
			m.bus.PowerCycle()
			m.wait(time.Second)
			m.goal(lift, 2048)
		}, []Rule{restartRule}},
		{"torque after a supply that was away", func(m *match) {
			m.arm()
			m.supply(lift, 1)
			m.supply(lift, 7.4)
			m.torque(lift, 1)
		}, []Rule{restartRule}},
		{"the goal of the tick in which it restarted", func(m *match) {
			m.arm()
			m.bus.PowerCycle()
			m.wait(period)
			m.goal(lift, 2048+tick)
		}, nil},
		{"a goal after a restart with consent", func(m *match) {
			m.arm()
			m.bus.PowerCycle()
			m.wait(time.Second)
			m.Consent(m.now())
			m.goal(lift, 2048)
		}, nil},
		{"a goal after a restart and another run", func(m *match) {
			m.arm()
			m.bus.PowerCycle()
			m.wait(time.Second)
			m.NewRun(m.now())
			m.arm()
		}, nil},

		{"torque after the end", func(m *match) {
			m.arm()
			m.Ended(m.now())
			m.wait(301 * time.Millisecond)
		}, []Rule{endRule}},
		{"torque off in time", func(m *match) {
			m.arm()
			m.Ended(m.now())
			m.wait(250 * time.Millisecond)
			m.torque(lift, 0)
			m.torque(grip, 0)
			m.wait(time.Second)
		}, nil},
		{"one servo forgotten", func(m *match) {
			m.arm()
			m.torque(lift, 0)
			m.Ended(m.now())
			m.wait(time.Second)
		}, []Rule{endRule}},
		{"a goal after the end", func(m *match) {
			m.arm()
			m.torque(lift, 0)
			m.torque(grip, 0)
			m.Ended(m.now())
			m.goal(lift, 2048)
			m.torque(lift, 0)
			m.wait(time.Second)
		}, []Rule{endRule}},

		{"a faulted encoder that is driven", func(m *match) {
			m.arm()
			m.bus.SetFault(lift, encoder)
			m.wait(5 * period)
			m.goal(lift, 2048+5)
		}, []Rule{encoderRule}},
		{"its goal kept, the other joint driven", func(m *match) {
			m.arm()
			m.bus.SetFault(lift, encoder)
			m.wait(5 * period)
			m.goal(lift, 2048)
			m.goal(grip, 2048+5)
			m.torque(lift, 0)
		}, nil},
		{"driven before three reads could tell", func(m *match) {
			m.arm()
			m.bus.SetFault(lift, encoder)
			m.walk(lift, 2048, tick, 3)
		}, nil},

		{"torque after it was let go", func(m *match) {
			m.arm()
			m.torque(lift, 0)
			m.wait(time.Second)
			m.torque(lift, 1)
		}, []Rule{limpRule}},
		{"a goal after it was let go", func(m *match) {
			m.arm()
			m.torque(lift, 0)
			m.wait(period)
			m.goal(lift, 2048)
		}, []Rule{limpRule}},
		{"a goal after it was let go and asked for", func(m *match) {
			m.arm()
			m.torque(lift, 0)
			m.Consent(m.now())
			m.goal(lift, 2048)
		}, nil},

		{"an overloaded grip that is kept", func(m *match) {
			m.squeeze(overload)
			m.goal(grip, 2148)
			m.wait(time.Second)
		}, nil},
		{"an overloaded grip that is tightened", func(m *match) {
			m.squeeze(overload)
			m.goal(grip, 2150)
			m.wait(time.Second)
		}, []Rule{overloadRule}},
		{"an overloaded grip that is dropped", func(m *match) {
			m.PolicyGoal(m.now(), grip, 2300)
			m.squeeze(overload)
			m.goal(grip, 2130)
		}, []Rule{overloadRule}},
		{"an overloaded grip that opens when asked", func(m *match) {
			m.PolicyGoal(m.now(), grip, 2300)
			m.squeeze(overload)
			m.PolicyGoal(m.now(), grip, 1500)
			m.walk(grip, 2148, -tick, 20)
			m.wait(time.Second)
		}, nil},
		{"an overloaded grip that stays closed", func(m *match) {
			m.PolicyGoal(m.now(), grip, 2300)
			m.squeeze(overload)
			m.PolicyGoal(m.now(), grip, 1500)
			m.wait(time.Second)
		}, []Rule{overloadRule}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := kick(t, servosim.Config{})
			tt.play(m)
			v := m.Verdict()
			broken := map[Rule]bool{}
			for _, rule := range tt.want {
				broken[rule] = true
			}
			for rule, n := range v.Violations {
				if broken[Rule(rule)] != (n > 0) {
					t.Errorf("%d violations of %s, want some: %v; it says %v", n, Rule(rule), broken[Rule(rule)],
						v.Kept)
				}
			}
		})
	}
}

// squeeze blocks the gripper and makes its servo report an overload while the servo's goal is 100
// counts ahead.
func (m *match) squeeze(bits uint8) {
	m.arm()
	m.shaft.block()
	m.walk(grip, 2048, tick, 5)
	m.bus.SetFault(grip, bits)
	m.wait(5 * period)
}

// mute keeps a servo silent for a while.
func (m *match) mute(id uint8, d time.Duration) {
	m.bus.Mute(id, true)
	m.wait(d)
	m.bus.Mute(id, false)
}

// A verdict contains the longest step, and the time from the end until all torque was off.
func TestVerdictFigures(t *testing.T) {
	m := kick(t, servosim.Config{})
	m.arm()
	m.goal(lift, 2048+7)
	m.wait(period)
	m.goal(lift, 2048+7+16)
	m.Ended(m.now())
	m.torque(lift, 0)
	if off := m.Verdict().OffAfter; off >= 0 {
		t.Errorf("all off after %v, and one servo still holds", off)
	}
	m.wait(20 * time.Millisecond)
	m.torque(grip, 0)
	v := m.Verdict()
	rttest.Want(t, v.OffAfter, 20*time.Millisecond, "time until all are off")
	if v.Longest.Counts != 16 || v.Longest.Joint != "lift" || v.Longest.Degrees < 1.40 || v.Longest.Degrees > 1.41 {
		t.Errorf("the longest step is %+v, want 16 counts of lift", v.Longest)
	}
}
