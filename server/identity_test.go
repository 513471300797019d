package server

import (
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/wire"
)

// A close without a session id, and an open without an instance, are accepted only from the link
// that opened the session. When a router passes on the query, the server does not see the client's
// link, and therefore requires the id or instance.
func TestOnlyItsOpenerClosesWithoutAnID(t *testing.T) {
	b := serveQueries(t, config())
	b.open(fakeOpen("arm"))
	mine := b.session
	closeFrom := func(s wire.Session, id string) wire.ResetAck {
		t.Helper()
		b.session = s
		defer func() { b.session = mine }()
		return b.close("arm", id)
	}
	for name, other := range map[string]wire.Session{"another link": b.network.Session(),
		"a router": b.network.Routed()} {
		if ack := closeFrom(other, ""); ack.OK || !strings.Contains(ack.Error, "session_id") ||
			b.server.sessions.find("arm") == nil {
			t.Errorf("%s closes without an id: %+v", name, ack)
		}
		b.session = other
		if ack := b.open(fakeOpen("arm")); ack.Accepted || !ack.Temporary() {
			t.Errorf("%s opens a living name without an instance: %+v", name, ack)
		}
		b.session = mine
	}
	b.admits(b.open(fakeOpen("arm")), "the opener's second open")
	if ack := closeFrom(mine, ""); !ack.OK || b.server.sessions.find("arm") != nil {
		t.Errorf("the opener closes: %+v", ack)
	}
	session := b.open(fakeOpen("arm"))
	if ack := closeFrom(b.network.Routed(), session.SessionID); !ack.OK || b.server.sessions.find("arm") != nil {
		t.Errorf("a close with the id through a router: %+v", ack)
	}
}

// The body of an open at a robot's own session key must name that robot, because a router only checks that the robot
// may use the key, and does not parse the body.
func TestARobotsKeyIsForItsOwnSession(t *testing.T) {
	b := serveQueries(t, config())
	b.session = b.network.Routed()
	open := func(key string) wire.SessionAck {
		t.Helper()
		return b.openAt(fakePrefix+key, fakeOpen("arm"))
	}
	for _, key := range []string{"/other/session", "/*/session"} {
		if ack := open(key); ack.Accepted || ack.Temporary() || !strings.Contains(ack.Error, "body names") ||
			b.server.sessions.find("arm") != nil {
			t.Errorf("open for arm at %s = %+v, want a final refusal", key, ack)
		}
	}
	mine := open("/arm/session")
	if !mine.Accepted {
		t.Fatalf("open at its own key: %s", mine.Error)
	}
	c := wire.Append(nil, &wire.SessionClose{ClientUUID: "arm", SessionID: mine.SessionID})
	for _, tt := range []struct {
		key   string
		stays bool
	}{{"/other/session", true}, {"/arm/session", false}} {
		ack := b.ask(fakePrefix+tt.key, c)
		if open := b.server.sessions.find("arm") != nil; ack.OK == tt.stays || open != tt.stays {
			t.Errorf("close at %s = %+v; the session is open: %v, want %v", tt.key, ack, open, tt.stays)
		}
	}
}
