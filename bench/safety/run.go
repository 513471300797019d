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
	"github.com/edge-rt/edge-rt/sim/netfault"
	"github.com/edge-rt/edge-rt/sim/referee"
	"github.com/edge-rt/edge-rt/sim/servosim"
	"github.com/edge-rt/edge-rt/stage"
)

// Times of a run that do not depend on the fault.
const (
	fps    = stage.ArmFPS
	period = time.Second / fps

	armLimit   = 20 * time.Second // longest time from an edge's start until its arm is under torque
	exitLimit  = 8 * time.Second  // longest time from SIGTERM to the edge's end, in which it parks the arm
	warmUp     = 2 * time.Second  // time of motion before the fault
	afterwards = 2 * time.Second  // time of checks after the fault
	resumeTime = 2500 * time.Millisecond
	torqueTime = 500 * time.Millisecond // time after the edge's end within which all torque must be off
	settleStep = 200 * time.Millisecond
	settleMax  = 20
	gripAhead  = 100 * time.Millisecond // time by which the robot may run a row early
	stillTime  = 600 * time.Millisecond // an arm that does not move for this time counts as holding
)

// AuditFile is the name of the server's audit in a folder of Config.Records.
const AuditFile = "audit.jsonl"

// run is one fault, played once.
type run struct {
	ctx   context.Context
	cfg   *Config
	dir   string
	fault *fault

	robot robot.Robot
	buses []*stage.Arm
	parts []part
	edge  *stage.Robot
	proxy *netfault.Proxy
	sine  *sineServer // either sine or lean is the server
	lean  *leanServer

	server  string     // the server's endpoint
	at      rt.Instant // when the fault began
	over    rt.Instant // when the fault was over
	ended   rt.Instant // when the edge ended; 0 while it runs
	until   rt.Instant // actions of the arm up to this instant count as effects of the fault
	result  Result
	undo    []func()          // functions that restore what the fault changed
	other   []referee.Verdict // verdicts on the second robot
	idle    bool              // the referees were notified that a base has lost its permission
	cleanup []func()
}

// now returns the time of the bus's clock.
func now() rt.Instant { return rt.KernelClock().Now() }

