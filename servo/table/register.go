package table

import "strings"

// Register is a register's name in LeRobot's spelling. A register that only settings use is a
// literal in the lists of rows. A read-only register that no code uses is left out.
type Register string

const (
	ModelNumber         Register = "Model_Number"
	MotorID             Register = "ID"
	BaudRate            Register = "Baud_Rate"
	ReturnDelayTime     Register = "Return_Delay_Time"
	ResponseStatusLevel Register = "Response_Status_Level"
	MinPositionLimit    Register = "Min_Position_Limit"
	MaxPositionLimit    Register = "Max_Position_Limit"
	MaxTemperatureLimit Register = "Max_Temperature_Limit"
	GoalTime            Register = "Goal_Time"
	MaxTorqueLimit      Register = "Max_Torque_Limit"
	Phase               Register = "Phase"
	PCoefficient        Register = "P_Coefficient"
	ProtectionCurrent   Register = "Protection_Current"
	HomingOffset        Register = "Homing_Offset"
	OperatingMode       Register = "Operating_Mode"
	TorqueEnable        Register = "Torque_Enable"
	GoalPosition        Register = "Goal_Position"
	GoalVelocity        Register = "Goal_Velocity"
	TorqueLimit         Register = "Torque_Limit"
	Lock                Register = "Lock"
	PresentPosition     Register = "Present_Position"
	PresentVelocity     Register = "Present_Velocity"
	PresentLoad         Register = "Present_Load"
	PresentVoltage      Register = "Present_Voltage"
	PresentTemperature  Register = "Present_Temperature"
	Status              Register = "Status"
	PresentCurrent      Register = "Present_Current"
	DriveMode           Register = "Drive_Mode"
	SecondaryID         Register = "Secondary_ID"
	ProtocolType        Register = "Protocol_Type"
	PWMLimit            Register = "PWM_Limit"
	CurrentLimit        Register = "Current_Limit"
	AccelerationLimit   Register = "Acceleration_Limit"
	BusWatchdog         Register = "Bus_Watchdog"
	GoalPWM             Register = "Goal_PWM"
	GoalCurrent         Register = "Goal_Current"
	ProfileVelocity     Register = "Profile_Velocity"
	ProfileAcceleration Register = "Profile_Acceleration"
	Acceleration        Register = "Acceleration"
	AngularResolution   Register = "Angular_Resolution"
	PositionPGain       Register = "Position_P_Gain"
)

// aliases maps names that only one family of servos uses to the register's common name.
var aliases = map[string]Register{
	"Present_Input_Voltage": PresentVoltage,
	"Temperature_Limit":     MaxTemperatureLimit,
	"Hardware_Error_Status": Status,
	"Status_Return_Level":   ResponseStatusLevel,
	"CW_Angle_Limit":        MinPositionLimit,
	"CCW_Angle_Limit":       MaxPositionLimit,
	"Moving_Speed":          GoalVelocity,
	"Max_Torque":            MaxTorqueLimit,
}

// RegisterByName returns the register with that name, in LeRobot's spelling; ok is false when no
// model has it.
func RegisterByName(name string) (Register, bool) {
	if r, ok := aliases[name]; ok {
		return r, true
	}
	for _, m := range models {
		for r := range m.rows {
			if strings.EqualFold(string(r), name) {
				return r, true
			}
		}
	}
	return "", false
}
