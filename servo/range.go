package servo

// Range returns the calibrated range of motor i in its unit, low before high:
// what a goal is limited to.
func (a *Arm) Range(i int) (low, high float64) {
	s := &a.joints[i].scale
	low, high = s.value(int(s.min)), s.value(int(s.max))
	return min(low, high), max(low, high)
}
