// Package servo drives a chain of Feetech STS servos on one half-duplex serial
// line, as LeRobot's SO-100 and SO-101 arms have it.
//
// A Bus speaks the wire format: it sends one instruction frame at a time and
// collects the status frames that answer it. Every servo has an ID and a
// control table of registers (table.go). Two instructions matter in motion:
// one sync read asks all servos for their present position, one sync write
// gives all of them a goal position; everything else is bring-up.
//
// An Arm is a Bus that knows its robot: which motors there are (robot.go),
// where their ranges lie (LeRobot's calibration file, calibration.go) and what
// unit a policy speaks (degrees, or 0 to 100 for a gripper, units.go). OpenArm
// finds and checks every motor and writes the settings LeRobot would write,
// without touching torque. From then on the tick thread calls Read and Write,
// which never fail and never allocate: a motor that stays silent keeps its last
// position and is reported as stale.
//
// A register value before conversion is called raw: an encoder step for
// positions, 4096 to a turn.
package servo

import "errors"

// Reasons why an arm does not open. Errors returned by this package wrap one of
// these and say what was got, what was wanted and what to do.
var (
	ErrPortAbsent   = errors.New("servo: no such port")
	ErrPortBusy     = errors.New("servo: port is in use")
	ErrPortDenied   = errors.New("servo: no permission for port")
	ErrMotorMissing = errors.New("servo: motor missing")
	ErrWrongModel   = errors.New("servo: wrong motor model")
	ErrCalibration  = errors.New("servo: calibration does not fit")
	ErrUnknownRobot = errors.New("servo: unknown robot")
	ErrHeld         = errors.New("servo: motor is under torque")
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
type ID uint8

const (
	MaxID     ID = 252
	Broadcast ID = 254
)

// Fault is the error byte of a status frame: a set of bits, zero when healthy.
// It is an alert, not a failure: data that comes with it is valid, and a write
// that is answered with it was carried out.
//
// Source: FTServo SDK, status byte; the same bits as register 65.
type Fault uint8

const (
	FaultVoltage     Fault = 1 << 0
	FaultEncoder     Fault = 1 << 1
	FaultTemperature Fault = 1 << 2
	FaultCurrent     Fault = 1 << 3
	FaultOverload    Fault = 1 << 5
)

func (f Fault) Error() string {
	text := ""
	for _, b := range [...]struct {
		bit  Fault
		name string
	}{
		{FaultVoltage, "supply voltage out of range"},
		{FaultEncoder, "encoder fault"},
		{FaultTemperature, "over temperature"},
		{FaultCurrent, "over current"},
		{FaultOverload, "overload"},
	} {
		if f&b.bit == 0 {
			continue
		}
		if text != "" {
			text += ", "
		}
		text += b.name
	}
	if text == "" {
		return "no fault"
	}
	return text
}

// Is reports whether f has any bit of the target fault, so that
// errors.Is(err, FaultOverload) holds among other bits.
func (f Fault) Is(target error) bool {
	g, ok := target.(Fault)
	return ok && f&g != 0
}
