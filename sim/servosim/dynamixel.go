package servosim

import (
	"math"
	"slices"
)

// The memory of the Dynamixel X series. Values are little endian, signed ones two's complement. The
// factory values are those of the XL430-W250; dynamixelModels lists how other models differ.
//
// Source: ROBOTIS e-manual, control tables of the X series.
const (
	xFirmware       = 6
	xDriveMode      = 10
	xMode           = 11
	xSecondID       = 12
	xOffset         = 20
	xVoltageMax     = 32
	xVoltageMin     = 34
	xLimitPWM       = 36
	xLimitCurrent   = 38
	xLimitVelocity  = 44
	xShutdown       = 63
	xTorque         = 64
	xHardwareError  = 70
	xVelocityI      = 76
	xVelocityP      = 78
	xPositionD      = 80
	xPositionI      = 82
	xPositionP      = 84
	xWatchdog       = 98
	xGoalPWM        = 100
	xGoalCurrent    = 102
	xGoalVelocity   = 104
	xAcceleration   = 108
	xProfile        = 112
	xGoal           = 116
	xTick           = 120
	xPresentPWM     = 124
	xPresentLoad    = 126
	xPresent        = 132
	xIndirect       = 168
	xIndirectLow    = 64        // lowest target of an indirect address; the highest is the last byte of memory
	xGoalRange      = 1_048_575 // goals in extended position mode
	xHomingLimit    = 1024      // offsets in position mode
	xFaultEncoder   = 1 << 3    // a bit of the hardware error
	xFastReads      = 45        // lowest firmware version with fast reads
	xModeCurrent    = 0
	xModeVelocity   = 1
	xModePosition   = 3
	xModeExtended   = 4
	xModeCurrentPos = 5
	xModePWM        = 16
)

// The result codes of a protocol 2.0 status packet, and its alert bit.
const (
	resultFail   = 0x01
	resultInst   = 0x02
	resultCRC    = 0x03
	resultRange  = 0x04
	resultLength = 0x05
	resultLimit  = 0x06
	resultAccess = 0x07
	alert        = 0x80
)

var xBauds = []baud{{0, 9600}, {1, 57_600}, {2, 115_200}, {3, 1_000_000}, {4, 2_000_000}, {5, 3_000_000},
	{6, 4_000_000}, {7, 4_500_000}}

// window is a range of memory whose bytes are aliases of other bytes. A list contains the addresses
// of those other bytes.
type window struct {
	list, data, n int // address of the list, two bytes per entry; address of the aliases; number of entries
}

// The windows of indirect addresses. An X330 has fewer indirect addresses, with their data directly after them.
var (
	xTable    = xSeries(662, 46, 885*128, window{xIndirect, 224, 28}, window{578, 634, 28})
	x330Table = xSeries(228, 52, 885*256, window{xIndirect, 208, 20})
)

func xSeries(size int, firmware int64, gainDuty float64, windows ...window) *table {
	t := xCommon
	t.size = size
	t.windows = windows
	t.gainDuty = gainDuty
	t.rows = append(slices.Clone(t.rows), register{
		addr:    xFirmware,
		size:    1,
		factory: firmware,
		lo:      1,
	})
	for _, w := range windows {
		for i := range w.n {
			t.rows = append(t.rows, register{
				addr:    uint16(w.list + 2*i),
				size:    2,
				factory: int64(w.data + i),
				lo:      xIndirectLow,
				hi:      int64(size - 1),
			}, register{addr: uint16(w.data + i), size: 1})
		}
	}
	return indexed(t)
}

