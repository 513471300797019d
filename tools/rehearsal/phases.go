package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/edge-rt/edge-rt/stage"
)

// phase is one exercise, judged by a bound.
type phase struct {
	name   string
	again  time.Duration // longest time after an event until every robot has a session and new chunks
	hunger float64       // longest time without an action, in seconds, of a robot whose cable is plugged in
	steps  []step
}

type step func(*fleet) error

// The bounds of docs/fleet.md. A program that ends closes its links, and its peers connect to another program at once.
// A robot notices a pulled cable after the lease of a link, at the latest after --request-timeout (5 s), and connects
// again after at most --reconnect-max-backoff (10 s).
const (
	atOnce  = 5 * time.Second
	timeout = 10 * time.Second
	backoff = 20 * time.Second
	first   = 0.5 // longest time in seconds without an action until the first chunk of an episode
)

var phases = []phase{
	{name: "nothing happens", again: atOnce, steps: []step{settle}},
	{name: "rolling update of the servers", again: atOnce,
		steps: []step{update(0), update(1), update(2)}},
	{name: "roll-out of another model, at each robot's next episode", again: atOnce,
		steps: []step{rollOut("set", "--manifest", "server.yaml", "--bundle", "next", "--share", "1")}},
	{name: "and back", again: atOnce, steps: []step{rollOut("back", "--manifest", "server.yaml")}},
	{name: "every certificate renewed, servers restarted in turn", again: atOnce,
		steps: []step{renew, update(0), update(1), update(2), renewed}},
	{
		name:   "router-1 killed, back after 5 s",
		again:  atOnce,
		hunger: atOnce.Seconds(),
		steps:  []step{killRouter, settle},
	},
	{
		name:   "the busiest server's cable pulled for 15 s",
		again:  timeout,
		hunger: timeout.Seconds(),
		steps:  []step{pullServer, settle},
	},
	{name: "the cables of a third of the robots pulled for 5 s", again: backoff,
		steps: []step{pull, settle}},
}

// row is the result of a phase.
type row struct {
	name    string
	took    time.Duration
	moved   int           // robots that opened another session
	starved float64       // ticks without an action
	hungry  int           // robots with ticks without an action
	hunger  float64       // longest time without an action, in seconds, of a robot whose cable is plugged in
	first   float64       // longest time of a robot without an action before an episode's first chunk, in seconds
	again   time.Duration // longest time after an event until every robot had a session and a new chunk
	runway  float64       // shortest time for which a robot had actions left, in seconds
	answers []string      // answers of Prometheus
}

// play plays a phase and judges it.
func (f *fleet) play(p phase) (row, error) {
	fmt.Printf("\n... %s\n", p.name)
	f.look()
	for _, r := range f.robots {
		r.before = r.now
		r.runway = math.Inf(1)
		r.cut = false
	}
	f.again = 0
	began := time.Now()
	for _, do := range p.steps {
		if err := do(f); err != nil {
			return row{}, err
		}
	}
	f.look()
	r := f.count()
	r.name = p.name
	r.took = time.Since(began)
	r.again = f.again
	var err error
	r.answers, err = f.ask(r.took)
	f.checks.That(f.ended() == "", "%s: every program runs %s", p.name, f.ended())
	r.judge(p, &f.checks)
	return r, err
}

// count returns the phase's results: the changes of the robots' metrics since the beginning of the phase.
func (f *fleet) count() (r row) {
	r.runway = math.Inf(1)
	for _, robot := range f.robots {
		starved := robot.now.starved() - robot.before.starved()
		r.starved += starved
		r.runway = min(r.runway, robot.runway)
		if starved > 0 {
			r.hungry++
		}
		r.first = max(r.first, (robot.now[startTicks]-robot.before[startTicks])/f.o.FPS)
		if !robot.cut {
			r.hunger = max(r.hunger, starved/f.o.FPS)
		}
		if robot.now["edge_rt_sessions_total"] > robot.before["edge_rt_sessions_total"] {
			r.moved++
		}
	}
	return r
}

// judge checks that the result keeps the bounds of its phase.
func (r *row) judge(p phase, checks *stage.Checks) {
	checks.That(r.again <= p.again, "%s: all robots stream again after %.1f s (bound %v)", p.name, r.again.Seconds(),
		p.again)
	checks.That(r.hunger <= p.hunger,
		"%s: no robot with its cable was without an action for more than %.2f s (bound %g)",
		p.name, r.hunger, p.hunger)
	checks.That(r.first <= first, "%s: no robot waited %.2f s for an episode's first chunk (bound %g)", p.name, r.first,
		first)
}

// settle watches all for a while.
func settle(f *fleet) error { f.wait(f.o.Settle); return nil }

