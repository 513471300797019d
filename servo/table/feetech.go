package table

// smsRows is the table of STS and SMS servos. Minimum_Startup_Force has one byte here, although
// LeRobot lists two: byte 25 is another register. The registers of the factory block have one byte,
// too.
var smsRows = []Row{
	{ModelNumber, 3, 2, ReadOnly, Unsigned},
	{MotorID, 5, 1, EEPROM, Unsigned},
	{BaudRate, 6, 1, EEPROM, Unsigned},
	{ReturnDelayTime, 7, 1, EEPROM, Unsigned},
	{ResponseStatusLevel, 8, 1, EEPROM, Unsigned},
	{MinPositionLimit, 9, 2, EEPROM, Unsigned},
	{MaxPositionLimit, 11, 2, EEPROM, Unsigned},
	{MaxTemperatureLimit, 13, 1, EEPROM, Unsigned},
	{"Max_Voltage_Limit", 14, 1, EEPROM, Unsigned},
	{"Min_Voltage_Limit", 15, 1, EEPROM, Unsigned},
	{MaxTorqueLimit, 16, 2, EEPROM, Unsigned},
	{Phase, 18, 1, EEPROM, Unsigned},
	{"Unloading_Condition", 19, 1, EEPROM, Unsigned},
	{"LED_Alarm_Condition", 20, 1, EEPROM, Unsigned},
	{PCoefficient, 21, 1, EEPROM, Unsigned},
	{"D_Coefficient", 22, 1, EEPROM, Unsigned},
	{"I_Coefficient", 23, 1, EEPROM, Unsigned},
	{"Minimum_Startup_Force", 24, 1, EEPROM, Unsigned},
	{"CW_Dead_Zone", 26, 1, EEPROM, Unsigned},
	{"CCW_Dead_Zone", 27, 1, EEPROM, Unsigned},
	{ProtectionCurrent, 28, 2, EEPROM, Unsigned},
	{AngularResolution, 30, 1, EEPROM, Unsigned},
	{HomingOffset, 31, 2, EEPROM, 11},
	{OperatingMode, 33, 1, EEPROM, Unsigned},
	{"Protective_Torque", 34, 1, EEPROM, Unsigned},
	{"Protection_Time", 35, 1, EEPROM, Unsigned},
	{"Overload_Torque", 36, 1, EEPROM, Unsigned},
	{"Velocity_closed_loop_P_proportional_coefficient", 37, 1, EEPROM, Unsigned},
	{"Over_Current_Protection_Time", 38, 1, EEPROM, Unsigned},
	{"Velocity_closed_loop_I_integral_coefficient", 39, 1, EEPROM, Unsigned},
	{TorqueEnable, 40, 1, RAM, Unsigned},
	{Acceleration, 41, 1, RAM, Unsigned},
	{GoalPosition, 42, 2, RAM, 15},
	{GoalTime, 44, 2, RAM, Unsigned},
	{GoalVelocity, 46, 2, RAM, 15},
	{TorqueLimit, 48, 2, RAM, Unsigned},
	{Lock, 55, 1, RAM, Unsigned},
	{PresentPosition, 56, 2, ReadOnly, 15},
	{PresentVelocity, 58, 2, ReadOnly, 15},
	{PresentLoad, 60, 2, ReadOnly, 10},
	{PresentVoltage, 62, 1, ReadOnly, Unsigned},
	{PresentTemperature, 63, 1, ReadOnly, Unsigned},
	{Status, 65, 1, ReadOnly, Unsigned},
	{PresentCurrent, 69, 2, ReadOnly, 15},
	{"Maximum_Acceleration", 85, 1, EEPROM, Unsigned},
}

// Register values with a meaning of their own.
const (
	PhaseMultiTurn = 0x10 // bit 4 of Phase: positions count turns instead of 0 to 4095
	ModeVelocity   = 1    // Operating_Mode of a wheel
	FactoryBlock   = 80   // first address at which some Feetech firmware ignores writes
)
