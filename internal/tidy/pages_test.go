package tidy

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// programs holds the texts of all Go files except tests, and the flags that they declare.
type programs struct {
	flags map[string]bool
	words map[string]bool // words between quotes, also in the tags of fields
}

var (
	flagField = regexp.MustCompile("(?m)^\\s+(\\w+)\\s+[\\w.*\\[\\]]+\\s+`([^`]*\\bhelp:\"[^`]*)`")
	flagName  = regexp.MustCompile(`\b(?:name|aliases):"([\w,-]+)"`)
	hump      = regexp.MustCompile(`([a-z0-9])([A-Z])`)
	quoted    = regexp.MustCompile(`"([a-z][a-z0-9_.]*)[",]`)
)

func readPrograms(t *testing.T) programs {
	t.Helper()
	p := programs{map[string]bool{}, map[string]bool{}}
	rttest.Do(t, filepath.WalkDir("../..", func(path string, d os.DirEntry, err error) error {
		if d != nil && d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
			return filepath.SkipDir
		}
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text := rttest.ReadFile(t, path)
		for _, m := range flagField.FindAllStringSubmatch(text, -1) {
			names := flagName.FindAllStringSubmatch(m[2], -1)
			if !strings.Contains(m[2], "name:") {
				p.flags[strings.ToLower(hump.ReplaceAllString(m[1], "$1-$2"))] = true
			}
			for _, n := range names {
				for name := range strings.SplitSeq(n[1], ",") {
					p.flags[name] = true
				}
			}
		}
		for _, m := range quoted.FindAllStringSubmatch(text, -1) {
			p.words[m[1]] = true
		}
		return nil
	}))
	return p
}

// tableRows returns the rows of a page's tables that have this number of cells.
func tableRows(t *testing.T, page string, cells int) (rows [][]string) {
	t.Helper()
	for line := range strings.Lines(rttest.ReadFile(t, page)) {
		line = strings.ReplaceAll(strings.TrimSpace(line), `\|`, "\x00")
		row := strings.Split(strings.Trim(line, "|"), "|")
		if !strings.HasPrefix(line, "| ") || len(row) != cells {
			continue
		}
		for i := range row {
			row[i] = strings.ReplaceAll(strings.TrimSpace(row[i]), "\x00", "|")
		}
		rows = append(rows, row)
	}
	return rows
}

var (
	inCode   = regexp.MustCompile("`([^`]+)`")
	flagWord = regexp.MustCompile(`--([a-z][a-z0-9-]*)`)
	keyWord  = regexp.MustCompile(`^[a-z][a-z0-9]*(?:[_.][a-z0-9]+)+$`)
	oneTest  = regexp.MustCompile(`^([a-z0-9/_-]+)\.((?:Test|Fuzz)\w+)$`)
)

// The flags and keys that docs/lab/conformance.md gives as ours exist.
func TestConformanceNamesFlagsAndKeysThatExist(t *testing.T) {
	p := readPrograms(t)
	checked := 0
	for _, row := range tableRows(t, "../../docs/lab/conformance.md", 5) {
		text := row[2] + row[3] // the columns "ours" and "why" of the vectors
		if row[2] == "kept" {
			text = row[0] + row[3]
		}
		for _, code := range inCode.FindAllStringSubmatch(text, -1) {
			for _, m := range flagWord.FindAllStringSubmatch(code[1], -1) {
				if checked++; !p.flags[m[1]] {
					t.Errorf("%q names --%s, which no program has", row[0], m[1])
				}
			}
			word, _, _ := strings.Cut(code[1], ":")
			if !keyWord.MatchString(word) || strings.HasSuffix(word, ".json") {
				continue
			}
			checked++
			for part := range strings.SplitSeq(word, ".") {
				if !p.words[word] && !p.words[part] {
					t.Errorf("%q names %s, and no source has the key %s", row[0], word, part)
				}
			}
		}
	}
	if checked < 10 {
		t.Errorf("%d flags and keys, want 10 or more: the pattern no longer finds them", checked)
	}
}

// Every requirement of docs/lab/seeds.md has a state, and what it names exists: tests, files, flags and targets of
// make. A requirement that is partly met has a reason, and docs/lab/conformance.md has each difference.
func TestSeedsPage(t *testing.T) {
	p := readPrograms(t)
	targets := rttest.ReadFile(t, "../../Makefile")
	rows := tableRows(t, "../../docs/lab/seeds.md", 5)[1:] // without the head of the table
	seen, counts := map[string]bool{}, map[string]int{}
	var places strings.Builder // the places of all differences
	for _, row := range tableRows(t, "../../docs/lab/conformance.md", 5) {
		places.WriteString(row[1])
	}
	for _, row := range rows {
		id := row[0]
		state := row[3]
		shown := row[4]
		names := inCode.FindAllStringSubmatch(shown, -1)
		if seen[id] || !strings.Contains("Y P D", state) || len(names) == 0 || row[1] == "" || row[2] == "" {
			t.Errorf("row %v: want an id of its own, document, requirement, Y, P or D, and what shows it", row)
		}
		seen[id] = true
		counts[state]++
		if state == "D" && !regexp.MustCompile(`[(, ]`+id+`[,)]`).MatchString(places.String()) {
			t.Errorf("docs/lab/conformance.md has no reason for %s", id)
		}
		if _, why, _ := strings.Cut(shown, "; "); state != "Y" && why == "" {
			t.Errorf("%s is %s without a reason", id, state)
		}
		for _, m := range names {
			name := m[1]
			test := oneTest.FindStringSubmatch(name)
			switch {
			case test != nil && (test[2] == "TestMain" || !hasTest(t, test[1], test[2])):
				t.Errorf("%s names %s, which is no test", id, name)
			case test != nil:
			case strings.HasPrefix(name, "make "):
				if !strings.Contains(targets, "\n"+strings.TrimPrefix(name, "make ")+":") {
					t.Errorf("%s names %s, which is no target", id, name)
				}
			case strings.Contains(name, "--"), strings.HasPrefix(name, "edge-rt "), strings.HasPrefix(name, "bench "):
				for _, f := range flagWord.FindAllStringSubmatch(name, -1) {
					if !p.flags[f[1]] {
						t.Errorf("%s names --%s, which no program has", id, f[1])
					}
				}
			default:
				if _, err := os.Stat("../../" + name); err != nil {
					t.Errorf("%s names %s, which is not there", id, name)
				}
			}
		}
	}
	text := rttest.ReadFile(t, "../../docs/lab/seeds.md")
	sum := fmt.Sprintf("%d requirements: %d Y, %d D, %d P.", len(rows), counts["Y"], counts["D"], counts["P"])
	if len(rows) != 307 || !strings.Contains(text, sum) {
		t.Errorf("the page does not say %s", sum)
	}
}

func hasTest(t *testing.T, folder, name string) bool {
	t.Helper()
	for _, file := range rttest.Must(filepath.Glob("../../" + folder + "/*_test.go"))(t) {
		if strings.Contains(rttest.ReadFile(t, file), "\nfunc "+name+"(") {
			return true
		}
	}
	return false
}
