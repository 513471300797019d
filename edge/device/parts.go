package device

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/userfile"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// ByPart is the value of a flag that the parts of a robot do not share, such as --bus: one plain value for a robot of
// one arm, or PART=VALUE once for each part. An element may hold several values, separated by commas or spaces, because
// an environment variable has only one text.
type ByPart []string

// ofPart matches the beginning of PART=VALUE, and nextPart the separator before the next one. A value
// may have commas and spaces, as a path has.
var (
	ofPart   = regexp.MustCompile(`^([a-z][a-z0-9_]*)=`)
	nextPart = regexp.MustCompile(`(?:\s*,\s*|\s+)[a-z][a-z0-9_]*=`)
)

// split returns the part's name, empty for a plain value, and the value, in which ~ and $NAME are
// expanded.
func split(text string) (part, value string) {
	if at := ofPart.FindStringSubmatchIndex(text); at != nil {
		part, text = text[:at[3]], text[at[1]:]
	}
	return part, userfile.Expand(text)
}

// items returns every PART=VALUE or plain value.
func (b ByPart) items() (items []string) {
	for _, text := range b {
		text = strings.TrimSpace(text)
		for ofPart.MatchString(text) {
			at := nextPart.FindStringIndex(text)
			if at == nil {
				break
			}
			items = append(items, text[:at[0]])
			text = strings.TrimLeft(text[at[0]:], ", \t\n")
		}
		if text != "" {
			items = append(items, text)
		}
	}
	return items
}

// Given reports whether the flag has a value.
func (b ByPart) Given() bool { return len(b.items()) > 0 }

// Values returns the values without the names of the parts.
func (b ByPart) Values() (values []string) {
	for _, item := range b.items() {
		_, value := split(item)
		values = append(values, value)
	}
	return values
}

// Text returns all values as one text, which may be the only element of a ByPart.
func (b ByPart) Text() string { return strings.Join(b, ",") }

// Spread derives a part's value from a value that names no part.
type Spread func(part, value string) string

// Of returns the value of each part of the robot, in their order; empty where a part has no value.
// For a robot of several parts it refuses a value that names no part, unless spread is given or the
// value is sim, which every part then gets. Its errors have the code exit.Usage.
func (b ByPart) Of(flag string, r robot.Robot, spread Spread) ([]string, error) {
	parts, items := r.Parts(), b.items()
	values, given := make([]string, len(parts)), make([]bool, len(parts))
	if len(items) == 1 && items[0] == Sim {
		spread = func(_, sim string) string { return sim }
	}
	if len(items) == 1 && !ofPart.MatchString(items[0]) && r.PartNames() != "" && spread != nil {
		_, value := split(items[0])
		for i, p := range parts {
			values[i] = spread(p.Name, value)
		}
		return values, nil
	}
	for _, item := range items {
		name, value := split(item)
		i := slices.IndexFunc(parts, func(p robot.Part) bool { return p.Name == name })
		switch {
		case i < 0 && r.PartNames() == "":
			return nil, exit.Errorf(exit.Usage,
				"--%s %s: %s has one arm and no part %s: want --%s VALUE, or a --robot "+
					"with that part, such as bi_so101", flag, item, r.Name, name, flag)
		case i < 0 && name == "":
			return nil, exit.Errorf(exit.Usage, "--%s %s: %s has the parts %s: want %s", flag, item, r.Name,
				r.PartNames(), form(flag, r))
		case i < 0:
			return nil, exit.Errorf(exit.Usage, "--%s %s: %s has no part %s, it has %s: want %s", flag, item, r.Name,
				name, r.PartNames(), form(flag, r))
		case value == "":
			return nil, exit.Errorf(exit.Usage, "--%s %s: want a value after the =", flag, item)
		case given[i] && values[i] != value:
			return nil, exit.Errorf(exit.Usage, "--%s is given more than once (%s): it takes one value%s, want it once",
				flag, strings.Join(items, ", "), forPart(name))
		}
		values[i], given[i] = value, true
	}
	return values, nil
}

