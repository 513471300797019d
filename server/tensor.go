package server

import (
	"errors"
	"fmt"

	"edgert/jpeg"
	"edgert/policy"
	"edgert/wire"
)

// row fills one row of a model's tensors from observations. It owns a JPEG
// decoder and the parsed observation, both reused.
//
// Owner: worker.
type row struct {
	meta     *policy.Meta
	model    Model
	decoder  *jpeg.Decoder // nil for a policy without cameras
	contract wire.Contract
	how      policy.Conditioning
	obs      wire.Observation
	past     pastUse      // of the observation in obs
	stale    staleCameras // of the observation in obs
	warned   uint32       // of it: bit i is camera i, whose picture has stray bytes
}

// pastUse says what came of an observation that names rows of earlier chunks.
type pastUse uint8

const (
	pastNotAsked pastUse = iota
	pastFound
	pastMissed // at least one is forgotten: the chunk is not conditioned
)

func newRow(meta *policy.Meta, model Model, caps *wire.Capabilities, how policy.Conditioning) (*row, error) {
	r := &row{meta: meta, model: model, how: how, contract: wire.Contract{
		StateDim: len(meta.StateNames), ActionDim: meta.ActionDim, Horizon: meta.ChunkSize, Cameras: caps.CameraShapes,
	}}
	if len(meta.Cameras) == 0 {
		return r, nil
	}
	var err error
	r.decoder, err = jpeg.NewDecoder()
	return r, err
}

func (r *row) close() error {
	if r.decoder == nil {
		return nil
	}
	return r.decoder.Close()
}

// fill decodes body into row 0 and returns the controls that it set. The error says what is wrong with the observation; then the row holds
// garbage and must not run.
//
//rt:noalloc
func (r *row) fill(s *Session, seq uint64, body []byte) (c policy.Controls, err error) {
	if err := wire.ParseObservation(&r.obs, body); err != nil {
		return c, err
	}
	// Only the robot's space conditions a chunk. The model's tail is an old
	// client's habit, and may differ in length when its loop ran in between.
	r.obs.PrefixModel.Rows, r.obs.PrefixModel.Cols, r.obs.PrefixModel.Data = 0, 0, r.obs.PrefixModel.Data[:0]
	if err := r.contract.CheckObservation(&r.obs); err != nil {
		return c, err
	}
	r.stale, r.warned = staleOf(r.contract.Cameras, r.obs.StaleCameras), 0
	for cam := range r.contract.Cameras {
		if err := r.picture(cam); err != nil {
			return c, err
		}
	}
	copy(r.model.State(0), r.obs.State)
	if r.meta.NoiseDim > 0 {
		policy.FillNoise(r.model.Noise(0), s.noise, seq)
	}
	c = r.condition(r.prefix(s))
	r.model.SetControls(0, c)
	return c, nil
}

// prefix puts what the robot will run meanwhile into the model's row, and
// returns how many rows there are: those that travel, else those that its spans
// name in the server's own chunks. Nothing is conditioned on half a prefix: one
// row of it missing would shift the rest in time.
//
//rt:noalloc
func (r *row) prefix(s *Session) (rows int) {
	r.past = pastNotAsked
	if !s.rtc {
		return 0
	}
	dst := r.model.Prefix(0)
	if rows = r.obs.PrefixRobot.Rows; rows > 0 {
		copy(dst, r.obs.PrefixRobot.Data)
		return rows
	}
	if len(r.obs.Spans) == 0 || s.past == nil {
		return 0
	}
	r.past = pastFound
	for _, span := range r.obs.Spans {
		n := s.past.Copy(dst[rows*r.meta.ActionDim:], span.Source, int(span.Start), int(span.End))
		if n == 0 && span.End > span.Start {
			r.past = pastMissed
			return 0
		}
		rows += n
	}
	return rows
}

// remember keeps the chunk in the model's row for spans of later requests.
//
//rt:noalloc
func (r *row) remember(s *Session) {
	if s.past != nil && r.obs.HasT {
		s.past.Put(r.obs.T, r.model.ChunkRobot(0))
	}
}

// answer makes c the chunk that the model's row 0 holds, as an answer to h. The
// matrices are lent until the next run.
//
//rt:noalloc
func (r *row) answer(c *wire.ActionChunk, h *wire.Header) {
	*c = wire.ActionChunk{
		SeqIDEcho: h.SeqID, ClientMonoNsEcho: h.ClientMonoNs, EpisodeIDEcho: h.EpisodeID,
		ChunkModel: wire.Matrix{Rows: r.meta.ChunkSize, Cols: r.meta.ActionDim, Data: r.model.ChunkModel(0)},
		ChunkRobot: wire.Matrix{Rows: r.meta.ChunkSize, Cols: r.meta.ActionDim, Data: r.model.ChunkRobot(0)},
		HasT:       r.obs.HasT, T: r.obs.T, HasN: r.obs.HasN, N: r.obs.N,
	}
}

// picture decodes camera cam straight into its tensor.
//
//rt:noalloc
func (r *row) picture(cam int) error {
	want := &r.contract.Cameras[cam]
	for i := range r.obs.Images {
		m := &r.obs.Images[i]
		if m.Name != want.Name {
			continue
		}
		if m.Codec == wire.Raw { // CheckObservation compared the sizes
			copy(r.model.Image(0, cam), m.Data)
			return nil
		}
		if err := r.decoder.DecodeScaled(r.model.Image(0, cam), m.Data, want.W, want.H, r.meta.Cameras[cam].Scale()); err != nil {
			return r.explain(err, m, cam)
		}
		if r.decoder.Warned() {
			r.warned |= 1 << cam
		}
		return nil
	}
	return errNoPicture
}

// errNoPicture cannot happen after CheckObservation.
var errNoPicture = errors.New("server: camera missing")

// condition chooses what the graph does with that many rows of prefix.
//
//rt:noalloc
func (r *row) condition(rows int) policy.Controls {
	end := 0
	if r.obs.HasOverlapEnd {
		end = r.obs.OverlapEnd
		if end == 0 {
			rows = 0 // the client wants nothing conditioned
		}
	}
	return r.meta.ConditionAs(&r.how, rows, r.obs.InferenceDelaySteps, end)
}

//go:noinline
func (r *row) explain(err error, m *wire.Image, cam int) error {
	want := &r.contract.Cameras[cam]
	err = r.decoder.Explain(err, m.Data, want.W, want.H)
	if k := r.meta.Cameras[cam].Scale(); k > 1 && errors.Is(err, jpeg.ErrSize) {
		err = fmt.Errorf("%w, or up to %d times that by a power of two", err, k)
	}
	return &pictureError{want.Name, err}
}

// pictureError is a picture that does not decode into the policy's camera.
type pictureError struct {
	camera string
	err    error
}

func (e *pictureError) Error() string { return "image " + e.camera + ": " + e.err.Error() }
func (e *pictureError) Unwrap() error { return e.err }
