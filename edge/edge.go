// Package edge is the robot's process: it ticks one arm on the action chunks of a policy that runs on a server.
//
// Open (open.go) opens the robot's cameras (cameras.go), arm (arm.go) and session (package uplink), and allocates all
// memory of the run. Run (run.go) allocates nothing on its paths, changes State instead of failing, and switches the
// arm's torque off on every way out, unless --on-exit holds the arm. Meanwhile housekeeping.go watches the tick,
// report.go logs its events, page.go and operator.go answer browsers and edge-rt ctl, and record.go records the run;
// summary.go is the run's summary. These files work on Edge (edge.go). Package uplink replaces a lost session.
//
// One observation and its chunk take this way:
//
//	control.go          the tick: read, act, merge at most one chunk, ask; a snapshot leaves
//	uplink/sender.go    newest pictures (package capture), encoded: the observation leaves
//	uplink/receiver.go  chunks are checked as they arrive; the newest waits for the tick
//
// The tables in mode.go determine the only source of goals in a tick: the policy, a person with a leader arm
// (takeover.go, which also refuses take-overs; package leader), arming, parking, or no source. Package follow alone
// writes goals to the arm.
//
// Other threads share data with the tick only by rt.Latest, rt.Ring and atomic flags. uplink.Outbox and uplink.Inbox
// hold the data that the tick shares with the threads of the network.
//
// stats.go has the counters of the tick. state.go is the state machine of the run, status.go the JSON that page, ctl
// and summary share, and config.go the values of the flags.
package edge

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/episode"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/edge/leader"
	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/edge/page"
	"github.com/edge-rt/edge-rt/edge/recording"
	"github.com/edge-rt/edge-rt/edge/uplink"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/backoff"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim"
	"github.com/edge-rt/edge-rt/systemd/notify"
	"github.com/edge-rt/edge-rt/wire"
)

// Waiting times of the start, for an absent arm, camera or server.
const (
	startSlack    = 30 * time.Second // time after --max-offline, for the last attempt and the checks
	busBackoffMax = 10 * time.Second
	waitLogEvery  = time.Second
)

// Edge is one robot, open and ready to run.
type Edge struct {
	// Constant after Open.
	cfg      Config
	clock    rt.Clock
	log      *slog.Logger
	robot    robot.Robot
	resume   string // instruction to the operator after a motor has restarted
	identity *operator.Identity
	notifier *notify.Notifier
	firstRun atomic.Bool                     // a bundle of this run had never run on this arm
	contract uplink.Contract                 // contract of the first session
	model    atomic.Pointer[uplink.Contract] // contract of the newest session
	models   atomic.Pointer[[]string]        // digests of all bundles so far; nil: only the first one
	operator net.Listener
	page     *page.Page       // nil: no page
	exporter *page.Page       // server of --metrics; nil: metrics are not served
	collects bool             // a thread collects telemetry's or traces' garbage
	record   *record.Recorder // recorder of the run; nil: no record
	closers  []func()         // functions that release the opened resources, in the order of opening

	devices
	net     wire.Session
	link    *uplink.Link
	control *control
	sender  *uplink.Sender
	drive   *drive.Run

	commands     *operator.Panel
	recording    *recording.Recording // nil: nothing is recorded
	episodes     *episode.Episodes
	reporter     recording.Reporter
	housekeeping housekeeping

	stuck bool // a thread did not end: resources that it may use are not closed
	outcome
}

// devices are the arm and the cameras.
type devices struct {
	arms       hotplug.Parts
	leaderArms hotplug.Parts
	leaders    []*leader.Leader // leaders of the parts; nil: no leader
	remotes    leader.Remotes   // leaders on other machines
	jog        *leader.Jog      // nil: no keys lead
	sims       device.Sims      // the simulated parts
	files      []openedFile     // the cameras that play files
	cameras    []*capture.Camera
	encoders   []*capture.Encoder // each camera's
	missing    atomic.Int32       // cameras without a first picture; their threads write it
}

type openedFile struct {
	source camera.Source
	picked string
}

// outcome holds the values of the summary that are not counters.
type outcome struct {
	armOpen rt.Instant // instant at which the arm was open
	started rt.Instant
	heap    heapWindow
	scores  []sim.Score // scores of the simulated worlds, read before the arm parks
}

// heapWindow counts allocations from the end of the warm-up until the end of the run begins. Owner: the housekeeping
// goroutine.
type heapWindow struct {
	gc          *rt.Hold
	armedAt     rt.Instant
	open        bool
	closed      bool
	from, to    rt.HeapStat
	first, last uint64 // ticks
}

// onClose registers f for release, which calls the registered functions in reverse order.
func (e *Edge) onClose(f func()) { e.closers = append(e.closers, f) }

// onCloseUnlessStuck registers f like onClose. release skips it when a thread did not end, since
// that thread may still use the resource.
func (e *Edge) onCloseUnlessStuck(f func()) {
	e.onClose(func() {
		if !e.stuck {
			f()
		}
	})
}

func (e *Edge) release() {
	for i := len(e.closers) - 1; i >= 0; i-- {
		e.closers[i]()
	}
	e.closers = nil
}

// waitFor extends the service manager's limit on the start, since --max-offline may be longer, and
// sets the status text.
func (e *Edge) waitFor(what string) {
	e.notifier.Extend(e.cfg.MaxOffline + startSlack)
	e.notifier.Status("looking for " + what)
}

// retry calls open until open succeeds or returns an error that does not pass, or until --max-offline is over.
func (e *Edge) retry(ctx context.Context, what string, open func() (passes bool, err error)) error {
	giveUp := e.clock.Now().Add(e.cfg.MaxOffline)
	told, toldAt := "", rt.Instant(0) // the last logged reason, and the instant of its log line
	var reasons backoff.Longest
	ended := e.clock.Now()
	for delays := (backoff.Backoff{First: e.cfg.ReconnectInitialBackoff, Max: busBackoffMax}); ; {
		passes, err := open()
		wait := delays.Next()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !passes:
			return err
		}
		now := e.clock.Now()
		reasons.Add(err, now.Sub(ended))
		if ended = now; now.Add(wait) > giveUp {
			return reasons.Err()
		}
		if text := err.Error(); text != told && (told == "" || now.Sub(toldAt) >= waitLogEvery) {
			e.log.Warn("waiting for "+what, "why", err)
			told, toldAt = text, now
		}
		if err := rt.Rest(ctx, e.clock, wait); err != nil {
			return err
		}
	}
}
