package bringup

import (
	"fmt"
	"math"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
)

// Limits of a calibrated range and of its readings.
const (
	// least share of a range on either side of the middle pose; with less, the joint was moved to one side only
	sideShare = 0.1
	handSpeed = 2.0 // turns a second. No hand is faster: such a reading is wrong, or follows a silence of the motor
	handFast  = 1.0 // turns a second: faster than a hand moves a joint for long
	readSlack = 32  // counts that a reading may vary at rest
	// share of a turn: after a longer jump between two readings the joint may have moved the other way round
	jumpShare  = 0.37
	longSilent = 500 * time.Millisecond
)

// jointRange follows one joint while a person moves it from end to end. Readings are modulo one turn. Positions are
// not: they continue over the encoder's seam.
type jointRange struct {
	motor robot.Motor
	turn  int // counts after which the encoder starts again; 0: it never does, like a potentiometer

	at        int        // newest position; the middle pose is at half a turn
	low, high int        // the range so far
	speed     float64    // counts per second between the last two readings
	seen      rt.Instant // time of the position at
	answered  rt.Instant // time of the newest reading

	doubt    int // only if doubted: the position of a reading that no hand can have caused
	doubted  bool
	doubtAt  rt.Instant
	restarts int // times that the range started anew because the way between two readings was unknown
}

// newRange starts a range at a reading.
func newRange(m robot.Motor, raw int, now rt.Instant) *jointRange {
	at := servo.InTurn(raw, 0, m.Model.MaxRaw(), turnOf(m.Model))
	return resumeRange(m, at, at, at, now)
}

// resumeRange continues a recorded range.
func resumeRange(m robot.Motor, low, high, raw int, now rt.Instant) *jointRange {
	w := &jointRange{
		motor:    m,
		turn:     turnOf(m.Model),
		seen:     now,
		answered: now,
		low:      low,
		high:     high,
	}
	w.at = servo.InTurn(raw, low, high, w.turn)
	return w
}

// turnOf returns the counts of one turn if the model's encoder has a seam, otherwise 0.
func turnOf(model *table.Model) int {
	if model.Offset == 0 {
		return 0
	}
	return model.Resolution
}

// add takes the next reading and returns w.restarts. One damaged reply in 256 passes its checksum. So add accepts a
// reading that does not continue the motion only when the next reading agrees with it.
func (w *jointRange) add(raw int, now rt.Instant) (restarts int) {
	w.answered = now
	to := w.nearest(w.at, raw)
	if since := now.Sub(w.seen); w.plausible(to-w.at, since) && w.goesOn(to-w.at, since) {
		w.accept(to, now)
		return w.restarts
	}
	if w.doubted {
		if again := w.nearest(w.doubt, raw); w.plausible(again-w.doubt, now.Sub(w.doubtAt)) {
			w.believe(again, now)
			return w.restarts
		}
	}
	w.doubt = to
	w.doubtAt = now
	w.doubted = true
	return w.restarts
}

// goesOn reports whether the joint can have moved by this number of counts, way, in the time since, if it moved at up
// to twice its last speed.
func (w *jointRange) goesOn(way int, since time.Duration) bool {
	return math.Abs(float64(way)) <= readSlack+2*w.speed*since.Seconds()
}

// nearest returns, of the positions that differ from the reading raw by whole turns, the nearest to from.
func (w *jointRange) nearest(from, raw int) int {
	if w.turn == 0 {
		return raw
	}
	half := w.turn / 2
	off := ((raw-from+half)%w.turn+w.turn)%w.turn - half
	return from + off
}

func (w *jointRange) plausible(way int, since time.Duration) bool {
	most := readSlack + handSpeed*float64(w.motor.Model.Resolution)*since.Seconds()
	return math.Abs(float64(way)) <= most && !w.ambiguous(way, since)
}

// ambiguous reports whether the joint can also have moved to its position the other way round.
func (w *jointRange) ambiguous(way int, since time.Duration) bool {
	share := math.Abs(float64(way)) / float64(w.motor.Model.Resolution)
	switch {
	case w.turn == 0 || max(way, -way) <= readSlack:
		return false
	case share > jumpShare:
		return true
	}
	return 1-share <= handFast*since.Seconds()
}

func (w *jointRange) accept(to int, now rt.Instant) {
	if since := now.Sub(w.seen); since > 0 {
		w.speed = math.Abs(float64(to-w.at)) / since.Seconds()
	}
	w.low, w.high = min(w.low, to), max(w.high, to)
	w.at = to
	w.seen = now
	w.doubted = false
}

// lostWay returns the text from which the operator learns that the range started anew. Without it, half a range could
// look complete.
func (w *jointRange) lostWay() string {
	return w.motor.Name + " gave no position while it moved far, perhaps round the other way: its range begins anew. " +
		"Move it to both ends again."
}

