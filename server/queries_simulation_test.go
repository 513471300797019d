package server

import (
	"bytes"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/servertest"
	"github.com/edge-rt/edge-rt/wire"
)

// The ack of an open has a mark for a policy that is for simulation only, and none for other policies.
func TestASessionSaysThatItsPolicyIsForSimulation(t *testing.T) {
	for _, only := range []bool{false, true} {
		meta := *servertest.Meta()
		meta.SimulationOnly = only
		b := newBench(t, config(), func(d *Deps) { d.Meta = &meta })
		b.start()
		ack := b.open(fakeOpen("arm"))
		if !ack.Accepted || ack.Simulation != only {
			t.Errorf("simulation_only %v: %+v", only, ack)
		}
		rttest.Want(t, bytes.Contains(wire.Append(nil, &ack), []byte("simulation_only")), only,
			"whether the key simulation_only travels")
	}
}
