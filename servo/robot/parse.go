package robot

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/goccy/go-yaml"

	"github.com/edge-rt/edge-rt/internal/userfile"
	"github.com/edge-rt/edge-rt/servo/table"
)

// robotFile is the form of a description file.
type robotFile struct {
	Like        string            `yaml:"like"` // built-in arm whose values are the defaults
	Name        string            `yaml:"name"`
	Type        string            `yaml:"type"` // robot_type in data sets
	Parts       yaml.MapSlice     `yaml:"parts"`
	Kind        string            `yaml:"kind"` // follower or leader
	Calibration []string          `yaml:"calibration"`
	Actuated    *bool             `yaml:"actuated"`
	Factory     *bool             `yaml:"factory_calibrated"`
	Baud        int               `yaml:"baud"`
	Settings    yaml.MapSlice     `yaml:"settings"`
	Norm        string            `yaml:"norm"` // replaces the joints' unit degrees: LeRobot's use_degrees=false
	Motors      []motorFile       `yaml:"motors"`
	Base        *baseFile         `yaml:"base"`
	Leader      string            `yaml:"leader"` // default of --leader-robot
	Rename      renameFile        `yaml:"rename"`
	Safety      map[string]string `yaml:"safety"`
}

type renameFile struct {
	Cameras map[string]string `yaml:"cameras"`
	Joints  map[string]string `yaml:"joints"`
}

type motorFile struct {
	Name        string        `yaml:"name"`
	ID          int           `yaml:"id"`
	Shadow      int           `yaml:"shadow"`
	Model       string        `yaml:"model"`
	Norm        string        `yaml:"norm"`
	MaxVelocity float64       `yaml:"max_velocity"`
	MaxStep     float64       `yaml:"max_step"`
	Limits      []float64     `yaml:"limits"`
	FullTurn    bool          `yaml:"full_turn"`
	MinTravel   float64       `yaml:"min_travel"`
	DriveMode   int           `yaml:"drive_mode"`
	Homing      int           `yaml:"homing_offset"`
	Trigger     *float64      `yaml:"trigger"`
	Settings    yaml.MapSlice `yaml:"settings"`

	Safety map[string]string `yaml:"safety"` // bounds
}

// Parse parses a description. source is the description's name in errors, which wrap ErrInvalid.
// Paths of its parts' files are relative to the folder of source.
func Parse(source string, data []byte) (Robot, error) { return parse(source, data, false) }

// parse is Parse. When part is true the description must be of one arm, so that files of parts
// cannot form a chain or a ring.
func parse(source string, data []byte, part bool) (Robot, error) {
	r, err := parseFile(path.Dir(source), data, part)
	if err != nil {
		return Robot{}, fmt.Errorf("%w: %s: %w", ErrInvalid, source, err)
	}
	return r, nil
}

func parseFile(folder string, data []byte, part bool) (Robot, error) {
	file, err := decode(data)
	if err != nil {
		return Robot{}, err
	}
	r := Robot{Safety: defaultSafety}
	if file.Like != "" {
		if r, err = like(file.Like); err != nil {
			return r, err
		}
	}
	r.Name, r.Type = cmp.Or(file.Name, r.Name), cmp.Or(file.Type, r.Type)
	if !isName(r.Name) || r.Type != "" && !isName(r.Type) {
		return r, fmt.Errorf("name and type: got %q and %q, want words", r.Name, r.Type)
	}
	if several := file.Parts != nil || r.parts != nil; several && part {
		return r, errors.New("it has parts itself; a part is one arm")
	} else if several {
		return file.compose(r, folder)
	}
	if err := file.fill(&r); err != nil {
		return r, err
	}
	return r, r.check()
}

func decode(data []byte) (file robotFile, err error) {
	if err := userfile.DecodeYAML(data, &file); err != nil {
		return file, fmt.Errorf("%w; docs/servo.md has the form, under A robot of your own", err)
	}
	return file, nil
}

