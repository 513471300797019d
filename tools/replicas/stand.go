package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/stage"
)

const (
	startLimit = 40 * time.Second // for a program to be ready
	endLimit   = 20 * time.Second // for a program to end when asked
	poll       = 20 * time.Millisecond
)

// stand holds one scenario's programs.
type stand struct {
	o        options
	dir      string
	at       string // the router's endpoint
	router   *program
	config   string
	servers  []*server
	robots   []*robot
	events   []event
	problems []string
	cut      bool      // the router was down, and with it every link
	over     time.Time // when the robots got their signal to end
}

// event is an action on servers; the robots in moves have to change their server.
type event struct {
	at    time.Time
	moves map[string]bool // ids of robots
}

func (s *stand) start(name string, cmd *exec.Cmd) (*program, error) {
	p := &program{name: name}
	cmd.Stdout, cmd.Stderr = p, p
	var err error
	if p.Child, err = stage.StartGroup(cmd); err != nil {
		return nil, err
	}
	return p, nil
}

// startRouter starts the official router, on the same endpoint each time.
func (s *stand) startRouter() (err error) {
	if s.at == "" {
		if s.at, err = stage.FreeEndpoint(); err != nil {
			return err
		}
		text, err := os.ReadFile(filepath.Join(s.o.routers, "single.json5"))
		if err != nil {
			return err
		}
		s.config = filepath.Join(s.dir, "router.json5")
		text = []byte(strings.Replace(string(text), "tcp/0.0.0.0:7447", s.at, 1))
		if err := os.WriteFile(s.config, text, 0o600); err != nil {
			return err
		}
	}
	cmd := stage.Command(s.o.python, filepath.Join(s.o.routers, "router.py"), s.config)
	if s.o.packages != "" {
		cmd.Env = append(cmd.Env, "PYTHONPATH="+s.o.packages)
	}
	if s.router, err = s.start("router", cmd); err != nil {
		return err
	}
	err = wait("the router listens", func() bool {
		return len(s.router.said(listensLine)) > 0 || !s.router.Running()
	})
	if err == nil && !s.router.Running() {
		err = fmt.Errorf("the router ended: %s", s.router.tail(5))
	}
	return err
}

// add starts n robots, with more flags.
func (s *stand) add(n int, flags ...string) error {
	var fresh []*robot
	for range n {
		id := fmt.Sprintf("arm-%d", len(s.robots)+1)
		r := &robot{id: id, summary: filepath.Join(s.dir, id+".json")}
		args := stage.SimArm(s.at, "--id", id, "--fps",
			fmt.Sprint(s.o.fps), "--fps-mismatch", "allow",
			"--on-exit", "off", "--seed", fmt.Sprint(len(s.robots)+1), "--json", r.summary)
		cmd := stage.Edge(s.o.bin, s.dir, append(args, flags...)...)
		cmd.Env = append(cmd.Env, "HF_LEROBOT_CALIBRATION="+s.dir)
		var err error
		if r.program, err = s.start(id, cmd); err != nil {
			return err
		}
		s.robots, fresh = append(s.robots, r), append(fresh, r)
		time.Sleep(100 * time.Millisecond) // arms are not armed all at once
	}
	for _, r := range fresh {
		if err := wait(r.id+" streams", func() bool { return r.open() != "" || !r.Running() }); err != nil {
			return err
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

// busiest returns the running server with most robots.
func (s *stand) busiest() (best *server) {
	most := -1
	for _, sv := range s.servers {
		if n := len(s.robotsAt(sv)); sv.Running() && sv.endedAt.IsZero() && n > most {
			best, most = sv, n
		}
	}
	return best
}

// note notes that robots have to change their server from now on.
func (s *stand) note(moves map[string]bool) time.Time {
	s.events = append(s.events, event{time.Now(), moves})
	return s.events[len(s.events)-1].at
}

// drain asks a server to end, as a service manager does, and waits for it.
func (s *stand) drain(sv *server) error {
	sv.endedAt = s.note(s.robotsAt(sv))
	if err := sv.Stop(); err != nil {
		return fmt.Errorf("%s: %w: %s", sv.name, err, sv.tail(5))
	}
	if code := sv.State().ExitCode(); code != 0 {
		s.problem("%s ended with %d", sv.name, code)
	}
	return nil
}

func (s *stand) kill(sv *server) {
	sv.endedAt = s.note(s.robotsAt(sv))
	sv.Kill()
}

// settle waits for a while.
func (s *stand) settle() { time.Sleep(s.o.settle) }

// play runs a scenario and returns its result.
func (s *stand) play(sc scenario) (r row, err error) {
	fmt.Printf("... %s\n", sc.name)
	r.name = sc.name
	// earlier audits do not belong to this run
	if err := errors.Join(os.RemoveAll(s.dir), os.MkdirAll(s.dir, 0o755)); err != nil {
		return r, err
	}
	defer s.end()
	if err = s.startRouter(); err == nil {
		err = sc.run(s)
	}
	if err != nil {
		return r, err
	}
	s.over = time.Now()
	for _, rb := range s.robots { // ends it like Ctrl-C
		rb.Interrupt()
	}
	for _, rb := range s.robots {
		_ = rb.Wait(endLimit)
		if code := rb.State().ExitCode(); code != 0 {
			s.problem("%s ended with %d: %s", rb.id, code, rb.tail(3))
		}
	}
	for _, sv := range s.servers {
		if sv.Running() {
			err = errors.Join(err, sv.Resume(), sv.Stop())
			if code := sv.State().ExitCode(); code != 0 {
				s.problem("%s ended with %d", sv.name, code)
			}
		}
	}
	if err != nil {
		return r, err
	}
	r = row{name: sc.name, robots: len(s.robots), problems: s.problems}
	return r, errors.Join(s.readSummaries(&r), s.readAudits(&r))
}

// end ends the remaining programs.
func (s *stand) end() {
	for _, r := range s.robots {
		r.Kill()
	}
	for _, sv := range s.servers {
		sv.Kill()
	}
	if s.router != nil {
		s.router.Kill()
	}
	for _, p := range s.programs() {
		_ = os.WriteFile(filepath.Join(s.dir, p.name+".log"), []byte(p.tail(1<<20)), 0o600)
	}
}

func (s *stand) programs() (all []*program) {
	for _, sv := range s.servers {
		all = append(all, sv.program)
	}
	for _, r := range s.robots {
		all = append(all, r.program)
	}
	return all
}

// show prints the last lines of all programs of a failed scenario.
func (s *stand) show() {
	for _, p := range s.programs() {
		fmt.Printf("--- %s\n%s\n", p.name, p.tail(12))
	}
}

func (s *stand) restartRouter(away time.Duration) error {
	moves := map[string]bool{}
	for _, r := range s.robots {
		moves[r.id] = true
	}
	s.cut = true
	s.router.Kill()
	time.Sleep(away)
	if err := s.startRouter(); err != nil {
		return err
	}
	s.note(moves)
	return nil
}

func (s *stand) readSummaries(r *row) error {
	for _, rb := range s.robots {
		var sum struct {
			Starved uint64 `json:"starved_ticks"`
			Bus     uint64 `json:"starved_by_bus"`
			Chunks  uint64 `json:"chunks"`
		}
		if err := stage.ReadJSON(rb.summary, &sum); err != nil {
			return err
		}
		r.starved += sum.Starved - min(sum.Bus, sum.Starved)
		if sum.Chunks == 0 {
			r.problems = append(r.problems, rb.id+" got no chunk")
		}
	}
	return nil
}
