package device

import (
	"errors"
	"fmt"
	"strings"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
)

// Each returns the place of each part of a robot. Bus and Calibration of p hold the values of all
// parts, in the form of a ByPart. Its errors have the code exit.Usage.
func (p *Place) Each() ([]Place, error) { return p.places().Of(p.Robot) }

// Some is Each without the parts that have no port.
func (p *Place) Some() ([]Place, error) {
	f := p.places()
	f.Some = true
	return f.Of(p.Robot)
}

func (p *Place) places() Places {
	f := Places{
		Bus:         ByPart{p.Bus},
		Calibration: ByPart{p.Calibration},
		ID:          p.ID,
		Flags:       p.Flags,
		BusFlag:     "bus",
	}
	if p.Flags != "" {
		f.BusFlag = "leader"
	}
	return f
}

// Named adds the part's name to an error.
func (p *Place) Named(err error) error {
	if err == nil || p.Part == "" {
		return err
	}
	return fmt.Errorf("part %s: %w", p.Part, err)
}

// CheckAllPorts is CheckPorts for every part of a leader and of a follower.
func CheckAllPorts(leaders, followers []Place) error {
	for i := range leaders {
		for k := range followers {
			if err := CheckPorts(leaders[i].Bus, followers[k].Bus); err != nil {
				return leaders[i].Named(err)
			}
		}
	}
	return nil
}

// Swapped adds an explanation to err, the error of opening part i of a robot, when the ports of two parts are swapped.
// Then the motors have the calibration of another part, or each adapter was at the other part before. cfg is the
// configuration of the opening. If err is nil, the arm is open, and Swapped remembers its adapter. It returns an error
// even then if the chosen calibration is another part's, or if two arms with the same calibration have exchanged their
// adapters.
func Swapped(places []Place, i int, cfg servo.ArmConfig, err error) error {
	return swapped(places, i, cfg, err, sysfs)
}

func swapped(places []Place, i int, cfg servo.ArmConfig, err error, sys string) error {
	p := &places[i]
	for k := range places {
		other, why := &places[k], ""
		switch {
		case k == i:
			continue
		case hasCalibrationOf(p, other, cfg, err):
			why = fmt.Sprintf("has the calibration of the part %s (%s)", other.Part, other.File())
		case exchanged(p, other, sys) && (err != nil || alike(p, other)):
			why = p.exchangedWith(other, sys)
		default:
			continue
		}
		return exit.With(exit.Config, errors.Join(fmt.Errorf("the arm on %s, given for the part %s, %s: the ports are "+
			"swapped, give --%s %s", p.Bus, p.Part, why, p.places().BusFlag, other.flag(p.Bus)), err))
	}
	if err == nil {
		p.rememberAdapter(sys)
	}
	return p.Named(err)
}

// Exchanged adds an explanation to err, the error of opening the followers, when the motors at a follower's port have a
// leader's calibration. This is the calibration that the flags name for the leader. If the flags name no calibration,
// it is any calibration in LeRobot's folder for leaders.
func Exchanged(followers, leaders []Place, clock rt.Clock, err error) error {
	if !errors.Is(err, servo.ErrCalibration) && !errors.Is(err, servo.ErrWrongModel) &&
		!errors.Is(err, servo.ErrMotorMissing) {
		return err
	}
	for _, f := range followers {
		for _, l := range leaders {
			fits, file := false, l.File()
			if l.ID == "" && l.Calibration == "" {
				var none error
				_, file, none = l.choose(servo.ArmConfig{Path: f.Bus, Robot: l.Robot, Clock: clock})
				fits = none == nil
			} else {
				fits, _ = l.fits(f.Bus, clock)
			}
			if fits {
				return exit.With(exit.Config, fmt.Errorf("the arm on %s, given for the follower, has the calibration "+
					"of the leader (%s): leader and follower are exchanged, give --bus %s --leader %s: %w", f.Bus,
					file, f.flag(l.Bus), l.flag(f.Bus), err))
			}
		}
	}
	return err
}

// flag returns the value of a flag that gives this place a port.
func (p *Place) flag(bus string) string {
	if p.Part == "" {
		return Quote(bus)
	}
	return p.Part + "=" + Quote(bus)
}

// exchangedWith returns text for an error: the place p has the adapter that the place other had before.
func (p *Place) exchangedWith(other *Place, sys string) string {
	return fmt.Sprintf(
		"has the adapter with the serial number %s, which the part %s had before (if you have exchanged "+
			"the adapters, delete %s and %s)", p.adapter(sys), other.Part, p.adapterFile(), other.adapterFile())
}

// hasCalibrationOf reports whether the arm opened for a place has another place's calibration.
func hasCalibrationOf(p, other *Place, cfg servo.ArmConfig, err error) bool {
	switch {
	case err == nil:
		return p.ID == "" && p.Calibration == "" && strings.HasSuffix(idOf(cfg.File), "_"+other.Part)
	case p.Robot.Flag() == other.Robot.Flag() && !errors.Is(err, servo.ErrCalibration),
		errors.Is(err, servo.ErrCanceled):
		return false
	}
	fits, _ := other.fits(p.Bus, cfg.Clock)
	return fits
}
