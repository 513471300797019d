package attend

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/stage/stagetest"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

// The follower follows a leader of another process, holds within the limit when it ends, and moves
// slowly to its pose when it returns.
func TestFollowsALeaderOfAnotherMachine(t *testing.T) {
	rttest.RealTime(t)
	cfg, lead, follow, h, f := pair(t, "so101")
	at, _ := stagetest.FreeEndpoint(t)
	offered := LeadConfig{
		Arm: cfg.Leader,
		Net: zenoh.Config{Listen: []string{at}},
		Log: cfg.Log,
		Out: cfg.Out,
	}
	offered.Arm.ID = "white"
	offer := func() (end func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- Lead(ctx, offered) }()
		return func() {
			t.Helper()
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	endLead := offer()
	cfg.Leader.Bus, cfg.Leader.Calibration = "zenoh:white@"+at, ""
	end := teach(t, cfg, follow)
	h.all(2200)
	rttest.Eventually(t, "follow", func() bool { return f.near(2200, 3) })
	endLead()
	h.all(2100)
	time.Sleep(300 * time.Millisecond) // some ticks
	if !f.near(2200, 3) {
		t.Error("the follower moved without its leader")
	}
	endLead = offer()
	rttest.Eventually(t, "follow again", func() bool { return f.near(2100, 3) })
	end()
	endLead()
	for name, on := range map[string][]bool{"leader": lead.TorqueEnabled(), "follower": follow.TorqueEnabled()} {
		if slices.Contains(on, true) {
			t.Errorf("the %s has torque at the end: %v", name, on)
		}
	}
}

func TestLeadRefuses(t *testing.T) {
	for name, change := range map[string]func(*LeadConfig){
		"without a port":   func(c *LeadConfig) { c.Arm.Bus = "" },
		"without a name":   func(c *LeadConfig) { c.Arm.ID = "" },
		"a name of a key":  func(c *LeadConfig) { c.Arm.ID = "a/b" },
		"a follower":       func(c *LeadConfig) { c.Arm.Robot.Leader = false },
		"without endpoint": func(c *LeadConfig) { c.Net.Listen = nil },
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
