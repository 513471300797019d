package leader

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	crand "crypto/rand"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh/access"
)

// Times of a leader on another machine.
const (
	useEvery    = 50 * time.Millisecond  // interval of a robot's messages to its leader
	answerLimit = 100 * time.Millisecond // a reading of the leader is too old from this age on
	userLease   = time.Second            // silence of a robot after which another robot may use the leader
	rivalLimit  = 3 * time.Second        // wait until the token of a killed leader must have vanished
	tokenLimit  = 500 * time.Millisecond // longest wait for the answer to a query of the tokens
)

// jointsOf is wire.LeaderJoints of a leader's description.
func jointsOf(r robot.Robot) uint64 {
	var names, units []string
	for _, m := range r.Motors {
		names, units = append(names, m.Name), append(units, m.Norm.String())
	}
	return wire.LeaderJoints(names, units)
}

// newInstance returns a random number other than 0.
func newInstance() uint64 {
	var b [8]byte
	_, _ = crand.Read(b[:])
	return binary.LittleEndian.Uint64(b[:]) | 1
}

// OfferConfig configures an Offer.
type OfferConfig struct {
	Name  string // name of the leader, a slug
	Robot robot.Robot
	Every time.Duration // interval of the leader's poses
	Pose  func() *Pose  // returns the leader's newest pose, lent until the next call
	// Steer writes the velocities of the robot's base, which follow the joints; nil: the leader drives
	// no base.
	Steer func(now rt.Instant, velocities []float32)
	Clock rt.Clock
	Log   *slog.Logger
}

// Offer offers a leader arm to one robot at a time over the network.
type Offer struct {
	cfg      OfferConfig
	instance uint64
	joints   uint64
	publish  wire.Publisher
	place    []float32 // owner: Run

	// Owner: the session's callbacks.
	use     wire.LeaderUse
	lastSeq uint64

	user      atomic.Uint64 // instance of the robot that uses the leader; 0: none
	userName  atomic.Pointer[string]
	userAt    atomic.Int64 // instant of the newest message of the robot that this leader leads
	userStamp atomic.Uint64
	drives    atomic.Bool
	rival     atomic.Bool // another leader has this name
	rtt       *rt.Hist

	sent, received, malformed, late, refused atomic.Uint64
}

// OfferStats are the counts of an Offer.
type OfferStats struct {
	Sent      uint64 `json:"sent"`      // poses
	Received  uint64 `json:"received"`  // messages of the robot that uses the leader
	Malformed uint64 `json:"malformed"` // messages that cannot be read
	Late      uint64 `json:"late"`      // repeated or overtaken messages
	Refused   uint64 `json:"refused"`   // messages of a second robot
}

// NewOffer declares the leader's keys in a network. It returns an error when another leader in the network has this
// name.
func NewOffer(ctx context.Context, net wire.Session, cfg OfferConfig) (*Offer, error) {
	o := &Offer{
		cfg:      cfg,
		instance: newInstance(),
		joints:   jointsOf(cfg.Robot),
		place:    make([]float32, len(cfg.Robot.Motors)),
		rtt:      rt.NewHist(),
	}
	if cfg.Steer != nil {
		o.place = append(o.place, make([]float32, robot.Axes)...)
	}
	mine := wire.LeaderAliveKey(cfg.Name, strconv.FormatUint(o.instance, 16))
	all := wire.LeaderAliveKey(cfg.Name, "*")
	for end := cfg.Clock.Now().Add(rivalLimit); ; {
		others, err := net.Tokens(ctx, all, tokenLimit)
		switch {
		case err != nil:
			return nil, fmt.Errorf("the leader's name: %w", err)
		case len(others) > 0 && cfg.Clock.Now() >= end:
			return nil, o.rivalError()
		}
		if len(others) == 0 {
			break
		}
		cfg.Clock.SleepUntil(cfg.Clock.Now().Add(tokenLimit))
	}
	if _, err := net.Token(mine); err != nil {
		return nil, err
	}
	// Of two leaders that start together, the leader with the larger instance ends.
	_, err := net.SubscribeTokens(all, func(key string, alive bool) {
		other, err := strconv.ParseUint(key[strings.LastIndexByte(key, '/')+1:], 16, 64)
		if err == nil && alive && other < o.instance {
			o.rival.Store(true)
		}
	})
	if err == nil {
		_, err = net.Subscribe(wire.LeaderUseKey(cfg.Name, "*"), o.deposit)
	}
	if err == nil {
		o.publish, err = net.Publisher(wire.LeaderPoseKey(cfg.Name), wire.LeaderQoS)
	}
	return o, err
}

func (o *Offer) rivalError() error {
	return exit.Errorf(exit.Config,
		"another leader in this network is called %s: end it, or give this one another name with --id", o.cfg.Name)
}

// Rights returns the rights of a robot whose certificate has these names: under each of them it may follow the leader
// of the given name.
func Rights(leader string, names []string) *access.Rights {
	r := &access.Rights{Name: strings.Join(names, ", ")}
	for _, name := range names {
		if wire.CheckUUID(name) == nil {
			r.Allow[access.Put] = append(r.Allow[access.Put], wire.LeaderUseKey(leader, name))
		}
	}
	r.Allow[access.DeclareSubscriber] = []string{wire.LeaderPoseKey(leader)}
	r.Allow[access.LivelinessQuery] = []string{wire.LeaderAliveKey(leader, "*")}
	return r
}

