package bus

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/bench/report"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/servo/table"
)

// Report is the result of Measure; its JSON has the table's content and the histograms. Times are
// in microseconds.
type Report struct {
	Bench    string        `json:"bench"`          // bus
	Version  string        `json:"version"`        // version of bench
	Robot    string        `json:"robot"`          // name of the robot
	Motors   int           `json:"motors"`         // its motors
	Buses    int           `json:"buses"`          // buses of the robot, read in one tick
	Baud     int           `json:"baud"`           // bit/s, rate of the bus
	FPS      float64       `json:"fps"`            // Hz, cycles per second
	Port     string        `json:"port,omitempty"` // serial port; absent: the simulator's
	Awake    bool          `json:"awake"`          // the cores were kept from sleeping
	Read     string        `json:"read"`           // sync, fast sync or one by one
	Machine  bench.Machine `json:"machine"`
	BytesOut int           `json:"bytes_out"` // bytes, of a cycle
	BytesIn  int           `json:"bytes_in"`  // bytes, of a cycle
	WireUS   float64       `json:"wire_us"`   // us, time of all bytes of the slowest bus, without a gap
	FloorUS  float64       `json:"floor_us"`  // us, wire_us and the gaps before the servos' replies

	Driver Subject `json:"driver"` // this project's driver
	Echo   Subject `json:"echo"`   // the C program that moves the same bytes
	// the driver on the first bus alone; absent: the robot has one bus
	OneBus   *Subject `json:"one_bus,omitempty"`
	RatioP50 float64  `json:"ratio_p50"`     // ratio, driver to echo, of the durations of cycles
	RatioP99 float64  `json:"ratio_p99"`     // ratio, driver to echo, of the durations of cycles
	RatioCPU float64  `json:"ratio_cpu_p50"` // ratio, of the threads' CPU time
	Pairs    Pairs    `json:"pairs"`         // pairs of slices, one slice of the driver and one of the C program
	// heap objects of the whole process during the driver's cycles
	Allocs    uint64  `json:"allocs"`
	Overruns  uint64  `json:"overruns_own"`                // overruns of the driver's loop
	Refused   string  `json:"real_time_refused,omitempty"` // why the kernel refused real time
	LostReply *Losses `json:"lost_reply,omitempty"`        // a run in which replies were lost

	places  []place
	traffic []traffic
}

// Pairs are pairs of slices, one of the driver and then one of the echo, with the medians of their
// ratios. A pair is calm when during its slices neither the host nor other programs took the cores
// (stage.Host).
type Pairs struct {
	All     int     `json:"all"`            // number of pairs
	Calm    int     `json:"calm"`           // number of pairs during which the machine was calm
	P50     float64 `json:"ratio_p50"`      // ratio, median over the pairs
	P99     float64 `json:"ratio_p99"`      // ratio, median over the pairs
	CalmP50 float64 `json:"calm_ratio_p50"` // ratio, median over the calm pairs; 0: no calm pair
	CalmP99 float64 `json:"calm_ratio_p99"` // ratio, median over the calm pairs; 0: no calm pair
	// us, CPU time of the driver's thread in a cycle: median over the calm pairs of the slices'
	// medians; 0: no calm pair
	CalmCPU float64 `json:"calm_cpu_us"`
	EchoCPU float64 `json:"calm_echo_cpu_us"` // us, the same for the C program
	// ratio, all buses to the first alone, median over the pairs; 0: the robot has one bus
	OneP50     float64 `json:"one_bus_ratio_p50"`
	OneP99     float64 `json:"one_bus_ratio_p99"`      // ratio, the same
	CalmOneP50 float64 `json:"calm_one_bus_ratio_p50"` // ratio, median over the calm pairs
	CalmOneP99 float64 `json:"calm_one_bus_ratio_p99"` // ratio, median over the calm pairs

	of []pair
}

type pair struct {
	p50, p99     float64
	oneP50       float64 // ratio of all buses to one bus
	oneP99       float64
	cpu, echoCPU float64 // us, p50
	calm         bool
}

