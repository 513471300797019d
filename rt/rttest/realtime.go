package rttest

import (
	"os"
	"testing"
	"time"
)

// RealTimeAttr is the attribute (go doc testing.T.Attr) of a test that measures real time.
const RealTimeAttr = "real-time"

// RealTimeEnv is the environment variable by which tools/test makes marked tests skip until the other tests have ended.
const RealTimeEnv = "EDGERT_REAL_TIME"

// RealTime marks a test whose result depends on durations by the machine's own clock. Other tests that take its
// processors away fail such a test although the code is correct. So tools/test runs this test after the others, during
// which EDGERT_REAL_TIME=later makes it skip. If it then fails, tools/test runs it once more, alone.
func RealTime(t testing.TB) {
	t.Helper()
	t.Attr(RealTimeAttr, "true")
	if os.Getenv(RealTimeEnv) == "later" {
		t.Skip("a test of real time runs after the others")
	}
}

// Patience is the longest wait of Eventually. It is no measurement: it only ends a test that would hang.
const Patience = 30 * time.Second

// Eventually calls ok about once a millisecond until it returns true, and fails the test after Patience. If ok takes
// longer, for example because it starts a program, Eventually then sleeps for twice the duration of that call, because
// other processes need the processor. It is for the actions of another thread or process; a test needs no wait for
// events that it can cause itself.
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
