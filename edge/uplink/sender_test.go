package uplink

import (
	"bytes"
	stdjpeg "image/jpeg"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// published is a publisher that keeps the last message.
type published struct {
	wire.Publisher // the other methods are not called
	body, header   []byte
}

func (o *published) Put(payload, attachment []byte) error {
	_, err := o.PutLatest(payload, attachment)
	return err
}

// observation decodes the last message.
func (o *published) observation() (m wire.Observation) {
	rttest.PanicOn(wire.ParseObservation(&m, o.body))
	return m
}

func (o *published) PutLatest(payload, attachment []byte) (bool, error) {
	o.body, o.header = append(o.body[:0], payload...), append(o.header[:0], attachment...)
	return false, nil
}

// orange fills a frame with one colour.
type orange struct{ format camera.Format }

func (o orange) Format() camera.Format { return o.format }
func (o orange) Close() error          { return nil }

func (o orange) Grab(f *camera.Frame) error {
	f.Format = o.format
	for i := 0; i < len(f.Pix); i += 3 {
		f.Pix[i] = 240
		f.Pix[i+1] = 120
		f.Pix[i+2] = 0
	}
	return nil
}

// newTestSender returns a sender with one camera, whose picture is 7 ms old at instant 1 s.
func newTestSender(t *testing.T, quality int) (*Sender, *published) {
	t.Helper()
	waker, err := rt.NewWaker()
	if err != nil {
		t.Skipf("no eventfd on this system: %v", err)
	}
	t.Cleanup(func() { waker.Close() })
	l := New(Config{Clock: rttest.NewClock(0), Log: slog.New(slog.DiscardHandler)})
	l.Out.Snapshots = rt.NewLatest[Snapshot](nil)
	l.Out.Task.Store(new("pick"))
	e := capture.New("top", orange{camera.Format{Width: 32, Height: 16, Pixels: camera.RGB8, FPS: 30}}, 0)
	f := &e.Newest.Back().Frame
	e.Source.Grab(f)
	f.At = rt.Instant(993 * time.Millisecond)
	e.Newest.Publish(1)
	v, err := capture.NewEncoder(e, &capture.Config{Name: "top"}, capture.Encoding{Quality: quality})
	if err != nil {
		t.Skipf("no libjpeg-turbo: %v", err)
	}
	t.Cleanup(v.Close)
	s := l.NewSender(SenderConfig{
		DOF:      2,
		Cameras:  []*capture.Camera{e},
		Encoders: []*capture.Encoder{v},
		Waker:    waker,
		Missing:  new(atomic.Int32),
	})
	out := &published{}
	l.In.Open(&Session{Session: record.Session{Epoch: 3}, Publisher: out})
	return s, out
}

func testSnapshot() *Snapshot {
	return &Snapshot{
		Epoch:   3,
		Episode: 2,
		Start:   true,
		At:      rt.Instant(time.Second),
		Runway:  250 * time.Millisecond,
		State:   []float32{1, 2},
		Ask: chunk.Ask{
			Key: 9, Step: 41, Delay: 4, PrefixEnd: 10, Rows: 2, ModelRows: 2,
			Robot: []float32{1, 2, 3, 4, 0, 0}, Model: []float32{5, 6, 7, 8, 0, 0},
		},
	}
}

// Goal: a picture older than its camera's bound is marked stale in the observation; an old server
// gets no keys that it does not know.
func TestObservationSaysWhichPictureIsStale(t *testing.T) {
	for _, tt := range []struct {
		bound time.Duration
		old   bool
		want  []string
	}{{5 * time.Millisecond, false, []string{"observation.images.top"}}, {8 * time.Millisecond, false, nil},
		{5 * time.Millisecond, true, nil}} {
		s, out := newTestSender(t, 90)
		s.Cameras[0].MaxAge = tt.bound // the picture is 7 ms old
		s.in.Sessions().Open.Old = tt.old
		s.send(testSnapshot())
		o := out.observation()
		stale := s.Cameras[0].Stats().Stale
		if !slices.Equal(o.StaleCameras, tt.want) || stale != uint64(len(tt.want)) && !tt.old {
			t.Errorf("bound %v, old server %v: stale cameras %v, counted %d, want %v", tt.bound, tt.old, o.StaleCameras,
				stale, tt.want)
		}
	}
}

// Goal: a picture from before a suspension, whose age looks unchanged, is not sent, but the next picture is.
func TestPicturesFromBeforeASuspendAreNotSent(t *testing.T) {
	s, out := newTestSender(t, 90)
	s.out.ResumedAt.Store(int64(995 * time.Millisecond)) // the picture was taken at 993 ms
	s.send(testSnapshot())
	if len(out.body) != 0 || s.stats.Unsent.Load() != 1 {
		t.Errorf("%d bytes sent, %d unsent; want none and 1", len(out.body), s.stats.Unsent.Load())
	}
	s.out.ResumedAt.Store(int64(990 * time.Millisecond))
	s.send(testSnapshot())
	if len(out.body) == 0 {
		t.Error("a picture from after the suspend is not sent")
	}
}

func TestObservationSaysWhatTheTickAsked(t *testing.T) {
	s, out := newTestSender(t, 90)
	s.send(testSnapshot())
	h, err := wire.ParseHeader(out.header)
	want := wire.Header{
		SchemaVersion: 1,
		MsgType:       wire.MsgObservation,
		SeqID:         9,
		EpisodeID:     2,
		ClientMonoNs:  h.ClientMonoNs,
		SessionEpoch:  3,
	}
	if err != nil || h != want {
		t.Fatalf("header %+v, %v, want %+v", h, err, want)
	}
	if off := time.Duration(h.ClientMonoNs) - time.Second; off.Abs() > stampNoise ||
		!s.stamps.ours(9, h.ClientMonoNs) {
		t.Errorf("the stamp is %v from the tick, and counts as ours: %v; want at most 1 ms, true", off,
			s.stamps.ours(9, h.ClientMonoNs))
	}
	o := out.observation()
	if o.N != 40 || o.T != 9 || o.InferenceDelaySteps != 4 || o.OverlapEnd != 10 || !o.EpisodeStart ||
		o.Task != "pick" {
		t.Errorf("observation %+v", o)
	}
	if o.RunwayMs != 250 || o.FrameAgeMs < 6.9 || o.FrameAgeMs > 7.1 {
		t.Errorf("runway %v frame age %v, want 250 and 7", o.RunwayMs, o.FrameAgeMs)
	}
	if o.PrefixRobot.Rows != 2 || o.PrefixRobot.Data[3] != 4 || o.PrefixModel.Rows != 0 {
		t.Errorf("prefix robot %+v model %+v, want the two robot rows alone", o.PrefixRobot, o.PrefixModel)
	}
	if len(o.Images) != 1 || o.Images[0].Name != "observation.images.top" || o.Images[0].Codec != wire.JPEG {
		t.Fatalf("images %+v", o.Images)
	}
	d := rttest.Must(jpeg.NewDecoder())(t)
	pix := make([]byte, 32*16*3)
	if err := d.DecodeRGB(pix, o.Images[0].Data, 32, 16); err != nil || pix[0] < 220 || pix[2] > 30 {
		t.Errorf("first pixel %v (%v), want about 240 120 0: red first", pix[:3], err)
	}
	if got := s.in.Sources.Peek(); got == nil || got.Key != 9 || got.At != rt.Instant(993*time.Millisecond) {
		t.Errorf("source %+v, want key 9 and the picture's instant", got)
	}
}

func TestObservationForAnOldServerHasBothPrefixesAndNoNewKeys(t *testing.T) {
	s, out := newTestSender(t, 0)
	s.in.Open(&Session{Session: record.Session{Epoch: 3}, Publisher: out, Old: true})
	s.send(testSnapshot())
	o := out.observation()
	if o.HasT || o.HasN || o.HasOverlapEnd || o.HasRunway || bytes.Contains(out.body, []byte("runway_ms")) {
		t.Error("keys that an old server does not know were sent")
	}
	if o.PrefixModel.Rows != 2 || o.PrefixRobot.Rows != 2 || o.PrefixModel.Data[0] != 5 {
		t.Errorf("prefixes %+v %+v, want two rows of both", o.PrefixModel, o.PrefixRobot)
	}
	if o.Images[0].Codec != wire.Raw || o.Images[0].H != 16 || o.Images[0].W != 32 || o.Images[0].Data[0] != 240 {
		t.Errorf("raw image %v %dx%d", o.Images[0].Codec, o.Images[0].W, o.Images[0].H)
	}
}

func TestSnapshotOfALostSessionIsNotSent(t *testing.T) {
	s, out := newTestSender(t, 0)
	snap := testSnapshot()
	snap.Epoch = 2
	if s.send(snap); out.body != nil || s.stats.Unsent.Load() != 1 {
		t.Errorf("sent %d bytes, unsent %d; want nothing sent and 1 counted", len(out.body), s.stats.Unsent.Load())
	}
}

func TestSenderNoAlloc(t *testing.T) {
	s, _ := newTestSender(t, 90)
	snap := testSnapshot()
	s.send(snap)
	e, key := s.Cameras[0], int64(1)
	rttest.NoAllocs(t, "send allocates %v times, want 0", 100, func() {
		f := &e.Newest.Back().Frame
		e.Source.Grab(f)
		key++
		f.At = rt.Instant(993*time.Millisecond) + rt.Instant(key)
		e.Newest.Publish(key)
		s.send(snap)
		for s.in.Sources.Peek() != nil {
			s.in.Sources.Release()
		}
	})
}

// newTestLook adds a page's preview to a sender.
func newTestLook(t *testing.T, s *Sender) *capture.Preview {
	t.Helper()
	preview := rttest.Must(capture.NewPreview(s.Encoders[0]))(t)
	t.Cleanup(preview.Close)
	s.Previews = []*capture.Preview{preview}
	return preview
}

// Goal: the preview shows the very bytes that went to the server. The sender encodes no picture for
// the preview while observations leave.
func TestWhoLooksSeesWhatIsSent(t *testing.T) {
	s, out := newTestSender(t, 90)
	s.clock = rttest.NewClock(rt.Instant(time.Second))
	preview := newTestLook(t, s)
	room := make([]byte, preview.MaxBytes())
	snap := testSnapshot()
	send := func() {
		s.send(snap)
		s.updatePreviews()
	}
	send()
	rttest.FailsAs(t, rttest.Err(preview.Read(room, 0)), capture.ErrNoPicture) // no client has asked
	preview.Request(s.clock.Now())
	send()
	still, err := preview.Read(room, s.clock.Now())
	if err != nil || still.At != rt.Instant(993*time.Millisecond) {
		t.Fatalf("taken at %v, %v; want 993 ms", still.At, err)
	}
	o := out.observation()
	if !bytes.Equal(still.Data, o.Images[0].Data) {
		t.Error("the preview is another picture than the observation's")
	}
	preview.Request(s.clock.Now())
	s.updatePreviews()
	// The reader requests a newer picture than the copy.
	rttest.FailsAs(t, rttest.Err(preview.Read(room, s.clock.Now().Add(time.Second))), capture.ErrNoPicture)
	rttest.NoAllocs(t, "%v allocations for a picture that the page shows", 100, func() {
		preview.Request(s.clock.Now())
		send()
	})
}

// Goal: without observations the preview still gets pictures, and a raw picture at once.
func TestWhoLooksSeesAPausedRobot(t *testing.T) {
	for quality, patience := range map[int]time.Duration{90: capture.PreviewDelay, 0: 0} {
		s, _ := newTestSender(t, quality)
		clock := rttest.NewClock(rt.Instant(time.Second))
		s.clock = clock
		preview := newTestLook(t, s)
		room := make([]byte, preview.MaxBytes())
		preview.Request(clock.Now())
		if patience > 0 {
			s.updatePreviews()
			rttest.FailsAs(t, rttest.Err(preview.Read(room, clock.Now())), capture.ErrNoPicture)
			clock.Advance(patience)
		}
		s.updatePreviews()
		still, err := preview.Read(room, clock.Now())
		if err != nil {
			t.Fatalf("quality %d: %v", quality, err)
		}
		m, err := stdjpeg.Decode(bytes.NewReader(still.Data))
		if err != nil || m.Bounds().Dx() != 32 || m.Bounds().Dy() != 16 {
			t.Fatalf("quality %d: %v, %v", quality, m, err)
		}
		if red, green, blue, _ := m.At(5, 5).RGBA(); red>>8 < 230 || green>>8 < 110 || green>>8 > 130 || blue>>8 > 15 {
			t.Errorf("quality %d: colour %d %d %d, want 240 120 0", quality, red>>8, green>>8, blue>>8)
		}
		rttest.Want(t, testing.AllocsPerRun(100, func() { preview.Request(1); s.updatePreviews() }), 0,
			"quality %d: allocations for a picture", quality)
	}
}
