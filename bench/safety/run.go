package safety

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"edgert/rt"
	"edgert/servo/referee"
	"edgert/servo/servosim"
	"edgert/wire"
)

// Times of a run that are not the fault's.
const (
	warmUp     = 2 * time.Second // of motion before the fault
	afterwards = 2 * time.Second // what the arm does when the fault is over
	agreed     = 2500 * time.Millisecond
	windDown   = 500 * time.Millisecond // after the end, until all must be off
	restStep   = 200 * time.Millisecond
	restMax    = 20
	gripAhead  = 100 * time.Millisecond // by which the robot may run a row early
	calm       = 600 * time.Millisecond // without motion, and it holds
)

// run is one fault's life.
type run struct {
	ctx        context.Context
	bin        string
	tree       string // of testdata/demo
	trace      string // folder for traces
	stepsClock bool   // the machine's clock may be set
	dir        string
	fault      *Fault

	arm   *arm
	edge  *robotEdge
	sway  *sway
	lean  *lean
	proxy *proxy

	server  string     // endpoint
	at      rt.Instant // of the fault
	over    rt.Instant // of its end
	ended   rt.Instant // of the edge, 0 while it lives
	shown   rt.Instant // until when what the arm did is the fault's
	result  Result
	undo    []func()         // of the fault
	other   *referee.Verdict // of a second robot
	finally []func()
}

// now is the bus's clock.
func now() rt.Instant { return rt.KernelClock().Now() }

// play takes a fault from the start to the end.
func play(ctx context.Context, cfg *Config, dir string, f *Fault) (Result, error) {
	r := &run{ctx: ctx, bin: cfg.Bin, tree: cfg.Tree, trace: cfg.Trace, stepsClock: cfg.StepClock, dir: dir, fault: f}
	r.result = Result{Name: f.Name, Title: f.Title}
	began := time.Now()
	defer r.close()
	err := errors.Join(os.MkdirAll(dir, 0o700), r.open())
	if err == nil {
		err = r.live()
	}
	if err != nil {
		return r.result, fmt.Errorf("%s: %w%s", f.Name, err, r.words())
	}
	r.judge()
	r.result.Seconds = time.Since(began).Seconds()
	return r.result, ctx.Err()
}

// words are the edge's last, for an error.
func (r *run) words() string {
	if r.edge == nil || r.edge.Running() {
		return ""
	}
	lines := bytes.Split(bytes.TrimSpace(r.edge.Stderr()), []byte("\n"))
	return "; edge-rt said: " + string(bytes.Join(lines[max(0, len(lines)-3):], []byte(" / ")))
}

// open starts the arm, the server and the cable between them.
func (r *run) open() (err error) {
	if r.arm, err = openArm(r.dir, r.fault.Bus); err != nil {
		return err
	}
	if err := r.traced(); err != nil {
		return err
	}
	r.arm.referee.NewRun(now())
	if r.fault.Lean {
		r.lean, err = openLean(r.ctx, r.bin, r.dir, r.tree+"/bundle", r.arm.referee.FirstChunk)
		if err != nil {
			return err
		}
		r.server = r.lean.Endpoint
	} else {
		if r.sway, err = openSway(r.ctx, "", r.arm.referee.FirstChunk); err != nil {
			return err
		}
		r.server = r.sway.endpoint
		r.sway.grip = r.fault.Grip
	}
	if r.proxy, err = openProxy(r.server); err != nil {
		return err
	}
	if r.fault.Before != nil {
		return r.fault.Before(r)
	}
	return nil
}

// traced writes what the servos hear and do to a file, if somebody wants it.
func (r *run) traced() error {
	if r.trace == "" {
		return nil
	}
	f, err := os.Create(filepath.Join(r.trace, r.fault.Name+".txt"))
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	h := &r.arm.history
	h.mu.Lock()
	h.trace = w
	h.mu.Unlock()
	r.finally = append(r.finally, func() { w.Flush(); f.Close() })
	return nil
}

// start starts the edge.
func (r *run) start() (err error) {
	args := append([]string(nil), r.fault.Args...)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "DIR", r.dir)
	}
	if r.fault.Lean && !has(args, "--camera") {
		args = append(args, "--camera", "top=sim")
	}
	r.edge, err = startEdge(r.bin, r.arm, r.proxy.endpoint, args...)
	return err
}

// rest waits for an arm that hangs where it will stay: nothing holds it yet.
func (r *run) rest() {
	var before []servosim.State
	for range restMax {
		states, still := r.arm.bus.States(), before != nil
		for i := range before {
			off := states[i].Position - before[i].Position
			still = still && off*off <= 9
		}
		if still {
			return
		}
		before = states
		time.Sleep(restStep)
	}
}

