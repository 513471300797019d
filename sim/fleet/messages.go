package fleet

import (
	"github.com/edge-rt/edge-rt/sim"
	"github.com/edge-rt/edge-rt/wire"
)

// messages encodes messages as edge and server do, to get their sizes.
type messages struct {
	obs   wire.Observation
	chunk wire.ActionChunk
	buf   []byte
}

// observation returns the size in bytes of an observation with its header. file is the picture as
// it is sent, raw or JPEG.
func (m *messages) observation(o *Observation, file []byte, width, height int, jpeg bool) int {
	image := wire.Image{Name: "observation.images.top", Codec: wire.JPEG, Data: file}
	if !jpeg {
		image.Codec, image.C = wire.Raw, 3
		image.H, image.W = height, width
	}
	m.obs = wire.Observation{
		State:               o.State[:],
		Images:              append(m.obs.Images[:0], image),
		Task:                "around the post",
		InferenceDelaySteps: o.Delay,
		HasT:                true,
		T:                   int64(o.Seq),
		HasN:                true,
		HasOverlapEnd:       true,
		OverlapEnd:          o.PrefixEnd,
		HasRunway:           true,
		HasFrameAge:         true,
		Spans:               m.obs.Spans[:0],
	}
	if len(o.Spans) > 0 {
		for _, s := range o.Spans {
			m.obs.Spans = append(m.obs.Spans, wire.Span{Source: s.Key, Start: int32(s.Start), End: int32(s.End)})
		}
	} else if o.Rows > 0 {
		m.obs.PrefixRobot = wire.Matrix{Rows: o.Rows, Cols: sim.DOF, Data: o.Prefix[:o.Rows*sim.DOF]}
	}
	m.buf = wire.AppendObservation(m.buf[:0], &m.obs)
	return len(m.buf) + wire.HeaderSize
}

// answer returns the size in bytes of a chunk with its header.
func (m *messages) answer(key int64, a *Answer) int {
	rows := func(data []float32) wire.Matrix {
		return wire.Matrix{Rows: len(data) / sim.DOF, Cols: sim.DOF, Data: data}
	}
	m.chunk = wire.ActionChunk{
		SeqIDEcho:  uint64(key),
		ChunkModel: rows(a.Model),
		ChunkRobot: rows(a.Robot),
		HasT:       true,
		T:          key,
		HasN:       true,
	}
	m.buf = wire.AppendActionChunk(m.buf[:0], &m.chunk)
	return len(m.buf) + wire.HeaderSize
}
