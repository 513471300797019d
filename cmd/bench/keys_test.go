package main

import (
	"encoding"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/bench/bus"
	"github.com/edge-rt/edge-rt/bench/camera"
	"github.com/edge-rt/edge-rt/bench/faults"
	"github.com/edge-rt/edge-rt/bench/gpu"
	"github.com/edge-rt/edge-rt/bench/jitter"
	"github.com/edge-rt/edge-rt/bench/jpeg"
	"github.com/edge-rt/edge-rt/bench/latency"
	"github.com/edge-rt/edge-rt/bench/recipe"
	"github.com/edge-rt/edge-rt/bench/safety"
	"github.com/edge-rt/edge-rt/bench/serve"
	"github.com/edge-rt/edge-rt/bench/wire"
	"github.com/edge-rt/edge-rt/bringup"
	"github.com/edge-rt/edge-rt/bringup/doctor"
	"github.com/edge-rt/edge-rt/edge"
	"github.com/edge-rt/edge-rt/edge/attend"
	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/record/why"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server"
	"github.com/edge-rt/edge-rt/server/capacity"
)

const (
	root   = "../.."
	module = "github.com/edge-rt/edge-rt/"
)

var update = flag.Bool("update", false, "write docs/json.md and docs/lab/json.md")

// sections are the parts of docs/json.md and docs/lab/json.md: the types whose values the programs write.
var sections = []struct {
	title string
	value any
	note  string
}{
	{"edge-rt", edge.Summary{}, "If edge-rt ended before the run began, the summary has `exit`, and zeros elsewhere."},
	{"edge-rt teleop and replay", attend.Summary{}, "Also these keys of [edge-rt](#edge-rt): `id` to `episodes`, " +
		"`lateness_histogram_us` to `seconds`."},
	{"edge-rt why", why.Report{},
		"Of this command `--json` has an effect on the command line only. Times are RFC 3339."},
	{"edge-rt doctor", doctor.Report{}, "Exit code 3 while a problem is left."},
	{"edge-rt fleet top", bringup.FleetReport{}, "Robots with --telemetry, those in trouble first."},
	{"edge-rt ports", bringup.PortsReport{}, "With `--unplug`: the port that was found. Of this command, `scan`, " +
		"`monitor` and `cameras`, `--json` has an effect on the command line only: in a `--config` file or a " +
		"variable it is the run's."},
	{"edge-rt scan", bringup.ScanReport{}, ""},
	{"edge-rt monitor", bringup.MonitorReport{}, "One object for each table, each on a line."},
	{"edge-rt cameras", bringup.CamerasReport{}, ""},
	{"lean-server", server.Summary{}, ""},
	{"lean-server check", server.Report{}, ""},
	{"lean-server plan", capacity.Report{}, ""},
	{"lean-server replay", server.Replayed{}, ""},
	{"bench jitter", jitter.Report{},
		"`intervals_95.QUANTILE` has the two ends of a ratio's 95 % interval, from draws of whole " +
			"slices; absent with fewer than five. A ratio's `p999` wants 1,000 ticks, its `p9999` 10,000."},
	{"bench jitter --compare", jitter.Comparison{}, ""},
	{"bench bus", bus.Report{}, ""},
	{"bench wire", wire.Report{}, ""},
	{"bench jpeg", jpeg.Report{}, ""},
	{"bench gpu", gpu.Report{}, ""},
	{"bench serve", serve.Report{}, ""},
	{"bench camera", camera.Report{}, ""},
	{"bench recipe", recipe.Report{}, ""},
	{"bench faults", faults.Report{}, "[faults.md](faults.md) explains the metrics."},
	{"bench latency", latency.Report{}, "[latency.md](latency.md) explains the stages."},
	{"bench safety", safety.Report{}, "[safety.md](safety.md) explains the rules."},
	{"edge-rt leader", attend.LeadSummary{}, ""},
	{"edge-rt ctl", operator.Reply{},
		"Answers of `edge-rt ctl`; values that a run without a policy does not have are 0."},
	{"/status.json of edge-rt", edge.Live{}, "Also the keys of [edge-rt](../json.md#edge-rt) from `id` to `history`, and in " +
		"`frames` those of its cameras. Teleop and replay have those from `id` to `episodes`, and no `phase`, " +
		"`episode_id` and `queue`."},
	{"/status.json of lean-server", server.Live{}, "`rows`, `sort` and `find` of the address choose the sessions."},
	{"The machine", bench.Machine{},
		"`machine` of every measurement. A value that the kernel does not report is empty; " +
			"all are texts but `cores` and `gomaxprocs`."},
}

