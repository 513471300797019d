package server

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/front"
	"github.com/edge-rt/edge-rt/server/servertest"
	"github.com/edge-rt/edge-rt/wire"
)

// cameras is a fake policy with several cameras, of different sizes.
type cameras struct {
	*servertest.Model
	meta   *policy.Meta
	images [][]byte
}

func newCameras(list ...policy.Camera) *cameras {
	c := &cameras{Model: servertest.NewModel(), meta: servertest.Meta()}
	c.meta.Cameras = list
	for _, camera := range list {
		c.images = append(c.images, make([]byte, camera.Bytes()))
	}
	return c
}

func (c *cameras) Image(_, cam int) []byte { return c.images[cam] }

// bench returns a server of the policy, at which the robot arm has a session.
func (c *cameras) bench(t *testing.T, change ...func(*Deps)) *bench {
	t.Helper()
	b := newBench(t, config(), append(change, func(d *Deps) { d.Meta, d.Model = c.meta, c })...)
	t.Cleanup(func() { b.server.worker.engine.tensors.close() })
	o := fakeOpen("arm")
	o.CameraNames = b.server.caps.ExpectedCameras
	b.admits(b.openFrom(wire.Origin{}, o), "an open")
	return b
}

// scenery returns a picture of waves with some noise, as pixels and as a JPEG. Apart from the size, it is always the
// same picture.
func scenery(t *testing.T, w, h int, chroma jpeg.Chroma) (pix, file []byte) {
	t.Helper()
	pix = make([]byte, 3*w*h)
	for i, x := 0, uint32(1); i < w*h; i++ {
		x = x*1664525 + 1013904223
		across, down := 2*math.Pi*13*float64(i%w)/float64(w), 2*math.Pi*9*float64(i/w)/float64(h)
		pix[3*i] = byte(128 + 90*math.Sin(across))
		pix[3*i+1] = byte(128 + 90*math.Sin(down))
		pix[3*i+2] = byte(128+60*math.Sin(across+down)) + byte(x>>29)
	}
	e, err := jpeg.NewEncoder(90, chroma)
	if err != nil {
		t.Skip(err)
	}
	defer e.Close()
	file = make([]byte, jpeg.MaxSize(w, h, chroma))
	n := rttest.Must(e.Encode(file, &jpeg.Image{W: w, H: h, Layout: jpeg.RGB, Pix: pix}))(t)
	return pix, file[:n]
}

// Goal: 0 allocations per frame from received bytes to tensor, for every kind of picture that a robot may send, and
// with all optional keys.
func TestReceivedBytesToTensorNoAlloc(t *testing.T) {
	const w, h = 96, 64 // the size of testdata/jpeg/golden
	const wrist = front.ImagePrefix + "wrist"
	s := newCameras(policy.Camera{Name: "top", W: 640, H: 480},
		policy.Camera{Name: "wrist", W: w, H: h}).bench(t).server
	pix, large := scenery(t, 640, 480, jpeg.Chroma422)
	pictures := map[string]wire.Image{
		"raw": {Codec: wire.Raw, W: w, H: h, C: 3, Data: pix[:3*w*h]},
	}
	for _, name := range []string{"420", "422", "444", "gray", "restart", "bare"} {
		data := rttest.Must(os.ReadFile(filepath.Join("..", "testdata", "jpeg", "golden", "scene_"+name+".jpg")))(t)
		pictures[name] = wire.Image{Data: data}
	}
	key := obsKey(t, "arm")
	var bodies [][]byte
	for _, m := range pictures {
		m.Name = wrist
		bodies = append(bodies, wire.AppendObservation(nil, &wire.Observation{
			State:               []float32{10, 20},
			Images:              []wire.Image{{Name: top, Data: large}, m},
			Task:                "around the post",
			InferenceDelaySteps: 2,
			PrefixRobot:         wire.Matrix{Rows: 3, Cols: 2, Data: make([]float32, 6)},
			StaleCameras:        []string{wrist, "roof"},
			HasT:                true,
			HasN:                true,
			HasOverlapEnd:       true,
			OverlapEnd:          4,
			HasRunway:           true,
			HasFrameAge:         true,
		}))
	}
	session, seq := s.sessions.find("arm"), uint64(0)
	attachment, stale := make([]byte, 0, wire.HeaderSize), cameraSet(0)
	frame := func() {
		seq++
		attachment = wire.AppendHeader(attachment[:0], obsHeader(0, seq))
		s.receiver.onObservation(wire.Sample{Key: key, Payload: bodies[seq%uint64(len(bodies))],
			Attachment: attachment})
		r := session.mailbox.Take()
		if r == nil {
			t.Fatal("the mailbox is empty")
		}
		f := rttest.Must(s.worker.engine.tensors.fill(0, session, seq, r.Body))(t)
		stale = f.stale
		s.pool.Return(r)
	}
	for range 3 * len(bodies) { // all three buffers must grow before the count
		frame()
	}
	rttest.NoAllocs(t, "a frame allocates %v times from received bytes to tensor, want 0", 8*len(bodies), frame)
	rttest.Want(t, stale, 2, "stale cameras")
	want, decoder := make([]byte, len(pix)), s.worker.engine.tensors.decoder
	if err := decoder.DecodeRGB(want, large, 640, 480); err != nil ||
		string(want) != string(s.worker.engine.tensors.model.Image(0, 0)) {
		t.Errorf("the tensor is not the picture (%v)", err)
	}
}

