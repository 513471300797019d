package rt

import (
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

func openHeartbeat(t *testing.T) *Heartbeat {
	t.Helper()
	f, err := ProcessHeartbeat()
	if err != nil {
		t.Fatal(err)
	}
	p, err := OpenHeartbeat(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// Another process can read two things from the file: that a loop ticks, from before the first tick until the last, and
// the time without a tick that counts as a hang.
func TestLoopBeatsTheProcessHeartbeat(t *testing.T) {
	p := openHeartbeat(t)
	if p.PID() != os.Getpid() || p.Timeout() != 0 {
		t.Fatalf("process %d, timeout %v before any loop, want %d, 0", p.PID(), p.Timeout(), os.Getpid())
	}
	before := p.page.beats.Load()
	for _, tt := range []struct {
		period, want time.Duration
	}{{time.Millisecond, heartbeatMin}, {time.Second - 1, 3*time.Second - 3}} {
		var stop atomic.Bool
		during, ended := make(chan time.Duration, 1), make(chan error, 1)
		loop := NewLoop(LoopConfig{Clock: KernelClock(), Period: tt.period, Mode: ModeOff, CPU: UnpinnedCPU})
		go func() {
			ended <- loop.Run(&stop, func(Tick) Wait {
				stop.Store(true)
				during <- p.Timeout()
				return Wait{}
			})
		}()
		if got := <-during; got != tt.want {
			t.Errorf("a period of %v: timeout %v, want %v", tt.period, got, tt.want)
		}
		if err := <-ended; err != nil || p.Timeout() != 0 {
			t.Errorf("a loop that has ended (%v): timeout %v, want 0", err, p.Timeout())
		}
	}
	if got := p.page.beats.Load() - before; got != 2 {
		t.Errorf("%d beats, want 2", got)
	}
}

// A loop whose step panics stops its heartbeat, so that the process does not count as hanging while it ends.
func TestPanicStopsTheHeartbeat(t *testing.T) {
	p := openHeartbeat(t)
	var stop atomic.Bool
	done := make(chan time.Duration, 1)
	go func() {
		defer func() { recover(); done <- p.Timeout() }()
		NewLoop(LoopConfig{
			Clock:  KernelClock(),
			Period: time.Millisecond,
			Mode:   ModeOff,
			CPU:    UnpinnedCPU,
		}).Run(&stop, func(Tick) Wait { panic("!") })
	}()
	if got := <-done; got != 0 {
		t.Errorf("timeout %v, want 0", got)
	}
}

func TestOpenHeartbeatRefusesOtherFiles(t *testing.T) {
	empty, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer empty.Close()
	zeros, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer zeros.Close()
	if err := zeros.Truncate(heartbeatSize); err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, f := range []*os.File{empty, zeros, null, os.NewFile(1<<20, "none")} {
		if p, err := OpenHeartbeat(f); !errors.Is(err, errNoHeartbeat) {
			t.Errorf("OpenHeartbeat(%s) = %v, %v, want %v", f.Name(), p, err, errNoHeartbeat)
		}
	}
}

func TestHangDetector(t *testing.T) {
	const every = 50 * time.Millisecond
	p := &Heartbeat{page: new(heartbeatPage)}
	s := NewHangDetector(p, every)
	polls := func(n int, want bool, why string) {
		t.Helper()
		for i := range n {
			if got := s.Poll(); got != (want && i == n-1) {
				t.Fatalf("%s: poll %d says %t", why, i+1, got)
			}
		}
	}
	polls(1000, false, "no tick is expected yet")
	p.Start(20 * time.Millisecond)
	polls(39, false, "1.95s without the first tick")
	p.Beat()
	polls(40, false, "the first has come, 1.95s ago")
	polls(1, true, "2s without a tick")
	s.Reset()
	polls(40, true, "another 2s")
	p.Beat()
	polls(30, false, "it ticks again")
	p.Stop()
	polls(1000, false, "ticks are over")
	p.Start(time.Second)
	polls(60, true, "a slow loop has three periods")
}
