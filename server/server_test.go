package server

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/audit"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/server/servertest"
	"github.com/edge-rt/edge-rt/wire"
)

func TestStatusSaysWhatIsServed(t *testing.T) {
	b := serve(t, config())
	m := servertest.Meta()
	want := wire.Status{
		Capabilities: wire.Capabilities{
			ModelRepo:           "test/fake",
			ModelRevision:       "main",
			PolicyType:          "fake",
			ActionNames:         m.ActionNames,
			ExpectedCameras:     []string{top},
			StateDim:            2,
			ChunkSize:           8,
			TrainedFPS:          60,
			SupportsRTC:         true,
			RTCExecutionHorizon: 4,
			ServingMode:         "shared",
			WarmedUp:            true,
			T:                   wire.ExtensionLevel,
			ModelSHA256:         "5ha",
			CameraShapes:        []wire.CameraShape{{Name: top, H: 16, W: 24, C: 3}},
			ActionUnits:         m.ActionUnits,
			StateUnits:          m.StateUnits,
		},
		MinSchemaVersion: 1, MaxSchemaVersion: 1, MaxSessions: 2, ServerID: b.server.id,
	}
	want.Inputs, want.Outputs = features(m, false)
	if got := b.status(); want.ServerID == "" || !bytes.Equal(got, wire.Append(nil, &want)) {
		t.Errorf("status of a new server is\n%q, want\n%q", got, wire.Append(nil, &want))
	}
	b.open(fakeOpen("arm"))
	want.ActiveSessions, want.ServerLoad = 1, 0.5
	if got := b.status(); !bytes.Equal(got, wire.Append(nil, &want)) {
		t.Errorf("status with one session is\n%q, want\n%q", got, wire.Append(nil, &want))
	}
	rttest.Want(t, b.server.prefix, fakePrefix, "prefix")
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
	// an old client sends this prefix, too, with another length
	o.PrefixModel = wire.Matrix{Rows: 2, Cols: 2, Data: []float32{9, 9, 9, 9}}
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
	got := r.wantChunk(9)
	rttest.Want(t, got.header, h.Reply(wire.MsgActionChunk), "header of the chunk")
	c := got.chunk
	if c.EpisodeIDEcho != 3 || c.ClientMonoNsEcho != -5 || !c.HasT || c.T != 77 || !c.HasN ||
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
	b.end()
	if pix := b.model.Image(0, 0); pix[0] < 230 || pix[1] > 25 || pix[2] > 25 {
		t.Errorf("the picture's first pixel = %v, want red in RGB order", pix[:3])
	}
	if s := b.server.summary(); s.Requests != 1 || s.Errors != 0 || s.Conditioning["trained"] != 1 ||
		s.Sessions.Opened != 1 {
		t.Errorf("summary = %+v", s)
	}
}

// The same request id gets the same noise on any server and in any session. Another request gets other noise.
func TestNoiseIsAFunctionOfTheRequest(t *testing.T) {
	noise := func(uuid string, seq uint64) []float32 {
		b := newBench(t, config())
		rttest.Must(b.server.worker.engine.tensors.fill(0, b.opened(uuid), seq,
			wire.AppendObservation(nil, fakeObs(t))))(t)
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

// The prefix and the delay of a request decide how its chunk is conditioned. d is the delay in steps; the policy is
// trained for up to 3.
func TestConditioning(t *testing.T) {
	tests := []struct {
		name      string
		rows, d   int
		end       int // end of the overlap in the request; -1: not sent
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
	r := newBench(t, config()).server.worker.engine.tensors
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r.obs.PrefixRobot = wire.Matrix{Rows: tt.rows, Cols: 2, Data: make([]float32, 2*tt.rows)}
			r.obs.InferenceDelaySteps = tt.d
			r.obs.HasOverlapEnd, r.obs.OverlapEnd = tt.end >= 0, max(tt.end, 0)
			rows, _ := r.prefix(0, &session{rtc: tt.rtc})
			c := r.condition(rows)
			if c.Mode != tt.mode || c.Delay != tt.delay || c.PrefixEnd != tt.prefixEnd || c.Beta > 10 {
				t.Errorf("condition(%d rows, delay %d, end %d) = %+v, want %v, delay %d, end %d, beta at most 10 steps",
					tt.rows, tt.d, tt.end, c, tt.mode, tt.delay, tt.prefixEnd)
			}
		})
	}
}

