package rttest

import (
	"strings"
	"testing"
)

// Says reports whether an error's text contains all these words; no error has a text.
func Says(err error, words ...string) bool {
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			return false
		}
	}
	return err != nil
}

// NoAllocs fails the test if f allocates in so many runs after its first. The format, such as "a tick allocates %v
// times", gets the mean of the allocations.
func NoAllocs(t testing.TB, format string, runs int, f func()) {
	t.Helper()
	if n := testing.AllocsPerRun(runs, f); n != 0 {
		t.Errorf(format, n)
	}
}
