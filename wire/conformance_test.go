package wire

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire/wiretest"
)

// conformanceRows returns the rows of all tables of docs/lab/conformance.md, without their heads.
func conformanceRows(t *testing.T) (rows [][]string) {
	t.Helper()
	text := rttest.ReadFile(t, "../docs/lab/conformance.md")
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") || i+1 < len(lines) &&
			strings.HasPrefix(lines[i+1], "|---") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for j := range cells {
			cells[j] = strings.TrimSpace(cells[j])
		}
		if len(cells) != 5 {
			t.Errorf("a row of %d cells, want 5: %s", len(cells), line)
			continue
		}
		rows = append(rows, cells)
	}
	return rows
}

// docs/lab/conformance.md names existing tests for every rule, and states that edge-rt keeps the rule, or why it does
// not.
func TestConformanceNamesTestsThatExist(t *testing.T) {
	named := regexp.MustCompile("^`([a-z/-]+)\\.((?:Test|Fuzz)[A-Za-z0-9]+)`$")
	for _, row := range conformanceRows(t) {
		vector := strings.HasPrefix(row[0], "`") && strings.Contains(row[0], "/") && !strings.Contains(row[0], " ")
		switch {
		case vector || row[2] == "kept":
		case row[2] != "deviated":
			t.Errorf("%q is %q, want kept or deviated", row[0], row[2])
		case row[3] == "":
			t.Errorf("%q is deviated from without a reason", row[0])
		}
		for name := range strings.SplitSeq(row[4], ", ") {
			m := named.FindStringSubmatch(name)
			if m == nil {
				t.Errorf("%q names the test %s, want `PACKAGE.TestNAME`", row[0], name)
				continue
			}
			files := rttest.Must(filepath.Glob(filepath.Join("..", m[1], "*_test.go")))(t)
			found := false
			for _, file := range files {
				text := rttest.ReadFile(t, file)
				found = found || strings.Contains(text, "\nfunc "+m[2]+"(")
			}
			if !found {
				t.Errorf("%q names %s, which is no test of %s", row[0], name, m[1])
			}
		}
	}
}

// docs/lab/conformance.md lists exactly the deviations of deviations.json, in the same words.
func TestConformanceHasEveryDeviation(t *testing.T) {
	page := map[string][]string{}
	for _, row := range conformanceRows(t) {
		page[row[0]] = row
	}
	vectors := 0
	for _, d := range wiretest.AllDeviations(t) {
		key := "`" + d.Section + "/" + d.Name + "`"
		row := page[key]
		if row == nil || row[1] != d.Python || row[2] != d.Ours || row[3] != d.Reason ||
			!strings.HasPrefix(row[4], "`"+d.Owner+".") {
			t.Errorf("docs/lab/conformance.md: %q for %s, want %q, %q, %q and a test of %s", row, key, d.Python, d.Ours,
				d.Reason, d.Owner)
		}
		vectors++
	}
	for key := range page {
		if strings.HasPrefix(key, "`") && strings.Contains(key, "/") && !strings.Contains(key, " ") {
			vectors--
		}
	}
	rttest.Want(t, vectors, 0, "deviations in deviations.json beyond the page's")
}