// like returns the built-in arm from which another description takes its defaults. The built-in
// arm's own file must not have the key like, so that descriptions form no chains or rings.
func like(name string) (Robot, error) {
	data, err := builtIn.ReadFile("robots/" + name + ".yaml")
	if err != nil {
		return Robot{}, fmt.Errorf("like: got %q, want one of %s", name, strings.Join(Names(), ", "))
	}
	file, err := decode(data)
	if err != nil {
		return Robot{}, err
	}
	if file.Like != "" {
		return Robot{}, fmt.Errorf("like: %s is itself like %s: write that", name, file.Like)
	}
	r, err := parseFile("", data, false)
	r.LeaderName = cmp.Or(r.LeaderName, r.Name+leaderSuffix)
	return r, err
}

// fill replaces values of r by the values that the file has.
func (f *robotFile) fill(r *Robot) error {
	r.Baud, r.LeaderName = cmp.Or(f.Baud, r.Baud), cmp.Or(f.Leader, r.LeaderName)
	if !slices.Contains([]string{"", "follower", "leader"}, f.Kind) {
		return fmt.Errorf("kind: got %q, want follower or leader", f.Kind)
	}
	r.Leader = f.Kind == "leader" || f.Kind == "" && r.Leader
	if f.Actuated != nil {
		r.Actuated = *f.Actuated
	}
	if len(f.Calibration) > 0 {
		r.Calibration = f.Calibration
	}
	if f.Factory != nil {
		r.Factory = *f.Factory
	}
	if f.Rename.Cameras != nil {
		r.Rename.Cameras = f.Rename.Cameras
	}
	if f.Rename.Joints != nil {
		r.Rename.Joints = f.Rename.Joints
	}
	if f.Safety["parts"] != "" {
		return errors.New("safety: parts: this robot is one arm; only a robot with parts has it")
	}
	if err := r.Safety.fill(f.Safety); err != nil {
		return err
	}
	common, err := settings(f.Settings)
	if err != nil {
		return err
	}
	if f.Base != nil {
		if r.Base, err = f.Base.base(); err != nil {
			return err
		}
	}
	if len(f.Motors) > 0 {
		r.Motors = nil
		for _, m := range f.Motors {
			motor, err := m.motor()
			if err != nil {
				return fmt.Errorf("motor %q: %w", m.Name, err)
			}
			r.Motors = append(r.Motors, motor)
		}
	}
	inDegrees := func(m Motor) bool { return m.Norm == Degrees }
	if f.Norm != "" && (f.Norm != RangeM100.String() || !slices.ContainsFunc(r.Motors, inDegrees)) {
		return fmt.Errorf("norm: got %q, want range_m100_100 for an arm with joints in degrees", f.Norm)
	}
	for i := range r.Motors {
		m := &r.Motors[i]
		if f.Norm != "" && inDegrees(*m) {
			m.Norm = RangeM100
		}
		if err := m.Bounds.fill(f.Safety); err != nil {
			return err
		}
		if len(f.Motors) == 0 {
			m.Settings = merge(m.Settings, common) // this file's settings replace the built-in arm's
			continue
		}
		m.Settings = merge(common, m.Settings)
		if err := m.Bounds.fillOnly(f.Motors[i].Safety); err != nil {
			return fmt.Errorf("motor %q: %w", m.Name, err)
		}
	}
	return nil
}

