// Package servo drives a chain of Feetech or Dynamixel servos on one half-duplex serial line.
//
// A Bus sends one instruction frame at a time (package packet) and collects the status frames that answer it.
// Every servo has an ID and a control table of registers (package table). In motion two instructions matter:
// a sync read requests the present position of all servos, and a sync write gives all of them a goal
// position. The other instructions are for bring-up and for the servos' health.
//
// An Arm is a Bus with the description of its robot: the motors (package robot), their ranges
// (LeRobot's calibration file, calibration.go) and the units of a policy (degrees, or 0 to 100 for
// a gripper, units.go). OpenArm finds and checks every motor and writes the settings that LeRobot
// would write. It leaves a follower's torque as it is. From then on the tick thread calls Read and
// Write, which never fail and never allocate: a motor that does not answer keeps its last position
// and is reported as stale.
//
// Bytes go from the port (port_linux.go) through halfduplex.go (time on the wire, echo) to bus.go
// (one exchange with the servos of a readgroup.go) or transaction.go (one instruction to one
// servo). An arm is opened by arm.go, configure.go and marker.go, measured by measure.go, switched
// on by arming.go (by rescue.go from outside its range) and off by torque.go. The tick is in
// cycle.go: fast.go decides how positions are read; then health.go reads some registers of one
// motor, verify.go compares them with the expected values, and faults.go reacts to faults.
//
// A register value before conversion is called raw: an encoder step for positions, 4096 to a turn.
package servo

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/packet"
	"github.com/edge-rt/edge-rt/servo/table"
)

// The reasons why OpenArm fails. An error that wraps one of them names the value found, the value expected and the
// remedy.
var (
	ErrPortAbsent   = errors.New("servo: no such port")
	ErrPortBusy     = errors.New("servo: port is in use")
	ErrPortDenied   = errors.New("servo: no permission for port")
	ErrPort         = errors.New("servo: it is no serial port")
	ErrMotorMissing = errors.New("servo: motor missing")
	ErrWrongModel   = errors.New("servo: wrong motor model")
	ErrCalibration  = errors.New("servo: calibration does not fit")
	ErrTorqueOn     = errors.New("servo: motor is under torque")
	ErrTurn         = errors.New("servo: the turn of a motor is not known")
	ErrSetting      = errors.New("servo: motor has a setting with which it cannot be driven")
	ErrLatched      = errors.New("servo: motor has latched a hardware error")
	ErrCanceled     = errors.New("servo: halted by the caller")
)

// The reasons why one transaction on an open bus gets no answer.
var (
	ErrNoReply  = errors.New("servo: no reply")
	ErrGarbled  = errors.New("servo: garbled reply")
	ErrPortLost = errors.New("servo: port lost")
)

// ErrTorque means that a motor did not confirm that its torque was switched on or off.
var ErrTorque = errors.New("servo: torque not confirmed")

// ID is the address of one servo on the line, 0 to 252, or Broadcast.
type ID = uint8

const (
	MaxID     ID = 252
	Broadcast ID = packet.Broadcast
)

// Fault is a set of a servo's error bits, 0 when healthy. A fault is an alert, not a failure: the
// data in the same reply are valid.
//
// The bits are those of Feetech's status byte and register 65. A reply of a Dynamixel of protocol
// 2.0 has only FaultHardware; the register Hardware_Error_Status has the other bits.
type Fault uint8

const (
	FaultVoltage     Fault = 1 << 0
	FaultEncoder     Fault = 1 << 1
	FaultTemperature Fault = 1 << 2
	FaultCurrent     Fault = 1 << 3
	FaultShock       Fault = 1 << 4 // Dynamixel: electrical shock, or too little power to drive the motor
	FaultOverload    Fault = 1 << 5
	FaultHardware    Fault = 1 << 7 // latched until the servo is rebooted; torque is usually off
)

func (f Fault) Error() string {
	var texts []string
	for bit, text := range [...]string{
		"supply voltage out of range", "encoder fault", "over temperature", "over current", "electrical shock",
		"overload",
		7: "hardware error latched",
	} {
		if f>>bit&1 != 0 && text != "" {
			texts = append(texts, text)
		}
	}
	return cmp.Or(strings.Join(texts, ", "), "no fault")
}

// Is makes errors.Is(f, target) true when f has any bit of the fault target.
func (f Fault) Is(target error) bool {
	g, ok := target.(Fault)
	return ok && f&g != 0
}

//rt:noalloc
func (b *Bus) faultOf(err byte) Fault {
	switch b.protocol {
	case table.Dynamixel2:
		return Fault(err) & FaultHardware
	case table.Dynamixel1:
		return Fault(err) & (FaultVoltage | FaultTemperature | FaultOverload) // the other bits are those of refusals
	}
	return Fault(err)
}

// StatusFault converts a value of the register Status.
//
//rt:noalloc
func StatusFault(p table.Protocol, status int) Fault {
	f := Fault(status)
	if p == table.Dynamixel2 && f&FaultEncoder != 0 {
		f &^= FaultEncoder // protocol 2.0 does not use bit 1
	}
	if p == table.Dynamixel2 && f&FaultCurrent != 0 {
		f = f&^FaultCurrent | FaultEncoder // in the Hardware_Error_Status of a Dynamixel, bit 3 is the encoder's
	}
	return f
}

// A port in use may become free soon, when its program was just killed or has opened it only to
// switch the torque off.
const (
	freeWait = time.Second
	freePoll = 5 * time.Millisecond
)

// OpenPortWait is OpenPort, but waits up to a second for a port that is in use. The wait ends early
// when canceled returns true; canceled may be nil.
func OpenPortWait(path string, baud int, clock rt.Clock, canceled func() bool) (port Port, err error) {
	return openWait(path, baud, clock, canceled, func(string) error { return nil })
}

// OpenPortAlone is OpenPortWait, but fails with ErrPortBusy while any other process has the port open: two programs
// would drive one arm, and take each other's replies. A caller that only switches torque off uses OpenPortWait.
func OpenPortAlone(path string, baud int, clock rt.Clock, canceled func() bool) (Port, error) {
	return openWait(path, baud, clock, canceled, unshared)
}

func openWait(path string, baud int, clock rt.Clock, canceled func() bool, check func(path string) error) (port Port,
	err error) {
	for end := clock.Now().Add(freeWait); ; clock.SleepUntil(clock.Now().Add(freePoll)) {
		if err = check(path); err == nil {
			port, err = OpenPort(path, baud)
		}
		if !errors.Is(err, ErrPortBusy) || clock.Now() >= end || canceled != nil && canceled() {
			return port, err
		}
	}
}