// A request may name rows of the server's own chunks. When the server no longer has the named rows,
// the request's chunk is not conditioned, and this is counted.
func TestSpans(t *testing.T) {
	r := newBench(t, config()).server.worker.engine.tensors
	s := &session{rtc: true, history: policy.NewHistory(8, 2)}
	for _, key := range []int64{5, 6} {
		for i := range r.model.ChunkRobot(0) {
			r.model.ChunkRobot(0)[i] = float32(100*key) + float32(i)
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
		if got := r.model.Prefix(0)[:2*rows]; !slices.Equal(got, tt.want) || use != tt.use {
			t.Errorf("%s: %v, use %d, want %v, %d", tt.name, got, use, tt.want, tt.use)
		}
	}
	r.obs.PrefixRobot = wire.Matrix{Rows: 1, Cols: 2, Data: []float32{1, 2}}
	r.obs.Spans, s.rtc = []wire.Span{{Source: 6, Start: 0, End: 8}}, true
	if rows, use := r.prefix(0, s); rows != 1 || use != spansNone {
		t.Errorf("rows that travel: %d, use %d, want 1 and not asked", rows, use)
	}
	rttest.NoAllocs(t, "spans allocate %v times a request", 100, func() {
		r.remember(0, s, &filled{hasT: true, key: 6})
		r.obs.PrefixRobot.Rows = 0
		r.prefix(0, s)
	})
}

// A policy without the conditioning that the manifest requests is refused before it serves.
func TestConditioningThatThePolicyLacks(t *testing.T) {
	cfg := config()
	cfg.Conditioning.Schedule = "exp"
	_, err := New(cfg, Deps{Meta: servertest.Meta(), Model: servertest.NewModel(), Repo: "test/fake"})
	rttest.FailsAs(t, err, manifest.ErrInvalid, "schedule exp")
}

// A robot that sends nonsense gets an event with the reason, and the other robots get their chunks.
func TestBadObservationIsAnsweredWithAnEvent(t *testing.T) {
	tests := []struct {
		name   string
		change func(*wire.Observation) // nil: the body is not MessagePack
		want   string
	}{
		{"not MessagePack", nil, "wire"},
		{"state one short", func(o *wire.Observation) { o.State = o.State[:1] }, "state: got 1, want 2"},
		{"NaN in the state", func(o *wire.Observation) { o.State[1] = float32(math.NaN()) }, "state"},
		{"no camera", func(o *wire.Observation) { o.Images = nil }, top},
		{"camera by another name", func(o *wire.Observation) { o.Images[0].Name = "top" }, top},
		{"picture that is too large", func(o *wire.Observation) {
			at := bytes.Index(o.Images[0].Data, []byte{0xff, 0xc0})
			binary.BigEndian.PutUint16(o.Images[0].Data[at+7:], 65500)
		}, "got 65500x16"},
		{"torn picture", func(o *wire.Observation) { o.Images[0].Data = o.Images[0].Data[:40] }, "jpeg"},
		{"prefix of another width", func(o *wire.Observation) {
			o.PrefixRobot = wire.Matrix{Rows: 1, Cols: 3, Data: make([]float32, 3)}
		}, "prefix_robot"},
		{"prefix longer than a chunk", func(o *wire.Observation) {
			o.PrefixRobot = wire.Matrix{Rows: 9, Cols: 2, Data: make([]float32, 18)}
		}, "prefix_robot"},
	}
	b := serve(t, config())
	b.open(fakeOpen("arm"))
	r := b.robot("arm")
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b.clock.Advance(2 * eventInterval)
			h := obsHeader(0, uint64(i+1))
			body := []byte{0xc1}
			if tt.change != nil {
				o := fakeObs(t)
				tt.change(o)
				body = wire.AppendObservation(nil, o)
			}
			r.put(body, wire.AppendHeader(nil, h))
			if got := r.wantEvent(wire.EventBadObservation, tt.want); got.header != h.Reply(wire.MsgEvent) ||
				got.event.Seq != h.SeqID {
				t.Errorf("header = %+v, seq %d", got.header, got.event.Seq)
			}
		})
	}
	r.ask(99)
	r.wantChunk(99)
	b.end() // the server counts the request after it has sent the chunk
	if s := b.server.summary(); s.Errors != uint64(len(tests)) || s.Requests != 1 {
		t.Errorf("summary = %d errors, %d requests, want %d and 1", s.Errors, s.Requests, len(tests))
	}
}

