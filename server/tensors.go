package server

import (
	"errors"
	"fmt"
	"slices"

	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/wire"
)

// Model runs a policy. It has Buffers sets of MaxBatch rows; the rows of buffer k begin at k*MaxBatch. The returned
// slices are views of the tensors, valid for the model's life. No method may allocate. It is a *policy.Model, a
// *remote.Model, or in tests servertest's model, which needs no ONNX Runtime.
//
// Owner: each row is filled and read by one goroutine at a time, while its buffer does not run.
type Model interface {
	MaxBatch() int
	Buffers() int
	Image(i, cam int) []byte
	State(i int) []float32
	Tokens(i int) []int64
	TokenMask(i int) []bool
	Noise(i int) []float32
	Prefix(i int) []float32
	SetControls(i int, c policy.Controls)
	RunBuffer(k, batch int) error // by one thread
	ChunkModel(i int) []float32
	ChunkRobot(i int) []float32
	Finite(i int) bool
	// Terminate ends the present run with an error. A *policy.Model also ends all later runs. Any goroutine may call
	// it.
	Terminate() error
}

// requester is a Model that another program computes, which needs the session, episode, task and seed of the request in
// each row. SetRequest may allocate.
type requester interface {
	SetRequest(i int, r policy.Request)
}

// tensors fills rows of a model's inputs from observations. It reuses its JPEG decoder and the memory of the parsed
// observation.
//
// Owner: one goroutine, the worker or a thread of the filler.
type tensors struct {
	meta         *policy.Meta
	model        Model
	requester    requester     // model, when another program computes it; nil: model is a graph
	decoder      *jpeg.Decoder // decoder of the pictures; nil for a policy without cameras
	contract     wire.Shapes
	conditioning policy.Conditioning
	tasks        *taskReader
	obs          wire.Observation
	stray        cameraSet // cameras of obs with stray bytes
	squeezed     cameraSet // cameras of obs whose pictures have another shape than the policy's
}

// filled describes the contents of a filled row.
type filled struct {
	policy.Controls
	task         *task
	spans        spanUse
	stale        cameraSet // pictures older than the robot allows
	stray        cameraSet // pictures with stray bytes
	squeezed     cameraSet // pictures of another shape than the policy's, scaled nevertheless
	hasT, hasN   bool
	key, newestN int64 // t and n of the observation, repeated in the answer
}

func newTensors(meta *policy.Meta, model Model, caps *wire.Capabilities, conditioning policy.Conditioning,
	tasks *taskReader) (*tensors, error) {
	t := &tensors{
		meta:         meta,
		model:        model,
		conditioning: conditioning,
		tasks:        tasks,
		contract: wire.Shapes{
			StateDim:  len(meta.StateNames),
			ActionDim: meta.ActionDim,
			Horizon:   meta.ChunkSize,
			Cameras:   slices.Clone(caps.CameraShapes),
			Past:      meta.Steps() - 1,
		},
	}
	t.requester, _ = model.(requester)
	if len(meta.Cameras) == 0 {
		return t, nil
	}
	var err error
	if t.decoder, err = jpeg.NewDecoder(); err != nil {
		return nil, err
	}
	side := 0
	for i, camera := range meta.Cameras {
		if !camera.ExactSize {
			t.contract.Cameras[i].W, t.contract.Cameras[i].H = 0, 0 // any size is accepted
			side = max(side, camera.W, camera.H)
		}
	}
	if side > 0 {
		t.decoder.ReserveFit(side)
	}
	return t, nil
}

func (t *tensors) close() error {
	if t.decoder == nil {
		return nil
	}
	return t.decoder.Close()
}

// blank fills a row with valid inputs of zeros. If conditioned is true and the policy can be conditioned, the inputs
// have a prefix.
func (t *tensors) blank(row int, conditioned bool, seed uint64) {
	for cam := range t.meta.Cameras {
		clear(t.model.Image(row, cam))
	}
	clear(t.model.State(row))
	clear(t.model.Tokens(row))
	clear(t.model.Prefix(row))
	for i, mask := 0, t.model.TokenMask(row); i < len(mask); i++ {
		mask[i] = i == 0
	}
	rows := 0
	if conditioned {
		rows = min(1, t.meta.ChunkSize)
	}
	policy.FillNoise(t.model.Noise(row), 0, seed)
	t.model.SetControls(row, t.meta.Condition(&t.conditioning, rows, rows, 0))
	if t.requester != nil {
		t.requester.SetRequest(row, policy.Request{})
	}
}

// inform gives a model in another program the session, episode, task and seed of a filled row.
//
//rt:noalloc
func (t *tensors) inform(row int, s *session, f *filled, h *wire.Header) {
	if t.requester != nil {
		t.requester.SetRequest(row, policy.Request{
			Session: s.id,
			Episode: int64(h.EpisodeID),
			Task:    f.task.text,
			Seed:    uint64(s.noise) ^ h.SeqID,
		})
	}
}

