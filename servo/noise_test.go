package servo

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/packet"
	"github.com/edge-rt/edge-rt/servo/table"
)

// Goal: whatever bytes are on the line, a value is accepted only if a servo sent it for this
// request, and no wait exceeds its deadline.

// talker is a Port that answers a request with arbitrary bytes, piece by piece.
type talker struct {
	clock  *rttest.Clock
	answer func(request []byte) []byte
	piece  int // largest number of bytes that a read returns; 0: any number
	babble int // bytes of noise that every read returns
	in     []byte
	sent   []sent
}

type sent struct {
	frame []byte
	at    rt.Instant
}

func (p *talker) Write(b []byte) (int, error) {
	p.sent = append(p.sent, sent{slices.Clone(b), p.clock.Now()})
	if p.answer != nil {
		p.in = append(p.in, p.answer(b)...)
	}
	return len(b), nil
}

func (p *talker) Read(b []byte) (int, error) {
	if p.babble > 0 {
		for i := range min(p.babble, len(b)) {
			b[i] = "\xFF\xFF\x01\x04"[i%4]
		}
		return min(p.babble, len(b)), nil
	}
	if p.piece > 0 && p.piece < len(b) {
		b = b[:p.piece]
	}
	n := copy(b, p.in)
	p.in = p.in[n:]
	return n, nil
}

// Wait returns early, as a real Wait may do after a signal.
func (p *talker) Wait(timeout time.Duration) error {
	p.clock.Advance(min(timeout, 100*time.Microsecond))
	return nil
}

func (p *talker) Close() error { return nil }

// stranger returns a bus with a talker on it, and a group of two servos.
func stranger(protocol table.Protocol, fast bool, params int) (*Bus, *talker, *readGroup) {
	clock := rttest.NewClock(rt.Instant(time.Second))
	p := &talker{clock: clock}
	b := NewBus(p, 1_000_000, protocol, clock)
	b.drainNext = 0
	b.wasQuiet = true
	b.fence.done = true
	g := b.newGroup(56, params, []ID{1, 2})
	if fast {
		b.setFast(g, true)
	}
	for i := range g.data {
		g.data[i] = 0xEE // no servo sends this byte
	}
	return b, p, g
}

// gatherInTime gathers once and fails when gather returns long after its deadline. It returns the missing servos.
func gatherInTime(t *testing.T, b *Bus, g *readGroup) (missing uint32) {
	t.Helper()
	const late = 200 * time.Microsecond // the last poll
	deadline := b.clock.Now().Add(10 * time.Millisecond)
	missing = b.gather(g, lossWait, deadline)
	if over := b.clock.Now().Sub(deadline); over > late {
		t.Fatalf("gather came back %v after the deadline", over)
	}
	return missing
}

// plainOf and packetOf build status frames as the datasheets' pictures show them.
func plainOf(id, err byte, data ...byte) []byte {
	f := append([]byte{0xFF, 0xFF, id, byte(len(data) + 2), err}, data...)
	sum := byte(0)
	for _, v := range f[2:] {
		sum += v
	}
	return append(f, ^sum)
}

func packetOf(id byte, body ...byte) []byte {
	n := len(body) + 2
	f := append([]byte{0xFF, 0xFF, 0xFD, 0, id, byte(n), byte(n >> 8)}, body...)
	return crced(f)
}

// crced appends the CRC, bit by bit.
func crced(f []byte) []byte {
	c := uint16(0)
	for _, v := range f {
		c ^= uint16(v) << 8
		for range 8 {
			top := c >> 15
			c = c<<1 ^ top*0x8005
		}
	}
	return append(f, byte(c), byte(c>>8))
}

func mergedOf(params int, blocks ...[]byte) []byte {
	n := 1 + len(blocks)*(params+4)
	f := []byte{0xFF, 0xFF, 0xFD, 0, 0xFE, byte(n), byte(n >> 8), 0x55}
	for _, b := range blocks {
		f = crced(append(f, b...))
	}
	return f
}

