package server

import (
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// A first process, on host left-pi, has opened a session under a name. Whether another process then
// gets the name depends on what has happened to the first process. The epochs of two hosts are
// independent.
func TestANameHasOneOwner(t *testing.T) {
	gone := func(b *bench, token wire.Declaration) {
		rttest.Do(t, token.Undeclare())
	}
	for _, tt := range []struct {
		name    string
		became  func(b *bench, token wire.Declaration)
		open    wire.SessionOpen
		refused bool
	}{
		{"it is there", nil, process("arm", "two", "right-pi", 1), true},
		{"it is there, with a token but silent for an hour", func(b *bench, _ wire.Declaration) {
			b.clock.Advance(time.Hour)
		}, process("arm", "two", "right-pi", 9), true},
		{"its token is gone", gone, process("arm", "two", "right-pi", 1), false},
		{"its token went, and it still sends", func(b *bench, token wire.Declaration) {
			gone(b, token)
			b.robot("arm").send(obsHeader(4, 1), fakeObs(b.t))
		}, process("arm", "two", "right-pi", 1), true},
		{"its token went, and the last it sent is long ago", func(b *bench, token wire.Declaration) {
			gone(b, token)
			b.robot("arm").send(obsHeader(4, 1), fakeObs(b.t))
			b.clock.Advance(ownerTimeout + time.Millisecond)
		}, process("arm", "two", "right-pi", 1), false},
		{"another token of its name goes, not its own", func(b *bench, _ wire.Declaration) {
			gone(b, b.show("arm", 3))
		}, process("arm", "two", "right-pi", 1), true},
		{"it opens again itself", nil, process("arm", "one", "left-pi", 5), false},
		{"a client of LeRobot's draft opens", nil, fakeOpen("arm"), false},
		{"another robot opens", nil, process("leg", "two", "right-pi", 1), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := serveQueries(t, config())
			first := b.open(process("arm", "one", "left-pi", 4))
			if !first.Accepted || first.Nonce <= 0 {
				t.Fatalf("first open = %+v, want it accepted with a nonce", first)
			}
			token := b.show("arm", 4)
			if tt.became != nil {
				tt.became(b, token)
			}
			ack := b.open(tt.open)
			if ack.Accepted == tt.refused {
				t.Fatalf("second open: accepted %v (%s), want %v", ack.Accepted, ack.Error, !tt.refused)
			}
			if s := b.server.sessions.find("arm"); tt.refused && s.id != first.SessionID {
				t.Error("the owner lost its session")
			}
			if tt.refused && (!ack.Temporary() || ack.HeldBy != "left-pi" || ack.RetryAfterMs != 500 ||
				!strings.Contains(ack.Error, "left-pi") || ack.Nonce != 0) {
				t.Errorf("refusal %+v, want one that passes and names left-pi", ack)
			}
			if knows := tt.open.Instance != ""; ack.Accepted && (ack.Nonce != 0) != knows || ack.Accepted &&
				ack.Nonce == first.Nonce {
				t.Errorf("nonce %d after %d, for a robot that knows it: %v", ack.Nonce, first.Nonce, knows)
			}
		})
	}
}

// A process that opened a session and whose token has not arrived counts as running for a limited
// time. It may have died before it showed the token.
func TestAnOwnerWithoutATokenIsBelievedForAWhile(t *testing.T) {
	b := serveQueries(t, config())
	b.open(process("arm", "one", "", 1))
	b.clock.Advance(ownerTimeout)
	if ack := b.open(process("arm", "two", "right-pi", 1)); ack.Accepted || ack.HeldBy != wire.HostUnknown {
		t.Errorf("after %v: %+v, want a refusal that knows no host", ownerTimeout, ack)
	}
	b.clock.Advance(time.Millisecond)
	b.admits(b.open(process("arm", "two", "right-pi", 1)), "another process a little later")
}

// Each chunk of a session repeats the nonce that the ack of the session's open had. For a robot that got no nonce,
// chunks have none.
func TestChunksRepeatTheNonce(t *testing.T) {
	b := serve(t, config())
	ack := b.open(process("arm", "one", "left-pi", 1))
	b.open(fakeOpen("stock"))
	for uuid, want := range map[string]int64{"arm": ack.Nonce, "stock": 0} {
		r := b.robot(uuid)
		h := obsHeader(1, 1)
		h.ClientMonoNs = -77
		r.send(h, fakeObs(t))
		if got := r.wantChunk(1); got.chunk.Nonce != want || got.header.ClientMonoNs != -77 {
			t.Errorf("%s: nonce %d and stamp %d, want %d and -77", uuid, got.chunk.Nonce, got.header.ClientMonoNs, want)
		}
	}
}