const introduction = `# Keys of --json

Generated from the comments of the code; ` + "`go test ./cmd/bench -run TestJSONPage -update`" + ` writes it.

` + "`--json FILE` (`-`: standard output)" + ` writes one object at the end: the content of the table on the terminal,
and more. ` + "`a.b` is key `b` of the object `a`, `a[]`" + ` an element of a list, a name in capitals any key, and
{…} the figures of one distribution: ` + "`p50`, `p99` and `max`" + ` (median, 99th percentile, longest).
After a key comes its type, or the unit of a number; without either the value is a whole number or a text. A share is 0 to 1.
A ` + "`?`" + ` marks keys that are left out when they are 0 or empty. New keys may be added; existing keys stay.
A command that fails before it has a result writes ` + "`exit`" + ` alone (` + "`code`, `reason`" + `); of edge-rt only a run
writes it to a file. [lab/json.md](lab/json.md) has the keys of ` + "`/status.json`" + ` and of commands that set
up, check and measure: ` + "`doctor`, `ports`, `scan`, `monitor`, `cameras`, `fleet top`, `lean-server check`,\n" +
	"`plan` and `replay`, `bench`.\n"

const labIntroduction = `# Keys of --json: commands that set up, check and measure; /status.json

Generated as [json.md](../json.md), which explains the notation.
`

// inLab reports whether a section is in docs/lab/json.md: all are, except those of the commands that run an arm, a
// leader or a server, and those of edge-rt why and edge-rt ctl.
func inLab(title string) bool {
	return !slices.Contains([]string{
		"edge-rt", "edge-rt teleop and replay", "edge-rt why", "edge-rt ctl", "edge-rt leader", "lean-server",
	}, title)
}

// linkTo returns a link to a section (parameter to) for the page that has the section from.
func linkTo(from, to string) string {
	page := ""
	switch {
	case inLab(from) && !inLab(to):
		page = "../json.md"
	case inLab(to) && !inLab(from):
		page = "lab/json.md"
	}
	return fmt.Sprintf("[%s](%s#%s)", to, page, strings.ReplaceAll(strings.ToLower(to), " ", "-"))
}

// TestJSONPage compares docs/json.md and docs/lab/json.md with the types and the comments of their fields.
func TestJSONPage(t *testing.T) {
	pages := map[bool]string{false: introduction, true: labIntroduction}
	var run []reflect.Type // the types in the summary of a run; other sections link to them
	for _, s := range sections {
		w := walker{t: t, links: map[reflect.Type]string{}}
		for _, typ := range run {
			w.links[typ] = "keys as in " + linkTo(s.title, "edge-rt")
		}
		for _, other := range sections {
			if other.title != s.title {
				w.links[reflect.TypeOf(other.value)] = "see " + linkTo(s.title, other.title)
			}
		}
		w.fields("", reflect.TypeOf(s.value))
		if s.title == "edge-rt" {
			run = slices.Collect(maps.Keys(w.links))
		}
		page := "\n## " + s.title + "\n\n"
		if s.note != "" {
			page += s.note + "\n\n"
		}
		pages[inLab(s.title)] += page + strings.Join(w.rows, "")
	}
	for lab, page := range pages {
		name := filepath.Join(root, "docs", map[bool]string{true: "lab"}[lab], "json.md")
		if *update {
			rttest.Do(t, os.WriteFile(name, []byte(page), 0o644))
		}
		if rttest.ReadFile(t, name) != page {
			t.Errorf("%s differs from the comments: run go test ./cmd/bench -run TestJSONPage -update", name)
		}
	}
}

// A walker makes the rows of one type.
type walker struct {
	t     *testing.T
	links map[reflect.Type]string // types whose rows are on the page already, with the place of these rows
	rows  []string
}

// fields adds the rows of a struct.
func (w *walker) fields(path string, typ reflect.Type) {
	comments := commentsOf(w.t, typ)
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if _, known := w.links[f.Type]; known && f.Anonymous {
			continue
		}
		if f.Anonymous && name == "" {
			w.fields(path, f.Type)
			w.links[f.Type] = "with a part of the keys of `" + path + "`"
			continue
		}
		if name == "-" || !f.IsExported() {
			continue
		}
		if path != "" {
			name = path + "." + name
		}
		w.value(name, f.Type, comments[f.Name], options == "omitempty")
	}
}

var (
	index = regexp.MustCompile(`^\[\w+\] ?`)
	code  = regexp.MustCompile(`--[a-z-]+\b|\b[a-z0-9]+(_[a-z0-9]+)+\b`) // flags and keys
	units = append(strings.Fields("ns us ms s Hz 1/s bytes MiB MB/s bit/s share ratio % counts pixels V mA °C "+
		"degrees objects requests ticks"), "degrees or 0 to 100", "units of chunk_model", "unit of the metric",
		"unit of the joint")
)

