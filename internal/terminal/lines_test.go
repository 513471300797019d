package terminal

import (
	"errors"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/slogtest"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestLines(t *testing.T) {
	var b strings.Builder
	log := slog.New(NewLines(&b, slog.LevelInfo))
	log.Debug("not shown")
	log.Info("a bus is gone", "port", "/dev/ttyACM0", "joints", 6, "share", 0.5, "ok", false)
	log.Warn("slow", "took", 1234567*time.Nanosecond, "long", 90*time.Second, "why", errors.New("no reply: \"x\""),
		"none", "")
	log.With("robot", "a b").WithGroup("bus").Error("bad\nline", slog.Group("motor", "id", 3),
		slog.Any("byte", uint8(7)))
	stamp := regexp.MustCompile(`(?m)^t=\d\d:\d\d:\d\d\.\d\d\d `)
	if n := len(stamp.FindAllString(b.String(), -1)); n != 3 {
		t.Errorf("%d lines begin with the time of day, want 3:\n%s", n, &b)
	}
	want := `level=INFO msg="a bus is gone" port=/dev/ttyACM0 joints=6 share=0.5 ok=false
level=WARN msg=slow took=1.235ms long=1m30s why="no reply: \"x\"" none=""
level=ERROR msg="bad\nline" robot="a b" bus.motor.id=3 bus.byte=7
`
	if got := stamp.ReplaceAllString(b.String(), ""); got != want {
		t.Errorf("lines\n%swant\n%s", got, want)
	}
}

// The handler fulfils slog's whole contract.
func TestHandlerKeepsTheContract(t *testing.T) {
	var b strings.Builder
	results := func() (all []map[string]any) {
		for line := range strings.Lines(b.String()) {
			all = append(all, parseLine(t, strings.TrimSpace(line)))
		}
		return all
	}
	if err := slogtest.TestHandler(NewLines(&b, slog.LevelInfo), results); err != nil {
		t.Error(err)
	}
}

var word = regexp.MustCompile(`([^ =]+)=("(?:[^"\\]|\\.)*"|[^ ]*)`)

// parseLine turns a line into the form that slogtest compares.
func parseLine(t *testing.T, line string) map[string]any {
	t.Helper()
	top := map[string]any{}
	for _, m := range word.FindAllStringSubmatch(line, -1) {
		path := strings.Split(m[1], ".")
		if m[1] == "t" {
			path = []string{slog.TimeKey}
		}
		at := top
		for _, group := range path[:len(path)-1] {
			if at[group] == nil {
				at[group] = map[string]any{}
			}
			at = at[group].(map[string]any)
		}
		at[path[len(path)-1]] = strings.Trim(m[2], `"`)
	}
	return top
}

func TestPlainLinesMakeNoGarbage(t *testing.T) {
	log := slog.New(NewLines(io.Discard, slog.LevelInfo))
	ctx, n := t.Context(), int64(0)
	got := testing.AllocsPerRun(100, func() {
		n += 1000
		log.LogAttrs(ctx, slog.LevelWarn, "a tick was long", slog.Int64("n", n),
			slog.Duration("took", 12*time.Millisecond), slog.String("state", "STALLED"))
	})
	rttest.Want(t, got, 0, "a line allocates times")
}
