// Package wiretest gives tests the frozen vectors of the draft's Python code (testdata/golden/draft_goldens.json) and
// the list of the vectors from which we deviate on purpose (deviations.json).
//
// The file's sections belong to the packages that implement them. Section decodes a section for the package that owns
// it. Deviations lists the vectors that this package must answer differently from Python. Package wire's tests check
// that every section has an owner.
package wiretest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Deviation names one vector, or a behaviour of the draft's running programs, from which we deviate
// on purpose.
type Deviation struct {
	Section string `json:"section"`
	Name    string `json:"name"`   // the vector's name, or its index, or * for the whole section
	Owner   string `json:"owner"`  // the package with the test of the deviation
	Python  string `json:"python"` // the draft's behaviour
	Ours    string `json:"ours"`
	Reason  string `json:"reason"`
}

// Vectors returns all sections of the file of frozen vectors, each as its JSON text.
func Vectors(t testing.TB) map[string]json.RawMessage {
	t.Helper()
	var all map[string]json.RawMessage
	rttest.ReadJSON(t, Golden(t, "draft_goldens.json"), &all)
	return all
}

// Section decodes one section into *into, a slice or a map.
func Section(t testing.TB, name string, into any) {
	t.Helper()
	raw, ok := Vectors(t)[name]
	if !ok {
		t.Fatalf("draft_goldens.json has no section %q", name)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatalf("draft_goldens.json, section %s: %v", name, err)
	}
}

// Deviations returns the deviations of a section by vector name.
func Deviations(t testing.TB, section string) map[string]Deviation {
	t.Helper()
	named := map[string]Deviation{}
	for _, d := range AllDeviations(t) {
		if d.Section == section {
			named[d.Name] = d
		}
	}
	return named
}

// AllDeviations returns the whole of deviations.json.
func AllDeviations(t testing.TB) []Deviation {
	t.Helper()
	var file struct {
		Deviations []Deviation `json:"deviations"`
	}
	rttest.ReadJSON(t, Golden(t, "deviations.json"), &file)
	return file.Deviations
}

// Golden returns the path of a file in testdata/golden.
func Golden(t testing.TB, name string) string {
	t.Helper()
	dir := rttest.Must(os.Getwd())(t)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "testdata", "golden", name)
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod above the working directory")
		}
		dir = parent
	}
}
