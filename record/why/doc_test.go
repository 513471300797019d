package why

import (
	"fmt"
	"strings"
	"testing"
)

// docs/lab/why.md lists the causes with the sentences that the program prints.
func TestCausesAreDocumented(t *testing.T) {
	page := load(t, "../../docs/lab/why.md")
	_, rest, _ := strings.Cut(string(page), "## The causes\n")
	table, _, _ := strings.Cut(rest, "\n## ")
	var want strings.Builder
	for _, c := range causes {
		fmt.Fprintf(&want, "| `%s` | %s |\n", c.Cause, c.Description)
	}
	if !strings.HasSuffix(strings.TrimSpace(table)+"\n", "|---|---|\n"+want.String()) {
		t.Errorf("docs/lab/why.md has%s\nwant\n%s", table, &want)
	}
}
