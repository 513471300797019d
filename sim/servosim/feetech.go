package servosim

import "math"

// Addresses in the memory of the Feetech STS and SMS series, which registers.txt describes.
const (
	stsPhase        = 18
	stsUnload       = 19
	stsP            = 21
	stsD            = 22
	stsI            = 23
	stsStartup      = 24
	stsSumLimit     = 25
	stsDeadZone     = 26
	stsProtectAmps  = 28
	stsOffset       = 31
	stsProtectForce = 34
	stsProtectTime  = 35
	stsOverload     = 36
	stsTorque       = 40
	stsAcceleration = 41
	stsGoal         = 42
	stsGoalTime     = 44
	stsGoalVelocity = 46
	stsMaxTorque    = 16
	stsTorqueLimit  = 48
	stsPresent      = 56
	stsStatus       = 65
	stsGoalReadback = 67
	stsCurrent      = 69
)

// Bits and values with a special meaning.
const (
	torqueOn      = 1
	torqueDamp    = 2   // written to stsTorque: limp with shorted windings
	torqueCentre  = 128 // written to stsTorque: the present position becomes 2048
	centre        = 2048
	phaseSteps    = 1 << 2 // set: velocities are in counts per second; not set: in units of 50
	phaseZeroFast = 1 << 3 // set: a goal velocity of 0 is the highest speed; not set: a stop
	phaseTurns    = 1 << 4 // positions count several turns
	signPosition  = 1 << 15
	signOffset    = 1 << 11
	signLoad      = 1 << 10

	modePosition = 0
	modeVelocity = 1
	modePWM      = 2
	modeStep     = 3
)

// The error bits of a Feetech status packet.
const (
	faultVoltage     = 1 << 0
	faultEncoder     = 1 << 1
	faultTemperature = 1 << 2
	faultCurrent     = 1 << 3
	faultOverload    = 1 << 5
)

var stsTable = indexed("sts", table{
	series:   seriesSTS,
	size:     256,
	eeprom:   40,
	counts:   4096,
	arc:      2 * math.Pi,
	gainDuty: 3927,
})
