package server

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/server/memory"
	"github.com/edge-rt/edge-rt/server/rollout"
	"github.com/edge-rt/edge-rt/server/servertest"
	"github.com/edge-rt/edge-rt/server/status"
	"github.com/edge-rt/edge-rt/wire"
)

// rolling is a bench with a roll-out. Its new model is a fake with the digest n3w.
type rolling struct {
	*bench
	file   string
	closed bool // the new model was closed
}

// roll serves a manifest with a block rollout. The function change alters the new model's description.
func roll(t *testing.T, block string, change func(*policy.Meta)) *rolling {
	t.Helper()
	r := &rolling{}
	r.file = rttest.WriteFile(t, t.TempDir(), "server.yaml", "model: {repo_or_path: bundle}\nservice: demo\n"+
		"max_sessions: 3\n"+block)
	cfg := rttest.Must(manifest.Load(r.file))(t)
	next := &seconds{cfg: cfg, load: func(context.Context, *manifest.Config) (*loaded, error) {
		meta := servertest.Meta()
		if change != nil {
			change(meta)
		}
		return &loaded{
			Deps: Deps{Meta: meta, SHA256: "n3w", Model: servertest.NewModel(), Clock: r.clock,
				Placement: policy.Placement{Instead: policy.ErrNoProvider}},
			where: "new",
			close: func() error { r.closed = true; return nil },
		}, nil
	}}
	r.bench = newBench(t, cfg, func(d *Deps) {
		d.Rollout = rollout.New(rollout.Config{Manifest: cfg, Open: next.open, Clock: d.Clock, Log: d.Log})
		next.deps = *d
	})
	next.first = r.server
	r.begin()
	rttest.Eventually(t, "a token", func() bool { return r.network.CountTokens(wire.ServerAliveAny) > 0 })
	return r
}

// await waits for a state of the roll-out.
func (r *rolling) await(want rollout.State) *rollout.Report {
	r.t.Helper()
	rttest.Eventually(r.t, want.String(), func() bool { return r.server.rollout.Report().State == want })
	return r.server.rollout.Report()
}

// edit replaces the block of the manifest.
func (r *rolling) edit(change func(*manifest.Rollout)) {
	r.t.Helper()
	rttest.OrPanic(manifest.EditRollout(r.file, change))
}

// opens opens a session of the robot uuid, in the given epoch, at the server with the id "at". The robot's run is bound
// to the model with this digest.
func (r *rolling) opens(at, uuid, digest string, epoch uint32) wire.SessionAck {
	r.t.Helper()
	o := process(uuid, "i-"+uuid, "host", epoch)
	o.ServerID, o.ModelSHA256 = at, digest
	return r.open(o)
}

// A robot gets the model that the roll-out has for it, and a robot that is bound to a model gets that model. The limits
// of one server hold for both servers together. When the second server has ended, its sessions' memory and places are
// free.
func TestTwoModels(t *testing.T) {
	t.Parallel()
	r := roll(t, "rollout: {model: new, robots: [new-arm]}\n", nil)
	report := r.await(rollout.Serving)
	first, second := r.server.id, report.ServerID
	if report.SHA256 != "n3w" || wire.TakesUnnamed(second) || !wire.TakesUnnamed(first) {
		t.Fatalf("report %+v", report)
	}
	served := map[string]string{}
	for _, reply := range r.query(wire.StatusKey(fakePrefix), nil) {
		var s wire.Status
		rttest.Do(t, wire.Parse(&s, reply.Payload))
		served[s.ServerID] = s.ModelSHA256
	}
	if len(served) != 2 || served[first] != "5ha" || served[second] != "n3w" {
		t.Fatalf("served: %v", served)
	}
	rttest.Contains(t, strings.Join(showLive(r.server, status.Query{}).Warnings, "; "), "CPU instead of a GPU")
	for _, tt := range []struct {
		at, uuid, digest string
		accepted         bool
	}{
		{first, "new-arm", "", false}, {second, "old-arm", "", false},
		{first, "bound", "n3w", false}, {second, "bound", "n3w", true},
		{first, "old-arm", "", true}, {second, "new-arm", "", true}, {first, "third", "", false},
	} {
		ack := r.opens(tt.at, tt.uuid, tt.digest, 1)
		if ack.Accepted != tt.accepted || !tt.accepted && ack.RetryAfterMs == 0 {
			t.Errorf("%s at %s: %+v", tt.uuid, served[tt.at], ack)
		}
		if tt.uuid == "third" && !strings.Contains(ack.Error, "3/3 sessions") {
			t.Errorf("both servers are full together: %s", ack.Error)
		}
	}
	// exactly one server answers
	if ack := r.open(fakeOpen("draft")); ack.Accepted || !strings.Contains(ack.Error, "3/3") {
		t.Errorf("a client that names no server: %+v", ack)
	}
	arm, bound := r.robot("new-arm"), r.robot("bound")
	o := fakeObs(t)
	o.HasT = true
	arm.send(obsHeader(1, 1), o)
	rttest.Want(t, arm.wantChunk(1).chunk.ServerID, second, "the chunk's server")

	r.edit(func(to *manifest.Rollout) { to.Share, to.Robots = 0, nil })
	r.await(rollout.Leaving)
	bound.wantEvent(wire.EventModel, "another model")
	for wait := range 4 { // seconds until the event is repeated
		r.clock.Advance(time.Duration(wait) * time.Second)
		arm.wantEvent(wire.EventModel, "another model")
	}
	if ack := r.opens(first, "new-arm", "", 2); !ack.Accepted || ack.ModelSHA256 != "5ha" {
		t.Errorf("back at the first model: %+v", ack)
	}
	r.admits(r.opens(second, "bound", "n3w", 2), "a run that is bound to the new model")
	rttest.Eventually(t, "the first server takes the robot", func() bool {
		return r.server.sessions.find("new-arm") != nil
	})
	rttest.Eventually(t, "two robots at the first", func() bool { return r.server.sessions.count() == 3 })
	r.query(wire.SessionKey(fakePrefix), wire.Append(nil, &wire.SessionClose{ClientUUID: "bound",
		SessionID: r.server.second.Load().sessions.find("bound").id}))
	rttest.Eventually(t, "the end of the second server", func() bool {
		r.clock.Advance(time.Second)
		return r.server.rollout.Report().State == rollout.Off
	})
	open := int64(len(r.server.sessions.all())) // sessions of the other robots, which have shown no token
	if got := r.server.memory.Of(memory.Sessions); got != open*sessionMemory(r.server.opener.meta) || !r.closed ||
		r.server.second.Load() != nil || r.server.sessions.count() != int(open) ||
		len(r.query(wire.StatusKey(fakePrefix), nil)) != 1 {
		t.Errorf("%d bytes for %d sessions, of %d, model closed: %v", got, open, r.server.sessions.count(), r.closed)
	}
}

