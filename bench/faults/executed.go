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

// computed counts the requests in lean-server's audit that the policy was run for.
func computed(name string) (n int, err error) {
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

// executed adds what edge-rt's record of actions tells: their ages and seams.
func executed(name string, o *fleet.Outcome) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	follower := fleet.Follower{Out: o}
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
		follower.Ran(time.Duration(*line.At), time.Duration(*line.At-line.Source), [sim.DOF]float64(line.Action), line.Seq)
	}
	return lines.Err()
}
