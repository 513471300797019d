// Package robot describes arms as data: the motors on the bus, the unit in which a policy sees each
// one, the register settings, the velocity limits and the reactions to a motor's faults.
//
// A description is a YAML file. The arms in robots/ are built in; any other arm is a path to a file
// of the same form. The file of a robot of several arms names each arm's description under parts.
package robot

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/internal/userfile"
	"github.com/edge-rt/edge-rt/servo/table"
)

// ErrUnknown means that no built-in arm has the name. ErrInvalid means that a description has an error.
var (
	ErrUnknown = errors.New("robot: unknown robot")
	ErrInvalid = errors.New("robot: invalid description")
)

// The limits of a description.
const (
	maxMotors = 24 // servos of one arm, shadows included: a sync write has at most Feetech's 250 bytes
	maxID     = 252
)

// Robot is an arm as data, or several arms with one state and one action. The fields that belong to
// a bus (Calibration, Factory, Baud, and the ids of Motors) are valid only for one arm: code that
// uses a bus takes them from Parts.
type Robot struct {
	Name string
	Type string // LeRobot's robot_type in data sets; empty: Name
	From string // the argument of ByName: a built-in arm's name, or a file
	// a leader arm, moved by a person: only its triggers get torque, or all its joints if it is Actuated
	Leader      bool
	Actuated    bool     // a leader that a take-over moves to the follower's position
	Calibration []string // LeRobot's folders of its calibrations in robots/ or teleoperators/, the newest first
	Factory     bool     // calibrated by its maker: a calibration moves no joint
	Baud        int
	Motors      []Motor // motors in the order of states and actions; their names have the parts' prefixes
	Base        *Base   // base whose wheels are motors of the arm; nil: no motor is a wheel
	LeaderName  string  // default of --leader-robot; empty: the name that DefaultLeader returns
	Rename      Rename
	Safety      Safety
	parts       []Part // arms of a robot of several parts; nil: the robot is one arm
}

// Motor is one joint: a servo, and perhaps a second one with the same goals.
type Motor struct {
	Name        string // LeRobot's name, such as elbow_flex
	ID          uint8
	Shadow      uint8 // id of a second servo that gets this one's goals; 0: no second servo
	Model       *table.Model
	Norm        NormMode
	MaxVelocity float64 // largest velocity, in the joint's unit per second
	MaxStep     float64 // largest distance of a goal from the measured position; 0: no limit
	// lowest and highest position inside the calibrated range, in the joint's unit; both 0: no limits
	Limits    [2]float64
	FullTurn  bool    // the joint has no end stops: its calibration is the whole turn, without a motion
	MinTravel float64 // smallest plausible range of a calibration, in degrees; 0: the default of LeastTravel
	DriveMode int     // drive_mode of a new calibration
	Homing    int     // homing_offset of a factory calibration
	// rest position of a leader's gripper, at which little torque holds it for a person to pull;
	// nil: no trigger
	Trigger  *float64
	Settings []Setting // settings in the order of the writes
	Bounds   Bounds    // bounds on the temperature and the supply of the servo and of its shadow
}

// Setting is one register value that a motor runs with.
type Setting struct {
	Register table.Register
	Value    int
}

// Rename maps this robot's names of cameras and joints to the names with which a policy was trained.
type Rename struct {
	Cameras map[string]string
	Joints  map[string]string
}

// Reaction is the consequence of a motor's fault.
type Reaction string

const (
	Ignore Reaction = "ignore" // the fault is only counted and shown
	// the joint keeps its goal until the fault is gone; a joint that pushes against an obstacle
	// follows goals that reduce the push
	Hold Reaction = "hold"
	Limp Reaction = "limp" // the joint's torque goes off for the rest of the run
	Stop Reaction = "stop" // the run ends as set by --on-exit
)

// Return is the behaviour of an arm after its adapter was unplugged or its servos have restarted.
type Return string

const (
	Resume   Return = "resume"   // the arm is armed at its position when the next chunk comes
	Operator Return = "operator" // the arm waits for edge-rt ctl resume
)