// A policy that also takes earlier steps gets their states and pictures, each in its place and without an allocation.
// When a robot sends no history, its newest observation is used for all steps.
func TestHistoryFillsTheStepsBefore(t *testing.T) {
	const w, h, steps = 32, 16, 3
	pix, file := scenery(t, w, h, jpeg.Chroma444)
	decoder := rttest.Must(jpeg.NewDecoder())(t)
	defer decoder.Close()
	decoded, plain := make([]byte, len(pix)), bytes.Repeat([]byte{7}, len(pix))
	rttest.Do(t, decoder.DecodeScaled(decoded, file, w, h, 1))
	l := newCameras(policy.Camera{Name: "top", H: h, W: w})
	l.meta.ObservationSteps = steps
	l.images[0] = make([]byte, steps*len(pix))
	dof := len(l.meta.StateNames)
	l.Look(steps)
	caps := capabilities(l.meta, "", "", "", "")
	tensors := rttest.Must(newTensors(l.meta, l, &caps, policy.Conditioning{}, &taskReader{}))(t)
	defer tensors.close()
	name := caps.CameraShapes[0].Name
	raw := func(p []byte) wire.Image { return wire.Image{Name: name, Codec: wire.Raw, H: h, W: w, C: 3, Data: p} }
	packed, same := wire.Image{Name: name, Data: file}, wire.Image{Name: name}
	s := &session{opened: &task{}}
	states := make([]float32, steps*dof)
	for i := range states {
		states[i] = float32(i)
	}
	still := slices.Concat(states[2*dof:], states[2*dof:], states[2*dof:])
	for _, tt := range []struct {
		name   string
		past   []wire.Image
		states []float32
		want   [][]byte
	}{
		{"raw and JPEG", []wire.Image{raw(plain), packed}, states, [][]byte{plain, decoded, pix}},
		{"JPEG and the newest", []wire.Image{packed, same}, states, [][]byte{decoded, pix, pix}},
		{"the step after it", []wire.Image{same, packed}, states, [][]byte{decoded, decoded, pix}},
		{"none", nil, still, [][]byte{pix, pix, pix}},
	} {
		o := &wire.Observation{State: states[2*dof:], Images: []wire.Image{raw(pix)}, PastImages: tt.past}
		if tt.past != nil {
			o.PastStates = wire.Matrix{Rows: steps - 1, Cols: dof, Data: states[:2*dof]}
		}
		body := wire.AppendObservation(nil, o)
		frame := func() { rttest.Do(t, rttest.Err(tensors.fill(0, s, 1, body))) }
		frame()
		if !slices.Equal(l.State(0), tt.states) || !bytes.Equal(l.images[0], slices.Concat(tt.want...)) {
			t.Errorf("%s: the policy sees states %v or pictures that were not sent", tt.name, l.State(0))
		}
		rttest.NoAllocs(t, tt.name+": %v allocations", 10, frame)
	}
	bad := &wire.Observation{State: states[2*dof:], Images: []wire.Image{raw(pix)},
		PastStates: wire.Matrix{Rows: 1, Cols: dof, Data: states[:dof]}}
	rttest.FailsAs(t, rttest.Err(tensors.fill(0, s, 1, wire.AppendObservation(nil, bad))), wire.ErrShape)
}
