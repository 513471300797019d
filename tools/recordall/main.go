// Recordall measures the cost of --record all for a robot: runs of the real edge-rt with two
// 640x480 cameras take turns with runs that record nothing. For comparison LeRobot then records the
// same pictures.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/edge-rt/edge-rt/bench/report"
	"github.com/edge-rt/edge-rt/edge"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/stage"
)

const (
	fps       = 60
	edgeLimit = 2 * time.Minute // longest time that an edge takes in addition to its duration, to wait for its server
	// perChunk and perFile bound how often the writing thread allocates in a run: perChunk in the
	// MCAP and zstd libraries for each chunk, of a second or half a MiB, and perFile at the
	// beginning of a file. The runtime counts a thread's first few allocations late.
	perChunk   = 8
	perFile    = 1500
	chunkBytes = 384 << 10 // least size of a chunk in bytes, unless the chunk has ended because it was a second old
	// lerobotLimit is the longest time for LeRobot, encoding included, in multiples of the recorded
	// time.
	lerobotLimit = 8
)

// cameras are the recorded cameras. They are not inputs of the policy, and their pictures are
// larger than the policy's. Each plays a folder of JPEG pictures, as a webcam delivers them.
var cameras = []string{"left", "right"}

type options struct {
	Bin      string        `default:"bin" help:"folder of the programs"`
	Manifest string        `default:"testdata/demo/server.yaml" help:"what the server serves"`
	Python   string        `default:".venv-export/bin/python" help:"Python with LeRobot; without it, no such part"`
	Runs     uint          `default:"3" help:"how many record all; one without is before and after each"`
	Time     time.Duration `default:"2m" help:"how long each of them lasts"`
	Off      time.Duration `help:"how long each without a record lasts; default: as long"`
	Beside   bool          `help:"another robot, which records nothing, runs beside each of these"`
	Lerobot  time.Duration `default:"1m" help:"how much of the last record LeRobot records"`
}

func main() {
	stage.LongTool(func(ctx context.Context, o options) error {
		if o.Beside && o.Off != 0 {
			return exit.Errorf(exit.Usage,
				"--off is how long a robot runs alone, which does not happen with --beside: leave one out")
		}
		o.Off = cmp.Or(o.Off, o.Time)
		o.Lerobot = min(o.Lerobot, o.Time)
		return measure(ctx, o)
	})
}

// slice is one run of edge-rt.
type slice struct {
	mode string
	edge.Summary
	cpu time.Duration // user and system
}

func measure(ctx context.Context, o options) error {
	dir, done, err := stage.Folder("")
	if err != nil {
		return err
	}
	defer done()
	for i, c := range cameras {
		if err := writeScenes(filepath.Join(dir, c), uint32(i+1)); err != nil {
			return err
		}
	}
	var runs []slice
	var wrong []error
	records := filepath.Join(dir, "records")
	for n, modes := range o.plan() {
		if slices.Contains(modes, "all") { // LeRobot records the newest one of these runs, too
			if err := os.RemoveAll(records); err != nil {
				return err
			}
		}
		fmt.Fprintf(os.Stderr, "%s  run %d of %d, --record %s\n", time.Now().Format("15:04:05"), n+1, len(o.plan()),
			strings.Join(modes, " and "))
		got, err := together(ctx, o, dir, records, modes)
		if err != nil {
			return err
		}
		for i := range got {
			wrong = append(wrong, got[i].wrong())
		}
		runs = append(runs, got...)
	}
	fmt.Print(table(runs))
	if err := besides(ctx, o, records); err != nil {
		wrong = append(wrong, err)
	}
	return errors.Join(wrong...)
}

// plan returns the values of --record for each run: one for each robot that runs at the same time.
func (o *options) plan() (runs [][]string) {
	if o.Beside {
		return slices.Repeat([][]string{{"off", "all"}}, int(o.Runs))
	}
	return append([][]string{{"off"}}, slices.Repeat([][]string{{"all"}, {"off"}}, int(o.Runs))...)
}

// together runs one robot for each of the modes, which are values of --record, all at the same time.
func together(ctx context.Context, o options, dir, records string, modes []string) ([]slice, error) {
	ctx, fail := context.WithCancelCause(ctx) // after the first failure the other run is stopped
	defer fail(nil)
	got := make([]slice, len(modes))
	var all sync.WaitGroup
	for i, mode := range modes {
		long := o.Time
		if mode == "off" && len(modes) == 1 {
			long = o.Off
		}
		all.Go(func() {
			var err error
			if got[i], err = run(ctx, o, dir, records, mode, long); err != nil {
				fail(err)
			}
		})
	}
	all.Wait()
	return got, context.Cause(ctx)
}

