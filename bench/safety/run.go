package safety

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim/referee"
	"github.com/edge-rt/edge-rt/sim/servosim"
	"github.com/edge-rt/edge-rt/stage"
)

// Times of a run that do not depend on the fault.
const (
	fps    = stage.ArmFPS
	period = time.Second / fps

	armLimit   = 20 * time.Second // from an edge's start to an arm under torque
	exitLimit  = 8 * time.Second  // from SIGTERM to the end: it parks
	warmUp     = 2 * time.Second  // motion before the fault
	afterwards = 2 * time.Second  // time of checking after the fault
	resumeTime = 2500 * time.Millisecond
	torqueTime = 500 * time.Millisecond // after the end, until all must be off
	settleStep = 200 * time.Millisecond
	settleMax  = 20
	gripAhead  = 100 * time.Millisecond // time by which the robot may run a row early
	stillTime  = 600 * time.Millisecond // an arm without motion for this time holds
)

// AuditFile is the name of the server's audit in a folder of Config.Records.
const AuditFile = "audit.jsonl"

// run is one fault, played once.
type run struct {
	ctx   context.Context
	cfg   *Config
	dir   string
	fault *fault

	arm     *stage.Arm
	history history
	edge    *stage.Robot
	proxy   *stage.Proxy
	sine    *sineServer // either this or lean is the server
	lean    *leanServer

	server  string     // the server's endpoint
	at      rt.Instant // when the fault began
	over    rt.Instant // when the fault was over
	ended   rt.Instant // when the edge ended, 0 while it runs
	until   rt.Instant // the arm's actions up to this instant belong to the fault
	result  Result
	undo    []func()         // restore the changes of the fault
	other   *referee.Verdict // verdict on the second robot
	cleanup []func()
}

// now returns the time of the bus's clock.
func now() rt.Instant { return rt.KernelClock().Now() }

func play(ctx context.Context, cfg *Config, dir string, f *fault) (Result, error) {
	r := &run{
		ctx:    ctx,
		cfg:    cfg,
		dir:    dir,
		fault:  f,
		result: Result{Name: f.Name, Title: f.Title},
	}
	began := time.Now()
	defer r.close()
	err := os.MkdirAll(dir, 0o700)
	if records := filepath.Join(cfg.Records, f.Name); err == nil && cfg.Records != "" {
		err = errors.Join(os.RemoveAll(records), os.MkdirAll(records, 0o700)) // records of a try before
	}
	if err == nil {
		err = r.open()
	}
	if err == nil {
		err = r.steps()
	}
	if err != nil {
		return r.result, fmt.Errorf("%s: %w%s", f.Name, err, r.lastLines())
	}
	r.judge()
	r.result.Began, r.result.Over = r.at, r.over
	r.result.Seconds = time.Since(began).Seconds()
	return r.result, ctx.Err()
}

func (r *run) lastLines() string {
	if r.edge == nil || r.edge.Running() {
		return ""
	}
	return "; edge-rt's last lines: " + strings.ReplaceAll(r.edge.Log.Tail(3), "\n", " / ")
}

func (r *run) open() (err error) {
	if err := r.openArm(); err != nil {
		return err
	}
	if err := r.openTrace(); err != nil {
		return err
	}
	r.arm.Referee.NewRun(now())
	if r.fault.Lean {
		var flags []string
		if r.cfg.Records != "" {
			flags = []string{"--audit", filepath.Join(r.cfg.Records, r.fault.Name, AuditFile)}
		}
		if r.lean, err = openLean(r.ctx, r.cfg.Bin, r.dir, r.cfg.Tree+"/bundle", r.arm.Referee.FirstChunk,
			flags...); err != nil {
			return err
		}
		r.server = r.lean.Endpoint
		r.onClose(r.lean.close)
	} else {
		if r.sine, err = openSineServer(r.ctx, r.fault.Grip, r.arm.Referee.FirstChunk); err != nil {
			return err
		}
		r.server = r.sine.Endpoint
		r.onClose(r.sine.Close)
	}
	if r.proxy, err = stage.OpenProxy(r.server); err != nil {
		return err
	}
	r.onClose(r.proxy.Close)
	if r.fault.Before != nil {
		return r.fault.Before(r)
	}
	return nil
}

