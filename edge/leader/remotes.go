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

// Remotes are the leaders on other machines that a run uses: one of the whole robot, or those of
// single parts.
type Remotes []*Remote

// Split returns the leaders of a --leader at this machine, each with its part, and those on other
// machines. A part may have none. Its errors have the code exit.Usage.
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
				exit.Errorf(exit.Usage, "--leader %s=jog: keys move the joints of all parts: want --leader "+
					"jog alone", at.Part)
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
	return here, far, nil
}

// Dial joins the networks of leaders on other machines; the endpoint of a leader that names none is
// net's. The leaders themselves may come later. The caller closes the result, also beside an error.
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

// Drives is Remote.Drives for the leaders whose part has one of these joints.
func (r Remotes) Drives(follower robot.Robot, joints robot.Joints) {
	for _, one := range r {
		one.Drives(PartJoints(follower, one.cfg.Part)&joints != 0)
	}
}

// Why returns the reason why no pose of one of them arrives, empty while poses of all arrive.
func (r Remotes) Why(now rt.Instant) (why string) {
	for _, one := range r {
		if why = one.why(now); why != "" {
			break
		}
	}
	return why
}

// RTT returns the longest newest round trip.
//
//rt:noalloc
func (r Remotes) RTT() (longest time.Duration) {
	for _, one := range r {
		longest = max(longest, one.roundTrip())
	}
	return longest
}

// Stats returns the counts: of the only leader, or of all together and of each. It returns nil
// without any.
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
