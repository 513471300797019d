package servo

import "fmt"

// armSteps is the largest number of steps of an arming; six joints need fewer than ten.
const armSteps = 1000

// TorqueOn arms all joints at once, by calls of ArmStep in a row, for tests without a tick.
func (a *Arm) TorqueOn() error {
	a.arming = arming{}
	if err := a.findPlaces(); err != nil {
		return err
	}
	for range armSteps {
		armed, err := a.ArmStep(a.clock.Now().Add(2*ackTimeout), a.Joints())
		if err != nil {
			if off := a.TorqueOff(); off != nil { // an arm with torque on some joints is worse than a limp arm
				err = fmt.Errorf("%w; %w", err, off)
			}
			return err
		}
		if armed {
			return nil
		}
	}
	return fmt.Errorf("the arm is not armed after %d steps", armSteps)
}
