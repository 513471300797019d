package servo

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/packet"
	"github.com/edge-rt/edge-rt/servo/table"
)

// Goal: the end of a late reply to an earlier request, alone or after an acknowledgement, is never
// taken for a register's value.

// remains returns replies of every length that the driver requests, with data bytes that look like
// a header. The tests cut off the beginnings of these replies.
func remains(protocol table.Protocol) (all [][]byte) {
	for _, data := range [][]byte{
		nil, {0xD1}, {0xD1, 0x07}, {0xFF, 0xFF}, {0xFF, 0x01}, {0x01, 0x04}, {0xFF, 0xFF, 0xFD, 0x00},
		{0xD1, 0x07, 0, 0}, {0xFF, 0xFF, 0xFF, 0xFF},
		{0, 0, 0xFF, 0xFF, 1, 4}, make([]byte, 24), slices.Repeat([]byte{0xFF}, 24),
		slices.Repeat([]byte{0xFF, 0xFF, 1, 4}, 6),
	} {
		if protocol == table.Dynamixel2 {
			body := []byte{0x55, 0} // a stuffed body contains no header-like bytes, except at its beginning
			for i, v := range data {
				if body = append(body, v); v == 0xFD && i > 1 && data[i-1] == 0xFF && data[i-2] == 0xFF {
					body = append(body, 0xFD)
				}
			}
			all = append(all, packetOf(1, body...))
			continue
		}
		all = append(all, plainOf(1, 0, data...))
	}
	return all
}

// The beginning of a late reply has come earlier. Its end comes just before the answer to one of the requests: the
// fence or the read of the register.
func TestALateReplyInPieces(t *testing.T) {
	row := table.Row{Register: table.HomingOffset, Addr: 31, Size: 2}
	for _, protocol := range []table.Protocol{table.Feetech, table.Dynamixel1, table.Dynamixel2} {
		for _, late := range remains(protocol) {
			for cut := 1; cut < len(late); cut++ {
				for at := range 3 { // number of the request whose answer follows the end of the late reply
					for _, piece := range []int{0, 1, 3, 7} {
						b, p, _ := stranger(protocol, false, 2)
						b.fence.done, p.piece = false, piece
						asked := 0
						p.answer = func(q []byte) (in []byte) {
							if asked == at {
								in = slices.Clone(late[cut:])
							}
							asked++
							n := int(q[len(q)-2])
							if protocol == table.Dynamixel2 {
								n = int(q[10])
								return append(in, packetOf(1, append([]byte{0x55, 0, 0x34, 0x12},
									make([]byte, n-2)...)...)...)
							}
							if packet.Instruction(q[4]) == packet.Ping {
								return append(in, plainOf(1, 0)...)
							}
							return append(in, plainOf(1, 0, append([]byte{0x34, 0x12}, make([]byte, n-2)...)...)...)
						}
						v, _, err := b.ReadRegister(1, row)
						if want := row.Decode([]byte{0x34, 0x12}); err != nil || v != want {
							t.Fatalf("%v: % X comes from its byte %d on with answer %d, by %d: %04X, %v, want %04X",
								protocol, late, cut, at, piece, v, err, want)
						}
					}
				}
			}
		}
	}
}

// A merged reply is parsed from its header on, so the end of an earlier merged reply is not taken for a merged reply.
func TestALateMergedReplyInPieces(t *testing.T) {
	for _, v := range [][]byte{{0, 1, 7, 7}, {0, 1, 0xFF, 0xFF}, {0, 1, 0xFD, 0}} {
		late := mergedOf(2, v, []byte{0, 2, 0xFF, 0xFF})
		for cut := 1; cut < len(late); cut++ {
			for _, piece := range []int{0, 1, 5} {
				b, p, g := stranger(table.Dynamixel2, true, 2)
				p.piece = piece
				p.answer = func([]byte) []byte { return slices.Clone(late[:cut]) }
				gatherInTime(t, b, g)
				for i := range g.data {
					g.data[i] = 0xEE
				}
				p.answer = func([]byte) []byte {
					return append(slices.Clone(late[cut:]), mergedOf(2, []byte{0, 1, 0x10, 8},
						[]byte{0, 2, 0x20, 8})...)
				}
				if missing := gatherInTime(t, b, g); missing != 0 || string(g.data) != "\x10\x08\x20\x08" {
					t.Fatalf("% X cut at %d, by %d: missing %02b, data % X, want the second reply", late, cut, piece,
						missing, g.data)
				}
			}
		}
	}
}

