package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/audit"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/server/servertest"
	"github.com/edge-rt/edge-rt/wire"
)

const patience = 10 * time.Second // only a broken test waits so long

// bench is a server on a network of its own, and a session for its robots.
type bench struct {
	t       *testing.T
	server  *Server
	model   *servertest.Model
	clock   *rttest.Clock
	network *servertest.Network
	session wire.Session // of the robots
	stop    func() error // ends Serve and returns its error
}

// fakePrefix is the key prefix of config's service.
const fakePrefix = "@lerobot/test-fake/main/demo"

func config() manifest.Config {
	cfg := manifest.Default()
	cfg.Model.RepoOrPath = "bundle"
	cfg.Service = "demo"
	cfg.MaxSessions = 2
	return cfg
}

func newBench(t *testing.T, cfg manifest.Config, change ...func(*Deps)) *bench {
	t.Helper()
	b := &bench{t: t, model: servertest.NewModel(), clock: rttest.NewClock(1), network: servertest.NewNetwork()}
	d := Deps{
		Meta: servertest.Meta(), SHA256: "5ha", Repo: "test/fake", Prefix: fakePrefix, Model: b.model,
		Network: b.network.Session(), Clock: b.clock, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	for _, f := range change {
		f(&d)
	}
	var err error
	if b.server, err = New(cfg, d); err != nil {
		t.Fatal(err)
	}
	b.session = b.network.Session()
	return b
}

// logTo has a bench's server write its log to w.
func logTo(w io.Writer) func(*Deps) {
	return func(d *Deps) { d.Log = slog.New(slog.NewTextHandler(w, nil)) }
}

// serve returns a running server of the fake policy.
func serve(t *testing.T, cfg manifest.Config, change ...func(*bench)) *bench {
	t.Helper()
	b := newBench(t, cfg)
	b.start(change...)
	return b
}

// start serves and waits until the server has announced itself.
func (b *bench) start(change ...func(*bench)) {
	t := b.t
	t.Helper()
	for _, f := range change {
		f(b)
	}
	b.begin()
	rttest.Eventually(t, "the server's token", func() bool { return b.network.CountTokens(wire.ServerAliveAny) == 1 })
}

// begin serves until stop.
func (b *bench) begin() {
	t := b.t
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.server.Serve(ctx) }()
	b.stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(patience):
			t.Fatal("Serve did not return")
			return nil
		}
	})
	t.Cleanup(func() { _ = b.stop() })
}

// holdInferences makes each inference signal its begin on entered and wait for leave. It is used in
// serve's options.
func (b *bench) holdInferences() (entered, leave chan struct{}) {
	entered, leave = make(chan struct{}, 100), make(chan struct{})
	b.server.cfg.WarmupInferences = 0
	b.model.Before = func() error {
		entered <- struct{}{}
		<-leave
		return nil
	}
	return entered, leave
}

func (b *bench) query(key string, payload []byte) []wire.Reply {
	b.t.Helper()
	replies, err := b.session.Get(b.t.Context(), key, payload, patience)
	if err != nil {
		b.t.Fatal(err)
	}
	return replies
}

// fakeOpen returns an open that fits the fake policy.
func fakeOpen(uuid string) wire.SessionOpen {
	m := servertest.Meta()
	return wire.SessionOpen{
		ClientUUID: uuid, RobotType: "so101", PolicyType: "fake", FPS: 60, ActionNames: m.ActionNames,
		CameraNames: []string{"observation.images.top"}, StateDim: 2, SchemaVersion: 1, RTCEnabled: true,
	}
}

func (b *bench) open(o wire.SessionOpen) wire.SessionAck {
	b.t.Helper()
	replies := b.query(wire.SessionKey(b.server.Prefix()), wire.AppendSessionOpen(nil, &o))
	if len(replies) != 1 {
		b.t.Fatalf("open got %d replies, want 1", len(replies))
	}
	var ack wire.SessionAck
	if err := wire.ParseSessionAck(&ack, replies[0].Payload); err != nil {
		b.t.Fatal(err)
	}
	return ack
}

// status returns the body of the server's answer to a status query.
func (b *bench) status() []byte {
	b.t.Helper()
	replies := b.query(wire.StatusKey(b.server.Prefix()), nil)
	if len(replies) != 1 {
		b.t.Fatalf("status got %d replies, want 1", len(replies))
	}
	return replies[0].Payload
}

// robot subscribes to its actions and publishes observations.
type robot struct {
	b     *bench
	obs   wire.Publisher
	inbox chan sample
}

type sample struct {
	header wire.Header
	chunk  wire.ActionChunk
	event  wire.Event
}

