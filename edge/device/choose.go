package device

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// unnamed is the file name, without .json, that LeRobot gives an arm without an id.
const unnamed = "None"

// twin returns the end of an error about an absent calibration: the flag for a calibrated arm with the same joints and
// motors, such as an SO-100 for the default so101; "" without such an arm.
func (p *Place) twin() string {
	if p.Calibration != "" || p.Part != "" {
		return ""
	}
	for _, name := range robot.Names() {
		r, err := robot.ByName(name)
		if err != nil || r.Role() != p.Robot.Role() ||
			!slices.EqualFunc(r.Motors, p.Robot.Motors, func(a, b robot.Motor) bool {
				return a.Name == b.Name && a.ID == b.ID && a.Model == b.Model
			}) {
			continue
		}
		files, _ := servo.CalibrationFiles(r)
		if slices.ContainsFunc(files, func(file string) bool { return p.ID == "" || idOf(file) == p.ID }) {
			return fmt.Sprintf("; there is one for --%srobot %s", p.Flags, name)
		}
	}
	return ""
}

// choose returns the only calibration of LeRobot's folder that matches the arm's motors, and
// sets Taken to a text with the file and the reason for the choice. A matching file that was
// calibrated without an id takes precedence over the other files, because the run has no id either.
func (p *Place) choose(cfg servo.ArmConfig) (c servo.Calibration, file string, err error) {
	files, err := servo.CalibrationFiles(p.Robot)
	if err != nil {
		return nil, "", exit.With(exit.Config, err)
	}
	cfg.File = "" // the errors below name the file of each candidate
	unreadable := make([]error, len(files))
	candidates := make([]servo.Calibration, len(files))
	for i, file := range files {
		candidates[i], unreadable[i] = servo.LoadCalibration(file)
	}
	differs, err := servo.MatchCalibrations(cfg, candidates)
	if err != nil {
		return nil, "", OpenError(err)
	}
	var match []int
	for i := range files {
		switch {
		case unreadable[i] != nil:
			differs[i] = unreadable[i]
		case differs[i] != nil:
		case idOf(files[i]) == unnamed:
			return p.take(files, i, candidates[i])
		default:
			match = append(match, i)
		}
	}
	switch len(match) {
	case 1:
		return p.take(files, match[0], candidates[match[0]])
	case 0:
		return nil, "", p.noMatch(files, differs)
	}
	return nil, "", p.manyMatch(files, match)
}

func (p *Place) take(files []string, i int, c servo.Calibration) (servo.Calibration, string, error) {
	why := "the only one"
	switch {
	case idOf(files[i]) == unnamed:
		why = "calibrated without an id, and it matches the motors"
	case len(files) > 1:
		why = fmt.Sprintf("the only match for the motors among %d files", len(files))
	default:
		why += ", and it matches the motors"
	}
	p.Taken = fmt.Sprintf("calibration %s (%s)", files[i], why)
	return c, files[i], nil
}

func (p *Place) noMatch(files []string, differs []error) error {
	var lines []string
	for i, file := range files {
		lines = append(lines, fmt.Sprintf("%s: %s", file,
			strings.TrimPrefix(differs[i].Error(), servo.ErrCalibration.Error()+": ")))
	}
	return exit.Errorf(exit.Config, "%w: no calibration of LeRobot's folder matches the motors on %s: %s; is this the "+
		"port of another arm, such as the leader? If not, calibrate this arm (edge-rt calibrate --bus %s --robot %s "+
		"--id NAME), or give its own file with --%scalibration FILE",
		servo.ErrCalibration, p.Bus, strings.Join(lines, "; "), Quote(p.Bus), Quote(p.Robot.Flag()), p.Flags)
}

func (p *Place) manyMatch(files []string, match []int) error {
	var ids, paths []string
	for _, i := range match {
		ids, paths = append(ids, idOf(files[i])), append(paths, files[i])
	}
	return exit.Errorf(exit.Config,
		"%d calibrations match the motors on %s (%s): choose one with --%sid, which is one of %s",
		len(match), p.Bus, strings.Join(paths, ", "), p.Flags, strings.Join(ids, ", "))
}

// idOf returns the id of a calibration file.
func idOf(file string) string { return strings.TrimSuffix(filepath.Base(file), ".json") }
