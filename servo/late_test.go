package servo

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"edgert/rt"
	"edgert/rt/rttest"
)

// A reply does not say which register it is about. Whatever run of replies the
// host delivers late, bring-up ends with an arm or with missing replies, never
// with a value of one register taken for another's.
func TestLateRepliesAreNotTakenForOthers(t *testing.T) {
	for _, late := range []time.Duration{15 * time.Millisecond, 25 * time.Millisecond, 45 * time.Millisecond} {
		for from := 1; from < 60; from++ {
			for _, run := range []int{1, 2, 5, 9} {
				clock := rttest.NewClock(rt.Instant(time.Second))
				l := newLine(clock, 1, 2, 3, 4, 5, 6)
				l.lateFrom, l.lateTo, l.lateAll = from, from+run-1, late
				name := fmt.Sprintf("replies %d to %d late by %v", from, from+run-1, late)
				arm, err := l.open()
				if err != nil && !errors.Is(err, ErrNoReply) && !errors.Is(err, ErrMotorMissing) && !errors.Is(err, ErrGarbled) {
					t.Fatalf("%s: %v", name, err)
				}
				if arm == nil {
					continue
				}
				if held := arm.Held(); len(held) > 0 {
					t.Fatalf("%s: %v count as held under torque, none is", name, held)
				}
				for id := byte(1); id <= 6; id++ {
					s := l.servos[id]
					if s.mem[21] != 16 || s.mem[40] != 0 || s.word(3) != 777 {
						t.Fatalf("%s: motor %d has P %d, torque %d, model %d; want 16, 0, 777", name, id, s.mem[21], s.mem[40], s.word(3))
					}
				}
			}
		}
	}
}
