package table

import "strings"

// Register is a noun of the control tables.
type Register uint8

// The registers under LeRobot's names. Where two families call the same thing
// by two names, alias has the other one.
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
	VelocityP
	OverCurrentProtectionTime
	VelocityI
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

	// Dynamixel.
	FirmwareVersion
	DriveMode
	SecondaryID
	ProtocolType
	MovingThreshold
	PWMLimit
	CurrentLimit
	AccelerationLimit
	VelocityLimit
	Shutdown
	LED
	RegisteredInstruction
	VelocityIGain
	VelocityPGain
	PositionDGain
	PositionIGain
	PositionPGain
	Feedforward2ndGain
	Feedforward1stGain
	BusWatchdog
	GoalPWM
	GoalCurrent
	ProfileAcceleration
	ProfileVelocity
	RealtimeTick
	MovingStatus
	PresentPWM
	VelocityTrajectory
	PositionTrajectory
	CWComplianceMargin
	CCWComplianceMargin
	CWComplianceSlope
	CCWComplianceSlope
	Punch

	NumRegisters
)

var names = [NumRegisters]string{
	FirmwareMajor:             "Firmware_Major_Version",
	FirmwareMinor:             "Firmware_Minor_Version",
	ModelNumber:               "Model_Number",
	MotorID:                   "ID",
	BaudRate:                  "Baud_Rate",
	ReturnDelayTime:           "Return_Delay_Time",
	ResponseStatusLevel:       "Response_Status_Level",
	MinPositionLimit:          "Min_Position_Limit",
	MaxPositionLimit:          "Max_Position_Limit",
	MaxTemperatureLimit:       "Max_Temperature_Limit",
	MaxVoltageLimit:           "Max_Voltage_Limit",
	MinVoltageLimit:           "Min_Voltage_Limit",
	MaxTorqueLimit:            "Max_Torque_Limit",
	Phase:                     "Phase",
	UnloadingCondition:        "Unloading_Condition",
	LEDAlarmCondition:         "LED_Alarm_Condition",
	PCoefficient:              "P_Coefficient",
	DCoefficient:              "D_Coefficient",
	ICoefficient:              "I_Coefficient",
	MinimumStartupForce:       "Minimum_Startup_Force",
	CWDeadZone:                "CW_Dead_Zone",
	CCWDeadZone:               "CCW_Dead_Zone",
	ProtectionCurrent:         "Protection_Current",
	AngularResolution:         "Angular_Resolution",
	HomingOffset:              "Homing_Offset",
	OperatingMode:             "Operating_Mode",
	ProtectiveTorque:          "Protective_Torque",
	ProtectionTime:            "Protection_Time",
	OverloadTorque:            "Overload_Torque",
	VelocityP:                 "Velocity_closed_loop_P_proportional_coefficient",
	OverCurrentProtectionTime: "Over_Current_Protection_Time",
	VelocityI:                 "Velocity_closed_loop_I_integral_coefficient",
	TorqueEnable:              "Torque_Enable",
	Acceleration:              "Acceleration",
	GoalPosition:              "Goal_Position",
	GoalTime:                  "Goal_Time",
	GoalVelocity:              "Goal_Velocity",
	TorqueLimit:               "Torque_Limit",
	Lock:                      "Lock",
	PresentPosition:           "Present_Position",
	PresentVelocity:           "Present_Velocity",
	PresentLoad:               "Present_Load",
	PresentVoltage:            "Present_Voltage",
	PresentTemperature:        "Present_Temperature",
	Status:                    "Status",
	Moving:                    "Moving",
	PresentCurrent:            "Present_Current",
	MaximumAcceleration:       "Maximum_Acceleration",

	FirmwareVersion:       "Firmware_Version",
	DriveMode:             "Drive_Mode",
	SecondaryID:           "Secondary_ID",
	ProtocolType:          "Protocol_Type",
	MovingThreshold:       "Moving_Threshold",
	PWMLimit:              "PWM_Limit",
	CurrentLimit:          "Current_Limit",
	AccelerationLimit:     "Acceleration_Limit",
	VelocityLimit:         "Velocity_Limit",
	Shutdown:              "Shutdown",
	LED:                   "LED",
	RegisteredInstruction: "Registered_Instruction",
	VelocityIGain:         "Velocity_I_Gain",
	VelocityPGain:         "Velocity_P_Gain",
	PositionDGain:         "Position_D_Gain",
	PositionIGain:         "Position_I_Gain",
	PositionPGain:         "Position_P_Gain",
	Feedforward2ndGain:    "Feedforward_2nd_Gain",
	Feedforward1stGain:    "Feedforward_1st_Gain",
	BusWatchdog:           "Bus_Watchdog",
	GoalPWM:               "Goal_PWM",
	GoalCurrent:           "Goal_Current",
	ProfileAcceleration:   "Profile_Acceleration",
	ProfileVelocity:       "Profile_Velocity",
	RealtimeTick:          "Realtime_Tick",
	MovingStatus:          "Moving_Status",
	PresentPWM:            "Present_PWM",
	VelocityTrajectory:    "Velocity_Trajectory",
	PositionTrajectory:    "Position_Trajectory",
	CWComplianceMargin:    "CW_Compliance_Margin",
	CCWComplianceMargin:   "CCW_Compliance_Margin",
	CWComplianceSlope:     "CW_Compliance_Slope",
	CCWComplianceSlope:    "CCW_Compliance_Slope",
	Punch:                 "Punch",
}

// aliases are the names one family has for another's register.
var aliases = map[string]Register{
	"Present_Input_Voltage": PresentVoltage,
	"Temperature_Limit":     MaxTemperatureLimit,
	"Hardware_Error_Status": Status,
	"Status_Return_Level":   ResponseStatusLevel,
	"Running_Time":          GoalTime,
	"CW_Angle_Limit":        MinPositionLimit,
	"CCW_Angle_Limit":       MaxPositionLimit,
	"Moving_Speed":          GoalVelocity,
	"Max_Torque":            MaxTorqueLimit,
}

func (r Register) String() string { return names[r] }

// RegisterByName returns the register of that name, in LeRobot's spelling.
func RegisterByName(name string) (Register, bool) {
	if r, ok := aliases[name]; ok {
		return r, true
	}
	for r, n := range names {
		if strings.EqualFold(n, name) {
			return Register(r), true
		}
	}
	return 0, false
}
