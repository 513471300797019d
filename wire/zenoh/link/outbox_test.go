package link

import (
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
)

// full reports whether the queue for the message p has no room for p.
func full(l *Link, p *codec.Push, d Delivery) bool {
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	q := l.out.queue(d)
	return !q.fits(p.Size(), blockBytes, blockMessages)
}

// stuckLink returns a link whose writer never runs, so that pushed messages stay queued until the test calls step. The
// bytes that step writes are discarded.
func stuckLink(cfg Config) *Link {
	offer := cfg.offer()
	return open(discard{}, cfg, &offer, &offer, time.Minute, 0, 0)
}

// discard is a connection that accepts and discards all bytes.
type discard struct{ net.Conn }

func (discard) Write(b []byte) (int, error)      { return len(b), nil }
func (discard) SetWriteDeadline(time.Time) error { return nil }
func (discard) RemoteAddr() net.Addr             { return nil }

// Goal: waiting for room allocates nothing, for our own messages and for relayed ones.
func TestWaitingForRoomAllocatesNothing(t *testing.T) {
	for _, tt := range []struct {
		name     string
		delivery Delivery
	}{{"our own", block}, {"relayed", Delivery{QoS: codec.RequestQoS, Reliable: true, MaxWait: time.Second}}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours := stuckLink(config(1, codec.Client))
				p := numbered(1, 60_000)
				for !full(ours, p, tt.delivery) {
					rttest.Do(t, ours.Push(p, tt.delivery))
				}
				// This goroutine acts as the writer: each time that a sender waits, it makes room for one message.
				ask, stopped := make(chan struct{}, 1), make(chan struct{})
				go func() {
					defer close(stopped)
					for range ask {
						synctest.Wait()
						for full(ours, p, tt.delivery) {
							if _, err := ours.out.step(false); err != nil {
								t.Errorf("step = %v", err)
								return
							}
						}
					}
				}()
				rttest.NoAllocs(t, "a wait allocates %v times, want 0", 200, func() {
					if !full(ours, p, tt.delivery) {
						t.Fatal("there is room: the sender does not wait")
					}
					ask <- struct{}{}
					rttest.Do(t, ours.Push(p, tt.delivery))
				})
				close(ask)
				<-stopped
			})
		})
	}
}

// Goal: each of two senders that wait for room has its own timeout, even if the later sender has the shorter timeout.
func TestWaitersTimeOutIndependently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config(1, codec.Client)
		cfg.Stall = 3 * time.Second
		ours := stuckLink(cfg)
		p := numbered(1, 60_000)
		for !full(ours, p, block) {
			rttest.Do(t, ours.Push(p, block))
		}
		wait := func(d Delivery) <-chan time.Duration {
			took := make(chan time.Duration, 1)
			go func() {
				began := time.Now()
				rttest.FailsAs(t, ours.Push(p, d), ErrCongested)
				took <- time.Since(began)
			}()
			synctest.Wait()
			return took
		}
		const maxWait = 100 * time.Millisecond
		long := wait(block)
		short := wait(Delivery{QoS: codec.RequestQoS, Reliable: true, MaxWait: maxWait})
		rttest.Want(t, <-short, maxWait, "the second gave up after")
		rttest.Want(t, <-long, cfg.Stall, "the first gave up after")
	})
}

// Goal: a message that may not wait leaves the timeout of the next message as it is.
func TestNoWaitLeavesTheTimeoutOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours := stuckLink(config(1, codec.Client))
		p := numbered(1, 60_000)
		for !full(ours, p, block) {
			rttest.Do(t, ours.Push(p, block))
		}
		relayed := Delivery{QoS: codec.RequestQoS, Reliable: true, MaxWait: 100 * time.Millisecond, NoWait: true}
		rttest.FailsAs(t, ours.Push(p, relayed), ErrCongested)
		relayed.NoWait = false
		began := time.Now()
		rttest.FailsAs(t, ours.Push(p, relayed), ErrCongested)
		rttest.Want(t, time.Since(began), relayed.MaxWait, "the second gave up after")
	})
}

// slowDeadline is a connection that takes a while to set its first write deadline.
type slowDeadline struct {
	discard
	calls atomic.Int64
	began chan struct{} // closed when the first deadline is about to be set
	last  time.Time
}

func (c *slowDeadline) SetWriteDeadline(t time.Time) error {
	if c.calls.Add(1) == 1 {
		close(c.began)
		time.Sleep(20 * time.Millisecond)
	}
	c.last = t
	return nil
}

// Goal: the writer does not lengthen the deadline of a link that another goroutine closes at the same time.
func TestCloseDeadlineStays(t *testing.T) {
	cfg := config(1, codec.Client)
	offer := cfg.offer()
	conn := &slowDeadline{began: make(chan struct{})}
	ours := open(conn, cfg, &offer, &offer, time.Minute, 0, 0)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		<-conn.began
		ours.Close(codec.CloseGeneric)
	}()
	rttest.Must(ours.out.step(true))(t)
	<-closed
	if left := time.Until(conn.last); left > closeTimeout {
		t.Errorf("the writer of a closed link has %v, want at most %v", left, closeTimeout)
	}
}
