package bringup

import (
	"errors"
	"fmt"
	"io"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
)

// EachPart runs a command for each part of a robot in turn, and ends at the first part for which the command fails. If
// the ports of the parts are swapped, it only returns an error. The parameter next is the command that it recommends
// afterwards, for the whole robot.
func EachPart(cfg Config, places []device.Place, next string, run func(Config) error) error {
	cfg.typed = new(typed)
	if err := device.CheckSwapped(places, rt.KernelClock()); err != nil {
		return err
	}
	for i, place := range places {
		cfg.Place = place
		printHeading(cfg.Out, i, &place)
		if err := run(cfg); err != nil {
			return place.Named(err)
		}
	}
	fmt.Fprintf(cfg.Out, "\nNext: %s\n", next)
	return nil
}

// printHeading prints the heading of the robot's part number i, after an empty line unless it is the first part.
func printHeading(out io.Writer, i int, p *device.Place) {
	if i > 0 {
		fmt.Fprintln(out)
	}
	fmt.Fprintf(out, "%s, a %s at %s:\n", p.Part, p.Robot.Name, p.Bus)
}

// next returns the text in the parameter before, followed by the next command. For a part of a robot it returns only
// the text, because EachPart prints the next command.
func (s *session) next(before, format string, args ...any) string {
	if s.Part != "" {
		return before
	}
	return before + " Next: " + fmt.Sprintf(format, args...)
}

// ScanParts scans the bus of every part, even if one of the buses fails, and reports all parts in one JSON object.
func ScanParts(cfg Config, places []device.Place, next string, scan func(Config) (ScanReport, error)) error {
	total := newScanReport()
	var errs []error
	for i, place := range places {
		cfg.Place = place
		printHeading(cfg.Out, i, &place)
		report, err := scan(cfg)
		if report.Servos == nil {
			report = newScanReport()
		}
		total.Parts = append(total.Parts, PartScan{
			Part:    place.Part,
			Servos:  report.Servos,
			Missing: report.Missing,
			Wrong:   report.Wrong,
		})
		for _, f := range report.Servos {
			f.Part = place.Part
			total.Servos = append(total.Servos, f)
		}
		for _, m := range report.Missing {
			total.Missing = append(total.Missing, place.Part+" "+m)
		}
		for _, m := range report.Wrong {
			total.Wrong = append(total.Wrong, place.Part+" "+m)
		}
		errs = append(errs, place.Named(err))
	}
	err := errors.Join(errs...)
	if swapped := device.CheckSwapped(places, rt.KernelClock()); swapped != nil {
		err = errors.Join(swapped, err)
	}
	if err == nil {
		fmt.Fprintf(cfg.Out, "\nNext: %s\n", next)
	}
	s := newSession(cfg)
	return errors.Join(err, s.report(total))
}

// checkID refuses to calibrate a part without an --id: LeRobot would write the calibrations of all parts into one file.
func (c *Config) checkID() error {
	if c.Part == "" || c.ID != "" || c.Calibration != "" {
		return nil
	}
	return exit.Errorf(exit.Usage, "--id is missing: with --id black the calibration of %s is black_%s.json", c.Part,
		c.Part)
}
