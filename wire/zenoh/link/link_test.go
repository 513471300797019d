package link

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
)

func config(zid byte, role codec.Role) Config {
	return Config{ZID: []byte{zid}, Role: role, Lease: 2 * time.Second, KeepAlive: 500 * time.Millisecond,
		MaxMessage: 4 << 20, Budget: NewBudget(16 << 20), Counters: new(Counters)}
}

// tcpPair returns both ends of a loopback connection.
func tcpPair(t testing.TB) (dialled, accepted net.Conn) {
	t.Helper()
	l := rttest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	dialled = rttest.Must(net.Dial("tcp", l.Addr().String()))(t)
	accepted = rttest.Must(l.Accept())(t)
	for _, c := range []net.Conn{dialled, accepted} {
		Tune(c)
		t.Cleanup(func() { c.Close() })
	}
	return dialled, accepted
}

// linkPair opens a link over loopback and returns both ends. Run has not been called for them yet.
func linkPair(t testing.TB, client, server Config) (*Link, *Link) {
	t.Helper()
	a, b := tcpPair(t)
	return linkOver(t, a, b, client, server)
}

func anyPair(t testing.TB) (*Link, *Link) {
	return linkPair(t, config(1, codec.Client), config(2, codec.Peer))
}

func ignore(*codec.Message) error { return nil }

func anyone(Remote) (codec.Reason, bool) { return 0, true }

// pipePair does the same as linkPair over a pipe in memory, which buffers nothing, for tests in virtual time.
func pipePair(t testing.TB, client, server Config) (*Link, *Link) {
	t.Helper()
	a, b := net.Pipe()
	return linkOver(t, a, b, client, server)
}

func linkOver(t testing.TB, a, b net.Conn, client, server Config) (*Link, *Link) {
	t.Helper()
	accepted := make(chan *Link, 1)
	go func() { accepted <- rttest.Must(Accept(b, server, anyone))(t) }()
	return rttest.Must(Dial(t.Context(), a, client))(t), <-accepted
}

// received collects numbered payloads.
type received struct {
	mu   sync.Mutex
	nums []int
	sums []int
}

func (r *received) handle(m *codec.Message) error {
	if m.Kind != codec.KindPush {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nums = append(r.nums, int(binary.LittleEndian.Uint32(m.Push.Data.Payload)))
	r.sums = append(r.sums, len(m.Push.Data.Payload))
	return nil
}

func (r *received) snapshot() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.nums)
}

func numbered(n, size int) *codec.Push {
	p := &codec.Push{Expr: codec.Key("k"), Envelope: codec.Envelope{QoS: codec.DefaultQoS}}
	p.Data.Payload = bytes.Repeat([]byte{byte(n)}, size)
	binary.LittleEndian.PutUint32(p.Data.Payload, uint32(n))
	return p
}

var (
	drop  = Delivery{QoS: codec.DefaultQoS}
	block = Delivery{QoS: codec.RequestQoS, Reliable: true}
)

// Goal: while the other end does not read, each PushLatest replaces the waiting message. When the other end reads
// again, the messages arrive in order: first those that the kernel had already accepted, and last the newest message.
func TestLatestReplacesUnderAStalledReader(t *testing.T) {
	const size, enough = 60_000, 100
	a, b := config(1, codec.Client), config(2, codec.Peer)
	for _, c := range []*Config{&a, &b} {
		c.Lease, c.Stall = time.Minute, time.Minute // a slow machine must not end the link
	}
	ours, theirs := linkPair(t, a, b)
	go ours.Run(ignore)
	slot := new(Slot)
	count, replaced := 0, 0
	for replaced < enough {
		count++
		r := rttest.Must(ours.PushLatest(slot, numbered(count, size), drop))(t)
		if r {
			replaced++
		}
	}
	var got received
	go theirs.Run(got.handle)
	rttest.Eventually(t, "the newest", func() bool {
		all := got.snapshot()
		return len(all) > 0 && all[len(all)-1] == count
	})
	all := got.snapshot()
	for i := 1; i < len(all); i++ {
		if all[i] <= all[i-1] {
			t.Errorf("sample %d came after %d", all[i], all[i-1])
		}
	}
	rttest.Want(t, len(all)+replaced, count, "%d arrived and %d replaced: sum", len(all), replaced)
	rttest.Want(t, ours.cfg.Counters.Replaced.Load(), uint64(replaced), "counted as replaced")
	t.Logf("%d of %d left, the last after %d kB of older ones", len(all), count, (len(all)-1)*size/1000)
}

func TestDropNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, _ := pipePair(t, config(1, codec.Client), config(2, codec.Peer))
		go ours.Run(ignore)
		began, dropped := time.Now(), 0
		for i := range 2000 {
			if err := ours.Push(numbered(i, 20_000), drop); errors.Is(err, ErrCongested) {
				dropped++
			} else if err != nil {
				t.Fatalf("Push = %v", err)
			}
		}
		if dropped == 0 || uint64(dropped) != ours.cfg.Counters.Dropped.Load() {
			t.Errorf("dropped %d, counted %d, want the same and not 0", dropped, ours.cfg.Counters.Dropped.Load())
		}
		rttest.Want(t, time.Since(began), 0, "wait of all messages")
		ours.Discard()
	})
}

func TestBlockIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config(1, codec.Client)
		cfg.Stall = 200 * time.Millisecond
		ours, _ := pipePair(t, cfg, config(2, codec.Peer))
		ended := make(chan error, 1)
		go func() { ended <- ours.Run(ignore) }()
		began, sent := time.Now(), 0
		var err error
		for err == nil {
			err = ours.Push(numbered(sent, 20_000), block)
			sent++
		}
		if !errors.Is(err, ErrCongested) && !errors.Is(err, ErrClosed) {
			t.Errorf("blocking Push to a peer that does not read = %v", err)
		}
		if sent*20_000 < blockBytes {
			t.Errorf("gave up after %d bytes, want at least the %d that may wait", sent*20_000, blockBytes)
		}
		rttest.Want(t, time.Since(began), cfg.Stall, "wait")
		rttest.FailsAs(t, <-ended, ErrStalled)
		rttest.Want(t, ours.cfg.Counters.Stalled.Load(), 1, "stalled links")
	})
}

func TestSilentPeerExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := config(1, codec.Client)
		client.Lease, client.KeepAlive = 150*time.Millisecond, time.Hour
		_, theirs := pipePair(t, client, config(2, codec.Peer)) // without Run, the client does nothing
		began := time.Now()
		rttest.FailsAs(t, theirs.Run(ignore), ErrExpired)
		rttest.Want(t, time.Since(began), client.Lease, "wait of a lease")
	})
}

func TestKeepAlivesHoldAnIdleLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := config(1, codec.Client), config(2, codec.Peer)
		a.Lease, a.KeepAlive = time.Second, 200*time.Millisecond
		b.Lease, b.KeepAlive = a.Lease, a.KeepAlive
		ours, theirs := pipePair(t, a, b)
		ended := make(chan error, 2)
		go func() { ended <- ours.Run(ignore) }()
		go func() { ended <- theirs.Run(ignore) }()
		select {
		case err := <-ended:
			t.Fatalf("an idle link ended: %v", err)
		case <-time.After(time.Hour):
		}
		ours.Close(codec.CloseGeneric)
		first, second := <-ended, <-ended
		var closed *CloseError
		if !errors.As(first, &closed) && !errors.As(second, &closed) || !errors.Is(first, ErrClosed) &&
			!errors.Is(second, ErrClosed) {
			t.Errorf("Close ended the sides with %v and %v, want ErrClosed and a CloseError", first, second)
		}
	})
}

// Goal: messages that were queued before Close arrive before the peer sees the end.
func TestCloseFlushes(t *testing.T) {
	ours, theirs := anyPair(t)
	for i := range 50 {
		rttest.Do(t, ours.Push(numbered(i, 30_000), block))
	}
	ours.Close(codec.CloseGeneric)
	rttest.FailsAs(t, ours.Push(numbered(50, 10), block), ErrClosed) // Push after Close
	go ours.Run(ignore)
	var got received
	var closed *CloseError
	if err := theirs.Run(got.handle); !errors.As(err, &closed) {
		t.Errorf("Run = %v, want the peer's Close", err)
	}
	rttest.Want(t, len(got.snapshot()), 50, "samples arrived before the end")
}