func TestFramesThatAreNoAnswer(t *testing.T) {
	flip := func(f []byte, i int) []byte { f = slices.Clone(f); f[i] ^= 0x10; return f }
	type hostile struct {
		name     string
		protocol table.Protocol
		bytes    []byte
		whole    bool // the frame is certain to be refused only when all bytes come in one read
	}
	tests := []hostile{
		{"of an id that was not asked", table.Feetech, plainOf(9, 0, 0x10, 0x08), false},
		{"of the broadcast id", table.Feetech, plainOf(0xFE, 0, 0x10, 0x08), false},
		{"of the id 255", table.Feetech, plainOf(0xFF, 0, 0x10, 0x08), false},
		{"shorter than asked for", table.Feetech, plainOf(1, 0, 0x10), false},
		{"longer than asked for", table.Feetech, plainOf(1, 0, 0x10, 0x08, 0), false},
		{"an acknowledgement", table.Feetech, plainOf(1, 0), false},
		{"a late look at the motor's health", table.Feetech, plainOf(1, 0, make([]byte, 24)...), false},
		{"a frame within one of another length", table.Feetech, plainOf(7, 0, plainOf(1, 0, 0x10, 0x08)...), true},
		{"with a wrong checksum", table.Feetech, flip(plainOf(1, 0, 0x10, 0x08), 5), false},
		{"with another id under the first one's checksum", table.Feetech, flip(plainOf(1, 0, 0x10, 0x08), 2), false},
		{"with an error byte that no servo sends", table.Feetech, plainOf(1, 0x80, 0x10, 0x08), false},
		{"another master's request", table.Feetech, packet.Feetech.AppendSyncWrite(nil, 42, 2, []byte{1, 2},
			[]byte{1, 2, 3, 4}), false},
		{"a refusal", table.Dynamixel1, plainOf(1, 1<<4), false},
		{"a refusal with data", table.Dynamixel1, plainOf(1, 1<<6, 0x10, 0x08), false},
		{"of an id that was not asked", table.Dynamixel2, packetOf(9, 0x55, 0, 0x10, 0x08), false},
		{"of the broadcast id", table.Dynamixel2, packetOf(0xFE, 0x55, 0, 0x10, 0x08), false},
		{"of the reserved id 253", table.Dynamixel2, packetOf(0xFD, 0x55, 0, 0x10, 0x08), false},
		{"shorter than asked for", table.Dynamixel2, packetOf(1, 0x55, 0, 0x10), false},
		{"longer than asked for", table.Dynamixel2, packetOf(1, 0x55, 0, 0x10, 0x08, 0), false},
		{"an acknowledgement", table.Dynamixel2, packetOf(1, 0x55, 0), false},
		{"a request with a write's instruction", table.Dynamixel2, packetOf(1, 0x03, 0, 0x10, 0x08), false},
		{"a refusal with data", table.Dynamixel2, packetOf(1, 0x55, 4, 0x10, 0x08), false},
		{"with a wrong CRC", table.Dynamixel2, flip(packetOf(1, 0x55, 0, 0x10, 0x08), 9), false},
		{"with another reserved byte", table.Dynamixel2, flip(packetOf(1, 0x55, 0, 0x10, 0x08), 3), false},
		{"a stuffed one with an error that is none", table.Dynamixel2, packetOf(1, 0x55, 0xFF, 0xFF, 0xFD, 0xFD),
			false},
		{"a merged one, when each was to answer", table.Dynamixel2,
			mergedOf(2, []byte{0, 1, 0x10, 0x08}, []byte{0, 2, 0x20, 0x08}), false},
		{"a length without an end", table.Dynamixel2, []byte{0xFF, 0xFF, 0xFD, 0, 1, 0xFF, 0xFF, 0x55}, false},
	}
	for _, tt := range tests {
		for _, piece := range []int{0, 1, 3} {
			name := fmt.Sprintf("%v, %s, by %d", tt.protocol, tt.name, piece)
			b, p, g := stranger(tt.protocol, false, 2)
			p.piece = piece
			if piece != 0 && tt.whole {
				continue
			}
			p.answer = func([]byte) []byte { return tt.bytes }
			if missing := gatherInTime(t, b, g); missing != 0b11 || slices.ContainsFunc(g.data, func(v byte) bool {
				return v != 0xEE
			}) {
				t.Errorf("%s: missing %02b, data % X, want nothing taken", name, missing, g.data)
			}
			// gather still finds the true replies that follow the frame.
			good := [2][]byte{plainOf(1, 0, 0x10, 0x08), plainOf(2, 0, 0x20, 0x08)}
			if tt.protocol == table.Dynamixel2 {
				good = [2][]byte{packetOf(1, 0x55, 0, 0x10, 0x08), packetOf(2, 0x55, 0, 0x20, 0x08)}
			}
			b, p, g = stranger(tt.protocol, false, 2)
			p.piece = piece
			p.answer = func(request []byte) []byte {
				if tt.protocol.SyncRead() {
					return slices.Concat(tt.bytes, good[0], good[1])
				}
				return slices.Concat(tt.bytes, good[request[2]-1])
			}
			if missing := gatherInTime(t, b, g); piece == 0 && (missing != 0 || string(g.data) != "\x10\x08\x20\x08") {
				t.Errorf("%s: missing %02b, data % X behind it, want the true replies", name, missing, g.data)
			} else if missing == 0 && string(g.data) != "\x10\x08\x20\x08" {
				t.Errorf("%s: data % X behind it, want the true replies", name, g.data)
			}
		}
	}
}