// addPair compares the slices of a turn: d is the driver's slice, and e is the echo's. The parameter one is the
// driver's slice on the first bus alone; nil: the robot has one bus. The parameter calm reports whether the machine was
// calm during e.
func (r *Report) addPair(d, one *driverSlice, e []sample, calm bool) {
	var driver, single, echo Subject
	driver.add(d.samples, r.BytesIn)
	echo.add(e, r.BytesIn)
	if driver.Cycles == 0 || echo.Cycles == 0 {
		return
	}
	for _, c := range d.calm {
		calm = calm && c
	}
	a, b := driver.tally.Quantiles(), echo.tally.Quantiles()
	p := pair{
		p50:     a.P50 / b.P50,
		p99:     a.P99 / b.P99,
		cpu:     driver.cpu.Quantile(0.5),
		echoCPU: echo.cpu.Quantile(0.5),
		calm:    calm,
	}
	if one != nil {
		single.add(one.samples, r.traffic[0].in)
		for _, c := range one.calm {
			p.calm = p.calm && c
		}
		if single.Cycles == 0 {
			return
		}
		q := single.tally.Quantiles()
		p.oneP50, p.oneP99 = a.P50/q.P50, a.P99/q.P99
	}
	r.Pairs.of = append(r.Pairs.of, p)
}

func (p *Pairs) sum() {
	calm := slices.DeleteFunc(slices.Clone(p.of), func(one pair) bool { return !one.calm })
	p.All, p.Calm = len(p.of), len(calm)
	p50, p99 := func(x pair) float64 { return x.p50 }, func(x pair) float64 { return x.p99 }
	p.P50, p.P99 = median(p.of, p50), median(p.of, p99)
	p.CalmP50, p.CalmP99 = median(calm, p50), median(calm, p99)
	one50, one99 := func(x pair) float64 { return x.oneP50 }, func(x pair) float64 { return x.oneP99 }
	p.OneP50, p.OneP99 = median(p.of, one50), median(p.of, one99)
	p.CalmOneP50, p.CalmOneP99 = median(calm, one50), median(calm, one99)
	p.CalmCPU = median(calm, func(x pair) float64 { return x.cpu })
	p.EchoCPU = median(calm, func(x pair) float64 { return x.echoCPU })
}

func median(pairs []pair, of func(pair) float64) float64 {
	var values []float64
	for _, p := range pairs {
		values = append(values, of(p))
	}
	return report.Median(values)
}

// Subject is one program's clean cycles.
type Subject struct {
	Cycles  int             `json:"cycles"`       // clean cycles
	Other   int             `json:"other_cycles"` // cycles that lack a reply, or that contain another exchange
	Took    bench.Quantiles `json:"cycle_us"`     // us, a clean cycle
	CPU     bench.Quantiles `json:"cpu_us"`       // us, CPU time of the thread
	CPUMean float64         `json:"cpu_us_mean"`  // us, mean of the same
	Tally   *bench.Tally    `json:"histogram_us"` // [us] cycles by whole microseconds

	tally, cpu bench.Tally
	spent      time.Duration
}

// Losses is the cost of lost replies: how much longer a cycle with a lost reply takes than the
// median clean cycle of the same run.
type Losses struct {
	Cycles      int             `json:"cycles"`      // cycles of the run
	Lost        int             `json:"lost_cycles"` // cycles with a lost reply
	WithoutLoss bench.Quantiles `json:"clean_us"`    // us, cycles without a lost reply
	// us, how much longer a cycle with a lost reply takes than the median of the others
	Cost     bench.Quantiles `json:"cost_us"`
	Overruns uint64          `json:"overruns_own"`     // overruns of the loop
	Tally    *bench.Tally    `json:"histogram_us"`     // [us] cycles with a lost reply by whole microseconds
	CalmLost int             `json:"calm_lost_cycles"` // cycles with a lost reply while the machine was calm
	CalmCost bench.Quantiles `json:"calm_cost_us"`     // us, cost_us of those
}

// The simulator's gaps before a servo answers.
const (
	gapFeetech   = 50 * time.Microsecond
	gapDynamixel = 25 * time.Microsecond
)