func play(ctx context.Context, cfg *Config, dir string, f *fault) (Result, error) {
	r := &run{
		ctx:    ctx,
		cfg:    cfg,
		dir:    dir,
		robot:  cfg.robot,
		fault:  f,
		result: Result{Name: f.Name, Title: f.Title},
	}
	began := time.Now()
	defer r.close()
	err := os.MkdirAll(dir, 0o700)
	if records := filepath.Join(cfg.Records, f.Name); err == nil && cfg.Records != "" {
		// removes the records of an earlier try
		err = errors.Join(os.RemoveAll(records), os.MkdirAll(records, 0o700))
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
	if err := r.openArms(); err != nil {
		return err
	}
	if err := r.openTrace(); err != nil {
		return err
	}
	r.judges(func(j *referee.Referee) { j.NewRun(now()) })
	if r.fault.Lean {
		var flags []string
		if r.cfg.Records != "" {
			flags = []string{"--audit", filepath.Join(r.cfg.Records, r.fault.Name, AuditFile)}
		}
		if r.lean, err = openLean(r.ctx, r.cfg.Bin, r.dir, r.cfg.bundle(), r.firstChunk, flags...); err != nil {
			return err
		}
		r.server = r.lean.Endpoint
		r.onClose(r.lean.close)
	} else {
		if r.sine, err = openSineServer(r.ctx, r.robot, r.fault.Grip, r.grips(), r.firstChunk); err != nil {
			return err
		}
		r.server = r.sine.Endpoint
		r.onClose(r.sine.Close)
	}
	if r.proxy, err = netfault.NewProxy(r.server); err != nil {
		return err
	}
	r.onClose(r.proxy.Close)
	if r.fault.Before != nil {
		return r.fault.Before(r)
	}
	return nil
}

// openArms opens the simulated arms of the robot's parts.
func (r *run) openArms() error {
	r.parts = partsOf(r.robot)
	for i := range r.parts {
		r.parts[i].open(r.parts[i].motors)
	}
	for bus, p := range r.robot.Parts() {
		watch := func(e *servosim.Event) {
			for i := range r.parts {
				if p := &r.parts[i]; p.bus == bus && p.has(e.ID) {
					p.record(e)
				}
			}
		}
		change := r.fault.Bus
		hit, struck := r.hit(bus, nil)
		if hit == nil {
			hit = (&part{motors: p.Robot.Motors}).joints(nil)
		}
		arm, err := stage.OpenArm(r.dir, p, watch, func(c *servosim.Config) {
			if change != nil && struck {
				change(c, hit)
			}
		})
		if err != nil {
			return err
		}
		r.buses = append(r.buses, arm)
		r.onClose(func() { arm.Close() })
	}
	return nil
}

// grips returns the grippers of the arms that the fault hits, if the fault's policy moves grippers.
func (r *run) grips() (joints robot.Joints) {
	for j, m := range r.robot.Motors {
		bus := slices.IndexFunc(r.robot.Parts(), func(p robot.Part) bool { return p.Joints().Has(j) })
		if _, struck := r.hit(bus, nil); struck && m.ID == gripper && r.fault.Grip != nil {
			joints |= 1 << j
		}
	}
	return joints
}

// judges calls the function do for the referee of every bus.
func (r *run) judges(do func(*referee.Referee)) {
	for _, b := range r.buses {
		do(b.Referee)
	}
}

func (r *run) firstChunk(at rt.Instant) { r.judges(func(j *referee.Referee) { j.FirstChunk(at) }) }

// armed reports whether all motors are under torque.
func (r *run) armed() bool {
	return !slices.ContainsFunc(r.buses, func(b *stage.Arm) bool { return !b.Armed() })
}

// moved returns the number of parts that have moved in a span of time.
func (r *run) moved(since, until rt.Instant) (n int) {
	for i := range r.parts {
		if r.parts[i].moves(since, until) {
			n++
		}
	}
	return n
}

// openTrace opens files for the writes to the servos and for the actions, if the user wants a trace.
func (r *run) openTrace() error {
	if r.cfg.Trace == "" {
		return nil
	}
	for i := range r.parts {
		p := &r.parts[i]
		f, err := os.Create(filepath.Join(r.cfg.Trace, strings.Trim(r.fault.Name+"."+p.name, ".")+".txt"))
		if err != nil {
			return err
		}
		w := bufio.NewWriter(f)
		p.traceTo(w)
		r.onClose(func() { p.traceTo(nil); w.Flush(); f.Close() })
	}
	return nil
}

func (r *run) mark(text string) {
	for i := range r.parts {
		r.parts[i].mark(text)
	}
}

func (r *run) start() error {
	args := append([]string(nil), r.fault.Args...)
	records := filepath.Join(r.dir, "records")
	if r.cfg.Records != "" {
		records = filepath.Join(r.cfg.Records, r.fault.Name)
	}
	for i := range args {
		args[i] = strings.NewReplacer("DIR", r.dir, "RECORDS", records).Replace(args[i])
	}
	if r.cfg.Records != "" && !slices.Contains(args, "--record-dir") {
		args = append(args, "--record", "all", "--record-dir", records)
	}
	return r.startEdge(r.proxy.Endpoint(), r.fault.Lean, args...)
}

// startEdge starts edge-rt. If lean is true, edge-rt has the cameras that the demo's policy needs.
func (r *run) startEdge(endpoint string, lean bool, args ...string) (err error) {
	name, err := r.robotFile()
	if err != nil {
		return err
	}
	args = append([]string{"--robot", name, "--connect", endpoint, "--fps", fmt.Sprint(fps), "--request-timeout", "1s",
		"--reconnect-initial-backoff", "200ms", "--reconnect-max-backoff", "500ms"}, args...)
	if lean {
		for _, p := range r.robot.Parts() {
			args = append(args, "--camera", p.Prefix()+"top=sim")
		}
	}
	for _, b := range r.buses {
		of := ""
		if b.Part.Name != "" {
			of = b.Part.Name + "="
		}
		args = append(args, "--bus", of+b.Port, "--calibration", of+b.Calibration)
	}
	r.edge, err = stage.StartRobot(r.cfg.Bin, r.dir, robotID, args...)
	if err == nil {
		r.onClose(r.edge.Close)
	}
	return err
}

// robotFile returns the robot for edge-rt: its name, or a description with the fault's safety block.
func (r *run) robotFile() (string, error) {
	safety := r.fault.Safety
	if r.cfg.Apart {
		safety = strings.TrimPrefix(safety+", parts: apart", ", ")
	}
	if safety == "" {
		return r.cfg.Robot, nil
	}
	file := filepath.Join(r.dir, "robot.yaml")
	text := fmt.Sprintf("like: %[1]s\nname: %[1]s\nsafety: {%[2]s}\n", r.cfg.Robot, safety)
	return file, os.WriteFile(file, []byte(text), 0o600)
}

// settle waits until arms without torque hang at rest.
func (r *run) settle() {
	var before []servosim.State
	for range settleMax {
		var states []servosim.State
		for _, b := range r.buses {
			states = append(states, b.States()...)
		}
		still := before != nil
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
	r.mark(r.fault.Title)
	if err := r.begin(1); err != nil {
		return err
	}
	r.sleep(r.fault.For - now().Sub(r.at))
	r.mark("the fault is over")
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
	_ = stage.Until(torqueTime, func() bool { r.observe(); return false })
	_ = r.edge.Wait(exitLimit) // this also waits for its watchdog process; the report shows how the edge ended
	return nil
}

// begin begins the fault. For effects that do not end by themselves it registers functions, which revert calls.
func (r *run) begin(seed uint64) error {
	f := r.fault
	if f.Ctl != "" {
		if err := r.edge.Ctl(f.Ctl); err != nil {
			return err
		}
		if f.Ctl == "pause" {
			r.at = now()
			r.judges(func(j *referee.Referee) { j.Paused(r.at, true) })
		}
	}
	if len(f.Script) > 0 {
		if err := r.inject(seed); err != nil {
			return err
		}
	}
	if f.Cable != netfault.Whole {
		r.onRevert(func() { r.proxy.Set(netfault.Whole) })
		r.proxy.Set(f.Cable)
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
	if !stage.Until(armLimit, func() bool { return r.armed() || r.edge.Ended() }) {
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
	if r.fault.Pause == 0 {
		r.setIdle(false)
	}
	for i := len(r.undo) - 1; i >= 0; i-- {
		r.undo[i]()
	}
	r.undo = nil
}

// sleep waits for d, or until ctx ends, and calls observe all the time.
func (r *run) sleep(d time.Duration) {
	stage.Until(d, func() bool { r.observe(); return r.ctx.Err() != nil })
}

// observe passes the end of the edge, the goal of the grippers and a base's lost permission to the
// referees, and lets them check their time limits.
func (r *run) observe() {
	if r.ended == 0 && r.edge.Ended() {
		r.ended = r.edge.EndedAt
		r.judges(func(j *referee.Referee) { j.Ended(r.ended) })
	}
	if r.fault.Grip != nil {
		if t, begun := r.sine.sinceFirst(); begun {
			r.gripGoal(stage.ToRaw(gripper, r.fault.Grip(t+gripAhead)))
		}
	}
	if from := r.idleFrom(); from != 0 && r.at != 0 && r.over == 0 && now() > from {
		r.setIdle(true)
	}
	r.judges(func(j *referee.Referee) { j.CheckAt(now()) })
}

func (r *run) gripGoal(raw int) {
	for bus, b := range r.buses {
		if _, struck := r.hit(bus, nil); struck {
			b.Referee.PolicyGoal(now(), gripper, raw)
		}
	}
}

// setIdle notifies the referees that a base has lost its permission to drive, or that it may have the
// permission again. A repeated call has no effect.
func (r *run) setIdle(on bool) {
	if on == r.idle {
		return
	}
	r.idle = on
	at := now()
	if on {
		at = r.idleFrom()
	}
	r.judges(func(j *referee.Referee) { j.Idle(at, on) })
}

// movesSince reports whether the whole robot is under torque and every part has moved since an
// instant.
func (r *run) movesSince(t rt.Instant) bool { return r.armed() && r.moved(t, now()) == len(r.parts) }

// resume runs `ctl resume`. It is not an error if edge-rt ends by itself meanwhile.
func (r *run) resume() error {
	r.setIdle(false)
	r.judges(func(j *referee.Referee) {
		j.Consent(now())
		j.Paused(now(), false)
	})
	if err := r.edge.Ctl("resume"); err != nil && r.edge.Running() {
		return err
	}
	return nil
}

// findWho finds how the arm moves again: by itself, after an operator's command, or after a new
// start of the edge.
func (r *run) findWho() error {
	who := &r.result.Who
	switch {
	case r.ended != 0:
		*who = whoStarts
		return nil
	case r.fault.Lean && r.armed(), r.moved(r.until.Add(-stillTime), r.until) == len(r.parts):
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
	case r.moved(asked, now()) > 0:
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

// close reverts the fault and ends the remaining programs, the last started first.
func (r *run) close() {
	r.revert()
	for _, do := range slices.Backward(r.cleanup) {
		do()
	}
}

func (r *run) onClose(do func()) { r.cleanup = append(r.cleanup, do) }
