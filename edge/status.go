package edge

import (
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"edgert/edge/capture"
	"edgert/edge/page"
	"edgert/rt"
)

// StatusWriter is a terminal that shows one line in place. Write gets the line
// without its end; Clear takes the line away before something else is printed.
type StatusWriter interface {
	io.Writer
	Clear()
}

const statusEvery = 200 * time.Millisecond

// statusLine formats what a person watches during a run. It allocates nothing,
// so that watching does not change what is watched.
//
// Owner: the housekeeping goroutine.
type statusLine struct {
	buf []byte
}

//rt:noalloc
func (l *statusLine) format(e *Edge, now rt.Instant) []byte {
	st := e.control.stats
	loop := e.loop.Stats()
	b := append(l.buf[:0], State(st.state.Load()).String()...)
	b = appendField(b, "  t ", int64(now.Sub(e.started)/time.Second), " s")
	b = appendField(b, "  ticks ", int64(loop.Ticks), "")
	b = appendField(b, "  late p99 ", int64(loop.Lateness.Quantile(0.99)/time.Microsecond), " us")
	b = appendField(b, "  overruns ", int64(loop.OverrunsOwn), "")
	b = appendField(b, "+", int64(loop.OverrunsHost), "")
	b = appendField(b, "  queue ", st.size.Load(), "")
	b = appendField(b, "  rtt p50 ", int64(st.rtt.Quantile(0.5)/time.Millisecond), " ms")
	b = appendField(b, "  age p99 ", int64(st.age.Quantile(0.99)/time.Millisecond), " ms")
	b = appendField(b, "  starved ", int64(st.starved.Load()), "")
	if e.world != nil {
		score := e.world.Score()
		b = appendField(b, "  targets ", int64(score.Reached), "")
		b = appendField(b, "  collisions ", int64(score.Collided), "")
	}
	l.buf = b
	return b
}

//rt:noalloc
func appendField(b []byte, name string, v int64, unit string) []byte {
	b = append(b, name...)
	b = strconv.AppendInt(b, v, 10)
	return append(b, unit...)
}

// Live is how a run goes now, for the page: the keys of CtlReply and Summary, as
// far as they stand while it runs, and where the joints are.
type Live struct {
	ID       string         `json:"id"`
	Robot    string         `json:"robot"`
	Schedule string         `json:"schedule"`
	FPS      float64        `json:"fps"`
	State    string         `json:"state"`
	Paused   bool           `json:"paused"`
	Waits    string         `json:"waits,omitempty"`
	Episode  uint32         `json:"episode_id"`
	Server   *ServerSummary `json:"server,omitempty"` // of the newest session

	Ticks        uint64    `json:"ticks"`
	OverrunsOwn  uint64    `json:"overruns_own"`
	OverrunsHost uint64    `json:"overruns_host"`
	LatenessUS   Quantiles `json:"lateness_us"`
	RT           Granted   `json:"rt"`

	Queue         int64              `json:"queue"`
	StarvedTicks  uint64             `json:"starved_ticks"`
	Actions       uint64             `json:"actions"`
	ActionsTooOld uint64             `json:"actions_too_old"`
	ActionAgeMS   ShortQuantiles     `json:"action_age_ms"`
	Requests      uint64             `json:"requests"`
	Chunks        uint64             `json:"chunks"`
	ChunksDropped map[string]uint64  `json:"chunks_dropped"`
	RTTms         ShortQuantiles     `json:"rtt_ms"`
	NetworkMS     ShortQuantiles     `json:"network_ms"`
	InState       map[string]float64 `json:"seconds_in_state"`

	Bus    BusSummary            `json:"bus"`
	Frames map[string]LiveFrames `json:"frames"`
	Tick   LiveTick              `json:"tick"`
	Joints []Joint               `json:"joints"`

	Simulated  bool `json:"simulated"` // the next two mean something
	Targets    int  `json:"targets_reached"`
	Collisions int  `json:"collisions"`
}

// LiveFrames is one camera.
type LiveFrames struct {
	Frames
	Lost bool `json:"lost"` // it is away now
}

// LiveTick is the newest tick.
type LiveTick struct {
	AgeMS       float64  `json:"age_ms"` // since it began
	LatenessUS  float64  `json:"lateness_us"`
	ActionAgeMS *float64 `json:"action_age_ms"` // of what the arm does, as it is now; null before the first action
}

// Joint is one joint in the newest tick, in the robot's units.
type Joint struct {
	Name   string  `json:"name"`
	Unit   string  `json:"unit"`
	State  float64 `json:"state"` // measured
	Goal   float64 `json:"goal"`
	Stale  bool    `json:"stale"`  // it did not answer in this tick
	Frozen bool    `json:"frozen"` // it has not for so long that it keeps its goal
	Held   bool    `json:"held"`   // it is not driven, or only to relieve it: its motor complains, has restarted or was let go
	Life   string  `json:"life"`   // what is known of it, follow.Life
	Why    string  `json:"why"`    // why it is told what it is
}

