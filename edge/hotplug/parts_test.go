package hotplug

import (
	"errors"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Goal: the housekeeping of a run asks for the errors all the time, so it makes garbage only where
// there is one.
func TestOpenErrorOfPartsThatAreHere(t *testing.T) {
	p := Parts{new(Arm), new(Arm)}
	if n := testing.AllocsPerRun(100, func() { _ = p.OpenError() }); n > 0 || p.OpenError() != nil {
		t.Errorf("%v objects, %v", n, p.OpenError())
	}
	away := errors.New("away")
	p[1].openErr.Store(&away)
	rttest.FailsAs(t, p.OpenError(), away)
}
