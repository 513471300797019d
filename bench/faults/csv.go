package faults

import (
	"encoding/csv"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/edge-rt/edge-rt/sim/fleet"
)

// csvColumns are the per-tick columns of the DRTC program, after the three that identify the run.
// Instants are seconds since the episode began.
//
// Source: drtc utils/metrics at d20888c.
var csvColumns = []string{
	"faults", "schedule", "seed",
	"t", "step", "schedule_size", "latency_estimate_steps", "latency_estimate_ms", "cooldown", "stall", "obs_triggered",
	"action_received",
	"measured_latency_ms", "obs_sent_ts", "server_obs_received_ts", "server_action_sent_ts", "action_received_ts",
	"chunk_overlap_count", "chunk_mean_l2", "chunk_max_l2",
}

// errNoTicks is the error for a file of single ticks after Live, which keeps no ticks.
var errNoTicks = errors.New("faults: no single tick is kept of real time, only of virtual time")

// WriteCSV writes every tick of the first episode of every cell.
func (r *Report) WriteCSV(w io.Writer) error {
	if len(r.traces[0]) == 0 {
		return errNoTicks
	}
	out := csv.NewWriter(w)
	if err := out.Write(csvColumns); err != nil {
		return err
	}
	for s, cell := range r.Cells {
		for c, row := range cell.Rows {
			trace := r.traces[r.cfg.cell(s, c)]
			for i := range trace {
				t := &trace[i]
				name := []string{cell.Faults, row.Schedule, strconv.FormatUint(t.Seed, 10)}
				if err := out.Write(append(name, fields(t)...)); err != nil {
					return err
				}
			}
		}
	}
	out.Flush()
	return out.Error()
}

// fields returns the values of a tick. A missing value is empty.
func fields(t *fleet.Tick) []string {
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', 9, 64) }
	flag := func(b bool) string {
		if b {
			return "1"
		}
		return "0"
	}
	at := time.Duration(t.Tick) * fleet.Period
	f := []string{
		number(at.Seconds()), strconv.FormatInt(t.Step, 10), strconv.Itoa(t.Size), strconv.Itoa(t.Estimate),
		number(float64(t.Estimate) * fleet.Period.Seconds() * 1000), strconv.Itoa(t.Cooldown), flag(t.Size == 0),
		flag(t.Requested), flag(t.Received),
	}
	if !t.Received {
		return append(f, "", "", "", "", "", "", "", "")
	}
	return append(f, number(t.Measured.Seconds()*1000), number(t.Sent.Seconds()), number(t.ServerIn.Seconds()),
		number(t.ServerOut.Seconds()), number(t.ReceiveAt.Seconds()), strconv.Itoa(t.Overlap), number(t.MeanL2),
		number(t.MaxL2))
}
