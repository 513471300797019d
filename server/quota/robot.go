package quota

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

// burst is the time whose quota a robot may use at once after a pause.
const burst = time.Second

// metersMost bounds the number of meters. Above it, the meters of robots without a session are dropped.
const metersMost = 4096

// RobotLimits are the quotas of one robot id; 0: no limit.
type RobotLimits struct {
	Rate  float64 // inferences per second
	Share float64 // share of the device's time, 0 to 1
}

// Kind is a quota of a robot.
type Kind uint8

// The quotas of a robot.
const (
	Rate Kind = iota
	Share
	NumKinds
)

func (k Kind) String() string { return [...]string{"rate", "share"}[k] }

// Meter measures how much all sessions of one robot id together use of the id's quotas. A nil Meter has no limits.
//
// Owner: the worker calls Used; any goroutine may call the other methods. While a robot moves to the other model, two
// workers may call Used at the same time, and one inference may not be counted.
type Meter struct {
	limits   RobotLimits
	ahead    [NumKinds]atomic.Int64 // instant until which the robot has used up its quota
	sessions int                    // number of sessions. Owner: housekeeping
}

// Meter returns the meter of a robot for one more session, which must call Release at its end.
func (b *Counter) Meter(uuid string) *Meter {
	if b.limits.Robot == (RobotLimits{}) {
		return nil
	}
	m := b.meters[uuid]
	if m == nil {
		m = &Meter{limits: b.limits.Robot}
		b.meters[uuid] = m
	}
	m.sessions++
	return m
}

// Release ends a session's use of its robot's meter. The meter is kept until it has no effect any more, so that a new
// session does not begin with unused quotas.
func (b *Counter) Release(m *Meter, now rt.Instant) {
	if m == nil {
		return
	}
	m.sessions--
	for uuid, m := range b.meters {
		if _, until := m.Held(now); m.sessions == 0 && (until == 0 || len(b.meters) > metersMost) {
			delete(b.meters, uuid)
		}
	}
}

// Used counts an inference for this robot with the duration took. The result held is true if a quota is now used up,
// and k is that quota.
//
//rt:noalloc
func (m *Meter) Used(now rt.Instant, took time.Duration) (k Kind, held bool) {
	if m == nil {
		return 0, false
	}
	if m.limits.Rate > 0 {
		m.add(Rate, now, float64(time.Second)/m.limits.Rate)
	}
	if m.limits.Share > 0 {
		m.add(Share, now, float64(took)/m.limits.Share)
	}
	k, until := m.Held(now)
	return k, until != 0
}

//rt:noalloc
func (m *Meter) add(k Kind, now rt.Instant, cost float64) {
	used := max(m.ahead[k].Load(), int64(now.Add(-burst)))
	m.ahead[k].Store(used + int64(cost))
}

// Held returns the quota for which the robot has to wait longest, and the end of this wait. The result until is 0
// when the robot need not wait.
//
//rt:noalloc
func (m *Meter) Held(now rt.Instant) (k Kind, until rt.Instant) {
	if m == nil {
		return 0, 0
	}
	for i := range m.ahead {
		if at := rt.Instant(m.ahead[i].Load()); at > now && at > until {
			k, until = Kind(i), at
		}
	}
	return k, until
}

// Says returns the sentence that informs a robot that it waits for a quota.
func (m *Meter) Says(k Kind) string {
	if k == Rate {
		return fmt.Sprintf("this robot asks for more than %g chunks a second (rate_per_robot), and waits: ask less "+
			"often, with a larger --s-min or a smaller --buffer-time, or raise it in the server's manifest",
			m.limits.Rate)
	}
	return fmt.Sprintf("this robot takes more than %g of the device's time (share_per_robot), and waits: ask less "+
		"often, with a larger --s-min or a smaller --buffer-time, or raise it in the server's manifest", m.limits.Share)
}
