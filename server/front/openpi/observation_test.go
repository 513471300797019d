package openpi

import (
	"errors"
	"testing"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/server/front"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/ndarray"
)

// Property: whatever a client sends, the reader returns an observation that the wire can carry, or an
// error.
func FuzzObservation(f *testing.F) {
	meta := &policy.Meta{StateNames: []string{"a.pos"}, Cameras: []policy.Camera{{Name: "top", H: 1, W: 1}}}
	state := ndarray.OpenPI.AppendArray([]byte("\x82\xA5state"), ndarray.Float32, []int{1}, make([]byte, 4))
	f.Add(ndarray.OpenPI.AppendArray(append(state, "\xA3top"...), ndarray.Uint8, []int{1, 1, 3}, make([]byte, 3)))
	f.Add(ndarray.OpenPI.AppendArray(append(state, "\xA3top"...), ndarray.Float32, []int{3, 1, 1}, make([]byte, 12)))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ndarray.ParseMap(b)
		if err != nil {
			return
		}
		r := reader{keys: &keys{}, meta: meta, cameras: []string{"observation.images.top"},
			held: front.NewBudget(1<<20, 1).Client()}
		o, task, err := r.read(m)
		if err != nil {
			if !errors.Is(err, errKeys) && !errors.Is(err, front.ErrNoMemory) {
				t.Fatalf("error %v does not wrap errKeys", err)
			}
			return
		}
		o.Task = task
		var again wire.Observation
		if err := wire.ParseObservation(&again, wire.AppendObservation(nil, o)); err != nil && len(task) <= taskMost {
			t.Fatalf("%+v does not survive the wire: %v", o, err)
		}
	})
}
