package tidy

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Every metric that a dashboard, a rule or the autoscaler names is in the tables of docs/page.md and docs/server.md,
// which tests of edge-rt and of lean-server compare with a run's.
func TestMonitoringNamesMetricsThatExist(t *testing.T) {
	known := map[string]string{} // type by name
	for _, page := range []string{"page", "server"} {
		text := rttest.Must(os.ReadFile("../../docs/" + page + ".md"))(t)
		row := regexp.MustCompile("(?m)^\\| `((?:edge_rt|lean_server)_[a-z_]+)` \\| ([a-z]+) \\|")
		for _, m := range row.FindAllSubmatch(text, -1) {
			known[string(m[1])] = string(m[2])
		}
	}
	files := rttest.Must(filepath.Glob("../../deploy/monitoring/*.yaml"))(t)
	files = append(files, rttest.Must(filepath.Glob("../../deploy/monitoring/dashboards/*.json"))(t)...)
	files = append(files, "../../deploy/kubernetes/adapter.yaml")
	if len(files) != 7 {
		t.Errorf("%q, want three files, three dashboards and the adapter", files)
	}
	named := 0
	for _, file := range files {
		text := string(rttest.Must(os.ReadFile(file))(t))
		if strings.HasSuffix(file, ".json") && !json.Valid([]byte(text)) {
			t.Errorf("%s is not JSON", file)
		}
		text = regexp.MustCompile(`\{as: .*`).ReplaceAllString(text, "") // a name of the adapter's own
		names := regexp.MustCompile(`\b(edge_rt|lean_server)_[a-z_]+`).FindAllString(text, -1)
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			named++
			whole := name
			for _, suffix := range []string{"_bucket", "_count", "_sum"} {
				if base, is := strings.CutSuffix(name, suffix); is && known[base] == "histogram" {
					whole = base
				}
			}
			if known[whole] == "" || known[whole] == "histogram" && whole == name {
				t.Errorf("%s: no metric %s (docs/page.md, docs/server.md)", filepath.Base(file), name)
			}
		}
	}
	if named < 60 {
		t.Errorf("%d names, want more: the files are not as this test reads them", named)
	}
}

// Every alert has a severity, annotations about what happened and what to do, and a case in which it fires.
func TestAlertsAreComplete(t *testing.T) {
	text := string(rttest.Must(os.ReadFile("../../deploy/monitoring/alerts.yaml"))(t))
	cases := string(rttest.Must(os.ReadFile("../../deploy/monitoring/alerts_test.yaml"))(t))
	alerts := strings.Split(text, "- alert: ")[1:]
	for _, alert := range alerts {
		name, _, _ := strings.Cut(alert, "\n")
		for _, key := range []string{"expr: ", "severity: ", "summary: ", "action: "} {
			if !strings.Contains(alert, key) {
				t.Errorf("%s has no %s", name, key)
			}
		}
		if !strings.Contains(cases, fmt.Sprintf(`alertname="%s"}', value: 1`, name)) {
			t.Errorf("%s fires in no case of alerts_test.yaml", name)
		}
	}
	if len(alerts) < 15 {
		t.Errorf("%d alerts, want more: the file is not as this test reads it", len(alerts))
	}
}
