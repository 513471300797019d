package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/bench/bus"
	"github.com/edge-rt/edge-rt/bench/camera"
	"github.com/edge-rt/edge-rt/bench/faults"
	"github.com/edge-rt/edge-rt/bench/gpu"
	"github.com/edge-rt/edge-rt/bench/jitter"
	"github.com/edge-rt/edge-rt/bench/jpeg"
	"github.com/edge-rt/edge-rt/bench/recipe"
	"github.com/edge-rt/edge-rt/bench/safety"
	"github.com/edge-rt/edge-rt/bench/serve"
	"github.com/edge-rt/edge-rt/bench/wire"
	"github.com/edge-rt/edge-rt/bringup"
	"github.com/edge-rt/edge-rt/edge"
	"github.com/edge-rt/edge-rt/record/why"
	"github.com/edge-rt/edge-rt/server"
	"github.com/edge-rt/edge-rt/server/capacity"
)

// docs/json.md lists exactly the keys of every --json, in the order in which they are printed.
func TestEveryKeyIsInTheDocs(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "json.md"))
	if err != nil {
		t.Fatal(err)
	}
	documented := keysInPage(string(page))
	for title, v := range map[string]any{
		"edge-rt": edge.Summary{}, "edge-rt ports": bringup.PortsReport{}, "edge-rt scan": bringup.ScanReport{},
		"edge-rt monitor": bringup.MonitorReport{}, "edge-rt cameras": bringup.CamerasReport{},
		"edge-rt why": why.Report{},
		"lean-server": server.Summary{}, "lean-server check": server.Report{}, "lean-server plan": capacity.Report{},
		"lean-server replay": server.Replayed{},
		"bench jitter":       jitter.Report{}, "bench bus": bus.Report{}, "bench wire": wire.Report{},
		"bench jpeg": jpeg.Report{}, "bench gpu": gpu.Report{}, "bench serve": serve.Report{},
		"bench camera": camera.Report{}, "bench recipe": recipe.Report{}, "bench faults": faults.Report{},
		"bench safety": safety.Report{}, "The machine": bench.Machine{},
	} {
		got, want := documented[title], keysOf(reflect.TypeOf(v))
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || got[i] != want[i] {
				t.Errorf("section %q, row %d: the page and the program part here:\npage    %q\nprogram %q", title, i+1,
					got[min(i, len(got)):], want[min(i, len(want)):])
				break
			}
		}
	}
}

var (
	anyKey   = regexp.MustCompile(`\.[A-Z]+`)
	optional = regexp.MustCompile(`[|;] optional \|\n?$`)
)

// keysInPage returns the first cells of each section's table, with a question mark after an
// optional key. A name in capitals is a placeholder for any key.
func keysInPage(page string) map[string][]string {
	sections := map[string][]string{}
	title := ""
	for line := range strings.Lines(page) {
		if rest, ok := strings.CutPrefix(line, "## "); ok {
			title = strings.TrimSpace(rest)
		}
		if cell, ok := strings.CutPrefix(line, "| `"); ok {
			cell, _, _ = strings.Cut(cell, " |")
			key := strings.NewReplacer("`", "", ",", "").Replace(cell)
			if optional.MatchString(line) {
				key += "?"
			}
			sections[title] = append(sections[title], anyKey.ReplaceAllString(key, ".*"))
		}
	}
	return sections
}

// keysOf lists a type's keys as the page does: the figures of one distribution in one row, and a
// type that occurs again in one row.
func keysOf(typ reflect.Type) []string {
	var keys []string
	seen := map[reflect.Type]bool{reflect.TypeFor[bench.Machine](): typ != reflect.TypeFor[bench.Machine](),
		reflect.TypeFor[edge.Summary](): typ != reflect.TypeFor[edge.Summary]()}
	var walk func(path string, typ reflect.Type)
	walk = func(path string, typ reflect.Type) {
		own := typ.Implements(reflect.TypeFor[json.Marshaler]()) ||
			reflect.PointerTo(typ).Implements(reflect.TypeFor[json.Marshaler]())
		switch kind := typ.Kind(); {
		case kind == reflect.Pointer:
			walk(path, typ.Elem())
		case own || kind != reflect.Struct && kind != reflect.Map &&
			(kind != reflect.Slice || typ.Elem().Kind() != reflect.Struct):
			keys = append(keys, path)
		case kind == reflect.Slice:
			walk(path+"[]", typ.Elem())
		case kind == reflect.Map:
			walk(path+".*", typ.Elem())
		case figures(typ) != "":
			keys = append(keys, path+figures(typ))
		case seen[typ]:
			keys = append(keys, path)
		default:
			seen[typ] = true
			for f := range fields(typ) {
				name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
				before := len(keys)
				switch {
				case f.Anonymous:
					seen[f.Type] = false // an embedded type's keys are the outer type's
					walk(path, f.Type)
				case name == "-" || !f.IsExported():
				case path == "":
					walk(name, f.Type)
				default:
					walk(path+"."+name, f.Type)
				}
				if options == "omitempty" && len(keys) == before+1 {
					keys[before] += "?"
				}
			}
		}
	}
	walk("", typ)
	return keys
}

func fields(typ reflect.Type) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range typ.NumField() {
			if !yield(typ.Field(i)) {
				return
			}
		}
	}
}

// figures names the figures of a distribution; it is empty for other types.
func figures(typ reflect.Type) string {
	var names []string
	for f := range fields(typ) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !slices.Contains([]string{"p50", "p90", "p99", "p999", "max", "mean", "low", "high", "n"}, name) {
			return ""
		}
		names = append(names, name)
	}
	return " {" + strings.Join(names, " ") + "}"
}
