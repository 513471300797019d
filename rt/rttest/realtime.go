package rttest

import (
	"os"
	"testing"
	"time"
)

// RealTimeAttr is the attribute (go doc testing.T.Attr) of a test that measures real time.
const RealTimeAttr = "real-time"

// RealTimeEnv is the environment variable by which tools/test puts marked tests off.
const RealTimeEnv = "EDGERT_REAL_TIME"

// RealTime marks a test whose result depends on durations by the machine's own clock. Other tests
// that take its processors away fail such a test although the code is correct. So tools/test skips
// it among the others, by EDGERT_REAL_TIME=later, and runs it after them. Where it fails, tools/test
// runs it once more, alone.
func RealTime(t testing.TB) {
	t.Helper()
	t.Attr(RealTimeAttr, "true")
	if os.Getenv(RealTimeEnv) == "later" {
		t.Skip("a test of real time runs after the others")
	}
}

// Patience bounds Eventually. It measures nothing: it ends a test that would hang.
const Patience = 30 * time.Second

// Eventually waits until ok returns true, calling it once a millisecond, and fails the test after
// Patience. A check that takes longer, such as the start of a program, takes a third of the time:
// the others need the processor. It is for the actions of another thread or process; a test needs no
// wait for events that it can cause itself.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(Patience)
	for began := time.Now(); !ok(); began = time.Now() {
		if began.After(deadline) {
			t.Fatalf("%s: not within %v", what, Patience)
		}
		time.Sleep(max(time.Millisecond, 2*time.Since(began)))
	}
}