// form returns the flags that a robot of several parts needs, such as --bus left=PORT --bus
// right=PORT.
func form(flag string, r robot.Robot) string {
	value := "PORT"
	switch {
	case strings.HasSuffix(flag, "calibration"), flag == "faults":
		value = "FILE"
	case flag == "link", flag == "scene":
		value = "PATH"
	}
	var text []string
	for _, p := range r.Parts() {
		name := p.Name
		if name != "" {
			name += "="
		}
		text = append(text, fmt.Sprintf("--%s %s%s", flag, name, value))
	}
	return strings.Join(text, " ")
}

func forPart(name string) string {
	if name == "" {
		return ""
	}
	return " for " + name
}

// Buses returns the port of each part, as Of does. A port that is missing while another part has
// one is an error, and so is one port for two parts.
func (b ByPart) Buses(flag string, r robot.Robot, spread Spread) ([]string, error) {
	buses, err := b.Of(flag, r, spread)
	if err != nil || !b.Given() {
		return buses, err
	}
	for i, p := range r.Parts() {
		if buses[i] == "" {
			return nil, exit.Errorf(exit.Usage, "no --%s for the part %s of %s: want %s", flag, p.Name, r.Name,
				form(flag, r))
		}
	}
	return buses, checkTwice(flag, r, buses)
}

// checkTwice refuses one port for two parts; two links to one port are one port.
func checkTwice(flag string, r robot.Robot, buses []string) error {
	for i, bus := range buses {
		for j := range i {
			if bus != "" && bus != Sim && RealPath(bus) == RealPath(buses[j]) {
				return exit.Errorf(exit.Usage, "--%s: %s and %s are both on %s: each arm has its own adapter", flag,
					r.Parts()[j].Name, r.Parts()[i].Name, bus)
			}
		}
	}
	return nil
}

// Places are the flags that name the ports and calibrations of a robot's parts.
type Places struct {
	Bus, Calibration ByPart
	ID               string // id of the robot; the id of a part's calibration has the part's name after it
	Part             string // name of the only part to return; empty: all parts
	Flags            string // prefix of the flags' names: "leader-", or ""
	BusFlag          string // name of the flag of the ports: "bus" or "leader"
	Some             bool   // parts without a port are left out, unless no part has a port
}

// Of returns the place of every part of a robot, in their order. The places have no port when no
// --bus is given. Its errors have the code exit.Usage.
func (f Places) Of(r robot.Robot) ([]Place, error) {
	one := slices.IndexFunc(r.Parts(), func(p robot.Part) bool { return p.Name == f.Part })
	if f.Part != "" && one < 0 {
		return nil, exit.Errorf(exit.Usage, "--part %s: %s %s", f.Part, r.Name, partsOf(r))
	}
	buses, err := f.buses(r)
	if err != nil {
		return nil, err
	}
	files, err := f.Calibration.Of(f.Flags+"calibration", r, f.spread())
	if err != nil {
		return nil, err
	}
	places := make([]Place, len(buses))
	for i, p := range r.Parts() {
		places[i] = Place{
			Part:        p.Name,
			Bus:         buses[i],
			Robot:       p.Robot,
			ID:          p.ID(f.ID),
			Calibration: files[i],
			Flags:       f.Flags,
		}
	}
	if f.Part != "" {
		return places[one : one+1], nil
	}
	if f.Some && f.Bus.Given() {
		places = slices.DeleteFunc(places, func(p Place) bool { return p.Bus == "" })
	}
	return places, nil
}

// buses returns the ports. Unless Part or Some is set, it refuses a port that is missing while
// another part has one.
func (f Places) buses(r robot.Robot) ([]string, error) {
	if f.Part == "" && !f.Some {
		return f.Bus.Buses(f.BusFlag, r, nil)
	}
	buses, err := f.Bus.Of(f.BusFlag, r, f.spread())
	if err != nil {
		return nil, err
	}
	return buses, checkTwice(f.BusFlag, r, buses)
}

