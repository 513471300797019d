package front_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/front"
	"github.com/edge-rt/edge-rt/server/servertest"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/listen"
	"github.com/edge-rt/edge-rt/wire/local"
)

// pair returns a server on a network with one client in this process and one robot on the network.
func pair(t *testing.T) (server, client, robot wire.Session) {
	network := servertest.NewNetwork()
	bus := local.Join(network.Session())
	client = bus.Client(wire.Origin{Name: "front 1", Host: "h"})
	t.Cleanup(func() { _ = client.Close() })
	return bus.Server(), client, network.Session()
}

// Property: the server sees both sides, and the two sides do not see each other.
func TestTheServerSeesBothSides(t *testing.T) {
	server, client, robot := pair(t)
	var got []string
	rttest.Must(server.Subscribe("a/*/obs", func(s wire.Sample) { got = append(got, s.Key+" "+string(s.Payload)) }))(t)
	alive := map[string]bool{}
	rttest.Must(server.SubscribeTokens("a/*/alive", func(key string, up bool) { alive[key] = up }))(t)
	rttest.Must(robot.Subscribe("a/**", func(s wire.Sample) { t.Errorf("the robot got %s", s.Key) }))(t)
	rttest.Do(t, rttest.Must(client.Publisher("a/c/obs", wire.ObservationQoS))(t).Put([]byte("1"), nil))
	rttest.Must(rttest.Must(client.Publisher("a/c/obs", wire.ObservationQoS))(t).PutLatest([]byte("2"), nil))(t)
	shown := rttest.Must(client.Token("a/c/alive"))(t)
	rttest.Must(robot.Token("a/r/alive"))(t)
	if want := []string{"a/c/obs 1", "a/c/obs 2"}; !slices.Equal(got, want) {
		t.Errorf("the server got %q, want %q", got, want)
	}
	keys := rttest.Must(server.Tokens(t.Context(), "a/*/alive", time.Second))(t)
	if slices.Sort(keys); !slices.Equal(keys, []string{"a/c/alive", "a/r/alive"}) || !alive["a/c/alive"] ||
		!alive["a/r/alive"] {
		t.Errorf("tokens = %q, seen = %v", keys, alive)
	}
	rttest.Want(t, len(rttest.Must(robot.Tokens(t.Context(), "a/*/alive", time.Second))(t)), 1,
		"robots that the robot sees")
	rttest.Do(t, shown.Undeclare())
	if alive["a/c/alive"] {
		t.Error("the token's end was not seen")
	}
}

func TestAClientsChunksStayInTheProcess(t *testing.T) {
	server, client, robot := pair(t)
	var here, there int
	mine := rttest.Must(client.Subscribe("a/c/action", func(wire.Sample) { here++ }))(t)
	rttest.Must(robot.Subscribe("a/*/action", func(wire.Sample) { there++ }))(t)
	p := rttest.Must(server.Publisher("a/c/action", wire.ActionQoS))(t)
	rttest.Must(p.PutLatest([]byte("1"), nil))(t)
	rttest.Do(t, p.Put([]byte("2"), nil))
	if here != 2 || there != 0 {
		t.Errorf("the client got %d, the network %d, want 2 and 0", here, there)
	}
	rttest.Do(t, mine.Undeclare())
	rttest.Must(p.PutLatest([]byte("3"), nil))(t)
	if here != 2 || there != 1 {
		t.Errorf("without the client: %d and %d, want 2 and 1", here, there)
	}
}

func TestAQueryHasItsClientsOrigin(t *testing.T) {
	server, client, _ := pair(t)
	var from wire.Origin
	rttest.Must(server.Queryable("a/status", func(q wire.Query) {
		from = q.From()
		go func() {
			rttest.Do(t, q.Reply(q.Key(), append([]byte("for "), q.Payload()...)))
			q.Finish()
		}()
	}))(t)
	replies := rttest.Must(client.Get(t.Context(), "a/status", []byte("me"), time.Second))(t)
	if len(replies) != 1 || string(replies[0].Payload) != "for me" || from.Name != "front 1" {
		t.Errorf("replies = %+v from %+v", replies, from)
	}
	rttest.Must(server.Queryable("a/never", func(wire.Query) {}))(t)
	rttest.Want(t, len(rttest.Must(client.Get(t.Context(), "a/never", nil, time.Millisecond))(t)), 0,
		"replies to a query without an answer")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	rttest.FailsAs(t, rttest.Err(client.Get(ended, "a/never", nil, time.Second)), context.Canceled)
}

func TestNothingArrivesAfterItsEnd(t *testing.T) {
	server, client, _ := pair(t)
	var n int
	d := rttest.Must(server.Subscribe("a/c/obs", func(wire.Sample) { n++ }))(t)
	p := rttest.Must(client.Publisher("a/c/obs", wire.ObservationQoS))(t)
	rttest.Do(t, d.Undeclare())
	if err := p.Put(nil, nil); !errors.Is(err, wire.ErrDisconnected) || n != 0 {
		t.Errorf("Put = %v after %d samples", err, n)
	}
	rttest.Do(t, client.Close())
	rttest.FailsAs(t, rttest.Err(client.Token("a/c/alive")), wire.ErrClosed) // a token after Close
}

// A client that leaves while its session opens leaves no session at the server.
func TestAClientThatLeavesInItsOpen(t *testing.T) {
	bus := local.Join(servertest.NewNetwork().Session())
	g := &front.Gateway{Bus: bus, Prefix: "a", Counts: new(front.Counts)}
	ctx, leave := context.WithCancel(t.Context())
	rttest.Must(bus.Server().Queryable("a/status", func(q wire.Query) {
		rttest.Do(t, q.Reply(q.Key(), wire.Append(nil, &wire.Status{ServerID: "s"})))
		q.Finish()
	}))(t)
	var asked []string
	rttest.Must(bus.Server().Queryable("a/openpi-h/session", func(q wire.Query) {
		asked = append(asked, rttest.Must(wire.ParseOp(q.Payload()))(t))
		if leave(); len(asked) > 1 {
			q.Finish()
		}
	}))(t)
	rttest.FailsAs(t, rttest.Err(g.Open(ctx, front.OpenPI, "h:1", wire.SessionOpen{})), context.Canceled)
	if !slices.Equal(asked, []string{wire.OpOpen, wire.OpClose}) {
		t.Errorf("the server got %q", asked)
	}
}

// A request that a connection begins after the end is not answered.
func TestNoRequestAfterTheEnd(t *testing.T) {
	g := &front.Gateway{Log: slog.New(slog.DiscardHandler), Counts: new(front.Counts)}
	s := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("handler called") })}
	ended, end := context.WithCancel(t.Context())
	end()
	rttest.Do(t, g.Serve(ended, front.OpenPI, rttest.Must(listen.TCP("127.0.0.1:0"))(t), s))
	s.Handler.ServeHTTP(nil, nil)
}
