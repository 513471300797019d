package manifest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Override is the value that the command line gives for one key. It replaces the file's value.
type Override struct {
	Key   string // path of the key, such as model.device
	Value string // the value as it was given
}

// Shown returns the value for messages: a secret is hidden, as in a report.
func (o *Override) Shown() string {
	switch typesByPath()[o.Key] {
	case reflect.TypeFor[Secret]():
		return Secret(o.Value).String()
	case reflect.TypeFor[URL]():
		return URL(o.Value).String()
	}
	return o.Value
}

// Overrides separates the arguments that set a key of the manifest, --model.device cuda or --model.device=cuda, from
// all other arguments. The result found has the values of the keys, and the result rest has the other arguments. The
// function own reports whether the program itself has a flag of this name. If a key is given twice, the last value
// counts. A list is YAML, or values with commas between them.
func Overrides(args []string, own func(flag string) bool) (rest []string, found []Override, err error) {
	keys := typesByPath()
	for i := 0; i < len(args); i++ {
		if args[i] == "--" {
			return append(rest, args[i:]...), found, nil
		}
		name, value, joined := strings.Cut(args[i], "=")
		flag, isFlag := strings.CutPrefix(name, "--")
		key := strings.ReplaceAll(flag, "-", "_")
		if _, known := keys[key]; !isFlag || own(flag) || !known && !strings.Contains(flag, ".") {
			rest = append(rest, args[i])
			continue
		}
		if !joined {
			if i++; i == len(args) {
				return nil, nil, fmt.Errorf("%s: a value is missing, give it as %[1]s=VALUE", name)
			}
			value = args[i]
		}
		found = append(found, Override{key, value})
	}
	return rest, found, nil
}

// typesByPath returns the type of every key that holds a value.
func typesByPath() map[string]reflect.Type {
	all := map[string]reflect.Type{}
	for _, s := range new(Config).Settings() {
		all[s.Key] = reflect.TypeOf(s.Value)
	}
	return all
}

// override sets the keys from the command line. It checks their values as those of the file are checked.
func (c *Config) override(overrides []Override) error {
	types := typesByPath()
	for _, o := range overrides {
		_, err := decodeStrict([]byte(o.document(types[o.Key])), c)
		if err != nil {
			_, text, _ := strings.Cut(err.Error(), ": ") // the text without the line number
			return fmt.Errorf("--%s is %q: %s", o.Key, o.Shown(), text)
		}
		c.Given(o.Key, "--"+o.Key)
	}
	return nil
}

// document returns a manifest that contains only this key.
func (o *Override) document(t reflect.Type) string {
	value := o.Value
	if t != nil {
		value = yamlValue(o.Value, t)
	}
	segments := strings.Split(o.Key, ".")
	for _, segment := range slices.Backward(segments) {
		value = fmt.Sprintf("{%s: %s}", segment, value)
	}
	return value
}

// yamlValue returns the YAML of text, a value from the command line for a key of type t.
func yamlValue(text string, t reflect.Type) string {
	quoted, _ := json.Marshal(text) // a string in YAML, too
	switch {
	case t.Kind() == reflect.String:
		return string(quoted)
	case t.Kind() == reflect.Slice && !strings.HasPrefix(text, "["):
		quoted, _ = json.Marshal(strings.Split(text, ","))
		return string(quoted)
	case strings.ContainsAny(text, "{}\n#&*!|>%@`'\",:") && t.Kind() != reflect.Slice:
		return string(quoted) // not a number: a later check reports it
	}
	return cmp.Or(text, `""`)
}

// Setting is the value of one key in effect.
type Setting struct {
	Key   string `json:"key"`   // path of the key
	Value any    `json:"value"` // as in YAML
	From  string `json:"from"`  // default, line N of the manifest, or the flag
}

// Settings lists every key with its value and the origin of the value, in the manifest's order.
func (c *Config) Settings() (all []Setting) {
	var walk func(v reflect.Value, prefix string)
	walk = func(v reflect.Value, prefix string) {
		for i := range v.NumField() {
			tag := v.Type().Field(i).Tag.Get("yaml")
			if tag == "" || tag == "-" {
				continue
			}
			path := join(prefix, tag)
			if v.Field(i).Kind() == reflect.Struct {
				walk(v.Field(i), path)
				continue
			}
			all = append(all, Setting{path, v.Field(i).Interface(), c.origin(path)})
		}
	}
	walk(reflect.ValueOf(*c), "")
	return all
}

func (c *Config) origin(path string) string {
	if flag := c.flags[path]; flag != "" {
		return flag
	}
	if line := c.lines[path]; line > 0 {
		return fmt.Sprintf("line %d", line)
	}
	return "default"
}

// Given records that a flag of the command line has set a key.
func (c *Config) Given(key, flag string) {
	if c.flags == nil {
		c.flags = map[string]string{}
	}
	c.flags[key] = flag
}
