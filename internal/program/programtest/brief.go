package programtest

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/alecthomas/kong"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// The lines and columns of a screen; the short help must fit on it.
const (
	screenLines   = 40
	screenColumns = 100
)

var flagWord = regexp.MustCompile(`--([a-z][a-z0-9-]*)`)

// CheckBrief compares a program's short help with its grammar: it fits on a screen, has all
// commands before the flags, and names only existing flags. Every flag has a help text.
func CheckBrief(t *testing.T, brief string, c Commands) {
	t.Helper()
	parser := rttest.Must(kong.New(c.New(), kong.Vars(c.Vars)))(t)
	lines := strings.Split(strings.TrimSuffix(brief, "\n"), "\n")
	if len(lines) > screenLines {
		t.Errorf("%d lines, want at most %d", len(lines), screenLines)
	}
	for _, line := range lines {
		if n := utf8.RuneCountInString(line); n > screenColumns {
			t.Errorf("%d columns, want at most %d: %s", n, screenColumns, line)
		}
	}
	known := map[string]bool{"help": true}
	add := func(flags []*kong.Flag) {
		for _, f := range flags {
			if known[f.Name] = true; !f.Hidden && f.Help == "" {
				t.Errorf("--%s has no help", f.Name)
			}
		}
	}
	add(parser.Model.Flags)
	for _, leaf := range parser.Model.Leaves(true) {
		add(leaf.Flags)
	}
	commands, flags, _ := strings.Cut(brief, "lags:\n")
	if flags == "" {
		commands, _, _ = strings.Cut(brief, "Each command has")
	}
	for _, node := range parser.Model.Children {
		name := regexp.MustCompile(`(?m)^.*  ` + regexp.QuoteMeta(node.Name) + `( off| top)?  `)
		if !node.Hidden && !name.MatchString(commands) && node.Name != "version" {
			t.Errorf("command %s is not named before the flags:\n%s", node.Name, brief)
		}
	}
	for _, m := range flagWord.FindAllStringSubmatch(brief, -1) {
		if !known[m[1]] {
			t.Errorf("--%s is no flag", m[1])
		}
	}
	if !known["version"] || !strings.Contains(brief, "--version") || !strings.Contains(brief, "--help-all") {
		t.Error("--version and --help-all are not both named")
	}
}
