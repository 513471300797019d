package edge

import (
	"time"

	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/episode"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
)

// Status is the progress of a run: the keys that its page and its summary share.
type Status struct {
	ID            string             `json:"id"`
	Schedule      string             `json:"schedule"`
	Task          string             `json:"task,omitempty"` // the arm's current task
	FPS           float64            `json:"fps"`
	Server        *ServerSummary     `json:"server,omitempty"` // the newest session's server
	Ticks         uint64             `json:"ticks"`
	OverrunsOwn   uint64             `json:"overruns_own"`
	OverrunsHost  uint64             `json:"overruns_host"`
	LatenessUS    Quantiles          `json:"lateness_us"`
	RT            Granted            `json:"rt"`
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
	Targets       int                `json:"targets_reached"`
	Collisions    int                `json:"collisions"`
	History       *History           `json:"history,omitempty"`  // nil: the policy does not look back
	Episodes      *episode.Status    `json:"episodes,omitempty"` // nil: no episodes, neither past nor planned
}

// History describes the observations that are sent together for a policy that looks back.
type History struct {
	Steps  int    `json:"steps"`      // observations that the policy looks at together
	Anew   uint64 `json:"begun_anew"` // action steps that could not follow the previous one
	NoRoom uint64 `json:"no_room"`    // action steps that were left out because the sender was too slow
}

// Live is the JSON of the page: the progress of a run and the positions of the joints.
type Live struct {
	Status
	Robot     string                `json:"robot"`
	State     string                `json:"state"`
	Paused    bool                  `json:"paused"`
	Phase     string                `json:"phase,omitempty"` // phase of the take-over, in a run with a leader
	Waits     string                `json:"waits,omitempty"` // the operator's next step without which nothing moves
	Works     []string              `json:"works"`           // commands that have an effect now
	Episode   uint32                `json:"episode_id"`
	Queue     int64                 `json:"queue"`
	Bus       BusSummary            `json:"bus"`
	Frames    map[string]LiveFrames `json:"frames"`
	Tick      LiveTick              `json:"tick"`
	Joints    []Joint               `json:"joints"`
	Simulated bool                  `json:"simulated"` // the world is simulated: targets_reached and collisions are valid
}

// LiveFrames is the state of one camera.
type LiveFrames struct {
	Frames
	Lost bool `json:"lost"` // the camera is away now
}

// LiveTick is the newest tick.
type LiveTick struct {
	AgeMS       float64  `json:"age_ms"` // since the tick began
	LatenessUS  float64  `json:"lateness_us"`
	ActionAgeMS *float64 `json:"action_age_ms"` // age of the observation that the arm's motion is made from; null before the first action
}

// Joint is one joint in the newest tick, in the robot's units.
type Joint struct {
	Name       string  `json:"name"`
	Unit       string  `json:"unit"`
	State      float64 `json:"state"` // measured
	Goal       float64 `json:"goal"`
	Stale      bool    `json:"stale"`               // no reply in this tick
	Frozen     bool    `json:"frozen"`              // silent for so long that it keeps its goal
	Held       bool    `json:"held"`                // not driven, or only to relieve it: its motor complains, has restarted or was let go
	Conditions string  `json:"life"`                // the joint's follow.Condition
	Why        string  `json:"why"`                 // reason for the goals that it gets
	Complaint  string  `json:"complaint,omitempty"` // complaint about heat or supply, with the motor's measurement
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
	Cycles  uint64  `json:"cycles"`
	Lost    uint64  `json:"lost"`
	Corrupt uint64  `json:"corrupt"`
	Retries uint64  `json:"retries"`
	P50     float64 `json:"us_p50"`
	P99     float64 `json:"us_p99"`

	// Beyond the contract.
	Doubted uint64 `json:"doubted,omitempty"` // implausible positions, which were ignored

	// Beyond the contract, for Dynamixels.
	FastReads uint64 `json:"fast_reads,omitempty"`     // cycles with one merged reply of all motors
	Fallbacks uint64 `json:"fast_fallbacks,omitempty"` // changes from fast to plain reads
	FastTries uint64 `json:"fast_tries,omitempty"`     // attempts to return to fast reads
}

// Frames holds the counters of one camera.
type Frames struct {
	Captured uint64  `json:"captured"`
	Dropped  uint64  `json:"dropped"`
	Age      float64 `json:"age_ms_p99"`
	Errors   uint64  `json:"errors"`   // failed attempts to get a picture
	Missed   uint64  `json:"missed"`   // part of dropped: the driver lost the picture, or had no room for it
	Skipped  uint64  `json:"skipped"`  // part of dropped: a newer picture had already arrived
	Broken   uint64  `json:"broken"`   // marked bad by the driver, or an incomplete JPEG
	Restarts uint64  `json:"restarts"` // times that the camera was set up again
	Stale    uint64  `json:"stale"`    // observations with a picture older than its max-age

	// Beyond the contract, for pictures that are decoded here.
	Warned    uint64 `json:"warned"`    // JPEG with stray bytes, used nevertheless
	Undecoded uint64 `json:"undecoded"` // JPEG with a missing part: the previous picture was used

	Repeated uint64 `json:"repeated"` // live camera: repetitions of the previous picture, used with its age
}

// Granted reports whether the kernel gave the tick its real-time priority.
type Granted struct {
	Granted bool   `json:"granted"`
	Why     string `json:"why"`
}

// ServerSummary is the server of the newest session.
type ServerSummary struct {
	Model    string `json:"model"`
	Revision string `json:"revision"`
	SHA256   string `json:"model_sha256,omitempty"`
	Prefix   string `json:"prefix"`
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