// value adds the row of the key at path. If the key's type is a struct, value adds the rows of the
// struct's keys instead.
func (w *walker) value(path string, typ reflect.Type, comment string, optional bool) {
	typ, path, comment = below(typ, path, comment)
	kind := kindOf(typ)
	if key := index.FindString(comment); key != "" { // the type has a MarshalJSON method, as a histogram has
		path = path + "." + strings.ToUpper(strings.Trim(key, "[] "))
		comment = comment[len(key):]
		kind = "int"
	}
	if strings.HasSuffix(path, ".") {
		w.t.Errorf("%s: the comment %q of a map has no name of its keys, want [name] first", path, comment)
	}
	if unit, meaning, _ := strings.Cut(comment, ", "); slices.Contains(units, unit) {
		kind, comment = unit, meaning
	}
	comment = code.ReplaceAllString(comment, "`$0`")
	if kind == "number" || kind == "object" && figures(typ) != "" {
		w.t.Errorf("%s: the comment %q has no unit, want %s first", path, comment,
			strings.Join(units, " or "))
	}
	link, known := w.links[typ]
	if kind == "object" && known {
		comment = strings.TrimPrefix(comment+"; "+link, "; ")
	}
	if kind != "object" || optional || comment != "" {
		unit := " " + kind
		if kind == "int" || kind == "object" || kind == "text" {
			unit = ""
		}
		w.rows = append(w.rows, strings.TrimSuffix(fmt.Sprintf("- `%s`%s%s%s: %s", path,
			map[bool]string{true: "?"}[optional], figures(typ), unit, comment), ": ")+"\n")
	}
	if kind == "object" && !known && figures(typ) != " {}" && typ.Kind() == reflect.Struct {
		w.links[typ] = "keys as in `" + path + "`"
		w.fields(path, typ)
	}
}

// below returns the type of the values in maps, lists and pointers, with the path and the comment of these values. A
// comment of a map begins with the name of its keys in brackets.
func below(typ reflect.Type, path, comment string) (reflect.Type, string, string) {
	for {
		switch kind := typ.Kind(); {
		case kindOf(typ) != "":
			return typ, path, comment
		case kind == reflect.Slice:
			path += "[]"
		case kind == reflect.Map:
			key := index.FindString(comment) // empty: value reports it
			path += "." + strings.ToUpper(strings.Trim(key, "[] "))
			comment = strings.TrimPrefix(comment, key)
		}
		typ = typ.Elem()
	}
}

// kindOf returns the name of a type's kind of JSON value. The name is empty for a container: its values have their
// own kinds.
func kindOf(typ reflect.Type) string {
	switch {
	case typ == reflect.TypeFor[time.Time]():
		return "time"
	case typ.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return "text"
	case typ.Kind() != reflect.Pointer && reflect.PointerTo(typ).Implements(reflect.TypeFor[json.Marshaler]()):
		return "object"
	}
	switch kind := typ.Kind(); kind {
	case reflect.Slice, reflect.Array:
		if below := kindOf(typ.Elem()); below != "" && below != "object" {
			return "list"
		}
		return ""
	case reflect.Pointer, reflect.Map:
		return ""
	case reflect.Struct:
		return "object"
	case reflect.Float32, reflect.Float64:
		return "number"
	case reflect.Interface:
		return "any"
	case reflect.Bool, reflect.String:
		return strings.ReplaceAll(kind.String(), "string", "text")
	}
	return "int"
}

// figures returns the names of the figures in a distribution; "" for other types.
func figures(typ reflect.Type) string {
	if typ.Kind() != reflect.Struct {
		return ""
	}
	var names []string
	for i := range typ.NumField() {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		if !slices.Contains([]string{"p50", "p90", "p99", "p999", "p9999", "intervals_95",
			"max", "mean", "low", "high", "n"}, name) {
			return ""
		}
		names = append(names, "`"+name+"`")
	}
	all := strings.Join(names, ", ")
	return " {" + strings.ReplaceAll(all, "`p50`, `p99`, `max`", "…") + "}"
}

// commentsOf returns the comments of a struct's fields, by their names in Go.
func commentsOf(t *testing.T, typ reflect.Type) map[string]string {
	files := rttest.Must(filepath.Glob(filepath.Join(root, strings.TrimPrefix(typ.PkgPath(), module), "*.go")))(t)
	comments := map[string]string{}
	for _, name := range files {
		file := rttest.Must(parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments))(t)
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || spec.Name.Name != typ.Name() {
				return true
			}
			for _, f := range spec.Type.(*ast.StructType).Fields.List {
				for _, name := range f.Names {
					comments[name.Name] = strings.Join(strings.Fields(f.Doc.Text()+f.Comment.Text()), " ")
				}
			}
			return false
		})
	}
	return comments
}
