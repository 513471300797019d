package faults

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/sim"
	"github.com/edge-rt/edge-rt/sim/fleet"
	"github.com/edge-rt/edge-rt/stage"
)

func readSummary(name string) (o fleet.Outcome, err error) {
	var s struct {
		Targets    int `json:"targets_reached"`
		Collisions int `json:"collisions"`
		Timeouts   int `json:"targets_timed_out"`
		Actions    int `json:"actions"`
		Starved    int `json:"starved_ticks"`
		StarvedBus int `json:"starved_by_bus"` // starved ticks that the bus caused
		Requests   int `json:"requests"`
		Estimate   int `json:"latency_estimate_steps"`
	}
	if err := stage.ReadJSON(name, &s); err != nil {
		return o, fmt.Errorf("edge-rt's summary: %w", err)
	}
	o.Runs = 1
	o.Right.Reached = s.Targets
	o.Right.Collided = s.Collisions
	o.Right.TimedOut = s.Timeouts
	o.Actions = s.Actions
	o.Starved = s.Starved - s.StarvedBus
	o.Requests = s.Requests
	o.MaxEstimate = s.Estimate
	return o, nil
}

// countInferences counts the requests in lean-server's audit for which the policy ran.
func countInferences(name string) (n int, err error) {
	lines, err := stage.ReadAudit[struct {
		Outcome string `json:"outcome"`
	}](name, true)
	for _, line := range lines {
		if slices.Contains([]string{"ok", "unsent", "not_finite"}, line.Outcome) {
			n++
		}
	}
	return n, err
}

// readRecord adds to o the ages and seams in edge-rt's record of an episode, and deletes the record.
func readRecord(dir string, o *fleet.Outcome) error {
	replay := fleet.Replay{Out: o}
	infos, err := record.ReadFolder(dir, record.Visitor{Tick: func(m *record.Tick) error {
		if m.Action.N == 0 {
			return nil // no chunk began on this tick
		}
		if m.Action.N != sim.DOF {
			return fmt.Errorf("step %d has %d joints, want %d", m.Step, m.Action.N, sim.DOF)
		}
		var action [sim.DOF]float64
		for j, v := range m.Action.Values() {
			action[j] = float64(v)
		}
		replay.Add(time.Duration(m.At), m.At.Sub(m.Source), action, m.Seq)
		return nil
	}})
	if err == nil && len(infos) == 0 {
		err = fmt.Errorf("%s holds no record", dir)
	}
	for _, info := range infos {
		if info.Torn && err == nil {
			err = errors.New("a file of it has no end")
		}
	}
	if err != nil {
		return fmt.Errorf("edge-rt's record: %w", err)
	}
	return os.RemoveAll(dir)
}