func (f *motorFile) motor() (m Motor, err error) {
	m = Motor{
		Name:        f.Name,
		MaxVelocity: f.MaxVelocity,
		MaxStep:     f.MaxStep,
		FullTurn:    f.FullTurn,
		MinTravel:   f.MinTravel,
		DriveMode:   f.DriveMode,
		Homing:      f.Homing,
		Trigger:     f.Trigger,
	}
	if f.ID < 0 || f.ID > maxID || f.Shadow < 0 || f.Shadow > maxID {
		return m, fmt.Errorf("got id %d and shadow %d, want 0 to %d", f.ID, f.Shadow, maxID)
	}
	m.ID, m.Shadow = uint8(f.ID), uint8(f.Shadow)
	if m.Model, err = table.ByName(f.Model); err != nil {
		if f.Model == "" {
			err = fmt.Errorf("%w; motors here replace all of those of like, each with id, model, norm and max_velocity",
				err)
		}
		return m, err
	}
	norm, ok := norms[strings.ToLower(f.Norm)]
	if !ok {
		return m, fmt.Errorf("norm: got %q, want degrees, range_0_100, range_m100_100 or velocity (a "+
			"wheel)", f.Norm)
	}
	m.Norm = norm
	if f.Limits != nil {
		if len(f.Limits) != 2 || !(f.Limits[0] < f.Limits[1]) {
			return m, fmt.Errorf("limits: got %v, want [low, high]", f.Limits)
		}
		m.Limits = [2]float64(f.Limits)
	}
	m.Settings, err = settings(f.Settings)
	return m, err
}

// settings converts a file's settings, with names of registers as keys, in their order.
func settings(file yaml.MapSlice) (out []Setting, err error) {
	for _, item := range file {
		name := fmt.Sprint(item.Key)
		reg, ok := table.RegisterByName(name)
		if !ok {
			return nil, fmt.Errorf("settings: no register %q to set, want one of LeRobot's names, such as "+
				"Return_Delay_Time",
				name)
		}
		if slices.ContainsFunc(out, func(s Setting) bool { return s.Register == reg }) {
			return nil, fmt.Errorf("settings: %s occurs twice: remove one of them", reg)
		}
		if slices.Contains(barred, reg) {
			return nil, fmt.Errorf("settings: %s is no setting: it is written by setup-motors, calibrate or the "+
				"driver itself", reg)
		}
		var v int
		switch n := item.Value.(type) {
		case uint64:
			if n > math.MaxInt32 {
				return nil, fmt.Errorf("settings: %s = %d does not fit", reg, n)
			}
			v = int(n)
		case int64:
			v = int(n)
		default:
			return nil, fmt.Errorf("settings: %s: got %v, want a whole number", reg, item.Value)
		}
		out = append(out, Setting{reg, v})
	}
	return out, nil
}

// barred are the registers that no description may set, since a wrong value makes a motor unreachable, or makes it run
// away or move at once. Phase is among them because some of its bits differ between servos.
var barred = []table.Register{
	table.MotorID, table.BaudRate, table.ResponseStatusLevel, table.Phase, table.SecondaryID, table.ProtocolType,
	table.HomingOffset,
	table.MinPositionLimit, table.MaxPositionLimit, table.TorqueEnable, table.Lock, table.GoalPosition,
	table.GoalVelocity, table.GoalPWM, table.BusWatchdog,
}

// merge returns earlier with the values of later. A setting of later replaces the earlier setting
// of the same register, or is appended when there is none.
func merge(earlier, later []Setting) []Setting {
	out := slices.Clone(earlier)
	for _, s := range later {
		if i := slices.IndexFunc(out, func(c Setting) bool { return c.Register == s.Register }); i >= 0 {
			out[i] = s
			continue
		}
		out = append(out, s)
	}
	return out
}

// fill sets the values of the file's safety block.
func (s *Safety) fill(file map[string]string) error {
	for key, value := range file {
		if new(Bounds).place(key) != nil {
			continue // a bound belongs to the motors
		}
		if err := s.set(key, value); err != nil {
			return fmt.Errorf("safety: %s: got %q, want %w", key, value, err)
		}
	}
	return nil
}

