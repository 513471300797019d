package fleet

import (
	"fmt"
	"math"
	"time"

	"edgert/chunk"
	"edgert/jpeg"
	"edgert/rt"
	"edgert/sim"
)

const period = time.Second / fps

// robot is one arm at a time, with what survives from one world to the next.
type robot struct {
	cfg   *Config
	enc   *jpeg.Encoder
	dec   *jpeg.Decoder
	file  []byte
	world sim.World
	link  link

	// Fresh in every world.
	plan chunk.Discipline
	obs  Observation
	goal [sim.DOF]float64

	ask  chunk.Ask
	next [sim.DOF]float32 // the action before a merge
}

func newRobot(cfg *Config) (r *robot, err error) {
	r = &robot{cfg: cfg}
	r.obs.Picture = make([]byte, sim.NativeWidth*sim.NativeHeight*3)
	r.ask = chunk.NewAsk(cfg.Policy.Horizon(), sim.DOF)
	if cfg.Quality == 0 {
		return r, nil
	}
	r.file = make([]byte, jpeg.MaxSize(sim.NativeWidth, sim.NativeHeight))
	if r.enc, err = jpeg.NewEncoder(cfg.Quality); err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	if r.dec, err = jpeg.NewDecoder(); err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	return r, nil
}

func (r *robot) close() {
	if r.cfg.Quality > 0 {
		r.enc.Close()
		r.dec.Close()
	}
}

// run plays one world and adds what happened to sum.
func (r *robot) run(seed uint64, direction int, sum *Result) error {
	r.world.Reset(seed, direction)
	r.link.reset(seed, direction)
	plan, err := chunk.New(chunk.Config{
		Schedule: chunk.ScheduleDRTC, Horizon: r.cfg.Policy.Horizon(), DOF: sim.DOF, FPS: fps, PrefixEnd: r.cfg.Policy.PrefixEnd(),
		SMin: r.cfg.SMin, Epsilon: r.cfg.Epsilon,
	})
	if err != nil {
		return err
	}
	r.plan = plan
	r.obs.Seed, r.obs.Direction, r.obs.Seq = seed, direction, 0
	r.goal = r.world.Q()
	for tick := range r.cfg.Ticks {
		if err := r.tick(tick, sum); err != nil {
			return err
		}
	}
	return nil
}

// tick is one period in the edge's order. The state is that of the tick's begin;
// the servos move towards the goal until the next.
func (r *robot) tick(tick int, sum *Result) error {
	now := rt.Instant(tick) * rt.Instant(period)
	action, age, verdict := r.plan.Pop(now, time.Duration(r.cfg.MaxAge)*period)
	switch {
	case verdict == chunk.Ready:
		r.take(action)
		sum.Actions++
		sum.age(int(age / period))
	case r.plan.View().N >= 0: // holds the last goal; before the first action nothing is due
		sum.Starved++
	}
	if a, ok := r.link.receive(tick); ok {
		r.merge(now, a, sum)
	}
	r.observe()
	if r.plan.OnTick(now, r.obs.State[:], &r.ask) {
		if err := r.request(tick, sum); err != nil {
			return err
		}
	}
	r.world.Step(r.goal[:])
	if r.world.LegTicks() == 0 {
		sum.leg(r.world.LastLeg())
	}
	return nil
}

// observe reads the joints.
func (r *robot) observe() {
	for j, v := range r.world.Q() {
		if r.cfg.Counts {
			v = encoder(j, v)
		}
		r.obs.State[j] = float32(v)
	}
}

// take makes an action the goal of this tick.
func (r *robot) take(action []float32) {
	for j, v := range action {
		r.goal[j] = float64(v)
		if r.cfg.Counts {
			r.goal[j] = encoder(j, r.goal[j])
		}
	}
}

func (r *robot) merge(now rt.Instant, a answer, sum *Result) {
	held := copy(r.next[:], r.plan.Peek()) > 0 // else there is nothing to jump from
	m := r.plan.OnChunk(now, &chunk.Chunk{
		Key: a.key, Rows: r.cfg.Policy.Horizon(), DOF: sim.DOF, Robot: a.chunk,
		Prov: chunk.Provenance{Seq: uint64(a.key)},
	})
	if m.Outcome == chunk.Unknown {
		sum.Unknown++
		return
	}
	sum.Outcomes[m.Outcome]++
	if m.Outcome != chunk.Joined {
		return
	}
	if row := r.plan.Peek(); held && row != nil {
		jump := max(math.Abs(float64(row[pan]-r.next[pan])), math.Abs(float64(row[elbow]-r.next[elbow])))
		sum.jumps = append(sum.jumps, jump)
	}
	sum.MaxEstimate = max(sum.MaxEstimate, r.plan.View().Estimate)
}

// The joints that move the tip.
const (
	pan   = 0
	elbow = 2
)

// request captures an observation and has it answered; the answer comes back
// through the link.
func (r *robot) request(tick int, sum *Result) error {
	o, a := &r.obs, &r.ask
	o.Seq = uint64(a.Key)
	r.world.Render(o.Picture)
	if r.cfg.Quality > 0 {
		n, err := r.enc.EncodeRGB(r.file, o.Picture, sim.NativeWidth, sim.NativeHeight)
		if err != nil {
			return err
		}
		if err := r.dec.DecodeRGB(o.Picture, r.file[:n], sim.NativeWidth, sim.NativeHeight); err != nil {
			return err
		}
	}
	o.Delay, o.PrefixEnd, o.Rows, o.Prefix = a.Delay, a.PrefixEnd, a.Rows, a.Robot
	rows, err := r.cfg.Policy.Answer(o)
	if err != nil {
		return fmt.Errorf("request %d on tick %d: %w", o.Seq, tick, err)
	}
	sum.Requests++
	r.link.send(r.cfg, tick, a.Key, rows)
	return nil
}

// encoder rounds a joint's value to what a 4096-step encoder can say: 360 degrees
// for the arm, half a turn for the gripper's 100 percent.
func encoder(joint int, v float64) float64 {
	if joint == sim.DOF-1 {
		return math.RoundToEven(v*20) / 20
	}
	const perDegree, middle = 4095.0 / 360, 2047.5
	return (math.RoundToEven(v*perDegree+middle) - middle) / perDegree
}
