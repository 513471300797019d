package servosim

import (
	"math"
)

// The memory of the Feetech STS and SMS series. Addresses, widths and factory values are those of
// the STS3215, firmware 3.10, in the 7.4 V variant. Registers of two bytes are little endian,
// signed registers have sign and magnitude.
//
// Source: Feetech STS3215 memory table.
const (
	stsEnd          = 2
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

var feetechBauds = []baud{{0, 1_000_000}, {1, 500_000}, {2, 250_000}, {3, 128_000}, {4, 115_200}, {5, 76_800},
	{6, 57_600}, {7, 38_400}}

var stsTable = indexed(table{
	series:   seriesSTS,
	size:     256,
	eeprom:   40,
	counts:   4096,
	arc:      2 * math.Pi,
	gainDuty: 3927,
	bauds:    feetechBauds,
	at: addresses{
		model:          3,
		id:             5,
		baud:           6,
		returnDelay:    7,
		returnLevel:    8,
		minLimit:       9,
		maxLimit:       11,
		offset:         stsOffset,
		mode:           33,
		maxTemperature: 13,
		maxVoltage:     14,
		minVoltage:     15,
		torque:         stsTorque,
		goal:           stsGoal,
		torqueLimit:    stsTorqueLimit,
		lock:           55,
		present:        stsPresent,
		velocity:       58,
		load:           60,
		voltage:        62,
		temperature:    63,
		registered:     64,
		moving:         66,
	},
	rows: []register{
		{5, 1, 1, 0, 253},                // id
		{6, 1, 0, 0, 7},                  // baud code
		{7, 1, 0, 0, 254},                // return delay, 2 us
		{8, 1, 1, 0, 1},                  // return level
		{9, 2, 0, 0, 0},                  // lower position limit
		{11, 2, 4095, 0, 0},              // upper position limit
		{13, 1, 70, 0, 100},              // temperature limit, deg C
		{14, 1, 80, 0, 254},              // upper voltage limit, 0.1 V
		{15, 1, 40, 0, 254},              // lower voltage limit, 0.1 V
		{stsMaxTorque, 2, 1000, 0, 1000}, // torque limit at power-up, 0.1 %
		{stsPhase, 1, 12, 0, 0},          // phase
		{stsUnload, 1, 44, 0, 0},         // faults that switch torque off
		{20, 1, 47, 0, 0},                // faults that light the LED
		{stsP, 1, 32, 0, 254},            // position P
		{stsD, 1, 32, 0, 254},            // position D
		{stsI, 1, 0, 0, 254},             // position I
		{stsStartup, 1, 16, 0, 254},      // startup force, 0.1 %
		{stsSumLimit, 1, 0, 0, 254},      // integral limit, 0.4 %
		{stsDeadZone, 1, 1, 0, 32},       // clockwise dead zone
		{27, 1, 1, 0, 32},                // counter-clockwise dead zone
		{stsProtectAmps, 2, 500, 0, 511}, // protection current, 6.5 mA
		{30, 1, 1, 1, 128},               // angular resolution
		{stsOffset, 2, 0, 0, 0},          // position offset
		{33, 1, 0, 0, 3},                 // mode
		{stsProtectForce, 1, 20, 0, 100}, // torque after an overload, %
		{stsProtectTime, 1, 200, 0, 254}, // protection time, 10 ms
		{stsOverload, 1, 80, 0, 100},     // overload torque, %
		{37, 1, 10, 0, 254},              // velocity P
		{38, 1, 200, 0, 254},             // over-current time, 10 ms
		{39, 1, 200, 0, 254},             // velocity I
		{stsTorque, 1, 0, 0, 0},          // torque enable
		{stsAcceleration, 1, 0, 0, 254},  // acceleration, 100 counts/s2
		{stsGoal, 2, 0, 0, 0},            // goal position
		{stsGoalTime, 2, 0, 0, 0},        // goal time, or PWM in mode 2
		{stsGoalVelocity, 2, 0, 0, 0},    // goal velocity; 3400 counts/s at power-up
		{stsTorqueLimit, 2, 0, 0, 1000},  // torque limit; from register 16 at power-up
		{55, 1, 1, 0, 1},                 // lock
		{85, 1, 254, 0, 254},             // acceleration limit
	},
	readOnly: []constant{
		{0, 1, 3},               // firmware, major
		{1, 1, 10},              // firmware, minor
		{stsEnd, 1, 0},          // byte order: little endian
		{3, 2, 0},               // model
		{stsPresent, 2, 0},      // present position
		{58, 2, 0},              // present velocity
		{60, 2, 0},              // present load
		{62, 1, 0},              // present voltage, 0.1 V
		{63, 1, 0},              // present temperature, deg C
		{64, 1, 0},              // whether a registered write is waiting
		{stsStatus, 1, 0},       // status
		{66, 1, 0},              // moving
		{stsGoalReadback, 2, 0}, // goal position, read back
		{stsCurrent, 2, 0},      // present current, 6.5 mA
		{80, 1, 1},              // moving threshold
		{81, 1, 1},              // control tick, ms
		{82, 1, 1},              // velocity unit factor
		{83, 1, 0},              // minimum speed
		{84, 1, 68},             // velocity limit, 50 counts/s
		{86, 1, 1},              // acceleration multiplier
	},
})

// The STS3215's motor is fitted to measurements of the 7.4 V variant. The fit results in more than
// the stall torque of the data sheet, so the data sheet's value is the limit. The constants of the
// other models follow from the data sheets' stall torque and no-load speed.
//
// Source: Rhoban/bam, sts3215; Feetech data sheets.
var feetechModels = []model{
	{"sts3215", 777, stsTable, nil, 0, dc(7.4, 1.21, 2.68, 0.0284, 0.052, 0.059, 1.9)},
	{"sts3250", 2825, stsTable, []setting{{14, 140}}, 0, dc(12, 1.52, 3.7, 0.035, 0.08, 0.08, 4.9)},
	{"sm8512bl", 11272, stsTable, []setting{{14, 250}, {15, 120}}, 0,
		dc(24, 4.6, 13, 0.06, 0.15, 0.15, 8.3)},
}
