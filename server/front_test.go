package server

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/front"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/wire"
)

// heldFront is a front that hands its gateway to the test.
type heldFront struct {
	gateway chan *front.Gateway
	ended   chan struct{}
}

func (f *heldFront) Serve(ctx context.Context, to *front.Gateway) error {
	f.gateway <- to
	<-ctx.Done()
	close(f.ended)
	return nil
}

func (f *heldFront) Close() error { return nil }

func serveFront(t *testing.T) (*bench, *front.Gateway, *heldFront) {
	t.Helper()
	f := &heldFront{gateway: make(chan *front.Gateway, 1), ended: make(chan struct{})}
	b := newBench(t, config(), func(d *Deps) { d.Fronts = []front.Front{f} })
	b.start()
	return b, <-f.gateway, f
}

// serveBeside serves a front of a second server of a's service.
func serveBeside(t *testing.T, a *bench, cfg manifest.Config) (*bench, *front.Gateway) {
	t.Helper()
	f := &heldFront{gateway: make(chan *front.Gateway, 1), ended: make(chan struct{})}
	b := newBench(t, cfg, func(d *Deps) { d.Network, d.Fronts = a.network.Session(), []front.Front{f} })
	b.begin()
	return b, <-f.gateway
}

func foreignOpen() wire.SessionOpen {
	o := fakeOpen("")
	o.RTCEnabled = false
	return o
}

// A front's clients and the network's robots share one server's sessions, limits and counters.
func TestAFrontsClientsAreRobots(t *testing.T) {
	b, gateway, f := serveFront(t)
	b.admits(b.open(fakeOpen("arm")), "the network's robot")
	foreign := rttest.Must(gateway.Open(t.Context(), front.LeRobot, "10.1.2.3:555", foreignOpen()))(t)
	rttest.Want(t, foreign.Name(), "lerobot-10.1.2.3", "name")
	_, err := gateway.Open(t.Context(), front.LeRobot, "10.1.2.3:556", foreignOpen())
	if !errors.Is(err, front.ErrRefused) || !errors.Is(err, front.ErrTemporary) {
		t.Errorf("a third session of two: %v", err)
	}
	for range 3 {
		chunk, err := foreign.Infer(t.Context(), fakeObs(t))
		if err != nil || chunk.ChunkRobot.Rows != 8 || !near(chunk.ChunkRobot.Data[:2], []float32{10.01, 20.01}, 1e-5) {
			t.Fatalf("chunk = %+v, %v", chunk, err)
		}
	}
	r := b.robot("arm")
	r.send(wire.Header{
		SchemaVersion: 1,
		MsgType:       wire.MsgObservation,
		SeqID:         1,
		SessionEpoch:  4,
	}, fakeObs(t))
	r.wantChunk(1)
	wrong := fakeObs(t)
	wrong.State = wrong.State[:1]
	rttest.FailsAs(t, rttest.Err(foreign.Infer(t.Context(), wrong)), front.ErrUnanswered)
	if k := gateway.Counts; k.Answered[front.LeRobot].Load() != 3 ||
		k.Refused[front.LeRobot][front.Unanswered].Load() != 1 ||
		k.Refused[front.LeRobot][front.Session].Load() != 1 {
		t.Errorf("counts = %+v", k)
	}
	foreign.Close()
	if list := b.server.sessions.all(); len(list) != 1 || list[0].uuid != "arm" {
		t.Errorf("after its close %d sessions are open", len(list))
	}
	again := rttest.Must(gateway.Open(t.Context(), front.LeRobot, "10.1.2.3:557", foreignOpen()))(t)
	rttest.Want(t, again.Name(), "lerobot-10.1.2.3", "name of a client after the first one has ended")
	b.end()
	<-f.ended
}

// Two servers of a service name their fronts' clients of one host differently, because the clients cannot choose
// another name.
func TestFrontsOfTwoServers(t *testing.T) {
	a, gateway, _ := serveFront(t)
	b, beside := serveBeside(t, a, config())
	const name = "openpi-127.0.0.1"
	open := func(g *front.Gateway, want string, at *bench) *front.Robot {
		r := rttest.Must(g.Open(t.Context(), front.OpenPI, "127.0.0.1:555", foreignOpen()))(t)
		rttest.Want(t, r.Name(), want, "name")
		rttest.Eventually(t, "the session's token", func() bool {
			_, held := at.server.others.Holder(want)
			return held
		})
		return r
	}
	first := open(gateway, name, b)
	open(beside, name+"-2", a).Close()
	a.server.opener.evict(a.server.sessions.find(name), "the test ends it")
	rttest.Eventually(t, "the end of the first session's token", func() bool {
		_, held := b.server.others.Holder(name)
		return !held
	})
	open(beside, name, a)
	rttest.Do(t, first.Reset(t.Context(), "pick"))
	rttest.Want(t, first.Name(), name+"-2", "the name of the client that lost its own")
}

// Where clients lists only the name that another server's client has, the refusal ends with that client's session.
func TestAFrontsClientWhoseListedNameIsTaken(t *testing.T) {
	const name = "openpi-127.0.0.1"
	a, gateway, _ := serveFront(t)
	cfg := config()
	cfg.Clients = []string{name}
	b, beside := serveBeside(t, a, cfg)
	rttest.Must(gateway.Open(t.Context(), front.OpenPI, "127.0.0.1:555", foreignOpen()))(t)
	rttest.Eventually(t, "the session's token", func() bool {
		_, held := b.server.others.Holder(name)
		return held
	})
	_, err := beside.Open(t.Context(), front.OpenPI, "127.0.0.1:556", foreignOpen())
	rttest.FailsAs(t, err, front.ErrTemporary, name, "another")
}

// When the server has ended the session of a front's client, the client's next observation opens a session again.
func TestAFrontsClientOpensAgain(t *testing.T) {
	b, gateway, _ := serveFront(t)
	foreign := rttest.Must(gateway.Open(t.Context(), front.OpenPI, "127.0.0.1:555", foreignOpen()))(t)
	rttest.Must(foreign.Infer(t.Context(), fakeObs(t)))(t)
	list := b.server.sessions.all()
	i := slices.IndexFunc(list, func(s *session) bool { return s.uuid == foreign.Name() })
	if i < 0 {
		t.Fatal("no session")
	}
	rttest.Do(t, foreign.Reset(t.Context(), "pick"))
	rttest.Want(t, list[i].episode.Load(), 1, "episode")
	before := list[i].id
	b.server.opener.evict(list[i], "the test ends it")
	rttest.Must(foreign.Infer(t.Context(), fakeObs(t)))(t)
	if s := b.server.sessions.find(foreign.Name()); s == nil || s.id == before {
		t.Errorf("session = %+v", s)
	}
}
