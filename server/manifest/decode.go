package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/edge-rt/edge-rt/internal/userfile"
)

// draftKeys lists the keys of LeRobot's draft manifest that have another place in this manifest.
var draftKeys = map[string]string{
	"service_name":                  "here it is service",
	"trained_fps":                   "the bundle knows it (bundle.json, fps)",
	"rtc":                           "the bundle knows it (bundle.json, rtc, prefix_end)",
	"session_idle_timeout_s":        "a session lives as long as its robot's liveliness token",
	"zenoh.mode":                    "it follows from connect_endpoints and listen_endpoints",
	"zenoh.extra_config_json5":      "there is no free-form transport configuration",
	"zenoh.tls_root_ca_certificate": "here it is zenoh.tls.root_ca_certificate",
	"zenoh.tls_connect_certificate": "here it is zenoh.tls.connect_certificate",
	"zenoh.tls_connect_private_key": "here it is zenoh.tls.connect_private_key",
}

// decodeStrict fills dst, a struct with yaml tags, and returns each key's line. Errors begin with the line. The error
// for an unknown key names the most similar known key.
func decodeStrict(data []byte, dst any) (lines map[string]int, err error) {
	file, err := userfile.ParseYAML(data)
	if err != nil {
		return nil, yamlError(err)
	}
	lines = make(map[string]int)
	if len(file.Docs) > 1 {
		line := 1
		// a document begins with the line ---, if it has that line
		if second := file.Docs[1]; second.Start != nil {
			line = second.Start.Position.Line
		} else if second.Body != nil && second.Body.GetToken() != nil {
			line = second.Body.GetToken().Position.Line
		}
		return nil, fmt.Errorf("%d: a second document begins here, want one manifest per file", line)
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		return lines, nil // an empty file: only defaults
	}
	d := decoder{paths: make(map[string]string), lines: lines}
	d.collect(reflect.TypeOf(dst).Elem(), "")
	if err := d.mapping(file.Docs[0].Body, reflect.TypeOf(dst).Elem(), ""); err != nil {
		return nil, err
	}
	if err := userfile.DecodeYAML(data, dst); err != nil {
		return nil, yamlError(err)
	}
	return lines, nil
}

// yamlError turns the YAML module's error, which prints the source in colours, into one line.
func yamlError(err error) error {
	var y yaml.Error
	line := 1
	if !errors.As(err, &y) {
		// errors of package userfile have this form
		if _, failed := fmt.Sscanf(err.Error(), "line %d", &line); failed != nil {
			_, _ = fmt.Sscanf(err.Error(), "[%d:", &line) // other errors of the YAML module have this form
		}
		return fmt.Errorf("%d: %s", line, strings.Join(strings.Fields(err.Error()), " "))
	}
	if t := y.GetToken(); t != nil && t.Position != nil {
		line = t.Position.Line
	}
	text := strings.ReplaceAll(y.GetMessage(), "\t", "tab (want spaces)")
	return fmt.Errorf("%d: not valid YAML: %s", line, strings.Join(strings.Fields(text), " "))
}

// decoder compares the YAML syntax tree, which has the lines, with the struct, which has the keys' names and types,
// before any value is decoded.
type decoder struct {
	paths map[string]string // last segment or whole path -> whole path
	lines map[string]int
}

// keysOf returns the keys of a struct, in order, and their types.
func keysOf(t reflect.Type) (keys []string, types map[string]reflect.Type) {
	types = make(map[string]reflect.Type)
	for i := range t.NumField() {
		if tag := t.Field(i).Tag.Get("yaml"); tag != "" && tag != "-" {
			keys = append(keys, tag)
			types[tag] = t.Field(i).Type
		}
	}
	return keys, types
}

func (d *decoder) collect(t reflect.Type, prefix string) {
	keys, types := keysOf(t)
	for _, key := range keys {
		path := join(prefix, key)
		d.paths[path] = path
		if _, taken := d.paths[key]; !taken {
			d.paths[key] = path
		}
		if types[key].Kind() == reflect.Struct {
			d.collect(types[key], path)
		}
	}
}

