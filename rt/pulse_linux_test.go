package rt

import (
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

// Whoever has the file sees the ticks of a loop, from before the first until the
// last, and for how long they may stay away.
func TestALoopBeatsItsProcessesPulse(t *testing.T) {
	f, err := OwnPulse()
	if err != nil {
		t.Fatal(err)
	}
	p, err := OpenPulse(f)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.Process() != os.Getpid() || p.Patience() != 0 {
		t.Fatalf("process %d, patience %v before any loop, want %d, 0", p.Process(), p.Patience(), os.Getpid())
	}
	before := p.Beats()
	for _, tt := range []struct{ period, want time.Duration }{{time.Millisecond, pulseMin}, {time.Second - 1, 3*time.Second - 3}} {
		var stop atomic.Bool
		during, ended := make(chan time.Duration, 1), make(chan error, 1)
		loop := NewLoop(LoopConfig{Clock: KernelClock(), Period: tt.period, Mode: ModeOff, CPU: UnpinnedCPU})
		go func() {
			ended <- loop.Run(&stop, func(Tick) Wait {
				stop.Store(true)
				during <- p.Patience()
				return Wait{}
			})
		}()
		if got := <-during; got != tt.want {
			t.Errorf("a period of %v: patience %v, want %v", tt.period, got, tt.want)
		}
		if err := <-ended; err != nil || p.Patience() != 0 {
			t.Errorf("a loop that has ended (%v): patience %v, want 0", err, p.Patience())
		}
	}
	if got := p.Beats() - before; got != 2 {
		t.Errorf("%d beats, want 2", got)
	}
}

// A tick that panics expects no more ticks of its loop: what follows is the way
// out.
func TestAPanicRestsThePulse(t *testing.T) {
	f, err := OwnPulse()
	if err != nil {
		t.Fatal(err)
	}
	p, err := OpenPulse(f)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var stop atomic.Bool
	done := make(chan time.Duration, 1)
	go func() {
		defer func() { recover(); done <- p.Patience() }()
		NewLoop(LoopConfig{Clock: KernelClock(), Period: time.Millisecond, Mode: ModeOff, CPU: UnpinnedCPU}).Run(&stop, func(Tick) Wait { panic("!") })
	}()
	if got := <-done; got != 0 {
		t.Errorf("patience %v, want 0", got)
	}
}

func TestOpenPulseRefusesOtherFiles(t *testing.T) {
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
	if err := zeros.Truncate(pulseSize); err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, f := range []*os.File{empty, zeros, null, os.NewFile(1<<20, "none")} {
		if p, err := OpenPulse(f); !errors.Is(err, ErrNoPulse) {
			t.Errorf("OpenPulse(%s) = %v, %v, want %v", f.Name(), p, err, ErrNoPulse)
		}
	}
}

func TestStall(t *testing.T) {
	const every = 50 * time.Millisecond
	p := &Pulse{page: new(pulsePage)}
	s := NewStall(p, every)
	looks := func(n int, want bool, why string) {
		t.Helper()
		for i := range n {
			if got := s.Look(); got != (want && i == n-1) {
				t.Fatalf("%s: look %d says %t", why, i+1, got)
			}
		}
	}
	looks(1000, false, "no tick is expected yet")
	p.Begin(20 * time.Millisecond)
	looks(39, false, "1.95s without the first tick")
	p.Beat()
	looks(40, false, "the first has come, 1.95s ago")
	looks(1, true, "2s without a tick")
	s.Forget()
	looks(40, true, "another 2s")
	p.Beat()
	looks(30, false, "it ticks again")
	p.Rest()
	looks(1000, false, "ticks are over")
	p.Begin(time.Second)
	looks(60, true, "a slow loop has three periods")
}
