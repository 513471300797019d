package drive

import (
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestHistogramSumsToTheCount(t *testing.T) {
	h := rt.NewHist()
	for i := range 1000 {
		h.Record(time.Duration(i) * time.Microsecond)
	}
	var sum uint64
	for _, n := range histogram(h, time.Microsecond) {
		sum += n
	}
	rttest.Want(t, sum, 1000, "histogram holds")
}

func TestRoundOfANegative(t *testing.T) { rttest.Want(t, round3(-10), -10, "round3(-10)") }
