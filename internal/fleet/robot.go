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
	schedule *chunk.Schedule
	trigger  *chunk.DRTC
	requests *chunk.Requests
	obs      Observation
	goal     [sim.DOF]float64
}

func newRobot(cfg *Config) (r *robot, err error) {
	r = &robot{cfg: cfg}
	r.obs.Picture = make([]byte, sim.NativeWidth*sim.NativeHeight*3)
	r.obs.Prefix = make([]float32, cfg.Policy.Horizon()*sim.DOF)
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
	horizon := r.cfg.Policy.Horizon()
	r.world.Reset(seed, direction)
	r.link.reset(seed, direction)
	r.schedule = chunk.NewSchedule(horizon, sim.DOF)
	r.requests = new(chunk.Requests)
	r.trigger = chunk.NewDRTC(chunk.DRTCConfig{
		Horizon:   horizon,
		SMin:      r.cfg.SMin,
		Epsilon:   r.cfg.Epsilon,
		FPS:       fps,
		Estimator: chunk.NewJK(float64(r.cfg.SMin)/fps, chunk.DefaultAlpha, chunk.DefaultBeta, chunk.DefaultK),
		PrefixEnd: r.cfg.Policy.PrefixEnd(),
	})
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
	action, age, verdict := r.schedule.Pop(now, time.Duration(r.cfg.MaxAge)*period)
	switch {
	case verdict == chunk.Ready:
		r.take(action)
		sum.Actions++
		sum.age(int(age / period))
	case r.schedule.N() >= 0: // holds the last goal; before the first action nothing is due
		sum.Starved++
	}
	if a, ok := r.link.receive(tick); ok {
		r.merge(now, a, sum)
	}
	if fire, delay := r.trigger.OnTick(r.schedule.Size()); fire {
		if err := r.request(tick, now, delay, sum); err != nil {
			return err
		}
	}
	r.world.Step(r.goal[:])
	if r.world.LegTicks() == 0 {
		sum.leg(r.world.LastLeg())
	}
	return nil
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
	q, ok := r.requests.Take(a.key)
	if !ok {
		sum.Unknown++
		return
	}
	horizon := r.cfg.Policy.Horizon()
	next := r.schedule.NextStep()
	jump := math.NaN() // no action was left, so there is nothing to jump from
	if i := int(next - q.Step); i < horizon && r.schedule.CopyPrefix(r.obs.Prefix, nil, 1) == 1 {
		row := a.chunk[i*sim.DOF:]
		jump = max(math.Abs(float64(row[pan]-r.obs.Prefix[pan])), math.Abs(float64(row[elbow]-r.obs.Prefix[elbow])))
	}
	m := r.schedule.Merge(&chunk.Chunk{
		Key: a.key, Step: q.Step, Rows: horizon, DOF: sim.DOF, Robot: a.chunk, Source: q.Source,
		Prov: chunk.Provenance{Seq: uint64(a.key)},
	})
	sum.Outcomes[m.Outcome]++
	if m.Outcome != chunk.Joined {
		return
	}
	if !math.IsNaN(jump) {
		sum.jumps = append(sum.jumps, jump)
	}
	r.trigger.OnChunk(now.Sub(q.Captured), false)
	sum.MaxEstimate = max(sum.MaxEstimate, r.trigger.Steps())
}

// The joints that move the tip.
const (
	pan   = 0
	elbow = 2
)

// request captures an observation and has it answered; the answer comes back
// through the link.
func (r *robot) request(tick int, now rt.Instant, delay int, sum *Result) error {
	o := &r.obs
	o.Seq++
	for j, v := range r.world.Q() {
		if r.cfg.Counts {
			v = encoder(j, v)
		}
		o.State[j] = float32(v)
	}
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
	o.Delay, o.PrefixEnd = delay, r.trigger.PrefixEnd(delay)
	o.Rows = r.schedule.CopyPrefix(o.Prefix, nil, r.cfg.Policy.Horizon())
	r.requests.Put(chunk.Request{
		Key: int64(o.Seq), Step: r.schedule.NextStep(), Captured: now, Source: now, Delay: delay, PrefixRows: o.Rows,
	})
	rows, err := r.cfg.Policy.Answer(o)
	if err != nil {
		return fmt.Errorf("request %d on tick %d: %w", o.Seq, tick, err)
	}
	sum.Requests++
	r.link.send(r.cfg, tick, int64(o.Seq), rows)
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