// There is a least time between two events to a robot, because a client of LeRobot's draft sends its next request
// immediately after an event.
func TestEventsAreSpaced(t *testing.T) {
	b := serve(t, config())
	b.open(fakeOpen("arm"))
	r := b.robot("arm")
	for seq := uint64(1); seq <= 5; seq++ {
		r.askBadly(0, seq)
		rttest.Eventually(t, "the request", func() bool {
			return b.server.stats.outcomes[audit.BadObservation].Load() == seq
		})
	}
	b.clock.Advance(2 * eventInterval)
	r.askBadly(0, 6)
	if first, second := r.next(), r.next(); first.event.Seq != 1 || second.event.Seq != 6 {
		t.Errorf("events for seq %d and %d, want 1 and 6", first.event.Seq, second.event.Seq)
	}
	rttest.Want(t, b.server.stats.silenced.Load(), 4, "events that were not sent")
}

// Goal: no robot gets a chunk from a run that failed or returned values that are not finite. It gets an event with the
// reason.
func TestUnusableChunksAreNotPublished(t *testing.T) {
	b, robots := batching(t, 1, []string{"arm"}, func(b *bench) { b.model.Poison, b.model.Overflow = 1, 2 })
	for i, words := range []string{"inference failed", "not finite"} {
		robots[0].sendState(uint64(i+1), float32(i+1))
		robots[0].wantEvent(wire.EventBadObservation, words)
		b.clock.Advance(2 * eventInterval)
	}
	s := b.server.stats
	failed, notFinite := s.outcomes[audit.InferenceFailed].Load(), s.outcomes[audit.NotFinite].Load()
	if answered := s.outcomes[audit.Answered].Load(); failed != 1 || notFinite != 1 || answered != 0 {
		t.Errorf("failed %d, not finite %d, requests %d, want 1, 1, 0", failed, notFinite, answered)
	}
}