// believe accepts a position on which the doubted reading and the newest one agree. When the way from the previous
// position is ambiguous, because the motor was silent or its readings were late, the range starts anew.
func (w *jointRange) believe(to int, now rt.Instant) {
	if w.ambiguous(w.doubt-w.at, w.doubtAt.Sub(w.seen)) {
		w.at = servo.InTurn(to, 0, w.motor.Model.MaxRaw(), w.turn)
		w.low = w.at
		w.high = w.at
		w.seen = now
		w.speed = 0
		w.doubted = false
		w.restarts++
		return
	}
	w.accept(w.doubt, w.doubtAt)
	w.accept(to, now)
}

// finding is the reason why a range is implausible. If sure is false, the range may still be right: perhaps the joint
// was not at its middle in the middle pose.
type finding struct {
	text   string // empty: the range is plausible
	advice string
	sure   bool
}

const (
	adviceSmall = "move such a joint from one end to the other (min_travel in the arm's description, where it has " +
		"less)"
	adviceLarge = "a joint with end stops has less than a turn (full_turn: true in the arm's description, for one " +
		"without): its range begins anew, move it to both ends again"
	adviceCentre = "move such a joint to its other end, too"
	adviceSilent = "check its cable"
)

// check judges the range so far.
func (w *jointRange) check() finding {
	m, width := w.motor, w.high-w.low
	below, above := max(w.middle()-w.low, 0), max(w.high-w.middle(), 0)
	switch {
	case m.Degrees(width) < m.LeastTravel():
		return finding{fmt.Sprintf("moved by %s only, want at least %.0f", travel(m, width), m.LeastTravel()),
			adviceSmall, true}
	case width > m.MostTravel():
		return finding{fmt.Sprintf("moved by %s, want at most %s", travel(m, width), travel(m, m.MostTravel())),
			adviceLarge, true}
	case float64(min(below, above)) < sideShare*float64(width):
		return finding{fmt.Sprintf("off-centre, moved by %s on one side of the middle pose and by %s on the other",
			travel(m, min(below, above)), travel(m, max(below, above))), adviceCentre, false}
	}
	return finding{}
}

// middle returns the reading at the middle pose.
func (w *jointRange) middle() int {
	if w.turn == 0 {
		return (w.low + w.high) / 2 // without a homing offset, the middle pose is unknown
	}
	return w.motor.Model.MaxRaw() / 2
}

// travel returns, as text, a number of counts with the degrees that the motor turns.
func travel(m robot.Motor, counts int) string {
	return fmt.Sprintf("%.1f degrees (%d counts)", m.Degrees(counts), counts)
}

// homing returns the offset with which a shaft reads half a turn; at is the shaft's reading without an offset. reads is
// the reading with the returned offset: half a turn, or one count beside it where the register's range ends. Both
// results are modulo one turn, because after its next power-up a servo knows its position only within one turn. A
// reversed Dynamixel then reads -4095 to 0. Like LeRobot, homing adds no turn to such a reading.
func homing(m robot.Motor, at int) (offset, reads int) {
	model := m.Model
	turn, half := turnOf(model), model.MaxRaw()/2
	if turn == 0 {
		return 0, at
	}
	low := 0
	if m.DriveMode != 0 && model.Protocol == table.Dynamixel2 {
		low = 1 - turn
	}
	at = servo.InTurn(at, low, turn-1, turn)
	offset = (half - at) * model.Offset
	if model.Row(table.HomingOffset).Check(offset) != nil {
		offset = min(max(offset, -half), half) // half a turn can be one count more than the register of a Feetech holds
	}
	return offset, at + offset*model.Offset
}

// clearOfSeam moves a range away from the encoder's seam. It returns the homing offset that puts the range's middle at
// half a turn, and the number of counts by which this offset moves every reading. For a range that is clear of the seam
// it returns the old offset and 0.
func clearOfSeam(m robot.Motor, offset, low, high int) (newOffset, shift int) {
	model := m.Model
	if turnOf(model) == 0 || low >= robot.SeamMargin && high <= model.MaxRaw()-robot.SeamMargin {
		return offset, 0
	}
	middle := (low + high) / 2
	bare := middle - offset*model.Offset // reading of the middle without an offset
	newOffset, reads := homing(m, bare)
	return newOffset, reads - middle
}

// implausible returns, as text, why a range in a file is implausible; "": it is plausible. A range may be a
// whole turn.
func implausible(m robot.Motor, c servo.MotorCalibration) string {
	width := c.RangeMax - c.RangeMin
	switch {
	case m.FullTurn:
		return ""
	case m.Degrees(width) < m.LeastTravel():
		return fmt.Sprintf("%s: its range %d to %d is %s, want at least %.0f degrees", m.Name, c.RangeMin, c.RangeMax,
			travel(m, width), m.LeastTravel())
	case width > m.Model.MaxRaw():
		return fmt.Sprintf("%s: its range %d to %d is %s, more than one turn: its position is not known after the "+
			"next power-up",
			m.Name, c.RangeMin, c.RangeMax, travel(m, width))
	}
	return ""
}