// fill decodes body into a row of the inputs. After an error the content of the row is undefined, and its chunk must
// not be used. Other rows do not change.
//
//rt:noalloc
func (t *tensors) fill(row int, s *session, seq uint64, body []byte) (f filled, err error) {
	if err := wire.ParseObservation(&t.obs, body); err != nil {
		return f, err
	}
	// Only the prefix in robot units conditions a chunk. Old clients also send the prefix in model units. Its length
	// may differ, if the client's loop ran a step between the two.
	t.obs.PrefixModel.Rows = 0
	t.obs.PrefixModel.Cols = 0
	t.obs.PrefixModel.Data = t.obs.PrefixModel.Data[:0]
	if err := t.contract.CheckObservation(&t.obs); err != nil {
		return f, err
	}
	t.stray, t.squeezed = 0, 0
	for cam := range t.contract.Cameras {
		if err := t.picture(row, cam); err != nil {
			return f, err
		}
	}
	state := t.model.State(row)
	newest := state[len(state)-len(t.obs.State):]
	copy(newest, t.obs.State)
	if t.contract.Past == 0 || copy(state, t.obs.PastStates.Data) == 0 {
		repeatNewest(state, newest)
	}
	if f.task, err = t.taskOf(s); err != nil {
		return f, err
	}
	if f.task.prompt != nil {
		if err := f.task.prompt.Fill(t.model.Tokens(row), t.model.TokenMask(row), t.obs.State); err != nil {
			return f, err
		}
	}
	if t.meta.NoiseDim > 0 {
		policy.FillNoise(t.model.Noise(row), s.noise, seq)
	}
	rows, spans := t.prefix(row, s)
	f.Controls, f.spans = t.condition(rows), spans
	t.model.SetControls(row, f.Controls)
	f.stale = camerasNamed(t.contract.Cameras, t.obs.StaleCameras)
	f.stray = t.stray
	f.squeezed = t.squeezed
	f.hasT = t.obs.HasT
	f.key = t.obs.T
	f.hasN = t.obs.HasN
	f.newestN = t.obs.N
	return f, nil
}

// errNotFinite is the error of a chunk that no robot may execute.
var errNotFinite = fmt.Errorf("%w: the chunk has a value that is not finite", policy.ErrRun)

// prefix fills the model's prefix with the actions that the robot runs until the chunk arrives, and returns their
// number as the result rows. It takes them from the observation itself or, if it has none, from the rows of earlier
// chunks that the observation's spans name. The result use reports whether prefix used spans. If one action is
// missing, it uses no action at all, because the others would be shifted in time.
//
//rt:noalloc
func (t *tensors) prefix(row int, s *session) (rows int, use spanUse) {
	if !s.rtc {
		return 0, spansNone
	}
	dst := t.model.Prefix(row)
	if rows = t.obs.PrefixRobot.Rows; rows > 0 {
		copy(dst, t.obs.PrefixRobot.Data)
		return rows, spansNone
	}
	if len(t.obs.Spans) == 0 || s.history == nil {
		return 0, spansNone
	}
	for _, span := range t.obs.Spans {
		n := s.history.Copy(dst[rows*t.meta.ActionDim:], span.Source, int(span.Start), int(span.End))
		if n == 0 && span.End > span.Start {
			return 0, spansMissing
		}
		rows += n
	}
	return rows, spansFound
}

// remember keeps the chunk of a row, whose rows later requests may name in spans.
//
//rt:noalloc
func (t *tensors) remember(row int, s *session, f *filled) {
	if s.history != nil && f.hasT {
		s.history.Put(f.key, t.model.ChunkRobot(row))
	}
}

// chunk sets c to the chunk of a row, as the answer to the request with header h. The data of c is valid until the next
// run.
//
//rt:noalloc
func (t *tensors) chunk(c *wire.ActionChunk, row int, h *wire.Header, f *filled) {
	*c = wire.ActionChunk{
		SeqIDEcho:        h.SeqID,
		ClientMonoNsEcho: h.ClientMonoNs,
		EpisodeIDEcho:    h.EpisodeID,
		ChunkModel:       wire.Matrix{Rows: t.meta.ChunkSize, Cols: t.meta.ActionDim, Data: t.model.ChunkModel(row)},
		ChunkRobot:       wire.Matrix{Rows: t.meta.ChunkSize, Cols: t.meta.ActionDim, Data: t.model.ChunkRobot(row)},
		HasT:             f.hasT,
		T:                f.key,
		HasN:             f.hasN,
		N:                f.newestN,
	}
}

//rt:noalloc
func (t *tensors) picture(row, cam int) error {
	want := &t.contract.Cameras[cam]
	all := t.model.Image(row, cam)
	dst := all[len(all)-t.meta.Cameras[cam].Bytes():] // the newest step
	for i := range t.obs.Images {
		m := &t.obs.Images[i]
		if m.Name != want.Name {
			continue
		}
		if err := t.decode(dst, m, cam, 0); err != nil {
			return err
		}
		if past := t.obs.Past(want.Name); t.contract.Past > 0 && len(past) > 0 {
			return t.past(all, past, cam)
		}
		repeatNewest(all, dst)
		return nil
	}
	return errNoPicture
}

