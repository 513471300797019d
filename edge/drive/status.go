package drive

import (
	"github.com/edge-rt/edge-rt/edge/episode"
	"github.com/edge-rt/edge-rt/edge/page"
	"github.com/edge-rt/edge-rt/record"
)

// Status is the progress of a run: the keys that its page and its summary share.
type Status struct {
	ID       string  `json:"id"`             // name of the robot
	Schedule string  `json:"schedule"`       // --schedule; without a policy: teleop or replay
	Task     string  `json:"task,omitempty"` // the arm's current task
	FPS      float64 `json:"fps"`            // Hz, ticks per second
	Ticks    uint64  `json:"ticks"`          // ticks that ran
	// ticks that ended after the next was due, because of their own computing and their wait for
	// the bus
	OverrunsOwn uint64 `json:"overruns_own"`
	// other ticks that ended after the next was due: the machine did not run them in time
	OverrunsHost uint64    `json:"overruns_host"`
	LatenessUS   Quantiles `json:"lateness_us"` // us, from a tick's deadline to its start
	RT           Granted   `json:"rt"`
	// [state] s, CONNECTING, STREAMING, DEGRADED, STALLED, RECONNECTING or DEAD
	InState map[string]float64 `json:"seconds_in_state"`
	Targets int                `json:"targets_reached"` // reached targets of the simulated world
	// reached targets of the simulated world whose way touched the post
	Collisions int             `json:"collisions"`
	Episodes   *episode.Status `json:"episodes,omitempty"` // absent without past or planned episodes
}

// Live is the part of a page's JSON beside its Status: the positions of the joints, and the devices.
type Live struct {
	Robot string `json:"robot"` // kind of the robot
	// CONNECTING, STREAMING, DEGRADED, STALLED, RECONNECTING or DEAD
	State  string                `json:"state"`
	Paused bool                  `json:"paused"`          // an operator has paused the arm
	Waits  string                `json:"waits,omitempty"` // the operator's next step without which nothing moves
	Works  []string              `json:"works"`           // commands that have an effect now
	Bus    BusSummary            `json:"bus"`
	Frames map[string]LiveFrames `json:"frames"` // [camera]
	Tick   LiveTick              `json:"tick"`
	Joints []Joint               `json:"joints"`
	Parts  []Part                `json:"parts,omitempty"` // the parts, if the robot has several; bus is their sum
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
	// ms, age of the observation that led to the arm's motion; null before the first action
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
	// not driven, or only to relieve its motor, because the motor complains, has restarted or is limp
	Held       bool   `json:"held"`
	Conditions string `json:"life"`                // state of the joint, as docs/control.md explains
	Why        string `json:"why"`                 // reason for the goals that the joint gets
	Complaint  string `json:"complaint,omitempty"` // complaint about heat or supply, with the motor's measurement
}

// Totals is the part of a run's summary beside its Status, for every source of the arm's motion.
type Totals struct {
	// [us] ticks by the upper bound of their lateness
	LatenessHist map[string]uint64 `json:"lateness_histogram_us,omitempty"`
	Bus          BusSummary        `json:"bus"`
	Parts        []PartSummary     `json:"parts,omitempty"` // the parts, if the robot has several; bus is their sum
	Frames       map[string]Frames `json:"frames"`          // [camera]
	Exit         Ending            `json:"exit"`
	Record       *record.Stats     `json:"record,omitempty"` // absent with --record off
	// ticks on which no joint was driven, because the motors complained or were limp
	HeldAll uint64 `json:"ticks_all_held"`
	// [joint] the last complaint about heat or supply, such as supply: 12.4 V
	Complaints map[string]string `json:"complaints,omitempty"`
	// periods without a tick, because an earlier tick took too long
	Skipped    uint64 `json:"ticks_skipped"`
	RangeClips uint64 `json:"clipped_range"`     // goals clipped to a joint's range
	StepClips  uint64 `json:"clipped_step"`      // goals clipped to a joint's travel in one tick
	Timeouts   int    `json:"targets_timed_out"` // targets of the simulated world that were given up
	// ms, sum of the time by which the ticks in overruns_host exceeded their periods
	ExcusedMS float64 `json:"excused_ms"`
	// ms, taken from this virtual machine by its host, sum of all CPUs
	StealMS  float64 `json:"host_steal_ms"`
	CPUShare float64 `json:"rt_cpu_share"` // share, of one core, used by the tick's thread
	RSSMB    float64 `json:"rss_mb"`       // MiB, resident memory at the end
	// wheels of a base that did not follow their goals; absent for an arm without a base
	Base    *BaseSummary `json:"base,omitempty"`
	Page    *page.Stats  `json:"page,omitempty"` // load from viewers of the page; absent without --http
	Seconds float64      `json:"seconds"`        // s, length of the run
}

// BaseSummary counts the troubles of a base's wheels.
type BaseSummary struct {
	Stalls uint64 `json:"stalls"` // wheels that did not turn
	Slips  uint64 `json:"slips"`  // wheels that turned at another velocity than their goal
}

// Ending is the end of the process.
type Ending struct {
	Code   int    `json:"code"`   // exit code
	Reason string `json:"reason"` // why the run ended
}

// Quantiles are the quantiles of a histogram, in the unit of the key.
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
	P99     float64 `json:"us_p99"`  // us, 99th percentile of a reading's time

	// ignored positions: no joint can have reached them since the previous reading
	Doubted uint64 `json:"doubted,omitempty"`

	FastReads uint64 `json:"fast_reads,omitempty"`     // readings with one merged reply of all motors (Dynamixel)
	Fallbacks uint64 `json:"fast_fallbacks,omitempty"` // changes from fast to plain reads
	FastTries uint64 `json:"fast_tries,omitempty"`     // attempts to return to fast reads
}

// Part is one part of a robot of several parts.
type Part struct {
	Name string     `json:"name"` // name of the part, the beginning of its joints' names
	Port string     `json:"port"` // serial port of the part
	Bus  BusSummary `json:"bus"`
}

// PartSummary is a part at the end of a run.
type PartSummary struct {
	Part
	RangeClips uint64 `json:"clipped_range"`   // goals clipped to a joint's range
	StepClips  uint64 `json:"clipped_step"`    // goals clipped to a joint's travel in one tick
	Targets    int    `json:"targets_reached"` // reached targets of its simulated world
	// reached targets of its simulated world whose way touched the post
	Collisions int `json:"collisions"`
}

// Frames holds the counters of one camera.
type Frames struct {
	Captured uint64  `json:"captured"`   // complete pictures, without repetitions
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
	// of the pictures that are decoded here: JPEG with a missing or broken part; the previous picture was used
	Undecoded uint64 `json:"undecoded"`

	Repeated uint64 `json:"repeated"` // live camera: repetitions of earlier pictures, which were not used
}

// Granted reports whether the kernel gave the tick its real-time priority.
type Granted struct {
	Granted bool   `json:"granted"` // the tick had real-time priority
	Why     string `json:"why"`     // the reason if granted is false, and the limit to raise
}
