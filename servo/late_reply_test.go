package servo

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/table"
)

// A reply does not name its register. Whichever replies in a row come late, OpenArm succeeds or fails with
// missing or garbled replies, and never takes the value of one register for the value of another.
func TestLateRepliesAreNotTakenForOthers(t *testing.T) {
	for _, late := range []time.Duration{15 * time.Millisecond, 25 * time.Millisecond, 45 * time.Millisecond,
		quietTime + 25*time.Millisecond} {
		for from := 1; from < 60; from++ {
			for _, run := range []int{1, 2, 5, 9} {
				clock := rttest.NewClock(rt.Instant(time.Second))
				l := newLine(clock, 1, 2, 3, 4, 5, 6)
				l.lateFrom = from
				l.lateTo = from + run - 1
				l.lateAll = late
				name := fmt.Sprintf("replies %d to %d late by %v", from, from+run-1, late)
				arm, err := l.open()
				if err != nil && !errors.Is(err, ErrNoReply) && !errors.Is(err, ErrMotorMissing) &&
					!errors.Is(err, ErrGarbled) {
					t.Fatalf("%s: %v", name, err)
				}
				if arm == nil {
					continue
				}
				if held := arm.Unconfigured(); len(held) > 0 {
					t.Fatalf("%s: %v count as held under torque, none is", name, held)
				}
				for id, s := range l.servos {
					if s.mem[21] != 16 || s.mem[40] != 0 || s.word(3) != 777 {
						t.Fatalf("%s: motor %d has P %d, torque %d, model %d; want 16, 0, 777", name, id, s.mem[21],
							s.mem[40], s.word(3))
					}
				}
			}
		}
	}
}

// starved is a line whose host is suspended between the instants from and until. Afterwards the host gets the bytes
// that have arrived, in small pieces.
type starved struct {
	*line
	from, until rt.Instant
	back        bool
}

func (s *starved) away() bool {
	now := s.Now()
	if s.until > 0 && now >= s.until && !s.back {
		s.back = true
		for i := s.next; i < len(s.at); i++ {
			s.at[i] = max(s.at[i], s.until.Add(time.Duration(i-s.next)*10*s.byteTime))
		}
	}
	return now >= s.from && now < s.until
}

func (s *starved) Read(p []byte) (int, error) {
	if s.away() {
		return 0, nil
	}
	return s.line.Read(p)
}

func (s *starved) Wait(timeout time.Duration) error {
	if s.away() {
		s.SleepUntil(min(s.until, s.Now().Add(timeout)))
		return nil
	}
	return s.line.Wait(timeout)
}

// However long the host was suspended, and however many attempts were answered at once afterwards,
// no register's value is taken for another register's.
func TestAReadAfterAStarvedOne(t *testing.T) {
	m := so101().Motors[0]
	position, offset := m.Model.Row(table.PresentPosition), m.Model.Row(table.HomingOffset)
	for length := time.Millisecond; length < 1300*time.Millisecond; length += 3 * time.Millisecond {
		l := newLine(rttest.NewClock(rt.Instant(time.Second)), 1)
		l.servos[1].put(offset.Addr, 85)
		s := &starved{line: l}
		b := NewBus(s, 1_000_000, table.Feetech, l.Clock)
		rttest.Do(t, b.Ping(1))
		s.from = l.Now()
		s.until = s.from.Add(length)
		for range 4 {
			for _, r := range []struct {
				row  table.Row
				want int
			}{{position, 2001}, {offset, 85}} {
				if got, _, err := b.ReadRegister(1, r.row); err == nil && got != r.want {
					t.Fatalf("away for %v: %s is %d, want %d", length, r.row.Register, got, r.want)
				}
			}
		}
	}
}
