package leader

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/network"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

const (
	// largest age of this robot's stamp in a pose; with an older one, the pose was delayed or recorded
	echoLimit  = 500 * time.Millisecond
	ownerLease = 500 * time.Millisecond // silence of a leader's process after which another process may lead
	firstNews  = 3 * time.Second        // time without a link before the first log line
	laterNews  = 15 * time.Second
)

// ParseRemote splits the value of --leader, zenoh:NAME or zenoh:NAME@ENDPOINT. ok reports whether the value names a
// leader in the network.
func ParseRemote(text string) (name, endpoint string, ok bool, err error) {
	rest, ok := strings.CutPrefix(text, device.FarLeader)
	if !ok {
		return "", "", false, nil
	}
	name, endpoint, at := strings.Cut(rest, "@")
	if slug, err := wire.Slug(name); err != nil || slug != name || at && endpoint == "" {
		return "", "", true, exit.Errorf(exit.Usage,
			"--leader %s: want zenoh:NAME, the --id of an edge-rt leader of letters, "+
				"digits, _ . and -, or zenoh:NAME@ENDPOINT, such as zenoh:white@tcp/laptop:7448", text)
	}
	return name, endpoint, true, nil
}

// Cures of a network that cannot be reached.
const (
	CureRouter = "start the router or lean-server there, or check --connect"
	cureLeader = "start edge-rt leader there, or check the endpoint of --leader"
)

// Reach joins a network, and gives up after the duration within. While it waits, it logs the reason for the missing
// link from time to time. The text cure is the advice in the log and in the error for a missing link.
func Reach(ctx context.Context, cfg zenoh.Config, within time.Duration, cure string, log *slog.Logger) (
	wire.Session, error) {
	at := strings.Join(append(cfg.Connect, cfg.Listen...), ", ")
	log.Info("joining the leader's network", "at", at)
	wait, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	clock := rt.KernelClock()
	news, linked := clock.Now().Add(firstNews), false
	cfg.Links = func(ev zenoh.LinkEvent) {
		if now := clock.Now(); ev.Dialled && ev.Up {
			linked = true
		} else if ev.Dialled && !linked && now >= news { // only the thread that dials comes here, so news needs no lock
			news = now.Add(laterNews)
			log.Warn("no link to the leader's network yet", "why", ev.Err, "next", cure)
		}
	}
	net, err := network.Open(wait, cfg)
	switch {
	case err == nil:
		return net, nil
	case wait.Err() == nil: // the configuration is wrong, or an address to listen on is taken
		return nil, exit.With(exit.Absent, err)
	case ctx.Err() != nil:
		return nil, exit.Errorf(exit.Absent, "no link to %s yet: %w; %s", at, err, cure)
	}
	return nil, exit.Errorf(exit.Absent, "no link to %s for %v: %w; %s", at, within, err, cure)
}

// RemoteConfig configures a Remote.
type RemoteConfig struct {
	Name     string      // name of the leader
	Endpoint string      // endpoint to dial; empty: the endpoints of the run
	Part     string      // part of the follower that the leader leads; empty: the whole robot
	Robot    robot.Robot // description of the leader
	Base     bool        // this robot has a base, which keys at the leader may drive
	ID       string      // id of this robot
	Clock    rt.Clock
}

// Remote is a leader on another machine.
type Remote struct {
	cfg      RemoteConfig
	instance uint64
	joints   uint64
	poses    *rt.Latest[Pose] // poses for the tick
	publish  wire.Publisher
	net      wire.Session // network session of Dial

	// Owner: the session's callbacks.
	in      wire.LeaderPose
	owner   uint64 // process that leads
	lastSeq uint64
	heard   rt.Instant

	// The echo of the leader's newest stamp.
	echoOf, echoStamp atomic.Uint64
	echoAt            atomic.Int64

	newest  atomic.Int64 // instant of the newest pose
	drives  atomic.Bool
	busy    atomic.Bool // the leader's newest message is for another robot
	rtt     *rt.Hist
	lastRTT atomic.Int64

	poseCount, malformed, foreign, stale, late, rival, other atomic.Uint64
}

