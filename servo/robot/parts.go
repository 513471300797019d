package robot

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"

	"github.com/edge-rt/edge-rt/internal/userfile"
)

// The limits of a robot of several parts.
const (
	maxParts  = 4
	maxJoints = 24 // largest number of joints of all parts together; fewer than the bits of Joints
)

// Part is one arm of a robot. Each part has its own bus.
type Part struct {
	Name  string // name of the part, such as left; empty for the only part of a robot
	First int    // index of the part's first joint in the robot's states and actions
	Robot Robot  // the arm alone: the names of its motors have no prefix
}

// Parts returns the robot's parts in the order of its states and actions. A robot of one arm has
// itself as its only part, without a name.
func (r Robot) Parts() []Part {
	if r.parts == nil {
		return []Part{{Robot: r}}
	}
	return r.parts
}

// PartNames returns the names of the parts, such as "left, right"; empty for a robot of one arm.
func (r Robot) PartNames() string {
	var names []string
	for _, p := range r.parts {
		names = append(names, p.Name)
	}
	return strings.Join(names, ", ")
}

// Prefix returns the beginning of the names of the part's joints and cameras, such as left_.
func (p Part) Prefix() string {
	if p.Name == "" {
		return ""
	}
	return p.Name + "_"
}

// Joints returns the part's joints as a set of the robot's joints.
func (p Part) Joints() Joints { return (1<<len(p.Robot.Motors) - 1) << p.First }

// ID returns the id of the part's calibration for the robot's id: for the robot black and the part
// left it is black_left, as in LeRobot's bimanual classes. An empty id stays empty.
func (p Part) ID(id string) string {
	if p.Name == "" || id == "" {
		return id
	}
	return id + "_" + p.Name
}

// partName matches the name of a part, with which its joints' names and PART=PORT begin.
var partName = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// compose makes a robot of the file's parts. If the file has no parts, but its key "like" names a robot of parts, which
// is r, the new robot gets the parts of r. Values of the file apply to all parts.
func (f *robotFile) compose(r Robot, folder string) (Robot, error) {
	if own := f.armKeys(); own != "" {
		return r, fmt.Errorf("%s: a robot with parts leaves that to them: set it in a part's own file", own)
	}
	r.parts = slices.Clone(r.parts)
	if f.Parts != nil {
		r.LeaderName = ""
		var err error
		if r.parts, err = loadParts(f.Parts, folder); err != nil {
			return r, err
		}
	}
	if err := r.Safety.fill(f.Safety); err != nil {
		return r, err
	}
	for i := range r.parts {
		if err := r.parts[i].fill(f.Safety); err != nil {
			return r, fmt.Errorf("part %s: %w", r.parts[i].Name, err)
		}
	}
	return r.join(f.Rename)
}

// leadersOf returns the leader of the robot that a file describes: its parts are the leaders of the
// robot's parts, without a base.
func leadersOf(file string) (Robot, error) {
	follower, err := byName(file, false)
	if err != nil {
		return follower, err
	}
	r := Robot{Name: follower.Name + leaderSuffix, From: file + leaderSuffix, Safety: follower.Safety}
	for _, p := range follower.parts {
		if p.Robot.Wheels().Len() == len(p.Robot.Motors) {
			continue // a base has no leader: keys drive it
		}
		arm, err := byName(p.Robot.DefaultLeader(), true)
		if err != nil {
			return r, fmt.Errorf("the leader of the part %s: %w", p.Name, err)
		}
		r.parts = append(r.parts, Part{Name: p.Name, Robot: arm})
	}
	if r.parts == nil {
		return r, fmt.Errorf("%w: got %q, and %s names no leader: set leader: in it, such as leader: so101_leader",
			ErrUnknown, r.From, file)
	}
	return r.join(renameFile{})
}

// armKeys returns the first key of the file that only the file of one arm may have; "" without one.
func (f *robotFile) armKeys() string {
	given := []struct {
		key string
		set bool
	}{
		{"kind", f.Kind != ""}, {"calibration", f.Calibration != nil}, {"actuated", f.Actuated != nil},
		{"factory_calibrated", f.Factory != nil}, {"baud", f.Baud != 0}, {"settings", f.Settings != nil},
		{"norm", f.Norm != ""},
		{"motors", f.Motors != nil}, {"base", f.Base != nil},
		{"leader", f.Leader != ""},
	}
	for _, g := range given {
		if g.set {
			return g.key
		}
	}
	return ""
}

