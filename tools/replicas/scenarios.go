package main

import (
	"fmt"
	"time"

	"github.com/edge-rt/edge-rt/stage"
)

// scenario is a series of actions on servers while robots stream.
type scenario struct {
	name  string
	again bool // robots move to another server, and must stream again in time
	fed   bool // every tick must have an action
	dies  int  // observations that may be lost with a server, for each robot that moved
	short bool // CI plays the scenario
	steps []step
}

// step is one action, or a check.
type step func(*stand) error

// hang is longer than the lease of a server's link.
const hang = 4 * time.Second

var scenarios = []scenario{
	{name: "a third joins two", short: true, fed: true,
		steps: []step{servers(2), robots(-1), settle, servers(1), settle, robots(1), settle, newestAt(2)}},
	{name: "one of three ends (SIGTERM)", again: true, fed: true, dies: 1,
		steps: []step{servers(3), robots(0), settle, drain(busiest), settle}},
	{name: "one of three is killed (SIGKILL)", short: true, again: true, dies: 4,
		steps: []step{servers(3), robots(0), settle, kill(busiest), settle}},
	{name: "one of two hangs for 4 s (SIGSTOP) and goes on; a robot comes meanwhile", short: true, again: true,
		dies: 20, steps: []step{servers(2), robots(0), settle, pause(busiest), wait(hang / 4), robots(1),
			wait(3 * hang / 4), resume, settle}},
	{name: "one is full; the other ends, and is back after 2 s", dies: 2,
		steps: []step{serve(serving{third: true}, serving{}), robots(0), settle, drain(nth(1)), wait(2 * time.Second),
			fullAndLoyal(0), servers(1), settle}},
	{name: "one refuses them for good", fed: true,
		steps: []step{serve(serving{pin: "do something else"}, serving{}), robots(0, "--task", "around the post"),
			settle}},
	{name: "another bundle on the same key; theirs is killed, and is back after 2 s", short: true, dies: 4,
		steps: []step{servers(1), robots(0), serve(serving{bundle: "plain"}), settle, kill(nth(0)),
			wait(2 * time.Second), empty(1), servers(1), settle}},
	{name: "another revision and another service come and go", fed: true,
		steps: []step{servers(2), robots(0, "--service", stage.DemoService),
			serve(serving{service: "other"}), settle, drain(nth(2)),
			serve(serving{service: "other", revision: "two"}), settle, drain(nth(3)), settle}},
	{name: "the router is away for 1 s (then counted)", short: true, again: true, dies: 4,
		steps: []step{servers(2), robots(0), settle, cutRouter(time.Second), settle}},
	{name: "the last one ends, and another starts after 3 s", dies: 2,
		steps: []step{servers(1), robots(0), settle, drain(nth(0)), wait(3 * time.Second), servers(1), settle}},
	{name: "a robot of LeRobot's draft among ours; one of three ends, one is killed", short: true, again: true, dies: 3,
		steps: []step{servers(3), robots(-1), (*stand).addDraft, settle, drain(ofDraft), settle, kill(ofDraft), settle,
			(*stand).judgeDraft}},
	{name: "a rolling update of all three", short: true, again: true, fed: true, dies: 1,
		steps: []step{servers(3), robots(0), settle, drain(nth(0)), servers(1), settle, drain(nth(1)), servers(1),
			settle, drain(nth(2)), servers(1), settle}},
}

// serve starts servers and waits until all serve.
func serve(all ...serving) step {
	return func(s *stand) error {
		for _, of := range all {
			if err := s.startServer(of); err != nil {
				return err
			}
		}
		for _, sv := range s.servers[len(s.servers)-len(all):] {
			if err := sv.ready(); err != nil {
				return err
			}
		}
		return nil
	}
}

// servers starts n servers with equal settings.
func servers(n int) step { return serve(make([]serving, n)...) }

// robots starts n robots with further flags. If n is 0, it starts as many robots as --robots gives, and if n is -1, one
// robot less.
func robots(n int, flags ...string) step {
	return func(s *stand) error {
		if n <= 0 {
			n = max(1, s.o.Robots+n)
		}
		return s.add(n, flags...)
	}
}

func wait(d time.Duration) step { return func(*stand) error { time.Sleep(d); return nil } }

// settle watches all programs for o.Settle.
func settle(s *stand) error { return wait(s.o.Settle)(s) }

// A pick chooses a server.
type pick func(*stand) *server

func nth(i int) pick { return func(s *stand) *server { return s.servers[i] } }

// busiest picks the running server with most robots.
func busiest(s *stand) (best *server) {
	most := -1
	for _, sv := range s.servers {
		if n := len(s.robotsAt(sv)); sv.Running() && sv.endedAt.IsZero() && n > most {
			best, most = sv, n
		}
	}
	return best
}

// ofDraft picks the server of the draft's robot.
func ofDraft(s *stand) *server { return s.draft.server(s) }

// ended records that a server ends now, so that its robots have to change their server.
func (s *stand) ended(of pick) *server {
	sv := of(s)
	sv.endedAt = s.note(s.robotsAt(sv))
	return sv
}

// drain ends a server by SIGTERM, as a service manager does, and waits until it has ended.
func drain(of pick) step {
	return func(s *stand) error {
		sv := s.ended(of)
		if err := sv.Stop(); err != nil {
			return fmt.Errorf("%s: %w: %s", sv.Name, err, sv.Log.Tail(5))
		}
		if code := sv.State().ExitCode(); code != 0 { // killed by the signal instead of draining
			return fmt.Errorf("%s: exit code %d after SIGTERM, want 0: %s", sv.Name, code, sv.Log.Tail(5))
		}
		return nil
	}
}

func kill(of pick) step { return func(s *stand) error { s.ended(of).Kill(); return nil } }

func pause(of pick) step {
	return func(s *stand) error { s.paused = s.ended(of); return s.paused.Pause() }
}

func resume(s *stand) error { return s.paused.Resume() }

// cutRouter ends the router for a while. All links end with the router.
func cutRouter(away time.Duration) step {
	return func(s *stand) error {
		moves := map[string]bool{}
		for _, r := range s.robots {
			moves[r.id] = true
		}
		s.cut = true
		s.router.Kill()
		time.Sleep(away)
		if err := s.router.Start(); err != nil {
			return err
		}
		s.note(moves)
		return nil
	}
}

// newestAt checks that the newest robot is at server i.
func newestAt(i int) step {
	return func(s *stand) error {
		if got, want := s.robots[len(s.robots)-1].open(), s.servers[i].id; got != want {
			s.problem("a robot that comes after it is at %s, want %s", got, want)
		}
		return nil
	}
}

// fullAndLoyal checks that server i is full, and that the robots that it had before the newest event
// are still at this server.
func fullAndLoyal(i int) step {
	return func(s *stand) error {
		at, moved := s.robotsAt(s.servers[i]), s.events[len(s.events)-1].moves
		if len(at) != s.servers[i].sessions {
			s.problem("the small one holds %d robots of %d", len(at), s.servers[i].sessions)
		}
		for _, r := range s.robots {
			if !moved[r.id] && !at[r.id] {
				s.problem("%s was thrown out of the small one", r.id)
			}
		}
		return nil
	}
}

// empty checks that server i has no robots.
func empty(i int) step {
	return func(s *stand) error {
		if n := len(s.robotsAt(s.servers[i])); n != 0 {
			s.problem("%d robots went on with another policy", n)
		}
		return nil
	}
}

func (s *stand) problem(format string, args ...any) {
	s.problems = append(s.problems, fmt.Sprintf(format, args...))
}
