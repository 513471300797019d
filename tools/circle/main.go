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
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/stage"
)

type options struct {
	bin, env, out, log, from string
	short                    bool
	steps, more, threads     int
	episodes                 int
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "folder of the programs")
	flag.StringVar(&o.env, "env", ".venv-export",
		"Python environment of LeRobot and edgert-export (make export-env, tools/dataset/setup.sh)")
	flag.StringVar(&o.out, "out", "",
		"folder for all that is made; default: .cache/circle, with --short a temporary one")
	flag.StringVar(&o.log, "log", "", "write the steps and results here, as Markdown")
	flag.StringVar(&o.from, "from", "", "go on with this stage; take the results of those before from --out: "+
		strings.Join(stageNames(), ", "))
	flag.BoolVar(&o.short, "short", false, "a few episodes and training steps: checks every hand-over, not the success")
	flag.IntVar(&o.episodes, "episodes", 0, "demonstrations; default: 40, with --short 4")
	flag.IntVar(&o.steps, "steps", 0, "training steps; default: 3000, with --short 20")
	flag.IntVar(&o.more, "more", 0, "steps of the second training; default: 1500, with --short 10")
	flag.IntVar(&o.threads, "threads", runtime.NumCPU(), "of the training")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	err := circle(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "circle:", err)
		os.Exit(int(exit.Of(err)))
	}
}

// circle runs the stages. It writes the log even if the round fails.
func circle(ctx context.Context, o options) error {
	if flag.NArg() > 0 {
		return exit.Errorf(exit.Usage, "%q: want flags only", flag.Arg(0))
	}
	p, done, err := prepare(o)
	if err != nil {
		return err
	}
	defer done()
	r, err := load(p, o.from)
	if err != nil {
		return err
	}
	err = r.run(ctx, o.from)
	if ctx.Err() != nil {
		err = exit.Errorf(exit.Failure, "interrupted; --from %s goes on", r.at)
	}
	if o.log != "" {
		err = errors.Join(err, os.WriteFile(o.log, []byte(r.markdown(err)), 0o644))
	}
	return err
}

// prepare makes the plan and its folder, and checks that the programs of the stages exist.
func prepare(o options) (p plan, done func(), err error) {
	p = full
	if o.short {
		p = short
	}
	p.apply(o)
	if err := p.check(); err != nil {
		return p, nil, err
	}
	keep := o.out
	if keep == "" && !o.short {
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