func (b *bench) robot(uuid string) *robot {
	b.t.Helper()
	r := &robot{b: b, inbox: make(chan sample, 100)}
	key, err := wire.ActionKey(b.server.Prefix(), uuid)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.session.Subscribe(key, r.receive); err != nil {
		b.t.Fatal(err)
	}
	key, _ = wire.ObsKey(b.server.Prefix(), uuid)
	r.obs, err = b.session.Publisher(key, wire.ObservationQoS)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

func (r *robot) receive(s wire.Sample) {
	var got sample
	var err error
	if got.header, err = wire.ParseHeader(s.Attachment); err == nil {
		if got.header.MsgType == wire.MsgEvent {
			err = wire.ParseEvent(&got.event, s.Payload)
		} else {
			err = wire.ParseActionChunk(&got.chunk, s.Payload)
		}
	}
	if err != nil {
		r.b.t.Errorf("the robot cannot read what the server sent: %v", err)
	}
	r.inbox <- got
}

// picture returns a plain red picture as JPEG.
func picture(t testing.TB, w, h int) []byte {
	t.Helper()
	e, err := jpeg.NewEncoder(90, jpeg.ChromaOfPicture)
	if err != nil {
		t.Skip(err)
	}
	defer e.Close()
	pix, dst := make([]byte, 3*w*h), make([]byte, jpeg.MaxSize(w, h, jpeg.Chroma420))
	for i := 0; i < len(pix); i += 3 {
		pix[i] = 250
	}
	n, err := e.EncodeRGB(dst, pix, w, h)
	if err != nil {
		t.Fatal(err)
	}
	return dst[:n]
}

func fakeObs(t testing.TB) *wire.Observation {
	return &wire.Observation{
		State: []float32{10, 20},
		Images: []wire.Image{{Name: "observation.images.top",
			Data: picture(t, servertest.PictureW, servertest.PictureH)}},
	}
}

func (r *robot) send(h wire.Header, o *wire.Observation) {
	r.b.t.Helper()
	if err := r.obs.Put(wire.AppendObservation(nil, o), wire.AppendHeader(nil, h)); err != nil {
		r.b.t.Fatal(err)
	}
}

func (r *robot) next() sample {
	r.b.t.Helper()
	select {
	case s := <-r.inbox:
		return s
	case <-time.After(patience):
		r.b.t.Fatal("the server sent nothing")
		return sample{}
	}
}

func TestStatusSaysWhatIsServed(t *testing.T) {
	b := serve(t, config())
	m := servertest.Meta()
	want := wire.Status{
		Capabilities: wire.Capabilities{
			ModelRepo:           "test/fake",
			ModelRevision:       "main",
			PolicyType:          "fake",
			ActionNames:         m.ActionNames,
			ExpectedCameras:     []string{"observation.images.top"},
			StateDim:            2,
			ChunkSize:           8,
			TrainedFPS:          60,
			SupportsRTC:         true,
			RTCExecutionHorizon: 4,
			ServingMode:         "shared",
			WarmedUp:            true,
			T:                   wire.ExtensionLevel,
			ModelSHA256:         "5ha",
			CameraShapes:        []wire.CameraShape{{Name: "observation.images.top", H: 16, W: 24, C: 3}},
			ActionUnits:         m.ActionUnits,
			StateUnits:          m.StateUnits,
		},
		MinSchemaVersion: 1, MaxSchemaVersion: 1, MaxSessions: 2, ServerID: b.server.id,
	}
	if got := b.status(); want.ServerID == "" || !bytes.Equal(got, wire.AppendStatus(nil, &want)) {
		t.Errorf("status of a new server is\n%q, want\n%q", got, wire.AppendStatus(nil, &want))
	}
	b.open(fakeOpen("arm"))
	want.ActiveSessions, want.ServerLoad = 1, 0.5
	if got := b.status(); !bytes.Equal(got, wire.AppendStatus(nil, &want)) {
		t.Errorf("status with one session is\n%q, want\n%q", got, wire.AppendStatus(nil, &want))
	}
	if b.server.Prefix() != "@lerobot/test-fake/main/demo" {
		t.Errorf("prefix = %s", b.server.Prefix())
	}
}

// One request from end to end: the answer carries the observation's header and both chunks,
// conditioned on the prefix.
func TestObservationBecomesChunk(t *testing.T) {
	b := serve(t, config())
	ack := b.open(fakeOpen("arm"))
	if !ack.Accepted || ack.SessionID == "" || !ack.SupportsRTC || !ack.Extended() || ack.ServerLoad != 0.5 ||
		!ack.WarmedUp {
		t.Fatalf("ack = %+v", ack)
	}
	r := b.robot("arm")
	o := fakeObs(t)
	o.PrefixRobot = wire.Matrix{Rows: 3, Cols: 2, Data: []float32{1, 2, 3, 4, 5, 6}}
	o.PrefixModel = wire.Matrix{Rows: 2, Cols: 2, Data: []float32{9, 9, 9, 9}} // of an old client, of another length
	o.InferenceDelaySteps = 2
	o.HasT = true
	o.T = 77
	o.HasN = true
	o.N = -1
	h := wire.Header{
		SchemaVersion: 1,
		MsgType:       wire.MsgObservation,
		SeqID:         9,
		EpisodeID:     3,
		ClientMonoNs:  -5,
		SessionEpoch:  4,
	}
	r.send(h, o)
	got := r.next()
	if got.header != h.Reply(wire.MsgActionChunk) {
		t.Errorf("header = %+v, want that of the observation, as a chunk", got.header)
	}
	c := got.chunk
	if c.SeqIDEcho != 9 || c.EpisodeIDEcho != 3 || c.ClientMonoNsEcho != -5 || !c.HasT || c.T != 77 || !c.HasN ||
		c.N != -1 ||
		c.ServerID != b.server.id || c.ServerLoad != 0.5 || c.SupersededSeqs != 0 {
		t.Errorf("chunk = %+v", c)
	}
	want := []float32{1, 2, 3, 4, 10.03, 20.03, 10.04, 20.04}
	if c.ChunkRobot.Rows != 8 || c.ChunkRobot.Cols != 2 || !near(c.ChunkRobot.Data[:8], want, 1e-5) {
		t.Errorf("chunk_robot = %v, want the first two rows of the prefix, then %v", c.ChunkRobot, want)
	}
	if c.ChunkModel.Rows != 8 || !near(c.ChunkModel.Data[:2], []float32{0.5, 1}, 1e-5) {
		t.Errorf("chunk_model = %v", c.ChunkModel)
	}
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	if pix := b.model.Image(0, 0); pix[0] < 230 || pix[1] > 25 || pix[2] > 25 {
		t.Errorf("the picture's first pixel = %v, want red in RGB order", pix[:3])
	}
	if s := b.server.Summary(); s.Requests != 1 || s.Errors != 0 || s.Conditioning["trained"] != 1 ||
		s.Sessions.Opened != 1 {
		t.Errorf("summary = %+v", s)
	}
}

func near(got, want []float32, tolerance float64) bool {
	for i := range want {
		if math.Abs(float64(got[i]-want[i])) > tolerance {
			return false
		}
	}
	return len(got) >= len(want)
}

// The same request id gets the same noise, on any server and in any session; another request gets
// other noise.
func TestNoiseIsAFunctionOfTheRequest(t *testing.T) {
	noise := func(uuid string, seq uint64) []float32 {
		b := newBench(t, config())
		o := fakeOpen(uuid)
		if ack := b.server.opener.open(&o, wire.Origin{}); !ack.Accepted {
			t.Fatalf("ack = %+v", ack)
		}
		s := b.server.sessions.find(uuid)
		if _, err := b.server.worker.engine.tensors.fill(0, s, seq,
			wire.AppendObservation(nil, fakeObs(t))); err != nil {
			t.Fatal(err)
		}
		return slices.Clone(b.model.Noise(0))
	}
	first := noise("arm", 1)
	if again := noise("arm", 1); !slices.Equal(first, again) {
		t.Errorf("the same request got %v, then %v", first, again)
	}
	if slices.Equal(first, noise("arm", 2)) || slices.Equal(first, noise("leg", 1)) {
		t.Error("another request or another robot got the same noise")
	}
}

// The conditioning of a request; d is in steps, the policy is trained for 3.
func TestConditioning(t *testing.T) {
	tests := []struct {
		name      string
		rows, d   int
		end       int // -1: not sent
		rtc       bool
		mode      policy.Mode
		delay     int
		prefixEnd int
	}{
		{"no prefix", 0, 2, -1, true, policy.ModeFree, 0, 4},
		{"delay the policy was trained for", 8, 3, -1, true, policy.ModeTrained, 3, 4},
		{"delay beyond it", 8, 4, -1, true, policy.ModeGuided, 4, 4},
		{"no delay", 8, 0, -1, true, policy.ModeGuided, 0, 4},
		{"delay longer than the prefix", 2, 7, -1, true, policy.ModeTrained, 2, 4},
		{"negative delay of a broken client", 8, -5, -1, true, policy.ModeGuided, 0, 4},
		{"the client's overlap end", 8, 2, 6, true, policy.ModeTrained, 2, 6},
		{"overlap end beyond the chunk", 8, 2, 99, true, policy.ModeTrained, 2, 8},
		{"overlap end 0 asks for nothing", 8, 2, 0, true, policy.ModeFree, 0, 4},
		{"session without RTC", 8, 2, -1, false, policy.ModeFree, 0, 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, config())
			r := b.server.worker.engine.tensors
			r.obs.PrefixRobot = wire.Matrix{Rows: tt.rows, Cols: 2, Data: make([]float32, 2*tt.rows)}
			r.obs.InferenceDelaySteps = tt.d
			r.obs.HasOverlapEnd, r.obs.OverlapEnd = tt.end >= 0, max(tt.end, 0)
			rows, _ := r.prefix(0, &Session{rtc: tt.rtc})
			c := r.condition(rows)
			if c.Mode != tt.mode || c.Delay != tt.delay || c.PrefixEnd != tt.prefixEnd || c.Beta > 10 {
				t.Errorf("condition(%d rows, delay %d, end %d) = %+v, want %v, delay %d, end %d, beta at most 10 steps",
					tt.rows, tt.d, tt.end, c, tt.mode, tt.delay, tt.prefixEnd)
			}
		})
	}
}

