package server

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/front"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/server/servertest"
	"github.com/edge-rt/edge-rt/wire"
)

const patience = 10 * time.Second // longest wait, which only a failing test reaches

// bench is a server with a network that no other test uses, and a session on this network for the test's robots.
type bench struct {
	t       *testing.T
	server  *Server
	model   *servertest.Model
	clock   *rttest.Clock
	network *servertest.Network
	session wire.Session // session of the test's robots
	stop    func() error // ends Serve and returns its error

	entered, leave chan struct{} // channels that hold uses
}

// fakePrefix is the key prefix of config's service, and top is its only camera.
const (
	fakePrefix = "@lerobot/test-fake/main/demo"
	top        = front.ImagePrefix + "top"
)

func config() manifest.Config {
	cfg := manifest.Default()
	cfg.Model.RepoOrPath = "bundle"
	cfg.Service = "demo"
	cfg.MaxSessions = 2
	return cfg
}

// roomy is config with room for 500 sessions.
func roomy() manifest.Config {
	cfg := config()
	cfg.MaxSessions = 500
	return cfg
}

// newBench returns a server that does not run.
func newBench(t *testing.T, cfg manifest.Config, change ...func(*Deps)) *bench {
	t.Helper()
	b := &bench{t: t, clock: rttest.NewClock(1), network: servertest.NewNetwork()}
	d := Deps{
		Meta:    servertest.Meta(),
		SHA256:  "5ha",
		Repo:    "test/fake",
		Prefix:  fakePrefix,
		Model:   servertest.NewModel(),
		Network: b.network.Session(),
		Clock:   b.clock,
		Log:     slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&d)
	}
	b.model, _ = d.Model.(*servertest.Model)
	b.server = rttest.Must(New(cfg, d))(t)
	b.session = b.network.Session()
	return b
}

// logTo returns a change of Deps that makes the server write its log to w.
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
	b.t.Helper()
	for _, f := range change {
		f(b)
	}
	b.begin()
	rttest.Eventually(b.t, "the server's token", func() bool { return b.network.CountTokens(wire.ServerAliveAny) == 1 })
}

// begin serves until stop.
func (b *bench) begin() {
	ctx, cancel := context.WithCancel(b.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.server.Serve(ctx) }()
	b.stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(patience):
			b.t.Fatal("Serve did not return")
			return nil
		}
	})
	b.t.Cleanup(func() { _ = b.stop() })
}

// end stops the server, which must not fail.
func (b *bench) end() {
	b.t.Helper()
	rttest.PanicOn(b.stop())
}

// hold makes each inference signal its start on the channel entered and then wait for the channel leave. It also
// switches the warm-up off. Tests call it in serve's change.
func (b *bench) hold() {
	b.entered, b.leave = make(chan struct{}, 100), make(chan struct{})
	b.beforeRuns(func(int) error {
		b.entered <- struct{}{}
		<-b.leave
		return nil
	})
}

// beforeRuns calls f, with the number of the run, at the start of each run; there is no warm-up.
func (b *bench) beforeRuns(f func(run int) error) {
	b.server.cfg.WarmupInferences = 0
	run := 0
	b.model.Before = func() error {
		run++
		return f(run)
	}
}

// wantReady expects that the server takes robots.
func (b *bench) wantReady() {
	b.t.Helper()
	if ok, why := b.server.ready(); !ok {
		b.t.Errorf("the server is not ready: %s", why)
	}
}

// untilReady waits until the server takes robots.
func (b *bench) untilReady() {
	b.t.Helper()
	rttest.Eventually(b.t, "readiness", func() bool { ok, _ := b.server.ready(); return ok })
}

// tick does the housekeeping of a server that does not run.
func (b *bench) tick() { b.server.housekeeper.tick(b.t.Context()) }

// serveOne serves the waiting requests of a server that does not run.
func (b *bench) serveOne() {
	b.t.Helper()
	if !serveOne(b.server.worker) {
		b.t.Fatal("nothing to serve")
	}
}

