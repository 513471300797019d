package jitter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/bench/report"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/stage"
)

// robotSubject is the whole edge: edge-rt with a simulated robot and a camera for each arm. One lean-server on
// this machine serves all slices.
type robotSubject struct {
	cfg    *Config
	dir    string
	server *stage.Server
}

func startRobot(ctx context.Context, cfg *Config, dir string) (r *robotSubject, err error) {
	r = &robotSubject{cfg: cfg, dir: dir}
	r.server, err = stage.Serve(ctx, cfg.Bin, cfg.Manifest, "--json", r.path("server.json"))
	return r, err
}

func (r *robotSubject) path(name string) string { return filepath.Join(r.dir, name) }

// stop ends the server and returns its summary.
func (r *robotSubject) stop() (json.RawMessage, error) {
	if err := r.server.Stop(); err != nil {
		return nil, err
	}
	return os.ReadFile(r.path("server.json"))
}

func (r *robotSubject) start(d time.Duration, require bool) (*process, error) {
	if err := r.server.Alive(); err != nil {
		return nil, err
	}
	mode := "auto"
	if require {
		mode = "require"
	}
	// With --on-exit hold, edge-rt holds the arm at the end of its run. A simulated arm need not be released, and
	// under full load its motors may confirm a release too late.
	arms, err := robot.ByName(r.cfg.Robot)
	if err != nil {
		return nil, err
	}
	args := stage.SimRobot(arms, r.server.Endpoint, "--fps", strconv.FormatFloat(r.cfg.FPS, 'g', -1, 64),
		"--fps-mismatch", "allow", "--max-offline", "10s", "--duration", d.String(), "--on-exit", "hold", "--rt", mode,
		"--cpu="+strconv.Itoa(r.cfg.CPU), "--quiet", "--json", r.path("edge.json"))
	return start(stage.Edge(r.cfg.Bin, r.dir, args...))
}

// edgeSummary is the part of edge-rt's summary that package jitter uses in addition to the keys of Run.
type edgeSummary struct {
	Run
	Histogram *bench.Tally `json:"lateness_histogram_us"`
	RT        struct {
		Granted bool   `json:"granted"`
		Why     string `json:"why"`
	} `json:"rt"`
}

// Phases holds the lengths of a tick's parts by their names, and the length of the whole tick as "tick".
type Phases map[string]bench.Spread

// phasesOf returns, for each phase, the medians of all slices' quantiles and the longest of all.
func phasesOf(runs []*Run) Phases {
	p50 := map[string][]float64{}
	p99 := map[string][]float64{}
	all := Phases{}
	for _, r := range runs {
		for name, p := range r.Phases {
			p50[name], p99[name] = append(p50[name], p.P50), append(p99[name], p.P99)
			all[name] = bench.Spread{Max: max(all[name].Max, p.Max)}
		}
	}
	for name, p := range all {
		all[name] = bench.Spread{P50: report.Median(p50[name]), P99: report.Median(p99[name]), Max: p.Max}
	}
	return all
}

// phaseOrder is the order of the parts in a tick.
var phaseOrder = []string{"read", "act", "merge", "ask", "tick"}

// String lists the parts in their order.
func (p Phases) String() string {
	var words []string
	for _, name := range phaseOrder {
		if q, ok := p[name]; ok {
			words = append(words, fmt.Sprintf("%s p50 %.0f, p99 %.0f, max %.0f us", name, q.P50, q.P99, q.Max))
		}
	}
	return strings.Join(words, "; ")
}

// Bus is the edge's phase on the servo bus: one read and write of all joints.
type Bus struct {
	Cycles uint64  `json:"cycles"` // cycles, as in edge-rt's summary
	Lost   uint64  `json:"lost"`   // lost replies, as in edge-rt's summary
	P50    float64 `json:"us_p50"` // us, as edge-rt's
	P99    float64 `json:"us_p99"` // us, as edge-rt's
}

func (r *robotSubject) result(*process) (*Run, error) {
	b, err := os.ReadFile(r.path("edge.json"))
	if err != nil {
		return nil, err
	}
	return parseEdge(b)
}

func parseEdge(b []byte) (*Run, error) {
	var s edgeSummary
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("edge-rt's summary is unreadable: %w", err)
	}
	if s.Ticks == 0 || s.Histogram == nil || s.Histogram.Count() == 0 {
		return nil, errors.New("edge-rt's summary has no ticks: it never ran")
	}
	s.Lateness = s.Histogram.Quantiles().UpTo(s.Lateness.Max)
	s.Run.Granted, s.Run.Why = s.RT.Granted, s.RT.Why
	s.Tally, s.Detail = s.Histogram, b
	return &s.Run, nil
}
