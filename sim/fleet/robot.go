package fleet

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/chunk/smoothing"
	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/sim"
)

// Robot is one arm with its network and server. It plays one world after the other.
//
// Owner: one goroutine.
type Robot struct {
	cfg           Config
	enc           *jpeg.Encoder // nil: raw pictures
	dec           *jpeg.Decoder
	width, height int // size of the pictures, in pixels
	file          []byte
	sizes         messages
	ask           chunk.Ask
	next          [sim.DOF]float32 // the schedule's next action before a merge

	// New in every world.
	world     sim.World
	core      follow.Core
	net       network
	seed      uint64
	direction int
	state     [sim.DOF]float32
	wanted    [sim.DOF]float32 // the newest action
	goal      [sim.DOF]float64 // the goal sent to the servos
	ran       bool             // the last tick ran an action
	out       Outcome
	seams     seams
	losses    losses
	row       Tick
}

// Open checks the config and returns a robot, which the caller must close.
func Open(cfg Config) (r *Robot, err error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	width, height := cfg.Policy.Picture()
	r = &Robot{
		cfg:    cfg,
		width:  width,
		height: height,
		ask:    chunk.NewAsk(cfg.Policy.Horizon(), sim.DOF),
	}
	if cfg.Quality == 0 {
		return r, nil
	}
	r.file = make([]byte, jpeg.MaxSize(width, height, jpeg.Chroma420))
	if r.enc, err = jpeg.NewEncoder(cfg.Quality, jpeg.ChromaOfPicture); err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	if r.dec, err = jpeg.NewDecoder(); err != nil {
		r.enc.Close()
		return nil, fmt.Errorf("fleet: %w", err)
	}
	return r, nil
}

// Close releases the JPEG library's memory.
func (r *Robot) Close() {
	if r.enc != nil {
		r.enc.Close()
		r.dec.Close()
	}
}

// FaultSeed returns the seed of a world's faults.
func FaultSeed(seed uint64, direction int) uint64 { return 2*seed + uint64(direction+1)/2 }

// Play plays one world and returns its outcome.
func (r *Robot) Play(seed uint64, direction int) (Outcome, error) {
	r.world.ResetUnder(r.cfg.Rules, seed, direction)
	r.seed, r.direction = seed, direction
	r.out = Outcome{
		Seed:      seed,
		Direction: direction,
		Runs:      1,
		Outcomes:  map[chunk.Outcome]int{},
	}
	r.seams = seams{}
	r.losses = losses{since: -1}
	r.row, r.ran = Tick{}, false
	r.goal = r.world.Q()
	for j, q := range r.goal {
		r.wanted[j] = float32(q)
	}
	if err := r.newCore(); err != nil {
		return r.out, err
	}
	faults := r.cfg.Faults.Plan(FaultSeed(seed, direction), Period)
	r.net = newNetwork(&r.cfg, faults, r.losses.lose)
	r.cfg.Policy.Forget()
	for tick := range r.cfg.Ticks {
		if err := r.tick(tick); err != nil {
			return r.out, fmt.Errorf("fleet: seed %d, direction %+d: %w", seed, direction, err)
		}
	}
	r.losses.finish(time.Duration(r.cfg.Ticks)*Period, &r.out)
	r.out.Inferences, r.out.Superseded = r.net.inferences, r.net.superseded
	r.out.UpBytes, r.out.DownBytes = r.net.upSize, r.net.downSize
	return r.out, nil
}

// newCore makes the schedule and the core for a world. The core does not smooth actions and has no gate, because the
// world's servos have their own limits.
func (r *Robot) newCore() error {
	schedule, err := chunk.New(r.cfg.Schedule)
	if err != nil {
		return err
	}
	stages, err := smoothing.NewChain(smoothing.Config{}, FPS, sim.DOF)
	if err != nil {
		return err
	}
	stages.Reset(r.wanted[:])
	r.core = follow.Core{Schedule: schedule, Stages: stages, MaxAge: time.Duration(r.cfg.MaxAge) * Period}
	return nil
}

// tick runs one period, in the order of the edge's tick. It reads the state at the beginning of the
// period; then the servos move towards the goal for one period.
func (r *Robot) tick(tick int) error {
	now := time.Duration(tick) * Period
	at := rt.Instant(now)
	r.row = Tick{
		Seed: r.seed,
		Tick: tick,
		Seq:  r.row.Seq,
	}
	r.observe()
	r.act(at)
	if err := r.net.advance(now, r.cfg.Policy); err != nil {
		return err
	}
	open, fresh := r.net.open(now, r.cfg.Policy.Forget)
	if fresh {
		r.core.Schedule.RequestNow()
	}
	if f := r.net.receive(now); f != nil {
		r.merge(now, f)
	}
	view := r.core.Schedule.View() // the view before the request
	r.row.Estimate = view.Estimate
	r.losses.tick(tick, view, r.cfg.Schedule.Horizon)
	if r.core.Ask(at, open, r.state[:], r.wanted[:], &r.ask) {
		if err := r.sendRequest(tick, now); err != nil {
			return err
		}
	}
	r.world.Step(r.goal[:])
	if r.world.LegTicks() == 0 {
		r.out.leg(r.world.LastLeg())
		r.seams.way = 0
	}
	if r.cfg.Trace != nil {
		r.row.end(r.goal, r.world.Q(), r.core.Schedule.View())
		r.cfg.Trace(&r.row)
	}
	return nil
}

