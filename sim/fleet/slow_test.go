package fleet

import (
	"fmt"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/chunk/smoothing"
	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/memory"
	"github.com/edge-rt/edge-rt/server/queue"
	"github.com/edge-rt/edge-rt/wire"
)

// slowRobot is a robot with the edge's real tick. The server has a mailbox for the robot.
type slowRobot struct {
	core follow.Core
	ask  chunk.Ask
	box  queue.Mailbox

	actions, tooOld, joined int
	outcomes                map[string]int
}

// slow simulates robots of 30 Hz with chunks of 50 rows, in virtual time. The robots share one server, and took is the
// duration of an inference. slow returns the robots and the number of inferences.
func slow(t *testing.T, schedule string, robots int, took, maxAge, length time.Duration) (list []*slowRobot,
	inferences int) {
	t.Helper()
	const horizon, fps, way = 50, 30, 15 * time.Millisecond
	pool := queue.NewPool(memory.New(1 << 20))
	for range robots {
		d := rttest.Must(chunk.New(chunk.Config{Schedule: schedule, Horizon: horizon, DOF: 1, FPS: fps, Epsilon: 1}))(t)
		stages := rttest.Must(smoothing.NewChain(smoothing.Config{}, fps, 1))(t)
		list = append(list, &slowRobot{
			core: follow.Core{Schedule: d, Stages: stages, MaxAge: maxAge}, ask: chunk.NewAsk(horizon, 1),
			box: queue.NewMailbox(pool, 1<<10), outcomes: map[string]int{},
		})
	}
	scheduler, period := queue.Runway{}, time.Second/fps
	var hand *queue.Request
	var at int // index of the robot that is served
	var ends rt.Instant
	for now := rt.Instant(time.Second); now < rt.Instant(time.Second).Add(length); now = now.Add(period) {
		for _, r := range list {
			action := r.core.Next(now)
			if action.Policy != nil {
				r.actions++
			}
			if action.TooOld {
				r.tooOld++
			}
		}
		if hand != nil && ends.Add(way) <= now {
			r := list[at]
			c := chunk.Chunk{
				Key:   int64(hand.Header.SeqID),
				Rows:  horizon,
				DOF:   1,
				Robot: make([]float32, horizon),
				Model: make([]float32, horizon),
			}
			outcome := r.core.Schedule.OnChunk(now, &c).Outcome
			if r.outcomes[outcome.String()]++; outcome == chunk.Joined {
				r.joined++
			}
			r.box.DropAnswered(hand, now.Add(2*way))
			pool.Return(hand)
			hand = nil
			inferences++
		}
		for _, r := range list {
			if !r.core.Ask(now, true, []float32{0}, nil, &r.ask) {
				continue
			}
			h := wire.Header{
				SchemaVersion: wire.SchemaVersion,
				MsgType:       wire.MsgObservation,
				SeqID:         uint64(r.ask.Key),
				SessionEpoch:  1,
				EpisodeID:     1,
			}
			runway := rt.Instant(time.Duration(r.ask.Runway) * period)
			r.box.Put(&h, []byte{1}, now, queue.Schedule{Deadline: now + runway, HasN: true, N: r.ask.Step - 1})
		}
		if hand == nil {
			var waiting []queue.Waiting
			for i := range list {
				if since, deadline, ok := list[i].box.Waiting(); ok {
					waiting = append(waiting, queue.Waiting{
						ID:       fmt.Sprintf("%02d", i),
						Robot:    i,
						Since:    since,
						Deadline: deadline,
					})
				}
			}
			if len(waiting) > 0 {
				scheduler.Order(waiting, 1, now, now.Add(took), took)
				at = waiting[0].Robot
				hand, ends = list[at].box.Take(), now.Add(took)
			}
		}
	}
	return list, inferences
}

// Goal: every inference of a slow policy moves an arm, with the age limits that edge-rt derives
// (TestLimitsFollowThePolicy in edge). This holds for one robot with inferences of 8 s or 4.9 s,
// and for seven robots that share a server with inferences of 1.6 s.
func TestSlowPoliciesMoveArms(t *testing.T) {
	for _, tt := range []struct {
		name         string
		schedule     string
		robots       int
		took, maxAge time.Duration
	}{
		{"8 s", "drtc", 1, 8 * time.Second, 14 * time.Second},
		{"4.9 s", "drtc", 1, 4900 * time.Millisecond, 10 * time.Second},
		{"seven at 1.6 s", "drtc", 7, 1600 * time.Millisecond, 5 * time.Second},
		{"8 s, rtc", "rtc", 1, 8 * time.Second, 14 * time.Second},
		{"8 s, append", "append", 1, 8 * time.Second, 14 * time.Second},
		{"8 s, sync", "sync", 1, 8 * time.Second, 14 * time.Second},
	} {
		robots, inferences := slow(t, tt.schedule, tt.robots, tt.took, tt.maxAge, 2*time.Minute)
		joined, actions := 0, 0
		for i, r := range robots {
			joined, actions = joined+r.joined, actions+r.actions
			if r.actions == 0 || r.tooOld > 0 {
				t.Errorf("%s: robot %d ran %d actions, %d ticks found only old ones: %v", tt.name, i, r.actions,
					r.tooOld, r.outcomes)
			}
		}
		t.Logf("%s: %d inferences, %d joined, %d actions", tt.name, inferences, joined, actions)
		least := inferences
		if tt.schedule == "append" { // append accepts the first answer and drops the answers to repeated requests
			least = inferences * 2 / 3
		}
		if inferences < int(time.Minute/tt.took) || joined < least {
			t.Errorf("%s: %d of %d inferences used", tt.name, joined, inferences)
		}
	}
}
