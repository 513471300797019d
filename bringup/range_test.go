package bringup

import (
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
)

// joint returns a joint of an SO-101, or of a Koch.
func joint(t *testing.T, arm, name string) robot.Motor {
	t.Helper()
	for _, m := range named(t, arm).Motors {
		if m.Name == name {
			return m
		}
	}
	t.Fatalf("a %s has no %s", arm, name)
	return robot.Motor{}
}

const readEvery = 20 * time.Millisecond

// byHand adds the readings of a hand's motion to a range. points are the positions in counts, not modulo a turn, at
// which the hand turns back; seen converts each position to a reading.
func byHand(w *jointRange, seen func(place int) int, points ...int) {
	now, place := w.seen, points[0]
	for _, to := range points[1:] {
		for place != to {
			step := min(max(to-place, -40), 40) // half a turn a second
			place += step
			now = now.Add(readEvery)
			w.add(seen(place), now)
		}
	}
}

func modulo(place int) int { return ((place % 4096) + 4096) % 4096 }

func TestRangeFollowsTheSeam(t *testing.T) {
	for _, tt := range []struct {
		name      string
		points    []int
		low, high int
	}{
		{"inside the turn", []int{2047, 1000, 3000}, 1000, 3000},
		{"over the seam", []int{2047, 4899, 2047}, 2047, 4899},
		{"under the seam", []int{2047, -900, 2600}, -900, 2600},
		{"there and back again", []int{2047, 4500, 700, 4500, 2047}, 700, 4500},
		{"two turns", []int{2047, 2047 + 8192}, 2047, 2047 + 8192},
	} {
		w := newRange(joint(t, "so101", "elbow_flex"), 2047, 0)
		byHand(w, modulo, tt.points...)
		if w.low != tt.low || w.high != tt.high || w.restarts != 0 {
			t.Errorf("%s: %d to %d with %d restarts, want %d to %d", tt.name, w.low, w.high, w.restarts, tt.low,
				tt.high)
		}
		k := newRange(joint(t, "koch", "elbow_flex"), 2047+4096, 0) // the motor counts turns
		byHand(k, func(place int) int { return place + 4096 }, tt.points...)
		if k.low != tt.low || k.high != tt.high {
			t.Errorf("%s, counting turns: %d to %d, want %d to %d", tt.name, k.low, k.high, tt.low, tt.high)
		}
	}
}

// A single reading does not extend a range, because one damaged reply in 256 passes its checksum.
func TestRangeDoubtsASingleReading(t *testing.T) {
	for _, wrong := range []int{0, 100, 1000, 1900, 2200, 3000, 4095} {
		for _, at := range []int{7, 25, 26, 60} { // the joint is at rest, or in motion
			w, n := newRange(joint(t, "so101", "elbow_flex"), 2047, 0), 0
			byHand(w, func(place int) int {
				if n++; n == at {
					return wrong
				}
				return modulo(place)
			}, 2047, 1500, 2600, 2047)
			if w.low != 1500 || w.high != 2600 || w.restarts != 0 {
				t.Errorf("reading %d wrong (%d): %d to %d with %d restarts, want 1500 to 2600", at, wrong, w.low,
					w.high, w.restarts)
			}
		}
	}
}

// lowered returns the range of a joint that a hand has moved from its middle to 1000.
func lowered(t *testing.T) *jointRange {
	w := newRange(joint(t, "so101", "elbow_flex"), 2047, 0)
	byHand(w, modulo, 2047, 1000)
	return w
}

// A joint that moved far while its motor was silent may have moved either way round.
func TestRangeBeginsAnewAfterASilence(t *testing.T) {
	w := lowered(t)
	later := w.seen.Add(time.Second)
	w.add(3500, later)
	w.add(3502, later.Add(readEvery))
	if w.low != 3502 || w.high != 3502 || w.restarts != 1 {
		t.Errorf("%d to %d with %d restarts, want a new range from 3502", w.low, w.high, w.restarts)
	}
	if text := w.lostWay(); !strings.HasPrefix(text, "elbow_flex ") || !strings.Contains(text, "both ends again") {
		t.Errorf("%q does not say what to do", text)
	}
	gap := lowered(t)
	later = gap.seen.Add(400 * time.Millisecond) // time in which the joint cannot have moved the other way round
	gap.add(2000, later)
	gap.add(2010, later.Add(readEvery))
	if gap.low != 1000 || gap.high != 2047 || gap.at != 2010 || gap.restarts != 0 {
		t.Errorf("%d to %d at %d with %d restarts, want the earlier range", gap.low, gap.high, gap.at, gap.restarts)
	}
	for _, tt := range []struct {
		gap      time.Duration
		way      int
		restarts int
	}{
		{700 * time.Millisecond, 1400, 1}, // the other way round is 2696 counts, which the joint can move in this time
		{600 * time.Millisecond, 300, 0},  // 3796 counts are too far
		{20 * time.Millisecond, 1400, 0},
		{20 * time.Millisecond, 1900, 1}, // almost half a turn: either way
	} {
		w := lowered(t)
		later := w.seen.Add(tt.gap)
		w.add(1000+tt.way, later)
		w.add(1002+tt.way, later.Add(readEvery))
		if w.at != 1002+tt.way || w.restarts != tt.restarts {
			t.Errorf("%d counts in %v: at %d with %d restarts, want %d", tt.way, tt.gap, w.at, w.restarts, tt.restarts)
		}
	}
	rest := lowered(t)
	rest.add(1002, rest.seen.Add(time.Minute)) // the joint rested for a minute
	if rest.low != 1000 || rest.high != 2047 || rest.restarts != 0 {
		t.Errorf("%d to %d with %d restarts, want the earlier range", rest.low, rest.high, rest.restarts)
	}
}

