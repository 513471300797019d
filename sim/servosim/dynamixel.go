package servosim

import "math"

// Addresses in the memory of the Dynamixel X series, which registers.txt describes.
const (
	xFirmware       = 6
	xDriveMode      = 10
	xMode           = 11
	xSecondID       = 12
	xOffset         = 20
	xLimitPWM       = 36
	xLimitCurrent   = 38
	xLimitVelocity  = 44
	xShutdown       = 63
	xTorque         = 64
	xHardwareError  = 70
	xVelocityI      = 76
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
	xIndirectLow    = 64     // lowest target of an indirect address; the highest is the last byte of memory
	xHomingLimit    = 1024   // offsets in position mode
	xFaultEncoder   = 1 << 3 // a bit of the hardware error
	xFastReads      = 45     // lowest firmware version with fast reads
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
	t := table{
		series:   seriesX,
		size:     size,
		eeprom:   64,
		counts:   4096,
		arc:      2 * math.Pi,
		gainDuty: gainDuty,
		windows:  windows,
		rows: []register{{
			addr:    xFirmware,
			size:    1,
			factory: firmware,
			lo:      1,
		}},
	}
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
	return indexed("x", t)
}

// Addresses in the memory of the AX series, which registers.txt describes.
const (
	axMaxTorque   = 14
	axShutdown    = 18
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

var axTable = indexed("ax", table{
	series: seriesAX,
	size:   50,
	eeprom: 24,
	counts: 1024,
	arc:    300 * math.Pi / 180,
})
