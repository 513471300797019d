package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/stage"
)

// The values common to all rounds.
const (
	fps         = 30
	task        = "around the post"
	robotName   = "so101"
	id          = "circle"
	calibration = "testdata/demo/so101.json"
	pictures    = ":80x60@30"
	units       = "degrees,degrees,degrees,degrees,degrees,range_0_100"
	worst       = 1e-4 // largest deviation: edgert-export's limit for a graph in float32
	batch       = 8
)

// plan has the sizes of one round (episodes, training steps, evaluations and time limits) and its folders.
type plan struct {
	given   options
	dir     string
	threads int
	whole   bool // the success is evaluated, too

	worlds, episodes int // demonstrations: number of worlds, and of episodes together
	legs             int // targets of an episode
	corrections      int
	corrected        int // targets of a correction
	steps, more      int // steps of the first training, and of the second one
	chunk            int
	net              []string      // options that make the ACT small
	judge            []int         // seeds of the worlds in which the policy is evaluated
	judged           time.Duration // time of the policy in each of these worlds
	teach, correct   time.Duration // limits of one world of demonstrations, and of all corrections
}

// full is the plan of a whole round; it is small enough for a machine of two cores to train the policy in minutes.
var full = plan{
	whole:       true,
	worlds:      8,
	episodes:    40,
	legs:        3,
	corrections: 5,
	corrected:   2,
	steps:       3000,
	more:        1500,
	chunk:       30,
	net: []string{"--policy.dim_model=256", "--policy.dim_feedforward=512", "--policy.n_encoder_layers=2",
		"--policy.n_heads=8"},
	judge:   []int{101, 102, 103, 104, 105, 106},
	judged:  45 * time.Second,
	teach:   5 * time.Minute,
	correct: 10 * time.Minute,
}

// short only checks the hand-overs.
var short = plan{
	worlds:      1,
	episodes:    4,
	legs:        1,
	corrections: 2,
	corrected:   1,
	steps:       20,
	more:        10,
	chunk:       30,
	net: []string{"--policy.dim_model=64", "--policy.dim_feedforward=128", "--policy.n_encoder_layers=1",
		"--policy.n_heads=4"},
	judge:   []int{101},
	judged:  6 * time.Second,
	teach:   2 * time.Minute,
	correct: 2 * time.Minute,
}

func (p *plan) apply(o options) {
	p.given = o
	p.episodes = cmp.Or(o.Episodes, p.episodes)
	p.steps = cmp.Or(o.Steps, p.steps)
	p.more = cmp.Or(o.More, p.more)
	p.threads = cmp.Or(o.Threads, runtime.NumCPU())
}

// check refuses impossible numbers, and names the first program or file that is missing.
func (p *plan) check() error {
	if p.episodes < p.worlds || p.steps < 1 || p.more < 1 || p.threads < 1 {
		return exit.Errorf(exit.Usage, "%d episodes, %d and %d steps, %d threads: want at least %d, 1, 1 and 1",
			p.episodes, p.steps, p.more, p.threads, p.worlds)
	}
	for _, name := range []string{"ffmpeg", "ffprobe"} {
		if _, err := exec.LookPath(name); err != nil {
			return exit.Errorf(exit.Absent,
				"%s is missing, which makes a dataset's videos: apt-get install ffmpeg, or tools/setup.sh test", name)
		}
	}
	for _, f := range []struct{ file, cure string }{
		{stage.Program(p.given.Bin, "edge-rt"), "make build"},
		{stage.Program(p.given.Bin, "lean-server"), "make build"},
		{p.tool("python"), "make export-env"},
		{p.tool("edgert-export"), "make export-env"},
		{calibration, "run it in the repository's root"},
	} {
		if _, err := os.Stat(f.file); err != nil {
			return exit.Errorf(exit.Absent, "%w: %s", err, f.cure)
		}
	}
	return nil
}

// share returns how many of the episodes are shown in world i.
func (p *plan) share(i int) int {
	return p.episodes*(i+1)/p.worlds - p.episodes*i/p.worlds
}

func (p *plan) at(name string) string { return filepath.Join(p.dir, name) }

func (p *plan) tool(name string) string {
	return stage.Program(filepath.Join(p.given.Env, "bin"), name)
}

// The files of a round in its folder.
func (p *plan) demonstrations() string    { return p.at("demonstrations") }
func (p *plan) correctionRecords() string { return p.at("corrections") }
func (p *plan) dataset(n int) string      { return p.at(fmt.Sprintf("dataset-%d", n)) }
func (p *plan) training(n int) string     { return p.at(fmt.Sprintf("training-%d", n)) }
func (p *plan) bundle(n int) string       { return p.at(fmt.Sprintf("bundle-%d", n)) }

// checkpoint returns the last checkpoint of training n.
func (p *plan) checkpoint(n int) string {
	steps := p.steps
	if n > 1 {
		steps = p.more
	}
	return filepath.Join(p.training(n), "checkpoints", fmt.Sprintf("%06d", steps), "pretrained_model")
}
