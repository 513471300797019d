package foxglove

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

func open(t *testing.T) (*Server, string) {
	t.Helper()
	s := New("arm", []Channel{{Topic: "/joints", SchemaName: "Joints", Schema: "{}"}, {Topic: "/log"}})
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	return s, web.URL
}

// dial connects a viewer and reads the greeting and the channels.
func dial(t *testing.T, url, protocol string) *websocket.Conn {
	t.Helper()
	c, _, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{Subprotocols: []string{protocol}})
	rttest.Do(t, err)
	t.Cleanup(func() { c.CloseNow() })
	for _, op := range []string{"serverInfo", "advertise"} {
		var m struct{ Op string }
		if _, b, err := c.Read(t.Context()); err != nil || json.Unmarshal(b, &m) != nil || m.Op != op {
			t.Fatalf("%s, %v; want %s", b, err, op)
		}
	}
	return c
}

func subscribe(t *testing.T, s *Server, c *websocket.Conn, id string) {
	t.Helper()
	before := subscriptions(s)
	text := `{"op": "subscribe", "subscriptions": [{"id": ` + id + `, "channelId": 0}]}`
	rttest.Do(t, c.Write(t.Context(), websocket.MessageText, []byte(text)))
	rttest.Eventually(t, "subscribed", func() bool { return subscriptions(s) > before })
}

func subscriptions(s *Server) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for v := range s.viewers {
		n += len(v.subscriptions)
	}
	return n
}

// Under both names of the protocol, a viewer gets exactly the messages of its subscriptions.
func TestAViewerGetsItsMessages(t *testing.T) {
	for _, protocol := range protocols {
		s, url := open(t)
		c := dial(t, url, protocol)
		subscribe(t, s, c, "7")
		at := time.Unix(3, 5)
		s.Publish(1, at, []byte(`"not wanted"`))
		s.Publish(0, at, []byte(`{"gripper": 1}`))
		kind, b, err := c.Read(t.Context())
		if err != nil || kind != websocket.MessageBinary || b[0] != 1 || binary.LittleEndian.Uint32(b[1:]) != 7 ||
			binary.LittleEndian.Uint64(b[5:]) != 3e9+5 || string(b[13:]) != `{"gripper": 1}` {
			t.Errorf("%s: %v, %q, %v", protocol, kind, b, err)
		}
		if s.Sent.Load() != 1 || s.Dropped.Load() != 0 {
			t.Errorf("%d sent, %d dropped", s.Sent.Load(), s.Dropped.Load())
		}
	}
}

// A viewer that does not read delays neither Publish nor another viewer.
func TestASlowViewerLosesMessages(t *testing.T) {
	s, url := open(t)
	slow, fast := dial(t, url, protocols[0]), dial(t, url, protocols[0])
	subscribe(t, s, slow, "1")
	subscribe(t, s, fast, "2")
	fast.SetReadLimit(1 << 20)
	picture := make([]byte, 256<<10)
	for i := range 200 { // 50 MB, more than the sockets and the queue hold
		s.Publish(0, time.Now(), picture)
		if _, b, err := fast.Read(t.Context()); err != nil || len(b) != 13+len(picture) {
			t.Fatalf("message %d: %d bytes, %v", i, len(b), err)
		}
	}
	if s.Dropped.Load() == 0 {
		t.Error("nothing was dropped")
	}
}

func TestRefusals(t *testing.T) {
	s, url := open(t)
	refused := func(name string, o websocket.DialOptions) {
		c, r, err := websocket.Dial(t.Context(), url, &o)
		if err == nil {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, _, err = c.Read(ctx)
			c.CloseNow()
		}
		if err == nil || r != nil && r.StatusCode == http.StatusOK {
			t.Errorf("%s is accepted", name)
		}
	}
	refused("another protocol", websocket.DialOptions{Subprotocols: []string{"chat"}})
	refused("a page of a stranger", websocket.DialOptions{Subprotocols: protocols,
		HTTPHeader: http.Header{"Origin": {"https://stranger.example"}}})
	refused("a page by DNS rebinding", websocket.DialOptions{Subprotocols: protocols, Host: "stranger.example",
		HTTPHeader: http.Header{"Origin": {"http://stranger.example"}}})
	for _, text := range []string{
		"no JSON", `{"op": "subscribe", "subscriptions": [{"id": 1, "channelId": 2}]}`,
		`{"op": "subscribe", "subscriptions": [` + strings.Repeat(`{"id": 1}, `, 1<<13) + `{"id": 1}]}`, // too long
	} {
		c := dial(t, url, protocols[0])
		_ = c.Write(t.Context(), websocket.MessageText, []byte(text))
		if _, b, err := c.Read(t.Context()); err == nil {
			t.Errorf("%.40s: %q, want the end", text, b)
		}
	}
	rttest.Eventually(t, "all have left", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.viewers) == 0 })
	for range maxViewers {
		dial(t, url, protocols[0])
	}
	refused("one viewer too many", websocket.DialOptions{Subprotocols: protocols})
}

// Property: no request gives a viewer more subscriptions than the bound, or a subscription to a channel that does not
// exist.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"op": "subscribe", "subscriptions": [{"id": 1, "channelId": 1}]}`))
	f.Add([]byte(`{"op": "unsubscribe", "subscriptionIds": [1]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, v := New("arm", make([]Channel, 2)), &viewer{subscriptions: map[uint32]uint32{}}
		if s.request(v, text) != "" {
			return
		}
		for _, channel := range v.subscriptions {
			if channel >= 2 || len(v.subscriptions) > maxSubscriptions {
				t.Fatalf("%v", v.subscriptions)
			}
		}
	})
}