func (s *Subject) add(all []sample, in int) {
	for _, c := range all {
		if c.lost || c.extra || c.in != in {
			s.Other++
			continue
		}
		s.Cycles++
		s.tally.Add(c.took, 1)
		s.cpu.Add(c.cpu, 1)
		s.spent += c.cpu
	}
}

// addDriver adds a slice of the driver. It returns an error until a slice has a clean cycle, because the C program
// sends the frames of such a cycle.
func (r *Report) addDriver(d *driverSlice) error {
	in := 0
	for _, b := range d.buses {
		in += b.in
	}
	if in > 0 && (r.BytesIn == 0 || in <= r.BytesIn) {
		r.BytesIn, r.traffic = in, d.buses
	}
	if r.traffic == nil {
		return exit.Errorf(exit.Failure, "no cycle of a slice had a reply of each motor in time: want a bus that "+
			"answers, a lower --fps or a longer --slice")
	}
	r.Driver.add(d.samples, r.BytesIn)
	r.count(d)
	r.BytesOut = 0
	for _, b := range r.traffic {
		r.BytesOut += b.out()
	}
	return nil
}

func (t traffic) out() (n int) {
	for _, f := range t.frames {
		n += len(f)
	}
	return n
}

func (r *Report) count(d *driverSlice) {
	r.Allocs += d.allocs
	r.Overruns += d.overruns
	if !d.granted.Granted {
		r.Refused = d.granted.Why
	}
}

func (r *Report) addLosses(d *driverSlice) {
	l := &Losses{Cycles: len(d.samples), Overruns: d.overruns, Tally: new(bench.Tally)}
	var clean, cost, calmCost bench.Tally
	for _, c := range d.samples {
		if !c.lost && !c.extra {
			clean.Add(c.took, 1)
		}
	}
	l.WithoutLoss = clean.Quantiles()
	for i, c := range d.samples {
		if !c.lost {
			continue
		}
		beyond := max(float64(c.took)/float64(time.Microsecond)-l.WithoutLoss.P50, 0)
		l.Tally.Add(c.took, 1)
		cost.AddUS(beyond, 1)
		if d.calmAt(i) {
			calmCost.AddUS(beyond, 1)
		}
	}
	l.Lost = int(cost.Count())
	l.CalmLost = int(calmCost.Count())
	l.Cost = cost.Quantiles()
	l.CalmCost = calmCost.Quantiles()
	r.LostReply = l
}

func (r *Report) sum() {
	for _, s := range []*Subject{&r.Driver, &r.Echo, r.OneBus} {
		if s == nil {
			continue
		}
		s.Took = s.tally.Quantiles()
		s.CPU = s.cpu.Quantiles()
		s.Tally = &s.tally
		if s.Cycles > 0 {
			s.CPUMean = float64(s.spent.Nanoseconds()) / 1e3 / float64(s.Cycles)
		}
	}
	r.floor()
	r.Pairs.sum()
	if r.Echo.CPU.P50 > 0 {
		r.RatioCPU = r.Driver.CPU.P50 / r.Echo.CPU.P50
	}
	if r.Echo.Took.P50 > 0 && r.Echo.Took.P99 > 0 {
		r.RatioP50, r.RatioP99 = r.Driver.Took.P50/r.Echo.Took.P50, r.Driver.Took.P99/r.Echo.Took.P99
	}
}

// floor sets WireUS, FloorUS and Read to those of the slowest bus: FloorUS is the time of a clean
// cycle's bytes, with the gaps before replies.
func (r *Report) floor() {
	for i, t := range r.traffic {
		p := r.places[i].robot
		wire := float64(t.out()+t.in) * 10e6 / float64(p.Baud)
		gap := gapFeetech
		gaps := len(p.Motors)
		read := "sync"
		if p.Protocol() == table.Dynamixel2 {
			gap = gapDynamixel
			if last := t.frames[len(t.frames)-1]; len(last) > fastByte && last[fastByte] == fastSyncRead {
				read, gaps = "fast sync", 1
			}
		}
		if floor := wire + float64(gaps)*float64(gap.Microseconds()); floor > r.FloorUS {
			r.WireUS, r.FloorUS = wire, floor
			r.Read = read
		}
	}
}