func (r *run) openArm() (err error) {
	so101, err := robot.ByName(stage.ArmName)
	if err != nil {
		return err
	}
	r.history.open(so101)
	if r.arm, err = stage.OpenArm(r.dir, r.history.record, r.fault.Bus); err == nil {
		r.onClose(func() { r.arm.Close() })
	}
	return err
}

// openTrace writes the servos' writes and actions to a file, if the user asks for it.
func (r *run) openTrace() error {
	if r.cfg.Trace == "" {
		return nil
	}
	f, err := os.Create(filepath.Join(r.cfg.Trace, r.fault.Name+".txt"))
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	r.history.traceTo(w)
	r.onClose(func() { r.history.traceTo(nil); w.Flush(); f.Close() })
	return nil
}

func (r *run) start() error {
	args := append([]string(nil), r.fault.Args...)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "DIR", r.dir)
	}
	if r.cfg.Records != "" && !slices.Contains(args, "--record-dir") {
		args = append(args, "--record", "all", "--record-dir", filepath.Join(r.cfg.Records, r.fault.Name))
	}
	if r.fault.Lean {
		args = append(args, "--camera", "top=sim")
	}
	return r.startEdge(r.proxy.Endpoint, args...)
}

func (r *run) startEdge(endpoint string, args ...string) (err error) {
	r.edge, err = stage.StartRobot(r.cfg.Bin, r.dir, robotID, append([]string{"--bus", r.arm.Port, "--calibration",
		r.arm.Calibration, "--connect", endpoint, "--fps", fmt.Sprint(fps), "--request-timeout", "1s",
		"--reconnect-initial-backoff", "200ms", "--reconnect-max-backoff", "500ms"}, args...)...)
	if err == nil {
		r.onClose(r.edge.Close)
	}
	return err
}

// settle waits until an arm without torque hangs at rest.
func (r *run) settle() {
	var before []servosim.State
	for range settleMax {
		states, still := r.arm.States(), before != nil
		for i := range before {
			off := states[i].Position - before[i].Position
			still = still && off*off <= 9
		}
		if still {
			return
		}
		before = states
		time.Sleep(settleStep)
	}
}

func (r *run) steps() error {
	r.settle()
	if err := r.start(); err != nil {
		return err
	}
	if !r.fault.Unarmed {
		if err := r.waitArmed(); err != nil {
			return err
		}
		r.sleep(warmUp)
	}
	r.at = now()
	r.history.mark(r.fault.Title)
	if err := r.begin(1); err != nil {
		return err
	}
	r.sleep(r.fault.For - now().Sub(r.at))
	r.history.mark("the fault is over")
	r.revert()
	r.over = now()
	r.sleep(afterwards)
	r.until = now()
	if err := r.findWho(); err != nil {
		return err
	}
	if r.ended == 0 {
		if err := r.stopEdge(); err != nil {
			return err
		}
	} else {
		r.until = min(r.until, r.ended.Add(afterwards))
	}
	_ = stage.Until(torqueTime, func() bool { r.arm.Referee.CheckAt(now()); return false })
	_ = r.edge.Wait(exitLimit) // for its watchdog process; the report shows how the edge ended
	return nil
}

