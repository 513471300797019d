package attend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/hotplug"
	"github.com/edge-rt/edge-rt/edge/leader"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/plain"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
	"github.com/edge-rt/edge-rt/wire/zenoh/access"
)

// LeadConfig configures edge-rt leader.
type LeadConfig struct {
	Arm      device.Place // the leader, of one part or several; its ID is its name in the network
	Base     bool         // keys drive the base of the robot that uses the leader
	Net      zenoh.Config
	Duration time.Duration // 0: no end
	Log      *slog.Logger
	Out      io.Writer
	Clock    rt.Clock // nil: the kernel's clock

	// OpenJSON opens the file for the summary as JSON. It is called before the leader is opened. nil: no file.
	OpenJSON func() (io.WriteCloser, error)

	// Listen calls the function key with each key pressed at a terminal, until stop is called.
	Listen func(key func(string)) (stop func())
}

// LeadSummary is the result of edge-rt leader.
type LeadSummary struct {
	Name     string               `json:"id"`       // name of the leader
	Robot    string               `json:"robot"`    // name of the leader's description
	Seconds  float64              `json:"seconds"`  // s, time for which the leader was offered
	UsedBy   string               `json:"used_by"`  // robot that used the leader at the end; empty: none
	RTT      drive.ShortQuantiles `json:"rtt_ms"`   // ms, to the robot and back
	Messages leader.OfferStats    `json:"messages"` // messages of both sides
	Bus      *drive.BusSummary    `json:"bus"`      // the leader's bus
	Exit     drive.Ending         `json:"exit"`     // end of the program
}

// lead is a leader arm that is offered over the network.
type lead struct {
	cfg   LeadConfig
	clock rt.Clock
	arms  hotplug.Parts
	net   wire.Session
	offer *leader.Offer

	steering steering // velocities of a robot's base, from the keys
}

// Lead offers a leader arm over the network until ctx ends or the duration is over.
func Lead(ctx context.Context, cfg LeadConfig) error {
	s := &lead{cfg: cfg, clock: cmp.Or(cfg.Clock, rt.KernelClock())}
	if err := s.check(); err != nil {
		return err
	}
	var file io.WriteCloser
	if cfg.OpenJSON != nil {
		var err error
		if file, err = cfg.OpenJSON(); err != nil {
			return err
		}
	}
	began := s.clock.Now()
	err := s.run(ctx)
	sum := s.summary(err, s.clock.Now().Sub(began))
	for _, arm := range s.arms {
		arm.ReleaseTriggers() // necessary only if the leader could not be offered
		arm.Close()
	}
	if len(s.arms) > 0 {
		fmt.Fprintf(cfg.Out, "leader     %s, %.0f s, %d poses sent, round trip p50 %.1f ms, p99 %.1f ms, max %.1f ms\n",
			sum.Name, sum.Seconds, sum.Messages.Sent, sum.RTT.P50, sum.RTT.P99, sum.RTT.Max)
	}
	if file != nil {
		err = errors.Join(err, drive.WriteJSON(plain.Writer(file), sum), file.Close())
	}
	return err
}

func (s *lead) check() error {
	a := &s.cfg.Arm
	slug, err := wire.Slug(a.ID)
	switch {
	case a.Bus == "":
		return exit.Errorf(exit.Usage, "--bus is missing: give the leader's serial port; edge-rt ports finds it")
	case !a.Robot.Leader:
		return exit.Errorf(exit.Usage, "--robot %s is a follower: give the leader's description, such as so101_leader",
			a.Robot.Name)
	case err != nil || slug != a.ID:
		return exit.Errorf(exit.Usage,
			"--id %q: want the leader's name, letters, digits, _ . and -: a robot uses it with "+
				"--leader zenoh:NAME", a.ID)
	}
	if err := s.cfg.Net.Check(); err != nil {
		return exit.Errorf(exit.Usage, "--listen, --connect: %w", err)
	}
	s.cfg.Net.Rights = func(names []string) *access.Rights { return leader.Rights(a.ID, names) }
	return nil
}

// open opens the leaders of all parts.
func (s *lead) open(ctx context.Context) (leaders []*leader.Leader, err error) {
	places, err := s.cfg.Arm.Each()
	if err != nil {
		return nil, err
	}
	for i := range places {
		one, err := s.openArm(ctx, places, i)
		if err != nil {
			return nil, err
		}
		leaders = append(leaders, one)
	}
	return leaders, nil
}

