package local

import (
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// alone is a network without other participants.
type alone struct{ wire.Session }

type nobody struct{ wire.Publisher }

func (alone) Publisher(string, wire.QoS) (wire.Publisher, error) { return nobody{}, nil }

// The tests of package server/front use the bus with a whole network. The test here checks only that the delivery of a
// chunk allocates nothing.
func TestDeliverNoAlloc(t *testing.T) {
	b := Join(alone{})
	n := 0
	rttest.Must(b.Client(wire.Origin{}).Subscribe("a/c/action", func(s wire.Sample) { n += len(s.Payload) }))(t)
	p := rttest.Must(b.Server().Publisher("a/c/action", wire.ActionQoS))(t)
	payload := []byte("chunk")
	if allocated := testing.AllocsPerRun(100, func() {
		_, _ = p.PutLatest(payload, nil)
		_ = p.Put(payload, nil)
	}); allocated != 0 || n == 0 {
		t.Errorf("Put allocates %v times, delivered %d bytes", allocated, n)
	}
}
