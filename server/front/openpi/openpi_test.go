package openpi

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/front"
)

// A message that does not end within the time limit ends the connection.
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
	rttest.FailsAs(t, <-ended, errLate) // the message has no end
}