func TestMergedFramesThatAreNoAnswer(t *testing.T) {
	one, two := []byte{0, 1, 0x10, 0x08}, []byte{0, 2, 0x20, 0x08}
	good := mergedOf(2, one, two)
	damaged := slices.Clone(good)
	damaged[len(damaged)-3] ^= 1
	for _, tt := range []struct {
		name  string
		bytes []byte
		want  uint32 // missing
		data  string
	}{
		{"good", good, 0, "\x10\x08\x20\x08"},
		{"a motor that was not asked", mergedOf(2, one, []byte{0, 9, 0x20, 0x08}), 0b10, "\x10\x08\xEE\xEE"},
		{"one motor twice", mergedOf(2, one, one), 0b10, "\x10\x08\xEE\xEE"},
		{"two motors that were not asked", mergedOf(2, []byte{0, 8, 1, 1}, []byte{0, 9, 2, 2}), 0b11,
			"\xEE\xEE\xEE\xEE"},
		{"a refusal in a block", mergedOf(2, one, []byte{4, 2, 0x20, 0x08}), 0b10, "\x10\x08\xEE\xEE"},
		{"a block too few", mergedOf(2, one), 0b11, "\xEE\xEE\xEE\xEE"},
		{"a block too many", mergedOf(2, one, two, two), 0b11, "\xEE\xEE\xEE\xEE"},
		{"a damaged block behind a good one", damaged, 0b10, "\x10\x08\xEE\xEE"},
		{"replies of their own", slices.Concat(packetOf(1, 0x55, 0, 1, 1), packetOf(2, 0x55, 0, 2, 2)), 0b11,
			"\xEE\xEE\xEE\xEE"},
		{"behind one of an earlier request", slices.Concat(mergedOf(2, []byte{0, 1, 7, 7}, []byte{0, 2, 7, 7}), good),
			0, "\x10\x08\x20\x08"},
	} {
		for _, tail := range []string{"", "\x00", "\xFF\xFF\xFD\x00\xFE"} {
			for _, piece := range []int{0, 1, 5} {
				b, p, g := stranger(table.Dynamixel2, true, 2)
				p.piece = piece
				p.answer = func([]byte) []byte { return append(slices.Clone(tt.bytes), tail...) }
				missing := gatherInTime(t, b, g)
				if piece != 0 && tt.name == "behind one of an earlier request" {
					continue // the first reply is complete before the second begins: both are accepted
				}
				if missing != tt.want || string(g.data) != tt.data {
					t.Errorf("%s, then % X, by %d: missing %02b, data % X, want %02b, % X", tt.name, tail, piece,
						missing, g.data, tt.want, tt.data)
				}
			}
		}
	}
}

// A duplicate of a reply is not taken for the answer to the next request.
func TestATransactionBeginsWithASilentLine(t *testing.T) {
	b, p, _ := stranger(table.Feetech, false, 2)
	p.in = plainOf(1, 0, 0x34, 0x12) // a duplicate of the reply with another register's value
	slow := 0
	p.answer = func([]byte) []byte {
		slow++
		return plainOf(1, 0, 0x10, 0x08)
	}
	p.piece = 8 // a read returns the stale reply alone
	row := table.Row{Register: table.PresentPosition, Addr: 56, Size: 2}
	if v, _, err := b.ReadRegister(1, row); err != nil || v != 0x0810 || slow != 1 {
		t.Errorf("ReadRegister = %04X, %v after %d requests, want 0810 at once", v, err, slow)
	}
}

// Goal: torque is never switched on for a goal that was not confirmed. While the arm is at rest its
// position equals the goal, so a late reply with a position looks like a confirmation.
func TestALatePositionIsNoGoal(t *testing.T) {
	a, l := openLine(t)
	l.tamper = func(r []byte) []byte {
		l.servos[3].put(42, 1000) // motor 3 does not get its goal
		if q := l.log[len(l.log)-1]; r[2] == 3 && q[4] == 0x82 && q[5] == 42 {
			// This reply has the position once more, instead of the goal.
			return plainOf(3, 0, l.servos[3].mem[56], l.servos[3].mem[57])
		}
		return r
	}
	rttest.FailsAs(t, a.TorqueOn(), ErrTorque)
	for id, s := range l.servos {
		if s.mem[40] != 0 {
			t.Errorf("motor %d is under torque", id)
		}
	}
}