// Coupling is the consequence of one part's fault for the other parts.
type Coupling string

const (
	Together Coupling = "together" // the other parts hold, too
	Apart    Coupling = "apart"    // the other parts go on
)

// Safety holds a robot's reactions to faults and interruptions.
type Safety struct {
	Parts       Coupling      // effect of one part's fault on the other parts
	Overload    Reaction      // overload and over current
	Overheat    Reaction      // over temperature
	Voltage     Reaction      // supply out of range
	Encoder     Reaction      // position sensor
	Stall       Reaction      // high load without motion; Hold lets the joint follow only goals that reduce the load
	StallFor    time.Duration // duration of a stall before the reaction
	AfterReplug Return        // behaviour after the adapter was unplugged, while the motors kept their torque
	AfterReset  Return        // behaviour after a servo has restarted because its supply was interrupted
	BusWatchdog time.Duration // a Dynamixel stops by itself after this time without a packet; 0: never
	Slew        float64       // share of the velocity limit right after arming
	SlewFor     time.Duration // time until the full velocity limit
}

// defaultSafety has the values for keys that a description leaves out.
var defaultSafety = Safety{
	Parts:       Together,
	Overload:    Hold,
	Overheat:    Stop,
	Voltage:     Hold,
	Encoder:     Stop,
	Stall:       Hold,
	StallFor:    500 * time.Millisecond,
	AfterReplug: Resume,
	AfterReset:  Operator,
	BusWatchdog: 100 * time.Millisecond,
	Slew:        0.3,
	SlewFor:     time.Second,
}

//go:embed robots/*.yaml
var builtIn embed.FS

// ByName returns a built-in robot, or the robot that a file describes when name ends in .yaml or
// .yml. It fails with ErrUnknown or ErrInvalid.
func ByName(name string) (Robot, error) { return byName(name, false) }

// byName is ByName. When part is true the robot must be one arm.
func byName(name string, part bool) (Robot, error) {
	if isFile(name) {
		data, err := userfile.ReadYAML(name)
		if err != nil {
			return Robot{}, fmt.Errorf("%w: %w", ErrUnknown, err)
		}
		return from(name, name, data, part)
	}
	if file, ok := strings.CutSuffix(name, leaderSuffix); ok && isFile(file) && !part {
		return leadersOf(file)
	}
	data, err := builtIn.ReadFile("robots/" + name + ".yaml")
	if err != nil {
		return Robot{}, fmt.Errorf("%w: got %q, want one of %s, or a description FILE.yaml", ErrUnknown, name,
			strings.Join(Names(), ", "))
	}
	return from(name, name+".yaml", data, part)
}

// leaderSuffix follows the robot's name in its leader's name, unless the robot's description names
// another leader.
const leaderSuffix = "_leader"

// DefaultLeader returns the name of the robot's leader, an argument of ByName. For FILE.yaml with
// parts it is FILE.yaml_leader, which consists of the parts' leaders.
func (r Robot) DefaultLeader() string { return cmp.Or(r.LeaderName, r.Flag()+leaderSuffix) }

func isFile(name string) bool { return path.Ext(name) == ".yaml" || path.Ext(name) == ".yml" }

func from(asked, source string, data []byte, part bool) (Robot, error) {
	r, err := parse(source, data, part)
	r.From = asked
	return r, err
}

// Flag returns the value of --robot for this robot.
func (r Robot) Flag() string {
	return cmp.Or(r.From, r.Name)
}

// DataType returns the robot_type of the robot's data sets.
func (r Robot) DataType() string { return cmp.Or(r.Type, r.Name) }

// Names returns the names of the built-in robots, leaders included, sorted.
func Names() []string {
	files, _ := fs.Glob(builtIn, "robots/*.yaml")
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = strings.TrimSuffix(path.Base(f), ".yaml")
	}
	slices.Sort(names)
	return names
}