// A request may name rows of the server's own chunks. Rows that are forgotten cost the conditioning
// of one chunk, and are counted.
func TestSpans(t *testing.T) {
	b := newBench(t, config())
	r := b.server.worker.engine.tensors
	s := &Session{rtc: true, history: policy.NewHistory(8, 2)}
	for _, key := range []int64{5, 6} {
		for i := range b.server.worker.engine.tensors.model.ChunkRobot(0) {
			b.server.worker.engine.tensors.model.ChunkRobot(0)[i] = float32(100*key) + float32(i)
		}
		r.remember(0, s, &filled{hasT: true, key: key})
	}
	for _, tt := range []struct {
		name  string
		spans []wire.Span
		rtc   bool
		want  []float32
		use   spanUse
	}{
		{"none", nil, true, nil, spansNone},
		{"one run", []wire.Span{{Source: 6, Start: 2, End: 4}}, true, []float32{604, 605, 606, 607}, spansFound},
		{"two runs", []wire.Span{{Source: 5, Start: 7, End: 8}, {Source: 6, Start: 2, End: 3}}, true,
			[]float32{514, 515, 604, 605}, spansFound},
		{"a forgotten chunk, in front", []wire.Span{{Source: 4, Start: 0, End: 1}, {Source: 6, Start: 2, End: 3}}, true,
			nil, spansMissing},
		{"a forgotten chunk, behind", []wire.Span{{Source: 6, Start: 2, End: 3}, {Source: 4, Start: 0, End: 1}}, true,
			nil, spansMissing},
		{"rows that no chunk has", []wire.Span{{Source: 6, Start: 7, End: 9}}, true, nil, spansMissing},
		{"more rows than a chunk", []wire.Span{{Source: 6, Start: 0, End: 8}, {Source: 5, Start: 0, End: 1}}, true, nil,
			spansMissing},
		{"a session without RTC", []wire.Span{{Source: 6, Start: 2, End: 4}}, false, nil, spansNone},
	} {
		r.obs.PrefixRobot, r.obs.Spans = wire.Matrix{}, tt.spans
		s.rtc = tt.rtc
		rows, use := r.prefix(0, s)
		if got := b.server.worker.engine.tensors.model.Prefix(0)[:2*rows]; !slices.Equal(got, tt.want) ||
			use != tt.use {
			t.Errorf("%s: %v, use %d, want %v, %d", tt.name, got, use, tt.want, tt.use)
		}
	}
	r.obs.PrefixRobot = wire.Matrix{Rows: 1, Cols: 2, Data: []float32{1, 2}}
	r.obs.Spans, s.rtc = []wire.Span{{Source: 6, Start: 0, End: 8}}, true
	if rows, use := r.prefix(0, s); rows != 1 || use != spansNone {
		t.Errorf("rows that travel: %d, use %d, want 1 and not asked", rows, use)
	}
	if n := testing.AllocsPerRun(100, func() {
		r.remember(0, s, &filled{hasT: true, key: 6})
		r.obs.PrefixRobot.Rows = 0
		r.prefix(0, s)
	}); n != 0 {
		t.Errorf("spans allocate %v times a request", n)
	}
}