// Goal: an answer to a killed program's read is never taken for a register's value, even if, after any silence, the
// acknowledgement of that program's write or the answer to its fence comes first.
func TestALateAcknowledgementIsNoFence(t *testing.T) {
	first := [][]byte{packet.Feetech.AppendWrite(nil, 1, 48, []byte{0, 1}), packet.Feetech.Append(nil, 1, packet.Ping)}
	for n := fenceMin; n <= fenceMax; n++ { // a different length than ours
		first = append(first, packet.Feetech.AppendRead(nil, 1, fenceFrom, n))
	}
	row := so101().Motors[0].Model.Row(table.HomingOffset)
	for i, request := range first { // fence.count = i gives our fence another length than the killed program's
		for late := quietTime - time.Millisecond; late < quietTime+3*time.Millisecond; late += 10 * time.Microsecond {
			l := left(late, append([][]byte{request}, ticks(3)...)...)
			b := l.bus()
			b.fence.count = uint(i)
			if got, _, err := b.ReadRegister(1, row); err == nil && got != 0 {
				t.Fatalf("an answer to % X and positions come %v late: %s is %d, want 0", request, late, row.Register,
					got)
			}
		}
	}
}

// A late answer to one fence is not taken for the answer to the next fence.
func TestFencesDiffer(t *testing.T) {
	l := newLine(rttest.NewClock(rt.Instant(time.Second)), 1)
	b := l.bus()
	seen := map[byte]bool{}
	for range fenceMax - fenceMin + 1 {
		b.fence.done = false
		l.forget()
		if _, _, err := b.ReadRegister(1, so101().Motors[0].Model.Row(table.HomingOffset)); err != nil {
			t.Fatal(err)
		}
		n := l.log[0][6]
		if len(l.log) != 2 || l.log[0][4] != byte(packet.Read) || n < fenceMin || n > fenceMax || seen[n] {
			t.Errorf("% X are sent, want a read of 9 to 14 bytes, of another length than before (%v), and the "+
				"register's", l.log, seen)
		}
		seen[n] = true
	}
}

// However often and however long the host is suspended while registers are read and written and
// motors are pinged, no register's value is taken for another register's.
func TestReadsBesideStarvedWrites(t *testing.T) {
	m := so101().Motors[0]
	position := m.Model.Row(table.PresentPosition)
	offset := m.Model.Row(table.HomingOffset)
	limit := m.Model.Row(table.TorqueLimit)
	for seed := range uint64(3000) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		l := newLine(rttest.NewClock(rt.Instant(time.Second)), 1)
		l.servos[1].put(offset.Addr, 85)
		s := &starved{line: l}
		b := NewBus(s, 1_000_000, table.Feetech, l.Clock)
		for step := range 30 {
			if now := l.Now(); now >= s.until && rnd.IntN(3) == 0 {
				s.from = now.Add(time.Duration(rnd.IntN(1000)) * time.Microsecond)
				s.until, s.back = s.from.Add(time.Duration(rnd.IntN(250_000))*time.Microsecond), false
			}
			var err error
			got := 0
			want := 0
			what := ""
			switch rnd.IntN(4) {
			case 0:
				err = b.Ping(1)
			case 1:
				err = b.WriteRegister(1, limit, 300)
			case 2:
				got, _, err = b.ReadRegister(1, position)
				want, what = 2001, "position"
			case 3:
				got, _, err = b.ReadRegister(1, offset)
				want, what = 85, "offset"
			}
			if err == nil && got != want {
				t.Fatalf("seed %d, step %d: %s is %d, want %d", seed, step, what, got, want)
			}
		}
	}
}
