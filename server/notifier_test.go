package server

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/batch"
	"github.com/edge-rt/edge-rt/server/queue"
	"github.com/edge-rt/edge-rt/systemd/notify"
)

// manager receives the messages for systemd. The function said returns the messages that have come since its last
// call.
func manager(t *testing.T, watchdog string) (said func() []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	l := rttest.Must(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"}))(t)
	t.Cleanup(func() { l.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", watchdog)
	t.Setenv("WATCHDOG_PID", "")
	return func() []string { return rttest.Datagrams(t, l) }
}

// idle returns a server with only those parts of worker and housekeeping that the notifier reads.
func idle() *Server {
	clock, st := rt.KernelClock(), newStats()
	w := &worker{
		clock:  clock,
		work:   queue.NewSignal(),
		engine: &engine{stats: st, tally: newTally(), sizes: batch.NewSizes([]int{1})},
	}
	w.alive.Store(true)
	return &Server{
		sessions:    newRegistry(0),
		prefix:      "@lerobot/m/r/s",
		clock:       clock,
		log:         slog.New(slog.DiscardHandler),
		worker:      w,
		housekeeper: &housekeeper{clock: clock},
	}
}

// The test does the worker's work step by step. The notifier feeds the watchdog only if the worker makes progress
// between two updates.
func TestNotifierSendsWhatIsNew(t *testing.T) {
	said := manager(t, "30000000") // a period of 30 s, of which a third passes between two messages
	s := idle()
	to := rttest.Must(notify.Open())(t)
	defer to.Close()
	n := &notifier{Notifier: to, server: s}
	consume := func() {
		select {
		case <-s.worker.work:
		default:
		}
	}
	for _, st := range []struct {
		name   string
		before func()
		at     time.Duration
		want   string
	}{
		{"loading", func() {}, 20 * time.Second, "WATCHDOG=1"},
		{"warm, not declared", func() { s.phase.warmed.Store(true); consume() }, 21 * time.Second, ""},
		{"declared", func() {
			s.phase.serving.Store(true)
			consume()
		}, 22 * time.Second, "READY=1 STATUS=serving @lerobot/m/r/s, sessions: 0"},
		{"the idle worker wakes when signalled", consume, 30 * time.Second, "WATCHDOG=1"},
		{"a request is begun", func() {
			consume()
			s.worker.engine.busySince.Store(35e9)
		}, 40 * time.Second, "WATCHDOG=1"},
		{"it takes long", func() {}, 50 * time.Second, ""},
		{"it takes for ever: the manager acts", func() {}, 500 * time.Second, ""},
		{"it ended, another began", func() { s.worker.engine.busySince.Store(501e9) }, 502 * time.Second, "WATCHDOG=1"},
		{"it ended", func() { s.worker.engine.busySince.Store(0) }, 512 * time.Second, "WATCHDOG=1"},
		{"stuck between requests: the signal stays", func() {}, 522 * time.Second, ""},
		{"still", func() {}, 532 * time.Second, ""},
		{"it moved again", consume, 533 * time.Second, "WATCHDOG=1"},
		{"moved, but fed a moment ago", consume, 534 * time.Second, ""},
		{"what moved counts when feeding is due", func() {}, 543 * time.Second, "WATCHDOG=1"},
		{"housekeeping is stuck: the manager acts", func() {
			consume()
			s.housekeeper.moved.Store(int64(s.clock.Now().Add(-2 * housekeepingStuckAfter)))
		}, 563 * time.Second, ""},
		{"it moves again", func() {
			consume()
			s.housekeeper.moved.Store(int64(s.clock.Now()))
		}, 564 * time.Second, "WATCHDOG=1"},
	} {
		st.before()
		n.update(rt.Instant(st.at))
		rttest.Want(t, strings.Join(said(), " "), st.want, "%s: update(%v) sent", st.name, st.at)
	}
}

func TestNotifierSaysThatTheServerLeaves(t *testing.T) {
	said := manager(t, "")
	ctx, cancel := context.WithCancel(context.Background())
	to := rttest.Must(notify.Open())(t)
	defer to.Close()
	end := startNotifier(ctx, to, idle())
	cancel()
	end()
	if got := said(); !slices.Equal(got, []string{"STATUS=draining", "STOPPING=1"}) {
		t.Errorf("after the end of its context it said %q", got)
	}
}
