package fleet

import (
	"slices"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim"
)

// watch plays one world and returns its outcome and its ticks.
func watch(t *testing.T, cfg Config) (o Outcome, ticks []Tick) {
	t.Helper()
	cfg.Trace = func(tick *Tick) { ticks = append(ticks, *tick) }
	r := rttest.Must(Open(cfg))(t)
	defer r.Close()
	o = rttest.Must(r.Play(1, 1))(t)
	return o, ticks
}

// Waited counts the ticks before the first action that come after the instant at which a network
// without faults would have answered. The script's latency is part of that instant.
func TestWaited(t *testing.T) {
	for _, tt := range []struct {
		text string
		want int
	}{
		{noFaults, 0}, {"faults: [{kind: latency, delay: 200ms}]", 0},
		// An answer is merged 3 ticks after its request, and its action runs on the next tick.
		// Waiting begins after two ticks of margin, with tick 6.
		{"faults: [{kind: drop_chunk}]", 2 * (210 - 6)},
	} {
		r := mustRun(t, Config{Policy: new(counter), Delay: 3, Ticks: 210, Faults: script(t, tt.text)}, 1)
		if r.Waited != tt.want || r.Starved != 0 {
			t.Errorf("%s: waited %d ticks, starved %d, want %d and 0", tt.text, r.Waited, r.Starved, tt.want)
		}
	}
}

// A loss lasts from the first lost message to the next merge, or to the end of the world when there
// is no merge.
func TestRecoveries(t *testing.T) {
	const from = 2 * time.Second
	for _, tt := range []struct {
		text   string
		length time.Duration
		closed bool // a merge has ended the loss
	}{
		{"faults: [{kind: drop_observation, at: 2s, for: 1s}]", time.Second, true},
		{"faults: [{kind: drop_observation, at: 2s}]", time.Hour, false},
	} {
		o, ticks := watch(t, Config{Policy: new(counter), Delay: 5, Ticks: 300, Faults: script(t, tt.text)})
		var want []time.Duration
		since := time.Duration(-1)
		for i := range ticks {
			now := time.Duration(i) * Period
			if ticks[i].Received && since >= 0 {
				want, since = append(want, now-since), -1
			}
			if ticks[i].Requested && now >= from && now < from+tt.length && since < 0 {
				since = now
			}
		}
		if since >= 0 {
			want = append(want, 300*Period-since)
		}
		if !slices.Equal(o.Recoveries, want) || len(want) == 0 {
			t.Errorf("%s: recovered after %v, want %v", tt.text, o.Recoveries, want)
		}
		if last := slices.Max(o.Recoveries); tt.closed && (last < time.Second/2 || last > time.Second+7*Period) ||
			!tt.closed && last < 2900*time.Millisecond {
			t.Errorf("%s: the longest recovery took %v", tt.text, last)
		}
	}
}

// As soon as the session with a restarted server is open, the edge sends a request, however many
// actions are left.
func TestReconnect(t *testing.T) {
	next := func(ticks []Tick, from int) int { // tick of the first request on or after a tick
		for i := from; i < len(ticks); i++ {
			if ticks[i].Requested {
				return i
			}
		}
		return -1
	}
	for _, reconnect := range []time.Duration{0, time.Second} {
		cfg := Config{
			Policy:    new(counter),
			Delay:     5,
			Ticks:     300,
			Reconnect: reconnect,
			Faults:    script(t, "faults: [{kind: restart, at: 2s, for: 500ms}]"),
		}
		_, ticks := watch(t, cfg)
		if reconnect == 0 {
			reconnect = defaultReconnect
		}
		open := int((2500*time.Millisecond + reconnect) / Period)
		if got := next(ticks, 121); got < open || got > open+3 {
			t.Errorf("restarted from 2 to 2.5 s, %v to reconnect: asked on tick %d, want %d to 3 later", reconnect, got,
				open)
		}
	}
	_, ticks := watch(t, Config{Policy: new(counter), Delay: 5, Ticks: 300})
	merged := slices.IndexFunc(ticks[100:], func(t Tick) bool { return t.Received }) + 100
	if next(ticks, merged) < merged+10 { // the schedule is full
		t.Fatalf("without a fault: merged on tick %d, asked on %d, want a pause", merged, next(ticks, merged))
	}
	faults := script(t, "faults: [{kind: restart, at: 1s, for: 20ms}]")
	faults.Faults[0].At = time.Duration(merged+1) * Period
	_, ticks = watch(t, Config{Policy: new(counter), Delay: 5, Ticks: 300, Reconnect: time.Millisecond, Faults: faults})
	if got := next(ticks, merged); got < merged+3 || got > merged+5 {
		t.Errorf("restarted for 20 ms on tick %d: asked on tick %d, want as soon as the session is there", merged+1,
			got)
	}
}

// passer is a policy that plans around the post. It changes the side of the post after every p.turns answers.
type passer struct {
	still
	turns int64
	ways  [2][stillHorizon * sim.DOF]float32
}

func newPasser(t *testing.T, turns int64) *passer {
	t.Helper()
	post := sim.NewWorld(1, 1).Post()
	p := &passer{turns: turns}
	for way := range p.ways {
		for row := range stillHorizon {
			at := p.ways[way][row*sim.DOF : (row+1)*sim.DOF]
			if at[pan], at[elbow] = poseNear(post, row%2 == 0, way == 0); at[elbow] == 0 {
				t.Fatal("the arm does not get there")
			}
		}
	}
	return p
}

// poseNear returns pan and elbow of a pose whose tip is on the given sides of the post.
func poseNear(post sim.Point, left, far bool) (panDeg, elbowDeg float32) {
	for pan := float32(-60); pan <= 60; pan += 5 {
		for elbow := float32(-90); elbow <= 90; elbow += 7 {
			if tip := sim.TipAt(float64(pan), float64(elbow)); (tip.X < post.X) == left && (tip.Y > post.Y) == far &&
				elbow != 0 {
				return pan, elbow
			}
		}
	}
	return 0, 0
}

func (p *passer) Answer(o *Observation) (Answer, error) {
	return Answer{Robot: p.ways[int64(o.Seq)/p.turns%2][:]}, nil
}

// A new plan counts as a mode switch when it passes the post on another side than the previous
// plan.
func TestModeSwitches(t *testing.T) {
	for _, turns := range []int{1, 3, 1000} {
		o, _ := watch(t, Config{Policy: newPasser(t, int64(turns)), Delay: 5, Ticks: 110})
		merges := o.Outcomes[chunk.Joined]
		if o.Both().legs() != 0 || merges < 4 {
			t.Fatalf("%d legs ended with %d merges, want one leg with several", o.Both().legs(), merges)
		}
		want := 0
		for key := 2; key <= merges; key++ { // the first plan is not a switch
			if key%turns == 0 {
				want++
			}
		}
		rttest.Want(t, o.Switches, want, "another side after %d of %d plans: switches", turns, merges)
	}
}

// A sum includes every field of its parts.
func TestAdd(t *testing.T) {
	part := Outcome{Waited: 1, Starved: 2, Switches: 3, Recoveries: []time.Duration{time.Second}}
	var sum Outcome
	sum.add(&part)
	sum.add(&part)
	if sum.Waited != 2 || sum.Starved != 4 || sum.Switches != 6 || len(sum.Recoveries) != 2 {
		t.Errorf("twice the same: waited %d, starved %d, switched %d, recovered %v", sum.Waited, sum.Starved,
			sum.Switches, sum.Recoveries)
	}
}
