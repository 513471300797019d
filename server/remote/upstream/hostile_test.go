package upstream

import (
	"context"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/remote"
	"github.com/edge-rt/edge-rt/wire/ndarray"
)

// message is a message that a scripted server sends.
type message struct {
	kind websocket.MessageType
	data string
}

// scripted serves openpi's protocol: it greets with metadata, then answers each observation with the
// next message, and closes after the last. Without metadata it ends the connection before the handshake.
func scripted(t *testing.T, metadata message, answers ...message) (url string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if metadata.data == "" {
			panic(http.ErrAbortHandler)
		}
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer conn.CloseNow()
		conn.SetReadLimit(messageMost)
		send := func(m message) error { return conn.Write(r.Context(), m.kind, []byte(m.data)) }
		err = send(metadata)
		for _, answer := range answers {
			if _, _, failed := conn.Read(r.Context()); err != nil || failed != nil || send(answer) != nil {
				return
			}
		}
		conn.Close(websocket.StatusInternalError, "\x1b[2Jover")
	}))
	t.Cleanup(s.Close)
	return strings.Replace(s.URL, "http://", "ws://"+token+"@", 1)
}

const packed = websocket.MessageBinary

// TestHostileServers opens servers that are not openpi's, or that are hostile. No error shows the user in the server's
// address, which may be a key.
func TestHostileServers(t *testing.T) {
	empty := message{packed, "\x80"}
	for _, tt := range []struct {
		name     string
		metadata message
		answers  []message
		kind     error
		want     string
	}{
		{"no handshake", message{}, nil, policy.ErrAway, "EOF"},
		{"metadata of text", message{websocket.MessageText, "boom"}, nil, ErrFit, "boom"},
		{"metadata is a list", message{packed, "\x90"}, nil, policy.ErrAway, "a list of 0, want a map"},
		{"metadata is a pickle", message{packed, "\x80\x04\x95"}, nil, policy.ErrAway, "left after"},
		{"endless metadata", message{packed, strings.Repeat("\xC0", messageMost+1)}, nil, policy.ErrAway, "read limit"},
		{"ends", empty, nil, policy.ErrAway, `code 1011 \x1b[2Jover`},
		{"no map", empty, []message{{packed, "\x01"}}, ErrFit, "a number, want a map"},
		{"no actions", empty, []message{{packed, "\x81\xA1a\x01"}}, ErrFit, "it has the keys a"},
		{"actions of objects", empty, []message{{packed, "\x81\xA7actions" + "\x84\xC4\x0b__ndarray__\xC3\xC4\x04data" +
			"\xC4\x00\xC4\x05dtype\xA2|O\xC4\x05shape\x90"}}, ErrFit, `dtype is "|O"`},
		{"a list of four billion", empty, []message{{packed, "\xDD\xFF\xFF\xFF\xFF"}}, ErrFit, "items"},
		{"nothing", empty, []message{{packed, ""}}, ErrFit, "a blank observation"},
		{"a traceback", empty, []message{{websocket.MessageText, "Traceback\n  x\nKeyError: 'state'\n"}}, ErrFit,
			"KeyError: 'state'"},
		{"a long text", empty, []message{{websocket.MessageText, strings.Repeat("\x1b", 9999)}}, ErrFit, `\x1b…`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := configured(t, openPI, "")
			c.URL = scripted(t, tt.metadata, tt.answers...)
			_, err := Open(context.Background(), c)
			if !errors.Is(err, tt.kind) || !rttest.Says(err, tt.want) || rttest.Says(err, "\x1b") ||
				rttest.Says(err, token) {
				t.Errorf("Open = %v, want %v with %s", err, tt.kind, tt.want)
			}
		})
	}
}

// The names in a server's modality configuration cannot fill the log or control a terminal.
func TestHostileModalities(t *testing.T) {
	config := ndarray.Map{"modality_keys": []any{strings.Repeat("\x1b", 1<<20)}, "delta_indices": []any{int64(0)}}
	spec := &Spec{Nested: true, Actions: []Part{{"action.arm", 1}}}
	for _, name := range []string{"video", "action"} {
		err := compareModalities(ndarray.Map{name: config}, spec, 1)
		if err == nil || len(err.Error()) > 2*textMost || rttest.Says(err, "\x1b") {
			t.Errorf("%s: %.999v", name, err)
		}
	}
}

// TestUnaskedMessage has a server send two answers to one observation. The client must not take the
// second answer for the answer to the next observation.
func TestUnaskedMessage(t *testing.T) {
	c := configured(t, openPI, serveShared(t, openPI))
	l := rttest.Must(dialOpenPI(context.Background(), c.URL, ""))(t)
	defer l.Close()
	row := &remote.Row{State: make([]float32, 8), Images: row(&c, "").Images}
	b := newMessages(c.Kind, &c.Spec, &c.Meta).observation(row, "")
	o := l.(*openpi)
	rttest.Do(t, o.conn.Write(t.Context(), packed, b)) // a message without a request
	m := <-o.incoming
	o.incoming <- m
	rttest.Fails(t, rttest.Err(l.ask(t.Context(), b)), "without a request")
}

// Property: whatever bytes follow a server's handshake, the client returns an error or gets metadata, within a bounded
// time.
func FuzzWebSocket(f *testing.F) {
	for _, frames := range []string{"\x82\x01\x80", "\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff", "\x02\x01\x80\x80\x00",
		"\x89\x00\x82\x01\x80", "\x88\x02\x03\xf3", "\xc2\x01\x80", "\x82\x81\x00\x00\x00\x00\x80"} {
		f.Add([]byte(frames))
	}
	var frames atomic.Pointer[[]byte]
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
			"Sec-WebSocket-Accept: %s\r\n\r\n%s", base64.StdEncoding.EncodeToString(key[:]), *frames.Load())
	}))
	f.Cleanup(s.Close)
	f.Fuzz(func(t *testing.T, in []byte) {
		frames.Store(&in)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		l, err := dialOpenPI(ctx, "ws"+strings.TrimPrefix(s.URL, "http"), "")
		if ctx.Err() != nil {
			t.Fatalf("%x: no end of the dialling", in)
		}
		if err == nil {
			<-l.Ended()
			l.Close()
		}
	})
}
