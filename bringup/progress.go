package bringup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/userfile"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
)

// progress is the state of a calibration. A file next to the calibration's holds it from the moment when the offsets of
// the middle pose are written into the motors until the calibration is complete. So a calibration that was interrupted,
// killed or unplugged can continue.
type progress struct {
	Robot  string                `json:"robot"`
	Step   string                `json:"step"`             // moving, writing
	Joints map[string]jointSwept `json:"joints,omitempty"` // offsets, and the ranges so far
	Result servo.Calibration     `json:"result,omitempty"` // only while the result is written
}

// jointSwept is one motor's homing offset, with the range over which its joint was moved.
type jointSwept struct {
	ID     int `json:"id"`
	Offset int `json:"homing_offset"`
	Low    int `json:"low"`
	High   int `json:"high"`
}

const (
	stepMoving  = "moving"
	stepWriting = "writing"

	progressSuffix = ".unfinished"
	maxProgress    = 1 << 18 // bytes
)

func (k *calibrator) progressFile() string { return k.File() + progressSuffix }

// keep writes the progress to its file.
func (k *calibrator) keep(step string) error {
	text, err := k.encode(step)
	if err == nil {
		err = replaceFile(k.progressFile(), text)
	}
	return keepError(err)
}

func keepError(err error) error {
	if err == nil {
		return nil
	}
	return exit.Errorf(exit.Config, "keep the progress of the calibration: %w", err)
}

// keeper writes the progress in a goroutine beside the readings of the joints, because a busy disk may take seconds. It
// drops a progress that is offered during a write; a later offer makes up for this.
type keeper struct {
	texts chan []byte
	done  chan error // the first failure, once texts is closed
}

func newKeeper(path string) *keeper {
	w := &keeper{texts: make(chan []byte), done: make(chan error, 1)}
	go func() {
		var failed error
		for text := range w.texts {
			if err := replaceFile(path, text); failed == nil {
				failed = err
			}
		}
		w.done <- failed
	}()
	return w
}

// offer passes a text to the goroutine, unless the goroutine is still writing the last text.
func (w *keeper) offer(text []byte) {
	select {
	case w.texts <- text:
	default:
	}
}

// close waits for the end of the last write and returns the error of the first write that failed.
func (w *keeper) close() error {
	close(w.texts)
	return keepError(<-w.done)
}

func (k *calibrator) encode(step string) ([]byte, error) {
	k.progress.Robot = k.Robot.Name
	k.progress.Step = step
	k.progress.Joints = map[string]jointSwept{}
	for _, m := range k.Robot.Motors {
		k.progress.Joints[m.Name] = jointSwept{ID: int(m.ID), Offset: k.offsets[m.Name], High: m.Model.MaxRaw()}
	}
	for _, w := range k.ranges {
		j := k.progress.Joints[w.motor.Name]
		j.Low, j.High = w.low, w.high
		k.progress.Joints[w.motor.Name] = j
	}
	text, err := json.MarshalIndent(k.progress, "", "    ")
	return append(text, '\n'), err
}

// replaceFile replaces a file, and creates its folder if necessary.
func replaceFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return userfile.Replace(path, data)
}

// forget removes the file of a complete calibration.
func (k *calibrator) forget() {
	if err := os.Remove(k.progressFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
		k.printf("%v: remove it by hand, or the next calibration asks about it.", err)
	}
}

// resume offers to continue an unfinished calibration.
func (k *calibrator) resume(ctx context.Context) (done bool, err error) {
	p, err := loadProgress(k.progressFile())
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = p.check(k.Robot)
	}
	if err == nil {
		err = p.matches(k.session)
	}
	if err != nil {
		k.printf("The unfinished calibration at %s cannot go on: %v.", k.progressFile(), err)
		return false, nil
	}
	question := fmt.Sprintf("A calibration was interrupted after the middle pose. Press Enter to go on moving the "+
		"joints (so far: %s)", p.ranges(k.Robot))
	if p.Step == stepWriting {
		question = "A calibration was interrupted while it was written into the motors. Press Enter to write it again"
	}
	answer, err := k.ask(ctx, "%s, or c and Enter to begin anew.", question)
	if err != nil || strings.EqualFold(answer, "c") {
		return false, err
	}
	if err := k.torqueOff(ctx); err != nil {
		return false, err
	}
	if p.Step == stepWriting {
		return true, k.save(p.Result)
	}
	if err := k.goOn(p); err != nil {
		return false, err
	}
	return true, k.finish(ctx)
}

// goOn restores the ranges of an interrupted calibration.
func (k *calibrator) goOn(p progress) error {
	k.offsets = map[string]int{}
	for name, j := range p.Joints {
		k.offsets[name] = j.Offset
	}
	k.ranges = nil
	for _, m := range k.moving() {
		at, err := k.read(m, table.PresentPosition)
		if err != nil {
			return err
		}
		j := p.Joints[m.Name]
		k.ranges = append(k.ranges, resumeRange(m, j.Low, j.High, at, k.Clock.Now()))
	}
	return nil
}

func loadProgress(path string) (p progress, err error) {
	data, err := userfile.Read(path, maxProgress)
	if err != nil {
		return p, err
	}
	return parseProgress(data)
}

func parseProgress(data []byte) (p progress, err error) {
	if err := json.Unmarshal(data, &p); err != nil {
		return p, fmt.Errorf("want what edge-rt calibrate writes there: %w", err)
	}
	return p, nil
}

// check returns the reason why the progress does not fit the robot; nil: it fits.
func (p *progress) check(r robot.Robot) error {
	switch {
	case p.Robot != r.Name:
		return fmt.Errorf("it is of a %q, want a %s", p.Robot, r.Name)
	case p.Step == stepWriting:
		if err := p.Result.Check(r); err != nil {
			return err
		}
		if bad := implausibles(r, p.Result); bad != "" {
			return errors.New(bad)
		}
		return nil
	case p.Step != stepMoving:
		return fmt.Errorf("got the step %q, want %s or %s", p.Step, stepMoving, stepWriting)
	}
	for _, m := range r.Motors {
		j, ok := p.Joints[m.Name]
		most := maxTurns * m.Model.Resolution
		if !ok || j.ID != int(m.ID) || j.Low > j.High || j.Low < -most || j.High > most {
			return fmt.Errorf("it has no possible range of motor %d (%s)", m.ID, m.Name)
		}
	}
	return nil
}

// maxTurns is the largest plausible travel of a joint, in turns.
const maxTurns = 4

// matches returns an error if the motors differ from their state at the interruption. Then other software has changed
// them, or they belong to another arm.
func (p *progress) matches(s *session) error {
	for _, m := range s.Robot.Motors {
		for _, want := range bareSettings(m) {
			if want.Register == table.HomingOffset {
				want.Value = p.Joints[m.Name].Offset
			} else if p.Step == stepWriting {
				continue // the register is about to be written again
			}
			got, err := s.read(m, want.Register)
			if err != nil {
				return err
			}
			written := p.Step == stepWriting && got == p.Result[m.Name].HomingOffset
			if got != want.Value && !written {
				return fmt.Errorf("motor %d (%s) has %s %d by now, want %d", m.ID, m.Name, want.Register, got,
					want.Value)
			}
		}
	}
	return nil
}

// ranges returns, as text, the lowest and the highest position of each joint so far.
func (p *progress) ranges(r robot.Robot) string {
	var parts []string
	for _, m := range r.Motors {
		if j := p.Joints[m.Name]; !m.FullTurn {
			parts = append(parts, fmt.Sprintf("%s %d..%d", m.Name, j.Low, j.High))
		}
	}
	return strings.Join(parts, ", ")
}
