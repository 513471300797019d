package servo

import "fmt"

// Register is one entry of the STS control table.
type Register uint8

// The registers, in the order of their addresses, under LeRobot's names.
const (
	FirmwareMajor Register = iota
	FirmwareMinor
	ModelNumber
	MotorID
	BaudRate
	ReturnDelayTime
	ResponseStatusLevel
	MinPositionLimit
	MaxPositionLimit
	MaxTemperatureLimit
	MaxVoltageLimit
	MinVoltageLimit
	MaxTorqueLimit
	Phase
	UnloadingCondition
	LEDAlarmCondition
	PCoefficient
	DCoefficient
	ICoefficient
	MinimumStartupForce
	CWDeadZone
	CCWDeadZone
	ProtectionCurrent
	AngularResolution
	HomingOffset
	OperatingMode
	ProtectiveTorque
	ProtectionTime
	OverloadTorque
	OverCurrentProtectionTime
	TorqueEnable
	Acceleration
	GoalPosition
	GoalTime
	GoalVelocity
	TorqueLimit
	Lock
	PresentPosition
	PresentVelocity
	PresentLoad
	PresentVoltage
	PresentTemperature
	Status
	Moving
	PresentCurrent
	MaximumAcceleration
	numRegisters
)

// area says what a write to a register costs: EEPROM wears out after some
// 10,000 to 100,000 writes and stalls the servo for milliseconds.
type area uint8

const (
	ram area = iota
	eeprom
	readOnly
)

// register is one row: signBit is the bit that holds the sign of a
// sign-magnitude value, 0 for an unsigned register.
type register struct {
	name    string
	addr    byte
	width   int
	area    area
	signBit int
}

// table is the control table of STS and SMS servos. Minimum_Startup_Force is
// one byte here: LeRobot lists two, but byte 25 is another register.
//
// Source: Feetech STS3215 memory table; LeRobot motors/feetech/tables.py.
var table = [numRegisters]register{
	FirmwareMajor:             {"Firmware_Major_Version", 0, 1, readOnly, 0},
	FirmwareMinor:             {"Firmware_Minor_Version", 1, 1, readOnly, 0},
	ModelNumber:               {"Model_Number", 3, 2, readOnly, 0},
	MotorID:                   {"ID", 5, 1, eeprom, 0},
	BaudRate:                  {"Baud_Rate", 6, 1, eeprom, 0},
	ReturnDelayTime:           {"Return_Delay_Time", 7, 1, eeprom, 0},
	ResponseStatusLevel:       {"Response_Status_Level", 8, 1, eeprom, 0},
	MinPositionLimit:          {"Min_Position_Limit", 9, 2, eeprom, 0},
	MaxPositionLimit:          {"Max_Position_Limit", 11, 2, eeprom, 0},
	MaxTemperatureLimit:       {"Max_Temperature_Limit", 13, 1, eeprom, 0},
	MaxVoltageLimit:           {"Max_Voltage_Limit", 14, 1, eeprom, 0},
	MinVoltageLimit:           {"Min_Voltage_Limit", 15, 1, eeprom, 0},
	MaxTorqueLimit:            {"Max_Torque_Limit", 16, 2, eeprom, 0},
	Phase:                     {"Phase", 18, 1, eeprom, 0},
	UnloadingCondition:        {"Unloading_Condition", 19, 1, eeprom, 0},
	LEDAlarmCondition:         {"LED_Alarm_Condition", 20, 1, eeprom, 0},
	PCoefficient:              {"P_Coefficient", 21, 1, eeprom, 0},
	DCoefficient:              {"D_Coefficient", 22, 1, eeprom, 0},
	ICoefficient:              {"I_Coefficient", 23, 1, eeprom, 0},
	MinimumStartupForce:       {"Minimum_Startup_Force", 24, 1, eeprom, 0},
	CWDeadZone:                {"CW_Dead_Zone", 26, 1, eeprom, 0},
	CCWDeadZone:               {"CCW_Dead_Zone", 27, 1, eeprom, 0},
	ProtectionCurrent:         {"Protection_Current", 28, 2, eeprom, 0},
	AngularResolution:         {"Angular_Resolution", 30, 1, eeprom, 0},
	HomingOffset:              {"Homing_Offset", 31, 2, eeprom, 11},
	OperatingMode:             {"Operating_Mode", 33, 1, eeprom, 0},
	ProtectiveTorque:          {"Protective_Torque", 34, 1, eeprom, 0},
	ProtectionTime:            {"Protection_Time", 35, 1, eeprom, 0},
	OverloadTorque:            {"Overload_Torque", 36, 1, eeprom, 0},
	OverCurrentProtectionTime: {"Over_Current_Protection_Time", 38, 1, eeprom, 0},
	TorqueEnable:              {"Torque_Enable", 40, 1, ram, 0},
	Acceleration:              {"Acceleration", 41, 1, ram, 0},
	GoalPosition:              {"Goal_Position", 42, 2, ram, 15},
	GoalTime:                  {"Goal_Time", 44, 2, ram, 0},
	GoalVelocity:              {"Goal_Velocity", 46, 2, ram, 15},
	TorqueLimit:               {"Torque_Limit", 48, 2, ram, 0},
	Lock:                      {"Lock", 55, 1, ram, 0},
	PresentPosition:           {"Present_Position", 56, 2, readOnly, 15},
	PresentVelocity:           {"Present_Velocity", 58, 2, readOnly, 15},
	PresentLoad:               {"Present_Load", 60, 2, readOnly, 10},
	PresentVoltage:            {"Present_Voltage", 62, 1, readOnly, 0},
	PresentTemperature:        {"Present_Temperature", 63, 1, readOnly, 0},
	Status:                    {"Status", 65, 1, readOnly, 0},
	Moving:                    {"Moving", 66, 1, readOnly, 0},
	PresentCurrent:            {"Present_Current", 69, 2, readOnly, 15},
	MaximumAcceleration:       {"Maximum_Acceleration", 85, 1, eeprom, 0},
}

