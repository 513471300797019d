package manifest

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"edgert/internal/strictyaml"
)

// draftKeys are keys of LeRobot's draft manifest that live elsewhere here.
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

// decodeStrict fills dst, a pointer to a struct with yaml tags, and returns the
// line of every key. Its errors begin with the line number: an unknown key with
// the nearest known one, a wrong type with the wanted one, bad YAML.
func decodeStrict(data []byte, dst any) (lines map[string]int, err error) {
	file, err := strictyaml.Parse(data)
	if err != nil {
		return nil, yamlError(err)
	}
	lines = make(map[string]int)
	if len(file.Docs) > 1 {
		return nil, fmt.Errorf("%d: a second document begins here, want one manifest per file", file.Docs[1].Start.Position.Line)
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		return lines, nil // an empty file: only defaults
	}
	w := walker{known: make(map[string]string), lines: lines}
	w.learn(reflect.TypeOf(dst).Elem(), "")
	if err := w.structure(file.Docs[0].Body, reflect.TypeOf(dst).Elem(), ""); err != nil {
		return nil, err
	}
	if err := strictyaml.Decode(data, dst); err != nil {
		return nil, yamlError(err)
	}
	return lines, nil
}

// yamlError turns the module's error, which prints the source in colours, into
// one line.
func yamlError(err error) error {
	var y yaml.Error
	if !errors.As(err, &y) {
		return fmt.Errorf("1: %s", strings.Join(strings.Fields(err.Error()), " "))
	}
	line := 1
	if t := y.GetToken(); t != nil && t.Position != nil {
		line = t.Position.Line
	}
	return fmt.Errorf("%d: not valid YAML: %s", line, strings.Join(strings.Fields(y.GetMessage()), " "))
}

// walker compares the syntax tree with the struct before anything is decoded,
// because only the tree knows lines and only the struct knows names.
type walker struct {
	known map[string]string // last segment or whole path -> whole path
	lines map[string]int
}

func (w *walker) learn(t reflect.Type, prefix string) {
	for i := range t.NumField() {
		tag := t.Field(i).Tag.Get("yaml")
		if tag == "" || tag == "-" {
			continue
		}
		path := join(prefix, tag)
		w.known[path] = path
		if _, taken := w.known[tag]; !taken {
			w.known[tag] = path
		}
		if t.Field(i).Type.Kind() == reflect.Struct {
			w.learn(t.Field(i).Type, path)
		}
	}
}

func (w *walker) structure(node ast.Node, t reflect.Type, prefix string) error {
	m, ok := node.(ast.MapNode)
	if !ok {
		if _, null := node.(*ast.NullNode); null {
			return nil
		}
		return fmt.Errorf("%d: %s must be a mapping of keys, got %s", line(node), whole(prefix), describe(node))
	}
	for it := m.MapRange(); it.Next(); {
		name := it.Key().String()
		if quoted, ok := it.Key().(*ast.StringNode); ok {
			name = quoted.Value
		}
		path := join(prefix, name)
		field, ok := fieldByTag(t, name)
		if !ok {
			return fmt.Errorf("%d: %s", line(it.Key()), w.unknown(t, name, path))
		}
		if w.lines[path] != 0 {
			return fmt.Errorf("%d: key %q again, it is already on line %d", line(it.Key()), path, w.lines[path])
		}
		w.lines[path] = line(it.Key())
		if err := w.value(it.Value(), field, path); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) value(node ast.Node, t reflect.Type, path string) error {
	if _, null := node.(*ast.NullNode); null {
		return nil // an explicit null is the default
	}
	ok, want := false, ""
	switch t.Kind() {
	case reflect.Struct:
		return w.structure(node, t, path)
	case reflect.String:
		switch node.(type) {
		case *ast.StringNode, *ast.LiteralNode:
			ok = true
		}
		want = "a string (in quotes)"
	case reflect.Bool:
		_, ok = node.(*ast.BoolNode)
		want = "true or false"
	case reflect.Int:
		_, ok = node.(*ast.IntegerNode)
		want = "a whole number"
	case reflect.Float64:
		switch node.(type) {
		case *ast.IntegerNode, *ast.FloatNode:
			ok = true
		}
		want = "a number"
	case reflect.Slice:
		seq, isSeq := node.(*ast.SequenceNode)
		if !isSeq {
			want = "a list, such as [\"tcp/localhost:7447\"]"
			break
		}
		for i, v := range seq.Values {
			if err := w.value(v, t.Elem(), fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
		return nil
	}
	if !ok {
		return fmt.Errorf("%d: %s must be %s, got %s", line(node), path, want, describe(node))
	}
	return nil
}

// unknown says what is wrong with a key and which one was probably meant.
func (w *walker) unknown(t reflect.Type, name, path string) string {
	if hint, ok := draftKeys[path]; ok {
		return fmt.Sprintf("unknown key %q: %s", path, hint)
	}
	if prefix, _, found := cutLast(path); found {
		if hint, ok := draftKeys[prefix]; ok {
			return fmt.Sprintf("unknown key %q: %s", path, hint)
		}
	}
	if known, ok := w.known[name]; ok {
		return fmt.Sprintf("unknown key %q, did you mean %q?", path, known)
	}
	siblings := make([]string, 0, t.NumField())
	for i := range t.NumField() {
		if tag := t.Field(i).Tag.Get("yaml"); tag != "" && tag != "-" {
			siblings = append(siblings, tag)
		}
	}
	if best, ok := nearest(name, siblings); ok {
		prefix, _, _ := cutLast(path)
		return fmt.Sprintf("unknown key %q, did you mean %q?", path, join(prefix, best))
	}
	if best, ok := nearest(name, slices.Sorted(maps.Keys(w.known))); ok {
		return fmt.Sprintf("unknown key %q, did you mean %q?", path, w.known[best])
	}
	return fmt.Sprintf("unknown key %q, known here: %s", path, strings.Join(siblings, ", "))
}

// nearest finds the candidate with the smallest edit distance to name, ok when
// that is close enough to be a slip of the finger.
func nearest(name string, candidates []string) (best string, ok bool) {
	limit := max(2, len(name)/3)
	for _, c := range candidates {
		if d := distance(name, c); d <= limit {
			best, ok, limit = c, true, d-1
		}
	}
	return best, ok
}

// distance is Levenshtein's: insertions, deletions and replacements from a to b.
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

func fieldByTag(t reflect.Type, name string) (reflect.Type, bool) {
	for i := range t.NumField() {
		if tag := t.Field(i).Tag.Get("yaml"); tag == name && tag != "-" {
			return t.Field(i).Type, true
		}
	}
	return nil, false
}

func join(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "." + name
}

func whole(prefix string) string {
	if prefix == "" {
		return "the manifest"
	}
	return prefix
}

func line(n ast.Node) int {
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 1
}

// describe names a node as the operator wrote it.
func describe(n ast.Node) string {
	switch v := n.(type) {
	case *ast.StringNode:
		return fmt.Sprintf("the string %q", v.Value)
	case *ast.LiteralNode:
		return "a block of text"
	case *ast.IntegerNode, *ast.FloatNode:
		return "the number " + n.String()
	case *ast.BoolNode:
		return n.String()
	case *ast.SequenceNode:
		return "a list"
	case ast.MapNode:
		return "a mapping"
	}
	return "a " + strings.ToLower(n.Type().String())
}