// A policy without the conditioning that the manifest requests is refused before it serves.
func TestConditioningThatThePolicyLacks(t *testing.T) {
	cfg := config()
	cfg.Conditioning.Schedule = "exp"
	_, err := New(cfg, Deps{Meta: servertest.Meta(), Model: servertest.NewModel(), Repo: "test/fake"})
	if !errors.Is(err, manifest.ErrInvalid) || !strings.Contains(err.Error(), "schedule exp") {
		t.Errorf("New() = %v, want %v about the schedule", err, manifest.ErrInvalid)
	}
}

// A robot that sends nonsense gets the reason, and others their chunks.
func TestBadObservationIsAnsweredWithAnEvent(t *testing.T) {
	tests := []struct {
		name   string
		change func(*wire.Observation)
		body   []byte
		want   string
	}{
		{"not MessagePack", nil, []byte{0xc1}, "wire"},
		{"state one short", func(o *wire.Observation) { o.State = o.State[:1] }, nil, "state: got 1, want 2"},
		{"NaN in the state", func(o *wire.Observation) { o.State[1] = float32(math.NaN()) }, nil, "state"},
		{"no camera", func(o *wire.Observation) { o.Images = nil }, nil, "observation.images.top"},
		{"camera by another name", func(o *wire.Observation) {
			o.Images[0].Name = "top"
		}, nil, "observation.images.top"},
		{"picture that is too large", func(o *wire.Observation) {
			at := bytes.Index(o.Images[0].Data, []byte{0xff, 0xc0})
			binary.BigEndian.PutUint16(o.Images[0].Data[at+7:], 65500)
		}, nil, "got 65500x16"},
		{"torn picture", func(o *wire.Observation) { o.Images[0].Data = o.Images[0].Data[:40] }, nil, "jpeg"},
		{"prefix of another width", func(o *wire.Observation) {
			o.PrefixRobot = wire.Matrix{Rows: 1, Cols: 3, Data: make([]float32, 3)}
		}, nil, "prefix_robot"},
		{"prefix longer than a chunk", func(o *wire.Observation) {
			o.PrefixRobot = wire.Matrix{Rows: 9, Cols: 2, Data: make([]float32, 18)}
		}, nil, "prefix_robot"},
	}
	b := serve(t, config())
	b.open(fakeOpen("arm"))
	r := b.robot("arm")
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b.clock.Advance(2 * eventInterval)
			h := obsHeader(0, uint64(i+1))
			body := tt.body
			if tt.change != nil {
				o := fakeObs(t)
				tt.change(o)
				body = wire.AppendObservation(nil, o)
			}
			if err := r.obs.Put(body, wire.AppendHeader(nil, h)); err != nil {
				t.Fatal(err)
			}
			got := r.next()
			if got.header != h.Reply(wire.MsgEvent) || got.event.Code != wire.EventBadObservation ||
				got.event.Seq != h.SeqID || !strings.Contains(got.event.Text, tt.want) {
				t.Errorf("answer = %+v, want a bad_observation event with %q", got, tt.want)
			}
		})
	}
	r.send(obsHeader(0, 99), fakeObs(t))
	if got := r.next(); got.header.MsgType != wire.MsgActionChunk || got.header.SeqID != 99 {
		t.Errorf("a good observation afterwards = %+v, want a chunk", got.header)
	}
	if err := b.stop(); err != nil { // the count follows the chunk
		t.Fatal(err)
	}
	if s := b.server.Summary(); s.Errors != uint64(len(tests)) || s.Requests != 1 {
		t.Errorf("summary = %d errors, %d requests, want %d and 1", s.Errors, s.Requests, len(tests))
	}
}

// A stock client sends its next request immediately after an event, so events are spaced.
func TestEventsAreSpaced(t *testing.T) {
	b := serve(t, config())
	b.open(fakeOpen("arm"))
	r := b.robot("arm")
	bad := fakeObs(t)
	bad.State = bad.State[:1]
	for seq := uint64(1); seq <= 5; seq++ {
		r.send(obsHeader(0, seq), bad)
		rttest.Eventually(t, "the request", func() bool {
			return b.server.stats.outcomes[audit.BadObservation].Load() == seq
		})
	}
	b.clock.Advance(2 * eventInterval)
	r.send(obsHeader(0, 6), bad)
	if first, second := r.next(), r.next(); first.event.Seq != 1 || second.event.Seq != 6 {
		t.Errorf("events for seq %d and %d, want 1 and 6", first.event.Seq, second.event.Seq)
	}
	if n := b.server.stats.silenced.Load(); n != 4 {
		t.Errorf("silenced = %d, want 4", n)
	}
}

