// Package jitter measures how late a tick wakes. On a busy or virtual machine every thread is late sometimes;
// the best that a program can do is to add nothing to that lateness. So three subjects run on the same
// machine in the same minute: the bare rt.Loop with an empty step, the whole edge-rt with its simulated arm
// against a real lean-server, and Debian's cyclictest, whose lateness is the kernel's own. The result is a
// ratio. If LeRobot is installed, its loop takes turns with the subjects (lerobot.go).
//
// A round is a handful of slices in rotating order (plan.go). In some slices a subject runs without
// cyclictest. In all others cyclictest runs beside it in the same seconds, at the same priority, on
// the same CPUs and half a period out of phase (slice.go, phase.go), so that both meet the same
// disturbances and do not disturb each other.
//
// Each measured program is a process of its own (process.go): the bare loop (loop.go), edge-rt
// (robot.go) and cyclictest (cyclictest.go). Latenesses are counted by the microsecond. So slices can
// be added up, and a quantile is exact over the ticks of all slices (report.go, table.go, page.go). The
// intervals of ratios come from draws of whole slices (interval.go), as does the verdict on two reports
// (compare.go).
package jitter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/rt"
)

// Config configures Measure; its tags are the flags of `bench jitter`.
type Config struct {
	FPS      float64       `range:"1..1000" name:"fps" default:"60" help:"Ticks per second; the demo policy was trained at 60."`
	Duration time.Duration `range:">0s..24h" default:"2m" help:"In all; starting the programs comes on top."`
	Slice    time.Duration `range:">0s.." default:"8s" help:"Each subject in turn runs for this long, round after round."`
	Load     string        `default:"none" enum:"none,cpu,alloc,stress" help:"What else the machine does: none, cpu (a busy thread per core), alloc (100 MB/s of garbage), stress (stress-ng)."`
	Subjects []string      `enum:"loop,edge" name:"subject" default:"loop,edge" help:"What to measure: loop (rt.Loop with an empty step), edge (edge-rt and lean-server)."`
	LeRobot  string        `name:"lerobot" default:"auto" help:"Python of an installed LeRobot, whose loop runs in turn with ours; auto: that of lerobot-record or python3 on PATH; off: none." placeholder:"PYTHON"`
	CPU      int           `name:"cpu" default:"-1" help:"Pin the subjects to this CPU; -1: as edge-rt does, the last one where there are at least four."`
	Robot    string        `enum:"so101,bi_so101,lekiwi" default:"so101" help:"The edge's robot; each of its arms has a simulated bus and camera."`
	Bin      string        `help:"Folder of edge-rt and lean-server; default: where bench is." placeholder:"DIR"`
	Manifest string        `help:"What lean-server serves; default: the demo's policy for the robot." placeholder:"FILE"`
	bench.Env
}

// Count is the numbers of a program's ticks in one slice or in several.
type Count struct {
	Ticks        uint64          `json:"ticks"`                   // ticks that ran
	Seconds      float64         `json:"seconds"`                 // s, their time
	Lateness     bench.Quantiles `json:"lateness_us"`             // us, from a tick's deadline to its start
	Tally        *bench.Tally    `json:"histogram_us,omitempty"`  // [us] ticks by whole microseconds of lateness
	OverrunsOwn  *uint64         `json:"overruns_own,omitempty"`  // own overruns, as in edge-rt's summary
	OverrunsHost *uint64         `json:"overruns_host,omitempty"` // host overruns, as in edge-rt's summary
	Threads      string          `json:"threads,omitempty"`       // number of threads in each scheduling class
}

// Run is one program's result of one slice.
type Run struct {
	Count
	Starved uint64          `json:"starved_ticks,omitempty"` // ticks on which the edge had no action
	Bus     *Bus            `json:"bus,omitempty"`
	Phases  Phases          `json:"phases_us,omitempty"` // [phase] us, parts of a tick
	Granted bool            `json:"-"`
	Why     string          `json:"-"`
	Detail  json.RawMessage `json:"detail,omitempty"` // the program's own summary
}

// Slice is a few seconds of one subject.
type Slice struct {
	Round      int     `json:"round"`                // number of the round
	Subject    string  `json:"subject"`              // cyclictest, loop, edge or lerobot
	Form       string  `json:"form"`                 // apart, or beside cyclictest
	Began      float64 `json:"began_s"`              // s, since the first slice
	StealShare float64 `json:"steal_share"`          // share, of all CPUs' time, taken by the host
	Run        *Run    `json:"run"`                  // the subject's result, with the keys ticks to threads as in results
	Reference  *Run    `json:"cyclictest,omitempty"` // cyclictest in the same seconds
}

