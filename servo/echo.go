package servo

import "edgert/servo/packet"

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

// owe notes what was sent.
//
//rt:noalloc
func (e *echo) owe(frame []byte) {
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
			e.forget()
			wrong = true
			break
		}
		e.from++
		n++
	}
	return copy(p, p[n:]), wrong
}

//rt:noalloc
func (e *echo) forget() { e.from, e.to = 0, 0 }

// DetectEcho finds out whether the line hears itself, by a ping to an id that
// is not in use: exactly those bytes come back, or nothing does. A servo of that
// id would answer with something else.
func (b *Bus) DetectEcho(unused ID) bool {
	b.echo.on = false
	b.drain()
	b.tx = b.format.Append(b.tx[:0], unused, packet.Ping)
	if !b.send(b.tx) {
		return false
	}
	var got [maxFrame]byte
	have := 0
	end := b.clock.Now().Add(b.wireTime(len(b.tx), 1, 0) + ackWait)
	for have < len(b.tx) && b.clock.Now() < end {
		b.wait(end)
		n, err := b.port.Read(got[have:])
		if err != nil {
			b.lost = true
			return false
		}
		have += n
	}
	b.dirty = drains
	b.echo.on = string(got[:have]) == string(b.tx)
	return b.echo.on
}

// Echoes reports what DetectEcho has found.
func (b *Bus) Echoes() bool { return b.echo.on }