// tickGrace is how long after a tick the process is still taken for healthy.
const tickGrace = 2 * time.Second

// openPage listens where --http says, while nothing has moved.
func (e *Edge) openPage() (err error) {
	if e.cfg.HTTP == "" {
		return nil
	}
	if e.page, err = page.Listen(e.cfg.HTTP, e.clock, e.log); err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	e.onClose(e.page.Close)
	e.log.Info("page", "at", e.page.URL())
	return nil
}

// showPage lets people look at this run.
func (e *Edge) showPage() error {
	if e.page == nil {
		return nil
	}
	e.control.showViews()
	for _, v := range e.encoders {
		preview, err := capture.NewPreview(v)
		if err != nil {
			return err
		}
		e.sender.previews = append(e.sender.previews, preview)
		e.onCloseUnlessStuck(preview.Close)
	}
	e.onClose(e.page.Close) // before what it shows
	var mu sync.Mutex       // of those who look: one at a time reads the newest tick
	e.page.Watch(page.Run{
		Status: func() any {
			mu.Lock()
			defer mu.Unlock()
			return e.live()
		},
		Healthy: func() (bool, string) {
			mu.Lock()
			defer mu.Unlock()
			return e.healthy()
		},
		Ticks:    func() uint64 { return e.loop.Stats().Ticks },
		Previews: e.sender.previews,
	})
	return nil
}

// healthy says whether to leave this process alone: ticks come.
func (e *Edge) healthy() (bool, string) {
	g, key, _ := e.control.out.views.Front()
	if key == rt.NoKey {
		return true, "starting"
	}
	if quiet := e.clock.Now().Sub(g.at); quiet > tickGrace {
		return false, fmt.Sprintf("no tick for %.0f s", quiet.Seconds())
	}
	return true, "ok"
}

// live reads the counters of a run, and its newest tick.
func (e *Edge) live() *Live {
	c, st, loop, arm := e.control, e.control.stats, e.loop.Stats(), e.arm.Stats()
	l := &Live{
		ID: e.identity.ID, Robot: e.cfg.Robot, Schedule: e.cfg.Plan.Schedule, FPS: e.cfg.FPS,
		State: State(st.state.Load()).String(), Paused: c.operator.pause.Load(), Episode: st.episode.Load(),
		Ticks: loop.Ticks, OverrunsOwn: loop.OverrunsOwn, OverrunsHost: loop.OverrunsHost, LatenessUS: long(loop.Lateness, time.Microsecond),
		Queue: st.size.Load(), StarvedTicks: st.starved.Load(), Actions: st.actions.Load(), ActionsTooOld: st.tooOld.Load(),
		ActionAgeMS: short(st.age, time.Millisecond), Requests: st.requests.Load(), Chunks: st.chunks.Load(), ChunksDropped: st.dropTotals(),
		RTTms: short(st.rtt, time.Millisecond), NetworkMS: short(st.network, time.Millisecond), InState: st.seconds(),
		Bus: busSummary(arm), Frames: map[string]LiveFrames{}, Simulated: e.world != nil,
	}
	if st.needResume.Load() {
		l.Waits = e.resume
	}
	if s := c.link.session.Load(); s != nil {
		l.Server = &ServerSummary{Model: s.Model, Revision: s.Revision, SHA256: s.SHA256}
		if up := e.link.uplink.Load(); up != nil {
			l.Server.Prefix = up.prefix
		}
	}
	if grant := e.loop.Grant(); loop.Ticks > 0 {
		l.RT = Granted{grant.Granted, grant.Why}
	}
	for _, cam := range e.cameras {
		l.Frames[cam.Name] = LiveFrames{framesOf(cam), cam.Stats().Lost}
	}
	if e.world != nil {
		score := e.world.Score()
		l.Targets, l.Collisions = score.Reached, score.Collided
	}
	g, key, _ := c.out.views.Front()
	if key == rt.NoKey {
		return l
	}
	now := e.clock.Now()
	l.Tick = LiveTick{AgeMS: millis(now.Sub(g.at)), LatenessUS: float64(g.late) / 1e3}
	if g.source != 0 {
		age := millis(now.Sub(g.source))
		l.Tick.ActionAgeMS = &age
	}
	names, units := e.robot.ActionNames(), unitsOf(e.robot)
	for j := range g.state {
		bit := uint32(1) << j
		l.Joints = append(l.Joints, Joint{
			Name: names[j], Unit: units[j], State: round3(float64(g.state[j])), Goal: round3(float64(g.goal[j])),
			Stale: g.stale&bit != 0, Frozen: g.frozen&bit != 0, Held: g.held&bit != 0,
			Life: g.joints[j].String(), Why: g.joints[j].Why(),
		})
	}
	return l
}

func millis(d time.Duration) float64 { return round3(float64(max(0, d)) / 1e6) }
