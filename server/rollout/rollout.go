// Package rollout gives a second model of a service to a part of its robots, as the manifest's
// block rollout demands, and withdraws it.
//
// While the server serves, a Keeper checks the manifest for changes. It loads the new model while the first is served
// (Config.Open). When the roll-out is withdrawn, it unloads the new model after no robot has used it for a while. It
// decides which robots the new model is for; the servers of both models read its Report when a session opens, and
// inform the robots that the other model is for (wire.EventModel). A robot changes to the other model when its run
// allows that, so both models are served until no robot uses the withdrawn model.
package rollout

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/internal/userfile"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/server/manifest"
)

const (
	// Poll is the interval at which the manifest's file is checked for changes.
	Poll = time.Second
	// leaveTime is how long the new model stays loaded without a robot. A robot whose run is bound
	// to the model may have lost its session; by default edge-rt tries for the same time to open it
	// again.
	leaveTime = time.Minute
)

// State is the progress of a roll-out.
type State uint8

// The states.
const (
	Off     State = iota // there is only one model
	Loading              // the new model is loaded and checked
	Serving              // both models are served
	Leaving              // the new model gets no new robot; it is unloaded when its last robot has left
	Failed               // the new model was refused, or it failed
)

func (s State) String() string {
	return [...]string{"off", "loading", "serving", "leaving", "failed"}[s]
}

// Report is the state of a roll-out. A report does not change.
type Report struct {
	State    State
	Why      string           // the reason of the failure, or of the wait
	Edit     string           // why the manifest's newest content is not used; empty: it is used
	Restart  []string         // keys outside the block that were edited and need a restart
	Plan     manifest.Rollout // the roll-out in effect
	SHA256   string           // digest of the new model; empty: the model is not loaded
	ServerID string           // server_id of the new model's server
}

// New reports whether the new model is for a robot.
func (r *Report) New(robot string) bool { return r.State == Serving && r.Plan.Takes(robot) }

// Expects reports whether the model with this digest may be the new model. While the new model is being loaded, it
// returns true for every digest.
func (r *Report) Expects(digest string) bool {
	return r.State == Loading || r.SHA256 != "" && strings.HasPrefix(r.SHA256, digest)
}

// Second is the server of the new model.
type Second interface {
	SHA256() string
	ServerID() string
	Robots() int           // number of robots with a session
	Done() <-chan struct{} // closed when the server has ended
	// ends the server and unloads the model; returns an error when the server had ended by itself
	Stop() error
}

// Config has the parts of a Keeper. All are required.
type Config struct {
	Manifest manifest.Config // the manifest at the start
	// Open loads, checks and begins to serve the new model of read, the manifest as it was read last. When it returns
	// without an error, robots may use the model.
	Open  func(ctx context.Context, read *manifest.Config) (Second, error)
	Clock rt.Clock
	Log   *slog.Logger // never blocks
}

// Keeper carries out the roll-outs of one manifest. A nil Keeper never has a roll-out.
type Keeper struct {
	Config // constant after Run has begun
	now    atomic.Pointer[Report]
	counts Counts

	// Owner: Run.
	second Second
	read   manifest.Config       // last valid content of the manifest
	model  manifest.RolloutModel // model that second serves, or the model that was refused
	edits  int                   // number of times that the manifest was read with new content
	tried  int                   // value of edits when model was loaded
	seen   os.FileInfo           // the file whose content was read last
	empty  rt.Instant            // when the server in second lost its last robot; 0: it has robots, or may stay
}

// Counts counts the refusals of a keeper.
//
// Atomic.
type Counts struct {
	Models    atomic.Uint64 // new models that were refused or failed
	Manifests atomic.Uint64 // contents of the manifest that were refused
}

// Counted returns the counts of a keeper. For a nil Keeper, all counts are zero.
func (k *Keeper) Counted() *Counts {
	if k == nil {
		return new(Counts)
	}
	return &k.counts
}

// New returns a keeper. Its Report is valid at once, with the state Loading when the manifest has an active roll-out.
// Edits since the manifest was read count, because a server may load its first model for minutes before it calls New.
func New(c Config) *Keeper {
	k := &Keeper{Config: c, read: c.Manifest, seen: c.Manifest.Info()}
	r := Report{Plan: c.Manifest.Rollout}
	if r.Plan.Active() {
		r.State = Loading
	}
	k.now.Store(&r)
	return k
}

// Report returns the present state.
//
// Owner: any goroutine.
func (k *Keeper) Report() *Report {
	if k == nil {
		return &Report{}
	}
	return k.now.Load()
}

// Run carries out roll-outs until ctx is done, and then ends the second server.
func (k *Keeper) Run(ctx context.Context) {
	if k == nil {
		return
	}
	ticker := time.NewTicker(Poll)
	defer ticker.Stop()
	for {
		k.reread()
		k.step(ctx)
		var ended <-chan struct{}
		if k.second != nil {
			ended = k.second.Done()
		}
		select {
		case <-ticker.C:
		case <-ended:
		case <-ctx.Done():
			if k.second != nil {
				_ = k.second.Stop() // the second server has logged its error
			}
			return
		}
	}
}

// change publishes a changed report.
func (k *Keeper) change(f func(*Report)) {
	r := *k.now.Load()
	f(&r)
	k.now.Store(&r)
}