// live is the run itself.
func (r *run) live() error {
	r.rest()
	if err := r.start(); err != nil {
		return err
	}
	if !r.fault.Unarmed {
		if err := r.armed(); err != nil {
			return err
		}
		r.sleep(warmUp)
	}
	r.at = now()
	r.arm.history.mark(r.fault.Title)
	if len(r.fault.Script) > 0 {
		if err := r.arm.bus.Inject(servosim.Script{Seed: 1, Faults: r.fault.Script}); err != nil {
			return err
		}
	}
	if r.fault.Do != nil {
		if err := r.fault.Do(r); err != nil {
			return err
		}
	}
	r.sleep(r.fault.For - now().Sub(r.at))
	r.arm.history.mark("the fault is over")
	r.takeBack()
	r.over = now()
	r.sleep(afterwards)
	r.shown = now()
	if err := r.whoEnds(); err != nil {
		return err
	}
	return r.end()
}

// armed waits for an arm under torque.
func (r *run) armed() error {
	err := until(armLimit, "the arm was not armed", func() bool { return r.arm.stiff() == len(r.arm.robot.Motors) || r.edge.dead() })
	if err == nil && r.edge.dead() {
		err = errors.New("the edge ended before the fault")
	}
	return err
}

// later does something when the fault is over.
func (r *run) later(do func()) { r.undo = append(r.undo, do) }

// takeBack does what the fault left for its end.
func (r *run) takeBack() {
	for i := len(r.undo) - 1; i >= 0; i-- {
		r.undo[i]()
	}
	r.undo = nil
}

// sleep waits, and has the referee look at what time alone decides. It ends
// early when the edge does.
func (r *run) sleep(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end) && r.ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		r.look()
	}
}

// look takes note of an edge that has ended.
func (r *run) look() {
	if r.ended == 0 && r.edge.dead() {
		r.ended = r.edge.goneAt
		r.arm.referee.Ended(r.ended)
	}
	if r.fault.Grip != nil {
		if t, begun := r.sway.since(); begun {
			r.arm.referee.Wanted(now(), gripper, toRaw(gripper, r.fault.Grip(t+gripAhead)))
		}
	}
	r.arm.referee.Settle(now())
}

// whoEnds finds out who gets the arm to move again: itself, an operator, or only
// somebody who starts edge-rt.
func (r *run) whoEnds() error {
	switch {
	case r.ended != 0:
		r.result.Who = whoStarts
		return nil
	case r.fault.Lean && r.arm.stiff() == len(r.arm.robot.Motors), r.arm.history.moves(r.shown.Add(-calm), r.shown):
		r.result.Who = whoItself
		return nil
	}
	r.arm.referee.Consent(now())
	r.arm.referee.Paused(now(), false)
	asked := now()
	if err := r.edge.ctl("resume"); err != nil {
		if r.edge.Running() {
			return err
		}
		r.result.Who = whoStarts
		return nil
	}
	r.sleep(agreed)
	switch {
	case r.ended != 0:
		r.result.Who = whoStarts
	case r.arm.history.moves(asked, now()) && r.arm.stiff() == len(r.arm.robot.Motors):
		r.result.Who = whoOperator
	case r.arm.history.moves(asked, now()):
		r.result.Who = whoPartly
	default:
		r.result.Who = whoNobody
	}
	return nil
}

// end ends the edge, if nothing else has, and gives the motors their time.
func (r *run) end() error {
	if r.ended == 0 {
		if err := r.edge.signal(syscall.SIGTERM); err != nil {
			return err
		}
		for end := time.Now().Add(exitLimit); r.ended == 0 && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			r.look()
		}
		if r.ended == 0 {
			r.edge.Kill()
			r.look()
			r.result.Note = "did not end within " + exitLimit.String()
		}
	} else if r.shown > r.ended.Add(afterwards) {
		r.shown = r.ended.Add(afterwards)
	}
	for end := time.Now().Add(windDown); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		r.arm.referee.Settle(now())
	}
	_ = r.edge.Wait(exitLimit) // for its guard; how the edge ended is in the report
	return nil
}

// close ends what is left.
func (r *run) close() {
	r.takeBack()
	if r.edge != nil && r.edge.Running() {
		_ = r.edge.signal(syscall.SIGCONT)
		r.edge.Kill()
	}
	if r.proxy != nil {
		r.proxy.close()
	}
	if r.sway != nil {
		r.sway.close()
	}
	if r.lean != nil {
		r.lean.close()
	}
	if r.arm != nil && r.arm.bus != nil {
		r.arm.bus.Close()
	}
	for _, do := range r.finally {
		do()
	}
}

// ruined makes the server spoil its chunks for as long as the fault lasts.
func (r *run) ruined(how func(*wire.ActionChunk)) {
	r.sway.ruin(how)
	r.later(func() { r.sway.ruin(nil) })
}