// Offset of the instruction in a packet of protocol 2.0, and the instruction of a fast sync read.
const (
	fastByte     = 7
	fastSyncRead = 0x8A
)

func (r *Report) table() report.Table {
	t := report.Table{Left: 1, Columns: []string{"", "cycles", "p50 us", "p90", "p99", "p99.9",
		"max", "beyond floor p50", "CPU us p50", "p99", "given up"}}
	for _, s := range []struct {
		name string
		of   *Subject
	}{{"driver", &r.Driver}, {"driver, one bus", r.OneBus}, {"C echo", &r.Echo}} {
		if s.of == nil {
			continue
		}
		q := s.of.Took
		t.Addf("%s\t%d\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%d", s.name, s.of.Cycles, q.P50, q.P90, q.P99,
			q.P999,
			q.Max, q.P50-r.FloorUS, s.of.CPU.P50, s.of.CPU.P99, s.of.Other)
	}
	return t
}

func (r *Report) notes() (all []string) {
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	p := &r.Pairs
	say("Ratio driver to echo: p50 %.2f, p99 %.2f of all cycles; p50 %.2f, p99 %.2f in the median of %d pairs of "+
		"slices. CPU time of the thread: %.2f.",
		r.RatioP50, r.RatioP99, p.P50, p.P99, p.All, r.RatioCPU)
	if p.Calm > 0 {
		say("In %d of %d pairs of slices the machine was calm: p50 %.2f, p99 %.2f; CPU time of the threads %.0f and "+
			"%.0f us a cycle.", p.Calm, p.All, p.CalmP50, p.CalmP99, p.CalmCPU, p.EchoCPU)
	} else {
		say("The machine was busy in every pair of slices, with other programs or other machines: the 99th " +
			"percentiles are its own.")
	}
	if r.OneBus != nil {
		say("Ratio of %d buses in one tick to one bus, in the median of the pairs: p50 %.2f, p99 %.2f.", r.Buses,
			p.OneP50,
			p.OneP99)
		if p.Calm > 0 {
			say("While the machine was calm: p50 %.2f, p99 %.2f.", p.CalmOneP50, p.CalmOneP99)
		}
	}
	if r.Awake {
		say("The cores were kept awake.")
	}
	say("Driver: %d allocations of the whole process in its cycles, %d own overruns. Given up: cycles without all "+
		"replies in time, or with late ones, and the driver's with another exchange in them; they are in no figure.",
		r.Allocs, r.Overruns)
	if r.Refused != "" {
		say("The kernel refused real time: %s.", r.Refused)
	}
	if l := r.LostReply; l != nil {
		say("A lost reply, in %d of %d cycles: p50 %.0f us, p99 %.0f us, at most %.0f us beyond a clean cycle (p50 "+
			"%.0f us); %d own overruns.",
			l.Lost, l.Cycles, l.Cost.P50, l.Cost.P99, l.Cost.Max, l.WithoutLoss.P50, l.Overruns)
		if l.CalmLost > 0 && l.CalmLost < l.Lost {
			say("%d of them while the machine was calm: p50 %.0f us, p99 %.0f us, at most %.0f us.", l.CalmLost,
				l.CalmCost.P50, l.CalmCost.P99, l.CalmCost.Max)
		}
	}
	return all
}

func (r *Report) title() string {
	where := "simulated"
	if r.Port != "" {
		where = "on " + r.Port
	}
	if r.Buses > 1 {
		where = fmt.Sprintf("on %d buses, %s,", r.Buses, where)
	}
	return fmt.Sprintf("%s, %d motors %s at %d baud, sync write and %s read at %g Hz", r.Robot, r.Motors, where, r.Baud,
		r.Read, r.FPS)
}

// WriteTable writes the report for a terminal.
func (r *Report) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "bench bus: %s\n", r.title())
	fmt.Fprintf(w, "%d bytes out, %d in: %.0f us on the wire, %.0f us with the servos' answering times\n\n", r.BytesOut,
		r.BytesIn, r.WireUS, r.FloorUS)
	_, err := fmt.Fprintf(w, "%v\n%s\n", r.table(), strings.Join(r.notes(), "\n"))
	return err
}
