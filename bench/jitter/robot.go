package jitter

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"edgert/bench"
	"edgert/internal/exit"
)

// serverLimit is how long the server may take to listen: it loads the model,
// replays the golden set and warms up.
const serverLimit = 30 * time.Second

// robotSubject is the whole edge: edge-rt with a simulated arm and camera,
// against a lean-server on this machine.
type robotSubject struct {
	bin, dir string
	fps      float64
	cpu      int
	server   *process
	endpoint string
}

// startRobot starts the server, which then serves all of the edge's slices.
func startRobot(bin, manifest, dir string, fps float64, cpu int) (*robotSubject, error) {
	r := &robotSubject{bin: bin, dir: dir, fps: fps, cpu: cpu}
	if _, err := os.Stat(filepath.Join(bin, "edge-rt")); err != nil {
		return nil, exit.Errorf(exit.Usage, "%w; run `make build`, or name the folder of the programs with --bin", err)
	}
	var err error
	if r.endpoint, err = freeEndpoint(); err != nil {
		return nil, err
	}
	cmd := exec.Command(filepath.Join(bin, "lean-server"), "--manifest", manifest, "--listen", "tcp/"+r.endpoint,
		"--health-port", "0", "--quiet", "--json", r.summary("server"))
	cmd.Env = bench.Scrubbed(cmd.Environ())
	if r.server, err = start(cmd); err != nil {
		return nil, err
	}
	if err := r.awaitServer(); err != nil {
		r.server.Stop() // err says why, also when it ended by itself
		return nil, err
	}
	return r, nil
}

func (r *robotSubject) summary(program string) string {
	return filepath.Join(r.dir, program+".json")
}

// freeEndpoint asks the kernel for a port that nobody uses.
func freeEndpoint() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// awaitServer returns when the server listens.
func (r *robotSubject) awaitServer() error {
	for end := time.Now().Add(serverLimit); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if !r.server.Running() {
			if err := r.server.Wait(0); err != nil {
				return err
			}
			return errors.New("lean-server ended before it served")
		}
		if c, err := net.DialTimeout("tcp", r.endpoint, time.Second); err == nil {
			return c.Close()
		}
	}
	return fmt.Errorf("lean-server did not listen within %v", serverLimit)
}

// stop ends the server and returns its summary.
func (r *robotSubject) stop() (json.RawMessage, error) {
	if err := r.server.Stop(); err != nil {
		return nil, err
	}
	return os.ReadFile(r.summary("server"))
}

func (r *robotSubject) start(d time.Duration, require bool) (*process, error) {
	if !r.server.Running() {
		return nil, fmt.Errorf("lean-server ended on its way: %s", r.server.LastWords())
	}
	mode := "auto"
	if require {
		mode = "require"
	}
	// On exit it holds: the simulated arm need not be let go, and under full load
	// its simulated motors may answer too late to confirm it.
	cmd := exec.Command(filepath.Join(r.bin, "edge-rt"), "--fps", strconv.FormatFloat(r.fps, 'g', -1, 64),
		"--bus", "sim", "--camera", "top=sim", "--connect", "tcp/"+r.endpoint, "--max-offline", "10s",
		"--duration", d.String(), "--on-exit", "hold", "--rt", mode, "--cpu="+strconv.Itoa(r.cpu),
		"--quiet", "--json", r.summary("edge"))
	// Its id stays out of the user's state directory.
	cmd.Env = append(bench.Scrubbed(cmd.Environ()), "STATE_DIRECTORY="+r.dir)
	return start(cmd)
}

// EdgeSummary is what is read of edge-rt's own summary. The histogram is
// missing where an older edge-rt wrote it.
type EdgeSummary struct {
	Ticks        uint64          `json:"ticks"`
	OverrunsOwn  uint64          `json:"overruns_own"`
	OverrunsHost uint64          `json:"overruns_host"`
	Starved      uint64          `json:"starved_ticks"`
	Lateness     bench.Quantiles `json:"lateness_us"`
	Histogram    *bench.Tally    `json:"lateness_histogram_us"`
	Bus          *Bus            `json:"bus"`
	Seconds      float64         `json:"seconds"`
	RT           struct {
		Granted bool   `json:"granted"`
		Why     string `json:"why"`
	} `json:"rt"`
}

// Bus is the edge's phase on the servo bus: one read and write of all joints.
type Bus struct {
	Cycles uint64  `json:"cycles"`
	Lost   uint64  `json:"lost"`
	P50    float64 `json:"us_p50"`
	P99    float64 `json:"us_p99"`
}

func (r *robotSubject) result(c *process) (*Run, error) {
	b, err := os.ReadFile(r.summary("edge"))
	if err != nil {
		return nil, err
	}
	run, err := parseEdge(b)
	if err != nil {
		return nil, err
	}
	run.Threads = c.threads
	return run, nil
}

// parseEdge reads edge-rt's summary.
func parseEdge(b []byte) (*Run, error) {
	var s EdgeSummary
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("edge-rt's summary is unreadable: %w", err)
	}
	if s.Ticks == 0 {
		return nil, errors.New("edge-rt's summary has no ticks: it never ran")
	}
	run := &Run{
		Ticks: s.Ticks, Seconds: s.Seconds, Lateness: s.Lateness, Tally: s.Histogram, Starved: s.Starved, Bus: s.Bus,
		OverrunsOwn: &s.OverrunsOwn, OverrunsHost: &s.OverrunsHost, Granted: s.RT.Granted, Why: s.RT.Why, Detail: b,
	}
	if run.Tally != nil && run.Tally.Count() > 0 {
		run.Lateness = run.Tally.Quantiles().UpTo(s.Lateness.Max)
	} else {
		run.Tally = nil
	}
	return run, nil
}
