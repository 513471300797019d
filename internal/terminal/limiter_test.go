package terminal

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func newLog() (*slog.Logger, *Limiter, *rttest.Clock, *bytes.Buffer) {
	out, clock := new(bytes.Buffer), rttest.NewClock(1)
	h := NewLimiter(slog.NewTextHandler(out, nil), clock)
	return slog.New(h), h, clock, out
}

// take returns the lines since the last call.
func take(out *bytes.Buffer) []string {
	text := strings.TrimSuffix(out.String(), "\n")
	out.Reset()
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// Of many lines of a kind the first are written at once, and then one per interval with the correct
// number of omitted lines.
func TestLikeLinesAreLeftOut(t *testing.T) {
	for _, tt := range []struct {
		level slog.Level
		of    budget
	}{{slog.LevelInfo, notes}, {slog.LevelWarn, warnings}, {slog.LevelError, warnings}} {
		log, h, clock, out := newLog()
		say := func(n int) {
			for range n {
				log.Log(t.Context(), tt.level, "refused", "client", "arm")
			}
		}
		say(tt.of.burst + 100)
		if lines := take(out); len(lines) != tt.of.burst || strings.Contains(lines[len(lines)-1], "left_out") ||
			h.LeftOut() != 100 {
			t.Errorf("%v: %d lines at once, %d left out, want %d and 100", tt.level, len(lines), h.LeftOut(),
				tt.of.burst)
		}
		clock.Advance(tt.of.every)
		say(10)
		if lines := take(out); len(lines) != 1 || !strings.Contains(lines[0], "client=arm left_out_before=100") ||
			h.LeftOut() != 109 {
			t.Errorf("%v: after %v: %q, %d left out, want one line that says 100, and 109", tt.level, tt.of.every,
				lines, h.LeftOut())
		}
		clock.Advance(time.Duration(tt.of.burst) * tt.of.every)
		say(tt.of.burst)
		if lines := take(out); len(lines) != tt.of.burst || !strings.Contains(lines[0], "left_out_before=9") ||
			strings.Contains(lines[1], "left_out") {
			t.Errorf("%v: after a quiet time %d lines, want %d", tt.level, len(lines), tt.of.burst)
		}
	}
}

// A flood of one kind does not hide lines with another message or reason, even if loggers with attributes write the
// flood.
func TestAFloodHidesNothingElse(t *testing.T) {
	log, _, _, out := newLog()
	for range 1000 {
		log.Warn("session refused", "client", "bot", "reason", "full", "why", "server full")
		log.With("part", "x").WithGroup("g").Warn("session refused", "reason", "full")
	}
	rttest.Want(t, len(take(out)), warnings.burst, "lines of the flood")
	log.Warn("session refused", "client", "arm", "reason", "client", "why", "not on the list")
	log.Warn("the device failed")
	log.Info("session open")
	rttest.Want(t, len(take(out)), 3, "beside it there")
}

// A client that can choose the words of a message gets one budget for all of them, and the memory
// is bounded.
func TestKindsAreBounded(t *testing.T) {
	log, h, _, out := newLog()
	const said = 10_000
	for i := range said {
		log.Warn(fmt.Sprint("message ", i))
	}
	if n := len(take(out)); n != kindsMax+warnings.burst || h.LeftOut() != said-uint64(n) ||
		len(h.shared.kinds) != kindsMax+1 {
		t.Errorf("%d lines, %d left out, %d kinds; want %d, the rest, %d", n, h.LeftOut(), len(h.shared.kinds),
			kindsMax+warnings.burst, kindsMax+1)
	}
}
