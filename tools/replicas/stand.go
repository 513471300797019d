package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/edge"
	"github.com/edge-rt/edge-rt/stage"
)

const (
	startLimit = 40 * time.Second // longest wait until a program is ready
	endLimit   = 20 * time.Second // longest wait for the end of a program after its signal
)

// stand holds one scenario's programs.
type stand struct {
	o        options
	dir      string
	router   *stage.Router
	servers  []*server
	paused   *server
	robots   []*robot
	programs []*stage.Child // servers and robots, in the order of their starts
	draft    *draft         // nil: none
	events   []event
	problems []string
	cut      bool      // the router was down, and so were all links
	over     time.Time // time at which the robots got their signal to end
}

// event is an action on servers; the robots in moves have to change their server.
type event struct {
	at    time.Time
	moves map[string]bool // ids of robots
}

// add starts n robots, with further flags.
func (s *stand) add(n int, flags ...string) error {
	var fresh []*robot
	for range n {
		id := fmt.Sprintf("arm-%d", len(s.robots)+1)
		r := &robot{id: id, summary: filepath.Join(s.dir, id+".json")}
		args := stage.SimArm(s.router.Endpoint, "--id", id, "--fps",
			fmt.Sprint(s.o.FPS), "--fps-mismatch", "allow",
			"--on-exit", "off", "--seed", fmt.Sprint(len(s.robots)+1), "--json", r.summary)
		cmd := stage.Edge(s.o.Bin, s.dir, append(args, flags...)...)
		cmd.Env = append(cmd.Env, "HF_LEROBOT_CALIBRATION="+s.dir)
		var err error
		if r.Child, err = s.start(id, cmd); err != nil {
			return err
		}
		s.robots, fresh = append(s.robots, r), append(fresh, r)
		time.Sleep(100 * time.Millisecond) // arms are not armed all at once
	}
	for _, r := range fresh {
		if !stage.Until(startLimit, func() bool { return r.open() != "" || !r.Running() }) {
			return fmt.Errorf("%s streams: not within %v", r.id, startLimit)
		}
	}
	return nil
}

// robotsAt returns the ids of a server's robots.
func (s *stand) robotsAt(sv *server) map[string]bool {
	all := map[string]bool{}
	for _, r := range s.robots {
		if r.open() == sv.id {
			all[r.id] = true
		}
	}
	return all
}

// note records that robots have to change their server from now on.
func (s *stand) note(moves map[string]bool) time.Time {
	s.events = append(s.events, event{time.Now(), moves})
	return s.events[len(s.events)-1].at
}

// play runs a scenario and returns its result.
func (s *stand) play(sc scenario) (r row, err error) {
	fmt.Printf("... %s\n", sc.name)
	r.name = sc.name
	// The audits of earlier runs must not count.
	if err := errors.Join(os.RemoveAll(s.dir), os.MkdirAll(s.dir, 0o755)); err != nil {
		return r, err
	}
	defer s.end()
	if s.router, err = stage.NewRouter(s.o.Python, s.o.Packages, s.o.Routers, s.dir); err != nil {
		return r, err
	}
	if err := s.router.Start(); err != nil {
		return r, err
	}
	for _, do := range sc.steps {
		if err := do(s); err != nil {
			return r, err
		}
	}
	s.over = time.Now()
	for _, rb := range s.robots { // SIGINT ends a robot like Ctrl-C
		rb.Interrupt()
	}
	for _, rb := range s.robots {
		_ = rb.Wait(endLimit)
		if code := rb.State().ExitCode(); code != 0 {
			s.problem("%s ended with %d: %s", rb.id, code, rb.Log.Tail(3))
		}
	}
	for _, sv := range s.servers {
		if sv.Running() {
			err = errors.Join(err, sv.Resume(), sv.Stop())
			if code := sv.State().ExitCode(); code != 0 {
				s.problem("%s ended with %d", sv.Name, code)
			}
		}
	}
	if err != nil {
		return r, err
	}
	r = row{name: sc.name, robots: len(s.robots), problems: s.problems}
	return r, errors.Join(s.readSummaries(&r), s.readAudits(&r))
}

// end ends the remaining programs, and keeps their logs.
func (s *stand) end() {
	if s.draft != nil {
		s.draft.leave()
	}
	for _, p := range slices.Backward(s.programs) {
		p.Kill()
		_ = os.WriteFile(filepath.Join(s.dir, p.Name+".log"), []byte(p.Log.Tail(1<<20)), 0o600)
	}
	if s.router != nil && s.router.Child != nil {
		s.router.Kill()
	}
}

// show prints the last lines of all programs of a failed scenario.
func (s *stand) show() {
	for _, p := range s.programs {
		fmt.Printf("--- %s\n%s\n", p.Name, p.Log.Tail(12))
	}
}

func (s *stand) readSummaries(r *row) error {
	for _, rb := range s.robots {
		var sum edge.Summary
		if err := stage.ReadJSON(rb.summary, &sum); err != nil {
			return err
		}
		r.starved += sum.StarvedTicks - min(sum.StarvedBus, sum.StarvedTicks)
		if sum.Chunks == 0 {
			r.problems = append(r.problems, rb.id+" got no chunk")
		}
	}
	return nil
}