// Goal: no robot gets a chunk of a run that failed or returned values that are not finite; it gets
// the reason.
func TestUnusableChunksAreNotPublished(t *testing.T) {
	b, robots := batching(t, 1, []string{"arm"}, func(b *bench) { b.model.Poison, b.model.Overflow = 1, 2 })
	robots[0].sendState(1, 1)
	if got := robots[0].next(); got.event.Code != wire.EventBadObservation ||
		!strings.Contains(got.event.Text, "inference failed") {
		t.Errorf("answer = %+v, want an event", got)
	}
	b.clock.Advance(2 * eventInterval)
	robots[0].sendState(2, 2)
	if got := robots[0].next(); got.event.Code != wire.EventBadObservation ||
		!strings.Contains(got.event.Text, "not finite") {
		t.Errorf("answer = %+v, want an event", got)
	}
	if s := b.server.stats; s.outcomes[audit.InferenceFailed].Load() != 1 || s.outcomes[audit.NotFinite].Load() != 1 ||
		s.outcomes[audit.Answered].Load() != 0 {
		t.Errorf("failed %d, not finite %d, requests %d, want 1, 1, 0", s.outcomes[audit.InferenceFailed].Load(),
			s.outcomes[audit.NotFinite].Load(), s.outcomes[audit.Answered].Load())
	}
}

// A server receives a robot's observations only while it holds its session, and never answers a
// robot whose session it does not hold: another server may.
func TestOnlyTheHolderOfASessionHears(t *testing.T) {
	b := serve(t, config())
	ghost, arm := b.robot("ghost"), b.robot("arm")
	ghost.send(obsHeader(0, 1), fakeObs(t))
	ack := b.open(fakeOpen("arm"))
	b.open(fakeOpen("arm")) // it keeps one subscription
	arm.send(obsHeader(0, 1), fakeObs(t))
	if got := arm.next(); got.header.MsgType != wire.MsgActionChunk {
		t.Fatalf("answer = %+v, want a chunk", got)
	}
	// stale: ignored
	b.query(wire.SessionKey(b.server.Prefix()), wire.AppendSessionClose(nil,
		&wire.SessionClose{ClientUUID: "arm", SessionID: ack.SessionID}))
	arm.send(obsHeader(0, 2), fakeObs(t))
	if got := arm.next(); got.header.SeqID != 2 {
		t.Fatalf("answer = %+v, want the second chunk", got)
	}
	b.query(wire.SessionKey(b.server.Prefix()), wire.AppendSessionClose(nil,
		&wire.SessionClose{ClientUUID: "arm", SessionID: b.server.sessions.find("arm").id}))
	arm.send(obsHeader(0, 3), fakeObs(t))
	// counted once it has left
	rttest.Eventually(t, "the count of the second chunk", func() bool { return b.server.Summary().Requests >= 2 })
	if len(ghost.inbox) != 0 || len(arm.inbox) != 0 || b.server.Summary().Requests != 2 ||
		b.server.stats.unknown.Load() != 0 {
		t.Errorf("robots without a session got %d and %d samples, %d were answered and %d heard, want 0, 0, 2, 0",
			len(ghost.inbox), len(arm.inbox), b.server.Summary().Requests, b.server.stats.unknown.Load())
	}
}

// Samples that are no observations are counted, never served.
func TestMalformedSamples(t *testing.T) {
	b := serve(t, config())
	b.open(fakeOpen("arm"))
	r := b.robot("arm")
	body := wire.AppendObservation(nil, fakeObs(t))
	h := obsHeader(0, 1)
	future, chunk := h, h
	future.SchemaVersion, chunk.MsgType = 2, wire.MsgActionChunk
	for _, s := range []struct{ body, attachment []byte }{
		{body, nil},
		{body, []byte("short")},
		{body, wire.AppendHeader(nil, future)},
		{body, wire.AppendHeader(nil, chunk)},
		{make([]byte, b.server.receiver.observationMax+1), wire.AppendHeader(nil, h)},
	} {
		if err := r.obs.Put(s.body, s.attachment); err != nil {
			t.Fatal(err)
		}
	}
	if n := b.server.stats.malformed.Load(); n != 5 {
		t.Errorf("malformed = %d, want 5", n)
	}
	r.send(h, fakeObs(t))
	got := r.next()
	for got.header.MsgType == wire.MsgEvent {
		got = r.next()
	}
	if got.header.MsgType != wire.MsgActionChunk || got.header.SeqID != 1 {
		t.Errorf("a good observation afterwards = %+v, want a chunk", got.header)
	}
}

// While the worker is busy, only the newest observation of each robot waits; the reply has the
// number of the replaced ones, and robots take turns under round_robin.
func TestNewestWinsAndNobodyStarves(t *testing.T) {
	cfg := config()
	cfg.Scheduler = "round_robin"
	var entered, leave chan struct{}
	b := serve(t, cfg, func(b *bench) { entered, leave = b.holdInferences() })
	b.open(fakeOpen("a"))
	b.open(fakeOpen("z"))
	a, z := b.robot("a"), b.robot("z")
	a.send(obsHeader(0, 1), fakeObs(t))
	<-entered // the worker holds a/1
	for seq := uint64(2); seq <= 5; seq++ {
		a.send(obsHeader(0, seq), fakeObs(t))
	}
	a.send(obsHeader(0, 3), fakeObs(t)) // late
	z.send(obsHeader(0, 1), fakeObs(t))
	leave <- struct{}{}
	if got := a.next(); got.header.SeqID != 1 || got.chunk.SupersededSeqs != 3 {
		t.Errorf("first reply to a = seq %d, %d superseded, want 1 and 3", got.header.SeqID, got.chunk.SupersededSeqs)
	}
	<-entered
	leave <- struct{}{} // z's turn, although a waits, too
	if got := z.next(); got.header.SeqID != 1 {
		t.Errorf("reply to z = seq %d, want 1", got.header.SeqID)
	}
	<-entered
	leave <- struct{}{}
	// The draft's rule: replaced ones are reported once, with the next reply.
	if got := a.next(); got.header.SeqID != 5 || got.chunk.SupersededSeqs != 0 || len(a.inbox) != 0 {
		t.Errorf("second reply to a = seq %d, %d superseded, want 5, 0 and no other reply", got.header.SeqID,
			got.chunk.SupersededSeqs)
	}
	superseded, late := b.server.stats.superseded.Load(), b.server.stats.late.Load()
	if superseded != 3 || late != 1 {
		t.Errorf("superseded %d, late %d, want 3 and 1", superseded, late)
	}
}

