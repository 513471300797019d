package main

import (
	"fmt"
	"time"

	"github.com/edge-rt/edge-rt/stage"
)

// scenario is a series of actions on servers while robots stream.
type scenario struct {
	name  string
	again bool // robots move, and must stream again in time
	fed   bool // no tick may starve
	dies  int  // observations that may be lost with a server, for each robot that moved
	short bool // CI plays it
	run   func(*stand) error
}

// hang is longer than the lease of a server's link.
const hang = 4 * time.Second

var scenarios = []scenario{
	{name: "a third joins two", short: true, fed: true, run: func(s *stand) error {
		if err := s.begin(2, s.o.robots-1); err != nil {
			return err
		}
		s.settle()
		third, err := s.serve(serving{})
		if err != nil {
			return err
		}
		s.settle()
		if err := s.add(1); err != nil {
			return err
		}
		s.settle()
		if got := s.robots[len(s.robots)-1].open(); got != third.id {
			s.problem("a robot that comes after it is at %s, want %s", got, third.id)
		}
		return nil
	}},
	{name: "one of three ends (SIGTERM)", again: true, fed: true, dies: 1, run: func(s *stand) error {
		if err := s.begin(3, s.o.robots); err != nil {
			return err
		}
		s.settle()
		if err := s.drain(s.busiest()); err != nil {
			return err
		}
		s.settle()
		return nil
	}},
	{name: "one of three is killed (SIGKILL)", short: true, again: true, dies: 4, run: func(s *stand) error {
		if err := s.begin(3, s.o.robots); err != nil {
			return err
		}
		s.settle()
		s.kill(s.busiest())
		s.settle()
		return nil
	}},
	{
		name:  "one of two hangs for 4 s (SIGSTOP) and goes on; a robot comes meanwhile",
		short: true,
		again: true,
		dies:  20,
		run: func(s *stand) error {
			if err := s.begin(2, s.o.robots); err != nil {
				return err
			}
			s.settle()
			sv := s.busiest()
			sv.endedAt = s.note(s.robotsAt(sv))
			if err := sv.Pause(); err != nil {
				return err
			}
			time.Sleep(hang / 4)
			if err := s.add(1); err != nil {
				return err
			}
			time.Sleep(3 * hang / 4)
			if err := sv.Resume(); err != nil {
				return err
			}
			s.settle()
			return nil
		},
	},
	{name: "one is full; the other ends, and is back after 2 s", dies: 2, run: func(s *stand) error {
		small, err := s.serve(serving{sessions: max(1, s.o.robots/3)})
		if err != nil {
			return err
		}
		large, err := s.serve(serving{})
		if err != nil {
			return err
		}
		if err := s.add(s.o.robots); err != nil {
			return err
		}
		s.settle()
		kept := s.robotsAt(small)
		if err := s.drain(large); err != nil {
			return err
		}
		time.Sleep(2 * time.Second)
		if n := len(s.robotsAt(small)); n != small.of.sessions {
			s.problem("the small one holds %d robots of %d", n, small.of.sessions)
		}
		for id := range kept {
			if !s.robotsAt(small)[id] {
				s.problem("%s was thrown out of the small one", id)
			}
		}
		if _, err := s.serve(serving{}); err != nil {
			return err
		}
		s.settle()
		return nil
	}},
	{name: "one refuses them for good", fed: true, run: func(s *stand) error {
		if _, err := s.serve(serving{pin: "do something else"}); err != nil {
			return err
		}
		if _, err := s.serve(serving{}); err != nil {
			return err
		}
		if err := s.add(s.o.robots, "--task", "around the post"); err != nil {
			return err
		}
		s.settle()
		return nil
	}},
	{
		name:  "another bundle on the same key; theirs is killed, and is back after 2 s",
		short: true,
		dies:  4,
		run: func(s *stand) error {
			ours, err := s.serve(serving{})
			if err != nil {
				return err
			}
			if err := s.add(s.o.robots); err != nil {
				return err
			}
			other, err := s.serve(serving{bundle: "plain"})
			if err != nil {
				return err
			}
			s.settle()
			s.kill(ours)
			time.Sleep(2 * time.Second)
			if n := len(s.robotsAt(other)); n != 0 {
				s.problem("%d robots went on with another policy", n)
			}
			if _, err := s.serve(serving{}); err != nil {
				return err
			}
			s.settle()
			return nil
		},
	},
	{name: "another revision and another service come and go", fed: true, run: func(s *stand) error {
		if err := s.begin(2, s.o.robots, "--service", stage.DemoService); err != nil {
			return err
		}
		for _, of := range []serving{{service: "other"}, {service: "other", revision: "two"}} {
			sv, err := s.serve(of)
			if err != nil {
				return err
			}
			s.settle()
			if err := s.drain(sv); err != nil {
				return err
			}
		}
		s.settle()
		return nil
	}},
	{name: "the router is away for 1 s (then counted)", short: true, again: true, dies: 4, run: func(s *stand) error {
		if err := s.begin(2, s.o.robots); err != nil {
			return err
		}
		s.settle()
		if err := s.restartRouter(time.Second); err != nil {
			return err
		}
		s.settle()
		return nil
	}},
	{name: "the last one ends, and another starts after 3 s", dies: 2, run: func(s *stand) error {
		if err := s.begin(1, s.o.robots); err != nil {
			return err
		}
		s.settle()
		if err := s.drain(s.servers[0]); err != nil {
			return err
		}
		time.Sleep(3 * time.Second)
		if _, err := s.serve(serving{}); err != nil {
			return err
		}
		s.settle()
		return nil
	}},
	{
		name:  "a robot of LeRobot's draft among ours; one of three ends, one is killed",
		short: true,
		again: true,
		dies:  3,
		run: func(s *stand) error {
			if err := s.begin(3, max(1, s.o.robots-1)); err != nil {
				return err
			}
			d, err := s.addDraft()
			if err != nil {
				return err
			}
			defer d.leave()
			s.settle()
			for _, end := range []func(*server) error{s.drain, func(sv *server) error { s.kill(sv); return nil }} {
				if err := end(d.server(s)); err != nil {
					return err
				}
				s.settle()
			}
			return d.judge(s)
		},
	},
	{name: "a rolling update of all three", short: true, again: true, fed: true, dies: 1, run: func(s *stand) error {
		if err := s.begin(3, s.o.robots); err != nil {
			return err
		}
		for _, sv := range s.servers[:3:3] {
			s.settle()
			if err := s.drain(sv); err != nil {
				return err
			}
			if _, err := s.serve(serving{}); err != nil {
				return err
			}
		}
		s.settle()
		return nil
	}},
}

// begin starts servers, and robots that stream.
func (s *stand) begin(servers, robots int, flags ...string) error {
	for range servers {
		if _, err := s.startServer(serving{}); err != nil {
			return err
		}
	}
	for _, sv := range s.servers {
		if err := sv.ready(); err != nil {
			return err
		}
	}
	return s.add(robots, flags...)
}

func (s *stand) problem(format string, args ...any) {
	s.problems = append(s.problems, fmt.Sprintf(format, args...))
}