// openArm opens the leader of one part.
func (s *lead) openArm(ctx context.Context, places []device.Place, i int) (*leader.Leader, error) {
	part := places[i].Part
	opening := drive.LeaderOpening{
		Places: places,
		Part:   i,
		Clock:  s.clock,
		Say: func(warn bool, text string) {
			if part != "" {
				text = part + ": " + text
			}
			if warn {
				s.cfg.Log.Warn(text)
			} else {
				s.cfg.Log.Info(text)
			}
		},
		Open: func(place *device.Place, cfg *servo.ArmConfig) (*servo.Arm, error) {
			cfg.Canceled = func() bool { return ctx.Err() != nil }
			return place.Open(cfg)
		},
		Opened: func(hot *hotplug.Arm) { s.arms = append(s.arms, hot) },
	}
	return opening.Leader(ctx)
}

func (s *lead) run(ctx context.Context) error {
	leaders, err := s.open(ctx)
	if err != nil {
		if errors.Is(err, servo.ErrCanceled) {
			return nil
		}
		return err
	}
	s.cfg.Net.Log = func(line string) { s.cfg.Log.Info(line) }
	if s.net, err = leader.Reach(ctx, s.cfg.Net, joinLimit, leader.CureRouter, s.cfg.Log); err != nil {
		if ctx.Err() == nil {
			return err
		}
		fmt.Fprintf(s.cfg.Out, "The leader was not offered: %v.\n", err)
		return nil
	}
	defer s.net.Close()
	if err := s.offerAll(ctx, leaders); err != nil {
		return err
	}
	if stop := s.listen(); stop != nil {
		defer stop()
	}
	if s.cfg.Duration > 0 {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, s.cfg.Duration)
		defer cancel()
	}
	var ending atomic.Bool
	var threads sync.WaitGroup
	failed := make(chan error, len(leaders)+1)
	// keep never returns an error
	s.arms.KeepOpen(&ending, func(keep func() error) { threads.Go(func() { _ = keep() }) }, s.cfg.Log)
	for _, l := range leaders {
		threads.Go(func() { failed <- l.Run(&ending, func() bool { return false }) })
	}
	threads.Go(func() { failed <- s.offer.Run(&ending) })
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	ending.Store(true)
	threads.Wait()
	close(failed)
	for other := range failed {
		err = errors.Join(err, other)
	}
	return err
}

// offerAll offers the leaders of all parts as one.
func (s *lead) offerAll(ctx context.Context, leaders []*leader.Leader) (err error) {
	cfg := leader.OfferConfig{
		Name:  s.cfg.Arm.ID,
		Robot: s.cfg.Arm.Robot,
		Pose:  leader.Join(s.cfg.Arm.Robot, leaders, nil).Pose,
		Clock: s.clock,
		Log:   s.cfg.Log,
	}
	for _, l := range leaders {
		cfg.Every = max(cfg.Every, l.Every())
	}
	if s.cfg.Base {
		cfg.Steer = s.steering.steer
	}
	if s.offer, err = leader.NewOffer(ctx, s.net, cfg); err == nil {
		fmt.Fprintf(s.cfg.Out, "The %s is offered as %s: --leader zenoh:%[2]s on the robot. Ctrl-C ends.\n",
			cfg.Robot.Name, cfg.Name)
	}
	return err
}

// listen makes keys drive the base, if there is one.
func (s *lead) listen() (stop func()) {
	if !s.cfg.Base || s.cfg.Listen == nil {
		return nil
	}
	fmt.Fprintln(s.cfg.Out, steeringKeys)
	return s.cfg.Listen(func(key string) { s.steering.press(s.clock.Now(), key) })
}

func (s *lead) summary(err error, took time.Duration) *LeadSummary {
	sum := &LeadSummary{
		Name:    s.cfg.Arm.ID,
		Robot:   s.cfg.Arm.Robot.Name,
		Seconds: took.Seconds(),
		Exit:    drive.EndingOf(err, "stopped"),
	}
	if len(s.arms) > 0 {
		sum.Bus = new(drive.SummaryOf(s.arms.Stats()))
	}
	if s.offer != nil {
		sum.RTT, sum.Messages = drive.Short(s.offer.RTT(), time.Millisecond), s.offer.Stats()
		sum.UsedBy, _ = s.offer.User()
	}
	return sum
}
