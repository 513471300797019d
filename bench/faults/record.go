package faults

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/sim/fleet"
	"github.com/edge-rt/edge-rt/sim/netfault"
)

// exchange is a recorded observation that left the robot, with the fate of its answer.
type exchange struct {
	sent rt.Instant
	// time on the network, both ways; if the answer has no times, the time of the exchange before
	// it
	network time.Duration
	busy    time.Duration // time in the server: waiting and inference
	lost    bool          // no answer came, and no newer observation had replaced it
}

// exchanges collects the exchanges of a record.
type exchanges struct {
	all     []exchange
	index   map[[2]uint64]int // index in all, by the epoch and the number of a request
	chunks  []record.Chunk    // chunks of the record, kept because a chunk may precede its observation
	away    []rt.Instant      // beginnings of the times without a session
	last    rt.Instant        // instant of the last tick
	wasAway bool
}

const (
	// exchangesMax is the largest number of observations that LoadRecord reads of a record; a day has fewer.
	exchangesMax = 1 << 20
	// timesMax is the longest accepted time of the network or the server. A longer time must be
	// wrong.
	timesMax = time.Minute
)

func (e *exchanges) visitor() record.Visitor {
	return record.Visitor{
		Tick: func(m *record.Tick) error {
			if m.NoSession && !e.wasAway && len(e.all) > 0 {
				e.away = append(e.away, m.At)
			}
			e.last, e.wasAway = m.At, m.NoSession
			return nil
		},
		Sent: func(m *record.Sent) error {
			if m.Outcome != "sent" || len(e.all) == exchangesMax {
				return nil
			}
			e.index[[2]uint64{uint64(m.Epoch), m.Seq}] = len(e.all)
			e.all = append(e.all, exchange{sent: m.At, lost: true})
			return nil
		},
		Chunk: func(m *record.Chunk) error {
			if len(e.chunks) < exchangesMax {
				e.chunks = append(e.chunks, *m)
			}
			return nil
		},
	}
}

// answer records the answer to an observation.
func (e *exchanges) answer(m *record.Chunk) {
	i, known := e.index[[2]uint64{uint64(m.Epoch), m.Seq}]
	if !known || !e.all[i].lost {
		return
	}
	x := &e.all[i]
	x.lost = false
	for left := m.Superseded; left > 0 && i > 0; i-- { // the server took a newer observation in place of these
		if e.all[i-1].lost {
			e.all[i-1].lost = false
			left--
		}
	}
	if m.Inference == 0 {
		return // for example an answer that a newer one overtook
	}
	came := m.Arrived
	if came == 0 { // an older record has only the instant of the merge
		came = m.At
	}
	busy := time.Duration(m.QueueWait + m.Inference)
	network := max(came.Sub(x.sent)-busy, 1)
	if busy < 0 || max(busy, network) > timesMax {
		return
	}
	x.network, x.busy = network, busy
}

// LoadRecord takes the times of network and server from a record of edge-rt. From the first
// observation on, each observation's times hold until the next observation. The world has 60
// actions a second. If the record has another rate, its times are scaled, so that they last as many
// actions as in the record.
func (c *Config) LoadRecord(name string) error {
	if c.Network != nil || c.Compute != nil {
		return exit.Errorf(exit.Usage, "--record has the times of the network and the policy: leave out --network and "+
			"--compute")
	}
	f, err := os.Open(name)
	if err != nil {
		return exit.Errorf(exit.Usage, "--record: %w", err)
	}
	defer f.Close()
	e := exchanges{index: map[[2]uint64]int{}}
	info, err := record.Read(f, e.visitor())
	if err != nil {
		return exit.Errorf(exit.Config, "--record %s: %w", name, err)
	}
	fps, err := strconv.ParseFloat(info.Run["fps"], 64)
	if err != nil || !(fps > 0 && fps <= 1000) {
		return exit.Errorf(exit.Config, "--record %s: its rate is %q, want the record of a run with a policy", name,
			info.Run["fps"])
	}
	if !e.settle() {
		return exit.Errorf(exit.Config, "--record %s: no observation in it was answered: want the record of a run "+
			"with a policy, such as one of --record all", name)
	}
	return c.replay(&e, filepath.Base(name), fps/fleet.FPS)
}

// replay makes a scenario of the exchanges, with their times multiplied by scale.
func (c *Config) replay(e *exchanges, name string, scale float64) error {
	scaled := func(d time.Duration) time.Duration { return time.Duration(float64(d) * scale) }
	begin := e.all[0].sent
	if length := scaled(e.last.Sub(begin)); length < time.Second {
		return exit.Errorf(exit.Config, "--record %s: it ends %v after its first observation, want at least 1s", name,
			length)
	} else if length < c.Duration {
		c.Duration = length
	}
	// The shortest times become the scenario's usual times, and the trace contains the excess of
	// each exchange over them.
	network, compute := scaled(e.all[0].network)/2, scaled(e.all[0].busy)
	var trips []time.Duration
	lost := 0
	for _, x := range e.all {
		network, compute = min(network, scaled(x.network)/2), min(compute, scaled(x.busy))
		if x.lost {
			lost++
		} else {
			trips = append(trips, x.network+x.busy)
		}
	}
	script := &netfault.Script{Name: fmt.Sprintf("%d observations, %d lost; %v from one to its chunk, 99 %% in %v",
		len(e.all), lost, fleet.Quantile(trips, 0.5).Round(time.Millisecond),
		fleet.Quantile(trips, 0.99).Round(time.Millisecond))}
	trace := netfault.Fault{Kind: netfault.Trace, Share: 1}
	for _, x := range e.all {
		at := scaled(x.sent.Sub(begin))
		trace.Points = append(trace.Points, netfault.Point{
			At:    at,
			Delay: scaled(x.network)/2 - network,
			Lost:  x.lost,
		})
		script.Compute = append(script.Compute, netfault.Point{At: at, Delay: scaled(x.busy) - compute})
	}
	for _, at := range e.away {
		trace.Points = append(trace.Points, netfault.Point{At: scaled(at.Sub(begin)), Lost: true})
	}
	for _, points := range [][]netfault.Point{trace.Points, script.Compute} {
		slices.SortStableFunc(points, func(a, b netfault.Point) int { return cmp.Compare(a.At, b.At) })
	}
	script.Faults = []netfault.Fault{trace}
	c.Network, c.Compute = &network, &compute
	c.Scenarios = []Scenario{{Name: name, Script: script}}
	return nil
}

// settle joins the answers with their observations. An observation without times gets the times of the
// exchange before it, or of the first exchange that has times. It reports whether any exchange has times.
func (e *exchanges) settle() bool {
	for i := range e.chunks {
		e.answer(&e.chunks[i])
	}
	first := slices.IndexFunc(e.all, func(x exchange) bool { return x.network > 0 })
	if first < 0 {
		return false
	}
	times := e.all[first]
	for i := range e.all {
		x := &e.all[i]
		if x.network > 0 {
			times = *x
		}
		x.network, x.busy = times.network, times.busy
	}
	// An answer may have come after the end of the record.
	for i := len(e.all) - 1; i >= 0 && e.all[i].lost && e.last.Sub(e.all[i].sent) < time.Second; i-- {
		e.all[i].lost = false
	}
	return true
}
