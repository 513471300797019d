package fleet

import (
	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/sim"
)

// Observation is the content of a request.
type Observation struct {
	Seed      uint64 // seed of the noise, and number of the request
	Direction int
	Seq       uint64
	State     [sim.DOF]float32
	Picture   []byte    // RGB, of the policy's size
	Prefix    []float32 // live rows in robot units, [Rows*DOF], from the step after the capture
	Rows      int
	Spans     []chunk.Span // references to the rows in earlier chunks, sent in place of the rows
	Delay     int          // number of rows that will have run when the answer comes
	PrefixEnd int          // first row that does not condition the answer
}

// Answer is a chunk: Robot, [Horizon*DOF] in robot units, and Model, the same in the policy's
// units, which may be empty.
type Answer struct{ Robot, Model []float32 }

// Policy answers observations. Exported is a Policy; tests have policies with known answers.
type Policy interface {
	// Horizon returns the number of rows of an answer, and DOF the number of values in a row.
	Horizon() int
	DOF() int
	// Picture returns the size of the policy's pictures, in pixels.
	Picture() (width, height int)
	// PrefixEnd returns the last row at which the conditioning of an answer may end; 0: no limit.
	PrefixEnd() int
	// Answer computes a chunk, which is valid until the next call of Answer.
	Answer(o *Observation) (Answer, error)
	// Forget drops the server's memory of the robot's chunks, as a restart of the server does.
	Forget()
}

// Exported is a policy bundle that ONNX Runtime runs, one request at a time. It counts the requests
// of each conditioning mode.
type Exported struct {
	Model  *policy.Model
	Modes  map[policy.Mode]int
	Missed int // requests that named rows of forgotten chunks

	past *policy.History
}

// NewExported returns a policy that uses the first batch row of an opened model.
func NewExported(m *policy.Model) *Exported {
	return &Exported{Model: m, Modes: map[policy.Mode]int{},
		past: policy.NewHistory(m.Bundle().ChunkSize, m.Bundle().ActionDim)}
}

// Horizon returns the bundle's chunk size.
func (e *Exported) Horizon() int { return e.Model.Bundle().ChunkSize }

// DOF returns the bundle's action dimension.
func (e *Exported) DOF() int { return e.Model.Bundle().ActionDim }

// Picture returns the size of the pictures of the bundle's first camera, or of the simulator's
// native picture for a bundle without a camera.
func (e *Exported) Picture() (width, height int) {
	if cameras := e.Model.Bundle().Cameras; len(cameras) > 0 {
		return cameras[0].W, cameras[0].H
	}
	return sim.NativeWidth, sim.NativeHeight
}

// PrefixEnd returns the bundle's prefix_end.
func (e *Exported) PrefixEnd() int { return e.Model.Bundle().PrefixEnd }

// Answer runs the model, conditioned as the bundle demands.
func (e *Exported) Answer(o *Observation) (Answer, error) {
	m := e.Model
	if len(m.Bundle().Cameras) > 0 {
		copy(m.Image(0, 0), o.Picture)
	}
	copy(m.State(0), o.State[:])
	policy.FillNoise(m.Noise(0), policy.NoiseKey(2*o.Seed+uint64(o.Direction+1)/2), o.Seq)
	clear(m.Prefix(0))
	c := m.Bundle().Condition(&policy.Conditioning{}, e.prefix(o), o.Delay, o.PrefixEnd)
	e.Modes[c.Mode]++
	m.SetControls(0, c)
	if err := m.Run(1); err != nil {
		return Answer{}, err
	}
	e.past.Put(int64(o.Seq), m.ChunkRobot(0))
	return Answer{Robot: m.ChunkRobot(0), Model: m.ChunkModel(0)}, nil
}

// prefix fills in the rows that condition the answer, and returns their number. Like the server, it
// returns 0 when the chunk of one span was forgotten.
func (e *Exported) prefix(o *Observation) (rows int) {
	dst := e.Model.Prefix(0)
	if len(o.Spans) == 0 {
		return copy(dst, o.Prefix[:o.Rows*sim.DOF]) / sim.DOF
	}
	for _, s := range o.Spans {
		n := e.past.Copy(dst[rows*sim.DOF:], s.Key, s.Start, s.End)
		if n == 0 {
			e.Missed++
			return 0
		}
		rows += n
	}
	return rows
}

// Forget drops all earlier chunks, whose rows the spans of a request name.
func (e *Exported) Forget() { e.past.Clear() }
