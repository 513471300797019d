package faults

import (
	"time"

	"github.com/edge-rt/edge-rt/sim/fleet"
)

// Report is the result of a comparison; its JSON has the table's content.
type Report struct {
	Bench    string  `json:"bench"`    // faults
	Version  string  `json:"version"`  // version of bench
	Virtual  bool    `json:"virtual"`  // in virtual time; else with the real programs
	World    string  `json:"world"`    // --world
	Episodes int     `json:"episodes"` // episodes of each contender in each scenario
	Seconds  float64 `json:"seconds"`  // s, length of an episode
	// seed of the first world; in virtual time each seed is played from both sides, else each
	// episode has its own seed
	FirstSeed uint64  `json:"first_seed"`
	NetworkMs float64 `json:"network_ms"`   // ms, each way
	ComputeMs float64 `json:"compute_ms"`   // ms, of the policy
	TookS     float64 `json:"took_s"`       // s, the whole measurement
	Again     int     `json:"played_again"` // real time: tries whose edge found no motors on a busy host
	Cells     []Cell  `json:"cells"`

	traces [][]fleet.Tick // [cell]
	cfg    *Config
}

// Cell is one scenario with all its contenders.
type Cell struct {
	Faults string  `json:"faults"` // name of the scenario
	Title  string  `json:"title"`  // its description
	Best   string  `json:"best"`   // contender with the highest mean success
	Rows   []Entry `json:"rows"`
}

// Entry is one contender in one scenario. The differences are paired by episode: this contender's
// values less those of the best contender, and less those of the first.
type Entry struct {
	Schedule string `json:"schedule"` // the contender
	// [metric] unit of the metric, mean, 95 % interval, and number of episodes with a value. success
	// (%), reached (targets per minute), leg_seconds (s), starved_ticks (per minute), recovery_ms (ms),
	// seam_degrees (degrees, 95th percentile), mode_switches (per minute), age_ms (ms, 95th percentile),
	// inferences (per second), requests (per second), actions_per_request, idle_ms (ms, mean length of a
	// time without actions), kilobytes (kB/s), again_ticks (largest number of ticks from the end of the
	// latency estimate to the next request after a lost one), again_due_ticks (the same without the
	// ticks on which an older answer had filled the schedule)
	Metrics          map[string]Interval `json:"metrics"`
	SuccessLessBest  Interval            `json:"success_less_best"`  // %, paired difference to the best contender
	SuccessLessFirst Interval            `json:"success_less_first"` // %, paired difference to the first contender

	values map[string][]float64
}

func (c *comparison) report() *Report {
	cfg := c.cfg
	r := &Report{
		Bench:     "faults",
		Version:   cfg.Version,
		Virtual:   true,
		World:     cfg.World,
		Episodes:  cfg.Episodes,
		Seconds:   cfg.Duration.Seconds(),
		FirstSeed: cfg.FirstSeed,
		NetworkMs: cfg.Network.Seconds() * 1000,
		ComputeMs: cfg.Compute.Seconds() * 1000,
		TookS:     time.Since(c.began).Seconds(),
		traces:    c.traces,
		cfg:       cfg,
	}
	for s, scenario := range cfg.Scenarios {
		cell := Cell{Faults: scenario.Name, Title: scenario.Script.Name}
		for k, contender := range cfg.Contenders {
			cell.Rows = append(cell.Rows, entry(contender.Name, c.results[cfg.cell(s, k)][:cfg.Episodes], cfg.Duration))
		}
		cell.compare()
		r.Cells = append(r.Cells, cell)
	}
	return r
}

func entry(name string, outcomes []fleet.Outcome, d time.Duration) Entry {
	e := Entry{Schedule: name, Metrics: map[string]Interval{}, values: map[string][]float64{}}
	for i := range outcomes {
		for key, v := range valuesOf(&outcomes[i], d) {
			e.values[key] = append(e.values[key], v)
		}
	}
	for key, values := range e.values {
		e.Metrics[key] = interval(values)
	}
	return e
}

// compare finds the best contender, and computes every contender's differences from it and from the first contender.
func (c *Cell) compare() {
	best := 0
	for i := range c.Rows {
		if c.Rows[i].Metrics["success"].Mean > c.Rows[best].Metrics["success"].Mean {
			best = i
		}
	}
	c.Best = c.Rows[best].Schedule
	for i := range c.Rows {
		c.Rows[i].SuccessLessBest = difference(c.Rows[i].values["success"], c.Rows[best].values["success"])
		c.Rows[i].SuccessLessFirst = difference(c.Rows[i].values["success"], c.Rows[0].values["success"])
	}
}
