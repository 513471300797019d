package server

import (
	"errors"
	"fmt"

	"edgert/jpeg"
	"edgert/policy"
	"edgert/policy/tokenizer"
	"edgert/server/audit"
	"edgert/server/manifest"
	"edgert/wire"
)

// tensors are row 0 of a model's: inputs filled from an observation, outputs read
// as a chunk. It owns a JPEG decoder and the parsed observation, both reused.
//
// Owner: worker.
type tensors struct {
	meta         *policy.Meta
	model        Model
	decoder      *jpeg.Decoder // nil for a policy without cameras
	contract     wire.Contract
	conditioning policy.Conditioning
	tasks        *taskReader
	obs          wire.Observation

	// Of the observation in obs.
	task  *task
	spans spanUse
	stale cameraSet // older than the robot allows
	stray cameraSet // with stray bytes
}

func newTensors(meta *policy.Meta, model Model, caps *wire.Capabilities, conditioning policy.Conditioning, tasks *taskReader) (*tensors, error) {
	t := &tensors{meta: meta, model: model, conditioning: conditioning, tasks: tasks, contract: wire.Contract{
		StateDim: len(meta.StateNames), ActionDim: meta.ActionDim, Horizon: meta.ChunkSize, Cameras: caps.CameraShapes,
		Past: meta.Steps() - 1,
	}}
	if len(meta.Cameras) == 0 {
		return t, nil
	}
	var err error
	t.decoder, err = jpeg.NewDecoder()
	return t, err
}

func (t *tensors) close() error {
	if t.decoder == nil {
		return nil
	}
	return t.decoder.Close()
}

// warmUp runs n inferences on the tensors as they are, through every conditioning
// the policy has.
func (t *tensors) warmUp(n int) error {
	for i := range n {
		rows := 0
		if i > 0 {
			rows = min(1, t.meta.ChunkSize)
		}
		policy.FillNoise(t.model.Noise(0), 0, uint64(i))
		t.model.SetControls(0, t.meta.Condition(&t.conditioning, rows, rows, 0))
		if err := t.model.Run(1); err != nil {
			return err
		}
	}
	return nil
}

// probe runs an inference that nothing is wrong with, whatever a request left in the
// tensors: what fails here is not a robot's fault.
func (t *tensors) probe() error {
	for cam := range t.meta.Cameras {
		clear(t.model.Image(0, cam))
	}
	clear(t.model.State(0))
	clear(t.model.Tokens(0))
	clear(t.model.Prefix(0))
	for i, mask := 0, t.model.TokenMask(0); i < len(mask); i++ {
		mask[i] = i == 0
	}
	return t.warmUp(1)
}

// fill decodes body into the inputs and returns the controls that it set. On an
// error the tensors hold garbage and must not run.
//
//rt:noalloc
func (t *tensors) fill(s *Session, seq uint64, body []byte) (c policy.Controls, err error) {
	if err := wire.ParseObservation(&t.obs, body); err != nil {
		return c, err
	}
	// Only the robot's space conditions a chunk. The model's tail is an old
	// client's habit, and may differ in length when its loop ran in between.
	t.obs.PrefixModel.Rows, t.obs.PrefixModel.Cols, t.obs.PrefixModel.Data = 0, 0, t.obs.PrefixModel.Data[:0]
	if err := t.contract.CheckObservation(&t.obs); err != nil {
		return c, err
	}
	t.stale, t.stray = camerasNamed(t.contract.Cameras, t.obs.StaleCameras), 0
	for cam := range t.contract.Cameras {
		if err := t.picture(cam); err != nil {
			return c, err
		}
	}
	state := t.model.State(0)
	newest := state[len(state)-len(t.obs.State):]
	copy(newest, t.obs.State)
	if t.contract.Past == 0 || copy(state, t.obs.PastStates.Data) == 0 {
		repeatNewest(state, newest)
	}
	if t.task, err = t.taskOf(s); err != nil {
		return c, err
	}
	if t.task.prompt != nil {
		if err := t.task.prompt.Fill(t.model.Tokens(0), t.model.TokenMask(0), t.obs.State); err != nil {
			return c, err
		}
	}
	if t.meta.NoiseDim > 0 {
		policy.FillNoise(t.model.Noise(0), s.noise, seq)
	}
	c = t.condition(t.prefix(s))
	t.model.SetControls(0, c)
	return c, nil
}

//rt:noalloc
func (t *tensors) infer() (audit.Outcome, error) {
	if err := t.model.Run(1); err != nil {
		return audit.InferenceFailed, err
	}
	if !t.model.Finite(0) {
		return audit.NotFinite, errNotFinite
	}
	return audit.Answered, nil
}

// errNotFinite is a chunk no robot may execute.
var errNotFinite = fmt.Errorf("%w: the chunk has a value that is not finite", policy.ErrRun)

// prefix puts the rows that run meanwhile into the model's prefix: those that
// travel, else those that its spans name. One missing row would shift the rest in
// time, so nothing is conditioned on half a prefix.
//
//rt:noalloc
func (t *tensors) prefix(s *Session) (rows int) {
	t.spans = spansNone
	if !s.rtc {
		return 0
	}
	dst := t.model.Prefix(0)
	if rows = t.obs.PrefixRobot.Rows; rows > 0 {
		copy(dst, t.obs.PrefixRobot.Data)
		return rows
	}
	if len(t.obs.Spans) == 0 || s.history == nil {
		return 0
	}
	t.spans = spansFound
	for _, span := range t.obs.Spans {
		n := s.history.Copy(dst[rows*t.meta.ActionDim:], span.Source, int(span.Start), int(span.End))
		if n == 0 && span.End > span.Start {
			t.spans = spansMissing
			return 0
		}
		rows += n
	}
	return rows
}

