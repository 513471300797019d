// Cut puts a server and an edge into two network namespaces, and removes the cable between them for a while. The first
// observation that the server gets afterwards must be the newest one, down to the last byte.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/edge"
	"github.com/edge-rt/edge-rt/stage"
	"golang.org/x/sys/unix"
)

// The namespaces of this test and the cable between them. The addresses exist only inside these
// namespaces.
const (
	serverSpace, edgeSpace = "edgert-server", "edgert-edge"
	serverCable, edgeCable = "edgert-s", "edgert-e"
	serverAddr, edgeAddr   = "10.77.0.1", "10.77.0.2"
	port                   = "7447"

	settle    = 8 * time.Second
	edgeLimit = time.Minute
)

type options struct {
	Bin      string        `default:"bin" help:"folder of the two programs"`
	Manifest string        `default:"testdata/demo/server.yaml" help:"what the server serves"`
	Cut      time.Duration `default:"2s" help:"how long the cable is away"`
	After    time.Duration `default:"6s" help:"between two cuts"`
	Cuts     int           `default:"3" help:"how many cuts"`
	Age      time.Duration `default:"200ms" help:"how old the first observation after a cut may be"`
}

func main() { stage.Tool(run) }

func ip(args ...string) error {
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s (needs root and iproute2)", strings.Join(args, " "), err, out)
	}
	return nil
}

func addCable() error {
	for _, args := range [][]string{
		{"netns", "add", serverSpace},
		{"netns", "add", edgeSpace},
		{"link", "add", serverCable, "netns", serverSpace, "type", "veth", "peer", "name", edgeCable,
			"netns", edgeSpace},
		{"-n", serverSpace, "addr", "add", serverAddr + "/24", "dev", serverCable},
		{"-n", edgeSpace, "addr", "add", edgeAddr + "/24", "dev", edgeCable},
		{"-n", serverSpace, "link", "set", serverCable, "up"},
		{"-n", edgeSpace, "link", "set", edgeCable, "up"},
		{"-n", serverSpace, "link", "set", "lo", "up"},
		{"-n", edgeSpace, "link", "set", "lo", "up"},
	} {
		if err := ip(args...); err != nil {
			return err
		}
	}
	return nil
}

func removeCable() {
	exec.Command("ip", "netns", "del", serverSpace).Run()
	exec.Command("ip", "netns", "del", edgeSpace).Run()
}

func run(o options) error {
	dir, err := os.MkdirTemp("", "edgert-cut-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	removeCable() // left by a run that was killed
	defer removeCable()
	if err := addCable(); err != nil {
		return err
	}
	audit, summary := filepath.Join(dir, "audit.jsonl"), filepath.Join(dir, "edge.json")
	server, err := startIn(serverSpace, o.Bin, dir, "lean-server", "--quiet", "--manifest", o.Manifest,
		"--listen", "tcp/"+serverAddr+":"+port, "--health-port", "0", "--audit", audit)
	if err != nil {
		return err
	}
	defer server.Stop()
	duration := settle + time.Duration(o.Cuts)*(o.Cut+o.After)
	edge, err := startIn(edgeSpace, o.Bin, dir, "edge-rt",
		stage.SimArm("tcp/"+serverAddr+":"+port, "--duration", duration.String(), "--json", summary)...)
	if err != nil {
		return err
	}
	time.Sleep(settle)
	var back []time.Time
	for range o.Cuts {
		// With the server's end down, the edge's end has no carrier either, and no packet gets
		// through in either direction.
		if err := ip("-n", serverSpace, "link", "set", serverCable, "down"); err != nil {
			edge.Kill()
			return err
		}
		time.Sleep(o.Cut)
		if err := ip("-n", serverSpace, "link", "set", serverCable, "up"); err != nil {
			edge.Kill()
			return err
		}
		back = append(back, time.Now())
		time.Sleep(o.After)
	}
	if err := edge.Wait(edgeLimit); err != nil {
		return err
	}
	if err := server.Stop(); err != nil {
		return err
	}
	return judge(o, audit, summary, back)
}

// startIn starts a program in a network namespace. The command ip becomes the program, so the
// process id is the program's.
func startIn(namespace, bin, dir, name string, args ...string) (*stage.Child, error) {
	cmd := stage.Command("ip", append([]string{"netns", "exec", namespace, stage.Program(bin, name)}, args...)...)
	cmd.Env = append(cmd.Env, "STATE_DIRECTORY="+dir)
	return stage.Start(stage.Show(cmd))
}

// line is the part of an audit line that the test reads.
type line struct {
	TS      time.Time `json:"ts"`
	Mono    int64     `json:"client_mono_ns"`
	Service float64   `json:"service_ms"`
}

// bootTime returns the wall clock's time at the zero of the monotonic clock. Both namespaces share
// that clock, so this test may compare instants of the two programs.
func bootTime() time.Time {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return time.Now().Add(-time.Duration(ts.Nano()))
}

func judge(o options, audit, summary string, back []time.Time) error {
	lines, err := stage.ReadAudit[line](audit, false)
	if err != nil {
		return err
	}
	slices.SortFunc(lines, func(a, b line) int { return a.TS.Compare(b.TS) })
	boot := bootTime()
	var checks stage.Checks
	for i, t := range back {
		first := slices.IndexFunc(lines, func(l line) bool { return l.TS.After(t) })
		if first < 0 {
			checks.That(false, "cut %d: the server saw nothing afterwards", i+1)
			continue
		}
		l := lines[first]
		arrived := l.TS.Add(-time.Duration(l.Service * float64(time.Millisecond)))
		age := arrived.Sub(boot.Add(time.Duration(l.Mono)))
		checks.That(age <= o.Age, "cut %d of %v: first observation %v after the cable was back, %v old (want at most "+
			"%v)",
			i+1, o.Cut, arrived.Sub(t).Round(time.Millisecond), age.Round(time.Millisecond), o.Age)
	}
	var s edge.Summary
	if err := stage.ReadJSON(summary, &s); err != nil {
		return err
	}
	fmt.Printf("the arm: held for %.1f s of %.0f s, reached %d targets, %d collisions; states %v\n",
		float64(s.StarvedTicks)/s.FPS, float64(s.Ticks)/s.FPS, s.Targets, s.Collisions, s.InState)
	return checks.Err()
}