// A server receives a robot's observations only while it holds its session, and never answers a robot whose session it
// does not hold, because another server may hold it.
func TestOnlyTheHolderOfASessionReceives(t *testing.T) {
	b := serve(t, config())
	ghost, arm := b.robot("ghost"), b.robot("arm")
	ghost.ask(1)
	ack := b.open(fakeOpen("arm"))
	b.open(fakeOpen("arm")) // the robot keeps one subscription
	arm.ask(1)
	arm.wantChunk(1)
	b.close("arm", ack.SessionID) // the session id is out of date, so the close is ignored
	arm.ask(2)
	arm.wantChunk(2)
	b.close("arm", b.server.sessions.find("arm").id)
	arm.ask(3)
	// The server counts a chunk after it has sent it.
	rttest.Eventually(t, "the count of the second chunk", func() bool { return b.server.summary().Requests >= 2 })
	if s := b.server.summary(); len(ghost.inbox) != 0 || len(arm.inbox) != 0 || s.Requests != 2 || s.Unknown != 0 {
		t.Errorf("robots without a session got %d and %d samples, %d were answered and %d received, want 0, 0, 2, 0",
			len(ghost.inbox), len(arm.inbox), s.Requests, s.Unknown)
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
	r.put(make([]byte, b.server.receiver.observationMax+1), wire.AppendHeader(nil, h))
	r.wantEvent(wire.EventBadObservation, "send JPEG, or smaller or fewer pictures")
	for _, s := range []struct{ body, attachment []byte }{
		{body, nil},
		{body, []byte("short")},
		{body, wire.AppendHeader(nil, future)},
		{body, wire.AppendHeader(nil, chunk)},
	} {
		r.put(s.body, s.attachment)
	}
	rttest.Want(t, b.server.stats.malformed.Load(), 5, "malformed observations")
	r.send(h, fakeObs(t))
	got := r.next()
	for got.header.MsgType == wire.MsgEvent {
		got = r.next()
	}
	if got.header.MsgType != wire.MsgActionChunk || got.header.SeqID != 1 {
		t.Errorf("a good observation afterwards = %+v, want a chunk", got.header)
	}
}

// While the worker is busy, only the newest observation of each robot waits. The reply has the number of the older ones
// that were replaced, and under round_robin the robots are served in turn.
func TestNewestWinsAndAllHaveTurns(t *testing.T) {
	cfg := config()
	cfg.Scheduler = "round_robin"
	b := serve(t, cfg, (*bench).hold)
	b.open(fakeOpen("a"))
	b.open(fakeOpen("z"))
	a, z := b.robot("a"), b.robot("z")
	a.ask(1)
	<-b.entered                                   // the worker holds request 1 of robot a
	for _, seq := range []uint64{2, 3, 4, 5, 3} { // the last one is late
		a.ask(seq)
	}
	z.ask(1)
	b.leave <- struct{}{}
	rttest.Want(t, a.wantChunk(1).chunk.SupersededSeqs, 3, "superseded requests in the first chunk for a")
	<-b.entered
	b.leave <- struct{}{} // z has the next turn, although a waits, too
	z.wantChunk(1)
	<-b.entered
	b.leave <- struct{}{}
	// LeRobot's draft has the rule that replaced observations are reported once, with the next reply.
	if got := a.wantChunk(5); got.chunk.SupersededSeqs != 0 || len(a.inbox) != 0 {
		t.Errorf("second reply to a: %d superseded, want 0 and no other reply", got.chunk.SupersededSeqs)
	}
	if s := b.server.summary(); s.Superseded != 3 || s.Late != 1 {
		t.Errorf("superseded %d, late %d, want 3 and 1", s.Superseded, s.Late)
	}
}

func TestSessionsOpenCloseAndReplace(t *testing.T) {
	b := serve(t, config()) // the server has room for 2 sessions
	first := b.open(fakeOpen("a"))
	b.open(fakeOpen("b"))
	full := b.open(fakeOpen("c"))
	if full.Accepted || full.Error != "server full: 2/2 sessions active" || !full.Temporary() || full.ServerLoad != 1 ||
		full.RetryAfterMs == 0 {
		t.Errorf("third open = %+v, want a temporary refusal with the load", full)
	}
	again := b.open(fakeOpen("a"))
	rttest.Want(t, b.network.Publishers(actionKey("a")), 1, "publishers on a's action key")
	if !again.Accepted || again.SessionID == first.SessionID {
		t.Errorf("opening again = %+v, want a new session that does not count against the room", again)
	}
	for _, c := range []struct {
		uuid, id string
		left     int
	}{{"a", first.SessionID, 2}, {"a", again.SessionID, 1}, {"b", "", 0}, {"unknown", "", 0}} {
		ack := b.close(c.uuid, c.id)
		if n := b.server.summary().Sessions.Active; !ack.OK || n != c.left {
			t.Errorf("close(%s, %s) = %+v with %d sessions left, want ok and %d", c.uuid, c.id, ack, n, c.left)
		}
	}
	if s := b.server.summary().Sessions; s.Opened != 3 || s.Closed != 3 || s.Refused != 1 {
		t.Errorf("sessions = %+v, want 3 opened, 3 closed, 1 refused", s)
	}
}

func actionKey(uuid string) string {
	key, _ := wire.ActionKey(fakePrefix, uuid)
	return key
}

func TestOpenForAnotherReplicaIsNotAnswered(t *testing.T) {
	b := serve(t, config())
	o := fakeOpen("a")
	o.ServerID = "somebody-else"
	rttest.Want(t, len(b.query(wire.SessionKey(fakePrefix), wire.Append(nil, &o))), 0,
		"replies to an open for another server")
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
	if reply := b.one(wire.SessionKey(fakePrefix), []byte("nonsense")); !bytes.Contains(reply.Payload,
		[]byte("server error")) {
		t.Errorf("nonsense got %+v, want a refusal", reply)
	}
}

func TestReset(t *testing.T) {
	b := serve(t, config())
	b.open(fakeOpen("a"))
	for _, tt := range []struct {
		name, key, uuid string
		ok              bool
	}{
		{"own episode", "a", "a", true},
		{"a robot without a session", "b", "b", false},
		{"another robot's by body", "b", "a", false},
	} {
		rttest.Want(t, b.reset(tt.key, wire.Reset{ClientUUID: tt.uuid, EpisodeID: 7}).OK, tt.ok, "%s: reset", tt.name)
	}
	rttest.Want(t, b.server.sessions.find("a").episode.Load(), 7, "episode")
}

// A robot whose token has vanished keeps its session until tokenGrace has passed.
func TestTokenGrace(t *testing.T) {
	b := newBench(t, config())
	b.opened("arm").tokenChanged(false, b.clock.Now())
	for _, step := range []struct {
		wait time.Duration
		want string
	}{{tokenGrace, "arm"}, {time.Millisecond, ""}} {
		b.clock.Advance(step.wait)
		if b.tick(); b.uuids() != step.want {
			t.Errorf("sessions after another %v = %q, want %q", step.wait, b.uuids(), step.want)
		}
	}
}

// When the server stops, it finishes the present request and withdraws all declarations.
func TestServeDrains(t *testing.T) {
	b := serve(t, config(), (*bench).hold)
	o := fakeOpen("a")
	o.SessionEpoch = 3
	b.open(o)
	r := b.robot("a")
	h := obsHeader(3, 1)
	h.EpisodeID = 7
	r.send(h, fakeObs(t))
	<-b.entered
	r.ask(2) // this request waits, and gets no answer
	stopped := make(chan error, 1)
	go func() { stopped <- b.stop() }()
	rttest.Eventually(t, "the server's token gone", func() bool {
		return b.network.CountTokens(wire.ServerAliveAny) == 0
	})
	if ready, why := b.server.ready(); ready || why != "draining" {
		t.Errorf("Ready() = %v, %q, want draining", ready, why)
	}
	if ack := b.open(fakeOpen("late")); ack.Accepted || !ack.Temporary() || !ack.Draining {
		t.Errorf("open while draining = %+v, want a temporary refusal", ack)
	}
	close(b.leave)
	rttest.Do(t, <-stopped)
	notice := r.wantEvent(wire.EventDraining, drainingText)
	want := wire.Header{SchemaVersion: 1, MsgType: wire.MsgEvent, EpisodeID: 7, SessionEpoch: 3}
	if notice.event.RetryAfterMs != 1000 || notice.event.ServerID != b.server.id || notice.header != want {
		t.Errorf("while draining the robot got %+v, want the time, this server and %+v", notice, want)
	}
	r.wantChunk(1)
	rttest.Want(t, b.network.Publishers(actionKey("a")), 0, "publishers on the robot's action key")
	rttest.Want(t, b.network.Declarations(), 1, "declarations left")
}

// counted is a model that counts how often it was closed.
type counted int

func (c *counted) Close() error { *c++; return nil }

// A model is not closed while an inference that outlasts the server still uses it. Closing it would crash the process
// in ONNX Runtime, with an exit code that has another meaning.
func TestAModelInUseIsNotClosed(t *testing.T) {
	t.Parallel()
	b := serve(t, config(), (*bench).hold)
	b.open(fakeOpen("a"))
	b.robot("a").ask(1)
	<-b.entered
	err := b.stop()
	select {
	case <-b.model.Terminated:
	default:
		t.Error("the inference was not terminated")
	}
	close(b.leave)
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

// A worker that panics ends Serve with an error instead of the process with Go's exit code for panics, which to a
// supervisor means a usage error.
func TestServeReportsAPanic(t *testing.T) {
	b, r := failingServer(t, func(*bench, int) error { panic("bad graph") })
	r.ask(1)
	b.wantError("bad graph")
}

// wantError expects that the server ends by itself, with an error that contains these words.
func (b *bench) wantError(words string) {
	b.t.Helper()
	rttest.Eventually(b.t, "the worker's end", func() bool { ok, _ := b.server.healthy(); return !ok })
	rttest.Fails(b.t, b.stop(), words)
}

func TestServeReportsAFailedWarmup(t *testing.T) {
	b := newBench(t, config())
	b.model.Before = func() error { return policy.ErrRun }
	if err := b.server.Serve(t.Context()); !errors.Is(err, policy.ErrRun) || b.network.Declarations() != 0 {
		t.Errorf("Serve = %v with %d declarations, want ErrRun and none", err, b.network.Declarations())
	}
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
	b.opened("arm")
	body, seq := wire.AppendObservation(nil, prefixed(t)), uint64(0)
	sample := wire.Sample{Key: obsKey(t, "arm"), Payload: body}
	cycle := func() {
		for range 2 { // the second observation replaces the first
			seq++
			sample.Attachment = wire.AppendHeader(sample.Attachment[:0], obsHeader(0, seq))
			b.server.receiver.onObservation(sample)
		}
		b.serveOne()
	}
	for range 100 {
		cycle()
	}
	rttest.NoAllocs(t, "a request allocates %v times, want 0", 200, cycle)
	if n := b.server.stats.outcomes[audit.Answered].Load(); n < 200 {
		t.Errorf("served %d requests, want more than 200: %+v", n, b.server.summary())
	}
}

// Goal: while a robot's link has no room, a newer chunk replaces the waiting chunk, and the robot gets the newest when
// the link has room again.
func TestNewestChunkWins(t *testing.T) {
	b := serve(t, config())
	r := b.robot("a")
	b.open(fakeOpen("a"))
	r.ask(1)
	r.wantChunk(1)
	resume := b.network.Stall()
	for seq := uint64(2); seq <= 4; seq++ {
		r.ask(seq)
		rttest.Eventually(t, "its end", func() bool { return b.server.stats.outcomes[audit.Answered].Load() == seq })
	}
	resume()
	r.wantChunk(4)
	rttest.Want(t, b.server.stats.replaced.Load(), 2, "chunks that a newer chunk replaced")
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
	b.wantReady()
	b.server.cfg.Zenoh.ConnectEndpoints = []string{"tcp/router:7447"}
	if ok, why := b.server.ready(); ok || why != "no link to a router" {
		t.Errorf("Ready() = %v, %q without a router, want no link to a router", ok, why)
	}
	b.server.cfg.Zenoh.ListenEndpoints = []string{manifest.DefaultListen}
	b.wantReady()
}
