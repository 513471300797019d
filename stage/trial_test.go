package stage

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// stub returns a trial whose edge-rt is a shell script and whose server is a process that only
// sleeps.
func stub(t *testing.T, edge string, d time.Duration) (trial *Trial, started func() int) {
	t.Helper()
	dir := t.TempDir()
	rttest.WriteFile(t, dir, "edge-rt", "#!/bin/sh\n"+edge)
	l := rttest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() })
	starts := filepath.Join(dir, "started")
	s := &Server{
		Endpoint: "tcp/" + l.Addr().String(),
		Argv:     []string{"/bin/sh", "-c", "echo >> " + starts + "; exec sleep 60"},
	}
	rttest.Do(t, s.Start(t.Context()))
	t.Cleanup(func() {
		if s.Child != nil {
			s.Kill()
		}
	})
	return &Trial{Bin: dir, Dir: dir, Server: s, Duration: d, Grace: time.Minute}, func() int {
		got, _ := os.ReadFile(starts)
		return len(got)
	}
}

// Play returns an error if the edge ended before its time, for example by the Ctrl-C that also interrupts this program.
func TestAnEdgeThatIsCutOff(t *testing.T) {
	trial, _ := stub(t, "exit 0", time.Hour)
	rttest.Fails(t, trial.Play(t.Context()), "edge-rt ended after")
}

// An interrupt of the trial ends the edge in order, before the trial's time is over.
func TestInterruptEndsTheEdge(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	trial, _ := stub(t, `cd "$STATE_DIRECTORY"; trap ': > ended; exit 0' TERM; : > up
while :; do sleep 0.05; done`, time.Hour)
	played := make(chan error)
	go func() { played <- trial.Play(ctx) }()
	exists := func(name string) bool {
		_, err := os.Stat(filepath.Join(trial.Dir, name))
		return err == nil
	}
	rttest.Eventually(t, "the edge is up", func() bool { return exists("up") })
	cancel()
	if err := <-played; !errors.Is(err, context.Canceled) || !exists("ended") {
		t.Errorf("Play = %v, want that it was cancelled, and that the edge ended in order", err)
	}
}

// The server stops and starts at the times of the outages, as long as the edge runs.
func TestOutages(t *testing.T) {
	rttest.RealTime(t)
	trial, started := stub(t, `cd "$STATE_DIRECTORY"; while [ "$(wc -l < started)" != 3 ]; do sleep 0.05; done`, 0)
	trial.Outages = func(yield func(Outage) bool) {
		for n, at := range []time.Duration{100 * time.Millisecond, 400 * time.Millisecond} {
			for try := 0; started() <= n && try < 30_000; try++ {
				time.Sleep(time.Millisecond) // on a busy machine the server has not written its line yet
			}
			if !yield(Outage{At: at, For: 100 * time.Millisecond, Drain: n == 1}) {
				return
			}
		}
		yield(Outage{At: time.Hour, For: time.Second})
	}
	if err := trial.Play(t.Context()); err != nil || !trial.Server.Running() {
		t.Errorf("Play = %v, the server running %v, want it back", err, trial.Server.Running())
	}
	rttest.Want(t, started(), 3, "starts of the server")
	trial, _ = stub(t, "exec sleep 3", 0)
	trial.Outages = slices.Values([]Outage{{At: 100 * time.Millisecond, For: 100 * time.Millisecond}})
	trial.Server.Argv[0] = "/nowhere"
	rttest.FailsAs(t, trial.Play(t.Context()), ErrAway)
}
