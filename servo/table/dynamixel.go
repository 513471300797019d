package table

// xRows is the table of the X series. Signed values are two's complement.
var xRows = []Row{
	{ModelNumber, 0, 2, ReadOnly, Unsigned},
	{MotorID, 7, 1, EEPROM, Unsigned},
	{BaudRate, 8, 1, EEPROM, Unsigned},
	{ReturnDelayTime, 9, 1, EEPROM, Unsigned},
	{DriveMode, 10, 1, EEPROM, Unsigned},
	{OperatingMode, 11, 1, EEPROM, Unsigned},
	{SecondaryID, 12, 1, EEPROM, Unsigned},
	{ProtocolType, 13, 1, EEPROM, Unsigned},
	{HomingOffset, 20, 4, EEPROM, Twos},
	{"Moving_Threshold", 24, 4, EEPROM, Unsigned},
	{MaxTemperatureLimit, 31, 1, EEPROM, Unsigned},
	{"Max_Voltage_Limit", 32, 2, EEPROM, Unsigned},
	{"Min_Voltage_Limit", 34, 2, EEPROM, Unsigned},
	{PWMLimit, 36, 2, EEPROM, Unsigned},
	{CurrentLimit, 38, 2, EEPROM, Unsigned},
	{AccelerationLimit, 40, 4, EEPROM, Unsigned},
	{"Velocity_Limit", 44, 4, EEPROM, Unsigned},
	{MaxPositionLimit, 48, 4, EEPROM, Unsigned},
	{MinPositionLimit, 52, 4, EEPROM, Unsigned},
	{"Shutdown", 63, 1, EEPROM, Unsigned},
	{TorqueEnable, 64, 1, RAM, Unsigned},
	{"LED", 65, 1, RAM, Unsigned},
	{ResponseStatusLevel, 68, 1, RAM, Unsigned},
	{Status, 70, 1, ReadOnly, Unsigned},
	{"Velocity_I_Gain", 76, 2, RAM, Unsigned},
	{"Velocity_P_Gain", 78, 2, RAM, Unsigned},
	{"Position_D_Gain", 80, 2, RAM, Unsigned},
	{"Position_I_Gain", 82, 2, RAM, Unsigned},
	{PositionPGain, 84, 2, RAM, Unsigned},
	{"Feedforward_2nd_Gain", 88, 2, RAM, Unsigned},
	{"Feedforward_1st_Gain", 90, 2, RAM, Unsigned},
	{BusWatchdog, 98, 1, RAM, Twos},
	{GoalPWM, 100, 2, RAM, Twos},
	{GoalCurrent, 102, 2, RAM, Twos},
	{GoalVelocity, 104, 4, RAM, Twos},
	{ProfileAcceleration, 108, 4, RAM, Unsigned},
	{ProfileVelocity, 112, 4, RAM, Unsigned},
	{GoalPosition, 116, 4, RAM, Twos},
	{PresentCurrent, 126, 2, ReadOnly, Twos},
	{PresentPosition, 132, 4, ReadOnly, Twos},
	{PresentVoltage, 144, 2, ReadOnly, Unsigned},
	{PresentTemperature, 146, 1, ReadOnly, Unsigned},
}

// loadRow is the register at 126 of models without a current sensor. LeRobot calls it
// Present_Current on these models too, and a setting may use that name.
var loadRow = Row{PresentLoad, 126, 2, ReadOnly, Twos}

// axRows is the table of the AX-12A, on protocol 1.0.
var axRows = []Row{
	{ModelNumber, 0, 2, ReadOnly, Unsigned},
	{MotorID, 3, 1, EEPROM, Unsigned},
	{BaudRate, 4, 1, EEPROM, Unsigned},
	{ReturnDelayTime, 5, 1, EEPROM, Unsigned},
	{MinPositionLimit, 6, 2, EEPROM, Unsigned},
	{MaxPositionLimit, 8, 2, EEPROM, Unsigned},
	{MaxTemperatureLimit, 11, 1, EEPROM, Unsigned},
	{"Min_Voltage_Limit", 12, 1, EEPROM, Unsigned},
	{"Max_Voltage_Limit", 13, 1, EEPROM, Unsigned},
	{MaxTorqueLimit, 14, 2, EEPROM, Unsigned},
	{ResponseStatusLevel, 16, 1, EEPROM, Unsigned},
	{"LED_Alarm_Condition", 17, 1, EEPROM, Unsigned},
	{"Shutdown", 18, 1, EEPROM, Unsigned},
	{TorqueEnable, 24, 1, RAM, Unsigned},
	{"LED", 25, 1, RAM, Unsigned},
	{"CW_Compliance_Margin", 26, 1, RAM, Unsigned},
	{"CCW_Compliance_Margin", 27, 1, RAM, Unsigned},
	{"CW_Compliance_Slope", 28, 1, RAM, Unsigned},
	{"CCW_Compliance_Slope", 29, 1, RAM, Unsigned},
	{GoalPosition, 30, 2, RAM, Unsigned},
	{GoalVelocity, 32, 2, RAM, 10},
	{TorqueLimit, 34, 2, RAM, Unsigned},
	{PresentPosition, 36, 2, ReadOnly, Unsigned},
	{PresentLoad, 40, 2, ReadOnly, 10},
	{PresentVoltage, 42, 1, ReadOnly, Unsigned},
	{PresentTemperature, 43, 1, ReadOnly, Unsigned},
	// Lock is left out, because only a power cycle unlocks an AX-12.
	{"Punch", 48, 2, RAM, Unsigned},
}

// Operating modes of the X series.
const (
	ModePosition         = 3
	ModeExtendedPosition = 4
	ModeCurrentPosition  = 5
)