// Goal: a link carries messages of every size in order, with every size of batches and sequence numbers and every set
// of features, even when sequence numbers wrap many times.
func TestSizesAndWraps(t *testing.T) {
	for _, tt := range []struct {
		name  string
		small codec.Init
		count int
	}{
		{"defaults", codec.Init{
			Resolution: codec.DefaultResolution,
			Batch:      codec.DefaultBatch,
			QoS:        true,
			Patch:      1,
		}, 200},
		{"smallest batch", codec.Init{Resolution: codec.DefaultResolution, Batch: minBatch, QoS: true, Patch: 1}, 50},
		{"7-bit numbers", codec.Init{Resolution: 0, Batch: 512, QoS: true, Patch: 1}, 1000},
		{"14-bit numbers, no QoS, no patch", codec.Init{Resolution: 9, Batch: 2048}, 1000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client := config(1, codec.Client)
			client.small = &tt.small
			ours, theirs := linkPair(t, client, config(2, codec.Peer))
			var got received
			go ours.Run(ignore)
			go theirs.Run(got.handle)
			size := func(i int) int { return 4 + (i*i*37)%3000 }
			for i := range tt.count {
				rttest.Do(t, ours.Push(numbered(i, size(i)), block))
			}
			rttest.Eventually(t, "all messages", func() bool { return len(got.snapshot()) == tt.count })
			for i := range tt.count {
				if got.nums[i] != i || got.sums[i] != size(i) {
					t.Fatalf("message %d = number %d of %d bytes, want %d bytes", i, got.nums[i], got.sums[i], size(i))
				}
			}
		})
	}
}

// Goal: a more urgent message passes between the fragments of a large one, and leaves before
// messages that were queued earlier.
func TestUrgentPassesFragments(t *testing.T) {
	ours, theirs := anyPair(t)
	background := Delivery{QoS: codec.QoS(7) | codec.Block, Reliable: true}
	for i := range 3 {
		rttest.Do(t, ours.Push(numbered(i, 1_000_000), background))
	}
	rttest.Do(t, ours.Push(numbered(99, 10), Delivery{QoS: 1, Reliable: true}))
	var got received
	go ours.Run(ignore)
	go theirs.Run(got.handle)
	rttest.Eventually(t, "all", func() bool { return len(got.snapshot()) == 4 })
	rttest.Want(t, got.snapshot()[0], 99, "the first to arrive")
}

func TestTooLargeIsRefused(t *testing.T) {
	ours, _ := anyPair(t)
	rttest.FailsAs(t, ours.Push(numbered(1, 5<<20), block), errTooLarge)
	rttest.FailsAs(t, rttest.Err(ours.PushLatest(new(Slot), numbered(1, 5<<20), drop)), errTooLarge)
}

// Goal: queueing, packing and parsing allocate nothing, each alone and without sockets.
func TestLinkNoAlloc(t *testing.T) {
	ours, theirs := anyPair(t)
	small, large := numbered(1, 300), numbered(2, 150_000)
	slot := new(Slot)
	sn := theirs.in.last[lane(5, false)]
	got := 0
	handle := func(m *codec.Message) error { got += len(m.Push.Data.Payload); return nil }
	exchange := func() {
		if ours.Push(small, drop) != nil {
			t.Fatal("Push failed")
		}
		rttest.Must(ours.PushLatest(slot, large, drop))(t)
		for ours.out.mostUrgent() >= 0 {
			ours.out.fill()
			rttest.Do(t, theirs.in.parse(ours.out.batch[2:], handle))
		}
	}
	for range 3 {
		exchange()
	}
	got = 0
	rttest.NoAllocs(t, "an exchange allocates %v times, want 0", 100, exchange)
	if want := 101 * 150_300; got != want || theirs.in.last[lane(5, false)] == sn {
		t.Errorf("%d bytes arrived, want %d", got, want)
	}
}

// Goal: the error of Run distinguishes a link that ended with a Close from a connection that ends without one. Official
// nodes send no Close after malformed input, an expired lease or a stalled reader.
func TestEndWithoutClose(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(*Link)
		want error
	}{
		{"without a word", (*Link).Discard, ErrEOF},
		{"with a Close", func(l *Link) {
			go l.Run(ignore)
			l.Close(codec.CloseGeneric)
		}, &CloseError{codec.CloseGeneric}},
	} {
		ours, theirs := anyPair(t)
		ended := make(chan error, 1)
		go func() { ended <- ours.Run(ignore) }()
		tt.end(theirs)
		err := <-ended
		var closed *CloseError
		if errors.As(tt.want, &closed) != errors.As(err, &closed) || tt.want == ErrEOF && err != ErrEOF {
			t.Errorf("%s: Run = %v, want %v", tt.name, err, tt.want)
		}
	}
}
