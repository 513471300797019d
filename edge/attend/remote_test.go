package attend

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/edge/leader"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim/servosim"
	"github.com/edge-rt/edge-rt/stage/stagetest"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

// offer offers a leader; end ends the offer, and fails the test if Lead returned an error.
func offer(t *testing.T, cfg LeadConfig) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		err := opened(ctx, t, func() error { return Lead(ctx, cfg) })
		if err != nil {
			t.Log(err)
		}
		done <- err
	}()
	return func() {
		t.Helper()
		cancel()
		rttest.Do(t, <-done)
	}
}

// The follower follows a leader of another process and holds within the limit when that process ends. When the leader
// returns, the follower moves slowly to the leader's pose.
func TestFollowsALeaderOfAnotherMachine(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	cfg, lead, follow, h, f := pair(t, "so101")
	at, _ := stagetest.FreeEndpoint(t)
	offered := LeadConfig{
		Arm: cfg.Leader,
		Net: zenoh.Config{Listen: []string{at}},
		Log: cfg.Log,
		Out: cfg.Out,
	}
	offered.Arm.ID = "white"
	endLead := offer(t, offered)
	cfg.Leader.Bus, cfg.Leader.Calibration = "zenoh:white@"+at, ""
	end := teach(t, cfg, follow)
	h.All(2200)
	f.await(t, "follow", 2200)
	endLead()
	h.All(2100)
	time.Sleep(300 * time.Millisecond) // some ticks
	if !f.near(2200) {
		t.Error("the follower moved without its leader")
	}
	endLead = offer(t, offered)
	f.await(t, "follow again", 2100)
	end()
	endLead()
	for name, on := range map[string][]bool{"leader": lead.TorqueEnabled(), "follower": follow.TorqueEnabled()} {
		if slices.Contains(on, true) {
			t.Errorf("the %s has torque at the end: %v", name, on)
		}
	}
}

// Goal: of two arms, the left one follows a leader at this machine, and the right one a leader at another
// machine. While one leader is silent, both arms hold; with robot.Apart, only the arm of the
// silent leader holds. An arm without a leader is under torque and stays where it is.
func TestEachArmFollowsItsLeader(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel()
	cfg, _, left, h, f := pair(t, "so101")
	far, g := new(hands), new(joints)
	far.All(2047)
	g.All(2047)
	lead, _ := simArm(t, "so101_leader", 0, 4095, servosim.Config{Plant: far})
	arm, right := simArm(t, "so101", 0, 4095, servosim.Config{Plant: g})
	at, _ := stagetest.FreeEndpoint(t)
	lead.ID = "white"
	offered := LeadConfig{
		Arm: lead,
		Net: zenoh.Config{Listen: []string{at}},
		Log: cfg.Log,
		Out: cfg.Out,
	}
	file := cfg.Arm.Calibration
	both := func(name, l, r string) device.Place {
		return device.Place{
			Bus:         "left=" + l + ",right=" + r,
			Robot:       rttest.Must(robot.ByName(name))(t),
			Calibration: "left=" + file + ",right=" + arm.Calibration,
		}
	}
	one := cfg.Leader.Bus
	cfg.Arm = both("bi_so101", cfg.Arm.Bus, arm.Bus)
	cfg.Leader = both("bi_so101_leader", one, "zenoh:white@"+at)
	cfg.Leader.Flags = "leader-"
	silences := func() int { return strings.Count(cfg.Out.(*rttest.Output).String(), "the leader white is silent") }
	gone := func(endLead func()) {
		t.Helper()
		before := silences()
		endLead()
		rttest.Eventually(t, "the leader's silence", func() bool { return silences() > before })
	}
	endLead := offer(t, offered)
	end := start(t, cfg)
	awaitTorque(t, left)
	awaitTorque(t, right)
	h.All(2200)
	far.All(1900)
	rttest.Eventually(t, "both follow", func() bool { return f.near(2200) && g.near(1900) })
	gone(endLead)
	h.All(2100)
	time.Sleep(200 * time.Millisecond) // some ticks
	if !f.near(2200) || !g.near(1900) {
		t.Error("an arm moved while the leader of right was silent")
	}
	endLead = offer(t, offered)
	rttest.Eventually(t, "both follow again", func() bool { return f.near(2100) && g.near(1900) })
	end()

	cfg.Arm.Robot.Safety.Parts = robot.Apart
	end = start(t, cfg)
	awaitTorque(t, left)
	awaitTorque(t, right)
	rttest.Eventually(t, "both follow apart", func() bool { return f.near(2100) && g.near(1900) })
	gone(endLead)
	h.All(2200)
	f.await(t, "left follows alone", 2200)
	if !g.near(1900) {
		t.Error("right moved while its leader was silent")
	}
	end()

	cfg.Leader.Bus = "left=" + one
	end = start(t, cfg)
	awaitTorque(t, right)
	h.All(2000)
	f.await(t, "left follows", 2000)
	if !g.near(1900) {
		t.Error("right moved without a leader")
	}
	end()
	if slices.Contains(left.TorqueEnabled(), true) || slices.Contains(right.TorqueEnabled(), true) {
		t.Error("torque at the end")
	}
}

func TestLeadRefuses(t *testing.T) {
	for name, change := range map[string]func(*LeadConfig){
		"without a port":   func(c *LeadConfig) { c.Arm.Bus = "" },
		"without a name":   func(c *LeadConfig) { c.Arm.ID = "" },
		"a name of a key":  func(c *LeadConfig) { c.Arm.ID = "a/b" },
		"a follower":       func(c *LeadConfig) { c.Arm.Robot.Leader = false },
		"without endpoint": func(c *LeadConfig) { c.Net.Listen = nil },
		"without its file": func(c *LeadConfig) {
			c.OpenJSON = func() (io.WriteCloser, error) { return nil, exit.Errorf(exit.Usage, "--json") }
		},
	} {
		cfg := LeadConfig{Net: zenoh.Config{Listen: []string{"tcp/127.0.0.1:7448"}}}
		cfg.Arm.Bus = "/dev/none"
		cfg.Arm.ID = "white"
		cfg.Arm.Robot.Leader = true
		change(&cfg)
		if err := Lead(t.Context(), cfg); exit.Of(err) != exit.Usage {
			t.Errorf("%s: %v, want code %d", name, err, exit.Usage)
		}
	}
}

// If Lead is stopped before it has reached its router, its error names the router and the cure. The leader's trigger is
// limp then.
func TestLeadWithoutARouter(t *testing.T) {
	t.Parallel()
	cfg, lead, _, _, _ := pair(t, "koch")
	said := new(rttest.Output)
	offered := LeadConfig{
		Arm: cfg.Leader,
		Net: zenoh.Config{Connect: []string{"tcp/127.0.0.1:9"}}, // the discard port: nothing listens there
		Log: slog.New(slog.NewTextHandler(said, nil)),
		Out: said,
	}
	offered.Arm.ID = "white"
	ctx, cancel := context.WithCancel(t.Context())
	done := rttest.Go(func() error { return Lead(ctx, offered) })
	rttest.Eventually(t, "an attempt", func() bool { return strings.Contains(said.String(), "refused") })
	cancel()
	rttest.Do(t, <-done)
	stagetest.CheckSays(t, said.String(), "not offered: no link to tcp/127.0.0.1:9 yet|"+leader.CureRouter)
	if on := lead.TorqueEnabled(); strings.Contains(said.String(), "context canceled") || slices.Contains(on, true) {
		t.Errorf("torque %v, it says %s", on, said)
	}
}
