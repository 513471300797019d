// Package servo drives a chain of Feetech or Dynamixel servos on one half-duplex
// serial line.
//
// A Bus sends one instruction frame at a time (package packet) and collects the
// status frames that answer it. Every servo has an ID and a control table of
// registers (package table). Two instructions matter in motion: one sync read
// asks all servos for their present position, one sync write gives all of them a
// goal position; everything else is bring-up.
//
// An Arm is a Bus with its robot: which motors there are (package robot),
// where their ranges lie (LeRobot's calibration file, calibration.go) and the
// unit of a policy (degrees, or 0 to 100 for a gripper, units.go). OpenArm
// finds and checks every motor and writes the settings LeRobot would write,
// without touching torque. From then on the tick thread calls Read and Write,
// which never fail and never allocate: a motor that stays silent keeps its last
// position and is reported as stale.
//
// Bytes go from the port (port_linux.go) through halfduplex.go (time on the wire,
// echo) to bus.go (one exchange with the servos of a readgroup.go) or transaction.go
// (one instruction to one servo). An arm is opened by arm.go, configure.go and
// marker.go, measured by measure.go, switched on by arming.go (rescue.go from outside
// its range) and off by torque.go. Each tick is cycle.go: fast.go decides how
// positions are read, then health.go polls one motor, verify.go compares what it
// holds, faults.go reacts.
//
// A register value before conversion is called raw: an encoder step for
// positions, 4096 to a turn.
package servo

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"edgert/rt"
	"edgert/servo/packet"
	"edgert/servo/table"
)

// Reasons why an arm does not open. Errors returned by this package wrap one of
// these and say what was got, what was wanted and what to do.
var (
	ErrPortAbsent   = errors.New("servo: no such port")
	ErrPortBusy     = errors.New("servo: port is in use")
	ErrPortDenied   = errors.New("servo: no permission for port")
	ErrMotorMissing = errors.New("servo: motor missing")
	ErrWrongModel   = errors.New("servo: wrong motor model")
	ErrCalibration  = errors.New("servo: calibration does not fit")
	ErrTorqueOn     = errors.New("servo: motor is under torque")
	ErrTurn         = errors.New("servo: which turn a motor is in is not known")
	ErrSetting      = errors.New("servo: motor has a setting with which it cannot be driven")
	ErrLatched      = errors.New("servo: motor has latched a hardware error")
	ErrCanceled     = errors.New("servo: halted by the caller")
)

// Reasons why one transaction on an open bus brings no answer.
var (
	ErrNoReply  = errors.New("servo: no reply")
	ErrGarbled  = errors.New("servo: garbled reply")
	ErrPortLost = errors.New("servo: port lost")
)

// ErrTorque means that a motor did not confirm that its torque is on, or off.
var ErrTorque = errors.New("servo: torque not confirmed")

// ID names one servo on the line: 0 to 252, or Broadcast.
type ID = uint8

const (
	MaxID     ID = 252
	Broadcast ID = packet.Broadcast
)

// Fault is a set of a servo's error bits, zero when healthy. It is an alert, not a
// failure: what comes with it is valid.
//
// The bits are those of Feetech's status byte and register 65. A Dynamixel of protocol
// 2.0 only says FaultHardware with a reply; its Hardware_Error_Status has the rest.
type Fault uint8

const (
	FaultVoltage     Fault = 1 << 0
	FaultEncoder     Fault = 1 << 1
	FaultTemperature Fault = 1 << 2
	FaultCurrent     Fault = 1 << 3
	FaultShock       Fault = 1 << 4 // Dynamixel: electrical shock, or too little power to drive the motor
	FaultOverload    Fault = 1 << 5
	FaultHardware    Fault = 1 << 7 // latched: torque is off until the servo is rebooted
)

func (f Fault) Error() string {
	var texts []string
	for bit, text := range [...]string{
		"supply voltage out of range", "encoder fault", "over temperature", "over current", "electrical shock", "overload",
		7: "hardware error latched",
	} {
		if f>>bit&1 != 0 && text != "" {
			texts = append(texts, text)
		}
	}
	return cmp.Or(strings.Join(texts, ", "), "no fault")
}

// Is reports whether f has any bit of the target fault, for errors.Is.
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
		return Fault(err) & (FaultVoltage | FaultTemperature | FaultOverload) // the other bits are refusals
	}
	return Fault(err)
}

// StatusFault translates what the register Status reads.
//
//rt:noalloc
func StatusFault(p table.Protocol, status int) Fault {
	f := Fault(status)
	if p == table.Dynamixel2 && f&FaultEncoder != 0 {
		f &^= FaultEncoder // bit 1 is not used there
	}
	if p == table.Dynamixel2 && f&FaultCurrent != 0 {
		f = f&^FaultCurrent | FaultEncoder // bit 3 is the encoder
	}
	return f
}

// A port that is in use may be given back soon: by a program that was just killed,
// or by another that makes its arm limp.
const (
	freeWait = time.Second
	freePoll = 5 * time.Millisecond
)

// OpenPortWait is OpenPort, waiting up to a second for a port that is in use, or until
// canceled returns true; nil: never.
func OpenPortWait(path string, baud int, clock rt.Clock, canceled func() bool) (port Port, err error) {
	for end := clock.Now().Add(freeWait); ; clock.SleepUntil(clock.Now().Add(freePoll)) {
		port, err = OpenPort(path, baud)
		if !errors.Is(err, ErrPortBusy) || clock.Now() >= end || canceled != nil && canceled() {
			return port, err
		}
	}
}
