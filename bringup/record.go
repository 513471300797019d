package bringup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
)

// record follows the joints until the operator presses Enter and every range is plausible.
func (k *calibrator) record(ctx context.Context) error {
	w := newKeeper(k.progressFile())
	err := k.follow(ctx, w)
	if failed := w.close(); failed != nil {
		return errors.Join(err, failed)
	}
	if err != nil {
		return k.interrupted(err)
	}
	return nil
}

func (k *calibrator) follow(ctx context.Context, w *keeper) error {
	asked := k.Clock.Now()
	k.sayMove()
	k.listen()
	every := printEvery
	if k.Screen {
		every = drawEvery
	}
	var nextPrint, nextSave rt.Instant
	accepted := false // the operator has seen which joints moved to one side only
	for {
		select {
		case line, ok := <-k.typed.lines:
			if ok && k.typedAhead(line, asked) {
				continue
			}
			if k.drawn > 0 {
				k.drawn++ // the terminal has echoed the key
			}
			k.show(true)
			bad, sure := k.findings()
			switch {
			case bad == "" || !sure && accepted:
				return nil
			case !ok || !k.Keyboard:
				return exit.Errorf(exit.Config, "%s", bad)
			}
			asked = k.Clock.Now()
			k.sayFindings(bad, sure)
			accepted = !sure
		case <-ctx.Done():
			return exit.Errorf(exit.Failure, "interrupted")
		default:
		}
		if err := k.readAll(); err != nil {
			return err
		}
		now := k.Clock.Now()
		if now >= nextPrint {
			nextPrint = now.Add(every)
			k.show(false)
		}
		if now >= nextSave {
			nextSave = now.Add(saveEvery)
			text, err := k.encode(stepMoving)
			if err != nil {
				return err
			}
			w.offer(text)
		}
		k.Clock.SleepUntil(k.Clock.Now().Add(recordEvery))
	}
}

// interrupted saves the progress and adds the way to continue to the error.
func (k *calibrator) interrupted(err error) error {
	if failed := k.keep(stepMoving); failed != nil {
		return errors.Join(err, failed)
	}
	return fmt.Errorf("%w; the calibration file is as it was; all %d motors have new homing offsets and no limits, "+
		"so that a run refuses the arm: "+
		"run the same command again, it goes on from here (the ranges so far are in %s)", err, len(k.Robot.Motors),
		k.progressFile())
}

func (k *calibrator) sayMove() {
	var still []string
	for _, m := range k.Robot.Motors {
		if m.FullTurn {
			still = append(still, m.Name)
		}
	}
	but := ""
	if len(still) > 0 {
		but = " but " + strings.Join(still, " and ")
	}
	k.printf("Now move every joint%s slowly from one end to the other. Press Enter when all have been there.", but)
}

func (k *calibrator) sayFindings(bad string, sure bool) {
	k.drawn = 0 // so that show draws the next table below this message
	k.printf("Not yet: %s.", bad)
	if !sure {
		k.printf("If the joint was at its end and not in its middle before, its range is right: press Enter again to " +
			"take it.")
	}
}

// findings returns a text that names every joint with an implausible range. sure reports that at least one of these
// ranges cannot be correct. findings starts a range that is too large anew.
func (k *calibrator) findings() (text string, sure bool) {
	var parts, advice []string
	for _, w := range k.ranges {
		f := w.check()
		if f.text == "" && k.silent(w) {
			f = finding{"its motor does not answer", adviceSilent, true}
		}
		if f.text == "" {
			continue
		}
		parts, sure = append(parts, w.motor.Name+": "+f.text), sure || f.sure
		if f.advice == adviceLarge { // a range never becomes smaller
			*w = *newRange(w.motor, w.at, k.Clock.Now())
		}
		if !slices.Contains(advice, f.advice) {
			advice = append(advice, f.advice)
		}
	}
	return strings.Join(append(parts, advice...), "; "), sure
}

func (k *calibrator) silent(w *jointRange) bool { return k.Clock.Now().Sub(w.answered) > longSilent }

