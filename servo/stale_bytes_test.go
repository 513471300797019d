package servo

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/packet"
	"github.com/edge-rt/edge-rt/servo/table"
)

// Goal: wherever a program was killed, the next program on its port never accepts an answer to the
// killed program's requests.

// left returns a line of six motors at rest on which another program has just sent requests. late is the delay of the
// replies.
func left(late time.Duration, requests ...[]byte) *line {
	l := sixMotors()
	l.lateFrom = 1
	l.lateTo = 1 << 30
	l.lateAll = late
	for _, r := range requests {
		rttest.OrPanic(l.Write(r))
	}
	l.lateAll = 0
	return l
}

// ticks returns the requests of n cycles of a killed edge.
func ticks(n int) (all [][]byte) {
	for range n {
		all = append(all, packet.Feetech.AppendSyncRead(nil, 56, 2, []byte{1, 2, 3, 4, 5, 6}))
	}
	return all
}

// lateness returns delays from 0 to the limit most. The wait for silence covers only the shorter ones.
func lateness(most time.Duration) (all []time.Duration) {
	for d := time.Duration(0); d < most; d += 3 * time.Millisecond {
		all = append(all, d)
	}
	return all
}

const muchLater = quietTime + quietTime/2

func TestReadingsAfterAKilledProgram(t *testing.T) {
	motors := so101().Motors
	registers := []table.Register{table.HomingOffset, table.MinPositionLimit, table.MaxPositionLimit}
	for _, late := range lateness(muchLater) {
		for _, n := range []int{1, 2, 5, 9} {
			l := left(late, ticks(n)...)
			b := l.bus()
			for _, m := range motors {
				for i, r := range registers {
					got, _, err := b.ReadRegister(m.ID, m.Model.Row(r))
					if want := []int{0, 0, 4095}[i]; err == nil && got != want {
						t.Fatalf("replies to %d cycles come %v late: motor %d has %s %d, want %d", n, late, m.ID, r,
							got, want)
					} else if err != nil && late < quietTime {
						t.Fatalf("replies to %d cycles come %v late: %v", n, late, err)
					}
				}
			}
		}
	}
}

func TestOpeningAfterAKilledProgram(t *testing.T) {
	for _, late := range lateness(muchLater) {
		for _, n := range []int{1, 3, 9} {
			name := fmt.Sprintf("replies to %d cycles come %v late", n, late)
			a, err := left(late, ticks(n)...).open()
			if a == nil {
				if late < quietTime || !errors.Is(err, ErrMotorMissing) {
					t.Fatalf("%s: %v", name, err)
				}
				continue
			}
			if len(a.Unconfigured()) > 0 || a.bus.echo.on {
				t.Fatalf("%s: held %v, echo %v; want neither", name, a.Unconfigured(), a.bus.echo.on)
			}
		}
	}
}

// The next program does not accept a late acknowledgement or a late answer to a ping either.
func TestAcknowledgementsOfAKilledProgram(t *testing.T) {
	row := so101().Motors[0].Model.Row(table.PCoefficient)
	requests := map[string][]byte{
		"a ping":  packet.Feetech.Append(nil, 1, packet.Ping),
		"a write": packet.Feetech.AppendWrite(nil, 1, 40, []byte{0}),
	}
	for what, request := range requests {
		for _, late := range lateness(quietTime) {
			l := left(late, request)
			l.servos[1].mute = true
			b := l.bus()
			if b.Ping(1) == nil {
				t.Fatalf("%s is answered %v late: a motor that is silent answers", what, late)
			}
			l = left(late, request)
			l.servos[1].mute = true
			b = l.bus()
			if b.WriteRegister(1, row, 16) == nil {
				t.Fatalf("%s is answered %v late: a write that nobody heard is acknowledged", what, late)
			}
		}
	}
}

// DetectEcho finds an echo even when replies to a killed program's requests come.
func TestEchoAfterAKilledProgram(t *testing.T) {
	for _, late := range lateness(quietTime) {
		l := left(late, ticks(2)...)
		if b := NewBus(&echoing{line: l, from: 1}, 1_000_000, table.Feetech, l.Clock); !b.DetectEcho(100) {
			t.Errorf("replies come %v late: the echo is not found", late)
		}
		l = left(late, ticks(2)...)
		if b := l.bus(); b.DetectEcho(100) {
			t.Errorf("replies come %v late: they pass for an echo", late)
		}
	}
}

