package attend

import (
	"fmt"
	"strings"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/servo"
)

// Limits, in degrees, of the difference that two calibrations make in a joint's position. For two arms the limit is
// larger, because their ranges always differ. The ranges of one arm change only when it is calibrated again.
const (
	sameArmDegrees  = 2.0
	otherArmDegrees = 10.0
)

// compareCalibrations reports the joints for which a number means another position on this arm than
// on the recorded arm. It refuses a large difference, unless --other-calibration is set.
func (s *replay) compareCalibrations(is servo.Calibration) error {
	if s.episode.Calibration == "" {
		s.cfg.Log.Warn("the record does not hold its arm's calibration: whether its numbers mean the same places "+
			"here is unknown", "file", s.file)
		return nil
	}
	was, err := servo.ParseCalibration(s.episode.Calibration)
	if err != nil {
		return exit.Errorf(exit.Config, "%s: the arm's calibration in its metadata: %w", s.file, err)
	}
	same := s.episode.ID == s.identity.Asked || s.episode.ID == s.identity.ID
	limit, whose := sameArmDegrees, "this arm was calibrated again since"
	if !same {
		limit, whose = otherArmDegrees, fmt.Sprintf("the record is of the arm %q", s.episode.ID)
	}
	var far []string
	for _, d := range servo.Compare(s.cfg.Arm.Robot, was, is, same) {
		if d.Degrees > limit || d.Mirrored {
			far = append(far, d.String())
			continue
		}
		s.say(fmt.Sprintf("Calibrations differ: %s.", d))
	}
	switch text := strings.Join(far, "; "); {
	case text == "":
		return nil
	case s.other:
		s.say(fmt.Sprintf("Calibrations differ: %s; the replay continues, since --other-calibration is set.", text))
		return nil
	default:
		return exit.Errorf(exit.Config, "the record's numbers mean other places on this arm, as %s: %s; give the "+
			"calibration of the record with --calibration FILE, or look at the arm and add --other-calibration", whose,
			text)
	}
}

// say prints a line for the person at the terminal and logs it.
func (s *replay) say(line string) {
	fmt.Fprintln(s.cfg.Out, line)
	s.cfg.Log.Warn(line)
}
