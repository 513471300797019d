package link

import (
	"errors"
	"testing"
	"time"

	"edgert/wire/zenoh/codec"
)

// full reports whether the queue of p has no room for it.
func full(l *Link, p *codec.Push, how Delivery) bool {
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	q := l.out.queue(how)
	return !q.fits(p.Size(), blockBytes, blockMessages)
}

// Goal: waiting for room allocates nothing, for our own messages and for those
// that we relay.
func TestWaitingForRoomAllocatesNothing(t *testing.T) {
	for _, tt := range []struct {
		name string
		how  Delivery
	}{{"our own", block}, {"relayed", Delivery{QoS: codec.RequestQoS, Reliable: true, MaxWait: time.Second}}} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := config(2, codec.Peer)
			cfg.Lease = time.Minute // nobody speaks up in between
			ours, theirs := linkPair(t, config(1, codec.Client), cfg)
			go theirs.Run(func(*codec.Message) error { return nil })
			p := numbered(1, 60_000)
			for !full(ours, p, tt.how) {
				if err := ours.Push(p, tt.how); err != nil {
					t.Fatal(err)
				}
			}
			// The writer makes room once for each message, when its sender waits.
			ask, stopped := make(chan struct{}, 1), make(chan struct{})
			go func() {
				defer close(stopped)
				for range ask {
					time.Sleep(time.Millisecond)
					for full(ours, p, tt.how) {
						if _, err := ours.out.step(false); err != nil {
							t.Errorf("step = %v", err)
							return
						}
					}
				}
			}()
			if n := testing.AllocsPerRun(200, func() {
				if !full(ours, p, tt.how) {
					t.Fatal("there is room: the sender does not wait")
				}
				ask <- struct{}{}
				if err := ours.Push(p, tt.how); err != nil {
					t.Fatal(err)
				}
			}); n != 0 {
				t.Errorf("a wait allocates %v times, want 0", n)
			}
			close(ask)
			<-stopped
		})
	}
}

// Goal: of two who wait for room each waits for its own time, also when who came
// later may wait less.
func TestWaitersTimeOutIndependently(t *testing.T) {
	cfg := config(1, codec.Client)
	cfg.Stall = 3 * time.Second
	ours, _ := linkPair(t, cfg, config(2, codec.Peer)) // nobody runs: there will be no room
	p := numbered(1, 60_000)
	for !full(ours, p, block) {
		if err := ours.Push(p, block); err != nil {
			t.Fatal(err)
		}
	}
	wait := func(how Delivery) <-chan time.Duration {
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
		return !ours.out.wakeAt.IsZero()
	})
	const patience = 100 * time.Millisecond
	short := wait(Delivery{QoS: codec.RequestQoS, Reliable: true, MaxWait: patience})
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