// Release on the arm of a killed edge does not wait for the replies to that edge's requests, and
// accepts no reply to the edge's tick or to its check of the torque.
func TestReleaseAfterAKilledProgram(t *testing.T) {
	health := packet.Feetech.AppendRead(nil, 3, 40, 24)
	checked := packet.Feetech.AppendSyncRead(nil, 40, 1+checkMore, []byte{1, 2, 3, 4, 5, 6})
	for _, late := range lateness(muchLater) {
		for what, requests := range map[string][][]byte{"ticks": ticks(9), "a look at its health": {health},
			"the check that torque is on": {checked}} {
			for _, deaf := range []bool{false, true} {
				l := left(late)
				l.stiffen(1)
				l.lateAll = late
				for _, r := range requests {
					l.Write(r)
				}
				l.lateAll = 0
				l.servos[3].mute = deaf
				sent, start := len(l.log), l.Now()
				err := Release(l.bus(), so101())
				name := fmt.Sprintf("%s, answered %v late, motor 3 deaf %v", what, late, deaf)
				if l.log[sent][4] != byte(packet.SyncWrite) {
					t.Fatalf("%s: the first frame is % X, want the one that takes all torque", name, l.log[sent])
				}
				for id, s := range l.servos {
					if on := s.mem[40]; on != 0 && (id != 3 || !deaf || err == nil) {
						t.Fatalf("%s: motor %d is under torque, and it says %v", name, id, err)
					}
				}
				if took := l.Now().Sub(start); took > 3*time.Second {
					t.Errorf("%s: it took %v", name, took)
				}
			}
		}
	}
}

// A search that tries one baud rate after another waits at each for a shorter silence, set by SetRetry.
func TestABusWithOneShortTryBeginsAtOnce(t *testing.T) {
	const wait = 20 * time.Millisecond
	l := left(0)
	b := l.bus()
	b.SetRetry(1, wait)
	start := l.Now()
	rttest.Do(t, b.Ping(1))
	if took := l.Now().Sub(start); took > wait+5*time.Millisecond {
		t.Errorf("the first ping took %v, want %v of silence and no more", took, wait)
	}
	start = l.Now()
	if _, _, err := b.ReadRegister(1, so101().Motors[0].Model.Row(table.ModelNumber)); err != nil {
		t.Fatal(err)
	}
	if took := l.Now().Sub(start); took > time.Millisecond {
		t.Errorf("a read behind an answered ping took %v, want its own time", took)
	}
}

// On a Dynamixel the health window of supply and temperature has the length of a ping's answer, so
// a late reply of that length to a killed program is no fence.
func TestADynamixelsPingIsNoFence(t *testing.T) {
	b, p, _ := stranger(table.Dynamixel2, false, 4)
	b.fence.done = false
	late := [][]byte{packetOf(1, 0x55, 0, 0x78, 0, 0x28), packetOf(1, 0x55, 0, 0x99, 0x99, 0, 0)} // health, position
	p.answer = func(request []byte) []byte {
		if len(late) > 0 && (request[7] == byte(packet.Ping) || request[10] < fenceMin) {
			next := late[0]
			late = late[1:]
			return next
		}
		all := append(late, packetOf(1, append([]byte{0x55, 0, 0x10, 0x08}, make([]byte, int(request[10])-2)...)...))
		late = nil
		return bytes.Join(all, nil)
	}
	if v, _, err := b.ReadRegister(1, table.Row{Register: table.HomingOffset, Addr: 20, Size: 4}); err != nil ||
		v != 0x0810 {
		t.Errorf("ReadRegister = %X, %v, want 810", v, err)
	}
}

// OpenArm succeeds even when servos, such as clones or those of another simulator, refuse the long
// read of a fence or do not answer it.
func TestAServoThatAnswersNoFence(t *testing.T) {
	for _, refuses := range []bool{false, true} {
		l := sixMotors()
		l.narrow, l.refuses = true, refuses
		a, err := l.open()
		if err != nil {
			t.Errorf("an arm whose motors answer no read of %d bytes and more, refusing %v: %v", fenceMin, refuses, err)
			continue
		}
		fences := 0
		for _, p := range l.log {
			if p[4] == byte(packet.Read) && p[5] == fenceFrom && p[6] >= fenceMin {
				fences++
			}
		}
		if fences == 0 {
			t.Error("no fence was tried: nothing is tested")
		}
		a.Close()
	}
}
