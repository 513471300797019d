// Package robot describes arms as data: which motors are on the bus, in which
// unit a policy sees them, which register settings they run with, how fast they
// may move and what happens when a motor reports a fault.
//
// A description is a YAML file. The arms in robots/ are built in; a path to a
// file of the same form does for any other.
package robot

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"edgert/internal/strictyaml"
	"edgert/servo/table"
)

// ErrUnknown means that no arm has the name; ErrInvalid that a description is
// wrong.
var (
	ErrUnknown = errors.New("robot: unknown robot")
	ErrInvalid = errors.New("robot: invalid description")
)

// Bounds of a description.
const (
	maxMotors = 24 // in one arm, shadows included: a sync write must stay below Feetech's 250 bytes
	maxID     = 252
	maxBytes  = 1 << 16
)

// Robot is an arm as data.
type Robot struct {
	Name        string
	From        string   // what ByName was asked for: a built-in arm's name, or a file
	Leader      bool     // moved by hand: it never gets torque, but for triggers and where it is Actuated
	Actuated    bool     // a leader that a take-over brings to where the follower is
	Calibration []string // LeRobot's folders for it below robots/ or teleoperators/, the newest first
	Factory     bool     // calibrated by its maker: nothing to move by hand
	Baud        int
	Motors      []Motor // in the order of states and actions
	Rename      Rename
	Safety      Safety
}

// Motor is one joint: a servo, and perhaps a second one that follows it.
type Motor struct {
	Name        string // LeRobot's name, such as elbow_flex
	ID          uint8
	Shadow      uint8 // id of a second servo that takes this one's goals; 0: none
	Model       *table.Model
	Norm        NormMode
	MaxVelocity float64    // in its unit per second
	MaxStep     float64    // how far from its measured position a goal may be; 0: no such limit
	Limits      [2]float64 // in its unit, inside the calibrated range; both 0: none of its own
	FullTurn    bool       // has no end stops: calibrated to the whole turn without being moved
	MinTravel   float64    // degrees that its calibrated range has at least; 0: the usual
	DriveMode   int        // what a calibration gets
	Homing      int        // from a factory calibration
	Trigger     *float64   // a leader's gripper is held here, so that it can be pulled
	Settings    []Setting  // in the order they are written
	Bounds      Bounds     // for its temperature and supply, and a shadow's
}

// Setting is one register value a motor runs with.
type Setting struct {
	Register table.Register
	Value    int
}

// Rename maps the names on this robot to those a policy was trained with.
type Rename struct {
	Cameras map[string]string
	Joints  map[string]string
}

// Reaction says what a motor's fault leads to.
type Reaction string

const (
	Ignore Reaction = "ignore" // it is counted and shown
	Hold   Reaction = "hold"   // the joint keeps its goal until the fault is gone; one that pushes against something follows what relieves it
	Limp   Reaction = "limp"   // the joint's torque goes off for the rest of the run
	Stop   Reaction = "stop"   // the run ends as --on-exit says
)

// Return says what happens when an arm that was gone is back.
type Return string

const (
	Resume   Return = "resume"   // it is armed where it stands, with the next chunk
	Operator Return = "operator" // it waits for edge-rt ctl resume
)

// Safety is how a robot reacts to trouble.
type Safety struct {
	Overload    Reaction      // overload and over current
	Overheat    Reaction      // over temperature
	Voltage     Reaction      // supply out of range
	Encoder     Reaction      // position sensor
	Stall       Reaction      // works hard and does not move; hold follows only what relieves it
	StallFor    time.Duration // for so long
	AfterReplug Return        // the adapter was away; the motors kept their torque
	AfterReset  Return        // a servo has restarted: its supply was away
	BusWatchdog time.Duration // Dynamixel stops by itself after this long without a packet; 0: not armed
	Slew        float64       // share of the velocity limit allowed at first
	SlewFor     time.Duration // from arming on
}

