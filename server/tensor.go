package server

import (
	"errors"

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
	obs      wire.Observation
}

func newRow(meta *policy.Meta, model Model, caps *wire.Capabilities) (*row, error) {
	r := &row{meta: meta, model: model, contract: wire.Contract{
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
	for cam := range r.contract.Cameras {
		if err := r.picture(cam); err != nil {
			return c, err
		}
	}
	copy(r.model.State(0), r.obs.State)
	if r.meta.NoiseDim > 0 {
		policy.FillNoise(r.model.Noise(0), s.noise, seq)
	}
	c = r.condition(s.rtc)
	if c.PrefixLen > 0 {
		copy(r.model.Prefix(0), r.obs.PrefixRobot.Data)
	}
	r.model.SetControls(0, c)
	return c, nil
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
		if err := r.decoder.DecodeRGB(r.model.Image(0, cam), m.Data, want.W, want.H); err != nil {
			return r.explain(err, m, want)
		}
		return nil
	}
	return errNoPicture
}

// errNoPicture cannot happen after CheckObservation.
var errNoPicture = errors.New("server: camera missing")

// condition chooses what the graph does with the prefix: the trained prefix
// where the policy knows the delay, guidance beyond it and for a delay of
// nothing, which a trained prefix would ignore.
//
//rt:noalloc
func (r *row) condition(rtc bool) policy.Controls {
	rows, end := r.obs.PrefixRobot.Rows, 0
	if r.obs.HasOverlapEnd {
		end = r.obs.OverlapEnd
		if end == 0 {
			rows = 0 // the client wants nothing conditioned
		}
	}
	if !rtc {
		rows = 0
	}
	c := r.meta.Condition(rows, r.obs.InferenceDelaySteps, end)
	if c.Mode == policy.ModeTrained && c.Delay == 0 && r.meta.Guided() {
		c.Mode = policy.ModeGuided
	}
	return c
}

//go:noinline
func (r *row) explain(err error, m *wire.Image, want *wire.CameraShape) error {
	return &pictureError{want.Name, r.decoder.Explain(err, m.Data, want.W, want.H)}
}

// pictureError is a picture that does not decode into the policy's camera.
type pictureError struct {
	camera string
	err    error
}

func (e *pictureError) Error() string { return "image " + e.camera + ": " + e.err.Error() }
func (e *pictureError) Unwrap() error { return e.err }
