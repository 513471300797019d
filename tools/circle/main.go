// Circle runs the whole cycle with the real programs: a scripted teacher teleoperates a simulated
// arm for episodes, edge-rt dataset makes a LeRobotDataset of them, LeRobot's training script
// trains an ACT, edgert-export makes a bundle, lean-server serves it, edge-rt runs it. Then the
// teacher corrects the policy, LeRobot trains it further from its checkpoint, and the same worlds
// evaluate it again.
//
// Every hand-over from one program to the next is checked. The results of a stage stay in the
// folder of --out, so that --from STAGE continues after the completed stages.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/stage"
)

type options struct {
	Bin string `default:"bin" help:"folder of the programs"`
	Env string `default:".venv-export" help:"Python environment of LeRobot and edgert-export (make export-env)"`
	Out string `help:"folder for all that is made; default: .cache/circle, with --short a temporary one"`
	Log string `help:"write the steps and results here, as Markdown"`
	portable
}

// portable are the options that mean the same on every machine.
type portable struct {
	Episodes int    `help:"demonstrations; default: 40, with --short 4"`
	From     string `help:"go on with this stage, such as bundle; take the results of those before from --out"`
	More     int    `help:"steps of the second training; default: 1500, with --short 10"`
	Short    bool   `help:"a few episodes and training steps: checks every hand-over, not the success"`
	Steps    int    `help:"training steps; default: 3000, with --short 20"`
	Threads  int    `help:"of the training; default: one for each CPU"`
}

func main() { stage.LongTool(circle) }

// circle runs the stages. It writes the log even if the round fails.
func circle(ctx context.Context, o options) error {
	p, done, err := prepare(o)
	if err != nil {
		return err
	}
	defer done()
	r, err := load(p, o.From)
	if err != nil {
		return err
	}
	err = r.run(ctx, o.From)
	if ctx.Err() != nil {
		err = exit.Errorf(exit.Failure, "interrupted; --from %s goes on", r.at)
	}
	if o.Log != "" {
		err = errors.Join(err, os.WriteFile(o.Log, []byte(r.markdown(err)), 0o644))
	}
	return err
}

// prepare makes the plan and its folder, and checks that the programs of the stages exist.
func prepare(o options) (p plan, done func(), err error) {
	p = full
	if o.Short {
		p = short
	}
	p.apply(o)
	if err := p.check(); err != nil {
		return p, nil, err
	}
	keep := o.Out
	if keep == "" && !o.Short {
		keep = filepath.Join(".cache", "circle")
	}
	if p.dir, done, err = stage.Folder(keep); err != nil {
		return p, nil, err
	}
	if p.dir, err = filepath.Abs(p.dir); err != nil {
		done()
		return p, nil, err
	}
	return p, done, nil
}

// say prints a line of progress.
func say(format string, args ...any) {
	fmt.Printf("%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}
