// Rehearsal plays the operation of a fleet on one machine: two official routers, three lean-servers and many
// robots on simulated arms, each in a network namespace of its own, with mutual TLS and the routers' access
// control. It updates the servers, rolls a model out, renews every certificate, kills a router and pulls
// cables, reads the metrics meanwhile, and compares each phase with the documented bounds.
//
//	make rehearsal                                          # as root, with iproute2
//	make rehearsal REHEARSAL='--robots 12 --fps 30'
package main

import (
	"errors"
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
	Bin        string        `default:"bin" help:"folder of the two programs"`
	Python     string        `default:".venv/bin/python" help:"interpreter that has the wheel of the official router"`
	Packages   string        `default:".venv/zenoh-1.10" help:"folder of another version of that wheel"`
	Routers    string        `default:"examples/router" help:"folder of the routers' configuration"`
	Bundles    string        `default:"testdata/demo" help:"folder of the bundles"`
	Monitoring string        `default:"deploy/monitoring" help:"folder of Prometheus' configuration"`
	Prometheus string        `help:"a prometheus that scrapes the fleet, for the last columns"`
	Keep       string        `help:"folder to keep logs, records and summaries in"`
	Only       string        `help:"one phase, by a part of its name"`
	Robots     int           `default:"30" help:"robots at once, 1 to 200"`
	FPS        float64       `default:"15" help:"actions per second of each"`
	Settle     time.Duration `default:"10s" help:"how long all are watched after each event"`
}

func main() {
	run := rehearse
	if os.Getenv(inside) == "" {
		run = isolated
	}
	stage.Tool(run)
}

// isolated runs this program in a network and a mount namespace of its own.
func isolated(o options) error {
	if o.Robots < 1 || o.Robots > mostRobots {
		return fmt.Errorf("--robots %d: want 1 to %d", o.Robots, mostRobots)
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
	dir, done, err := stage.Folder(o.Keep)
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
		if !strings.Contains(p.name, o.Only) {
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
		return fmt.Errorf("no phase is called %q", o.Only)
	}
	table(rows)
	f.end(began)
	return f.checks.Err()
}

// table prints the rows for docs/lab/rehearsal.md.
func table(rows []row) {
	fmt.Println(
		"\n| phase | s | robots that changed their server | starved ticks, of robots | an episode's first chunk " +
			"| all stream again after | shortest runway | round trip p50, p99 | wait at the server p99 | alerts |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|---|")
	for _, r := range rows {
		again := ""
		if r.again > 0 {
			again = fmt.Sprintf("%.1f s", r.again.Seconds())
		}
		fmt.Printf("| %s | %.0f | %d | %.0f, %d | %.2f s | %s | %.2f s | %s |\n", r.name, r.took.Seconds(), r.moved,
			r.starved, r.hungry, r.first, again, r.runway, strings.Join(r.answers, " | "))
	}
	fmt.Println()
}
