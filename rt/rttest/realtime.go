package rttest

import (
	"testing"
	"time"
)

// RealTimeAttr is the attribute (go doc testing.T.Attr) of a test that measures real time.
const RealTimeAttr = "real-time"

// RealTime marks a test whose result depends on durations by the machine's own clock. A host that
// takes its processors away fails such a test although the code is correct, so tools/test runs it,
// and no other, again.
func RealTime(t testing.TB) {
	t.Helper()
	t.Attr(RealTimeAttr, "true")
}

// Patience bounds Eventually. It measures nothing: it ends a test that would hang.
const Patience = 30 * time.Second

// Eventually waits until ok returns true, calling it once a millisecond, and fails the test after
// Patience. It is for the actions of another thread or process; a test needs no wait for events
// that it can cause itself.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, Patience)
		}
	}
}
