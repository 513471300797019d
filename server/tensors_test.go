package server

import (
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"testing"

	"edgert/jpeg"
	"edgert/policy"
	"edgert/rt/rttest"
	"edgert/server/servertest"
	"edgert/wire"
)

// cameras is the fake policy with cameras of other sizes.
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

// bench returns a server of the policy with one open session, of robot arm.
func (c *cameras) bench(t *testing.T) *Server {
	t.Helper()
	s, err := New(config(), Deps{
		Meta: c.meta, SHA256: "5ha", Repo: "test/fake", Model: c, Network: servertest.NewNetwork().Session(),
		Clock: rttest.NewClock(1), Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.worker.tensors.close() })
	o := fakeOpen("arm")
	o.CameraNames = s.caps.ExpectedCameras
	if ack := s.queries.open(&o, ""); !ack.Accepted {
		t.Fatalf("open = %+v", ack)
	}
	return s
}

// scenery is a picture of waves with some noise, the same at every size, and its
// JPEG.
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
	n, err := e.Encode(file, &jpeg.Image{W: w, H: h, Layout: jpeg.RGB, Pix: pix})
	if err != nil {
		t.Fatal(err)
	}
	return pix, file[:n]
}

// Goal: 0 allocations per frame from received bytes to tensor, for every kind of
// picture that travels and with all optional keys, in turn.
func TestReceivedBytesToTensorNoAlloc(t *testing.T) {
	const w, h = 96, 64 // the size of testdata/jpeg/golden
	const top, wrist = imagePrefix + "top", imagePrefix + "wrist"
	s := newCameras(policy.Camera{Name: "top", W: 640, H: 480}, policy.Camera{Name: "wrist", W: w, H: h}).bench(t)
	pix, large := scenery(t, 640, 480, jpeg.Chroma422)
	pictures := map[string]wire.Image{
		"raw": {Codec: wire.Raw, W: w, H: h, C: 3, Data: pix[:3*w*h]},
	}
	for _, name := range []string{"420", "422", "444", "gray", "restart", "bare"} {
		data, err := os.ReadFile(filepath.Join("..", "testdata", "jpeg", "golden", "scene_"+name+".jpg"))
		if err != nil {
			t.Fatal(err)
		}
		pictures[name] = wire.Image{Data: data}
	}
	key, err := wire.ObsKey(s.Prefix(), "arm")
	if err != nil {
		t.Fatal(err)
	}
	var bodies [][]byte
	for _, m := range pictures {
		m.Name = wrist
		bodies = append(bodies, wire.AppendObservation(nil, &wire.Observation{
			State: []float32{10, 20}, Images: []wire.Image{{Name: top, Data: large}, m}, Task: "around the post", InferenceDelaySteps: 2,
			PrefixRobot: wire.Matrix{Rows: 3, Cols: 2, Data: make([]float32, 6)}, StaleCameras: []string{wrist, "roof"},
			HasT: true, HasN: true, HasOverlapEnd: true, OverlapEnd: 4, HasRunway: true, HasFrameAge: true,
		}))
	}
	session, seq := s.sessions.find("arm"), uint64(0)
	attachment := make([]byte, 0, wire.HeaderSize)
	frame := func() {
		seq++
		attachment = wire.AppendHeader(attachment[:0], obsHeader(0, seq))
		s.receiver.onObservation(wire.Sample{Key: key, Payload: bodies[seq%uint64(len(bodies))], Attachment: attachment})
		r := session.mailbox.Take()
		if r == nil {
			t.Fatal("the mailbox is empty")
		}
		if _, err := s.worker.tensors.fill(session, seq, r.Body); err != nil {
			t.Fatal(err)
		}
		s.pool.Return(r)
	}
	for range 3 * len(bodies) { // three buffers grow
		frame()
	}
	if n := testing.AllocsPerRun(8*len(bodies), frame); n != 0 {
		t.Errorf("a frame allocates %v times from received bytes to tensor, want 0", n)
	}
	if s.worker.tensors.stale != 2 {
		t.Errorf("stale cameras = %b, want the second", s.worker.tensors.stale)
	}
	want, decoder := make([]byte, len(pix)), s.worker.tensors.decoder
	if err := decoder.DecodeRGB(want, large, 640, 480); err != nil || string(want) != string(s.worker.tensors.model.Image(0, 0)) {
		t.Errorf("the tensor is not the picture (%v)", err)
	}
}