// ActionNames returns the keys of a state or an action in their order, such as shoulder_pan.pos,
// after renaming. The keys of a base are x.vel, y.vel and theta.vel.
func (r Robot) ActionNames() []string {
	names := make([]string, len(r.Motors))
	for i, m := range r.Motors {
		names[i] = cmp.Or(r.Rename.Joints[m.Name], m.Name) + ".pos"
		if axis, ok := r.axis(i); ok {
			names[i] = axisNames[axis]
		}
	}
	return names
}

// Units returns the units of a state's or an action's numbers, in their order, such as degrees.
func (r Robot) Units() []string {
	units := make([]string, len(r.Motors))
	for i, m := range r.Motors {
		units[i] = m.Norm.String()
		if axis, ok := r.axis(i); ok {
			units[i] = axisUnits[axis]
		}
	}
	return units
}

// Joints is a set of an arm's joints, one bit each.
type Joints uint32

// Has reports whether a joint is in the set.
func (s Joints) Has(joint int) bool { return s&(1<<joint) != 0 }

// Len returns the number of joints.
func (s Joints) Len() int { return bits.OnesCount32(uint32(s)) }

// First returns the joint with the lowest index.
func (s Joints) First() int { return bits.TrailingZeros32(uint32(s)) }

// JointNames returns the names of the motors, except those of a base's wheels, which are the last motors.
func (r Robot) JointNames() (names []string) {
	for _, m := range r.Motors[:len(r.Motors)-r.Wheels().Len()] {
		names = append(names, m.Name)
	}
	return names
}

// Joints returns the names of the joints of a bit set, such as "shoulder_pan, gripper".
func (r Robot) Joints(set Joints) string {
	var names []string
	for j, m := range r.Motors {
		if set.Has(j) {
			names = append(names, m.Name)
		}
	}
	return strings.Join(names, ", ")
}

// CameraName returns a policy's name for a camera of this robot.
func (r Robot) CameraName(name string) string {
	return cmp.Or(r.Rename.Cameras[name], name)
}

// Protocol returns the protocol of every motor of the arm.
func (r Robot) Protocol() table.Protocol { return r.Motors[0].Model.Protocol }

// IDs returns the ids of all servos: first the joints' first servos, then their shadows.
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

// ServosOf returns the motor whose servo or shadow has that id, with that id as its ID; nil when
// there is none.
func (r Robot) ServosOf(id uint8) []Motor {
	for _, m := range r.Motors {
		if m.ID == id || m.Shadow != 0 && m.Shadow == id {
			m.ID = id
			return []Motor{m}
		}
	}
	return nil
}

// Role returns the folder of LeRobot that contains the robot's calibrations: robots, or teleoperators for a leader.
func (r Robot) Role() string {
	if r.Leader {
		return "teleoperators"
	}
	return "robots"
}

// Setting returns the value of a register that the motor runs with; ok is false without such a
// setting.
func (m Motor) Setting(reg table.Register) (int, bool) {
	i := slices.IndexFunc(m.Settings, func(s Setting) bool { return s.Register == reg })
	if i < 0 {
		return 0, false
	}
	return m.Settings[i].Value, true
}

// Degrees returns the angle of a number of counts.
func (m Motor) Degrees(counts int) float64 {
	return float64(counts) * m.Model.Span / float64(m.Model.MaxRaw())
}

// SeamMargin is the least distance in counts between a range and its encoder's seam, for gear play and for a stop that
// yields.
const SeamMargin = 64

// MostTravel returns the largest plausible range of a joint that has end stops, in counts.
func (m Motor) MostTravel() int {
	if m.Model.Offset == 0 {
		return m.Model.MaxRaw() // a potentiometer has no seam
	}
	return m.Model.MaxRaw() - 2*SeamMargin
}

// LeastTravel returns the least plausible range of a joint in degrees: a joint with a smaller one was not moved from
// end to end. A gripper or a trigger moves less than other joints.
func (m Motor) LeastTravel() float64 {
	switch {
	case m.MinTravel > 0:
		return m.MinTravel
	case m.Norm == Range0100:
		return 15
	}
	return 45
}