var xCommon = table{
	series: seriesX,
	eeprom: 64,
	counts: 4096,
	arc:    2 * math.Pi,
	bauds:  xBauds,
	at: addresses{
		model:          0,
		id:             7,
		baud:           8,
		returnDelay:    9,
		returnLevel:    68,
		minLimit:       52,
		maxLimit:       48,
		offset:         xOffset,
		mode:           xMode,
		maxTemperature: 31,
		maxVoltage:     xVoltageMax,
		minVoltage:     xVoltageMin,
		torque:         xTorque,
		goal:           xGoal,
		torqueLimit:    none,
		lock:           none,
		present:        xPresent,
		velocity:       128,
		load:           xPresentLoad,
		voltage:        144,
		temperature:    146,
		registered:     69,
		moving:         122,
	},
	rows: []register{
		{7, 1, 1, 0, 252},                      // id
		{8, 1, 3, 0, 7},                        // baud code
		{9, 1, 250, 0, 254},                    // return delay, 2 us
		{xDriveMode, 1, 0, 0, 13},              // drive mode
		{xMode, 1, 3, 0, 16},                   // operating mode
		{xSecondID, 1, 255, 0, 255},            // secondary id
		{13, 1, 2, 1, 2},                       // protocol
		{xOffset, 4, 0, -1_044_479, 1_044_479}, // homing offset
		{24, 4, 10, 0, 1023},                   // moving threshold, 0.229 rpm
		{31, 1, 72, 0, 100},                    // temperature limit, deg C
		{xVoltageMax, 2, 140, 31, 160},         // upper voltage limit, 0.1 V
		{xVoltageMin, 2, 60, 31, 160},          // lower voltage limit
		{xLimitPWM, 2, 885, 0, 885},            // PWM limit
		{xLimitCurrent, 2, 1193, 0, 2047},      // current limit
		{xLimitVelocity, 4, 265, 0, 2047},      // velocity limit, 0.229 rpm
		{48, 4, 4095, 0, 4095},                 // upper position limit
		{52, 4, 0, 0, 4095},                    // lower position limit
		{60, 1, 0, 0, 3},                       // startup configuration
		{xShutdown, 1, 52, 0, 63},              // hardware errors that switch torque off
		{xTorque, 1, 0, 0, 1},                  // torque enable
		{65, 1, 0, 0, 1},                       // LED
		{68, 1, 2, 0, 2},                       // status return level
		{xVelocityI, 2, 1000, 0, 16383},        // velocity I
		{xVelocityP, 2, 100, 0, 16383},         // velocity P
		{xPositionD, 2, 4000, 0, 16383},        // position D
		{xPositionI, 2, 0, 0, 16383},           // position I
		{xPositionP, 2, 640, 0, 16383},         // position P
		{88, 2, 0, 0, 16383},                   // feed-forward, 2nd
		{90, 2, 0, 0, 16383},                   // feed-forward, 1st
		{xWatchdog, 1, 0, 0, 127},              // bus watchdog, 20 ms
		{xGoalPWM, 2, 0, -885, 885},            // goal PWM
		{xGoalCurrent, 2, 0, -2047, 2047},      // goal current
		{xGoalVelocity, 4, 0, -2047, 2047},     // goal velocity
		{xAcceleration, 4, 0, 0, 32767},        // profile acceleration
		{xProfile, 4, 0, 0, 32767},             // profile velocity
		{xGoal, 4, 0, -xGoalRange, xGoalRange}, // goal position
	},
	readOnly: []constant{
		{0, 2, 0},              // model
		{2, 4, 0},              // model information
		{69, 1, 0},             // whether a registered write is waiting
		{xHardwareError, 1, 0}, // hardware error
		{xTick, 2, 0},          // realtime tick, ms
		{122, 1, 0},            // moving
		{123, 1, 0},            // moving status
		{xPresentPWM, 2, 0},    // present PWM
		{xPresentLoad, 2, 0},   // present load or current
		{128, 4, 0},            // present velocity
		{xPresent, 4, 0},       // present position
		{136, 4, 0},            // velocity trajectory
		{140, 4, 0},            // position trajectory
		{144, 2, 0},            // input voltage, 0.1 V
		{146, 1, 0},            // temperature, deg C
	},
}

// The memory of the AX series, protocol 1.0.
//
// Source: ROBOTIS e-manual, AX-12A.
const (
	axMaxTorque   = 14
	axShutdown    = 18
	axTorque      = 24
	axMargin      = 26
	axSlope       = 28
	axGoal        = 30
	axSpeed       = 32
	axTorqueLimit = 34
	axPresent     = 36
)

// The error bits of a protocol 1.0 status packet.
const (
	axVoltage     = 1 << 0
	axAngle       = 1 << 1
	axOverheat    = 1 << 2
	axRange       = 1 << 3
	axChecksum    = 1 << 4
	axOverload    = 1 << 5
	axInstruction = 1 << 6
)

