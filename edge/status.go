package edge

import (
	"time"

	"edgert/edge/capture"
	"edgert/edge/episode"
	"edgert/rt"
	"edgert/servo"
)

// Status is how a run goes: the keys that its page and its summary share.
type Status struct {
	ID            string             `json:"id"`
	Schedule      string             `json:"schedule"`
	Task          string             `json:"task,omitempty"` // what the arm shall do now
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
	Episodes      *episode.Status    `json:"episodes,omitempty"` // nil: there were none, and none are to come
}

// History is what goes along with an observation for a policy that looks back.
type History struct {
	Steps  int    `json:"steps"`      // observations that the policy looks at together
	Anew   uint64 `json:"begun_anew"` // times that one action step could not follow the one before
	NoRoom uint64 `json:"no_room"`    // action steps that were left out because the sender was behind
}

// Live is the page's: how a run goes now, and where the joints are.
type Live struct {
	Status
	Robot     string                `json:"robot"`
	State     string                `json:"state"`
	Paused    bool                  `json:"paused"`
	Phase     string                `json:"phase,omitempty"` // who has the arm, in a run with a leader
	Waits     string                `json:"waits,omitempty"` // what an operator has to do before anything moves
	Works     []string              `json:"works"`           // the commands that would do something now
	Episode   uint32                `json:"episode_id"`
	Queue     int64                 `json:"queue"`
	Bus       BusSummary            `json:"bus"`
	Frames    map[string]LiveFrames `json:"frames"`
	Tick      LiveTick              `json:"tick"`
	Joints    []Joint               `json:"joints"`
	Simulated bool                  `json:"simulated"` // targets_reached and collisions mean something
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
	ActionAgeMS *float64 `json:"action_age_ms"` // age of what the arm does, as it is now; null before the first action
}

// Joint is one joint in the newest tick, in the robot's units.
type Joint struct {
	Name       string  `json:"name"`
	Unit       string  `json:"unit"`
	State      float64 `json:"state"` // measured
	Goal       float64 `json:"goal"`
	Stale      bool    `json:"stale"`               // it did not answer in this tick
	Frozen     bool    `json:"frozen"`              // it has not for so long that it keeps its goal
	Held       bool    `json:"held"`                // it is not driven, or only to relieve it: its motor complains, has restarted or was let go
	Conditions string  `json:"life"`                // what is known of it, follow.Condition
	Why        string  `json:"why"`                 // why it is told what it is
	Complaint  string  `json:"complaint,omitempty"` // of heat or supply, with what its motor measures
}

// Quantiles are of a histogram, in the unit that the key names.
type Quantiles struct {
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// ShortQuantiles leave out the 99.9th percentile of what happens too rarely.
type ShortQuantiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// BusSummary is the servo bus; times are of one read and write of all joints.
type BusSummary struct {
	Cycles  uint64  `json:"cycles"`
	Lost    uint64  `json:"lost"`
	Corrupt uint64  `json:"corrupt"`
	Retries uint64  `json:"retries"`
	P50     float64 `json:"us_p50"`
	P99     float64 `json:"us_p99"`

	// Beyond the contract.
	Doubted uint64 `json:"doubted,omitempty"` // positions that no joint can have reached: they did not count

	// Beyond the contract, of Dynamixels.
	FastReads uint64 `json:"fast_reads,omitempty"`     // cycles in which one merged reply brought all
	Fallbacks uint64 `json:"fast_fallbacks,omitempty"` // times that plain reads took over
	FastTries uint64 `json:"fast_tries,omitempty"`     // times that a fast one was tried again
}

// Frames is one camera.
type Frames struct {
	Captured uint64  `json:"captured"`
	Dropped  uint64  `json:"dropped"`
	Age      float64 `json:"age_ms_p99"`
	Errors   uint64  `json:"errors"`   // failed attempts to get one
	Missed   uint64  `json:"missed"`   // those of the dropped for which the driver had no room, or lost them
	Skipped  uint64  `json:"skipped"`  // those of the dropped where a newer one was there already
	Broken   uint64  `json:"broken"`   // marked bad by the driver, or JPEG that was not whole
	Restarts uint64  `json:"restarts"` // times that the camera was set up again
	Stale    uint64  `json:"stale"`    // observations with a picture older than its max-age

	// Beyond the contract, of the pictures that were decoded here.
	Warned    uint64 `json:"warned"`    // JPEG with stray bytes, used all the same
	Undecoded uint64 `json:"undecoded"` // JPEG of which a part is missing: the picture before it was used

	Repeated uint64 `json:"repeated"` // of a live camera: the picture before again, which was used with its age
}

// Granted says whether the kernel gave the tick its real-time priority.
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
		Cycles: arm.Cycles, Lost: arm.Lost, Corrupt: arm.Corrupt, Retries: arm.Retries,
		P50: cycle.P50, P99: cycle.P99, Doubted: arm.Doubted,
		FastReads: arm.FastReads, Fallbacks: arm.Fallbacks, FastTries: arm.FastTries,
	}
}

func framesOf(cam *capture.Camera) Frames {
	t := cam.Stats()
	return Frames{
		Captured: t.Captured, Dropped: t.Dropped, Age: round3(float64(cam.Age.Quantile(0.99)) / 1e6), Errors: t.Errors,
		Missed: t.Source.Missed, Skipped: t.Source.Skipped, Broken: t.Source.Broken + t.Torn, Restarts: t.Source.Restarts, Stale: t.Stale,
		Warned: t.Warned, Undecoded: t.Undecoded, Repeated: t.Repeated,
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
