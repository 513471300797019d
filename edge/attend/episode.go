package attend

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// Bounds of an episode.
const (
	maxNumbers = 16 << 20 // largest number of values in all rows together
	maxHole    = time.Second
	maxRate    = 1000 // ticks per second
	listed     = 12   // episodes that an error lists
	jumpSlack  = 1.02 // factor on a tick's maximum travel, for the rounding of float32
)

// recordedEpisode holds the goals of an arm, tick by tick.
type recordedEpisode struct {
	Number      uint32
	DOF         int
	Rate        float64      // ticks per second
	Rows        []float32    // [ticks*DOF], in robot units: the goals that the gate let pass
	Torn        bool         // the files of the run may lack a part of the episode
	ID          string       // the arm's name
	Calibration string       // calibration of the recorded arm, as servo.Calibration.Text; empty in an older record
	Wheels      robot.Joints // joints that are wheels of a base: their values in a row are velocities
}

// len returns the number of ticks.
func (e *recordedEpisode) len() int { return len(e.Rows) / e.DOF }

// length returns the duration.
func (e *recordedEpisode) length() time.Duration {
	return time.Duration(float64(e.len()) / e.Rate * float64(time.Second))
}

// at sets row to the goals at a position in the episode, place, in ticks. It interpolates between two ticks.
//
//rt:noalloc
func (e *recordedEpisode) at(place float64, row []float32) {
	last := e.len() - 1
	i := min(max(int(place), 0), last)
	part := float32(min(max(place-float64(i), 0), 1))
	next := min(i+1, last)
	for j := range row {
		a, b := e.Rows[i*e.DOF+j], e.Rows[next*e.DOF+j]
		row[j] = a + part*(b-a)
	}
}

// jumps reports whether a joint moves farther from row i to the next row than step, the joint's
// maximum travel in a tick. Between such rows the recorded arm was not driven: it was disconnected, or a
// person moved it.
//
//rt:noalloc
func (e *recordedEpisode) jumps(i int, step []float32) bool {
	if i < 0 || i+1 >= e.len() {
		return false
	}
	for j, most := range step {
		d := e.Rows[(i+1)*e.DOF+j] - e.Rows[i*e.DOF+j]
		if e.Wheels.Has(j) {
			continue // a base stops at once
		}
		if most *= jumpSlack; d > most || d < -most {
			return true
		}
	}
	return false
}

// peak fills its second parameter with each joint's maximum recorded travel in a tick. It leaves out travels that
// exceed step.
func (e *recordedEpisode) peak(step, peak []float32) {
	clear(peak)
	for i := range e.len() - 1 {
		if e.jumps(i, step) {
			continue
		}
		for j := range peak {
			d := e.Rows[(i+1)*e.DOF+j] - e.Rows[i*e.DOF+j]
			peak[j] = max(peak[j], d, -d)
		}
	}
}

// frame is a recorded tick, with the position of its row.
type frame struct {
	at      rt.Instant
	episode uint32
	began   bool // an action began
	row     int  // index in rows of the tick's first value; -1: no row
}

// reader collects ticks and episodes from a record.
type reader struct {
	dof        int
	wheels     robot.Joints
	multiplied bool // the recorded run interpolated goals between two actions
	frames     []frame
	rows       []float32
	now        uint32 // episode of the newest action
	spans      []span
	headless   []uint32 // episodes whose beginning is in an earlier file
	torn       bool     // the last file has no end
}

// span is an episode from its beginning to its end.
type span struct {
	number   uint32
	from, to rt.Instant
}

// has reports whether an action of the episode began on a tick.
func (s span) has(f frame) bool { return f.began && f.at >= s.from && f.at <= s.to }

// unended is the end of an episode whose end is in no file so far.
const unended = rt.Instant(math.MaxInt64)

// load reads the record of an arm of this kind, and returns the episode with this number, also if the episode ends in
// a next file of the run. For number 0 it returns the record's only episode. Its errors have exit codes.
func load(in *os.File, arm robot.Robot, number uint32) (recordedEpisode, error) {
	r := reader{dof: len(arm.Motors), wheels: arm.Wheels()}
	var rate float64
	info, err := record.Read(in, record.Visitor{
		Begin: func(i *record.Info) (err error) {
			rate, err = fits(i.Run, arm)
			r.multiplied = i.Run["interpolation_multiplier"] != "1" && i.Run["interpolation_multiplier"] != ""
			return err
		},
		Tick:    r.tick,
		Episode: r.episode,
	})
	if err != nil {
		return recordedEpisode{}, exit.With(exit.Config, err)
	}
	r.torn = info.Torn
	s, err := r.choose(number)
	if err != nil {
		if info.Cause != nil {
			err = fmt.Errorf("%w; %w", err, info.Cause)
		}
		return recordedEpisode{}, err
	}
	if s.to == unended {
		if err := r.goOn(&s, in.Name(), info.Run["instance"]); err != nil {
			return recordedEpisode{}, exit.With(exit.Config, err)
		}
	}
	e := recordedEpisode{
		Number:      s.number,
		DOF:         r.dof,
		Rate:        rate,
		Torn:        s.to == unended && (r.torn || len(r.spans) > 0),
		ID:          info.Run["id"],
		Calibration: info.Run["calibration"],
		Wheels:      r.wheels,
	}
	return e, r.fill(&e, s)
}

