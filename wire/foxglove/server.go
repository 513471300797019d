// Package foxglove serves live messages by Foxglove's WebSocket protocol. The viewers are Foxglove, Lichtblick, and
// programs with Foxglove's client libraries.
//
// A viewer only reads. The server ignores the viewer's messages, calls and parameters. Each viewer has a short queue.
// When the queue is full, a message is dropped and counted, so a slow viewer delays nothing.
//
// Source: the specification in github.com/foxglove/ws-protocol.
package foxglove

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

const (
	maxViewers       = 8
	maxSubscriptions = 64 // subscriptions of a viewer
	maxRequest       = 64 << 10
	waiting          = 64 // messages in the queue of a viewer
	writeTimeout     = 10 * time.Second

	opMessage = 1 // first byte of a message: u32 subscription, u64 ns, payload follow
)

// protocols are the two names of the protocol. Foxglove's newer programs request the first.
var protocols = []string{"foxglove.sdk.v1", "foxglove.websocket.v1"}

// origins are the pages that may connect: the viewers that run in a browser, and pages of this machine.
// A program without a browser sends no origin.
var origins = []string{
	"file://*", "localhost", "localhost:*", "127.0.0.1", "127.0.0.1:*", "foxglove.dev", "*.foxglove.dev",
	"*.foxglove.com",
}

// Channel is a topic of JSON messages.
type Channel struct {
	ID             uint32 `json:"id"` // index of the channel in the server's list
	Topic          string `json:"topic"`
	Encoding       string `json:"encoding"`
	SchemaName     string `json:"schemaName"`
	Schema         string `json:"schema"`
	SchemaEncoding string `json:"schemaEncoding"`
}

// Server is the http.Handler for the viewers' connections. Any goroutine may call its methods.
type Server struct {
	Sent, Dropped atomic.Uint64 // messages, of all viewers

	hello, advertise []byte
	channels         int

	mu      sync.Mutex // guards the viewers and their subscriptions
	viewers map[*viewer]struct{}
}

// viewer is one connection.
type viewer struct {
	subscriptions map[uint32]uint32 // channel of each subscription
	messages      chan []byte
}

// New returns a server of the given channels, each with a topic and a JSON schema.
func New(name string, channels []Channel) *Server {
	for i := range channels {
		channels[i].ID = uint32(i)
		channels[i].Encoding = "json"
		channels[i].SchemaEncoding = "jsonschema"
	}
	s := &Server{channels: len(channels), viewers: map[*viewer]struct{}{}}
	s.hello, _ = json.Marshal(map[string]any{ // never fails for these values
		"op": "serverInfo", "name": name, "capabilities": []string{}, "supportedEncodings": []string{},
	})
	s.advertise, _ = json.Marshal(map[string]any{"op": "advertise", "channels": channels})
	return s
}

// Publish sends a message to the viewers that have subscribed to the channel. The parameter at is the time of the
// measurement.
func (s *Server) Publish(channel uint32, at time.Time, message []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for v := range s.viewers {
		for subscription, wanted := range v.subscriptions {
			if wanted != channel {
				continue
			}
			frame := make([]byte, 0, 13+len(message))
			frame = binary.LittleEndian.AppendUint32(append(frame, opMessage), subscription)
			frame = binary.LittleEndian.AppendUint64(frame, uint64(at.UnixNano()))
			select {
			case v.messages <- append(frame, message...):
				s.Sent.Add(1)
			default:
				s.Dropped.Add(1)
			}
		}
	}
}

// ServeHTTP serves one viewer until its connection ends.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := &viewer{subscriptions: map[uint32]uint32{}, messages: make(chan []byte, waiting)}
	if !s.enter(v) {
		http.Error(w, "8 viewers are connected, which is the most: close one", http.StatusServiceUnavailable)
		return
	}
	defer s.leave(v)
	// websocket.Accept by itself admits a page whose origin is r.Host. This server has no pages, so such a page would
	// come from another site, by DNS rebinding. No page has the host that is set here.
	r.Host = "a viewer's page"
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: protocols, OriginPatterns: origins})
	if err != nil {
		return // websocket.Accept has answered the request
	}
	defer conn.CloseNow()
	if conn.Subprotocol() == "" {
		conn.Close(websocket.StatusPolicyViolation, "want the subprotocol foxglove.sdk.v1 or foxglove.websocket.v1")
		return
	}
	conn.SetReadLimit(maxRequest)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		defer cancel()
		s.write(ctx, conn, v)
	}()
	for {
		kind, text, err := conn.Read(ctx)
		if err != nil {
			return
		}
		if kind != websocket.MessageText {
			continue // a viewer may publish on its own channels, which the server ignores
		}
		if err := s.request(v, text); err != "" {
			conn.Close(websocket.StatusPolicyViolation, err)
			return
		}
	}
}

func (s *Server) enter(v *viewer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.viewers) >= maxViewers {
		return false
	}
	s.viewers[v] = struct{}{}
	return true
}

func (s *Server) leave(v *viewer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.viewers, v)
}

// write sends a viewer the greeting and the list of channels. Then it sends the messages from the
// viewer's queue until ctx is done.
func (s *Server) write(ctx context.Context, conn *websocket.Conn, v *viewer) {
	send := func(kind websocket.MessageType, b []byte) bool {
		ctx, cancel := context.WithTimeout(ctx, writeTimeout)
		defer cancel()
		return conn.Write(ctx, kind, b) == nil
	}
	ok := send(websocket.MessageText, s.hello) && send(websocket.MessageText, s.advertise)
	for ok {
		select {
		case <-ctx.Done():
			return
		case b := <-v.messages:
			ok = send(websocket.MessageBinary, b)
		}
	}
}

// request carries out a viewer's request. It returns "", or the reason why it cannot.
func (s *Server) request(v *viewer, text []byte) (why string) {
	var m struct {
		Op            string `json:"op"`
		Subscriptions []struct {
			ID      uint32 `json:"id"`
			Channel uint32 `json:"channelId"`
		} `json:"subscriptions"`
		IDs []uint32 `json:"subscriptionIds"`
	}
	if json.Unmarshal(text, &m) != nil {
		return "a text message is no JSON object of the protocol"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch m.Op {
	case "subscribe":
		for _, sub := range m.Subscriptions {
			if int64(sub.Channel) >= int64(s.channels) {
				return "a subscription names a channel that was not advertised"
			}
			v.subscriptions[sub.ID] = sub.Channel
		}
		if len(v.subscriptions) > maxSubscriptions {
			return "more than 64 subscriptions"
		}
	case "unsubscribe":
		for _, id := range m.IDs {
			delete(v.subscriptions, id)
		}
	}
	return ""
}