// deposit takes a robot's message. The first robot that sends a message uses the leader until it is silent for
// userLease.
func (o *Offer) deposit(s wire.Sample) {
	now, u := o.cfg.Clock.Now(), &o.use
	if wire.ParseLeaderUse(u, s.Payload) != nil {
		o.malformed.Add(1)
		return
	}
	if user := o.user.Load(); u.Instance != user {
		if user != 0 {
			o.refused.Add(1)
			return
		}
		name := strings.Clone(s.Key[strings.LastIndexByte(s.Key, '/')+1:])
		o.userName.Store(&name)
		o.lastSeq = 0
	}
	if u.Seq <= o.lastSeq {
		o.late.Add(1)
		return
	}
	o.lastSeq = u.Seq
	o.userStamp.Store(u.Stamp)
	o.userAt.Store(int64(now))
	o.drives.Store(u.Drives)
	o.user.Store(u.Instance)
	o.received.Add(1)
	if d, ok := roundTrip(&u.Echo, o.instance, now); ok {
		o.rtt.Record(d)
	}
}

// roundTrip returns the round-trip time of the stamp that the echo e brings back. ok is false if this instance has not
// made the stamp, or if the stamp is too old.
//
//rt:noalloc
func roundTrip(e *wire.Echo, instance uint64, now rt.Instant) (d time.Duration, ok bool) {
	if e.Instance != instance || e.Stamp > uint64(now) || uint64(now)-e.Stamp > uint64(time.Minute) {
		return 0, false
	}
	return max(0, now.Sub(rt.Instant(e.Stamp))-time.Duration(e.HeldUS)*time.Microsecond), true
}

// Run publishes poses until ending is set. It returns an error when another leader has the same name.
func (o *Offer) Run(ending *atomic.Bool) error {
	var seq, shown uint64
	var drives bool
	var message []byte
	next := o.cfg.Clock.Now()
	for !ending.Load() {
		now := o.cfg.Clock.Now()
		if o.rival.Load() {
			return o.rivalError()
		}
		if o.user.Load() != 0 && now.Sub(rt.Instant(o.userAt.Load())) > userLease {
			o.user.Store(0)
			o.drives.Store(false)
		}
		if user, d := o.user.Load(), o.drives.Load(); user != shown || d != drives {
			shown, drives = user, d
			o.report(user, d)
		}
		seq++
		message = o.append(message[:0], now, seq)
		if _, err := o.publish.PutLatest(message, nil); err == nil {
			o.sent.Add(1)
		}
		if next = next.Add(o.cfg.Every); next < now {
			next = now.Add(o.cfg.Every)
		}
		o.cfg.Clock.SleepUntil(next)
	}
	return nil
}

func (o *Offer) report(user uint64, drives bool) {
	switch {
	case user == 0:
		o.cfg.Log.Info("no robot uses the leader")
	case drives:
		o.cfg.Log.Info("a robot follows the leader", "robot", *o.userName.Load())
	default:
		o.cfg.Log.Info("a robot uses the leader, and does not follow it now", "robot", *o.userName.Load())
	}
}

//rt:noalloc
func (o *Offer) append(dst []byte, now rt.Instant, seq uint64) []byte {
	pose := o.cfg.Pose()
	age := now.Sub(pose.At)
	copy(o.place, pose.Joints)
	if o.cfg.Steer != nil {
		o.cfg.Steer(now, o.place[len(pose.Joints):])
	}
	m := wire.LeaderPose{
		Answers:  pose.At != 0 && age < answerLimit,
		Stiff:    pose.Stiff,
		Instance: o.instance,
		Seq:      seq,
		Joints:   o.joints,
		Stamp:    uint64(now),
		AgeUS:    micros(age),
		Held:     uint32(pose.Held),
		Place:    o.place,
	}
	if user := o.user.Load(); user != 0 {
		m.Echo = wire.Echo{
			Instance: user,
			Stamp:    o.userStamp.Load(),
			HeldUS:   micros(now.Sub(rt.Instant(o.userAt.Load()))),
		}
	}
	return wire.AppendLeaderPose(dst, &m)
}

//rt:noalloc
func micros(d time.Duration) uint32 { return uint32(min(max(0, d.Microseconds()), 1<<32-1)) }

// User returns the name of the robot that uses the leader, empty if no robot does, and whether this robot follows the
// leader now.
func (o *Offer) User() (name string, drives bool) {
	if o.user.Load() == 0 {
		return "", false
	}
	return *o.userName.Load(), o.drives.Load()
}

// RTT are the round trips to the robot.
func (o *Offer) RTT() *rt.Hist { return o.rtt }

// Stats returns the counts.
func (o *Offer) Stats() OfferStats {
	return OfferStats{
		Sent:      o.sent.Load(),
		Received:  o.received.Load(),
		Malformed: o.malformed.Load(),
		Late:      o.late.Load(),
		Refused:   o.refused.Load(),
	}
}