// run runs one robot and a server for it.
func run(ctx context.Context, o options, dir, records, mode string, long time.Duration) (s slice, err error) {
	s.mode, s.Record = mode, new(record.Stats)
	server, err := stage.Serve(ctx, o.Bin, o.Manifest)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	file := filepath.Join(dir, mode+".json")
	home := filepath.Join(dir, "state-"+mode)
	if err := os.MkdirAll(home, 0o755); err != nil {
		return s, err
	}
	args := stage.SimArm(server.Endpoint, "--id", "record-"+mode, "--fps", strconv.Itoa(fps),
		"--duration", long.String(), "--json", file, "--record", mode, "--record-dir", records, "--record-size",
		"40GiB")
	for _, c := range cameras {
		args = append(args, "--camera", fmt.Sprintf("%s=%s:%dx%d@30", c, filepath.Join(dir, c), width, height))
	}
	cmd := stage.Edge(o.Bin, home, args...)
	edge, err := stage.Start(cmd)
	if err != nil {
		return s, err
	}
	unasked := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer unasked()
	if err := edge.Wait(long + edgeLimit); err != nil {
		return s, err
	}
	if err := ctx.Err(); err != nil {
		return s, err
	}
	state := edge.State()
	s.cpu = state.UserTime() + state.SystemTime()
	return s, stage.ReadJSON(file, &s.Summary)
}

// wrong returns an error if recording has lost data, delayed ticks or allocated too much in this run.
func (s *slice) wrong() error {
	r := s.Record
	switch allowed := perChunk*(uint64(s.Seconds)+r.Bytes/chunkBytes) + perFile*r.Files; {
	case s.mode == "off":
		return nil
	case r.Pictures == 0 || r.Messages == 0:
		return errors.New("nothing was recorded")
	case s.OverrunsOwn > 0:
		return fmt.Errorf("%d ticks overran by their own doing, want 0", s.OverrunsOwn)
	case r.Lost+r.LostPictures > 0:
		return fmt.Errorf("%d messages and %d pictures were lost, want 0", r.Lost, r.LostPictures)
	case s.PathMallocs > allowed:
		return fmt.Errorf("%d objects were allocated, want at most %d: those of the libraries for each chunk and file",
			s.PathMallocs, allowed)
	}
	return nil
}

func table(runs []slice) *report.Table {
	t := &report.Table{Left: 1, Columns: []string{"--record", "ticks", "overruns own, host", "lateness us p50", "p99",
		"p99.9", "CPU s a min", "RSS MB", "objects, in ticks", "MB/min", "pictures/min", "lost"}}
	for i := range runs {
		s := &runs[i]
		minutes := s.Seconds / 60
		t.Add(s.mode, fmt.Sprint(s.Ticks), fmt.Sprintf("%d, %d", s.OverrunsOwn, s.OverrunsHost),
			fmt.Sprintf("%.0f", s.LatenessUS.P50), fmt.Sprintf("%.0f", s.LatenessUS.P99),
			fmt.Sprintf("%.0f", s.LatenessUS.P999),
			fmt.Sprintf("%.2f", s.cpu.Seconds()/minutes), fmt.Sprintf("%.0f", s.RSSMB),
			fmt.Sprintf("%d, %d", s.PathMallocs, s.MallocWindow),
			fmt.Sprintf("%.1f", float64(s.Record.Bytes)/1e6/minutes),
			fmt.Sprintf("%.0f", float64(s.Record.Pictures)/minutes), fmt.Sprint(s.Record.Lost+s.Record.LostPictures))
	}
	return t
}

// besides decodes the pictures of the newest record in Python, and then makes LeRobot record them in each of its two
// ways.
func besides(ctx context.Context, o options, records string) error {
	if _, err := exec.LookPath(o.Python); err != nil {
		fmt.Printf("LeRobot: left out, %v (make export-env)\n", err)
		return nil
	}
	fmt.Fprintf(os.Stderr, "%s  LeRobot, three times %v and what it takes to encode\n", time.Now().Format("15:04:05"),
		o.Lerobot)
	for _, way := range []string{"decode", "pictures", "streaming"} {
		cmd := exec.CommandContext(ctx, o.Python, "tools/recordall/lerobot_record.py", records, "--seconds",
			strconv.Itoa(int(o.Lerobot.Seconds())), "--way", way)
		child, err := stage.Start(cmd)
		if err == nil {
			err = child.Wait(time.Minute + lerobotLimit*o.Lerobot)
		}
		if err != nil {
			return fmt.Errorf("LeRobot, %s: %w", way, err)
		}
		fmt.Printf("%s", child.Stdout())
	}
	return nil
}