func TestSessionsOpenCloseAndReplace(t *testing.T) {
	b := serve(t, config()) // room for 2
	first := b.open(fakeOpen("a"))
	b.open(fakeOpen("b"))
	full := b.open(fakeOpen("c"))
	if full.Accepted || full.Error != "server full: 2/2 sessions active" || !full.Temporary() || full.ServerLoad != 1 ||
		full.RetryAfterMs == 0 {
		t.Errorf("third open = %+v, want a temporary refusal with the load", full)
	}
	again := b.open(fakeOpen("a"))
	if key, _ := wire.ActionKey(b.server.Prefix(), "a"); b.network.Publishers(key) != 1 {
		t.Errorf("publishers on a's action key = %d, want 1", b.network.Publishers(key))
	}
	if !again.Accepted || again.SessionID == first.SessionID {
		t.Errorf("opening again = %+v, want a new session that does not count against the room", again)
	}
	sessionKey := wire.SessionKey(b.server.Prefix())
	closeSession := func(c wire.SessionClose) {
		var ack wire.ResetAck
		replies := b.query(sessionKey, wire.AppendSessionClose(nil, &c))
		if err := wire.ParseResetAck(&ack, replies[0].Payload); err != nil || !ack.OK {
			t.Errorf("close(%+v) = %+v, %v, want ok", c, ack, err)
		}
	}
	closeSession(wire.SessionClose{ClientUUID: "a", SessionID: first.SessionID})
	if n := b.server.Summary().Sessions.Active; n != 2 {
		t.Errorf("sessions after a stale close = %d, want 2", n)
	}
	closeSession(wire.SessionClose{ClientUUID: "a", SessionID: again.SessionID})
	closeSession(wire.SessionClose{ClientUUID: "b"})
	closeSession(wire.SessionClose{ClientUUID: "nobody"})
	if s := b.server.Summary().Sessions; s.Active != 0 || s.Opened != 3 || s.Closed != 3 || s.Refused != 1 {
		t.Errorf("sessions = %+v, want 3 opened, 3 closed, 1 refused, none active", s)
	}
}

func TestOpenForAnotherReplicaIsNotAnswered(t *testing.T) {
	b := serve(t, config())
	o := fakeOpen("a")
	o.ServerID = "somebody-else"
	if r := b.query(wire.SessionKey(b.server.Prefix()), wire.AppendSessionOpen(nil, &o)); len(r) != 0 {
		t.Errorf("open for another server got %d replies, want none", len(r))
	}
	o.ServerID = b.server.id
	if ack := b.open(o); !ack.Accepted || ack.ServerID != b.server.id {
		t.Errorf("open by name = %+v, want accepted", ack)
	}
}

func TestContractRefusalIsFinal(t *testing.T) {
	b := serve(t, config())
	o := fakeOpen("a")
	o.ActionNames = []string{"b.pos", "a.pos"}
	if ack := b.open(o); ack.Accepted || ack.Temporary() ||
		!strings.Contains(ack.Error, "refusing to map chunk columns to motors") {
		t.Errorf("open with swapped joints = %+v, want a final refusal", ack)
	}
	if replies := b.query(wire.SessionKey(b.server.Prefix()), []byte("nonsense")); len(replies) != 1 ||
		!bytes.Contains(replies[0].Payload, []byte("server error")) {
		t.Errorf("nonsense got %+v, want a refusal", replies)
	}
}

func TestReset(t *testing.T) {
	b := serve(t, config())
	b.open(fakeOpen("a"))
	tests := []struct {
		name, key, uuid string
		ok              bool
	}{
		{"own episode", "a", "a", true},
		{"nobody", "b", "b", false},
		{"somebody else's by body", "b", "a", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			key, err := wire.ResetKey(b.server.Prefix(), tt.key)
			if err != nil {
				t.Fatal(err)
			}
			replies := b.query(key, wire.AppendReset(nil, &wire.Reset{ClientUUID: tt.uuid, EpisodeID: 7}))
			var ack wire.ResetAck
			if err := wire.ParseResetAck(&ack, replies[0].Payload); err != nil || ack.OK != tt.ok ||
				replies[0].Key != key {
				t.Errorf("reset(%s on %s) = %+v, %v, want ok %v", tt.uuid, tt.key, ack, err, tt.ok)
			}
		})
	}
	if e := b.server.sessions.find("a").episode.Load(); e != 7 {
		t.Errorf("episode = %d, want 7", e)
	}
}