// subject is a program that ticks.
type subject interface {
	start(d time.Duration, require bool) (*process, error)
	result(ended *process) (*Run, error)
}

// jitter is one measurement under way.
type jitter struct {
	cfg       Config
	period    time.Duration
	clock     rt.Clock
	reference Reference
	lerobot   LeRobot
	subjects  map[string]subject
	robot     *robotSubject // nil when the edge is not measured
	load      *bench.Load
	dir       string
	began     time.Time
	slices    []Slice
	retried   []string // why subjects did not start and were started again
	failed    []string // slices that failed, with the reason
}

// Measure runs the measurement. When ctx ends early the report covers the complete slices. On
// return every process it started has ended.
func Measure(ctx context.Context, cfg Config) (report *Report, err error) {
	if err := bench.Distinct("--subject", cfg.Subjects); err != nil {
		return nil, err
	}
	j := &jitter{
		cfg:      cfg,
		period:   time.Duration(float64(time.Second) / cfg.FPS),
		clock:    rt.KernelClock(),
		subjects: map[string]subject{},
	}
	j.reference = FindCyclictest(ctx)
	if j.lerobot, err = findLeRobot(cfg.LeRobot); err != nil {
		return nil, err
	}
	kinds := kindsOf(cfg.Subjects, j.reference.Missing == "", j.lerobot.Missing == "")
	rounds, length, err := plan(kinds, cfg.Duration, cfg.Slice)
	if err != nil {
		return nil, err
	}
	if j.dir, err = os.MkdirTemp("", "edgert-bench-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(j.dir)
	machine := bench.ReadMachine(os.DirFS("/"))
	var server json.RawMessage
	if err := j.open(ctx); err != nil {
		return nil, err
	}
	if j.load, err = bench.StartLoad(cfg.Load); err == nil {
		err = errors.Join(j.measure(ctx, rounds, length), j.load.Stop())
	}
	if j.robot != nil {
		var stopErr error
		server, stopErr = j.robot.stop()
		err = errors.Join(err, stopErr)
	}
	if err != nil {
		return nil, err
	}
	if len(j.slices) == 0 {
		return nil, errors.New("ended before the first slice was complete")
	}
	report = newReport(cfg, length, j.reference, j.slices)
	report.Machine = machine
	report.Server = server
	report.LeRobot = j.lerobot
	report.Retried = j.retried
	report.Failed = j.failed
	return report, nil
}

func (j *jitter) open(ctx context.Context) (err error) {
	if j.lerobot.Missing == "" {
		j.subjects[leRobotLoop] = &lerobotSubject{j.lerobot.Python, j.cfg.FPS}
	}
	for _, name := range j.cfg.Subjects {
		switch name {
		case Loop:
			j.subjects[Loop] = &loopSubject{j.cfg.FPS, j.cfg.CPU}
		case Edge:
			j.robot, err = startRobot(ctx, &j.cfg, j.dir)
			if err != nil {
				return err
			}
			j.subjects[Edge] = j.robot
		}
	}
	return nil
}

// maxFailed is how many slices may fail after the first round before Measure gives up, so that one
// failure within an hour does not cost the slices that were measured before.
const maxFailed = 5

func (j *jitter) measure(ctx context.Context, rounds [][]kind, length time.Duration) error {
	j.began = time.Now()
	for i, kinds := range rounds {
		for n, k := range kinds {
			left := time.Duration(len(rounds)*len(kinds)-i*len(kinds)-n) * length
			j.cfg.Progress("round %d of %d: %s %s, %v; %v left\n", i+1, len(rounds), k.subject, k.form,
				length.Round(time.Millisecond), left.Round(time.Second))
			s, err := j.slice(ctx, k, length)
			if ctx.Err() != nil {
				return nil
			}
			s.Round = i + 1
			switch {
			case err == nil:
				j.slices = append(j.slices, s)
			case i == 0 || len(j.failed) == maxFailed:
				return err
			default:
				j.failed = append(j.failed, fmt.Sprintf("%s %s in round %d: %v", k.subject, k.form, s.Round, err))
			}
		}
	}
	return nil
}
