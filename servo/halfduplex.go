package servo

import (
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

// Port is a serial line. Only Wait blocks.
type Port interface {
	// Write sends all of p or fails.
	Write(p []byte) (int, error)
	// Read returns the bytes that have arrived, n = 0 when the buffer is empty. It fails with
	// ErrPortLost when the device has gone.
	Read(p []byte) (int, error)
	// Wait returns when bytes have arrived or the timeout has passed; it may return earlier without
	// a reason.
	Wait(timeout time.Duration) error
	Close() error
}

const (
	replyGap = 50 * time.Microsecond // pause of a servo before its answer; 50 to 100 us were measured with delay 0
	maxDrain = 4096                  // bytes that one drain discards; more bytes are noise of the line
	maxFrame = 512                   // bytes of one request
)

// halfDuplex is a port whose wire only one side uses at a time. It computes how long bytes are on
// the wire.
//
// Owner: the thread that owns the bus.
type halfDuplex struct {
	port   Port
	clock  rt.Clock
	byteNs float64 // ten bit times
	echo   echo
	sent   rt.Instant // time when the last request was sent
	free   rt.Instant // time when the line has carried all sent bytes
	waited rt.Wait    // time spent waiting for replies since the caller cleared this
	pause  rt.Pause   // pause that waits instead of the bus; nil: the bus waits by itself
	lost   bool       // the port has failed

	corrupt atomic.Uint64 // sequences of bytes that were no frame; any thread may read it
}

//rt:noalloc
func (l *halfDuplex) lineTime(bytes int) time.Duration {
	return time.Duration(float64(bytes) * l.byteNs)
}

//rt:noalloc
func (l *halfDuplex) send(frame []byte) bool {
	if l.lost {
		return false
	}
	if _, err := l.port.Write(frame); err != nil {
		l.lost = true
		return false
	}
	l.sent = l.clock.Now()
	l.free = max(l.free, l.sent).Add(l.lineTime(len(frame)))
	l.echo.expect(frame)
	return true
}

//rt:noalloc
func (l *halfDuplex) read(p []byte) (int, error) {
	n, err := l.port.Read(p)
	if n > 0 && l.echo.on {
		left, wrong := l.echo.strip(p[:n])
		if wrong {
			l.corrupt.Add(1)
		}
		return left, err
	}
	return n, err
}

//rt:noalloc
func (l *halfDuplex) drain(buf []byte) {
	for total := 0; total < maxDrain; {
		n, err := l.port.Read(buf)
		if n == 0 || err != nil {
			break
		}
		total += n
	}
	l.echo.reset()
}

// sleepUntil and wait add to waited: the requested time as Meant, and the time with the scheduler's
// delays as Took. When a Pause waits instead, they add nothing.
//
//rt:noalloc
func (l *halfDuplex) sleepUntil(t rt.Instant) {
	start := l.clock.Now()
	if d := t.Sub(start); d > 0 && !l.paused(t, nil) {
		l.clock.SleepUntil(t)
		l.waited.Add(rt.Wait{Meant: d, Took: l.clock.Now().Sub(start)})
	}
}

//rt:noalloc
func (l *halfDuplex) wait(until rt.Instant) {
	if l.paused(until, l.port) {
		return
	}
	start := l.clock.Now()
	d := max(0, until.Sub(start))
	if err := l.port.Wait(d); err != nil {
		l.lost = true
	}
	took := l.clock.Now().Sub(start)
	l.waited.Add(rt.Wait{Meant: min(d, took), Took: took})
}

//rt:noalloc
func (l *halfDuplex) paused(until rt.Instant, device rt.Waiter) bool {
	return l.pause != nil && l.pause(until, device)
}

// echo removes the sent bytes from the received ones, on a line whose transmitter and receiver
// share the wire. In Feetech's format the echo of a read is a valid reply with a wrong position.
type echo struct {
	on   bool
	sent [maxFrame]byte // sent[from:to] has not come back yet
	from int
	to   int
}

//rt:noalloc
func (e *echo) expect(frame []byte) {
	if !e.on {
		return
	}
	if e.from == e.to || e.to+len(frame) > len(e.sent) {
		e.reset()
	}
	e.to += copy(e.sent[e.to:], frame)
}

// strip removes the echo from p. The result left is the number of bytes that remain, at the front of p. The result
// wrong is true when the bytes differ from the sent ones, as when two senders use the line at once.
//
//rt:noalloc
func (e *echo) strip(p []byte) (left int, wrong bool) {
	n := 0
	for ; n < len(p) && e.from < e.to; n++ {
		if p[n] != e.sent[e.from] {
			e.reset()
			wrong = true
			break
		}
		e.from++
	}
	return copy(p, p[n:]), wrong
}

//rt:noalloc
func (e *echo) reset() { e.from, e.to = 0, 0 }