func (f *fleet) wait(d time.Duration) { f.await(d, func() bool { return false }) }

// stream waits until each robot has a session and has received a new chunk, and then calls settle.
func (f *fleet) stream() error {
	event := time.Now()
	chunks := map[*robot]float64{}
	f.look()
	for _, r := range f.robots {
		chunks[r] = r.now["edge_rt_chunks_total"]
	}
	var late *robot
	if !f.await(streamLimit, func() bool {
		f.look()
		for _, late = range f.robots {
			if late.now["edge_rt_session_open"] != 1 || late.now["edge_rt_chunks_total"] <= chunks[late] {
				return false
			}
		}
		return true
	}) {
		return fmt.Errorf("%s has no new chunk after %v: %s", late.name, streamLimit, late.Log.Tail(8))
	}
	f.again = max(f.again, time.Since(event))
	return settle(f)
}

// update restarts a server, as a service manager does.
func update(n int) step {
	return func(f *fleet) error {
		s := f.servers[n]
		if err := s.Stop(); err != nil {
			return err
		}
		if code := s.State().ExitCode(); code != 0 { // killed by the signal instead of draining
			return fmt.Errorf("%s: exit code %d after SIGTERM, want 0: %s", s.name, code, s.Log.Tail(5))
		}
		if err := f.serve(n); err != nil {
			return err
		}
		return f.stream()
	}
}

// renew renews the certificates of all programs, in the files that the programs read.
func renew(f *fleet) error {
	for name := range f.hosts {
		if err := f.certify(name, "DAYS=30"); err != nil {
			return err
		}
	}
	return f.certify("server", "DAYS=30")
}

// renewed checks that each robot shows the end of its new certificate.
func renewed(f *fleet) error {
	const file = `edge_rt_certificate_end_timestamp_seconds{file="connect"}`
	for _, r := range f.robots {
		if r.now[file] == r.before[file] {
			return fmt.Errorf("%s shows its old certificate", r.name)
		}
	}
	return nil
}

// killRouter kills the first router, to which half of the robots are connected.
func killRouter(f *fleet) error {
	f.routers[0].Kill()
	if err := f.stream(); err != nil {
		return err
	}
	if err := f.route(0); err != nil {
		return err
	}
	return f.stream()
}

// pull pulls the cables of every third robot for 5 s.
func pull(f *fleet) error {
	var names []string
	for i, r := range f.robots {
		if r.cut = i%3 == 0; r.cut {
			names = append(names, r.name)
		}
	}
	if err := f.cables("down", names...); err != nil {
		return err
	}
	f.wait(5 * time.Second)
	if err := f.cables("up", names...); err != nil {
		return err
	}
	return f.stream()
}

// pullServer pulls a server's cable for 15 s, in which the server's robots have to find another server.
func pullServer(f *fleet) error {
	name, most := "", -1.
	for _, s := range f.servers {
		now, err := stage.Scrape(f.hosts[s.name] + serverPort)
		if err != nil {
			return err
		}
		if n := now["lean_server_active_sessions"]; n > most {
			name, most = s.name, n
		}
	}
	if err := f.cables("down", name); err != nil {
		return err
	}
	pulled := time.Now()
	if err := f.stream(); err != nil {
		return err
	}
	f.wait(time.Until(pulled.Add(15 * time.Second)))
	return errors.Join(f.cables("up", name), f.stream())
}

// cables sets the hosts' cables up or down.
func (f *fleet) cables(to string, names ...string) (err error) {
	for _, name := range names {
		err = errors.Join(err, f.run("ip", "link", "set", name, to))
	}
	return err
}

// rollOut changes the manifest by lean-server rollout, and makes every robot begin a new episode, which must have
// the new model.
func rollOut(args ...string) step {
	return func(f *fleet) error {
		if err := f.run(stage.Program(f.o.Bin, "lean-server"), append([]string{"rollout"}, args...)...); err != nil {
			return err
		}
		f.wait(f.o.Settle) // the servers read the manifest each second, and load the model
		for _, r := range f.robots {
			var reply struct{}
			if err := stage.Ctl(f.o.Bin, f.dir, r.name, "reset", &reply); err != nil {
				return err
			}
		}
		if err := f.stream(); err != nil {
			return err
		}
		for _, r := range f.robots {
			if r.now.model() == r.before.model() {
				return fmt.Errorf("%s has the first model: %s", r.name, r.Log.Tail(8))
			}
		}
		return nil
	}
}

// nextBundle copies the bundle and changes its revision, so that the copy has another sha256.
func (f *fleet) nextBundle(from string) error {
	to := f.file("next")
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	return f.edit(filepath.Join(to, "bundle.json"), `"source_revision": "`, `"source_revision": "next: `)
}
