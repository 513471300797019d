package server

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/edge-rt/edge-rt/internal/webpage/metric"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/audit"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint/endpointtest"
)

// docTable returns the rows of the first table below a heading of docs/server.md, without the table's head. The cells
// are trimmed.
func docTable(t *testing.T, heading, first string) (rows [][]string) {
	t.Helper()
	text := rttest.ReadFile(t, "../docs/server.md")
	_, section, found := strings.Cut(text, "\n## "+heading+"\n")
	if !found {
		t.Fatalf("docs/server.md has no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	_, table, found := strings.Cut(section, "\n| "+first+" |")
	if !found {
		t.Fatalf("section %q has no table that begins with %q", heading, first)
	}
	for i, line := range strings.Split(table, "\n") {
		switch {
		case i < 2: // the other cells of the head, and the line of dashes below the head
		case !strings.HasPrefix(line, "|"):
			return rows
		default:
			cells := strings.Split(strings.Trim(line, "|"), "|")
			for j := range cells {
				cells[j] = strings.TrimSpace(cells[j])
			}
			rows = append(rows, cells)
		}
	}
	return rows
}

// manifestKeys returns a row for each key of the manifest. It walks v, the struct that the manifest is decoded into.
func manifestKeys(v reflect.Value, prefix string) (rows [][]string) {
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag.Get("yaml")
		if tag == "" || tag == "-" {
			continue
		}
		f, key := v.Field(i), strings.TrimPrefix(prefix+"."+tag, ".")
		value := ""
		switch f.Kind() {
		case reflect.Struct:
			rows = append(rows, manifestKeys(f, key)...)
			continue
		case reflect.String:
			value = f.String()
		case reflect.Bool:
			value = fmt.Sprint(f.Bool())
		case reflect.Int, reflect.Float64:
			value = fmt.Sprint(f.Interface())
		case reflect.Slice:
			value = "[]"
		}
		if value != "" {
			value = "`" + value + "`"
		}
		rows = append(rows, []string{"`" + key + "`", value})
	}
	return rows
}

func TestManifestTable(t *testing.T) {
	var got [][]string
	for _, row := range docTable(t, "Manifest", "key") {
		if len(row) != 3 || row[2] == "" {
			t.Errorf("row %q has no meaning", row)
		}
		got = append(got, row[:2])
	}
	want := manifestKeys(reflect.ValueOf(manifest.Default()), "")
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || !slices.Equal(got[i], want[i]) {
			t.Fatalf("row %d of the manifest's table: docs %q, code %q", i, got[min(i, len(got)-1)],
				want[min(i, len(want)-1)])
		}
	}
}

// The lists of metrics in docs/server.md equal what Prometheus would read, including labels and kinds.
func TestMetricsTable(t *testing.T) {
	b := newBench(t, config())
	o := fakeOpen("arm")
	b.server.opener.open(&o, wire.Origin{}) // makes the series of sessions exist
	b.server.cfg.Zenoh.TLS.ListenCertificate, _ = endpointtest.New(t).Issue("server")
	families, done, err := metric.NewSource(metricsOf(func() *Server { return b.server }, new(atomic.Uint64))).Gather()
	rttest.Do(t, err)
	defer done()
	var want []string
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), metricPrefix) {
			continue
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		slices.Sort(labels)
		want = append(want, fmt.Sprintf("%s %s %s", strings.ToLower(f.GetType().String()), f.GetName(), labels))
	}
	var got []string
	text := rttest.ReadFile(t, "../docs/server.md")
	lists := regexp.MustCompile(`(?m)^- (counter|gauge|histogram): (.*\n(  .*\n)*)`)
	for _, list := range lists.FindAllStringSubmatch(text, -1) {
		for _, m := range regexp.MustCompile("`(\\w+)(?:{([\\w,]+)})?`").FindAllStringSubmatch(list[2], -1) {
			labels := strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' })
			slices.Sort(labels)
			got = append(got, fmt.Sprintf("%s %s %s", list[1], m[1], labels))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("docs/server.md lists\n%s\nand the code shows\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// docs/server.md names every value of a label that comes from a table in the code.
func TestDocNamesEveryReason(t *testing.T) {
	text := rttest.ReadFile(t, "../docs/server.md")
	var names []string
	for _, r := range refusals {
		names = append(names, r.name)
	}
	for o := range audit.NumOutcomes {
		names = append(names, o.String())
	}
	rttest.Contains(t, text, names...)
}

func TestAuditTable(t *testing.T) {
	dir := t.TempDir()
	w := newBench(t, config()).audited(dir)
	w.Add(&audit.Record{
		Why:     "something",
		Tags:    `{"site":"lab"}`,
		Stale:   1,
		Cameras: []wire.CameraShape{{Name: "top"}},
	}, nil, nil)
	w.Start(audit.Origin{ModelSHA256: "5ha"})()
	line := rttest.ReadFile(t, filepath.Join(dir, "audit.jsonl"))
	decoder := json.NewDecoder(strings.NewReader(line))
	var want []string
	for depth := 0; ; {
		token, err := decoder.Token()
		if err != nil {
			break
		}
		if d, ok := token.(json.Delim); ok {
			if d == '{' || d == '[' {
				depth++
			} else {
				depth--
			}
			continue
		}
		if key, ok := token.(string); ok && depth == 1 {
			want = append(want, "`"+key+"`")
			skipValue(t, decoder)
		}
	}
	var got []string
	for _, row := range docTable(t, "Audit", "field") {
		got = append(got, row[0])
	}
	if !slices.Equal(got, want) {
		t.Errorf("docs/server.md lists %q, a line has %q", got, want)
	}
}

// skipValue reads the value of a key.
func skipValue(t *testing.T, d *json.Decoder) {
	t.Helper()
	var value any
	rttest.Do(t, d.Decode(&value))
}
