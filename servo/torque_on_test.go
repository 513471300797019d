package servo

import "fmt"

// TorqueOn arms all joints with all steps of ArmStep at once, for tests without a tick.
func (a *Arm) TorqueOn() error {
	a.arming = arming{}
	if err := a.findPlaces(); err != nil {
		return err
	}
	for {
		armed, err := a.ArmStep(a.clock.Now().Add(2*ackTimeout), a.Joints())
		if err != nil {
			if off := a.TorqueOff(); off != nil { // half an arm under torque is worse than a limp arm
				err = fmt.Errorf("%w; %w", err, off)
			}
			return err
		}
		if armed {
			return nil
		}
	}
}
