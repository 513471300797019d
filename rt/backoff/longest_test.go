package backoff

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestLongest(t *testing.T) {
	var l Longest
	if l.Err() != nil || l.Last() != nil {
		t.Errorf("without an attempt: %v, %v", l.Err(), l.Last())
	}
	gone, full := errors.New("gone"), errors.New("full")
	for range 10 {
		l.Add(gone, time.Second)
	}
	l.Add(full, 2*time.Second)
	if l.Err() != gone || l.Last() != full {
		t.Errorf("%v and at last %v, want gone and full", l.Err(), l.Last())
	}
	l.Add(full, 8*time.Second)
	rttest.Want(t, l.Err(), full, "l.Err() (the newer of two that lasted as long)")
	for i := range 10 * maxReasons {
		l.Add(fmt.Errorf("attempt %d", i), time.Second)
	}
	if l.Err() != full || len(l.reasons) != maxReasons {
		t.Errorf("%v of %d, want full of %d", l.Err(), len(l.reasons), maxReasons)
	}
}
