package leader

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

// Remotes are the leaders on other machines that a run uses: one leader for the whole robot, or leaders for single
// parts.
type Remotes []*Remote

// Split splits the value of --leader into the leaders at this machine (here) and the leaders on other machines (far),
// each with its part. A part may have no leader. Its errors have the code exit.Usage.
func Split(p device.Place, follower robot.Robot) (here []device.Place, far []RemoteConfig, err error) {
	places := []device.Place{p}
	if device.LeaderPort(p.Bus) {
		if places, err = p.Some(); err != nil {
			return nil, nil, err
		}
	}
	for _, at := range places {
		name, endpoint, ok, err := ParseRemote(at.Bus)
		switch {
		case err != nil:
			return nil, nil, err
		case at.Bus == device.JogLeader:
			return nil, nil,
				exit.Errorf(exit.Usage, "--leader %s=jog: keys move the joints of all parts: want --leader jog alone",
					at.Part)
		case !ok:
			here = append(here, at)
			continue
		}
		cfg := RemoteConfig{
			Name:     name,
			Endpoint: endpoint,
			Part:     at.Part,
			Robot:    at.Robot,
			Base:     follower.Base != nil,
		}
		for _, part := range follower.Parts() {
			if part.Name == at.Part {
				cfg.Base = part.Robot.Base != nil
			}
		}
		far = append(far, cfg)
	}
	if len(here) == 0 && (p.ID != "" || p.Calibration != "") {
		return nil, nil, exit.Errorf(exit.Usage, "--leader-id and --leader-calibration are for a leader at this "+
			"machine: the name of one in the network is in --leader, and edge-rt leader has its calibration")
	}
	return here, far, nil
}

// Dial joins the networks of leaders on other machines. For a leader without an endpoint it uses the endpoints of net.
// The leaders may start later. The caller must close the result, even if Dial returns an error, too.
func Dial(ctx context.Context, far []RemoteConfig, net zenoh.Config, within time.Duration, log *slog.Logger) (
	all Remotes, err error) {
	for _, cfg := range far {
		one, cure := net, CureRouter
		if cfg.Endpoint != "" {
			one.Connect, cure = []string{cfg.Endpoint}, cureLeader
		}
		session, err := Reach(ctx, one, within, cure, log.With("leader", cfg.Name))
		if err != nil {
			return all, cmp.Or(ctx.Err(), err)
		}
		r, err := newRemote(session, cfg)
		r.net = session
		if all = append(all, r); err != nil {
			return all, err
		}
	}
	return all, nil
}

// Close leaves the networks.
func (r Remotes) Close() {
	for _, one := range r {
		one.net.Close()
	}
}

// Drives calls Remote.Drives of each leader. The argument is whether the leader's part has one of these joints.
func (r Remotes) Drives(follower robot.Robot, joints robot.Joints) {
	for _, one := range r {
		one.Drives(PartJoints(follower, one.cfg.Part)&joints != 0)
	}
}

// Why returns the reason why no poses of one leader arrive, empty while poses of all leaders arrive.
func (r Remotes) Why(now rt.Instant) (why string) {
	for _, one := range r {
		if why = one.why(now); why != "" {
			break
		}
	}
	return why
}

// RTT returns the longest of the leaders' newest round trips.
//
//rt:noalloc
func (r Remotes) RTT() (longest time.Duration) {
	for _, one := range r {
		longest = max(longest, one.roundTrip())
	}
	return longest
}

// Stats returns the counts of the only leader, or of all leaders together and of each leader. It returns nil if there
// is no leader.
func (r Remotes) Stats(now rt.Instant) (sum *RemoteStats) {
	var names []string
	for _, one := range r {
		s, part := one.stats(now), one.cfg.Part
		if part == "" {
			return s
		}
		if sum == nil {
			sum = &RemoteStats{Leads: true, Dropped: map[string]uint64{}, Parts: map[string]*RemoteStats{}}
		}
		names = append(names, s.Name)
		sum.Name, sum.Parts[part] = strings.Join(names, ", "), s
		sum.Leads, sum.Poses = sum.Leads && s.Leads, sum.Poses+s.Poses
		sum.RTTms, sum.P50 = max(sum.RTTms, s.RTTms), max(sum.P50, s.P50)
		sum.P99, sum.Max = max(sum.P99, s.P99), max(sum.Max, s.Max)
		for cause, n := range s.Dropped {
			sum.Dropped[cause] += n
		}
	}
	return sum
}
