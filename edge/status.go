package edge

import (
	"time"

	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/episode"
	"github.com/edge-rt/edge-rt/edge/uplink"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
)

// Status is the progress of a run: the keys that its page and its summary share.
type Status struct {
	ID       string         `json:"id"`               // name of the robot
	Schedule string         `json:"schedule"`         // --schedule
	Task     string         `json:"task,omitempty"`   // the arm's current task
	FPS      float64        `json:"fps"`              // Hz, ticks per second
	Server   *ServerSummary `json:"server,omitempty"` // the newest session's server
	Ticks    uint64         `json:"ticks"`            // ticks that ran
	// ticks that ended after the next was due, because of their own computing and their wait for
	// the bus
	OverrunsOwn uint64 `json:"overruns_own"`
	// other ticks that ended after the next was due: the machine did not run them in time
	OverrunsHost uint64    `json:"overruns_host"`
	LatenessUS   Quantiles `json:"lateness_us"` // us, from a tick's deadline to its start
	RT           Granted   `json:"rt"`
	// ticks without an action though one was due, from the first action on
	StarvedTicks uint64 `json:"starved_ticks"`
	Actions      uint64 `json:"actions"` // actions that ran
	// actions that did not run because they were older than --max-action-age
	ActionsTooOld uint64 `json:"actions_too_old"`
	// ms, from the measurement of an action's state, or of its oldest picture, to its run
	ActionAgeMS ShortQuantiles `json:"action_age_ms"`
	Requests    uint64         `json:"requests"` // requests for a chunk
	Chunks      uint64         `json:"chunks"`   // chunks merged into the schedule
	// [reason] chunks that were not merged, by reason: header or body (not readable), epoch,
	// episode (of an earlier one), unknown_seq (not requested), superseded (a newer one came before
	// the merge), foreign (the answer to another robot of this name, or another server's event),
	// late (all its steps had run), older, duplicate, bad_shape, ahead, not_finite
	ChunksDropped map[string]uint64 `json:"chunks_dropped"`
	// ms, from the reading of a request's state to the merge of its chunk
	RTTms     ShortQuantiles `json:"rtt_ms"`
	NetworkMS ShortQuantiles `json:"network_ms"` // ms, rtt_ms less the time that the server reports
	// [state] s, CONNECTING, STREAMING, DEGRADED, STALLED, RECONNECTING or DEAD
	InState map[string]float64 `json:"seconds_in_state"`
	Targets int                `json:"targets_reached"` // reached targets of the simulated world
	// reached targets of the simulated world whose way touched the post
	Collisions int             `json:"collisions"`
	History    *History        `json:"history,omitempty"`  // absent unless the policy looks back
	Episodes   *episode.Status `json:"episodes,omitempty"` // absent without past or planned episodes
}

// History describes the observations that are sent together for a policy that looks back.
type History struct {
	Steps int `json:"steps"` // observations that the policy looks at together
	// restarts of the history: by an episode, a session, or an action step that was missing or
	// incomplete
	Anew   uint64 `json:"begun_anew"`
	NoRoom uint64 `json:"no_room"` // action steps that were left out because the sender was too slow
}

// Live is the JSON of the page: the progress of a run and the positions of the joints.
type Live struct {
	Status
	Robot string `json:"robot"` // kind of the robot
	// CONNECTING, STREAMING, DEGRADED, STALLED, RECONNECTING or DEAD
	State   string                `json:"state"`
	Paused  bool                  `json:"paused"`          // an operator has paused the arm
	Phase   string                `json:"phase,omitempty"` // phase of the take-over, in a run with a leader
	Waits   string                `json:"waits,omitempty"` // the operator's next step without which nothing moves
	Works   []string              `json:"works"`           // commands that have an effect now
	Episode uint32                `json:"episode_id"`      // number of the episode
	Queue   int64                 `json:"queue"`           // actions that wait
	Bus     BusSummary            `json:"bus"`
	Frames  map[string]LiveFrames `json:"frames"` // [camera]
	Tick    LiveTick              `json:"tick"`
	Joints  []Joint               `json:"joints"`
	// the world is simulated: targets_reached and collisions are valid
	Simulated bool `json:"simulated"`
}

// LiveFrames is the state of one camera.
type LiveFrames struct {
	Frames
	Lost bool `json:"lost"` // the camera is away now
}

// LiveTick is the newest tick.
type LiveTick struct {
	AgeMS      float64 `json:"age_ms"`      // ms, since the tick began
	LatenessUS float64 `json:"lateness_us"` // us, from the tick's deadline to its start
	// ms, age of the observation that the arm's motion is made from; null before the first action
	ActionAgeMS *float64 `json:"action_age_ms"`
}

// Joint is one joint in the newest tick, in the robot's units.
type Joint struct {
	Name   string  `json:"name"`   // name of the joint
	Unit   string  `json:"unit"`   // unit of state and goal
	State  float64 `json:"state"`  // unit of the joint, measured
	Goal   float64 `json:"goal"`   // unit of the joint, goal
	Stale  bool    `json:"stale"`  // no reply in this tick
	Frozen bool    `json:"frozen"` // silent for so long that it keeps its goal
	// not driven, or only to relieve it: its motor complains, has restarted or was let go
	Held       bool   `json:"held"`
	Conditions string `json:"life"`                // state of the joint: [control.md](control.md#a-joints-states)
	Why        string `json:"why"`                 // reason for the goals that it gets
	Complaint  string `json:"complaint,omitempty"` // complaint about heat or supply, with the motor's measurement
}