func (s *Safety) set(key, value string) (err error) {
	reactions := map[string]*Reaction{"overload": &s.Overload, "overheat": &s.Overheat, "voltage": &s.Voltage,
		"encoder": &s.Encoder, "stall": &s.Stall}
	returns := map[string]*Return{"after_replug": &s.AfterReplug, "after_reset": &s.AfterReset}
	times := map[string]*time.Duration{"bus_watchdog": &s.BusWatchdog, "slew_for": &s.SlewFor, "stall_for": &s.StallFor}
	switch {
	case reactions[key] != nil:
		*reactions[key] = Reaction(value)
		if !slices.Contains([]Reaction{Ignore, Hold, Limp, Stop}, Reaction(value)) {
			return fmt.Errorf("ignore, hold, limp or stop")
		}
	case returns[key] != nil:
		*returns[key] = Return(value)
		if Return(value) != Resume && Return(value) != Operator {
			return fmt.Errorf("resume or operator")
		}
	case times[key] != nil:
		if *times[key], err = time.ParseDuration(value); err != nil || *times[key] < 0 || *times[key] > 10*time.Second {
			return fmt.Errorf("a time such as 100ms, up to 10s")
		}
	case key == "parts":
		s.Parts = Coupling(value)
		if s.Parts != Together && s.Parts != Apart {
			return fmt.Errorf("together or apart")
		}
	case key == "slew":
		if s.Slew, err = strconv.ParseFloat(value, 64); err != nil || !(s.Slew > 0 && s.Slew <= 1) {
			return fmt.Errorf("a share above 0 and up to 1")
		}
	default:
		return fmt.Errorf("overload, overheat, voltage, encoder, stall, stall_for, after_replug, after_reset, "+
			"bus_watchdog, slew, slew_for, parts, %s", boundKeys)
	}
	return nil
}

func (r *Robot) check() error {
	switch {
	case len(r.Calibration) == 0:
		return fmt.Errorf("calibration is missing: want the folder of LeRobot's files, such as [so_follower]")
	case len(r.Motors) == 0 || len(r.IDs()) > maxMotors:
		return fmt.Errorf("motors: got %d, want 1 to %d", len(r.IDs()), maxMotors)
	case r.Actuated && !r.Leader:
		return fmt.Errorf("actuated: only a leader is, a follower is driven anyway")
	case r.Baud < 1200 || r.Baud > 10_500_000:
		return fmt.Errorf("baud: got %d, want 1200 to 10500000", r.Baud)
	}
	for _, c := range r.Calibration {
		if c == "" || strings.ContainsAny(c, "/\\") || strings.ContainsFunc(c, unicode.IsControl) || c == ".." {
			return fmt.Errorf("calibration: got %q, want the name of a folder", c)
		}
	}
	ids, names := map[uint8]string{}, map[string]bool{}
	for _, m := range r.Motors {
		if err := r.checkMotor(m); err != nil {
			return fmt.Errorf("motor %q: %w", m.Name, err)
		}
		for _, id := range []uint8{m.ID, m.Shadow} {
			if other, twice := ids[id]; twice {
				return fmt.Errorf("motor %q: id %d is %q's", m.Name, id, other)
			}
			if ids[id] = m.Name; m.Shadow == 0 {
				break
			}
		}
		if names[m.Name] {
			return fmt.Errorf("motor %q occurs twice", m.Name)
		}
		names[m.Name] = true
	}
	if err := r.checkBase(); err != nil {
		return err
	}
	return r.checkRename(names)
}

// fastest is the largest max_velocity: no servo is as fast, so a larger number is a typing error that would lift the
// limit.
const fastest = 1e4