// spread gives a plain value to f.Part. It returns nil if f.Part is empty.
func (f Places) spread() Spread {
	if f.Part == "" {
		return nil
	}
	return func(part, value string) string {
		if part != f.Part {
			return ""
		}
		return value
	}
}

func partsOf(r robot.Robot) string {
	if names := r.PartNames(); names != "" {
		return "has the parts " + names
	}
	return "has one arm: leave out --part"
}

// Command returns the flags of a robot's arms for a command that a person types.
func (f Places) Command(r robot.Robot) string {
	var text []string
	for _, item := range f.Bus.items() {
		text = append(text, "--"+f.BusFlag+" "+Quote(item))
	}
	if r.Flag() != DefaultRobot {
		text = append(text, "--robot "+Quote(r.Flag()))
	}
	if f.ID != "" {
		text = append(text, "--id "+Quote(f.ID))
	}
	for _, item := range f.Calibration.items() {
		text = append(text, "--calibration "+Quote(item))
	}
	return strings.Join(text, " ")
}

// CheckSwapped fails when the ports of two parts are exchanged. Then the motors at each port have the calibration of
// the other part, and not of their own part. If one part has no calibration yet, the motors at its port decide; if both
// calibrations are the same, the serial numbers of the adapters do. It opens the ports and writes nothing; a port that
// does not open proves nothing.
func CheckSwapped(places []Place, clock rt.Clock) error {
	return checkSwapped(places, clock, sysfs)
}

func checkSwapped(places []Place, clock rt.Clock, sys string) error {
	if len(places) == 1 {
		return nil
	}
	fit := make([]uint32, len(places)) // for each port, the set of parts whose calibration matches its motors
	for i, at := range places {
		own, err := at.fits(at.Bus, clock)
		if own {
			fit[i] = 1 << i
			continue // the motors may match another calibration, too
		}
		for j, other := range places {
			if j == i || err != nil && other.Robot.Flag() == at.Robot.Flag() {
				continue // other motors of the same kind would not answer, either
			}
			if fits, _ := other.fits(at.Bus, clock); fits {
				fit[i] |= 1 << j
			}
		}
	}
	for j := range places {
		for i := range j {
			a := places[i]
			b := places[j]
			mine := fit[i]&(1<<i)|fit[j]&(1<<j) != 0
			ofA := fit[j]&(1<<i) != 0
			ofB := fit[i]&(1<<j) != 0
			why := ""
			switch {
			case !mine && ofB && (ofA || a.calibration() == nil):
				why = fmt.Sprintf("the motors at %s have the calibration of %s", a.Bus, b.Part)
			case !mine && ofA && b.calibration() == nil:
				why = fmt.Sprintf("the motors at %s have the calibration of %s", b.Bus, a.Part)
			case exchanged(&a, &b, sys) && alike(&a, &b):
				why = a.Part + " " + a.exchangedWith(&b, sys)
			default:
				continue
			}
			return exit.Errorf(exit.Config, "%s and %s are swapped: %s; want --bus %s=%s --bus %s=%s", a.Part, b.Part,
				why,
				a.Part, Quote(b.Bus), b.Part, Quote(a.Bus))
		}
	}
	return nil
}

// fits reports whether the motors at a port have the part's calibration. It returns an error if the
// motors do not answer, or are of another kind.
func (p *Place) fits(bus string, clock rt.Clock) (bool, error) {
	cfg := servo.ArmConfig{Path: bus, Robot: p.Robot, Clock: clock}
	differs, err := servo.MatchCalibrations(cfg, []servo.Calibration{p.calibration()})
	return err == nil && differs[0] == nil, err
}

// calibration returns the calibration that the flags name; nil without one.
func (p *Place) calibration() servo.Calibration {
	if p.ID == "" && p.Calibration == "" {
		return nil
	}
	c, err := servo.LoadCalibration(p.File())
	if err != nil {
		return nil
	}
	return c
}
