package table

// xRows is the table of the X series. Signed values are two's complement.
var xRows = []Row{
	{ModelNumber, 0, 2, ReadOnly, Unsigned, false},
	{"Firmware_Version", 6, 1, ReadOnly, Unsigned, false},
	{MotorID, 7, 1, EEPROM, Unsigned, false},
	{BaudRate, 8, 1, EEPROM, Unsigned, false},
	{ReturnDelayTime, 9, 1, EEPROM, Unsigned, false},
	{DriveMode, 10, 1, EEPROM, Unsigned, false},
	{OperatingMode, 11, 1, EEPROM, Unsigned, false},
	{SecondaryID, 12, 1, EEPROM, Unsigned, false},
	{ProtocolType, 13, 1, EEPROM, Unsigned, false},
	{HomingOffset, 20, 4, EEPROM, Twos, false},
	{"Moving_Threshold", 24, 4, EEPROM, Unsigned, false},
	{MaxTemperatureLimit, 31, 1, EEPROM, Unsigned, false},
	{"Max_Voltage_Limit", 32, 2, EEPROM, Unsigned, false},
	{"Min_Voltage_Limit", 34, 2, EEPROM, Unsigned, false},
	{PWMLimit, 36, 2, EEPROM, Unsigned, false},
	{CurrentLimit, 38, 2, EEPROM, Unsigned, false},
	{AccelerationLimit, 40, 4, EEPROM, Unsigned, false},
	{"Velocity_Limit", 44, 4, EEPROM, Unsigned, false},
	{MaxPositionLimit, 48, 4, EEPROM, Unsigned, false},
	{MinPositionLimit, 52, 4, EEPROM, Unsigned, false},
	{"Shutdown", 63, 1, EEPROM, Unsigned, false},
	{TorqueEnable, 64, 1, RAM, Unsigned, false},
	{"LED", 65, 1, RAM, Unsigned, false},
	{ResponseStatusLevel, 68, 1, RAM, Unsigned, false},
	{"Registered_Instruction", 69, 1, ReadOnly, Unsigned, false},
	{Status, 70, 1, ReadOnly, Unsigned, false},
	{"Velocity_I_Gain", 76, 2, RAM, Unsigned, false},
	{"Velocity_P_Gain", 78, 2, RAM, Unsigned, false},
	{"Position_D_Gain", 80, 2, RAM, Unsigned, false},
	{"Position_I_Gain", 82, 2, RAM, Unsigned, false},
	{PositionPGain, 84, 2, RAM, Unsigned, false},
	{"Feedforward_2nd_Gain", 88, 2, RAM, Unsigned, false},
	{"Feedforward_1st_Gain", 90, 2, RAM, Unsigned, false},
	{BusWatchdog, 98, 1, RAM, Twos, false},
	{GoalPWM, 100, 2, RAM, Twos, false},
	{GoalCurrent, 102, 2, RAM, Twos, false},
	{GoalVelocity, 104, 4, RAM, Twos, false},
	{ProfileAcceleration, 108, 4, RAM, Unsigned, false},
	{ProfileVelocity, 112, 4, RAM, Unsigned, false},
	{GoalPosition, 116, 4, RAM, Twos, false},
	{"Realtime_Tick", 120, 2, ReadOnly, Unsigned, false},
	{"Moving", 122, 1, ReadOnly, Unsigned, false},
	{"Moving_Status", 123, 1, ReadOnly, Unsigned, false},
	{"Present_PWM", 124, 2, ReadOnly, Twos, false},
	{PresentCurrent, 126, 2, ReadOnly, Twos, false},
	{PresentVelocity, 128, 4, ReadOnly, Twos, false},
	{PresentPosition, 132, 4, ReadOnly, Twos, false},
	{"Velocity_Trajectory", 136, 4, ReadOnly, Twos, false},
	{"Position_Trajectory", 140, 4, ReadOnly, Twos, false},
	{PresentVoltage, 144, 2, ReadOnly, Unsigned, false},
	{PresentTemperature, 146, 1, ReadOnly, Unsigned, false},
}

// loadRow is the register at 126 of models without a current sensor. LeRobot calls it
// Present_Current there too; here a setting may use that name.
var loadRow = Row{PresentLoad, 126, 2, ReadOnly, Twos, false}

// axRows is the table of the AX-12A, on protocol 1.0.
var axRows = []Row{
	{ModelNumber, 0, 2, ReadOnly, Unsigned, false},
	{"Firmware_Version", 2, 1, ReadOnly, Unsigned, false},
	{MotorID, 3, 1, EEPROM, Unsigned, false},
	{BaudRate, 4, 1, EEPROM, Unsigned, false},
	{ReturnDelayTime, 5, 1, EEPROM, Unsigned, false},
	{MinPositionLimit, 6, 2, EEPROM, Unsigned, false},
	{MaxPositionLimit, 8, 2, EEPROM, Unsigned, false},
	{MaxTemperatureLimit, 11, 1, EEPROM, Unsigned, false},
	{"Min_Voltage_Limit", 12, 1, EEPROM, Unsigned, false},
	{"Max_Voltage_Limit", 13, 1, EEPROM, Unsigned, false},
	{MaxTorqueLimit, 14, 2, EEPROM, Unsigned, false},
	{ResponseStatusLevel, 16, 1, EEPROM, Unsigned, false},
	{"LED_Alarm_Condition", 17, 1, EEPROM, Unsigned, false},
	{"Shutdown", 18, 1, EEPROM, Unsigned, false},
	{TorqueEnable, 24, 1, RAM, Unsigned, false},
	{"LED", 25, 1, RAM, Unsigned, false},
	{"CW_Compliance_Margin", 26, 1, RAM, Unsigned, false},
	{"CCW_Compliance_Margin", 27, 1, RAM, Unsigned, false},
	{"CW_Compliance_Slope", 28, 1, RAM, Unsigned, false},
	{"CCW_Compliance_Slope", 29, 1, RAM, Unsigned, false},
	{GoalPosition, 30, 2, RAM, Unsigned, false},
	{GoalVelocity, 32, 2, RAM, 10, false},
	{TorqueLimit, 34, 2, RAM, Unsigned, false},
	{PresentPosition, 36, 2, ReadOnly, Unsigned, false},
	{PresentVelocity, 38, 2, ReadOnly, 10, false},
	{PresentLoad, 40, 2, ReadOnly, 10, false},
	{PresentVoltage, 42, 1, ReadOnly, Unsigned, false},
	{PresentTemperature, 43, 1, ReadOnly, Unsigned, false},
	{"Registered_Instruction", 44, 1, ReadOnly, Unsigned, false},
	{"Moving", 46, 1, ReadOnly, Unsigned, false},
	// Lock is missing: an AX-12 can be unlocked only by a power cycle.
	{"Punch", 48, 2, RAM, Unsigned, false},
}

// Operating modes of the X series.
const (
	ModePosition         = 3
	ModeExtendedPosition = 4
	ModeCurrentPosition  = 5
)