// fits refuses the record of another kind of arm, and returns the record's ticks per second.
func fits(run map[string]string, arm robot.Robot) (rate float64, err error) {
	names, units := arm.ActionNames(), arm.Units()
	switch got, gotUnits := run["joints"], run["units"]; {
	case got == "":
		return 0, exit.Errorf(exit.Config, "its metadata names no joints: a record that broke off before the run was "+
			"known, or of another program")
	case got != strings.Join(names, ","):
		return 0, exit.Errorf(exit.Config, "the record is of an arm with the joints %q, and a %s has %q: name the "+
			"arm that it is of with --robot", got, arm.Name, strings.Join(names, ","))
	case gotUnits != strings.Join(units, ","):
		return 0, exit.Errorf(exit.Config,
			"the record's joints are in %q, and a %s's in %q: the numbers would mean something else", gotUnits,
			arm.Name, strings.Join(units, ","))
	}
	fps, err := strconv.ParseFloat(run["fps"], 64)
	multiplier := 1
	if err == nil && run["interpolation_multiplier"] != "" {
		multiplier, err = strconv.Atoi(run["interpolation_multiplier"])
	}
	rate = fps * float64(multiplier)
	if err != nil || math.IsNaN(rate) || rate < 1 || rate > maxRate || multiplier < 1 {
		return 0, exit.Errorf(exit.Config,
			"the record has %q actions per second and %q ticks for each, want 1 to %d ticks per second", run["fps"],
			run["interpolation_multiplier"], maxRate)
	}
	return rate, nil
}

func (r *reader) tick(m *record.Tick) error {
	switch {
	case m.Action.N > 0 && m.Action.N != r.dof:
		return fmt.Errorf("an action of %d joints, want %d", m.Action.N, r.dof)
	case m.Action.N > 0 && m.Goal.N != r.dof:
		return fmt.Errorf("an action with goals for %d joints, want %d: only the goals show how fast the arm moved",
			m.Goal.N, r.dof)
	case len(r.rows)+r.dof > maxNumbers:
		return fmt.Errorf("more than %d ticks in one record", maxNumbers/r.dof)
	}
	f := frame{at: m.At, began: m.Action.N > 0, row: -1}
	if f.began {
		r.now = m.Episode
	}
	// If the recorded run interpolated, a tick between two actions has a goal of its own.
	between := r.multiplied && !m.Starved && !m.Paused && m.Goal.N == r.dof && len(r.frames) > 0
	if f.began || between {
		for j, v := range m.Goal.Values() {
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				return fmt.Errorf("the goal of joint %d is %v, want a number", j+1, v)
			}
		}
		f.row = len(r.rows)
		r.rows = append(r.rows, m.Goal.Values()...)
	} else if r.wheels != 0 && len(r.rows) > 0 {
		f.row = len(r.rows)
		r.rows = append(r.rows, r.rows[len(r.rows)-r.dof:]...)
		r.addBase(r.rows[f.row:], m)
	}
	f.episode = r.now
	r.frames = append(r.frames, f)
	return nil
}

// addBase puts the goals that a base got on a tick without an action into the tick's row. On such a tick
// an arm keeps its goal, but a base gets another goal, mostly 0.
func (r *reader) addBase(row []float32, m *record.Tick) {
	for j := range row {
		if !r.wheels.Has(j) {
			continue
		}
		if row[j] = 0; j < m.Goal.N && m.Goal.V[j]-m.Goal.V[j] == 0 { // the difference is 0 unless V[j] is NaN or Inf
			row[j] = m.Goal.V[j]
		}
	}
}

func (r *reader) episode(m *record.Episode) error {
	var open *span // the episode in progress
	if n := len(r.spans); n > 0 && r.spans[n-1].to == unended {
		open = &r.spans[n-1]
	}
	switch {
	case !m.Ended:
		if open != nil { // the record has no end of the previous episode
			open.to = m.At
		}
		r.spans = append(r.spans, span{
			number: m.Number,
			from:   m.At,
			to:     unended,
		})
	case open != nil && open.number == m.Number:
		open.to = m.At
	case !slices.ContainsFunc(r.spans, func(s span) bool { return s.number == m.Number }):
		r.headless = append(r.headless, m.Number)
	}
	return nil
}

