package servo

import (
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/table"
)

// echoing is a line with an echo, from the request with number from on.
type echoing struct {
	*line
	from, written int
	lateBy        time.Duration // delay of the first echo
}

func (e *echoing) Write(p []byte) (int, error) {
	if e.written++; e.written >= e.from {
		at := max(e.free, e.clock.Now())
		if e.written == e.from {
			at = at.Add(e.lateBy)
		}
		if e.next == len(e.bytes) {
			e.bytes = e.bytes[:0]
			e.at = e.at[:0]
			e.next = 0
		}
		for _, b := range p {
			at = at.Add(e.byteTime)
			e.bytes, e.at = append(e.bytes, b), append(e.at, at)
		}
	}
	return e.line.Write(p)
}

// The host may be away when the first echo comes.
func TestALateEchoIsFound(t *testing.T) {
	for _, tt := range []struct {
		name   string
		port   func(*line) Port
		echoes bool
	}{
		{"an echo", func(l *line) Port { return &echoing{line: l, from: 1} }, true},
		{"the first one late", func(l *line) Port {
			return &echoing{line: l, from: 1, lateBy: 30 * time.Millisecond}
		}, true},
		{"none", func(l *line) Port { return l }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clock := rttest.NewClock(0)
			b := NewBus(tt.port(newLine(clock, 1)), 1_000_000, table.Feetech, clock)
			if got := b.DetectEcho(100); got != tt.echoes || b.echo.on != tt.echoes {
				t.Errorf("DetectEcho = %v, want %v", got, tt.echoes)
			}
			if v, _, err := b.ReadRegister(1, so101().Motors[0].Model.Row(table.PresentPosition)); err != nil ||
				v != 2001 {
				t.Errorf("the position reads %d, %v; want 2001", v, err)
			}
		})
	}
}

// The echo of a read of two bytes is a complete answer with a wrong value. Where DetectEcho has
// missed the echo, the answer after it is used.
func TestAnEchoIsNotTheAnswer(t *testing.T) {
	clock := rttest.NewClock(0)
	e := &echoing{line: newLine(clock, 1), from: 1 + echoTries}
	b := NewBus(e, 1_000_000, table.Feetech, clock)
	if b.DetectEcho(100) {
		t.Fatal("it finds an echo where the line has none")
	}
	r := so101().Motors[0].Model.Row(table.PresentPosition)
	for range 5 {
		if v, _, err := b.ReadRegister(1, r); err != nil || v != 2001 {
			t.Errorf("the position reads %d, %v; want 2001", v, err)
		}
	}
	if !b.echo.on {
		t.Error("the echo of the line was not found")
	}
}

// A true answer may have the same bytes as its request; then it comes alone.
func TestAnAnswerLikeItsEcho(t *testing.T) {
	clock := rttest.NewClock(0)
	l := newLine(clock, 1)
	r := so101().Motors[0].Model.Row(table.PresentPosition)
	l.servos[1].err = 2
	l.servos[1].put(r.Addr, r.Addr|2<<8)
	b := NewBus(l, 1_000_000, table.Feetech, clock)
	b.DetectEcho(100)
	if v, fault, err := b.ReadRegister(1, r); err != nil || v != r.Addr|2<<8 || fault == 0 {
		t.Errorf("the position reads %d, fault %v, %v; want %d and a fault", v, fault, err, r.Addr|2<<8)
	}
	if b.echo.on {
		t.Error("one answer passes for an echo")
	}
}