// defaultSafety is what a description starts from.
var defaultSafety = Safety{
	Overload: Hold, Overheat: Stop, Voltage: Hold, Encoder: Stop, Stall: Hold, StallFor: 500 * time.Millisecond,
	AfterReplug: Resume, AfterReset: Operator,
	BusWatchdog: 100 * time.Millisecond, Slew: 0.3, SlewFor: time.Second,
}

//go:embed robots/*.yaml
var builtIn embed.FS

// ByName returns a built-in arm, or the one that a file describes when name ends
// in .yaml or .yml. It fails with ErrUnknown or ErrInvalid.
func ByName(name string) (Robot, error) {
	if ext := path.Ext(name); ext == ".yaml" || ext == ".yml" {
		data, err := strictyaml.ReadFile(name)
		if err != nil {
			return Robot{}, fmt.Errorf("%w: %w", ErrUnknown, err)
		}
		return from(name, name, data)
	}
	data, err := builtIn.ReadFile("robots/" + name + ".yaml")
	if err != nil {
		return Robot{}, fmt.Errorf("%w: got %q, want one of %s, or a description FILE.yaml", ErrUnknown, name, strings.Join(Names(), ", "))
	}
	return from(name, name+".yaml", data)
}

func from(asked, source string, data []byte) (Robot, error) {
	r, err := Parse(source, data)
	r.From = asked
	return r, err
}

// Flag is what --robot has to say to get this robot.
func (r Robot) Flag() string {
	return cmp.Or(r.From, r.Name)
}

// Names lists the built-in arms, leaders included.
func Names() []string {
	files, _ := fs.Glob(builtIn, "robots/*.yaml")
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = strings.TrimSuffix(path.Base(f), ".yaml")
	}
	slices.Sort(names)
	return names
}

// ActionNames returns the keys of a state or an action in their order, such as
// shoulder_pan.pos, after renaming.
func (r Robot) ActionNames() []string {
	names := make([]string, len(r.Motors))
	for i, m := range r.Motors {
		names[i] = cmp.Or(r.Rename.Joints[m.Name], m.Name) + ".pos"
	}
	return names
}

// Units returns what the numbers of a state or an action are in, in the same order, such as
// degrees.
func (r Robot) Units() []string {
	units := make([]string, len(r.Motors))
	for i, m := range r.Motors {
		units[i] = m.Norm.String()
	}
	return units
}

// Joints lists the joints of a bit set by name, such as "shoulder_pan, gripper".
func (r Robot) Joints(set uint32) string {
	var names []string
	for j, m := range r.Motors {
		if set&(1<<j) != 0 {
			names = append(names, m.Name)
		}
	}
	return strings.Join(names, ", ")
}

// CameraName returns what a policy calls a camera of this robot.
func (r Robot) CameraName(name string) string {
	return cmp.Or(r.Rename.Cameras[name], name)
}

// Protocol is what every motor of the arm speaks.
func (r Robot) Protocol() table.Protocol { return r.Motors[0].Model.Protocol }

// IDs returns the ids of all servos, those of the joints first, shadows behind.
func (r Robot) IDs() []uint8 {
	var ids []uint8
	for _, m := range r.Motors {
		ids = append(ids, m.ID)
	}
	for _, m := range r.Motors {
		if m.Shadow != 0 {
			ids = append(ids, m.Shadow)
		}
	}
	return ids
}

// ServosOf returns the motor with an id, its own or its shadow's, as the servo of that id.
func (r Robot) ServosOf(id uint8) []Motor {
	for _, m := range r.Motors {
		if m.ID == id || m.Shadow != 0 && m.Shadow == id {
			m.ID = id
			return []Motor{m}
		}
	}
	return nil
}

// Role is the folder of LeRobot's calibrations: robots or teleoperators.
func (r Robot) Role() string {
	if r.Leader {
		return "teleoperators"
	}
	return "robots"
}

// Setting returns the value a motor runs with, if it has one for the register.
func (m Motor) Setting(reg table.Register) (int, bool) {
	i := slices.IndexFunc(m.Settings, func(s Setting) bool { return s.Register == reg })
	if i < 0 {
		return 0, false
	}
	return m.Settings[i].Value, true
}