// reread reads the manifest again if its file has changed. When the new content is invalid, it reports that, and the
// last valid content stays in effect.
func (k *Keeper) reread() {
	if was := k.Manifest.Info(); was != nil && !was.Mode().IsRegular() {
		return // a pipe can be read only once
	}
	info, err := os.Stat(k.Manifest.File())
	if err == nil && userfile.Unchanged(info, k.seen) {
		return
	}
	var read manifest.Config
	if err == nil {
		read, err = k.Manifest.Reload()
	}
	if err != nil {
		if text := err.Error(); text != k.Report().Edit {
			k.counts.Manifests.Add(1)
			k.Log.Warn("THE MANIFEST'S NEW CONTENT IS NOT USED: the roll-out stays as it was", "why", text)
			k.change(func(r *Report) { r.Edit = text })
		}
		k.seen = info
		return
	}
	k.seen = info
	k.edits++
	k.read = read
	plan, restart := read.Rollout, k.Manifest.Changed(&read)
	if now := k.Report(); !plan.Active() && read.Model.RepoOrPath == k.model.RepoOrPath &&
		(k.second != nil || now.State == Loading) {
		plan = now.Plan // the new model is now the manifest's only model; both models are served until the restart
	}
	k.change(func(r *Report) { r.Edit, r.Restart = "", restart; r.Plan = plan })
	k.Log.Info("roll-out: the manifest was read again", "model", plan.Model.RepoOrPath, "share", plan.Share,
		"robots", len(plan.Robots), "keep", len(plan.Keep))
	if len(restart) > 0 {
		k.Log.Warn("roll-out: keys beside the block rollout have changed, and need a restart", "keys", restart)
	}
}

// step does the next work that the plan requires.
func (k *Keeper) step(ctx context.Context) {
	plan := &k.Report().Plan
	if k.second != nil {
		select {
		case <-k.second.Done():
			k.fail(errors.Join(errors.New("the new model's server has ended"), k.second.Stop()))
			return
		default:
		}
		if plan.Active() && k.serves(plan.Model) {
			k.empty = 0
			k.enter(Serving, "")
			return
		}
		k.leave(plan.Active())
		return
	}
	switch {
	case !plan.Active():
		k.enter(Off, "")
	// no new attempt before the next edit
	case plan.Model == k.model && k.tried == k.edits && k.Report().State == Failed:
	default:
		k.load(ctx, plan.Model)
	}
}

// serves reports whether the second server has model m.
func (k *Keeper) serves(m manifest.RolloutModel) bool {
	return k.second != nil && m.RepoOrPath == k.model.RepoOrPath && strings.HasPrefix(k.second.SHA256(), m.SHA256)
}

// enter sets the state and its reason, and logs each state once.
func (k *Keeper) enter(s State, why string) {
	if r := k.Report(); r.State != s || r.Why != why {
		if r.State != s {
			k.Log.Info("roll-out", "state", s.String(), "sha256", r.SHA256, "share", r.Plan.Share)
		}
		k.change(func(r *Report) { r.State, r.Why = s, why })
	}
}

// leave unloads the new model when it has had no robot for leaveTime. The parameter next reports that another new
// model will be loaded then.
func (k *Keeper) leave(next bool) {
	robots, now := k.second.Robots(), k.Clock.Now()
	why := fmt.Sprintf("the new model is unloaded a minute after its last robot; it has %d", robots)
	if next {
		why += "; the manifest's next one is loaded then"
	}
	k.enter(Leaving, why)
	switch {
	case robots > 0:
		k.empty = 0
	case k.empty == 0:
		k.empty = now
	case now.Sub(k.empty) >= leaveTime:
		if err := k.second.Stop(); err != nil {
			k.Log.Warn("roll-out: the new model did not end cleanly", "why", err)
		}
		k.forget()
		k.enter(Off, "")
	}
}

// load opens the new model. ONNX Runtime cannot interrupt a load, but the report shows at once if the roll-out is
// withdrawn.
func (k *Keeper) load(ctx context.Context, m manifest.RolloutModel) {
	k.model, k.tried = m, k.edits
	k.enter(Loading, "")
	var second Second
	opened, read := make(chan error), k.read
	go func() {
		var err error
		second, err = k.Open(ctx, &read)
		opened <- err
	}()
	for {
		select {
		case err := <-opened:
			if err == nil {
				k.second = second
				k.change(func(r *Report) { r.SHA256, r.ServerID = second.SHA256(), second.ServerID() })
				k.reread() // the roll-out may have been withdrawn meanwhile
				k.step(ctx)
			} else if ctx.Err() == nil { // else the server shuts down
				k.fail(err)
			}
			return
		case <-time.After(Poll):
		}
		if k.reread(); k.Report().Plan.Active() && k.Report().Plan.Model.RepoOrPath == m.RepoOrPath {
			k.enter(Loading, "")
		} else {
			k.enter(Leaving, "withdrawn during its load, which ends first; no robot gets the new model")
		}
	}
}

// fail ends a roll-out whose model cannot be served. The first model then serves all robots.
func (k *Keeper) fail(err error) {
	k.counts.Models.Add(1)
	k.forget()
	k.Log.Error("THE ROLL-OUT FAILED: the first model serves all robots", "model", k.model.RepoOrPath, "why", err)
	k.enter(Failed, strings.ReplaceAll(err.Error(), "\n", ": "))
}

// forget records that the new model is unloaded.
func (k *Keeper) forget() {
	k.second, k.empty = nil, 0
	k.change(func(r *Report) { r.SHA256, r.ServerID = "", "" })
}
