// Rehearsal plays the operation of a fleet on one machine: two official routers, three lean-servers and many
// robots on simulated arms, each in a network namespace of its own, with mutual TLS and the routers'
// access control. It updates the servers, rolls a model out, renews every certificate, kills a router and
// pulls cables, reads each program's metrics meanwhile, and judges each phase by the documented bounds.
//
//	make rehearsal                                          # as root, with iproute2
//	make rehearsal REHEARSAL='--robots 12 --fps 30'
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/edge-rt/edge-rt/stage"
)

// inside is set in the environment of the process that has the rehearsal's network.
const inside = "EDGERT_REHEARSAL"

type options struct {
	bin, python, packages string
	routers, bundles      string // folders examples/router and testdata/demo
	monitoring            string // folder deploy/monitoring
	prometheus            string // its program; "": none
	keep, only            string
	robots                int
	fps                   float64
	settle                time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "folder of the two programs")
	flag.StringVar(&o.python, "python", ".venv/bin/python", "interpreter that has the wheel of the official router")
	flag.StringVar(&o.packages, "packages", ".venv/zenoh-1.10", "folder of another version of that wheel")
	flag.StringVar(&o.routers, "routers", "examples/router", "folder of the routers' configuration")
	flag.StringVar(&o.bundles, "bundles", "testdata/demo", "folder of the bundles")
	flag.StringVar(&o.monitoring, "monitoring", "deploy/monitoring", "folder of Prometheus' configuration")
	flag.StringVar(&o.prometheus, "prometheus", "", "a prometheus that scrapes the fleet, for the last columns")
	flag.StringVar(&o.keep, "keep", "", "folder to keep logs, records and summaries in")
	flag.StringVar(&o.only, "only", "", "one phase, by a part of its name")
	flag.IntVar(&o.robots, "robots", 30, "robots at once, 1 to 200")
	flag.Float64Var(&o.fps, "fps", 15, "actions per second of each")
	flag.DurationVar(&o.settle, "settle", 10*time.Second, "how long all are watched after each event")
	flag.Parse()
	run := rehearse
	if os.Getenv(inside) == "" {
		run = isolated
	}
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "rehearsal:", err)
		os.Exit(1)
	}
}

// isolated runs this program in a network and a mount namespace of its own.
func isolated(o options) error {
	if o.robots < 1 || o.robots > mostRobots {
		return fmt.Errorf("--robots %d: want 1 to %d", o.robots, mostRobots)
	}
	cmd := stage.Show(exec.Command(os.Args[0], os.Args[1:]...))
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		Pdeathsig:  syscall.SIGTERM,
	}
	err := cmd.Run()
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w: only root makes network namespaces", err)
	}
	return err
}

func rehearse(o options) (err error) {
	dir, done, err := stage.Folder(o.keep)
	if err != nil {
		return err
	}
	defer done()
	f, err := newFleet(o, dir)
	if err != nil {
		return err
	}
	defer f.kill()
	began := time.Now()
	if err := f.startAll(); err != nil {
		return err
	}
	var rows []row
	played := false
	for _, p := range phases {
		if !strings.Contains(p.name, o.only) {
			continue
		}
		played = true
		r, err := f.play(p)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		rows = append(rows, r)
	}
	if !played {
		return fmt.Errorf("no phase is called %q", o.only)
	}
	table(rows)
	f.end(began)
	return f.checks.Err()
}

// table prints the rows for docs/lab/rehearsal.md.
func table(rows []row) {
	fmt.Println(
		"\n| phase | s | robots that changed their server | starved ticks, of robots | all stream again after " +
			"| shortest runway | round trip p50, p99 | wait at the server p99 | alerts |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|")
	for _, r := range rows {
		again := ""
		if r.again > 0 {
			again = fmt.Sprintf("%.1f s", r.again.Seconds())
		}
		fmt.Printf("| %s | %.0f | %d | %.0f, %d | %s | %.2f s | %s |\n", r.name, r.took.Seconds(), r.moved, r.starved,
			r.hungry, again, r.runway, strings.Join(r.answers, " | "))
	}
	fmt.Println()
}
