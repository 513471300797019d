package table

// models lists every supported servo. When two models have the same number, a scan reports the first of them.
var models = []*Model{
	sms("sts3215", 777),
	sms("sts3250", 2825),
	sms("sm8512bl", 11272),
	x("xl330-m077", 1190, 1),
	x("xl330-m288", 1200, 1),
	x("xc330-t181", 1210, 1),
	x("xc330-t288", 1220, 1),
	x("xl430-w250", 1060, 0),
	x("xc430-w150", 1070, 0),
	x("xc430-w240", 1080, 0),
	x("xm430-w350", 1020, 2.69),
	x("xm430-w210", 1030, 2.69),
	x("xm540-w270", 1120, 2.69),
	x("xh540-w150", 1110, 2.69),
	newModel(Model{
		Name:       "ax-12a",
		Number:     12,
		Protocol:   Dynamixel1,
		Resolution: 1024,
		Span:       300,
	}, axRows),
}

// sms returns a Feetech model with a magnetic encoder; Present = Actual - Homing_Offset.
func sms(name string, number int) *Model {
	return newModel(Model{
		Name:       name,
		Number:     number,
		Protocol:   Feetech,
		Resolution: 4096,
		Span:       360,
		Offset:     -1,
		CurrentMA:  6.5,
	}, smsRows)
}

// x returns an X series model; Present = Actual + Homing_Offset. A model without a current sensor has a currentMA of 0.
// The models of size 330 have no Acceleration_Limit, nor does newer firmware of the other models.
func x(name string, number int, currentMA float64) *Model {
	rows, without := xRows, []Register{AccelerationLimit}
	if currentMA == 0 {
		rows = append([]Row{loadRow}, xRows...)
		without = append(without, PresentCurrent, CurrentLimit, GoalCurrent)
	}
	return newModel(Model{
		Name:       name,
		Number:     number,
		Protocol:   Dynamixel2,
		Resolution: 4096,
		Span:       360,
		Offset:     1,
		CurrentMA:  currentMA,
	}, rows, without...)
}
