// Replicas runs robots and several lean-servers at the official router, lets servers join, drain,
// die, hang, be full or serve other bundles, and the router restart. It checks that no robot loses
// its session because of another server's end, that no observation is inferred twice, and how soon
// the robots of an ended server stream again. Every program is the real one; the inferences are
// read from the servers' audits.
package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/stage"
)

// calmLimit bounds the wait for a calm machine before a scenario is played again.
const calmLimit = time.Minute

type options struct {
	Bin      string        `default:"bin" help:"folder of the two programs"`
	Python   string        `help:"interpreter that has the wheel of the official router" env:"EDGERT_PYTHON"`
	Packages string        `help:"folder of another version of that wheel"`
	Routers  string        `default:"examples/router" help:"folder of the router's configuration"`
	Bundles  string        `default:"testdata/demo" help:"folder of the bundles"`
	Keep     string        `help:"folder to keep logs, audits and summaries in"`
	Robots   int           `default:"12" help:"robots at once"`
	FPS      float64       `default:"30" help:"actions per second of each"`
	Settle   time.Duration `default:"5s" help:"how long all are watched after each event"`
	Again    time.Duration `default:"3s" help:"longest time until the robots of a killed server stream again"`
	Only     string        `help:"one scenario, by a part of its name"`
	Short    bool          `help:"only the scenarios that CI runs"`
	Tries    int           `default:"1" help:"times that a scenario that fails is played, each on a calm machine"`
}

func main() { stage.Tool(replicas) }

func replicas(o options) error {
	dir, done, err := stage.Folder(o.Keep)
	if err != nil {
		return err
	}
	defer done()
	var rows []row
	var failed []string
	for i, sc := range scenarios {
		if !strings.Contains(sc.name, o.Only) || o.Short && !sc.short {
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
			if try >= o.Tries {
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
		return fmt.Errorf("no scenario is called %q", o.Only)
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
	again      time.Duration // longest time from the end of such a server until the robot's next chunk
	starved    uint64        // ticks without an action, except those on which the bus was silent
	inferred   int           // observations that went through an inference
	twice      int           // observations that went through more than one inference
	superseded int           // observations that the server replaced with a newer one, which was inferred
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
		checks.That(r.moved > 0 && r.again <= o.Again,
			"%s: %d robots moved, the last streamed again after %.2f s (want %v)", r.name, r.moved, r.again.Seconds(),
			o.Again)
	}
	if sc.fed {
		checks.That(r.starved == 0, "%s: %d ticks starved, beside those of a silent bus", r.name, r.starved)
	}
	return checks.Err()
}
