package edge

import (
	"log/slog"
	"net"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"edgert/edge/follow"
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

// What the page shows has the names and shapes that scripts know from ctl status
// and the summary.
func TestLiveKeepsTheKeys(t *testing.T) {
	shapes := func(v any) map[string]reflect.Type {
		m := map[string]reflect.Type{}
		for i, s := 0, reflect.TypeOf(v); i < s.NumField(); i++ {
			key, _, _ := strings.Cut(s.Field(i).Tag.Get("json"), ",")
			m[key] = s.Field(i).Type
		}
		return m
	}
	live, summary, ctl := shapes(Live{}), shapes(Summary{}), shapes(CtlReply{})
	for key, shape := range live {
		if want := summary[key]; want != nil && key != "frames" && shape != want {
			t.Errorf("%s is %v, in the summary %v", key, shape, want)
		}
		if want := ctl[key]; want != nil && shape != want {
			t.Errorf("%s is %v, in the reply to ctl %v", key, shape, want)
		}
	}
	for _, key := range append(slices.DeleteFunc(slices.Clone(contractKeys), func(key string) bool {
		return slices.Contains([]string{"path_mallocs", "gc_cycles", "exit"}, key) // known at the end
	}), "id", "state", "paused", "episode_id", "queue", "joints") {
		if live[key] == nil {
			t.Errorf("key %q is missing", key)
		}
	}
}

// A tick shows what it did to people who look, when there is a page, and the age
// of what the arm does grows while it holds.
func TestTicksLeaveAGlance(t *testing.T) {
	r := newRig(t)
	r.glances = rt.NewLatest(func(g *glance) {
		g.state, g.goal, g.lives = make([]float32, testDOF), make([]float32, testDOF), make([]follow.Life, testDOF)
	})
	r.slope = 0.1
	r.step(1)
	if g, _, fresh := r.glances.Front(); !fresh || g.source != 0 {
		t.Fatalf("before the first action: fresh %v, made from %v; want a glance, and nothing", fresh, g.source)
	}
	r.serve(60, 3, 10)
	g, _, _ := r.glances.Front()
	if !slices.Equal(g.state, r.arm.State) || !slices.Equal(g.goal, r.arm.Goal) || g.at != r.time.Now() && g.at < r.lastGood {
		t.Errorf("glance %v %v, want %v %v", g.state, g.goal, r.arm.State, r.arm.Goal)
	}
	source := g.source
	if age := g.at.Sub(source); age <= 0 || age > time.Second {
		t.Errorf("the action is %v old", age)
	}
	r.paused.Store(true)
	r.bus.silent = 2
	r.step(30)
	if g, _, _ = r.glances.Front(); g.source != source || g.stale != 2 || g.frozen != 2 {
		t.Errorf("paused, joint 1 silent: made from %v (before %v), stale %b, frozen %b; want the same, 10 and 10", g.source, source, g.stale, g.frozen)
	}
	tick := rt.Tick{Deadline: 1, Woke: 2}
	if n := testing.AllocsPerRun(100, func() { tick.Woke++; r.show(tick) }); n != 0 {
		t.Errorf("show allocates %v times", n)
	}
}