var axTable = indexed(table{
	series: seriesAX,
	size:   50,
	eeprom: 24,
	counts: 1024,
	arc:    300 * math.Pi / 180,
	bauds: []baud{{1, 1_000_000}, {0, 2_000_000}, {3, 500_000}, {4, 400_000}, {7, 250_000}, {9, 200_000},
		{16, 117_647}, {34, 57_142}, {103, 19_230}, {207, 9615}},
	at: addresses{
		model:          0,
		id:             3,
		baud:           4,
		returnDelay:    5,
		returnLevel:    16,
		minLimit:       6,
		maxLimit:       8,
		offset:         none,
		mode:           none,
		maxTemperature: 11,
		maxVoltage:     13,
		minVoltage:     12,
		torque:         axTorque,
		goal:           axGoal,
		torqueLimit:    axTorqueLimit,
		lock:           47,
		present:        axPresent,
		velocity:       38,
		load:           40,
		voltage:        42,
		temperature:    43,
		registered:     44,
		moving:         46,
	},
	rows: []register{
		{3, 1, 1, 0, 253},               // id
		{4, 1, 1, 0, 254},               // baud code
		{5, 1, 250, 0, 254},             // return delay, 2 us
		{6, 2, 0, 0, 1023},              // clockwise limit
		{8, 2, 1023, 0, 1023},           // counter-clockwise limit
		{11, 1, 70, 0, 150},             // temperature limit, deg C
		{12, 1, 60, 50, 250},            // lower voltage limit, 0.1 V
		{13, 1, 140, 50, 250},           // upper voltage limit
		{axMaxTorque, 2, 1023, 0, 1023}, // torque limit at power-up
		{16, 1, 2, 0, 2},                // status return level
		{17, 1, 36, 0, 127},             // faults that light the LED
		{axShutdown, 1, 36, 0, 127},     // faults that switch torque off
		{axTorque, 1, 0, 0, 1},          // torque enable
		{25, 1, 0, 0, 1},                // LED
		{axMargin, 1, 1, 0, 255},        // clockwise compliance margin
		{27, 1, 1, 0, 255},              // counter-clockwise compliance margin
		{axSlope, 1, 32, 0, 254},        // clockwise compliance slope
		{29, 1, 32, 0, 254},             // counter-clockwise compliance slope
		{axGoal, 2, 0, 0, 1023},         // goal position
		{axSpeed, 2, 0, 0, 2047},        // moving speed, 0.111 rpm
		{axTorqueLimit, 2, 0, 0, 1023},  // torque limit; from register 14 at power-up
		{47, 1, 0, 0, 1},                // lock
		{48, 2, 32, 0, 1023},            // punch
	},
	readOnly: []constant{
		{0, 2, 0},         // model
		{2, 1, 24},        // firmware
		{axPresent, 2, 0}, // present position
		{38, 2, 0},        // present speed
		{40, 2, 0},        // present load
		{42, 1, 0},        // present voltage, 0.1 V
		{43, 1, 0},        // present temperature, deg C
		{44, 1, 0},        // whether a registered write is waiting
		{46, 1, 0},        // moving
	},
})

// The XL330's motor is fitted to measurements. The constants of the other models follow from the
// stall torque and no-load speed in the data sheets.
//
// Source: Rhoban/bam, xl330; ROBOTIS e-manual.
var dynamixelModels = []model{
	{"xl430-w250", 1060, xTable, nil, 0, dc(12, 1.88, 15, 0.012, 0.04, 0.03, 1.5)},
	{"xl330-m288", 1200, x330Table, xl330, 0.001, dc(5, 0.387, 4.02, 0.0018, 0.0128, 0.0037, 0.52)},
	{"xl330-m077", 1190, x330Table, xl330, 0.001, dc(5, 0.104, 2.4, 0.0004, 0.005, 0.001, 0.215)},
	{"xc330-t288", 1220, x330Table, xc330(320), 0.001, dc(11.1, 1.63, 19.7, 0.004, 0.02, 0.01, 0.92)},
	{"xc330-t181", 1210, x330Table, xc330(500), 0.001, dc(11.1, 1.05, 15, 0.003, 0.015, 0.008, 0.76)},
	{"xc430-w150", 1070, xTable, []setting{{xLimitVelocity, 460}}, 0,
		dc(12, 1.08, 8.1, 0.008, 0.04, 0.03, 1.6)},
	{"xc430-w240", 1080, xTable, []setting{{xLimitVelocity, 306}}, 0,
		dc(12, 1.64, 10.4, 0.018, 0.04, 0.03, 1.9)},
	{"xm430-w350", 1020, xTable, xm(1193, 350), 0.00269, dc(12, 2.49, 7.3, 0.02, 0.06, 0.05, 4.1)},
	{"xm430-w210", 1030, xTable, xm(1193, 330), 0.00269, dc(12, 1.49, 6, 0.015, 0.05, 0.04, 3)},
	{"xm540-w270", 1120, xTable, xm(2047, 128), 0.00269, dc(12, 3.82, 4.3, 0.06, 0.12, 0.1, 10.6)},
	{"xh540-w150", 1110, xTable, xm(2047, 280), 0.00269, dc(12, 1.64, 2.8, 0.04, 0.1, 0.08, 7.1)},
	{"ax-12a", 12, axTable, nil, 0, dc(11.2, 1.94, 15.5, 0.008, 0.04, 0.02, 1.5)},
}

var xl330 = []setting{{31, 70}, {xVoltageMax, 70}, {xVoltageMin, 35}, {xLimitCurrent, 1750}, {xLimitVelocity, 445},
	{xShutdown, 53}, {xVelocityI, 1600}, {xVelocityP, 180}, {xPositionD, 0}, {xPositionP, 400}}

func xc330(velocity int64) []setting {
	return []setting{{31, 70}, {xVoltageMax, 140}, {xVoltageMin, 55}, {xLimitCurrent, 910}, {xLimitVelocity, velocity},
		{xShutdown, 52},
		{xVelocityI, 1200}, {xVelocityP, 40}, {xPositionD, 0}, {xPositionP, 900}}
}

func xm(amps, velocity int64) []setting {
	return []setting{{31, 80}, {xVoltageMax, 160}, {xVoltageMin, 95}, {xLimitCurrent, amps}, {xLimitVelocity, velocity},
		{xVelocityI, 1920}, {xPositionD, 0}, {xPositionP, 800}}
}