func (d *decoder) mapping(node ast.Node, t reflect.Type, prefix string) error {
	m, ok := node.(ast.MapNode)
	if !ok {
		if node.Type() == ast.NullType {
			return nil
		}
		return fmt.Errorf("%d: %s must be a mapping of keys, got %s", line(node), cmp.Or(prefix, "the manifest"),
			describe(node))
	}
	keys, types := keysOf(t)
	for it := m.MapRange(); it.Next(); {
		key := it.Key().String()
		if quoted, ok := it.Key().(*ast.StringNode); ok {
			key = quoted.Value
		}
		path := join(prefix, key)
		if types[key] == nil {
			return fmt.Errorf("%d: %s", line(it.Key()), d.unknown(keys, key, path))
		}
		if d.lines[path] != 0 {
			return fmt.Errorf("%d: key %q again, it is already on line %d", line(it.Key()), path, d.lines[path])
		}
		d.lines[path] = line(it.Key())
		if err := d.value(it.Value(), types[key], path); err != nil {
			return err
		}
	}
	return nil
}

// wanted describes, for each Go kind, the YAML form of its values.
var wanted = map[reflect.Kind]struct {
	text  string
	nodes []ast.NodeType
}{
	reflect.String:  {"a string (in quotes)", []ast.NodeType{ast.StringType, ast.LiteralType}},
	reflect.Bool:    {"true or false", []ast.NodeType{ast.BoolType}},
	reflect.Int:     {"a whole number", []ast.NodeType{ast.IntegerType}},
	reflect.Float64: {"a number", []ast.NodeType{ast.IntegerType, ast.FloatType}},
	reflect.Slice:   {"a list, such as [A, B]", []ast.NodeType{ast.SequenceType}},
}

func (d *decoder) value(node ast.Node, t reflect.Type, path string) error {
	if node.Type() == ast.NullType {
		return nil // an explicit null means the default
	}
	if _, text := node.(*ast.StringNode); text && t == reflect.TypeFor[RolloutModel]() {
		return nil
	}
	if t.Kind() == reflect.Struct {
		return d.mapping(node, t, path)
	}
	want := wanted[t.Kind()]
	if path == "memory" {
		want.text = "a size with a unit, such as 512MiB"
	}
	if t == reflect.TypeFor[Capacity]() {
		if word, ok := node.(*ast.StringNode); ok && word.Value == Auto.String() {
			return nil
		}
		want.text += " or auto"
	}
	if !slices.Contains(want.nodes, node.Type()) {
		got := describe(node)
		if t == reflect.TypeFor[Secret]() {
			got = "a value of another kind"
		}
		return fmt.Errorf("%d: %s must be %s, got %s", line(node), path, want.text, got)
	}
	if list, ok := node.(*ast.SequenceNode); ok {
		for i, v := range list.Values {
			if err := d.value(v, t.Elem(), fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// unknown returns the error text for an unknown key, with the key that was probably meant.
func (d *decoder) unknown(siblings []string, key, path string) string {
	prefix := cutLast(path)
	if hint := cmp.Or(draftKeys[path], draftKeys[prefix]); hint != "" {
		return fmt.Sprintf("unknown key %q: %s", path, hint)
	}
	meant := d.paths[key]
	inList := strings.Contains(path, "[") // the keys of a list's elements occur nowhere else
	if best, ok := nearest(key, siblings); (meant == "" || inList) && ok {
		meant = join(prefix, best)
	} else if inList {
		return fmt.Sprintf("unknown key %q, known to this version: %s", path, strings.Join(siblings, ", "))
	}
	if best, ok := nearest(key, slices.Sorted(maps.Keys(d.paths))); meant == "" && ok {
		meant = d.paths[best]
	}
	if meant != "" {
		return fmt.Sprintf("unknown key %q, did you mean %q?", path, meant)
	}
	return fmt.Sprintf("unknown key %q, known to this version: %s", path, strings.Join(siblings, ", "))
}

// nearest returns the candidate with the smallest edit distance to name. ok reports that the distance is small enough
// for a typing error.
func nearest(name string, candidates []string) (best string, ok bool) {
	limit := max(min(2, len(name)-1), len(name)/3)
	for _, c := range candidates {
		if d := distance(name, c); d <= limit {
			best = c
			ok = true
			limit = d - 1
		}
	}
	return best, ok
}

// distance returns Levenshtein's distance: the fewest insertions, deletions and replacements that turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

func join(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "." + name
}

func line(n ast.Node) int {
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 1
}

// describe names a node in the operator's terms.
func describe(n ast.Node) string {
	switch v := n.(type) {
	case *ast.StringNode:
		return fmt.Sprintf("the string %q", v.Value)
	case *ast.LiteralNode:
		return "a block of text"
	case *ast.IntegerNode, *ast.FloatNode:
		return "the number " + n.String()
	case *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.String()
	case *ast.SequenceNode:
		return "a list"
	case *ast.AnchorNode, *ast.AliasNode:
		return "an anchor, want the value itself"
	case ast.MapNode:
		return "a mapping"
	}
	return "a " + strings.ToLower(n.Type().String())
}