// A new model with other joints, a broken manifest, or a new model that does not load changes nothing for the robots.
// The page names the cause.
func TestARolloutThatFails(t *testing.T) {
	r := roll(t, "", func(m *policy.Meta) { m.ActionNames = []string{"a", "b"} })
	r.edit(func(to *manifest.Rollout) { to.Model.RepoOrPath, to.Share = "/new", 1 })
	report := r.await(rollout.Failed)
	if !strings.Contains(report.Why, "its actions are [a b]") || !r.closed {
		t.Errorf("why: %s", report.Why)
	}
	r.admits(r.opens(r.server.id, "arm", "", 1), "the first model")
	text := rttest.Must(os.ReadFile(r.file))(t)
	rttest.Do(t, os.WriteFile(r.file, append(text, "rollout: {share: 7}\n"...), 0o600))
	rttest.Eventually(t, "the broken edit", func() bool { return r.server.rollout.Report().Edit != "" })
	live := showLive(r.server, status.Query{})
	if all := strings.Join(live.Warnings, "\n"); !strings.Contains(all, "its actions are [a b]") ||
		!strings.Contains(all, `"rollout" already defined`) || !live.Ready {
		t.Errorf("warnings: %s", all)
	}
	if n := r.server.rollout.Counted(); n.Models.Load() != 1 || n.Manifests.Load() != 1 {
		t.Errorf("counted %d models and %d manifests, want one each", n.Models.Load(), n.Manifests.Load())
	}
}

// The roll-out of a simulation_only model fails, because the model would end the runs of all robots with a real arm.
func TestARolloutForSimulationOnly(t *testing.T) {
	r := roll(t, "rollout: {model: new, share: 1}\n", func(m *policy.Meta) { m.SimulationOnly = true })
	rttest.Contains(t, r.await(rollout.Failed).Why, "new is simulation_only")
}

// A robot that is bound to the new model is refused while that model is being loaded. After the
// roll-out has failed, the server admits it with the first model, which the robot itself then
// checks.
func TestABoundRobotWaitsForItsModel(t *testing.T) {
	load := make(chan struct{})
	b := newBench(t, config(), func(d *Deps) {
		cfg := config()
		cfg.Rollout = manifest.Rollout{Model: manifest.RolloutModel{RepoOrPath: "new"}, Share: 1}
		d.Rollout = rollout.New(rollout.Config{
			Manifest: cfg,
			Open: func(context.Context, *manifest.Config) (rollout.Second, error) {
				<-load
				return nil, errors.New("a broken file")
			},
			Clock: d.Clock,
			Log:   d.Log,
		})
	})
	b.start()
	o := process("arm", "i", "host", 1)
	o.ModelSHA256 = "n3w"
	if ack := b.open(o); ack.Accepted || ack.RetryAfterMs == 0 {
		t.Errorf("while it is loaded: %+v", ack)
	}
	other := process("other", "i", "host", 1)
	other.ServerID, other.ModelSHA256 = b.server.id, "5ha"
	b.admits(b.open(other), "a robot that is bound to the first model")
	close(load)
	rttest.Eventually(t, "failed", func() bool { return b.server.rollout.Report().State == rollout.Failed })
	b.admits(b.open(o), "the bound robot after the failure")
}