// remember keeps the chunk in the outputs for spans of later requests.
//
//rt:noalloc
func (t *tensors) remember(s *Session) {
	if s.history != nil && t.obs.HasT {
		s.history.Put(t.obs.T, t.model.ChunkRobot(0))
	}
}

// chunk makes c the outputs' chunk, an answer to h. Lent until the next run.
//
//rt:noalloc
func (t *tensors) chunk(c *wire.ActionChunk, h *wire.Header) {
	*c = wire.ActionChunk{
		SeqIDEcho: h.SeqID, ClientMonoNsEcho: h.ClientMonoNs, EpisodeIDEcho: h.EpisodeID,
		ChunkModel: wire.Matrix{Rows: t.meta.ChunkSize, Cols: t.meta.ActionDim, Data: t.model.ChunkModel(0)},
		ChunkRobot: wire.Matrix{Rows: t.meta.ChunkSize, Cols: t.meta.ActionDim, Data: t.model.ChunkRobot(0)},
		HasT:       t.obs.HasT, T: t.obs.T, HasN: t.obs.HasN, N: t.obs.N,
	}
}

//rt:noalloc
func (t *tensors) picture(cam int) error {
	want := &t.contract.Cameras[cam]
	all := t.model.Image(0, cam)
	dst := all[len(all)-t.meta.Cameras[cam].Bytes():] // the newest
	for i := range t.obs.Images {
		m := &t.obs.Images[i]
		if m.Name != want.Name {
			continue
		}
		if err := t.decode(dst, m, cam); err != nil {
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

// past fills the steps before the newest, whose picture stands at the end of all: the
// last one first, because a step without a picture is the same as the step after it.
//
//rt:noalloc
func (t *tensors) past(all []byte, past []wire.Image, cam int) error {
	n := t.meta.Cameras[cam].Bytes()
	for i := len(past) - 1; i >= 0; i-- {
		dst, after := all[i*n:(i+1)*n], all[(i+1)*n:(i+2)*n]
		if len(past[i].Data) == 0 {
			copy(dst, after)
		} else if err := t.decode(dst, &past[i], cam); err != nil {
			return err
		}
	}
	return nil
}

// decode puts one picture into dst, a camera's at one step.
//
//rt:noalloc
func (t *tensors) decode(dst []byte, m *wire.Image, cam int) error {
	if m.Codec == wire.Raw { // CheckObservation compared the sizes
		copy(dst, m.Data)
		return nil
	}
	want := &t.contract.Cameras[cam]
	if err := t.decoder.DecodeScaled(dst, m.Data, want.W, want.H, t.meta.Cameras[cam].Scale()); err != nil {
		return t.explain(err, m, cam)
	}
	if t.decoder.Warned() {
		t.stray |= 1 << cam
	}
	return nil
}

// errNoPicture cannot happen after CheckObservation.
var errNoPicture = errors.New("server: camera missing")

// repeatNewest fills what a policy that looks back sees before the newest
// observation, which is the end of all: as LeRobot does when an episode begins.
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
			rows = 0 // the client wants nothing conditioned
		}
	}
	return t.meta.Condition(&t.conditioning, rows, t.obs.InferenceDelaySteps, end)
}

//go:noinline
func (t *tensors) explain(err error, m *wire.Image, cam int) error {
	want := &t.contract.Cameras[cam]
	err = t.decoder.Explain(err, m.Data, want.W, want.H)
	if k := t.meta.Cameras[cam].Scale(); k > 1 && errors.Is(err, jpeg.ErrSize) {
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

// task is what a robot shall do, as the policy reads it.
//
// Constant.
type task struct {
	text   string
	prompt *tokenizer.Prompt // nil: the policy does not read its task
}

// taskReader turns the texts of robots into tasks.
//
// Constant after New.
type taskReader struct {
	tokenizer *tokenizer.Tokenizer // nil: the policy does not read its task
	pinned    string               // the only text that is allowed; empty: any
}

func newTaskReader(cfg *manifest.Config, t *tokenizer.Tokenizer) taskReader {
	r := taskReader{tokenizer: t}
	if cfg.PinTask {
		r.pinned = cfg.DefaultTask
	}
	return r
}

// read checks a text and tokenises it, once per task. It allocates, in proportion
// to wire.MaxTextBytes at most.
//
//go:noinline
func (r *taskReader) read(text string) (*task, error) {
	if r.pinned != "" && text != r.pinned {
		return nil, fmt.Errorf("task is pinned to %s on this server, got %s", pyString(r.pinned), pyString(text))
	}
	if r.tokenizer == nil {
		return &task{text: text}, nil
	}
	prompt, err := r.tokenizer.Prompt(text)
	if err != nil {
		return nil, fmt.Errorf("%w, got %s", err, pyString(fmt.Sprintf("%.80s", text)))
	}
	return &task{text, prompt}, nil
}

// taskOf returns the task of the observation that was parsed last: the session's
// when it names none. One that is new to the session is read here, unless a reset
// announced it.
//
//rt:noalloc
func (t *tensors) taskOf(s *Session) (*task, error) {
	text := t.obs.Task
	if announced := s.announced.Load(); announced != nil && announced.text == text {
		return announced, nil
	}
	switch {
	case text == "" || text == s.opened.text || t.tasks.tokenizer == nil:
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