func TestRangeIsPlausible(t *testing.T) {
	const elbow, grip = "elbow_flex", "gripper"
	small := joint(t, "so101", elbow)
	small.MinTravel = 5
	potentiometer := joint(t, "so101", elbow)
	potentiometer.Model = rttest.Must(table.ByName("ax-12a"))(t)
	for _, tt := range []struct {
		name      string
		motor     robot.Motor
		low, high int
		want      string // empty: plausible
		sure      bool
	}{
		{"an arm that was not moved", joint(t, "so101", elbow), 2046, 2048,
			"moved by 0.2 degrees (2 counts) only, want at least 45", true},
		{"a gripper's 8 counts", joint(t, "so101", grip), 2044, 2052,
			"moved by 0.7 degrees (8 counts) only, want at least 15", true},
		{"40 degrees", joint(t, "so101", elbow), 1820, 2275,
			"moved by 40.0 degrees (455 counts) only, want at least 45", true},
		{"40 degrees of a gripper", joint(t, "so101", grip), 1820, 2275, "", false},
		{"a joint that has less", small, 2000, 2100, "", false},
		{"240 degrees", joint(t, "koch", elbow), 700, 3425, "", false},
		{"a whole turn", joint(t, "so101", elbow), 16, 4095,
			"moved by 358.6 degrees (4079 counts), want at most 348.7 degrees", true},
		{"more than a turn", joint(t, "koch", elbow), -200, 4200, "moved by 386.8 degrees (4400 counts), want at most",
			true},
		{"one side", joint(t, "so101", elbow), 2046, 3500,
			"off-centre, moved by 0.1 degrees (1 counts) on one side of the middle pose and by 127.7 degrees", false},
		{"a fifth on one side", joint(t, "so101", elbow), 1800, 3100, "", false},
		{"a potentiometer's whole way", potentiometer, 0, 1023, "", false},
	} {
		w := newRange(tt.motor, 2047, 0)
		w.low, w.high = tt.low, tt.high
		if got := w.check(); got.sure != tt.sure || (got.text == "") != (tt.want == "") ||
			!strings.Contains(got.text, tt.want) {
			t.Errorf("%s: %+v, want %q, sure %t", tt.name, got, tt.want, tt.sure)
		}
	}
}

// For any reading of a motor the offset fits the register, makes the position half a turn, and is still correct after
// the next power-up, when the servo knows its position only within one turn.
func TestHomingIsModuloOneTurn(t *testing.T) {
	for _, arm := range []string{"so101", "koch", "koch_leader"} {
		m := joint(t, arm, "elbow_flex")
		model := m.Model
		for at := -9000; at < 9000; at++ {
			offset, reads := homing(m, at)
			power := modulo(at) + offset*model.Offset // position after the next power-up
			if m.DriveMode != 0 {                     // a reversed joint, which may read -4095 to 4095 then
				power = at%4096 + offset
			}
			if model.Row(table.HomingOffset).Check(offset) != nil || reads != power || reads < 2047 || reads > 2048 ||
				arm != "so101" && reads != 2047 {
				t.Fatalf("%s at %d: offset %d reads %d and after a power-up %d, want 2047", arm, at, offset, reads,
					power)
			}
		}
	}
}

// A range over the encoder's seam becomes contiguous by another offset, and covers the same positions of the shaft.
func TestClearOfSeam(t *testing.T) {
	for _, arm := range []string{"so101", "koch"} {
		m := joint(t, arm, "elbow_flex")
		for _, middlePose := range []int{0, 1500, 2047, 4095} { // position of the bare encoder
			offset, reads := homing(m, middlePose)
			for _, r := range [][2]int{{1000, 3000}, {2047, 4899}, {-900, 2600}, {20, 3000}, {100, 4040}, {70, 4020}} {
				low, high := r[0]+reads-2047, r[1]+reads-2047
				newOffset, shift := clearOfSeam(m, offset, low, high)
				// The bare encoder's position at the low end, by both offsets.
				before, after := modulo(low-offset*m.Model.Offset), modulo(low+shift-newOffset*m.Model.Offset)
				if before != after || low+shift < robot.SeamMargin-1 || high+shift > 4095-robot.SeamMargin+1 ||
					m.Model.Row(table.HomingOffset).Check(newOffset) != nil {
					t.Errorf("%s: %d to %d with offset %d becomes %d to %d with %d; the low end is bare %d and %d",
						arm, low, high, offset, low+shift, high+shift, newOffset, before, after)
				}
				if clear := low >= robot.SeamMargin && high <= 4095-robot.SeamMargin; clear && shift != 0 {
					t.Errorf("%s: %d to %d was moved by %d", arm, low, high, shift)
				}
			}
		}
	}
}

// Property: whatever the readings are, the joint's position is within its range.
func FuzzRange(f *testing.F) {
	f.Add([]byte{0, 10, 8, 0, 20, 9, 200, 1, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		w, now := newRange(joint(t, "so101", "elbow_flex"), 2047, 0), rt.Instant(0)
		for ; len(data) >= 3; data = data[3:] {
			now = now.Add(time.Duration(data[0]) * 5 * time.Millisecond)
			w.add((int(data[1])<<8|int(data[2]))&4095, now)
			if w.low > w.at || w.at > w.high {
				t.Fatalf("the joint is at %d, outside its range %d to %d", w.at, w.low, w.high)
			}
		}
	})
}
