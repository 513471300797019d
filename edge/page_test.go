package edge

import (
	"testing"

	"edgert/edge/page"
)

// The page offers what edge-rt ctl can, from the one table.
func TestThePageOffersTheCommands(t *testing.T) {
	offered := map[string]page.Button{}
	for _, b := range buttons() {
		offered[b.Word] = b
	}
	for _, c := range Commands {
		if b, ok := offered[c.Word]; ok != (c.Label != "" || c.Text != "") || b.Ask != c.Ask {
			t.Errorf("%s: %+v", c.Word, b)
		}
	}
	for _, word := range []string{"stop", "release"} {
		if offered[word].Ask == "" {
			t.Errorf("%s is not asked before", word)
		}
	}
}
