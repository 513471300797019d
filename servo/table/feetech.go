package table

import "slices"

// smsRows is the table of STS and SMS servos. Minimum_Startup_Force has one byte here, and so have
// the registers of the factory block: LeRobot lists two for the first, but byte 25 is another
// register.
var smsRows = slices.Concat(feetechRows, []Row{
	{"Minimum_Startup_Force", 24, 1, EEPROM, Unsigned, false},
	{ProtectionCurrent, 28, 2, EEPROM, Unsigned, false},
	{AngularResolution, 30, 1, EEPROM, Unsigned, false},
	{HomingOffset, 31, 2, EEPROM, 11, false},
	{OperatingMode, 33, 1, EEPROM, Unsigned, false},
	{"Protective_Torque", 34, 1, EEPROM, Unsigned, false},
	{"Protection_Time", 35, 1, EEPROM, Unsigned, false},
	{"Overload_Torque", 36, 1, EEPROM, Unsigned, false},
	{"Velocity_closed_loop_P_proportional_coefficient", 37, 1, EEPROM, Unsigned, false},
	{"Over_Current_Protection_Time", 38, 1, EEPROM, Unsigned, false},
	{"Velocity_closed_loop_I_integral_coefficient", 39, 1, EEPROM, Unsigned, false},
	{Acceleration, 41, 1, RAM, Unsigned, false},
	{GoalPosition, 42, 2, RAM, 15, false},
	{GoalVelocity, 46, 2, RAM, 15, false},
	{TorqueLimit, 48, 2, RAM, Unsigned, false},
	{Lock, 55, 1, RAM, Unsigned, false},
	{PresentPosition, 56, 2, ReadOnly, 15, false},
	{PresentCurrent, 69, 2, ReadOnly, 15, false},
	{"Maximum_Acceleration", 85, 1, EEPROM, Unsigned, false},
})

// scsRows is the table of SCS servos. Its lock is at the address of the STS servos' torque limit: a
// write of that address to the wrong family locks the servo.
var scsRows = slices.Concat(feetechRows, []Row{
	{"Minimum_Startup_Force", 24, 2, EEPROM, Unsigned, false},
	{"Protective_Torque", 37, 1, EEPROM, Unsigned, false},
	{"Protection_Time", 38, 1, EEPROM, Unsigned, false},
	{"Overload_Torque", 39, 1, EEPROM, Unsigned, false},
	{GoalPosition, 42, 2, RAM, Unsigned, false},
	{GoalVelocity, 46, 2, RAM, Unsigned, false},
	{Lock, 48, 1, RAM, Unsigned, false},
	{PresentPosition, 56, 2, ReadOnly, Unsigned, false},
})

// feetechRows are the rows with the same address in both series.
var feetechRows = []Row{
	{"Firmware_Major_Version", 0, 1, ReadOnly, Unsigned, false},
	{"Firmware_Minor_Version", 1, 1, ReadOnly, Unsigned, false},
	{ModelNumber, 3, 2, ReadOnly, Unsigned, false},
	{MotorID, 5, 1, EEPROM, Unsigned, false},
	{BaudRate, 6, 1, EEPROM, Unsigned, false},
	{ReturnDelayTime, 7, 1, EEPROM, Unsigned, false},
	{ResponseStatusLevel, 8, 1, EEPROM, Unsigned, false},
	{MinPositionLimit, 9, 2, EEPROM, Unsigned, false},
	{MaxPositionLimit, 11, 2, EEPROM, Unsigned, false},
	{MaxTemperatureLimit, 13, 1, EEPROM, Unsigned, false},
	{"Max_Voltage_Limit", 14, 1, EEPROM, Unsigned, false},
	{"Min_Voltage_Limit", 15, 1, EEPROM, Unsigned, false},
	{MaxTorqueLimit, 16, 2, EEPROM, Unsigned, false},
	{Phase, 18, 1, EEPROM, Unsigned, false},
	{"Unloading_Condition", 19, 1, EEPROM, Unsigned, false},
	{"LED_Alarm_Condition", 20, 1, EEPROM, Unsigned, false},
	{PCoefficient, 21, 1, EEPROM, Unsigned, false},
	{"D_Coefficient", 22, 1, EEPROM, Unsigned, false},
	{"I_Coefficient", 23, 1, EEPROM, Unsigned, false},
	{"CW_Dead_Zone", 26, 1, EEPROM, Unsigned, false},
	{"CCW_Dead_Zone", 27, 1, EEPROM, Unsigned, false},
	{TorqueEnable, 40, 1, RAM, Unsigned, false},
	{GoalTime, 44, 2, RAM, Unsigned, false},
	{PresentVelocity, 58, 2, ReadOnly, 15, false},
	{PresentLoad, 60, 2, ReadOnly, 10, false},
	{PresentVoltage, 62, 1, ReadOnly, Unsigned, false},
	{PresentTemperature, 63, 1, ReadOnly, Unsigned, false},
	{Status, 65, 1, ReadOnly, Unsigned, false},
	{"Moving", 66, 1, ReadOnly, Unsigned, false},
}

// Register values with a meaning of their own.
const (
	PhaseMultiTurn = 0x10 // bit 4 of Phase: positions count turns instead of 0 to 4095
	FactoryBlock   = 80   // from this address on some Feetech firmware keeps its own values after a write
)
