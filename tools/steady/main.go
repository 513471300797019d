// Steady checks that the paths of a running robot allocate nothing. After the warm-up the whole
// edge may make no heap object and no garbage collection. It runs with the real server, a second,
// larger camera and its status line.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/edge-rt/edge-rt/edge"
	"github.com/edge-rt/edge-rt/server"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/stage"
)

const (
	warmUp    = 8 * time.Second  // time for the session, the arming and the edge's own warm-up of 5 s
	edgeLimit = 2 * time.Minute  // time for an edge beyond its duration, because it may wait for its server
	askLimit  = 30 * time.Second // longest wait for the metrics
	fps       = 60
	extraFPS  = 30

	// ownLimit is how many objects the Go runtime may allocate for itself in a run, such as a new thread while another
	// is in the kernel, or the record of a goroutine that waits. A path that allocates once a second makes more.
	ownLimit = 8

	// spare is the percentage by which a run is longer than its ticks need. If the host takes the
	// cores away, the edge skips ticks, and needs more time for the same number of ticks.
	spare = 5

	// spareMore is added to the percentage after each run with too few ticks.
	spareMore = 40

	// shortLimit is how often a run without a result is repeated.
	shortLimit = 4
)

// extra is a camera that is not an input of the policy, larger than the policy's.
const extra = "extra=sim:640x480@30"

// errNotSteady is the defect that the tool searches for. After any other failure, such as an arm
// that did not answer while the host took the cores, the run is repeated.
var errNotSteady = errors.New("not steady")

// errShort is the error of a run without a defect but with too few ticks.
var errShort = errors.New("the machine skipped too many ticks")

type options struct {
	Bin      string `default:"bin" help:"folder of the two programs"`
	Robot    string `default:"so101" help:"the robot: so101, bi_so101 or lekiwi"`
	Manifest string `help:"what the server serves; default: the demo's policy for the robot"`
	Ticks    uint64 `default:"10000" help:"ticks after warm-up in which nothing may be allocated"`
	Runs     int    `default:"3" help:"runs, each of which must hold"`
}

func main() { stage.Tool(allSteady) }

// allSteady makes all runs. It repeats a run that failed for another reason than errNotSteady.
func allSteady(o options) error {
	o.Manifest = cmp.Or(o.Manifest, stage.DemoManifest("testdata/demo", o.Robot))
	for run := range o.Runs {
		percent := spare
		err := steady(o, run, percent)
		for range shortLimit {
			if err == nil || errors.Is(err, errNotSteady) {
				break
			}
			fmt.Println("steady:", err)
			if errors.Is(err, errShort) {
				percent += spareMore
			}
			stage.Calm(time.Minute)
			err = steady(o, run, percent)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// steady makes one run. The run is longer by percent than its ticks need.
func steady(o options, run, percent int) (err error) {
	dir, err := os.MkdirTemp("", "edgert-steady-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	health, err := stage.FreeEndpoint()
	if err != nil {
		return err
	}
	port := health[len("tcp/127.0.0.1:"):]
	server, err := stage.Serve(context.Background(), o.Bin, o.Manifest, "--health-port", port, "--json",
		filepath.Join(dir, "server.json"))
	if err != nil {
		return err
	}
	defer server.Stop()
	screen, err := stage.Terminal()
	if err != nil {
		return err
	}
	defer screen.Close()
	if err := scrape(port); err != nil { // a scrape allocates, so there is none within the window
		return err
	}
	duration := warmUp + time.Duration(int(o.Ticks)*(100+percent)/100)*time.Second/fps
	fmt.Printf("run %d of %d, %v\n", run+1, o.Runs, duration.Round(time.Second))
	r, err := robot.ByName(o.Robot)
	if err != nil {
		return err
	}
	cmd := stage.Command(stage.Program(o.Bin, "edge-rt"), stage.SimRobot(r, server.Endpoint, "--camera", extra,
		"--fps", strconv.Itoa(fps), "--duration", duration.String(), "--seed", strconv.Itoa(run), "--json",
		filepath.Join(dir, "edge.json"))...)
	cmd.Stderr = screen
	edge, err := stage.Start(stage.Show(cmd))
	if err != nil {
		return err
	}
	if err := edge.Wait(duration + edgeLimit); err != nil {
		return err
	}
	if err := scrape(port); err != nil {
		return err
	}
	if err := server.Stop(); err != nil {
		return err
	}
	return judge(dir, o)
}

// scrape reads the metrics once, as soon as the program at the port answers.
func scrape(port string) error {
	for end := time.Now().Add(askLimit); ; time.Sleep(50 * time.Millisecond) {
		if _, err := stage.Scrape("127.0.0.1:" + port); err == nil || time.Now().After(end) {
			return err
		}
	}
}

func judge(dir string, o options) error {
	var edge edge.Summary
	var server server.Summary
	if err := errors.Join(stage.ReadJSON(filepath.Join(dir, "edge.json"), &edge),
		stage.ReadJSON(filepath.Join(dir, "server.json"), &server)); err != nil {
		return err
	}
	fmt.Printf("%d allocations and %d collections in %d ticks (want 0 and 0 in %d or more, and at most %d of the Go "+
		"runtime's own), lateness p99 %.0f us, "+
		"RSS %.0f MB, lean-server's %.0f MB\n",
		edge.PathMallocs, edge.GCCycles, edge.MallocWindow, o.Ticks, ownLimit, edge.LatenessUS.P99, edge.RSSMB,
		server.RSSMB)
	frames := edge.Frames["extra"]
	fmt.Printf("camera extra: %d pictures and %d dropped in %.0f s\n", frames.Captured, frames.Dropped, edge.Seconds)
	switch {
	case float64(frames.Captured+frames.Dropped) < edge.Seconds*extraFPS/2:
		return errors.New("the extra camera did not run")
	case edge.Record.Saves > 0 && (edge.PathMallocs > ownLimit || edge.GCCycles != 0):
		return errors.New("something happened that the record was written for, which allocates")
	case edge.PathMallocs > ownLimit || edge.GCCycles != 0 || edge.Chunks == 0:
		return errNotSteady
	case edge.MallocWindow < o.Ticks:
		return errShort
	}
	return nil
}
