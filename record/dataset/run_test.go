package dataset

import (
	"slices"
	"testing"

	"github.com/edge-rt/edge-rt/record"
)

// The operator's last outcome of an episode is the valid one. An end without a beginning makes no
// episode.
func TestTheLastOutcomeCounts(t *testing.T) {
	r := new(run)
	var open *mark
	for _, e := range []record.Episode{
		{Number: 1}, {Number: 1, Ended: true, Outcome: record.Timeout},
		{Number: 1, Ended: true, Outcome: record.Failure},
		{Number: 2}, {Number: 2, Ended: true, Outcome: record.Success},
		{Number: 7, Ended: true, Outcome: record.Success},
		{Number: 3}, {Number: 2, Ended: true, Outcome: record.Discard},
		{Number: 3, Ended: true, Outcome: record.Success},
	} {
		open = r.addMark(open, &e)
	}
	var outcomes []string
	for _, m := range r.marks {
		outcomes = append(outcomes, m.outcome)
	}
	if want := []string{record.Failure, record.Discard, record.Success}; !slices.Equal(outcomes, want) ||
		r.headless != 1 || open != nil {
		t.Errorf("outcomes %q, %d ends without a beginning, want %q and 1", outcomes, r.headless, want)
	}
}