func (r *Robot) checkMotor(m Motor) error {
	first := r.Motors[0].Model
	switch {
	case !isName(m.Name) || strings.Contains(m.Name, "."):
		return fmt.Errorf("got that name, want a word")
	case m.Model.Protocol != first.Protocol:
		return fmt.Errorf("%s uses %s and %s uses %s: one bus has one protocol", m.Model.Name, m.Model.Protocol,
			first.Name, first.Protocol)
	case m.Norm == Velocity:
		if err := m.checkWheel(); err != nil {
			return err
		}
	case !(m.MaxVelocity > 0 && m.MaxVelocity <= fastest):
		return fmt.Errorf("max_velocity: got %v, want above 0, up to 1e4, in its unit per second", m.MaxVelocity)
	case !(m.MinTravel >= 0 && m.MinTravel < 360):
		return fmt.Errorf("min_travel: got %v, want 0 (the usual) to 360 degrees", m.MinTravel)
	case !(m.MaxStep >= 0):
		return fmt.Errorf("max_step: got %v, want 0 (no limit) or more", m.MaxStep)
	case m.Shadow != 0 && !m.Model.Has(table.SecondaryID):
		return fmt.Errorf("shadow: %s has no Secondary_ID", m.Model.Name)
	case m.Trigger != nil && !(math.Abs(*m.Trigger) <= 360):
		return fmt.Errorf("trigger: got %v, want a position of the joint, in its unit", *m.Trigger)
	case m.Trigger != nil && !r.Leader:
		return fmt.Errorf("trigger: only a leader has one")
	case m.Trigger != nil && r.Actuated:
		return fmt.Errorf("trigger: it is held where it is, and an actuated leader is driven: leave one of them out")
	}
	if err := m.Bounds.check(r.Safety); err != nil {
		return err
	}
	for _, reg := range []table.Register{table.PresentPosition, table.GoalPosition, table.TorqueEnable} {
		if m.Model.Row(reg) != first.Row(reg) {
			return fmt.Errorf("%s has %s at another address than %s: they cannot share a sync read", m.Model.Name, reg,
				first.Name)
		}
	}
	for _, s := range m.Settings {
		row := m.Model.Row(s.Register)
		if row.Size == 0 || row.Area == table.ReadOnly {
			return fmt.Errorf("settings: %s has no %s to write", m.Model.Name, s.Register)
		}
		if err := row.Check(s.Value); err != nil {
			return fmt.Errorf("settings: %w", err)
		}
		if why := m.notDriveable(s); why != "" {
			return fmt.Errorf("settings: %s = %d: %s", s.Register, s.Value, why)
		}
	}
	return nil
}

// notDriveable returns the reason why a motor cannot be driven with a setting; "" when it can.
func (m Motor) notDriveable(s Setting) string {
	positions := []int{0}
	if m.Model.Protocol == table.Dynamixel2 {
		positions = []int{table.ModePosition, table.ModeExtendedPosition, table.ModeCurrentPosition}
	}
	switch {
	case s.Register == table.OperatingMode && m.Norm != Velocity && !slices.Contains(positions, s.Value):
		return fmt.Sprintf("it does not go to positions then, and may turn without an end; want one of %v", positions)
	case s.Register == "Max_Voltage_Limit":
		if low, _ := m.Setting("Min_Voltage_Limit"); low > s.Value {
			return fmt.Sprintf("below Min_Voltage_Limit, %d; want it above", low)
		}
	case s.Register == table.AngularResolution && s.Value > 1:
		return "its positions are no counts of 4096 to a turn then; want 1"
	}
	return ""
}

func (r *Robot) checkRename(names map[string]bool) error {
	for from, to := range r.Rename.Joints {
		if !names[from] || !isName(to) {
			return fmt.Errorf("rename: joints: %s: %q: want a joint of this robot and its new name, a word", from, to)
		}
	}
	all := r.ActionNames()
	for i, name := range all {
		if slices.Contains(all[:i], name) {
			return fmt.Errorf("rename: joints: two joints are called %s", strings.TrimSuffix(name, ".pos"))
		}
	}
	cameras := map[string]bool{}
	for from, to := range r.Rename.Cameras {
		if from == "" || !isName(to) || cameras[to] {
			return fmt.Errorf("rename: cameras: %q: %q: want two names, words, each new one once", from, to)
		}
		cameras[to] = true
	}
	return nil
}
