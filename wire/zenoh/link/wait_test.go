package link

import (
	"errors"
	"runtime/debug"
	"testing"
	"time"

	"edgert/wire/zenoh/codec"
)

// full reports whether the queue of p has no room for it.
func full(l *Link, p *codec.Push, how How) bool {
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	q := l.out.queue(how)
	return !q.fits(p.Size(), blockBytes, blockMessages)
}

// Goal: whoever sends faster than the link carries waits often, and waiting
// allocates nothing, here or at the other end.
func TestWaitingForRoomAllocatesNothing(t *testing.T) {
	// A collection would empty the runtime's own caches, which then allocate.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for _, tt := range []struct {
		name string
		how  How
	}{{"our own", block}, {"relayed", How{QoS: codec.RequestQoS, Reliable: true, Patience: time.Second}}} {
		t.Run(tt.name, func(t *testing.T) {
			ours, theirs := pair(t, config(1, codec.Client), config(2, codec.Peer))
			go ours.Run(func(*codec.Message) error { return nil })
			go theirs.Run(func(*codec.Message) error { return nil })
			p := numbered(1, 60_000)
			const sends = 800 // many times what may wait
			waits := 0
			flood := func() {
				waits = 0
				for range sends {
					if full(ours, p, tt.how) {
						waits++
					}
					if err := ours.Push(p, tt.how); err != nil {
						t.Fatal(err)
					}
				}
			}
			n := testing.AllocsPerRun(1, flood)
			t.Logf("%d of %d sends found no room, %v allocations", waits, sends, n)
			if waits < 5 {
				t.Errorf("%d of %d sends found no room, want many", waits, sends)
			}
			// One for each wait would be ours; the runtime makes itself a thread now
			// and then.
			if n > float64(waits)/2 {
				t.Errorf("%d waits allocate %v times, want 0", waits, n)
			}
			ours.Close(codec.CloseGeneric)
		})
	}
}

// Goal: of two who wait for room each waits for its own time, also when who came
// later may wait less.
func TestEachWaitsForItsOwnTime(t *testing.T) {
	cfg := config(1, codec.Client)
	cfg.Stall = 3 * time.Second
	ours, _ := pair(t, cfg, config(2, codec.Peer)) // nobody runs: there will be no room
	p := numbered(1, 60_000)
	for !full(ours, p, block) {
		if err := ours.Push(p, block); err != nil {
			t.Fatal(err)
		}
	}
	wait := func(how How) <-chan time.Duration {
		took := make(chan time.Duration, 1)
		go func() {
			began := time.Now()
			if err := ours.Push(p, how); !errors.Is(err, ErrCongested) {
				t.Errorf("Push = %v, want %v", err, ErrCongested)
			}
			took <- time.Since(began)
		}()
		return took
	}
	long := wait(block)
	eventually(t, "the first to wait", func() bool {
		ours.out.mu.Lock()
		defer ours.out.mu.Unlock()
		return !ours.out.lookAt.IsZero()
	})
	const patience = 100 * time.Millisecond
	short := wait(How{QoS: codec.RequestQoS, Reliable: true, Patience: patience})
	select {
	case took := <-short:
		if took < patience || took > cfg.Stall/2 { // not with the first
			t.Errorf("the second gave up after %v, want %v", took, patience)
		}
	case took := <-long:
		t.Fatalf("the first, which may wait %v, gave up after %v and before the second, which may wait %v", cfg.Stall, took, patience)
	}
	select {
	case took := <-long:
		if took < cfg.Stall {
			t.Errorf("the first gave up after %v, want %v", took, cfg.Stall)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("the first, which may wait %v, waits on", cfg.Stall)
	}
}
