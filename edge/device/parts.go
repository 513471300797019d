package device

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/userfile"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// ByPart is the value of a flag that every part of a robot has for itself, such as --bus: one plain
// value for a robot of one arm, or PART=VALUE once for each part. An element may hold several,
// separated by commas or spaces, since a variable of the environment is one text.
type ByPart []string

// ofPart matches the beginning of PART=VALUE; nextPart what separates it from the next. The value
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

// Text returns all values as one, which ByPart reads again.
func (b ByPart) Text() string { return strings.Join(b, ",") }

// Of returns the value of each part of the robot, in their order; empty where a part has no value.
// The plain value sim is every part's. Its errors have the code exit.Usage.
func (b ByPart) Of(flag string, r robot.Robot) ([]string, error) {
	parts, items := r.Parts(), b.items()
	values, given := make([]string, len(parts)), make([]bool, len(parts))
	if len(items) == 1 && items[0] == Sim && r.PartNames() != "" {
		return slices.Repeat([]string{Sim}, len(parts)), nil
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
				r.PartNames(), Form(flag, r))
		case i < 0:
			return nil, exit.Errorf(exit.Usage, "--%s %s: %s has no part %s, it has %s: want %s", flag, item, r.Name,
				name, r.PartNames(), Form(flag, r))
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

// Form returns the flags that a robot of several parts wants, such as --bus left=PORT --bus
// right=PORT.
func Form(flag string, r robot.Robot) string {
	value := "PORT"
	if strings.HasSuffix(flag, "calibration") {
		value = "FILE"
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
func (b ByPart) Buses(flag string, r robot.Robot) ([]string, error) {
	buses, err := b.Of(flag, r)
	if err != nil || !b.Given() {
		return buses, err
	}
	for i, p := range r.Parts() {
		if buses[i] == "" {
			return nil, exit.Errorf(exit.Usage, "no --%s for the part %s of %s: want %s", flag, p.Name, r.Name,
				Form(flag, r))
		}
	}
	return buses, checkTwice(flag, r, buses)
}

// checkTwice refuses one port for two parts; two links to one port are one port.
func checkTwice(flag string, r robot.Robot, buses []string) error {
	for i, bus := range buses {
		for j := range i {
			if bus != "" && bus != Sim && realPath(bus) == realPath(buses[j]) {
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
	ID               string // of the robot; a part's calibration has its name after it
	Flags            string // prefix of the flags' names: "leader-", or ""
	BusFlag          string // name of the flag of the ports: "bus" or "leader"
}

// Of returns the place of every part of a robot, in their order; without a port when no --bus is
// given. Its errors have the code exit.Usage.
func (f Places) Of(r robot.Robot) ([]Place, error) {
	buses, err := f.Bus.Buses(f.BusFlag, r)
	if err != nil {
		return nil, err
	}
	files, err := f.Calibration.Of(f.Flags+"calibration", r)
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
	return places, nil
}
