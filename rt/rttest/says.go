package rttest

import (
	"strings"
	"testing"
)

// Says reports whether the text of err contains all words; false if err is nil.
func Says(err error, words ...string) bool {
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			return false
		}
	}
	return err != nil
}

// NoAllocs calls f once, then as many times as the parameter runs, and fails the test if f allocates in these later
// calls. The parameter format, such as "a tick allocates %v times", is the message, with the mean number of
// allocations.
func NoAllocs(t testing.TB, format string, runs int, f func()) {
	t.Helper()
	if n := testing.AllocsPerRun(runs, f); n != 0 {
		t.Errorf(format, n)
	}
}
