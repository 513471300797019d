package servo

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

// lossShareMax is the largest share of lost or damaged replies with which an arm may be driven: the
// tick repeats a request once, so that a fifth of lost replies becomes a twenty-fifth.
const lossShareMax = 0.2

// Measurement holds the duration of a bus's cycles and the number of lost replies.
type Measurement struct {
	Cycles  int           // reads of all positions
	Clean   int           // cycles in which every motor's reply came, and no further bytes
	P50     time.Duration // median duration of a clean cycle: the read, and the goals' time on the line
	P99     time.Duration // 99th percentile of the same durations
	Lost    []int         // per joint: replies that did not come or were damaged
	Silent  int           // cycles without any reply, which add no loss to any joint
	Corrupt uint64        // sequences of bytes that were no reply
}

// Add adds the counts of another measurement of the same bus, and keeps the durations of the measurement with the
// smaller P99: the bus is not the cause of a temporary slowdown.
func (m *Measurement) Add(o Measurement) {
	if m.Clean == 0 || o.Clean > 0 && o.P99 < m.P99 {
		m.P50, m.P99 = o.P50, o.P99
	}
	m.Cycles, m.Clean = m.Cycles+o.Cycles, m.Clean+o.Clean
	m.Silent, m.Corrupt = m.Silent+o.Silent, m.Corrupt+o.Corrupt
	if m.Lost == nil {
		m.Lost = make([]int, len(o.Lost))
	}
	for i, n := range o.Lost {
		m.Lost[i] += n
	}
}

func (m *Measurement) losses() (n int) {
	for _, lost := range m.Lost {
		n += lost
	}
	return n
}

// Measure reads all positions n times and learns the delay of the replies, see tuning. Cycles with
// a loss are left out of the durations: the wait for a lost reply is not the bus's time.
func (a *Arm) Measure(n int) (m Measurement, err error) {
	took := make([]time.Duration, 0, n)
	m.Lost = make([]int, len(a.joints))
	a.positions.startTuning()
	defer rt.ReduceTimerSlack()() // the tick has a small timer slack, too
	for range n {
		if a.canceled != nil && a.canceled() {
			return m, ErrCanceled
		}
		corrupt, kept := a.bus.corrupt.Load()+a.bus.late.Load(), a.positions.saveTunings()
		start := a.clock.Now()
		missing := a.bus.gather(a.positions, ackTimeout, start.Add(2*ackTimeout))
		d := a.clock.Now().Sub(start)
		m.Cycles++
		if spoilt := a.bus.corrupt.Load() + a.bus.late.Load() - corrupt; spoilt > 0 || missing != 0 {
			m.Corrupt += spoilt
			m.lose(missing, a.positions)
			a.positions.restoreTunings(kept)
			continue
		}
		took = append(took, d)
	}
	a.bus.replyDelay = a.positions.replyDelay()
	a.positions.continueTuning()
	if m.Clean = len(took); m.Clean > 0 {
		slices.Sort(took)
		a.bus.appendSyncWrite(a.rows.goal, a.jointIDs(), a.goals.raw)
		write := a.bus.wireTime(len(a.bus.tx), 0, 0)
		m.P50, m.P99 = took[m.Clean/2]+write, took[min(m.Clean-1, m.Clean*99/100)]+write
	}
	return m, nil
}

// lose counts the losses of a cycle. A merged reply ends at the first motor whose part is missing;
// the missing parts after it do not count as losses of their motors.
func (m *Measurement) lose(missing uint32, g *readGroup) {
	switch {
	case missing == 0:
	case missing == g.all && g.all != 1:
		m.Silent++
	case g.fast:
		m.Lost[bits.TrailingZeros32(missing)]++
	default:
		for i := range m.Lost {
			m.Lost[i] += int(missing >> i & 1)
		}
	}
}

// MeasureCycles calls Measure and CheckLosses. It returns the measurement's P99, and the error of either.
func (a *Arm) MeasureCycles(n int) (p99 time.Duration, err error) {
	m, err := a.Measure(n)
	if err == nil {
		err = a.CheckLosses(m)
	}
	return m.P99, err
}

// CheckLosses fails when one motor's share of lost replies, or the share of cycles without any
// reply, is above lossShareMax. The error wraps ErrNoReply and names the motors.
func (a *Arm) CheckLosses(m Measurement) error {
	most := lossShareMax * float64(m.Cycles)
	if bad := a.losers(m, most); bad != "" {
		return fmt.Errorf("servo: %s loses or damages too many replies, of %s, more than %.0f %%: %w; %s", a.path, bad,
			100*lossShareMax, ErrNoReply, lossCure)
	}
	if float64(m.Silent) > most {
		return fmt.Errorf("servo: no motor on %s answered %d of %d reads: %w; check the motors' supply and the "+
			"adapter's plugs", a.path, m.Silent, m.Cycles, ErrNoReply)
	}
	return nil
}

// lossCure is the advice for lost replies.
const lossCure = "check these motors' plugs and cables (a loose plug also affects the motors after it), their " +
	"supply, and the adapter's USB socket"

// LossReport returns the motors with lost replies, and advice. Both are "" after at most one loss,
// which may be chance.
func (a *Arm) LossReport(m Measurement) (motors, cure string) {
	const chance = 1
	if m.losses() <= chance {
		return "", ""
	}
	return a.losers(m, 0), lossCure
}

// losers returns the motors whose number of losses exceeds the parameter most.
func (a *Arm) losers(m Measurement, most float64) string {
	var names []string
	for i, n := range m.Lost {
		if float64(n) > most {
			names = append(names, fmt.Sprintf("motor %d (%s) %d of %d", a.units[i].id, a.units[i].name, n, m.Cycles))
		}
	}
	return strings.Join(names, ", ")
}
