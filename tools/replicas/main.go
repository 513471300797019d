// Replicas runs robots and several lean-servers at the official router, lets servers join, drain,
// die, hang, be full or serve other bundles, and the router restart. It checks that no robot loses
// its session because of another server's end, that no observation is inferred twice, and how soon
// the robots of an ended server stream again. Every program is the real one; the inferences are
// read from the servers' audits.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/stage"
)

// calmLimit bounds the wait for a calm machine before a scenario is played again.
const calmLimit = time.Minute

type options struct {
	bin, python, packages string
	routers, bundles      string // folders examples/router and testdata/demo
	keep                  string
	robots                int
	fps                   float64
	settle                time.Duration
	again                 time.Duration // longest time after a server's end until its robots stream again
	only                  string
	short                 bool
	tries                 int
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "folder of the two programs")
	flag.StringVar(&o.python, "python", os.Getenv("EDGERT_PYTHON"),
		"interpreter that has the wheel of the official router")
	flag.StringVar(&o.packages, "packages", "", "folder of another version of that wheel")
	flag.StringVar(&o.routers, "routers", "examples/router", "folder of the router's configuration")
	flag.StringVar(&o.bundles, "bundles", "testdata/demo", "folder of the bundles")
	flag.StringVar(&o.keep, "keep", "", "folder to keep logs, audits and summaries in")
	flag.IntVar(&o.robots, "robots", 12, "robots at once")
	flag.Float64Var(&o.fps, "fps", 30, "actions per second of each")
	flag.DurationVar(&o.settle, "settle", 5*time.Second, "how long all are watched after each event")
	flag.DurationVar(&o.again, "again", 3*time.Second, "longest time until the robots of a killed server stream again")
	flag.StringVar(&o.only, "only", "", "one scenario, by a part of its name")
	flag.BoolVar(&o.short, "short", false, "only the scenarios that CI runs")
	flag.IntVar(&o.tries, "tries", 1, "times that a scenario that fails is played, each on a calm machine")
	flag.Parse()
	if err := replicas(o); err != nil {
		fmt.Fprintln(os.Stderr, "replicas:", err)
		os.Exit(1)
	}
}

func replicas(o options) error {
	dir, done, err := stage.Folder(o.keep)
	if err != nil {
		return err
	}
	defer done()
	var rows []row
	var failed []string
	for i, sc := range scenarios {
		if !strings.Contains(sc.name, o.only) || o.short && !sc.short {
			continue
		}
		var r row
		for try := 1; ; try++ {
			s := &stand{o: o, dir: filepath.Join(dir, fmt.Sprintf("%02d", i+1))}
			if r, err = s.play(sc); err != nil {
				err = fmt.Errorf("%s: %w", sc.name, err)
			} else {
				err = r.judge(sc, o)
			}
			if err == nil {
				break
			}
			s.show()
			if try >= o.tries {
				failed = append(failed, err.Error())
				break
			}
			fmt.Printf("once more: %v\n", err)
			stage.Calm(calmLimit)
		}
		rows = append(rows, r)
	}
	table(rows)
	switch {
	case len(failed) > 0:
		return errors.New(strings.Join(failed, "; "))
	case len(rows) == 0:
		return fmt.Errorf("no scenario is called %q", o.only)
	}
	return nil
}

// table prints the rows for docs/lab/serving.md.
func table(rows []row) {
	fmt.Println("\n| what | robots | moved | next chunk after, worst | starved ticks, all robots | inferred | twice " +
		"| lost with a server |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	for _, r := range rows {
		again := ""
		if r.moved > 0 {
			again = fmt.Sprintf("%.2f s ", r.again.Seconds())
		}
		fmt.Printf("| %s | %d | %d | %s| %d | %d | %d | %d |\n", r.name, r.robots, r.moved, again, r.starved,
			r.inferred, r.twice, r.missing)
	}
}

// row is the result of one scenario.
type row struct {
	name       string
	robots     int
	lost       int           // robots that lost a session although their server had not ended
	moved      int           // times that a robot's server ended
	again      time.Duration // the longest time until its next chunk
	starved    uint64        // ticks, without those on which the bus was silent
	inferred   int           // observations
	twice      int           // of them
	superseded int           // observations replaced by a newer one with an inference
	missing    int           // observations neither inferred nor replaced
	problems   []string
}

// judge prints the checks.
func (r *row) judge(sc scenario, o options) error {
	var checks stage.Checks
	slices.Sort(r.problems)
	checks.That(len(r.problems) == 0, "%s: every program did as it should %s", r.name, strings.Join(r.problems, "; "))
	checks.That(r.lost == 0, "%s: %d robots of %d lost a session for another's sake", r.name, r.lost, r.robots)
	checks.That(r.twice == 0 && r.inferred > 0, "%s: %d observations were inferred, %d of them twice", r.name,
		r.inferred, r.twice)
	most := sc.dies * r.moved
	checks.That(r.missing <= most, "%s: %d observations were lost (at most %d for each robot that moved)", r.name,
		r.missing, sc.dies)
	if sc.again {
		checks.That(r.moved > 0 && r.again <= o.again,
			"%s: %d robots moved, the last streamed again after %.2f s (want %v)", r.name, r.moved, r.again.Seconds(),
			o.again)
	}
	if sc.fed {
		checks.That(r.starved == 0, "%s: %d ticks starved, beside those of a silent bus", r.name, r.starved)
	}
	return checks.Err()
}