// Register values that mean something on their own.
const (
	modePosition   = 0
	phaseMultiTurn = 0x10 // Phase bit 4: count turns instead of 0 to 4095
	maxPositionRaw = 4095
)

// models gives the Model_Number of each model by LeRobot's name.
var models = map[string]int{"sts3215": 777, "sts3250": 2825, "sm8512bl": 11272}

func (r Register) String() string { return table[r].name }

// Addr returns the register's first address.
func (r Register) Addr() byte { return table[r].addr }

// Width returns how many bytes the register has, 1 or 2.
func (r Register) Width() int { return table[r].width }

// Decode turns a raw word into the register's value: sign-magnitude where the
// register has a sign, so that 0x8005 is -5 and a lone sign bit is 0.
//
//rt:noalloc
func (r Register) Decode(word uint16) int {
	bit := table[r].signBit
	if bit == 0 {
		return int(word)
	}
	magnitude := int(word & (1<<bit - 1))
	if word&(1<<bit) != 0 {
		return -magnitude
	}
	return magnitude
}

// Encode is the inverse of Decode. It fails when the value does not fit the
// register.
func (r Register) Encode(value int) (uint16, error) {
	row := &table[r]
	if row.signBit == 0 {
		if value < 0 || value >= 1<<(8*row.width) {
			return 0, fmt.Errorf("servo: %s = %d does not fit, want 0 to %d", row.name, value, 1<<(8*row.width)-1)
		}
		return uint16(value), nil
	}
	limit := 1<<row.signBit - 1
	if value < -limit || value > limit {
		return 0, fmt.Errorf("servo: %s = %d does not fit, want %d to %d", row.name, value, -limit, limit)
	}
	return signMagnitude(value, row.signBit), nil
}

// signMagnitude encodes a value that is known to fit.
//
//rt:noalloc
func signMagnitude(value, signBit int) uint16 {
	if value < 0 {
		return uint16(-value) | 1<<signBit
	}
	return uint16(value)
}