func (r *Robot) observe() {
	for j, v := range r.world.Q() {
		if r.cfg.Counts {
			v = encoder(j, v)
		}
		r.state[j] = float32(v)
	}
}

// act runs the due action. When no action is due, the goal stays as it was.
func (r *Robot) act(now rt.Instant) {
	action := r.core.Next(now)
	switch {
	case action.Row != nil:
		for j, v := range action.Row {
			r.wanted[j], r.goal[j] = v, float64(v)
			if r.cfg.Counts {
				r.goal[j] = encoder(j, r.goal[j])
			}
		}
		r.out.Actions++
		r.out.age(int(action.Age / Period))
		r.row.Seq = r.core.Schedule.Last().Seq
		if jump, seam := r.seams.step(r.goal, r.row.Seq); seam {
			r.out.Seams = append(r.out.Seams, jump)
		}
	case r.out.Actions > 0:
		if r.out.Starved++; r.ran {
			r.out.Idles = append(r.out.Idles, 0)
		}
		r.out.Idles[len(r.out.Idles)-1]++
		r.row.Starved = true
		r.seams.hold(r.goal)
	// An answer that is merged on one tick runs on the next tick.
	case time.Duration(now) > 2*r.cfg.Network+r.cfg.Compute+r.net.plan.Latency()+2*Period:
		r.out.Waited++
		r.row.Starved = true
	}
	r.ran = action.Row != nil
}

func (r *Robot) merge(now time.Duration, f *request) {
	held := copy(r.next[:], r.core.Schedule.Peek()) > 0 // without a next action a merge causes no jump
	m := r.core.Schedule.OnChunk(rt.Instant(now), &chunk.Chunk{
		Key:   f.key,
		Rows:  len(f.answer.Robot) / sim.DOF,
		DOF:   sim.DOF,
		Robot: f.answer.Robot,
		Model: f.answer.Model,
		Prov:  chunk.Provenance{Seq: uint64(f.key)},
	})
	r.row.merged(f, now, &m)
	r.out.Outcomes[m.Outcome]++
	if m.Outcome != chunk.Joined {
		return
	}
	if row := r.core.Schedule.Peek(); held && row != nil {
		r.out.Jumps = append(r.out.Jumps, max(math.Abs(float64(row[pan]-r.next[pan])),
			math.Abs(float64(row[elbow]-r.next[elbow]))))
	}
	r.losses.recover(now, &r.out)
	r.out.Switches += r.seams.turn(f.answer.Robot[m.Delay*sim.DOF:], r.world.Post())
	r.out.MaxEstimate = max(r.out.MaxEstimate, r.core.Schedule.View().Estimate)
}

func (r *Robot) sendRequest(tick int, now time.Duration) error {
	a := &r.ask
	f := &request{key: a.Key, obs: Observation{
		Seed:      r.seed,
		Direction: r.direction,
		Seq:       uint64(a.Key),
		State:     r.state,
		Picture:   make([]byte, r.width*r.height*3),
		Prefix:    slices.Clone(a.Robot[:a.Rows*sim.DOF]),
		Rows:      a.Rows,
		Spans:     slices.Clone(a.Spans),
		Delay:     a.Delay,
		PrefixEnd: a.PrefixEnd,
	}}
	file := f.obs.Picture
	r.world.Render(file, r.width, r.height)
	if r.enc != nil {
		n, err := r.enc.EncodeRGB(r.file, f.obs.Picture, r.width, r.height)
		if err != nil {
			return err
		}
		file = r.file[:n]
		if err := r.dec.DecodeRGB(f.obs.Picture, file, r.width, r.height); err != nil {
			return err
		}
	}
	f.bytes = r.sizes.observation(&f.obs, file, r.width, r.height, r.enc != nil) + r.cfg.Beside
	r.out.Requests++
	r.row.Requested = true
	r.losses.ask(f.key, tick, r.row.Estimate)
	r.net.send(now, f)
	return nil
}

// encoder rounds a joint's value to the resolution of a 4096-step encoder. An arm's joint turns 360
// degrees in these steps; the gripper's 100 percent are about half a turn.
func encoder(joint int, v float64) float64 {
	if joint == sim.DOF-1 {
		return math.RoundToEven(v*20) / 20
	}
	const perDegree, middle = 4095.0 / 360, 2047.5
	return (math.RoundToEven(v*perDegree+middle) - middle) / perDegree
}