// RemoteStats has the counts and times of a leader on another machine, for the summary and the page. For several
// leaders together it has the sums, the longest times, and whether all of them lead.
type RemoteStats struct {
	Name  string  `json:"name"`       // name of the leader
	Leads bool    `json:"leads"`      // poses of the leader arrive now
	RTTms float64 `json:"rtt_ms"`     // ms, the newest round trip
	P50   float64 `json:"rtt_ms_p50"` // ms, median round trip
	P99   float64 `json:"rtt_ms_p99"` // ms, 99th percentile of the round trips
	Max   float64 `json:"rtt_ms_max"` // ms, longest round trip
	Poses uint64  `json:"poses"`      // poses that were taken
	// [reason] dropped messages: malformed; foreign: the arm has other joints or units; stale: no recent stamp of this
	// robot, so the message was delayed or recorded; late: repeated or overtaken; rival: a second leader has the name;
	// other: for another robot
	Dropped map[string]uint64       `json:"dropped"`
	Parts   map[string]*RemoteStats `json:"parts,omitempty"` // [part] with --leader PART=zenoh:NAME
}

// newRemote declares this robot's keys in a network.
func newRemote(net wire.Session, cfg RemoteConfig) (*Remote, error) {
	n := len(cfg.Robot.Motors)
	if cfg.Base {
		n += robot.Axes
	}
	r := &Remote{
		cfg:      cfg,
		instance: newInstance(),
		joints:   jointsOf(cfg.Robot),
		rtt:      rt.NewHist(),
		poses: rt.NewLatest(func(p *Pose) {
			p.Joints, p.Causes = make([]float32, n), make([]Cause, n)
		}),
	}
	r.in.Place = make([]float32, 0, wire.MaxLeaderJoints)
	_, err := net.Subscribe(wire.LeaderPoseKey(cfg.Name), r.deposit)
	if err == nil {
		r.publish, err = net.Publisher(wire.LeaderUseKey(cfg.Name, cfg.ID), wire.LeaderQoS)
	}
	return r, err
}

// deposit takes a message of the leader if it is new, and if it echoes a recent stamp of this robot.
//
//rt:noalloc
func (r *Remote) deposit(s wire.Sample) {
	now, in := r.cfg.Clock.Now(), &r.in
	switch {
	case wire.ParseLeaderPose(in, s.Payload) != nil:
		r.malformed.Add(1)
		return
	case in.Joints != r.joints || !r.fits(len(in.Place)):
		r.foreign.Add(1)
		return
	case in.Echo.Instance == 0: // the leader has not received a message of this robot
		r.busy.Store(false)
		return
	case in.Echo.Instance != r.instance:
		r.busy.Store(true)
		r.other.Add(1)
		return
	case in.Echo.Stamp > uint64(now) || uint64(now)-in.Echo.Stamp > uint64(echoLimit):
		r.stale.Add(1)
		return
	}
	if in.Instance != r.owner {
		if r.owner != 0 && now.Sub(r.heard) < ownerLease {
			r.rival.Add(1)
			return
		}
		r.owner, r.lastSeq = in.Instance, 0
	}
	if in.Seq <= r.lastSeq {
		r.late.Add(1)
		return
	}
	r.lastSeq, r.heard = in.Seq, now
	r.busy.Store(false)
	r.echoStamp.Store(in.Stamp)
	r.echoAt.Store(int64(now))
	r.echoOf.Store(in.Instance)
	if d, ok := roundTrip(&in.Echo, r.instance, now); ok {
		r.rtt.Record(d)
		r.lastRTT.Store(int64(d))
	}
	if in.Answers {
		r.take(now)
	}
}

// fits reports whether a pose of n values has the leader's joints, with or without the velocities of the robot's base.
//
//rt:noalloc
func (r *Remote) fits(n int) bool {
	joints := len(r.cfg.Robot.Motors)
	return n == joints || r.cfg.Base && n == joints+robot.Axes
}

// take publishes the received pose for the tick. If the pose has no velocities, the base stops.
//
//rt:noalloc
func (r *Remote) take(now rt.Instant) {
	p := r.poses.Back()
	p.At = now.Add(-time.Duration(r.in.AgeUS) * time.Microsecond)
	clear(p.Joints)
	copy(p.Joints, r.in.Place)
	p.Stiff = r.in.Stiff
	p.Held = robot.Joints(r.in.Held)
	for j := range p.Causes {
		p.Causes[j] = 0
		if p.Held.Has(j) {
			p.Causes[j] = Remotely
		}
	}
	r.poses.Publish(int64(now))
	r.newest.Store(int64(p.At))
	r.poseCount.Add(1)
}