// Quantiles are those of a histogram, in the unit of the key.
type Quantiles struct {
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// ShortQuantiles omit the 99.9th percentile, for rare events.
type ShortQuantiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// BusSummary describes the servo bus; times are those of one read and write of all joints.
type BusSummary struct {
	Cycles  uint64  `json:"cycles"`  // readings of all joints
	Lost    uint64  `json:"lost"`    // requested positions that did not arrive
	Corrupt uint64  `json:"corrupt"` // byte sequences without a frame, and frames that nothing requested
	Retries uint64  `json:"retries"` // repeated transactions
	P50     float64 `json:"us_p50"`  // us, median time of a reading
	P99     float64 `json:"us_p99"`  // us, 99th percentile of the same

	// ignored positions: no joint can have reached them since the previous reading
	Doubted uint64 `json:"doubted,omitempty"`

	FastReads uint64 `json:"fast_reads,omitempty"`     // readings with one merged reply of all motors (Dynamixel)
	Fallbacks uint64 `json:"fast_fallbacks,omitempty"` // changes from fast to plain reads
	FastTries uint64 `json:"fast_tries,omitempty"`     // attempts to return to fast reads
}

// Frames holds the counters of one camera.
type Frames struct {
	Captured uint64  `json:"captured"`   // pictures taken
	Dropped  uint64  `json:"dropped"`    // unused pictures: missed, skipped, or broken in the driver
	Age      float64 `json:"age_ms_p99"` // ms, age of a picture when its observation is made: 99th percentile
	Errors   uint64  `json:"errors"`     // failed attempts to get a picture
	Missed   uint64  `json:"missed"`     // part of dropped: the driver lost the picture, or had no room for it
	Skipped  uint64  `json:"skipped"`    // part of dropped: a newer picture had already arrived
	Broken   uint64  `json:"broken"`     // marked bad by the driver, or an incomplete JPEG
	Restarts uint64  `json:"restarts"`   // times that the camera was set up again
	Stale    uint64  `json:"stale"`      // observations with a picture older than its max-age

	// of the pictures that are decoded here: JPEG with stray bytes, used nevertheless
	Warned uint64 `json:"warned"`
	// of the same: JPEG with a missing or broken part; the previous picture was used
	Undecoded uint64 `json:"undecoded"`

	Repeated uint64 `json:"repeated"` // live camera: repetitions of the previous picture, used with its age
}

// Granted reports whether the kernel gave the tick its real-time priority.
type Granted struct {
	Granted bool   `json:"granted"` // the tick had real-time priority
	Why     string `json:"why"`     // why it had not, and which limit to raise
}

// ServerSummary is the server of the newest session.
type ServerSummary struct {
	Model    string `json:"model"`                  // name of the model
	Revision string `json:"revision"`               // revision of the model
	SHA256   string `json:"model_sha256,omitempty"` // digest of the bundle
	Prefix   string `json:"prefix"`                 // beginning of the server's keys
}

func serverSummary(s *uplink.Session) *ServerSummary {
	if s == nil {
		return nil
	}
	return &ServerSummary{
		Model:    s.Model,
		Revision: s.Revision,
		SHA256:   s.SHA256,
		Prefix:   s.Service,
	}
}

func busSummary(arm servo.Stats) BusSummary {
	cycle := long(arm.Cycle, time.Microsecond)
	return BusSummary{
		Cycles:    arm.Cycles,
		Lost:      arm.Lost,
		Corrupt:   arm.Corrupt,
		Retries:   arm.Retries,
		P50:       cycle.P50,
		P99:       cycle.P99,
		Doubted:   arm.Doubted,
		FastReads: arm.FastReads,
		Fallbacks: arm.Fallbacks,
		FastTries: arm.FastTries,
	}
}

func framesOf(cam *capture.Camera) Frames {
	t := cam.Stats()
	return Frames{
		Captured:  t.Captured,
		Dropped:   t.Dropped,
		Age:       round3(float64(cam.Age.Quantile(0.99)) / 1e6),
		Errors:    t.Errors,
		Missed:    t.Source.Missed,
		Skipped:   t.Source.Skipped,
		Broken:    t.Source.Broken + t.Torn,
		Restarts:  t.Source.Restarts,
		Stale:     t.Stale,
		Warned:    t.Warned,
		Undecoded: t.Undecoded,
		Repeated:  t.Repeated,
	}
}

func short(h *rt.Hist, unit time.Duration) ShortQuantiles {
	q := long(h, unit)
	return ShortQuantiles{q.P50, q.P99, q.Max}
}

func long(h *rt.Hist, unit time.Duration) Quantiles {
	in := func(d time.Duration) float64 { return round3(float64(d) / float64(unit)) }
	return Quantiles{in(h.Quantile(0.5)), in(h.Quantile(0.99)), in(h.Quantile(0.999)), in(h.Max())}
}

func round3(v float64) float64 { return float64(int64(v*1000+0.5)) / 1000 }
