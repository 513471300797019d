// Soak runs several edges with one server, kills the server from time to time with SIGKILL, and
// checks that every arm holds, recovers by itself and continues to reach targets.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/edge"
	"github.com/edge-rt/edge-rt/stage"
)

const (
	watchEvery = 20 * time.Millisecond
	backLimit  = time.Minute
	edgeLimit  = 2 * time.Minute // longest wait for a robot to end by itself
	noticeTime = 2 * time.Second // time without a server after which every robot has left STREAMING
)

type options struct {
	Bin      string        `default:"bin" help:"folder of the two programs"`
	Manifest string        `default:"testdata/demo/server.yaml" help:"what the server serves"`
	Keep     string        `name:"json" help:"folder to keep the summaries in"`
	Edges    int           `default:"3" help:"robots at once"`
	Kills    uint          `default:"5" help:"times the server is killed"`
	Duration time.Duration `default:"10m" help:"how long the arms run"`
	Down     time.Duration `default:"5s" help:"how long the server stays away"`
	Targets  int           `default:"30" help:"fewest targets of every edge"`
	Own      uint64        `help:"most own overruns of an edge"`
	Back     time.Duration `default:"2s" help:"longest time from the server's return to every robot's next action"`
}

func main() { stage.Tool(soak) }

// fleet is one run.
type fleet struct {
	o      options
	dir    string
	server *stage.Server
	edges  []*stage.Child
}

func soak(o options) error {
	dir, done, err := stage.Folder(o.Keep)
	if err != nil {
		return err
	}
	defer done()
	f := &fleet{o: o, dir: dir}
	if f.server, err = stage.Serve(context.Background(), o.Bin, o.Manifest); err != nil {
		return err
	}
	defer f.end()
	for i := range o.Edges {
		log, err := os.Create(f.log(i))
		if err != nil {
			return err
		}
		defer log.Close()
		cmd := f.edge(stage.SimArm(f.server.Endpoint, "--id", f.id(i), "--duration", o.Duration.String(),
			"--seed", strconv.Itoa(i+1), "--json", f.summary(i))...)
		cmd.Stderr = log
		edge, err := stage.Start(stage.Show(cmd))
		if err != nil {
			return err
		}
		f.edges = append(f.edges, edge)
	}
	slowest, err := f.killing()
	if err != nil {
		return err
	}
	for i, e := range f.edges {
		if err := e.Wait(o.Duration + edgeLimit); err != nil {
			return fmt.Errorf("%s: %w", f.id(i), err)
		}
	}
	return f.judge(slowest)
}

func (f *fleet) id(i int) string               { return fmt.Sprintf("soak%d", i+1) }
func (f *fleet) summary(i int) string          { return filepath.Join(f.dir, f.id(i)+".json") }
func (f *fleet) log(i int) string              { return filepath.Join(f.dir, f.id(i)+".log") }
func (f *fleet) edge(args ...string) *exec.Cmd { return stage.Edge(f.o.Bin, f.dir, args...) }

func (f *fleet) end() {
	for _, e := range f.edges {
		e.Kill() // Kill has no effect on an edge that has ended
	}
	f.server.Stop()
}

// killing kills the server at equal intervals. It returns the longest time from the server's return
// until a robot's next chunk.
func (f *fleet) killing() (slowest time.Duration, err error) {
	pause := f.o.Duration / time.Duration(f.o.Kills+1)
	for k := range f.o.Kills {
		time.Sleep(pause - f.o.Down)
		f.server.Kill()
		time.Sleep(f.o.Down)
		before, err := f.status()
		if err != nil {
			return 0, err
		}
		if err := f.holding(before); err != nil {
			return 0, fmt.Errorf("after kill %d: %w", k+1, err)
		}
		if err := f.server.Start(context.Background()); err != nil {
			return 0, err
		}
		took, err := f.allBack(before, time.Now())
		if err != nil {
			return 0, fmt.Errorf("after kill %d: %w", k+1, err)
		}
		fmt.Printf("kill %d: every robot had a new chunk %v after the server was back\n", k+1,
			took.Round(time.Millisecond))
		slowest = max(slowest, took)
	}
	return slowest, nil
}

// allBack waits until every robot has merged more chunks than its status in the list before shows. It returns the time
// since the given instant.
func (f *fleet) allBack(before []status, since time.Time) (time.Duration, error) {
	for end := time.Now().Add(backLimit); time.Now().Before(end); time.Sleep(watchEvery) {
		now, err := f.status()
		if err != nil {
			return 0, err
		}
		waiting := 0
		for i := range now {
			if now[i].Chunks <= before[i].Chunks {
				waiting++
			}
		}
		if waiting == 0 {
			return time.Since(since), nil
		}
	}
	return 0, fmt.Errorf("not every robot came back within %v", backLimit)
}

// holding checks that every robot waits for a server, unless the server was down too briefly for the robots to notice.
func (f *fleet) holding(now []status) error {
	for i, s := range now {
		if f.o.Down >= noticeTime && s.State != "DEGRADED" && s.State != "RECONNECTING" {
			return fmt.Errorf("%s is %s without a server, want DEGRADED or RECONNECTING", f.id(i), s.State)
		}
	}
	return nil
}

// status is the used part of an edge's answer to ctl status.
type status struct {
	State  string `json:"state"`
	Chunks uint64 `json:"chunks"` // chunks merged so far
}

func (f *fleet) status() (all []status, err error) {
	for i := range f.edges {
		var s status
		if err := stage.Ctl(f.o.Bin, f.dir, f.id(i), "status", &s); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

func (f *fleet) judge(slowest time.Duration) error {
	var checks stage.Checks
	for i := range f.o.Edges {
		var r edge.Summary
		if err := stage.ReadJSON(f.summary(i), &r); err != nil {
			return err
		}
		checks.That(r.Targets >= f.o.Targets && r.OverrunsOwn <= f.o.Own && r.Sessions == uint64(f.o.Kills)+1,
			"%s: %d targets (want %d), %d collisions, %d ticks, overruns own %d (want %d), starved %d, %d sessions "+
				"(want %d), host took %.1f s",
			f.id(i), r.Targets, f.o.Targets, r.Collisions, r.Ticks, r.OverrunsOwn, f.o.Own, r.StarvedTicks, r.Sessions,
			f.o.Kills+1,
			r.StealMS/1000)
		if r.OverrunsOwn > 0 {
			f.explain(i)
		}
	}
	checks.That(slowest <= f.o.Back, "slowest return %v, want at most %v", slowest.Round(time.Millisecond), f.o.Back)
	return checks.Err()
}

// explain prints the lines of robot i's log about its overruns.
func (f *fleet) explain(i int) {
	b, err := os.ReadFile(f.log(i))
	if err != nil {
		return
	}
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, "longer than its period") {
			fmt.Print("      ", line)
		}
	}
}