// serveOne makes a worker that was not started serve the waiting requests in one run. It returns
// false when no request waits.
func serveOne(w *worker) bool {
	if w.timer.Stop() { // at the first call
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

// pages returns the health pages of server s. If s is nil, these are the pages of a server that still loads its policy.
func pages(t *testing.T, s *Server) *health {
	t.Helper()
	h := rttest.Must(listenHealth("127.0.0.1:0", slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(func() { h.Close() })
	h.watch(s)
	return h
}

func (b *bench) query(key string, payload []byte) []wire.Reply {
	b.t.Helper()
	return rttest.OrPanic(b.session.Get(b.t.Context(), key, payload, patience))
}

// one returns the only answer to a query.
func (b *bench) one(key string, payload []byte) wire.Reply {
	b.t.Helper()
	replies := b.query(key, payload)
	if len(replies) != 1 {
		b.t.Fatalf("%s got %d replies, want 1", key, len(replies))
	}
	return replies[0]
}

// status returns the body of the server's answer to a status query.
func (b *bench) status() []byte {
	b.t.Helper()
	return b.one(wire.StatusKey(fakePrefix), nil).Payload
}

// shown returns the status of the bench's server, which need not run.
func (b *bench) shown() (s wire.Status) {
	b.t.Helper()
	_, body := b.server.queries.status(nil)
	rttest.PanicOn(wire.Parse(&s, body))
	return s
}

// fakeOpen returns an open that fits the fake policy.
func fakeOpen(uuid string) wire.SessionOpen {
	m := servertest.Meta()
	return wire.SessionOpen{
		ClientUUID:    uuid,
		RobotType:     "so101",
		PolicyType:    "fake",
		FPS:           60,
		ActionNames:   m.ActionNames,
		CameraNames:   []string{top},
		StateDim:      2,
		SchemaVersion: 1,
		RTCEnabled:    true,
	}
}

// process returns the open of one process of a robot.
func process(uuid, instance, host string, epoch uint32) wire.SessionOpen {
	o := fakeOpen(uuid)
	o.Instance = instance
	o.Host = host
	o.SessionEpoch = epoch
	return o
}

func (b *bench) open(o wire.SessionOpen) wire.SessionAck {
	b.t.Helper()
	return b.openAt(wire.SessionKey(fakePrefix), o)
}

// openAt opens a session at a key.
func (b *bench) openAt(key string, o wire.SessionOpen) (ack wire.SessionAck) {
	b.t.Helper()
	reply := b.one(key, wire.Append(nil, &o))
	if err := wire.Parse(&ack, reply.Payload); err != nil || reply.Key != key {
		b.t.Fatalf("the answer at %s: %v", reply.Key, err)
	}
	return ack
}

// openFrom opens a session for a query that came over the link named from, or through a router when
// from has no name. The server need not run.
func (b *bench) openFrom(from wire.Origin, o wire.SessionOpen) wire.SessionAck {
	return b.server.opener.open(&o, from)
}

func link(n int, host string) wire.Origin {
	return wire.Origin{Name: fmt.Sprint("link ", n), Host: host}
}

// admits ends the test if an open was refused. The parameter what names the open in the error.
func (b *bench) admits(ack wire.SessionAck, what string) {
	if !ack.Accepted {
		b.t.Helper()
		b.t.Fatalf("%s is refused: %+v", what, ack)
	}
}

// refuses fails the test if an open was accepted. The parameter what names the open in the error.
func (b *bench) refuses(ack wire.SessionAck, what string) {
	if ack.Accepted {
		b.t.Helper()
		b.t.Errorf("%s is accepted: %+v", what, ack)
	}
}

// opened opens a session at a server that need not run.
func (b *bench) opened(uuid string) *session {
	b.t.Helper()
	b.admits(b.openFrom(wire.Origin{}, fakeOpen(uuid)), uuid)
	return b.server.sessions.find(uuid)
}

// ask sends a reset or a close and returns the answer.
func (b *bench) ask(key string, body []byte) (ack wire.ResetAck) {
	b.t.Helper()
	reply := b.one(key, body)
	if err := wire.Parse(&ack, reply.Payload); err != nil || reply.Key != key {
		b.t.Fatalf("the answer at %s: %v", reply.Key, err)
	}
	return ack
}

// close sends a close of a session.
func (b *bench) close(uuid, id string) wire.ResetAck {
	b.t.Helper()
	return b.ask(wire.SessionKey(fakePrefix),
		wire.Append(nil, &wire.SessionClose{ClientUUID: uuid, SessionID: id}))
}

// reset sends a reset at the key of a robot.
func (b *bench) reset(at string, m wire.Reset) wire.ResetAck {
	b.t.Helper()
	key := rttest.OrPanic(wire.ResetKey(fakePrefix, at))
	return b.ask(key, wire.Append(nil, &m))
}

// uuids returns the robots that have a session.
func (b *bench) uuids() string {
	var list []string
	for _, s := range b.server.sessions.all() {
		list = append(list, s.uuid)
	}
	return strings.Join(list, " ")
}

// show declares the liveliness token of a robot for an epoch. Epoch 0 means the token that has no
// epoch.
func (b *bench) show(uuid string, epoch uint32) wire.Declaration {
	b.t.Helper()
	key, err := wire.EpochAliveKey(fakePrefix, uuid, epoch)
	if epoch == 0 {
		key, err = wire.ClientAliveKey(fakePrefix, uuid)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return rttest.OrPanic(b.session.Token(key))
}

// live is a robot's life in one epoch: the session that it has opened, and its token.
type live struct {
	b     *bench
	uuid  string
	id    string // session id
	token wire.Declaration
}

// live opens a session as edge-rt does and shows its token.
func (b *bench) live(uuid string, epoch uint32) live {
	b.t.Helper()
	ack := b.open(process(uuid, "", "", epoch))
	b.admits(ack, uuid)
	return live{b: b, uuid: uuid, id: ack.SessionID, token: b.show(uuid, epoch)}
}

// die lets the token vanish, as the end of a link does.
func (l live) die() {
	l.b.t.Helper()
	rttest.PanicOn(l.token.Undeclare())
}

// serveQueries returns a server that answers queries and watches tokens. It does no housekeeping by
// itself; the test calls tick for that.
func serveQueries(t *testing.T, cfg manifest.Config) *bench {
	t.Helper()
	b := newBench(t, cfg)
	declared, tokens, err := b.server.declare()
	rttest.Do(t, err)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case q := <-b.server.queries.waiting:
				b.server.queries.answer(q)
			case <-done:
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(done)
		<-ended
		rttest.Do(t, undeclare(append(declared, tokens...)))
	})
	return b
}

// robot is a robot of a test: it subscribes to its actions and publishes observations.
type robot struct {
	b     *bench
	uuid  string
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
	r := &robot{b: b, uuid: uuid, inbox: make(chan sample, 100)}
	key := rttest.OrPanic(wire.ActionKey(fakePrefix, uuid))
	rttest.OrPanic(b.session.Subscribe(key, r.receive))
	r.obs = rttest.OrPanic(b.session.Publisher(obsKey(b.t, uuid), wire.ObservationQoS))
	return r
}

func obsKey(t *testing.T, uuid string) string {
	t.Helper()
	return rttest.Must(wire.ObsKey(fakePrefix, uuid))(t)
}

func (r *robot) receive(s wire.Sample) {
	var got sample
	var err error
	if got.header, err = wire.ParseHeader(s.Attachment); err == nil {
		if got.header.MsgType == wire.MsgEvent {
			err = wire.Parse(&got.event, s.Payload)
		} else {
			err = wire.ParseActionChunk(&got.chunk, s.Payload)
		}
	}
	if err != nil {
		r.b.t.Errorf("the robot cannot read the server's message: %v", err)
	}
	r.inbox <- got
}

func obsHeader(epoch uint32, seq uint64) wire.Header {
	return wire.Header{SchemaVersion: 1, MsgType: wire.MsgObservation, SeqID: seq, SessionEpoch: epoch}
}

func (r *robot) send(h wire.Header, o *wire.Observation) {
	r.b.t.Helper()
	r.put(wire.AppendObservation(nil, o), wire.AppendHeader(nil, h))
}

func (r *robot) put(body, attachment []byte) {
	r.b.t.Helper()
	rttest.PanicOn(r.obs.Put(body, attachment))
}

// ask sends a valid observation as request seq, with the epoch of the robot's session.
func (r *robot) ask(seq uint64) {
	r.b.t.Helper()
	epoch := uint32(0)
	if s := r.b.server.sessions.find(r.uuid); s != nil {
		epoch = s.epoch
	}
	r.send(obsHeader(epoch, seq), fakeObs(r.b.t))
}

// askBadly sends an observation with a state that is too short.
func (r *robot) askBadly(epoch uint32, seq uint64) {
	r.b.t.Helper()
	o := fakeObs(r.b.t)
	o.State = o.State[:1]
	r.send(obsHeader(epoch, seq), o)
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

// wantChunk expects the chunk of a request.
func (r *robot) wantChunk(seq uint64) sample {
	r.b.t.Helper()
	got := r.next()
	if got.header.MsgType != wire.MsgActionChunk || got.header.SeqID != seq || got.chunk.SeqIDEcho != seq {
		r.b.t.Errorf("%s got %+v, want the chunk of request %d", r.uuid, got, seq)
	}
	return got
}

// wantEvent expects an event whose text contains these words.
func (r *robot) wantEvent(code wire.EventCode, words string) sample {
	r.b.t.Helper()
	got := r.next()
	if got.header.MsgType != wire.MsgEvent || got.event.Code != code || !strings.Contains(got.event.Text, words) {
		r.b.t.Errorf("%s got %+v, want event %s with %q", r.uuid, got, code, words)
	}
	return got
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
	n := rttest.Must(e.EncodeRGB(dst, pix, w, h))(t)
	return dst[:n]
}

// observation returns an observation with these pictures.
func observation(pictures ...wire.Image) *wire.Observation {
	return &wire.Observation{State: []float32{10, 20}, Images: pictures}
}

func fakeObs(t testing.TB) *wire.Observation {
	return observation(wire.Image{Name: top, Data: picture(t, servertest.PictureW, servertest.PictureH)})
}

// prefixed returns an observation whose prefix has three rows.
func prefixed(t testing.TB) *wire.Observation {
	o := fakeObs(t)
	o.PrefixRobot = wire.Matrix{Rows: 3, Cols: 2, Data: make([]float32, 6)}
	o.InferenceDelaySteps, o.HasT = 2, true
	return o
}

// near reports whether got begins with want.
func near(got, want []float32, tolerance float64) bool {
	for i := range want {
		if d := float64(got[i] - want[i]); d > tolerance || d < -tolerance {
			return false
		}
	}
	return len(got) >= len(want)
}