// goOn reads the next files of the run, up to the end of the episode s, which begins in this file. It stops where the
// next file is missing.
func (r *reader) goOn(s *span, file, instance string) error {
	names, err := record.Files(filepath.Dir(file), "")
	if err != nil || instance == "" {
		return nil
	}
	first := r.frames[0].at
	for _, name := range names { // in the order of writing
		if err := r.read(s, name, instance, first); err != nil || s.to != unended {
			return err
		}
	}
	return nil
}

// read adds the ticks of a file to r, and sets the end of the episode s, if the file is the next file of the run. It
// leaves out the ticks that the previous file has, too. The episode begins in the file whose first tick is at first.
func (r *reader) read(s *span, name, instance string, first rt.Instant) error {
	newest, to := r.frames[len(r.frames)-1].at, s.to
	next := false
	info, err := record.ReadFile(name, record.Visitor{
		Begin: func(i *record.Info) error {
			if i.Run["instance"] != instance {
				return record.ErrEnough
			}
			return nil
		},
		Tick: func(m *record.Tick) error {
			next = next || m.At > first && m.At.Sub(newest) <= maxHole
			switch {
			case !next:
				return record.ErrEnough
			case m.At <= newest: // the previous file has this tick, too
				return nil
			case len(r.spans) == 0 && m.Action.N > 0 && m.Episode != s.number:
				to = min(to, m.At-1)
				return record.ErrEnough
			}
			return r.tick(m)
		},
		Episode: func(m *record.Episode) error {
			if m.At > s.from && (!m.Ended || m.Number == s.number) {
				to = min(to, m.At)
			}
			return nil
		},
	})
	if !next {
		return nil
	}
	if s.to, r.torn = to, info.Torn; err != nil {
		err = fmt.Errorf("the next file: %w", err)
	}
	return err
}

// choose returns the episode with this number, or for number 0 the record's only episode.
func (r *reader) choose(number uint32) (span, error) {
	spans := r.spans
	if len(spans) == 0 { // the record marks no episodes, so each reset and each new task begins one
		for _, f := range r.frames {
			n := len(spans)
			if !f.began || n > 0 && spans[n-1].number == f.episode {
				continue
			}
			if n > 0 {
				spans[n-1].to = f.at - 1
			}
			spans = append(spans, span{
				number: f.episode,
				from:   f.at,
				to:     unended,
			})
		}
	}
	spans = slices.DeleteFunc(spans, func(s span) bool {
		return !slices.ContainsFunc(r.frames, s.has)
	})
	if slices.Contains(r.headless, number) || number == 0 && len(r.spans) == 0 && len(r.headless) > 0 {
		return span{}, exit.Errorf(exit.Usage, "episode %d begins in an earlier file of its run: name that file",
			cmp.Or(number, r.headless[0]))
	}
	if len(spans) == 0 {
		return span{}, exit.Errorf(exit.Config, "no action ran in the record: there is nothing to replay")
	}
	if number == 0 && len(spans) == 1 {
		return spans[0], nil
	}
	var there []string
	for _, s := range slices.Backward(spans) { // newest first, because a file may hold two runs with the same number
		if number != 0 && s.number == number {
			return s, nil
		}
		there = append(there, strconv.FormatUint(uint64(s.number), 10))
	}
	slices.Reverse(there)
	text := strings.Join(there[:min(len(there), listed)], ", ")
	if len(there) > listed {
		text += ", …"
	}
	if number == 0 {
		return span{}, exit.Errorf(exit.Usage, "the record has %d episodes (%s): choose one with --episode", len(there),
			text)
	}
	return span{}, exit.Errorf(exit.Usage, "the record has no episode %d: it has %s", number, text)
}

// fill computes the rows of episode s, one for each tick from its first action to its last. On a
// tick without a row in the record the arm got no goal, and keeps the previous goal.
func (r *reader) fill(e *recordedEpisode, s span) error {
	first, last := -1, -1
	for i, f := range r.frames {
		if s.has(f) {
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	period := float64(time.Second) / e.Rate
	at, row := r.frames[first].at, r.frames[first].row
	before := at
	for _, f := range r.frames[first : last+1] {
		if hole := f.at.Sub(before); hole < 0 || hole > maxHole {
			return exit.Errorf(exit.Config, "%v of the episode are not in the record, %.1f s after its beginning: "+
				"the arm would stop and then jump there", hole.Round(time.Millisecond), before.Sub(at).Seconds())
		}
		before = f.at
		tick := int(float64(f.at.Sub(at))/period + 0.5)
		if (tick+2)*e.DOF > maxNumbers {
			return exit.Errorf(exit.Config, "the episode has more than %d ticks", maxNumbers/e.DOF)
		}
		for e.len() < tick {
			e.Rows = append(e.Rows, r.rows[row:row+e.DOF]...)
		}
		if f.row >= 0 {
			row = f.row
		}
		// of two ticks in one period the later one is used
		e.Rows = append(e.Rows[:tick*e.DOF], r.rows[row:row+e.DOF]...)
	}
	return nil
}
