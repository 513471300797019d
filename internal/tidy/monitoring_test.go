package tidy

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Every metric that a dashboard, a rule or the autoscaler names is in the lists of docs/page.md and docs/server.md,
// which tests of edge-rt and of lean-server compare with the metrics of a run.
func TestMonitoringNamesMetricsThatExist(t *testing.T) {
	known := map[string]string{} // type of each metric, by name
	for _, page := range []string{"page", "server"} {
		text := rttest.ReadFile(t, "../../docs/"+page+".md")
		lists := regexp.MustCompile(`(?m)^- (counter|gauge|histogram): (.*\n(  .*\n)*)`)
		for _, list := range lists.FindAllStringSubmatch(text, -1) {
			for _, m := range regexp.MustCompile(`(?:edge_rt|lean_server)_[a-z0-9_]+`).FindAllString(list[2], -1) {
				known[m] = list[1]
			}
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
		text := rttest.ReadFile(t, file)
		if strings.HasSuffix(file, ".json") && !json.Valid([]byte(text)) {
			t.Errorf("%s is not JSON", file)
		}
		text = regexp.MustCompile(`\{as: .*`).ReplaceAllString(text, "") // removes the adapter's own names
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

// panel is the part of a dashboard's panel that the tests check.
type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ X, Y, W, H int }
	Datasource               struct{ UID string }
	Targets                  []struct{ Expr, LegendFormat, Format string }
	FieldConfig              struct {
		Defaults struct {
			Unit       string
			Thresholds struct{ Steps []any }
		}
		Overrides []any
	}
	Transformations []struct {
		Options struct{ ExcludeByName map[string]bool }
	}
}

// flaws returns the defects of a panel for a person who looks at it.
func (p *panel) flaws(ofOne bool) (flaws []string) {
	is := func(flaw bool, text string) {
		if flaw {
			flaws = append(flaws, text)
		}
	}
	is(p.Title == "" || !strings.Contains(p.Description, "?"), "no question that it answers")
	is(p.Datasource.UID != "${datasource}", "not the data source of the choice")
	is(p.GridPos.X+p.GridPos.W > 24, "wider than the page")
	d := p.FieldConfig.Defaults
	is((p.Type == "stat" || p.Type == "bargauge") && len(d.Thresholds.Steps) < 2 && len(p.FieldConfig.Overrides) == 0,
		"neither thresholds nor colours")
	table := len(p.Transformations) > 0 && p.Transformations[len(p.Transformations)-1].Options.ExcludeByName["Time"]
	is(p.Type == "table" && !table, "a column Time")
	for _, target := range p.Targets {
		is(p.Type == "table" && target.Format != "table", target.Expr+": not as a table")
		is(p.Type != "table" && target.LegendFormat == "", target.Expr+": no legend")
		is(ofOne && p.Type != "table" && !strings.Contains(target.LegendFormat, "{{instance}}"),
			target.Expr+": no name in the legend")
		perSecond := strings.Contains(target.Expr, "rate(") && !strings.Contains(target.Expr, "histogram_quantile(") &&
			!strings.Contains(target.Expr, " / ")
		is(perSecond && (d.Unit == "none" || d.Unit == "cps"), target.Expr+": a rate without its unit")
	}
	return flaws
}

// Each panel answers a question, with units, thresholds, and the name of the robot or server.
func TestPanelsAreComplete(t *testing.T) {
	panels := 0
	for _, name := range []string{"fleet", "robot", "server"} {
		var board struct{ Panels []panel }
		rttest.ReadJSON(t, "../../deploy/monitoring/dashboards/"+name+".json", &board)
		for i, p := range board.Panels {
			panels++
			for _, flaw := range p.flaws(name != "fleet") {
				t.Errorf("%s, %s: %s", name, p.Title, flaw)
			}
			for _, other := range board.Panels[:i] {
				a, b := p.GridPos, other.GridPos
				if p.ID == other.ID || a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
					t.Errorf("%s: %s has the id or the place of %s", name, p.Title, other.Title)
				}
			}
		}
	}
	if panels < 30 {
		t.Errorf("%d panels, want more: the files are not as this test reads them", panels)
	}
}

// hasHeading reports whether a page has the heading of a link, FILE#heading-in-lower-case.
func hasHeading(t *testing.T, link string) bool {
	page, anchor, _ := strings.Cut(link, "#")
	text := rttest.ReadFile(t, "../../"+page)
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		words := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		if strings.ReplaceAll(words, " ", "-") == anchor {
			return true
		}
	}
	return false
}

// Every alert has a severity, annotations with the robot or server, the cause, the cure and a section of docs/, and a
// case in which it fires.
func TestAlertsAreComplete(t *testing.T) {
	text := rttest.ReadFile(t, "../../deploy/monitoring/alerts.yaml")
	cases := rttest.ReadFile(t, "../../deploy/monitoring/alerts_test.yaml")
	alerts := strings.Split(text, "- alert: ")[1:]
	for _, alert := range alerts {
		name, _, _ := strings.Cut(alert, "\n")
		for _, key := range []string{"expr: ", "severity: ", `summary: "{{ $labels.instance }}`, "cause: ", "action: "} {
			rttest.Contains(t, alert, key)
		}
		_, runbook, _ := strings.Cut(alert, "runbook: ")
		if runbook, _, _ = strings.Cut(runbook, "\n"); !hasHeading(t, runbook) {
			t.Errorf("%s has the runbook %q, want a section of docs/", name, runbook)
		}
		rttest.Contains(t, cases, fmt.Sprintf(`alertname="%s"}', value: 1`, name))
	}
	if len(alerts) < 15 {
		t.Errorf("%d alerts, want more: the file is not as this test reads it", len(alerts))
	}
}

// The autoscaler alone sets the number of lean-servers, by metrics that the adapter serves, and an update does not fail
// while a policy loads.
func TestAutoscalerFitsAdapterAndDeployment(t *testing.T) {
	adapter := rttest.ReadFile(t, "../../deploy/kubernetes/adapter.yaml")
	text := rttest.ReadFile(t, "../../deploy/kubernetes/base/server.yaml")
	names := regexp.MustCompile(`metric: \{name: (\w+)\}`).FindAllStringSubmatch(text, -1)
	if len(names) != 3 {
		t.Errorf("the autoscaler names %q, want three metrics", names)
	}
	for _, name := range names {
		if !strings.Contains(adapter, "{as: "+name[1]+"}") {
			t.Errorf("adapter.yaml does not serve %s", name[1])
		}
	}
	if regexp.MustCompile(`(?m)^ *replicas:`).MatchString(text) {
		t.Error("server.yaml sets replicas: each apply would end the servers that the autoscaler has added")
	}
	number := func(expression string) int {
		found := append(regexp.MustCompile(expression).FindStringSubmatch(text), "0", "0")[1]
		return rttest.Must(strconv.Atoi(found))(t)
	}
	loading := number(`startupProbe: .*periodSeconds: (\d+)`) * number(`startupProbe: .*failureThreshold: (\d+)`)
	if deadline := number(`progressDeadlineSeconds: (\d+)`); loading == 0 || deadline <= loading {
		t.Errorf("an update fails after %d s, and a policy may load for %d s", deadline, loading)
	}
}
