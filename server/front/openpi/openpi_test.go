package openpi

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/front"
)

// A message whose end does not come ends the connection.
func TestAMessageThatDrips(t *testing.T) {
	ended := make(chan error, 2)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer conn.CloseNow()
		conn.SetReadLimit(messageMost)
		budget := front.NewBudget(64<<20, 1)
		c := &client{conn: conn, front: &Front{patience: 10 * time.Second}, held: budget.Client()}
		for range 2 {
			_, message, err := conn.Reader(r.Context())
			if err == nil {
				err = c.receive(message)
			}
			ended <- err
			c.front.patience = 20 * time.Millisecond
		}
		if c.drop(); budget.Used() != 0 || budget.Most() < keptMost {
			t.Errorf("%d bytes are held after %d", budget.Used(), budget.Most())
		}
	}))
	t.Cleanup(s.Close)
	conn, _, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(s.URL, "http"), nil)
	rttest.Do(t, err)
	defer conn.CloseNow()
	rttest.Do(t, conn.Write(t.Context(), websocket.MessageBinary, make([]byte, keptMost+1)))
	rttest.Do(t, <-ended)
	begun := rttest.Must(conn.Writer(t.Context(), websocket.MessageBinary))(t)
	rttest.Must(begun.Write(bytes.Repeat([]byte{1}, 1<<16)))(t)
	if err := <-ended; !errors.Is(err, errLate) {
		t.Errorf("a message without an end: %v", err)
	}
}

// A client that never asks keeps no new one out: it gives its place up. One that has got a chunk keeps its place.
func TestClientsThatNeverAsk(t *testing.T) {
	f := &Front{clients: make(chan struct{}, 1)}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !f.enter() {
			http.Error(w, "no place", http.StatusServiceUnavailable)
			return
		}
		defer func() { <-f.clients }()
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		c := &client{conn: conn, began: time.Now()}
		f.connected(c)
		_, asked, err := conn.Read(r.Context())
		if err == nil {
			f.answered(c)
			conn.Write(r.Context(), websocket.MessageBinary, asked)
			conn.Read(r.Context())
		}
	}))
	t.Cleanup(s.Close)
	dial := func() (*websocket.Conn, error) {
		conn, _, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(s.URL, "http"), nil)
		return conn, err
	}
	silent := rttest.Must(dial())(t)
	defer silent.CloseNow()
	rttest.Eventually(t, "the first client", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.silent) == 1
	})
	works := rttest.Must(dial())(t)
	defer works.CloseNow()
	if _, _, err := silent.Read(t.Context()); err == nil {
		t.Error("the silent client is still connected")
	}
	rttest.Do(t, works.Write(t.Context(), websocket.MessageBinary, []byte("1")))
	if _, _, err := works.Read(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := dial(); err == nil {
		t.Error("a client has got the place of one that works")
	}
}
