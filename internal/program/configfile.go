package program

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/goccy/go-yaml/ast"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/userfile"
)

// configFile is the YAML file of --config: a map from flag names to values. A flag on the command
// line or an environment variable overrides the file.
type configFile struct {
	file   string // the file's name in errors
	values map[string]any
	nodes  map[string]ast.Node // syntax of the values

	broken  error // not nil: the file is not a YAML map; values then has the lines that are YAML maps by themselves
	lenient bool  // the command has the lenientTag; set by Resolve
}

// ConfigFile is the value of --config. Unlike kong.ConfigFlag it does not wait for ever for the writer of a pipe.
type ConfigFile string

// BeforeResolve reads the file.
func (ConfigFile) BeforeResolve(ctx *kong.Context, trace *kong.Path) error {
	c, err := loadConfig(userfile.Expand(string(ctx.FlagValue(trace.Flag).(ConfigFile))))
	if err == nil {
		ctx.AddResolver(c)
	}
	return err
}

func loadConfig(path string) (*configFile, error) {
	b, err := userfile.ReadYAML(path)
	file := "config file " + path
	if at, is := errors.AsType[*os.PathError](err); is && at.Op == "open" {
		return nil, err
	} else if err != nil {
		return nil, exit.Errorf(exit.Config, "%s: %w", file, err)
	}
	c, raw := &configFile{file: file, values: map[string]any{}, nodes: map[string]ast.Node{}}, map[string]any{}
	if err := c.decode(b, &raw); err != nil {
		if _, is := errors.AsType[userfile.SyntaxError](err); is {
			err = fmt.Errorf("want a YAML map from flag names to values: %w", err)
		}
		c.broken = exit.Errorf(exit.Config, "%s: %w", file, err)
		clear(raw)
		for line := range strings.Lines(string(b)) {
			one := map[string]any{}
			if c.decode([]byte(line), &one) == nil && !strings.HasPrefix(line, " ") {
				maps.Copy(raw, one)
			}
		}
	}
	for key, v := range raw {
		name := flagName(key)
		if _, twice := c.values[name]; twice && c.broken == nil {
			c.broken = exit.Errorf(exit.Config, "%s: the key %s is there twice, with - and with _", file, name)
		}
		c.values[name] = v
	}
	return c, nil
}

// decode decodes a YAML map and keeps its syntax.
func (r *configFile) decode(data []byte, raw *map[string]any) error {
	if err := userfile.DecodeYAML(data, raw); err != nil {
		return err
	}
	file, err := userfile.ParseYAML(data)
	if err != nil || len(file.Docs) == 0 {
		return err
	}
	if fields, is := file.Docs[0].Body.(ast.MapNode); is {
		for it := fields.MapRange(); it.Next(); {
			r.nodes[flagName(it.Key().GetToken().Value)] = it.Value()
		}
	}
	return nil
}

func flagName(key string) string { return strings.ReplaceAll(key, "_", "-") }

// asWritten returns v, the value of a node, with texts in place of numbers: where 1.10 is a name, it is not 1.1.
func asWritten(node ast.Node, v any) any {
	switch n := node.(type) {
	case *ast.FloatNode, *ast.IntegerNode, *ast.BoolNode:
		return n.GetToken().Value
	case *ast.AnchorNode:
		return asWritten(n.Value, v)
	case ast.MapNode:
		if m, is := v.(map[string]any); is {
			for it := n.MapRange(); it.Next(); {
				if key := it.Key().GetToken().Value; m[key] != nil {
					m[key] = asWritten(it.Value(), m[key])
				}
			}
		}
	case *ast.SequenceNode:
		if list, is := v.([]any); is && len(list) == len(n.Values) {
			for i := range list {
				list[i] = asWritten(n.Values[i], list[i])
			}
		}
	}
	return v
}

// Validate refuses a file that is not a YAML map, and keys that are not flags.
func (r *configFile) Validate(app *kong.Application) error {
	if r.lenient {
		return nil
	}
	if r.broken != nil {
		return r.broken
	}
	known := map[string]bool{}
	for _, node := range append(app.Leaves(false), app.Node) {
		for _, f := range node.Flags {
			known[f.Name] = true
		}
	}
	var unknown []string
	for key := range r.values {
		if !known[key] {
			unknown = append(unknown, key)
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return exit.Errorf(exit.Config, "%s: unknown key %s: keys are flag names without the dashes", r.file,
			strings.Join(unknown, ", "))
	}
	return nil
}

// Resolve returns the file's value for a flag, if the command accepts the flag from a file and no
// environment variable sets it.
func (r *configFile) Resolve(ctx *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	node := ctx.Selected()
	r.lenient = node != nil && node.Tag.Has(lenientTag)
	uses, limited := usesOf(node)
	if limited && slices.Contains(ctx.Model.Flags, flag) && uses[flag.Name] != used || r.broken != nil && !r.lenient {
		return nil, nil
	}
	for _, env := range flag.Envs {
		if _, set := os.LookupEnv(env); set {
			return nil, nil
		}
	}
	v, ok := r.values[flag.Name]
	if !ok {
		return nil, nil
	}
	if !isNumber(flag) {
		v = asWritten(r.nodes[flag.Name], v)
	}
	switch m := v.(type) {
	case nil:
		return nil, nil
	case map[string]any:
		if flag.Target.Kind() == reflect.Slice {
			v = pairs(m)
		}
	case []any: // kong itself decodes lists and maps
	default:
		v = fmt.Sprint(v)
	}
	if err := checkValue(flag, v); err != nil {
		return nil, exit.Errorf(exit.Usage, "%s, key %s: %w", r.file, flag.Name, err)
	}
	return v, nil
}

// isNumber reports whether a flag takes a number, or several.
func isNumber(flag *kong.Flag) bool {
	t := flag.Target.Type()
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t.Kind() >= reflect.Int && t.Kind() <= reflect.Float64
}

// pairs turns a map into the list of NAME=VALUE that a flag takes: in a file a map is easier to read.
func pairs(values map[string]any) any {
	var list []any
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if nested(values[name]) {
			return values // a later check refuses such values
		}
		list = append(list, fmt.Sprintf("%s=%v", name, values[name]))
	}
	return list
}

// nested reports whether v is a list or a map.
func nested(v any) bool {
	kind := reflect.ValueOf(v).Kind()
	return kind == reflect.Slice || kind == reflect.Map
}

func checkValue(flag *kong.Flag, v any) error {
	kind := flag.Target.Kind()
	want := "one value"
	switch kind {
	case reflect.Slice:
		want = "one value or a list of them"
	case reflect.Map:
		want = "a map"
	}
	switch v := v.(type) {
	case []any:
		if kind != reflect.Slice || slices.ContainsFunc(v, nested) {
			return fmt.Errorf("got the list %v, want %s", v, want)
		}
	case map[string]any:
		if kind != reflect.Map {
			return fmt.Errorf("got a map, want %s", want)
		}
	case string:
		if flag.Enum != "" && !flag.EnumMap()[v] {
			return fmt.Errorf("got %q, want one of %s", v, strings.Join(flag.EnumSlice(), ", "))
		}
	}
	target := reflect.New(flag.Target.Type()).Elem()
	if kind == reflect.Pointer {
		target.Set(reflect.New(target.Type().Elem()))
	}
	return flag.Mapper.Decode(&kong.DecodeContext{Value: flag.Value,
		Scan: kong.Scan().PushTyped(v, kong.FlagValueToken)}, target)
}