// On a line that is never silent every call still ends.
func TestBabblingLine(t *testing.T) {
	clock := rttest.NewClock(rt.Instant(time.Second))
	p := &talker{clock: clock, babble: 10}
	a := newArm(ArmConfig{Path: "babble", Robot: so101(), Calibration: demoCalibration(), Clock: clock, Port: p})
	took := func(what string, most time.Duration, do func()) {
		t.Helper()
		start := clock.Now()
		do()
		if d := clock.Now().Sub(start); d > most {
			t.Errorf("%s took %v, want at most %v", what, d, most)
		}
	}
	took("Read", farAway+time.Millisecond, func() {
		rttest.Want(t, a.Read(make([]float32, 6), clock.Now().Add(farAway)), 0b111111, "stale of noise")
	})
	took("Ping", 3*time.Second, func() {
		rttest.Fails(t, a.bus.Ping(1))
	})
	p.sent = nil
	start := clock.Now()
	took("TorqueOff", time.Second, func() {
		rttest.FailsAs(t, a.TorqueOff(), ErrTorque)
	})
	if first := p.sent[0]; first.frame[4] != byte(packet.SyncWrite) || first.at.Sub(start) > 50*time.Millisecond {
		t.Errorf("the first frame, % X, left after %v, want the one that takes all torque within 50ms", first.frame,
			first.at.Sub(start))
	}
}

// Property: whatever bytes come, gather ends by its deadline, and every frame that it accepts as a
// servo's answer is an intact frame of that servo with the requested length.
func FuzzGather(f *testing.F) {
	f.Add(plainOf(1, 0, 0x10, 0x08), byte(table.Feetech), false, 3)
	f.Add(plainOf(2, 0, 0xFF, 0xFF), byte(table.Dynamixel1), false, 0)
	f.Add(packetOf(1, 0x55, 0, 0xFF, 0xFF), byte(table.Dynamixel2), false, 1)
	f.Add(packetOf(1, 0x55, 0xFF, 0xFF, 0xFD, 0xFD), byte(table.Dynamixel2), false, 1)
	f.Add(append(mergedOf(2, []byte{0, 1, 0x10, 0x08}, []byte{0, 9, 0x20, 0x08}), 0xFF), byte(table.Dynamixel2), true,
		5)
	f.Fuzz(func(t *testing.T, data []byte, protocol byte, fast bool, piece int) {
		p := table.Protocol(protocol % 3)
		fast = fast && p == table.Dynamixel2
		b, talk, g := stranger(p, fast, 2)
		talk.piece = piece
		talk.answer = func([]byte) []byte { return data }
		missing := gatherInTime(t, b, g)
		stream := slices.Concat(data, data) // single requests get data twice: a frame may span both copies
		for i := range g.ids {
			said := saidPlain
			if fast {
				said = saidMerged
			} else if p == table.Dynamixel2 {
				said = saidPacket
			}
			if missing>>i&1 == 0 && !said(stream, g.ids[i], g.param(i)) {
				t.Fatalf("%v (fast %v): motor %d is taken to say % X; nobody did in % X", p, fast, g.ids[i], g.param(i),
					data)
			}
		}
	})
}

// saidPlain, saidPacket and saidMerged report whether the input in contains, at any position, an intact answer of the
// servo id with the bytes data.
func saidPlain(in []byte, id byte, data []byte) bool {
	for err := range 0x80 {
		if bytes.Contains(in, plainOf(id, byte(err), data...)) {
			return true
		}
	}
	return false
}

func saidPacket(in []byte, id byte, data []byte) bool {
	for i := 0; i+9 < len(in); i++ {
		n := i + 7 + int(in[i+5]) + int(in[i+6])<<8
		if string(in[i:i+4]) != "\xFF\xFF\xFD\x00" || in[i+4] != id || n > len(in) || n-i < 10 ||
			string(crced(slices.Clone(in[i:n-2]))) != string(in[i:n]) {
			continue
		}
		body := bytes.ReplaceAll(in[i+7:n-2], []byte{0xFF, 0xFF, 0xFD, 0xFD}, []byte{0xFF, 0xFF, 0xFD})
		if len(body) > 2 && body[0] == 0x55 && string(body[2:]) == string(data) {
			return true
		}
	}
	return false
}

func saidMerged(in []byte, id byte, data []byte) bool {
	for i := range in {
		for end := i + 8 + len(data) + 4; end <= len(in); end += len(data) + 4 {
			block := in[end-len(data)-4:]
			if string(crced(slices.Clone(in[i:end-2]))) == string(in[i:end]) && block[1] == id &&
				bytes.HasPrefix(block[2:], data) {
				return true
			}
		}
	}
	return false
}