func loadParts(file yaml.MapSlice, folder string) (parts []Part, err error) {
	if len(file) < 2 || len(file) > maxParts {
		return nil, fmt.Errorf("parts: got %d, want 2 to %d, such as {left: so101, right: so101}", len(file), maxParts)
	}
	for _, item := range file {
		name, is := fmt.Sprint(item.Key), fmt.Sprint(item.Value)
		if !partName.MatchString(name) {
			return nil, fmt.Errorf("parts: got the name %q, want small letters, such as left", name)
		}
		if isFile(is) {
			if is = userfile.Expand(is); !path.IsAbs(is) {
				is = path.Join(folder, is)
			}
		}
		arm, err := byName(is, true)
		if err != nil {
			return nil, fmt.Errorf("parts: %s: %w", name, err)
		}
		parts = append(parts, Part{Name: name, Robot: arm})
	}
	return parts, nil
}

// fill sets the values of the robot's safety block in the part and its motors.
func (p *Part) fill(safety map[string]string) error {
	p.Robot.Motors = slices.Clone(p.Robot.Motors)
	if err := p.Robot.Safety.fill(safety); err != nil {
		return err
	}
	for i := range p.Robot.Motors {
		if err := p.Robot.Motors[i].Bounds.fill(safety); err != nil {
			return err
		}
	}
	return p.Robot.check()
}

// join fills in the robot's motors, base and names from its parts.
func (r Robot) join(file renameFile) (Robot, error) {
	r.Motors, r.Actuated = nil, true
	r.Leader = r.parts[0].Robot.Leader
	renamed := Rename{Cameras: map[string]string{}, Joints: map[string]string{}}
	names := map[string]bool{}
	for i := range r.parts {
		p := &r.parts[i]
		if p.Robot.Leader != r.Leader {
			return r, fmt.Errorf("parts: %s is a %s and %s is not: want followers or leaders", r.parts[0].Name,
				r.parts[0].Robot.kind(), p.Name)
		}
		switch {
		case p.Robot.Base == nil:
		case i < len(r.parts)-1:
			return r, fmt.Errorf("parts: %s has a base: want it as the last part", p.Name)
		default:
			r.Base = p.Robot.Base
		}
		r.Actuated = r.Actuated && p.Robot.Actuated
		p.First = len(r.Motors)
		for _, m := range p.Robot.Motors {
			m.Name = p.Prefix() + m.Name
			r.Motors, names[m.Name] = append(r.Motors, m), true
		}
		p.prefix(renamed.Cameras, p.Robot.Rename.Cameras)
		p.prefix(renamed.Joints, p.Robot.Rename.Joints)
	}
	maps.Copy(renamed.Cameras, r.Rename.Cameras)
	maps.Copy(renamed.Cameras, file.Cameras)
	maps.Copy(renamed.Joints, r.Rename.Joints)
	maps.Copy(renamed.Joints, file.Joints)
	r.Rename = renamed
	switch {
	case len(r.Motors) > maxJoints:
		return r, fmt.Errorf("parts: got %d joints, want at most %d", len(r.Motors), maxJoints)
	case len(names) != len(r.Motors):
		return r, errors.New("parts: two parts have joints of one name: rename a part")
	}
	return r, r.checkRename(names)
}

// prefix adds all entries of the second map to the first, with the part's prefix before each key and value.
func (p *Part) prefix(to, from map[string]string) {
	for old, name := range from {
		to[p.Prefix()+old] = p.Prefix() + name
	}
}

func (r Robot) kind() string {
	if r.Leader {
		return "leader"
	}
	return "follower"
}

// isName reports whether a name is a word that can be used in lists, on terminals and in paths.
func isName(name string) bool {
	return name != "" && utf8.ValidString(name) && !strings.ContainsAny(name, "/, ") &&
		!strings.ContainsFunc(name, unicode.IsControl)
}
