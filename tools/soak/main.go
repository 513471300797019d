// Soak runs several edges with one server, kills the server from time to time with SIGKILL, and
// checks that every arm holds, recovers by itself and continues to reach targets.
package main

import (
	"context"
	"flag"
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
	edgeLimit  = 2 * time.Minute // for a robot to end by itself
	noticeTime = 2 * time.Second // without a server, for every robot to leave STREAMING
)

type options struct {
	bin, manifest, keep string
	edges, kills        int
	duration, down      time.Duration
	targets             int
	own                 uint64
	back                time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "folder of the two programs")
	flag.StringVar(&o.manifest, "manifest", "testdata/demo/server.yaml", "what the server serves")
	flag.StringVar(&o.keep, "json", "", "folder to keep the summaries in")
	flag.IntVar(&o.edges, "edges", 3, "robots at once")
	flag.IntVar(&o.kills, "kills", 5, "times the server is killed")
	flag.DurationVar(&o.duration, "duration", 10*time.Minute, "how long the arms run")
	flag.DurationVar(&o.down, "down", 5*time.Second, "how long the server stays away")
	flag.IntVar(&o.targets, "targets", 30, "fewest targets of every edge")
	flag.Uint64Var(&o.own, "own", 0, "most own overruns of an edge")
	flag.DurationVar(&o.back, "back", 2*time.Second,
		"longest time from the server's return to every robot's next action")
	flag.Parse()
	if err := soak(o); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

// fleet is one run.
type fleet struct {
	o      options
	dir    string
	server *stage.Server
	edges  []*stage.Child
}

func soak(o options) error {
	dir, done, err := stage.Folder(o.keep)
	if err != nil {
		return err
	}
	defer done()
	f := &fleet{o: o, dir: dir}
	if f.server, err = stage.NewServer(o.bin, o.manifest); err != nil {
		return err
	}
	if err := f.server.Start(context.Background()); err != nil {
		return err
	}
	defer f.end()
	for i := range o.edges {
		log, err := os.Create(f.log(i))
		if err != nil {
			return err
		}
		defer log.Close()
		cmd := f.edge(stage.SimArm(f.server.Endpoint, "--id", f.id(i), "--duration", o.duration.String(),
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
		if err := e.Wait(o.duration + edgeLimit); err != nil {
			return fmt.Errorf("%s: %w", f.id(i), err)
		}
	}
	return f.judge(slowest)
}

func (f *fleet) id(i int) string               { return fmt.Sprintf("soak%d", i+1) }
func (f *fleet) summary(i int) string          { return filepath.Join(f.dir, f.id(i)+".json") }
func (f *fleet) log(i int) string              { return filepath.Join(f.dir, f.id(i)+".log") }
func (f *fleet) edge(args ...string) *exec.Cmd { return stage.Edge(f.o.bin, f.dir, args...) }

func (f *fleet) end() {
	for _, e := range f.edges {
		e.Kill() // no effect on an ended one
	}
	f.server.Stop()
}

// killing kills the server at equal intervals and returns the longest time that a robot waited for
// its next chunk after the server was back.
func (f *fleet) killing() (slowest time.Duration, err error) {
	pause := f.o.duration / time.Duration(f.o.kills+1)
	for k := range f.o.kills {
		time.Sleep(pause - f.o.down)
		f.server.Kill()
		time.Sleep(f.o.down)
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

// allBack waits until every robot has merged a new chunk.
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

// holding checks that every robot waits, unless the server was down too briefly.
func (f *fleet) holding(now []status) error {
	for i, s := range now {
		if f.o.down >= noticeTime && s.State != "DEGRADED" && s.State != "RECONNECTING" {
			return fmt.Errorf("%s is %s without a server, want DEGRADED or RECONNECTING", f.id(i), s.State)
		}
	}
	return nil
}

// status is the used part of an edge's answer to ctl status.
type status struct {
	State  string `json:"state"`
	Chunks uint64 `json:"chunks"` // merged so far
}

func (f *fleet) status() (all []status, err error) {
	for i := range f.edges {
		var s status
		if err := stage.Ctl(f.o.bin, f.dir, f.id(i), "status", &s); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

func (f *fleet) judge(slowest time.Duration) error {
	var checks stage.Checks
	for i := range f.o.edges {
		var r edge.Summary
		if err := stage.ReadJSON(f.summary(i), &r); err != nil {
			return err
		}
		checks.That(r.Targets >= f.o.targets && r.OverrunsOwn <= f.o.own && r.Sessions == uint64(f.o.kills)+1,
			"%s: %d targets (want %d), %d collisions, %d ticks, overruns own %d (want %d), starved %d, %d sessions "+
				"(want %d), host took %.1f s",
			f.id(i), r.Targets, f.o.targets, r.Collisions, r.Ticks, r.OverrunsOwn, f.o.own, r.StarvedTicks, r.Sessions,
			f.o.kills+1,
			r.StealMS/1000)
		if r.OverrunsOwn > 0 {
			f.explain(i)
		}
	}
	checks.That(slowest <= f.o.back, "slowest return %v, want at most %v", slowest.Round(time.Millisecond), f.o.back)
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
