package servo

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/table"
)

// echoing is a line that echoes the requests with the numbers >= from.
type echoing struct {
	*line
	from, written int
	lateBy        time.Duration // delay of the first echo
	glitch        []byte        // bytes before each echo, while the adapter changes its direction
}

func (e *echoing) Write(p []byte) (int, error) {
	if e.written++; e.written >= e.from {
		at := max(e.free, e.Now())
		if e.written == e.from {
			at = at.Add(e.lateBy)
		}
		if e.next == len(e.bytes) {
			e.bytes = e.bytes[:0]
			e.at = e.at[:0]
			e.next = 0
		}
		for _, b := range append(slices.Clone(e.glitch), p...) {
			at = at.Add(e.byteTime)
			e.bytes, e.at = append(e.bytes, b), append(e.at, at)
		}
	}
	return e.line.Write(p)
}

// DetectEcho still finds the echo when the host is suspended while the first echo comes.
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

// The echo of a request to read two bytes has the form of an answer, with a wrong value. When
// DetectEcho has missed the echo, the true answer after it is used.
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

// When the answer is lost, the echo of its request is not taken for the answer, whether DetectEcho has found the echo
// or not, and whether bytes come before the echo or not.
func TestAnEchoOfALostAnswer(t *testing.T) {
	r := so101().Motors[0].Model.Row(table.PresentPosition)
	for _, glitch := range [][]byte{nil, {0}, {0xFF}, {0xFF, 0xFF}, {0xFF, 0xFF, 1}} {
		for _, from := range []int{1, 1 + echoTries} {
			for _, lost := range []int{1, 2, maxAttempts} {
				clock := rttest.NewClock(0)
				e := &echoing{line: newLine(clock, 1), from: from}
				b := NewBus(e, 1_000_000, table.Feetech, clock)
				b.DetectEcho(100)
				rttest.Do(t, b.Ping(1))
				_, _, _ = b.ReadRegister(1, r)
				e.glitch, e.servos[1].muteTimes = glitch, lost
				v, _, err := b.ReadRegister(1, r)
				if err == nil && v != 2001 || err != nil && lost < maxAttempts ||
					err != nil && !errors.Is(err, ErrNoReply) && !errors.Is(err, ErrGarbled) {
					t.Errorf("% X before the echo, which begins at request %d, %d answers lost: %d, %v; want 2001 or "+
						"no answer", glitch, from, lost, v, err)
				}
			}
		}
	}
}
