package v4l2

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Numbers of the controls that have names here.
//
// Source: include/uapi/linux/v4l2-controls.h (Linux 6.1).
const (
	cidAutoWhiteBalance = 0x0098090c
	cidExposure         = 0x00980911
	cidAutogain         = 0x00980912
	cidGain             = 0x00980913
	cidTemperature      = 0x0098091a
	cidExposureAuto     = 0x009a0901
	cidExposureAbsolute = 0x009a0902
	cidExposurePriority = 0x009a0903
	cidFocusAbsolute    = 0x009a090a
	cidFocusAuto        = 0x009a090c
)

type alias struct {
	name   string
	auto   uint32
	on     []int32 // values that turn on the automatic control, auto; the preferred value first
	off    int32
	values []uint32 // controls that take the number, the preferred control first
	also   uint32   // control that could override the number, so resolve sets it to 0; 0: there is none
}

// aliases are the controls that matter to a policy. With exposure priority, many webcams halve their rate in the dark,
// so a fixed exposure also sets the priority to 0.
var aliases = []alias{
	{"exposure", cidExposureAuto, []int32{3, 0, 2}, 1, []uint32{cidExposureAbsolute, cidExposure}, cidExposurePriority},
	{"white-balance", cidAutoWhiteBalance, []int32{1}, 0, []uint32{cidTemperature}, 0},
	{"focus", cidFocusAuto, []int32{1}, 0, []uint32{cidFocusAbsolute}, 0},
	{"gain", cidAutogain, []int32{1}, 0, []uint32{cidGain}, 0},
}

// assignment is one control to set.
type assignment struct {
	control Control
	value   int32
}

// resolve turns a setting into assignments, in order.
func resolve(all []Control, s Setting) ([]assignment, error) {
	for _, n := range aliases {
		if n.name == s.Name {
			return n.resolve(all, s)
		}
	}
	for _, c := range all {
		if c.Name == s.Name {
			v, err := c.parse(s.Value)
			return []assignment{{c, v}}, err
		}
	}
	return nil, fmt.Errorf("%w %s: the camera has no such control; it has %s", ErrControl, s.Name, names(all))
}

func (n *alias) resolve(all []Control, s Setting) (out []assignment, err error) {
	auto, hasAuto := find(all, n.auto)
	if s.Value == "auto" {
		if !hasAuto {
			return nil, fmt.Errorf("%w %s=auto: the camera has no automatic for it", ErrControl, s.Name)
		}
		for _, v := range n.on {
			if auto.takes(v) {
				return []assignment{{auto, v}}, nil
			}
		}
		return nil, fmt.Errorf("%w %s=auto: the camera's automatic takes %s", ErrControl, s.Name, auto.Span())
	}
	for _, id := range n.values {
		c, ok := find(all, id)
		if !ok {
			continue
		}
		v, err := c.parse(s.Value)
		if err != nil {
			return nil, err
		}
		if hasAuto && auto.takes(n.off) {
			out = append(out, assignment{auto, n.off})
		}
		if also, ok := find(all, n.also); ok && n.also != 0 {
			out = append(out, assignment{also, 0})
		}
		return append(out, assignment{c, v}), nil
	}
	return nil, fmt.Errorf("%w %s: the camera has none; it has %s", ErrControl, s.Name, names(all))
}

func find(all []Control, id uint32) (Control, bool) {
	i := slices.IndexFunc(all, func(c Control) bool { return c.ID == id })
	if i < 0 {
		return Control{}, false
	}
	return all[i], true
}

// takes reports whether v is one of the control's values.
func (c *Control) takes(v int32) bool {
	if c.Kind == "button" { // writing any value presses the button
		return true
	}
	if v < c.Min || v > c.Max || c.Step > 1 && (int64(v)-int64(c.Min))%int64(c.Step) != 0 {
		return false
	}
	return c.Kind != "menu" || int(v) < len(c.Menu) && c.Menu[v] != ""
}

// parse returns the control's value for a text: a number, on or off, or a word of the menu.
func (c *Control) parse(text string) (int32, error) {
	v, err := strconv.ParseInt(text, 10, 32)
	switch {
	case err == nil:
	case c.Kind == "boolean" && (text == "on" || text == "off"):
		v = int64(len("off") - len(text)) // "on" gives 1, "off" gives 0
	default:
		v = int64(slices.IndexFunc(c.Menu, func(word string) bool { return word != "" && slug(word) == slug(text) }))
		if v < 0 {
			return 0, fmt.Errorf("%w %s=%s: want %s", ErrControl, c.Name, text, c.Span())
		}
	}
	if c.ReadOnly {
		return 0, fmt.Errorf("%w %s=%s: it can only be read", ErrControl, c.Name, text)
	}
	if !c.takes(int32(v)) {
		return 0, fmt.Errorf("%w %s=%s: want %s", ErrControl, c.Name, text, c.Span())
	}
	return int32(v), nil
}

// Span describes the control's values.
func (c Control) Span() string {
	switch c.Kind {
	case "boolean":
		return "on or off"
	case "button":
		return "1, which presses it"
	case "menu":
		var words []string
		for v, word := range c.Menu {
			if word != "" {
				words = append(words, fmt.Sprintf("%d (%s)", v, slug(word)))
			}
		}
		return strings.Join(words, ", ")
	}
	if c.Step > 1 {
		return fmt.Sprintf("%d to %d in steps of %d", c.Min, c.Max, c.Step)
	}
	return fmt.Sprintf("%d to %d", c.Min, c.Max)
}

func names(all []Control) string {
	var out []string
	for _, c := range all {
		if !c.ReadOnly {
			out = append(out, c.Name)
		}
	}
	if len(out) == 0 {
		return "no controls"
	}
	return strings.Join(out, ", ")
}

// slug turns a driver's "Power Line Frequency" into power-line-frequency.
func slug(name string) string {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	return strings.Join(words, "-")
}