// Pose lends the newest pose until the next call. Owner: the tick thread.
//
//rt:noalloc
func (r *Remote) Pose() *Pose {
	p, _, _ := r.poses.Front()
	return p
}

// Actuated reports false: a leader on another machine is not brought to the follower.
func (r *Remote) Actuated() bool { return false }

// Want does nothing: a leader on another machine cannot be aligned. Owner: the tick thread.
//
//rt:noalloc
func (r *Remote) Want(rt.Instant, uint32, bool, []float32) {}

// Drives notes whether the follower follows the leader in this tick. Owner: the tick thread.
//
//rt:noalloc
func (r *Remote) Drives(yes bool) { r.drives.Store(yes) }

// Run sends messages to the leader until ending is set. They report that this robot uses the leader, and whether the
// follower follows it.
func (r *Remote) Run(ending *atomic.Bool) error {
	var message []byte
	for seq := uint64(1); !ending.Load(); seq++ {
		now := r.cfg.Clock.Now()
		message = wire.AppendLeaderUse(message[:0], &wire.LeaderUse{
			Drives:   r.drives.Load(),
			Instance: r.instance,
			Seq:      seq,
			Stamp:    uint64(now),
			Echo: wire.Echo{
				Instance: r.echoOf.Load(),
				Stamp:    r.echoStamp.Load(),
				HeldUS:   micros(now.Sub(rt.Instant(r.echoAt.Load()))),
			},
		})
		_, _ = r.publish.PutLatest(message, nil) // without a link the message is lost, and the next one follows soon
		r.cfg.Clock.SleepUntil(now.Add(useEvery))
	}
	return nil
}

func (r *Remote) part() string { return r.cfg.Part }

// why returns the reason why no poses arrive, empty while poses arrive. Any thread may call it.
func (r *Remote) why(now rt.Instant) string {
	switch {
	case now.Sub(rt.Instant(r.newest.Load())) < answerLimit:
		return ""
	case r.busy.Load():
		return fmt.Sprintf("the leader %s leads another robot", r.cfg.Name)
	case r.foreign.Load() > 0 && r.poseCount.Load() == 0:
		return fmt.Sprintf(
			"the leader %s has other joints or units than a %s: give its description with --leader-robot",
			r.cfg.Name, r.cfg.Robot.Name)
	case r.poseCount.Load() == 0:
		return fmt.Sprintf(
			"no pose of the leader %s has arrived: start edge-rt leader --id %[1]s there, and check its endpoint",
			r.cfg.Name)
	}
	return fmt.Sprintf("the leader %s is silent", r.cfg.Name)
}

// stats returns the counts. Any thread may call it.
func (r *Remote) stats(now rt.Instant) *RemoteStats {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return &RemoteStats{
		Name:  r.cfg.Name,
		Leads: r.why(now) == "",
		RTTms: ms(time.Duration(r.lastRTT.Load())),
		P50:   ms(r.rtt.Quantile(0.5)),
		P99:   ms(r.rtt.Quantile(0.99)),
		Max:   ms(r.rtt.Max()),
		Poses: r.poseCount.Load(),
		Dropped: map[string]uint64{
			"malformed": r.malformed.Load(), "foreign": r.foreign.Load(), "stale": r.stale.Load(),
			"late": r.late.Load(), "rival": r.rival.Load(), "other": r.other.Load(),
		},
	}
}

// roundTrip returns the newest round trip. Any thread may call it.
//
//rt:noalloc
func (r *Remote) roundTrip() time.Duration { return time.Duration(r.lastRTT.Load()) }

// String returns the figures of the leader: poses, round trips, and dropped poses by reason.
func (s *RemoteStats) String() string {
	text := fmt.Sprintf("%s: %d poses, round trip p50 %.1f ms, p99 %.1f ms, max %.1f ms", s.Name, s.Poses, s.P50, s.P99,
		s.Max)
	for _, why := range slices.Sorted(maps.Keys(s.Dropped)) {
		if n := s.Dropped[why]; n > 0 {
			text += fmt.Sprintf(", %d %s", n, why)
		}
	}
	return text
}
