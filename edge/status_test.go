package edge

import (
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"edgert/rt"
)

// manager stands for systemd: it returns what was said since the last call.
func manager(t *testing.T, watchdog string) (said func() []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", watchdog)
	t.Setenv("WATCHDOG_PID", "")
	buf := make([]byte, 4096)
	return func() (lines []string) {
		for {
			l.SetReadDeadline(time.Now().Add(time.Millisecond)) // what was sent is there already
			n, err := l.Read(buf)
			if err != nil {
				return lines
			}
			lines = append(lines, string(buf[:n]))
		}
	}
}

func TestHeraldSaysWhatIsTrueWhenItBecomesTrue(t *testing.T) {
	said := manager(t, "3000000") // fed at a third: every second
	h := openHerald(slog.New(slog.DiscardHandler))
	defer h.socket.Close()
	const ms = rt.Instant(time.Millisecond)
	steps := []struct {
		name    string
		at      rt.Instant
		ticks   uint64
		state   State
		leaving bool
		want    string
	}{
		{"open, no tick yet: not ready", 5000 * ms, 0, Connecting, false, "STATUS=CONNECTING"},
		{"still no tick", 5020 * ms, 0, Connecting, false, ""},
		{"the first tick has ended", 5040 * ms, 1, Connecting, false, "READY=1 WATCHDOG=1"},
		{"ready is said once, the watchdog is not hungry", 5060 * ms, 2, Connecting, false, ""},
		{"another state", 5080 * ms, 3, Streaming, false, "STATUS=STREAMING"},
		{"a moment before the watchdog is due", 6039 * ms, 60, Streaming, false, ""},
		{"the watchdog is due", 6040 * ms, 61, Streaming, false, "WATCHDOG=1"},
		{"the tick hangs", 7040 * ms, 61, Streaming, false, ""},
		{"the tick hangs for long: the manager acts", 60_000 * ms, 61, Streaming, false, ""},
		{"it goes on, late", 60_020 * ms, 62, Stalled, false, "STATUS=STALLED WATCHDOG=1"},
		{"leaving: parking still ticks", 61_020 * ms, 130, Stalled, true, "STOPPING=1 WATCHDOG=1"},
		{"leaving is said once", 61_040 * ms, 131, Stalled, true, ""},
	}
	for _, s := range steps {
		h.look(s.at, s.ticks, s.state, s.leaving)
		if got := strings.Join(said(), " "); got != s.want {
			t.Errorf("%s: look(%d ms, %d ticks, %v, leaving %v) said %q, want %q", s.name, s.at/ms, s.ticks, s.state, s.leaving, got, s.want)
		}
	}
}

// What the manager has no room for is not lost.
func TestHeraldRepeatsWhatWasNotHeard(t *testing.T) {
	said := manager(t, "")
	h := openHerald(slog.New(slog.DiscardHandler))
	defer h.socket.Close()
	for h.socket.Status("noise") {
	}
	h.look(1, 1, Streaming, true)
	said()
	h.look(2, 2, Streaming, true)
	if got, want := said(), []string{"READY=1", "STATUS=STREAMING", "STOPPING=1"}; !slices.Equal(got, want) {
		t.Errorf("after a full queue it said %q, want %q", got, want)
	}
}

func TestHeraldNoAlloc(t *testing.T) {
	said := manager(t, "3")
	h := openHerald(slog.New(slog.DiscardHandler))
	defer h.socket.Close()
	n, ticks := rt.Instant(0), uint64(0)
	allocs := testing.AllocsPerRun(100, func() {
		n, ticks = n.Add(time.Second), ticks+1
		h.look(n, ticks, State(ticks%uint64(numStates)), false)
	})
	if allocs != 0 {
		t.Errorf("%v allocations per look, want 0", allocs)
	}
	if got := len(said()); got < 8 {
		t.Errorf("%d messages in 100 looks: the test looked at nothing", got)
	}
}
