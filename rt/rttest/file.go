package rttest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// WriteFile writes a file into a folder, which it makes if necessary, and returns its path. The file may be run as a
// program.
func WriteFile[T string | []byte](t testing.TB, dir, name string, data T) (path string) {
	t.Helper()
	path = filepath.Join(dir, name)
	Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
	Do(t, os.WriteFile(path, []byte(data), 0o700))
	return path
}

// ReadFile returns the text of a file.
func ReadFile(t testing.TB, path string) string {
	t.Helper()
	return string(Must(os.ReadFile(path))(t))
}

// ReadJSON reads a file, such as a program's summary, into v.
func ReadJSON(t testing.TB, path string, v any) {
	t.Helper()
	Do(t, json.Unmarshal([]byte(ReadFile(t, path)), v))
}

// Cases decodes a section of a JSON file, a list of at least one case.
func Cases[T any](t testing.TB, path, section string) (cases []T) {
	t.Helper()
	var all map[string]json.RawMessage
	ReadJSON(t, path, &all)
	if err := json.Unmarshal(all[section], &cases); err != nil || len(cases) == 0 {
		t.Fatalf("%s in %s: %d cases, %v", section, path, len(cases), err)
	}
	return cases
}
