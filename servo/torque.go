package servo

// TorqueOn makes every motor hold where it is.
func (a *Arm) TorqueOn() error { return nil }

// TorqueOff makes every motor limp.
func (a *Arm) TorqueOff() error { return nil }
