package servosim

// The memory of an STS3215. Addresses and widths are the datasheet's; two-byte
// registers are little endian. Positions are signed by magnitude: bit 15 is the
// sign, for the position offset bit 11.
//
// Source: Feetech STS3215 memory table, firmware 3.10.
const (
	regFirmware     = 0 // two bytes: major, minor
	regModel        = 3 // two bytes
	regID           = 5
	regBaud         = 6
	regReturnDelay  = 7 // 2 us
	regReturnLevel  = 8 // 0: only ping and reads are answered
	regMinLimit     = 9
	regMaxLimit     = 11
	regMaxTorque    = 16
	regPhase        = 18
	regOffset       = 31
	regTorque       = 40
	regGoal         = 42
	regGoalVelocity = 46
	regTorqueLimit  = 48
	regLock         = 55
	regPresent      = 56
	regVelocity     = 58
	regVoltage      = 62
	regTemperature  = 63
	regAsync        = 64
	regStatus       = 65
	regMoving       = 66
	regGoalReadback = 67

	eepromEnd = 40 // below it, a write lasts only with the lock open
	liveEnd   = 71 // 56 to 70 are measured at the moment of reading
	memSize   = 256
)

// Values of special meaning.
const (
	modelSTS3215 = 777
	torqueOn     = 1
	torqueCentre = 128 // written to regTorque: here is 2048
	centre       = 2048
	countMax     = 4095
	phaseTurns   = 1 << 4 // of regPhase: positions are counted over several turns
	signPosition = 1 << 15
	signOffset   = 1 << 11
)

// bauds are the rates that register 6 names, by their code.
var bauds = [...]int{1_000_000, 500_000, 250_000, 128_000, 115_200, 76_800, 57_600, 38_400}

// register is one row of the memory table.
type register struct {
	addr, size uint8
	writable   bool
	factory    uint16
}

// table lists every register with its value as it leaves the factory, in the
// 7.4 V variant. Addresses that are not listed read 0 and ignore writes. Values
// that follow from the configuration or from the plant are set at power-up.
var table = [...]register{
	{0, 1, false, 3},    // firmware, major
	{1, 1, false, 10},   // firmware, minor
	{2, 1, false, 0},    // byte order: little endian
	{3, 2, false, 777},  // model
	{5, 1, true, 1},     // id
	{6, 1, true, 0},     // baud code
	{7, 1, true, 0},     // return delay
	{8, 1, true, 1},     // return level
	{9, 2, true, 0},     // lower position limit
	{11, 2, true, 4095}, // upper position limit
	{13, 1, true, 70},   // temperature limit, deg C
	{14, 1, true, 80},   // upper voltage limit, 0.1 V
	{15, 1, true, 40},   // lower voltage limit, 0.1 V
	{16, 2, true, 1000}, // torque limit at power-up, 0.1 %
	{18, 1, true, 12},   // phase
	{19, 1, true, 44},   // faults that cut torque
	{20, 1, true, 47},   // faults that light the LED
	{21, 1, true, 32},   // position P
	{22, 1, true, 32},   // position D
	{23, 1, true, 0},    // position I
	{24, 1, true, 16},   // startup force, 0.1 %
	{25, 1, true, 0},    // integral limit
	{26, 1, true, 1},    // clockwise dead zone
	{27, 1, true, 1},    // counter-clockwise dead zone
	{28, 2, true, 500},  // protection current, 6.5 mA
	{30, 1, true, 1},    // angular resolution
	{31, 2, true, 0},    // position offset
	{33, 1, true, 0},    // mode: position
	{34, 1, true, 20},   // protection torque, %
	{35, 1, true, 200},  // protection time, 10 ms
	{36, 1, true, 80},   // overload torque, %
	{37, 1, true, 10},   // velocity P
	{38, 1, true, 200},  // over-current time, 10 ms
	{39, 1, true, 200},  // velocity I
	{40, 1, true, 0},    // torque enable
	{41, 1, true, 0},    // acceleration
	{42, 2, true, 0},    // goal position
	{44, 2, true, 0},    // goal time
	{46, 2, true, 0},    // goal velocity; from register 84 at power-up
	{48, 2, true, 0},    // torque limit; from register 16 at power-up
	{55, 1, true, 1},    // lock
	{56, 2, false, 0},   // present position
	{58, 2, false, 0},   // present velocity
	{60, 2, false, 0},   // present load
	{62, 1, false, 74},  // present voltage, 0.1 V
	{63, 1, false, 30},  // present temperature, deg C
	{64, 1, false, 0},   // a registered write is waiting
	{65, 1, false, 0},   // status
	{66, 1, false, 0},   // moving
	{67, 2, false, 0},   // goal position, read back
	{69, 2, false, 0},   // present current
	{80, 1, false, 1},   // moving threshold
	{81, 1, false, 1},   // control tick, ms
	{82, 1, false, 1},   // velocity unit factor
	{83, 1, false, 0},   // minimum speed
	{84, 1, false, 68},  // velocity limit, 50 counts a second
	{85, 1, true, 254},  // acceleration limit
	{86, 1, false, 1},   // acceleration multiplier
}

// writable says for each byte of memory whether a client may change it.
var writable = func() (w [memSize]bool) {
	for _, r := range table {
		for i := range r.size {
			w[r.addr+i] = r.writable
		}
	}
	return w
}()
