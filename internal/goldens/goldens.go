// Package goldens reads the recorded results of other people's programs, for the tests that compare
// with them.
package goldens

import (
	"compress/gzip"
	"io"
	"os"
	"testing"
)

// Unzip returns the content of the gzip file at path.
func Unzip(t testing.TB, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return data
}
