// Package programtest tests a program's flags with the ranges in their tags.
package programtest

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/program"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Commands are a program's commands and flags.
type Commands struct {
	New   func() any        // returns an empty grammar
	Vars  map[string]string // for program.Program
	Needs map[string]string // for each flag or command: further words of its command line, separated by blanks
	Check func(any) error   // further checks of a run, for a command line without a command; may be nil
}

// CheckRanges tries the values at the ends of each flag's range, which the program must accept, and
// the next values outside, which it must refuse with an error that names the flag and the value. It
// reads the ranges from the flags' tags, and returns the number of flags.
func CheckRanges(t *testing.T, c Commands) (flags int) {
	t.Helper()
	parser := rttest.Must(kong.New(c.New(), kong.Vars(c.Vars)))(t)
	seen := map[*kong.Flag]bool{}
	nodes := append([]*kong.Node{parser.Model.Node}, parser.Model.Leaves(false)...)
	for _, node := range nodes {
		for _, f := range node.Flags {
			if !f.Tag.Has("range") || seen[f] {
				continue
			}
			seen[f], flags = true, flags+1
			command := ""
			if node != parser.Model.Node {
				command = commandOf(node)
			}
			for _, inside := range []bool{true, false} {
				values := ends(f, inside)
				if len(values) == 0 {
					t.Errorf("--%s: nothing to try of range %q", f.Name, f.Tag.Get("range"))
				}
				for _, value := range values {
					c.try(t, command, f.Name, value, inside)
				}
			}
		}
	}
	return flags
}

// commandOf returns a command as it is typed, without its arguments.
func commandOf(node *kong.Node) string {
	words := strings.Fields(node.Path())
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return strings.ContainsAny(w, "<[") }), " ")
}

func (c *Commands) try(t *testing.T, command, flag, value string, inside bool) {
	t.Helper()
	line := strings.Fields(strings.Join([]string{command, c.Needs[command], c.Needs[flag],
		fmt.Sprintf("--%s=%s", flag, value)}, " "))
	grammar := c.New()
	var said strings.Builder
	p := program.Program{
		Name:   "program",
		Env:    "RANGES_TEST",
		Stdout: t.Output(),
		Stderr: &said,
		Vars:   c.Vars,
	}
	_, code, _ := p.Parse(grammar, line)
	want := fmt.Sprintf("program: --%s is %s, want ", flag, value)
	switch {
	case inside && code == exit.Clean && command == "" && c.Check != nil:
		if err := c.Check(grammar); err != nil {
			t.Errorf("%q: the tag takes it, and the program does not: %v", line, err)
		}
	case inside && code != exit.Clean:
		t.Errorf("%q: exit code %d, %s; want 0", line, code, &said)
	case !inside && (code != exit.Usage || !strings.HasPrefix(said.String(), want)):
		t.Errorf("%q: exit code %d, %q; want 2 and %q", line, code, &said, want)
	}
}

// ends returns the first and the last value of each part of a range, or the values just outside.
func ends(f *kong.Flag, inside bool) (values []string) {
	kind := f.Target.Type()
	for kind.Kind() == reflect.Pointer || kind.Kind() == reflect.Slice {
		kind = kind.Elem()
	}
	text, _, _ := strings.Cut(f.Tag.Get("range"), ";")
	parts := strings.Split(text, ",")
	for _, part := range parts {
		low, high, ok := strings.Cut(part, "..")
		if !ok {
			high = low
		}
		bare, above := strings.CutPrefix(low, ">")
		if bare != "" {
			values = append(values, beside(kind, bare, inside, above, -1)...)
		}
		bare, below := strings.CutPrefix(high, "<")
		if bare != "" {
			values = append(values, beside(kind, bare, inside, below, +1)...)
		}
	}
	// An unsigned flag has no number below 0, and a number just outside one part of a range may
	// belong to another part.
	return slices.DeleteFunc(values, func(v string) bool {
		return !inside && (slices.Contains(parts, v) || kind.Kind() == reflect.Uint8 && strings.HasPrefix(v, "-"))
	})
}

// beside returns the last value inside a bound, or the first value outside. The parameter direction leads out of the
// range: -1 at its lower bound, +1 at its upper bound.
func beside(kind reflect.Type, bound string, inside, open bool, direction int) []string {
	step := 0
	switch {
	case inside && open:
		step = -direction
	case !inside && !open:
		step = direction
	}
	switch {
	case kind == reflect.TypeFor[time.Duration]():
		d := rttest.OrPanic(time.ParseDuration(bound))
		return []string{(d + time.Duration(step)).String()}
	case kind.Kind() == reflect.Float64:
		v := rttest.OrPanic(strconv.ParseFloat(bound, 64))
		if step != 0 {
			v = math.Nextafter(v, math.Inf(step))
		}
		values := []string{fmt.Sprint(v)}
		if !inside {
			values = append(values, "NaN", fmt.Sprint(math.Inf(direction)))
		}
		return values
	}
	v := rttest.OrPanic(strconv.Atoi(bound))
	return []string{strconv.Itoa(v + step)}
}
