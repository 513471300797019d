package faults

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"edgert/internal/fleet"
	"edgert/sim"
)

func readSummary(name string) (o fleet.Outcome, err error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return o, err
	}
	var s struct {
		Targets    int    `json:"targets_reached"`
		Collisions int    `json:"collisions"`
		Timeouts   int    `json:"targets_timed_out"`
		Actions    int    `json:"actions"`
		Starved    int    `json:"starved_ticks"`
		StarvedBus int    `json:"starved_by_bus"` // those of them that the bus caused
		Requests   int    `json:"requests"`
		Estimate   int    `json:"latency_estimate_steps"`
		Schedule   string `json:"schedule"`
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return o, fmt.Errorf("edge-rt's summary: %w", err)
	}
	o.Runs = 1
	o.Right.Reached, o.Right.Collided, o.Right.TimedOut = s.Targets, s.Collisions, s.Timeouts
	o.Actions, o.Starved, o.Requests, o.MaxEstimate = s.Actions, s.Starved-s.StarvedBus, s.Requests, s.Estimate
	return o, nil
}

// countInferences counts the requests in lean-server's audit that the policy was run for.
func countInferences(name string) (n int, err error) {
	file, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var line struct {
			Outcome string `json:"outcome"`
		}
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			continue // the server was killed in the middle of it
		}
		if slices.Contains([]string{"ok", "unsent", "not_finite"}, line.Outcome) {
			n++
		}
	}
	return n, lines.Err()
}

// readRecord adds the ages and seams in edge-rt's record of actions.
func readRecord(name string, o *fleet.Outcome) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	replay := fleet.Replay{Out: o}
	lines := bufio.NewScanner(file)
	lines.Scan() // what the run was
	for n := 2; lines.Scan(); n++ {
		var line struct {
			At     *int64    `json:"t_ns"`
			Source int64     `json:"source_ns"`
			Seq    uint64    `json:"seq"`
			Action []float64 `json:"action"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return fmt.Errorf("edge-rt's record, line %d: %w", n, err)
		}
		if line.At == nil || len(line.Action) != sim.DOF {
			return fmt.Errorf("edge-rt's record, line %d: %d joints, want t_ns and %d", n, len(line.Action), sim.DOF)
		}
		replay.Add(time.Duration(*line.At), time.Duration(*line.At-line.Source), [sim.DOF]float64(line.Action), line.Seq)
	}
	return lines.Err()
}