// past fills the earlier steps in the buffer all, which ends with the picture of the newest step. It goes backwards in
// time, because a step without a picture repeats the picture of the step after it.
//
//rt:noalloc
func (t *tensors) past(all []byte, past []wire.Image, cam int) error {
	n := t.meta.Cameras[cam].Bytes()
	for i := len(past) - 1; i >= 0; i-- {
		dst, after := all[i*n:(i+1)*n], all[(i+1)*n:(i+2)*n]
		if len(past[i].Data) == 0 {
			copy(dst, after)
		} else if err := t.decode(dst, &past[i], cam, len(past)-i); err != nil {
			return err
		}
	}
	return nil
}

// decode decodes one picture of a camera into dst. The parameter before is the number of steps between the picture's
// step and the newest step.
//
//rt:noalloc
func (t *tensors) decode(dst []byte, m *wire.Image, cam, before int) error {
	want := &t.meta.Cameras[cam]
	w, h := m.W, m.H
	var err error
	switch {
	case m.Codec != wire.Raw:
		w, h, err = t.decodeJPEG(dst, m.Data, want)
	case w != want.W || h != want.H: // CheckObservation refuses this where only exact sizes are accepted
		err = t.decoder.Fit(dst, want.W, want.H, m.Data, w, h)
	default:
		copy(dst, m.Data)
	}
	if err != nil {
		return t.explain(err, m, cam, before)
	}
	if m.Codec != wire.Raw && t.decoder.Warned() {
		t.stray |= 1 << cam
	}
	if !sameShape(w, h, want.W, want.H) {
		t.squeezed |= 1 << cam
	}
	return nil
}

// decodeJPEG decodes a JPEG into dst and returns its width and height.
//
//rt:noalloc
func (t *tensors) decodeJPEG(dst, src []byte, want *policy.Camera) (w, h int, err error) {
	w, h = want.W, want.H
	err = t.decoder.DecodeScaled(dst, src, w, h, want.Scale())
	if errors.Is(err, jpeg.ErrSize) && !want.ExactSize {
		w, h, err = t.decoder.DecodeFit(dst, src, w, h)
	}
	return w, h, err
}

// errNoPicture marks a missing camera, which CheckObservation has excluded.
var errNoPicture = errors.New("server: camera missing")

// repeatNewest copies the newest step, which is at the end of the buffer all, into each earlier step. LeRobot does the
// same when an episode begins.
//
//rt:noalloc
func repeatNewest[T byte | float32](all, newest []T) {
	for before := all[:len(all)-len(newest)]; len(before) > 0; {
		before = before[copy(before, newest):]
	}
}

//rt:noalloc
func (t *tensors) condition(rows int) policy.Controls {
	end := 0
	if t.obs.HasOverlapEnd {
		end = t.obs.OverlapEnd
		if end == 0 {
			rows = 0 // the client requests an unconditioned chunk
		}
	}
	return t.meta.Condition(&t.conditioning, rows, t.obs.InferenceDelaySteps, end)
}

//go:noinline
func (t *tensors) explain(err error, m *wire.Image, cam, before int) error {
	want := &t.meta.Cameras[cam]
	if m.Codec == wire.Raw {
		err = fmt.Errorf("%w: got %dx%d (width x height)", err, m.W, m.H)
	} else {
		err = t.decoder.Explain(err, m.Data, want.W, want.H)
	}
	switch k := want.Scale(); {
	case want.ExactSize && k > 1 && errors.Is(err, jpeg.ErrSize):
		err = fmt.Errorf("%w, or up to %d times that by a power of two", err, k)
	case !want.ExactSize && errors.Is(err, jpeg.ErrTooLarge):
		err = fmt.Errorf("%w; a picture that is scaled to %dx%d may have %d pixels and sides of %d", err, want.W,
			want.H, jpeg.MaxFitPixels, jpeg.MaxFitSide)
	}
	return &pictureError{t.contract.Cameras[cam].Name, before, err}
}

// pictureError is the error for a picture that cannot be decoded for the policy's camera.
type pictureError struct {
	camera string
	before int // number of steps before the newest
	err    error
}

func (e *pictureError) Error() string {
	return "image " + wire.StepName(e.camera, e.before) + ": " + e.err.Error()
}
func (e *pictureError) Unwrap() error { return e.err }

// taskOf returns the task of the observation that was parsed last, or the session's task when the observation names no
// task. It tokenises a task that is new to the session, unless a reset has announced the task.
//
//rt:noalloc
func (t *tensors) taskOf(s *session) (*task, error) {
	text := t.obs.Task
	if announced := s.announced.Load(); announced != nil && announced.text == text {
		return announced, nil
	}
	switch {
	case text == "" || text == s.opened.text || !t.tasks.reads:
		return s.opened, nil
	case s.changed != nil && s.changed.text == text:
		return s.changed, nil
	}
	changed, err := t.tasks.read(text)
	if err == nil {
		s.changed = changed
	}
	return changed, err
}