// A robot whose token vanished loses its session after the grace, unless it is seen again.
func TestSessionsEndWithTheirRobots(t *testing.T) {
	b := serve(t, config())
	b.open(fakeOpen("gone"))
	b.open(fakeOpen("back"))
	alive := func(uuid string) wire.Declaration {
		key, err := wire.ClientAliveKey(b.server.Prefix(), uuid)
		if err != nil {
			t.Fatal(err)
		}
		d, err := b.session.Token(key)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for _, d := range []wire.Declaration{alive("gone"), alive("back")} {
		if err := d.Undeclare(); err != nil {
			t.Fatal(err)
		}
	}
	b.clock.Advance(tokenGrace / 2)
	alive("back")
	b.clock.Advance(tokenGrace)
	rttest.Eventually(t, "the end of the session", func() bool { return b.server.sessions.find("gone") == nil })
	if b.server.sessions.find("back") == nil {
		t.Error("the robot that came back lost its session")
	}
}

// Within the grace a robot without its token keeps its session.
func TestTokenGrace(t *testing.T) {
	b := newBench(t, config())
	o := fakeOpen("arm")
	b.server.opener.open(&o, wire.Origin{})
	b.server.sessions.find("arm").tokenChanged(false, b.clock.Now())
	for _, step := range []struct {
		wait time.Duration
		want bool
	}{{tokenGrace, true}, {time.Millisecond, false}} {
		b.clock.Advance(step.wait)
		b.server.housekeeper.tick(t.Context())
		if got := b.server.sessions.find("arm") != nil; got != step.want {
			t.Errorf("session after another %v = %v, want %v", step.wait, got, step.want)
		}
	}
}

// A robot that opened a session and never showed a token or an observation loses it; a robot that
// pauses while its token is shown keeps it.
func TestIdleSessionsEnd(t *testing.T) {
	b := serve(t, config())
	b.open(fakeOpen("ghost"))
	b.open(fakeOpen("paused"))
	key, err := wire.EpochAliveKey(b.server.Prefix(), "paused", 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.session.Token(key); err != nil {
		t.Fatal(err)
	}
	b.clock.Advance(idleTimeout + time.Second)
	rttest.Eventually(t, "the end of the session", func() bool { return b.server.sessions.find("ghost") == nil })
	if b.server.sessions.find("paused") == nil {
		t.Error("the paused robot lost its session")
	}
}

// On stop the request in hand is finished and all declarations are withdrawn.
func TestServeDrains(t *testing.T) {
	var entered, leave chan struct{}
	b := serve(t, config(), func(b *bench) { entered, leave = b.holdInferences() })
	o := fakeOpen("a")
	o.SessionEpoch = 3
	b.open(o)
	r := b.robot("a")
	h := obsHeader(3, 1)
	h.EpisodeID = 7
	r.send(h, fakeObs(t))
	<-entered
	r.send(obsHeader(3, 2), fakeObs(t)) // waits, and is abandoned
	stopped := make(chan error, 1)
	go func() { stopped <- b.stop() }()
	rttest.Eventually(t, "the server's token gone", func() bool {
		return b.network.CountTokens(wire.ServerAliveAny) == 0
	})
	if ready, why := b.server.Ready(); ready || why != "draining" {
		t.Errorf("Ready() = %v, %q, want draining", ready, why)
	}
	if ack := b.open(fakeOpen("late")); ack.Accepted || !ack.Temporary() || !ack.Draining {
		t.Errorf("open while draining = %+v, want a temporary refusal", ack)
	}
	close(leave)
	if err := <-stopped; err != nil {
		t.Errorf("Serve = %v, want nil", err)
	}
	notice := r.next()
	want := wire.Event{
		Code:         wire.EventDraining,
		Text:         "server is draining: open elsewhere",
		RetryAfterMs: 1000,
		ServerID:     b.server.id,
	}
	if notice.event != want || notice.header != (wire.Header{
		SchemaVersion: 1,
		MsgType:       wire.MsgEvent,
		EpisodeID:     7,
		SessionEpoch:  3,
	}) {
		t.Errorf("while draining the robot got %+v, want %+v", notice, want)
	}
	if got := r.next(); got.header.SeqID != 1 || got.header.MsgType != wire.MsgActionChunk {
		t.Errorf("the request in hand got %+v, want its chunk", got.header)
	}
	if key, _ := wire.ActionKey(b.server.Prefix(), "a"); b.network.Publishers(key) != 0 {
		t.Error("the publisher on the robot's action key is still declared")
	}
	if n := b.network.Declarations(); n != 1 {
		t.Errorf("declarations left = %d, want the robot's own subscription", n)
	}
}

// counted is a model that counts how often it was closed.
type counted int

func (c *counted) Close() error { *c++; return nil }

// An inference that outlasts the drain keeps its model: freeing it under ONNX Runtime would crash
// the process with an exit code of another meaning.
func TestAModelInUseIsNotClosed(t *testing.T) {
	var entered, leave chan struct{}
	b := serve(t, config(), func(b *bench) { entered, leave = b.holdInferences() })
	b.open(fakeOpen("a"))
	b.robot("a").send(obsHeader(0, 1), fakeObs(t))
	<-entered
	err := b.stop()
	select {
	case <-b.model.Terminated:
	default:
		t.Error("the inference was not terminated")
	}
	close(leave)
	<-b.server.worker.done
	if err != nil || !b.server.modelInUse {
		t.Fatalf("Serve = %v, model in use %v, want no error, and true", err, b.server.modelInUse)
	}
	var closed counted
	if err := closeModel(&closed, true); closed != 0 || err != nil {
		t.Errorf("closed %d times with %v, want never", closed, err)
	}
	if err := closeModel(&closed, false); closed != 1 || err != nil {
		t.Errorf("after a clean end closed %d times with %v, want once", closed, err)
	}
}

// A worker that panics ends Serve with an error instead of the process with Go's exit code for
// panics, which a supervisor takes for a usage error.
func TestServeReportsAPanic(t *testing.T) {
	b := serve(t, config(), func(b *bench) {
		b.server.cfg.WarmupInferences = 0
		b.model.Before = func() error { panic("bad graph") }
	})
	b.open(fakeOpen("a"))
	b.robot("a").send(obsHeader(0, 1), fakeObs(t))
	rttest.Eventually(t, "the worker's end", func() bool { ok, _ := b.server.Ready(); return !ok })
	if err := b.stop(); err == nil || !strings.Contains(err.Error(), "bad graph") {
		t.Errorf("Serve = %v, want the panic", err)
	}
}

func TestServeReportsAFailedWarmup(t *testing.T) {
	b := newBench(t, config())
	b.model.Before = func() error { return policy.ErrRun }
	if err := b.server.Serve(t.Context()); !errors.Is(err, policy.ErrRun) || b.network.Declarations() != 0 {
		t.Errorf("Serve = %v with %d declarations, want ErrRun and none", err, b.network.Declarations())
	}
}

// serveOne makes a worker that was not started serve the waiting requests in one run; false when no
// request waits.
func serveOne(w *worker) bool {
	if w.timer.Stop() { // the first time
		w.engine.device.Start()
		w.filler.threads.Start()
	}
	if !w.step() {
		return false
	}
	for w.open != nil {
		<-w.work
		w.step()
	}
	for w.running != nil {
		_ = w.end(<-w.engine.device.Ended())
	}
	return true
}

// From the transport's callback to the transport's Put, a request allocates nothing once the
// buffers have grown, with and without audit and captures.
func TestRequestPathNoAlloc(t *testing.T) {
	t.Run("alone", func(t *testing.T) { requestPathNoAlloc(t, newBench(t, config())) })
	t.Run("audited and captured", func(t *testing.T) {
		b := newBench(t, config())
		w := b.audited(t.TempDir())
		stop := w.Start(audit.Origin{ModelSHA256: "5ha"})
		requestPathNoAlloc(t, b)
		stop()
		if c := &w.Counts; c.Captures.Load() == 0 || c.Lines.Load() == 0 {
			t.Errorf("wrote %d lines and %d captures, want some", c.Lines.Load(), c.Captures.Load())
		}
	})
}

func requestPathNoAlloc(t *testing.T, b *bench) {
	o := fakeOpen("arm")
	if ack := b.server.opener.open(&o, wire.Origin{}); !ack.Accepted {
		t.Fatalf("open = %+v", ack)
	}
	obs := fakeObs(t)
	obs.PrefixRobot = wire.Matrix{Rows: 3, Cols: 2, Data: make([]float32, 6)}
	obs.InferenceDelaySteps, obs.HasT = 2, true
	body, seq := wire.AppendObservation(nil, obs), uint64(0)
	key, err := wire.ObsKey(b.server.Prefix(), "arm")
	if err != nil {
		t.Fatal(err)
	}
	attachment := make([]byte, 0, wire.HeaderSize)
	cycle := func() {
		for range 2 { // the second replaces the first
			seq++
			attachment = wire.AppendHeader(attachment[:0], obsHeader(0, seq))
			b.server.receiver.onObservation(wire.Sample{Key: key, Payload: body, Attachment: attachment})
		}
		if !serveOne(b.server.worker) {
			t.Fatal("nothing to serve")
		}
	}
	for range 100 {
		cycle()
	}
	if n := testing.AllocsPerRun(200, cycle); n != 0 {
		t.Errorf("a request allocates %v times, want 0", n)
	}
	if n := b.server.stats.outcomes[audit.Answered].Load(); n < 200 {
		t.Errorf("served %d requests, want more than 200: %+v", n, b.server.Summary())
	}
}

// Goal: chunks that cannot leave yet are replaced by newer ones: the robot gets the newest when its
// link has room again.
func TestNewestChunkWins(t *testing.T) {
	b := serve(t, config())
	r := b.robot("a")
	b.open(fakeOpen("a"))
	r.send(wire.Header{SchemaVersion: 1, MsgType: wire.MsgObservation, SeqID: 1}, fakeObs(t))
	if s := r.next(); s.header.SeqID != 1 || s.header.MsgType != wire.MsgActionChunk {
		t.Fatalf("first answer is %+v, want the chunk of observation 1", s)
	}
	resume := b.network.Stall()
	for seq := uint64(2); seq <= 4; seq++ {
		r.send(wire.Header{SchemaVersion: 1, MsgType: wire.MsgObservation, SeqID: seq}, fakeObs(t))
		rttest.Eventually(t, "the answer", func() bool { return b.server.stats.outcomes[audit.Answered].Load() == seq })
	}
	resume()
	if s := r.next(); s.header.SeqID != 4 {
		t.Errorf("the robot got the chunk of observation %d first, want the newest, 4", s.header.SeqID)
	}
	if n := b.server.stats.replaced.Load(); n != 2 {
		t.Errorf("replaced = %d, want 2", n)
	}
}

// cutOff is a session without a link.
type cutOff struct{ wire.Session }

func (cutOff) Connected() bool { return false }

// Goal: a server that only dials is not ready while no router answers; a server that listens is
// ready even without robots.
func TestReadyNeedsAWayIn(t *testing.T) {
	b := serve(t, config())
	rttest.Eventually(t, "the declarations", b.server.phase.serving.Load)
	b.server.network = cutOff{b.server.network}
	if ok, why := b.server.Ready(); !ok {
		t.Errorf("a listening server without robots is not ready: %s", why)
	}
	b.server.cfg.Zenoh.ConnectEndpoints = []string{"tcp/router:7447"}
	if ok, why := b.server.Ready(); ok || why != "no link to a router" {
		t.Errorf("Ready() = %v, %q without a router, want no link to a router", ok, why)
	}
	b.server.cfg.Zenoh.ListenEndpoints = []string{manifest.DefaultListen}
	if ok, why := b.server.Ready(); !ok {
		t.Errorf("a server that listens too is not ready without a router: %s", why)
	}
}
