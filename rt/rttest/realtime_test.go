package rttest

import "testing"

// A marked test skips if the environment variable requests that, and runs without the variable.
func TestMarkedTestsAreSkippedOnRequest(t *testing.T) {
	for _, value := range []string{"", "later"} {
		t.Setenv(RealTimeEnv, value)
		ran := false
		t.Run("marked "+value, func(t *testing.T) {
			RealTime(t)
			ran = true
		})
		if ran != (value == "") {
			t.Errorf("%s=%s: ran %v", RealTimeEnv, value, ran)
		}
	}
}
