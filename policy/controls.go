package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Mode is the way in which the graph uses a prefix.
type Mode int64

const (
	// ModeFree ignores the prefix.
	ModeFree Mode = 0

	// ModeGuided pulls rows below PrefixEnd towards the prefix: rows below Delay with full strength, later rows with a
	// strength that declines to 0 as Schedule describes. It works with any flow policy.
	ModeGuided Mode = 1

	// ModeTrained returns the prefix in rows below Delay and lets the policy, which
	// was trained for it, continue from there.
	ModeTrained Mode = 2

	// ModeTrainedGuided does the same as ModeTrained, and also pulls the rows from Delay to PrefixEnd as ModeGuided
	// does.
	ModeTrainedGuided Mode = 3
)

var modeNames = [...]string{"free", "guided", "trained", "trained_guided"}

// String returns the mode's name in metrics and logs.
func (m Mode) String() string { return modeNames[m] }

// ParseMode reads a mode's name.
func ParseMode(name string) (Mode, error) {
	if i := slices.Index(modeNames[:], name); i >= 0 {
		return Mode(i), nil
	}
	return ModeFree, fmt.Errorf("policy: conditioning is %q, want one of %s", name, strings.Join(modeNames[:], ", "))
}

// Schedule is the decline of guidance between the delay and the prefix's end.
type Schedule int64

// The schedules, by the graph's numbers.
const (
	scheduleLinear Schedule = iota // declines from 1 to 0
	scheduleZeros                  // 0 from the delay on
	scheduleOnes                   // 1 up to the end
	scheduleExp                    // lower than linear
)

// ScheduleNames lists the schedules' names by number, the default first. bundle.json lists the
// schedules that its graph accepts.
var ScheduleNames = []string{"linear", "zeros", "ones", "exp"}

func (s Schedule) String() string { return ScheduleNames[s] }

// Controls are the Real-Time Chunking inputs of one row of a batch. Counts are in control steps. Row i of the prefix
// and row i of the chunk are for the same step.
type Controls struct {
	PrefixLen int // valid rows of the prefix, 0 to H
	Delay     int // rows of the prefix that the robot will have executed when the chunk arrives
	PrefixEnd int // first row that is not guided
	Mode      Mode
	Beta      float32  // largest guidance weight; SetControls clamps it to NumSteps
	Schedule  Schedule // ignored by graphs that accept only the linear schedule
	SigmaD    float32  // standard deviation of the actions' prior: below 1 guidance is stronger; 0 means 1
}

// Conditioning selects how a server conditions its chunks on prefixes. The zero value means conditionAuto.
type Conditioning struct {
	Mode     string // one of ConditioningModes; empty: auto
	Schedule Schedule
	SigmaD   float32 // standard deviation of the actions' prior; 0 means 1
	Beta     float32 // largest guidance weight; 0 means NumSteps, the largest possible weight
}

// The modes of a Conditioning.
const (
	// The trained prefix if the policy was trained for the delay; otherwise guidance if the graph can guide; otherwise
	// no conditioning.
	conditionAuto          = "auto"
	conditionOff           = "off"            // no conditioning
	conditionGuided        = "guided"         // guidance only
	conditionTrained       = "trained"        // the trained prefix only; none if the delay exceeds the training's
	conditionTrainedGuided = "trained_guided" // the trained prefix with a guided tail; otherwise guidance
)

// ConditioningModes lists the modes, the default first.
var ConditioningModes = []string{conditionAuto, conditionOff, conditionGuided, conditionTrained, conditionTrainedGuided}

// CheckConditioning refuses a conditioning that the policy does not support.
func (m *Meta) CheckConditioning(c Conditioning) error {
	switch {
	case c.Mode != "" && !slices.Contains(ConditioningModes, c.Mode):
		return fmt.Errorf("policy: no conditioning %q, want one of %s", c.Mode, strings.Join(ConditioningModes, ", "))
	case (c.Mode == conditionGuided || c.Mode == conditionTrainedGuided) && !m.Guided(),
		(c.Mode == conditionTrained || c.Mode == conditionTrainedGuided) && !m.Trained():
		return fmt.Errorf("policy: conditioning %s, but the bundle's rtc is %q", c.Mode, m.RTC)
	case c.Schedule < 0 || int(c.Schedule) >= len(ScheduleNames):
		return fmt.Errorf("policy: no schedule number %d, want 0 to %d", c.Schedule, len(ScheduleNames)-1)
	case c.Schedule != scheduleLinear && !m.scheduled():
		return fmt.Errorf("policy: schedule %s, but the bundle's graph takes %q", c.Schedule, m.Schedule)
	case !(c.SigmaD >= 0 && c.SigmaD <= 100) || c.SigmaD != 0 && c.SigmaD != 1 && !m.scheduled():
		return fmt.Errorf(
			"policy: sigma_d is %v, want above 0 and at most 100, and 1 for a graph that does not take it", c.SigmaD)
	case !(c.Beta >= 0 && c.Beta <= float32(m.NumSteps)):
		return fmt.Errorf("policy: beta is %v, want 0 to the bundle's %d steps: more overshoots", c.Beta, m.NumSteps)
	}
	return nil
}

// Condition returns the controls for a request whose prefix has the given number of rows. The parameter delay is the
// number of steps until the answer arrives, limited to the number of rows. The parameter end is the row at which the
// conditioning ends, limited to the chunk's length; 0 selects the bundle's default. In the automatic mode a request
// with delay 0 is guided if the policy supports it, because a trained prefix of zero rows would have no effect.
//
//rt:noalloc
func (m *Meta) Condition(with *Conditioning, rows, delay, end int) Controls {
	rows = min(max(rows, 0), m.ChunkSize)
	if end <= 0 {
		end = m.PrefixEnd
	}
	c := Controls{
		PrefixLen: rows,
		Delay:     min(max(delay, 0), rows),
		PrefixEnd: min(end, m.ChunkSize),
		Beta:      with.Beta,
		Schedule:  with.Schedule,
		SigmaD:    with.SigmaD,
	}
	if c.Beta == 0 {
		c.Beta = float32(m.NumSteps)
	}
	c.Mode = m.mode(with.Mode, rows, c.Delay)
	return c
}

// mode returns the graph's mode for the server's conditioning mode and a prefix with these rows and this delay.
//
//rt:noalloc
func (m *Meta) mode(server string, rows, delay int) Mode {
	trained := m.Trained() && delay <= m.RTCMaxDelay
	switch {
	case rows == 0 || server == conditionOff:
		return ModeFree
	case server == conditionTrained && trained:
		return ModeTrained
	case server == conditionTrained:
		return ModeFree
	case server == conditionTrainedGuided && trained && delay > 0:
		return ModeTrainedGuided
	case server != conditionGuided && server != conditionTrainedGuided && trained && (delay > 0 || !m.Guided()):
		return ModeTrained
	case m.Guided():
		return ModeGuided
	}
	return ModeFree
}
