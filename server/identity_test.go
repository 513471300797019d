package server

import (
	"strings"
	"testing"

	"edgert/wire"
)

// A close without a session id, and an open without an instance, count from the link
// that opened the session; behind a router nobody can tell, so the id is required.
func TestOnlyItsOpenerClosesWithoutAnID(t *testing.T) {
	b := serveQueries(t)
	b.open(fakeOpen("arm"))
	mine := b.session
	closeFrom := func(s wire.Session, id string) wire.ResetAck {
		t.Helper()
		b.session = s
		defer func() { b.session = mine }()
		replies := b.query(wire.SessionKey(b.server.Prefix()), wire.AppendSessionClose(nil, &wire.SessionClose{ClientUUID: "arm", SessionID: id}))
		var ack wire.ResetAck
		if err := wire.ParseResetAck(&ack, replies[0].Payload); err != nil {
			t.Fatal(err)
		}
		return ack
	}
	for name, other := range map[string]wire.Session{"another link": b.network.Session(), "a router": b.network.Routed()} {
		if ack := closeFrom(other, ""); ack.OK || !strings.Contains(ack.Error, "session_id") || b.server.sessions.find("arm") == nil {
			t.Errorf("%s closes without an id: %+v", name, ack)
		}
		b.session = other
		if ack := b.open(fakeOpen("arm")); ack.Accepted || !ack.Temporary() {
			t.Errorf("%s opens a living name without an instance: %+v", name, ack)
		}
		b.session = mine
	}
	if ack := b.open(fakeOpen("arm")); !ack.Accepted {
		t.Errorf("the opener opens again: %s", ack.Error)
	}
	if ack := closeFrom(mine, ""); !ack.OK || b.server.sessions.find("arm") != nil {
		t.Errorf("the opener closes: %+v", ack)
	}
	session := b.open(fakeOpen("arm"))
	if ack := closeFrom(b.network.Routed(), session.SessionID); !ack.OK || b.server.sessions.find("arm") != nil {
		t.Errorf("a close with the id through a router: %+v", ack)
	}
}
