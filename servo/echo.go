package servo

import (
	"edgert/servo/packet"
	"edgert/servo/table"
)

// echo takes out of what is read what was sent. A line whose transmitter and
// receiver share the wire hears itself; and with Feetech's frame the echo of a
// read is a valid answer with a wrong position. So it is found out once, and
// from then on as many bytes as were sent are expected back, and compared.
type echo struct {
	on   bool
	sent [maxFrame]byte // what has not come back yet is sent[from:to]
	from int
	to   int
}

// expect notes what was sent.
//
//rt:noalloc
func (e *echo) expect(frame []byte) {
	if !e.on {
		return
	}
	if e.from == e.to || e.to+len(frame) > len(e.sent) {
		e.from, e.to = 0, 0
	}
	e.to += copy(e.sent[e.to:], frame)
}

// strip removes the echo from p and returns how many bytes are left at its
// front. wrong says that what came back is not what was sent: somebody talked at
// the same time.
//
//rt:noalloc
func (e *echo) strip(p []byte) (left int, wrong bool) {
	n := 0
	for n < len(p) && e.from < e.to {
		if p[n] != e.sent[e.from] {
			e.reset()
			wrong = true
			break
		}
		e.from++
		n++
	}
	return copy(p, p[n:]), wrong
}

//rt:noalloc
func (e *echo) reset() { e.from, e.to = 0, 0 }

// looksLikeEcho says that a reply is, byte by byte, the request that it answers. So is
// the echo of a read of two bytes on a line whose echo was not found out, because
// the host was away at that moment; and so may be an honest answer, once in a
// while. It counts only when no other comes.
//
//rt:noalloc
func (b *Bus) looksLikeEcho(g *readGroup, r packet.Reply) bool {
	if b.echo.on || b.protocol == table.Dynamixel2 || len(r.Params) != 2 || len(g.request) != mirrorSize {
		return false
	}
	q := g.request
	return q[2] == r.ID && q[4] == r.Err && q[5] == r.Params[0] && q[6] == r.Params[1]
}

// mirrorSize is of a plain request to read, and of an answer of two bytes.
const mirrorSize = 8

// echoTries is how often DetectEcho asks: this host may be away for longer than
// one answer is waited for.
const echoTries = 3

// DetectEcho finds out whether the line hears itself, by a ping to an id that
// is not in use: exactly those bytes come back, or nothing does. A servo of that
// id would answer with something else.
func (b *Bus) DetectEcho(unused ID) bool {
	b.waitFirstQuiet()
	b.echo.on = false
	for range echoTries {
		if b.echo.on || b.lost {
			break
		}
		b.drain()
		b.echo.on = b.echoesPing(unused)
	}
	b.drainNext, b.fenced = drainCount, false
	return b.echo.on
}

// echoesPing sends one ping and says whether exactly that comes back.
func (b *Bus) echoesPing(unused ID) bool {
	b.tx = b.format.Append(b.tx[:0], unused, packet.Ping)
	if !b.send(b.tx) {
		return false
	}
	var got [maxFrame]byte
	have := 0
	end := b.clock.Now().Add(b.wireTime(len(b.tx), 1, 0) + ackTimeout)
	for have < len(b.tx) && b.clock.Now() < end {
		b.wait(end)
		n, err := b.port.Read(got[have:])
		if err != nil {
			b.lost = true
			return false
		}
		have += n
	}
	return have >= len(b.tx) && string(got[:len(b.tx)]) == string(b.tx) // an earlier ping's may be before it
}

// Echoes reports what DetectEcho has found.
func (b *Bus) Echoes() bool { return b.echo.on }