// begin begins the fault; revert ends the parts of it that last.
func (r *run) begin(seed uint64) error {
	f := r.fault
	if f.Ctl != "" {
		if err := r.edge.Ctl(f.Ctl); err != nil {
			return err
		}
		if f.Ctl == "pause" {
			r.at = now()
			r.arm.Referee.Paused(r.at, true)
		}
	}
	if len(f.Script) > 0 {
		if err := r.arm.Inject(servosim.Script{Seed: seed, Faults: f.Script}); err != nil {
			return err
		}
	}
	if f.Cable != stage.Whole {
		r.onRevert(func() { _ = r.proxy.Set(stage.Whole) })
		if err := r.proxy.Set(f.Cable); err != nil {
			return err
		}
	}
	if f.Chunks != nil {
		r.onRevert(func() { r.sine.setChange(nil) })
		r.sine.setChange(f.Chunks)
	}
	if f.Signal == syscall.SIGSTOP {
		r.onRevert(func() { _ = r.edge.Signal(syscall.SIGCONT) })
	}
	if f.Signal != 0 {
		return r.edge.Signal(f.Signal)
	}
	if f.Do == nil {
		return nil
	}
	return f.Do(r)
}

func (r *run) waitArmed() error {
	if !stage.Until(armLimit, func() bool { return r.arm.Armed() || r.edge.Ended() }) {
		return fmt.Errorf("the arm was not armed within %v", armLimit)
	}
	if r.edge.Ended() {
		return errors.New("the edge ended before the fault")
	}
	return nil
}

func (r *run) onRevert(do func()) { r.undo = append(r.undo, do) }

// revert undoes the fault's changes, the last one first.
func (r *run) revert() {
	for i := len(r.undo) - 1; i >= 0; i-- {
		r.undo[i]()
	}
	r.undo = nil
}

// sleep waits, or until ctx ends, and lets the referee check the time.
func (r *run) sleep(d time.Duration) {
	stage.Until(d, func() bool { r.observe(); return r.ctx.Err() != nil })
}

// observe records the end of the edge, and lets the referee check the time.
func (r *run) observe() {
	if r.ended == 0 && r.edge.Ended() {
		r.ended = r.edge.EndedAt
		r.arm.Referee.Ended(r.ended)
	}
	if r.fault.Grip != nil {
		if t, begun := r.sine.sinceFirst(); begun {
			r.arm.Referee.PolicyGoal(now(), gripper, stage.ToRaw(gripper, r.fault.Grip(t+gripAhead)))
		}
	}
	r.arm.Referee.CheckAt(now())
}

// movesSince reports whether the whole arm is under torque and has moved since an
// instant.
func (r *run) movesSince(t rt.Instant) bool { return r.arm.Armed() && r.history.moves(t, now()) }

// resume runs `ctl resume`. A program that ends by itself meanwhile is not an error.
func (r *run) resume() error {
	r.arm.Referee.Consent(now())
	r.arm.Referee.Paused(now(), false)
	if err := r.edge.Ctl("resume"); err != nil && r.edge.Running() {
		return err
	}
	return nil
}

// findWho finds the actor that makes the arm move again: the edge itself, an operator, or a new
// start.
func (r *run) findWho() error {
	who := &r.result.Who
	switch {
	case r.ended != 0:
		*who = whoStarts
		return nil
	case r.fault.Lean && r.arm.Armed(), r.history.moves(r.until.Add(-stillTime), r.until):
		*who = whoItself
		return nil
	}
	asked := now()
	if err := r.resume(); err != nil {
		return err
	}
	r.sleep(resumeTime)
	switch {
	case r.ended != 0:
		*who = whoStarts
	case r.movesSince(asked):
		*who = whoOperator
	case r.history.moves(asked, now()):
		*who = whoPartly
	default:
		*who = whoNobody
	}
	return nil
}

// stopEdge asks the edge to end, and kills it when it does not.
func (r *run) stopEdge() error {
	if err := r.edge.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if !stage.Until(exitLimit, func() bool { r.observe(); return r.ended != 0 }) {
		r.edge.Kill()
		r.observe()
		r.result.Note = "did not end within " + exitLimit.String()
	}
	return nil
}

// close ends the remaining programs, the last started first.
func (r *run) close() {
	r.revert()
	for _, do := range slices.Backward(r.cleanup) {
		do()
	}
}

func (r *run) onClose(do func()) { r.cleanup = append(r.cleanup, do) }