// readAll reads every joint's position. It fails when the port has gone, or when no motor has answered for silentMax.
func (k *calibrator) readAll() error {
	var last error
	newest := rt.Instant(0)
	for _, w := range k.ranges {
		at, err := k.read(w.motor, table.PresentPosition)
		switch now := k.Clock.Now(); {
		case err == nil:
			if restarts := w.restarts; w.add(at, now) != restarts {
				k.drawn = 0
				k.printf("%s", w.lostWay())
			}
		case errors.Is(err, servo.ErrPortLost) || k.bus.Lost():
			return exit.Errorf(exit.Absent, "%s has gone: plug the adapter in again", k.Bus)
		default:
			last = err
		}
		newest = max(newest, w.answered)
	}
	if last != nil && k.Clock.Now().Sub(newest) > silentMax {
		return last
	}
	return nil
}

// show draws the table over the last one on a terminal, and prints one line elsewhere.
func (k *calibrator) show(last bool) {
	if !k.Screen {
		text, enough := "", 0
		for _, w := range k.ranges {
			text += fmt.Sprintf("  %s %d..%d (%.1f degrees)", w.motor.Name, w.low, w.high,
				w.motor.Degrees(w.high-w.low))
			if w.check().text == "" {
				enough++
			}
		}
		k.printf("%s  %d of %d have moved enough", strings.TrimSpace(text), enough, len(k.ranges))
		return
	}
	text := ""
	if k.drawn > 0 {
		text = fmt.Sprintf("\x1b[%dA", k.drawn)
	}
	lines := k.table(last)
	for _, line := range lines {
		text += oneLine + line + lineEnd + "\n"
	}
	k.drawn = len(lines)
	fmt.Fprint(k.Out, text)
}

// show writes oneLine before and lineEnd after each line of a table. The terminal then cuts the line at its right edge
// and clears the rest of the old line. A wrapped line would move the next table down.
const oneLine, lineEnd = "\x1b[?7l", "\x1b[K\x1b[?7h"

// table returns a heading and one line for each joint. The line has the joint's position in its unit, its range in
// degrees from the middle pose and in counts, and a mark if the joint has moved enough.
func (k *calibrator) table(last bool) []string {
	lines := []string{fmt.Sprintf("     %-16s %18s   %26s   %22s", "JOINT", "NOW", "FROM .. TO, OFF THE MIDDLE",
		"COUNTS")}
	left := 0
	for _, w := range k.ranges {
		m := w.motor
		mark := "x"
		remark := ""
		if f := w.check(); f.text != "" {
			mark = " "
			left++
			if w.high-w.low > 2*readSlack {
				remark = remarkOf(f)
			}
		}
		if k.silent(w) {
			remark = "does not answer"
		}
		lines = append(lines, fmt.Sprintf(" [%s] %-16s %18s   %9.1f .. %-9.1f deg   %6d ..%6d ..%6d  %s", mark, m.Name,
			k.now(w),
			m.Degrees(w.low-w.middle()), m.Degrees(w.high-w.middle()), w.low, w.at, w.high, remark))
	}
	foot := fmt.Sprintf("%d of %d joints have moved enough.", len(k.ranges)-left, len(k.ranges))
	if left == 0 && !last {
		foot = "Every joint has moved enough: press Enter when all have been at both ends."
	}
	return append(lines, foot)
}

// now returns a joint's position in its unit, computed from the range so far.
func (k *calibrator) now(w *jointRange) string {
	if w.low == w.high {
		return "-"
	}
	c := servo.MotorCalibration{DriveMode: w.motor.DriveMode, RangeMin: w.low, RangeMax: w.high}
	return fmt.Sprintf("%.1f %s", servo.Normalize(w.motor, c, w.at), unitOf(w.motor.Norm))
}

func unitOf(norm robot.NormMode) string {
	switch norm {
	case robot.Degrees:
		return "degrees"
	case robot.Range0100:
		return "of 0..100"
	}
	return "of -100..100"
}

// remarkOf returns the beginning of a finding's text, short enough for a line of the table.
func remarkOf(f finding) string {
	if f.advice == adviceCentre {
		return "one side only so far"
	}
	return f.text
}
