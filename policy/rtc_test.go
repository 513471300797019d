package policy

import (
	"bytes"
	"os"
	"testing"
)

// The Real-Time Chunking examples are a copy; the original, where present, decides.
func TestRTCGoldenIsTheSharedOne(t *testing.T) {
	shared, err := os.ReadFile("../../shared/vectors/rtc_golden.json")
	if err != nil {
		t.Skipf("no shared vectors here: %v", err)
	}
	ours, err := os.ReadFile("../testdata/golden/rtc.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(ours, shared) {
		t.Error("testdata/golden/rtc.json differs from shared/vectors/rtc_golden.json: copy it again and run tools/train's tests")
	}
}
