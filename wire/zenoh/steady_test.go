package zenoh

import (
	"errors"
	"io"
	"net"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"time"

	"edgert/rt"
	"edgert/wire"
	"edgert/wire/zenoh/link"
)

// counted reads the process's mallocs without allocating.
func counted() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// Goal: an edge and a server exchange observations of varying size, with
// attachments, and chunks, with keep-alives in between, and after warm-up the
// whole process, goroutines of both sessions included, allocates nothing.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	server, at := listener(t, Config{KeepAlive: 2 * time.Millisecond, Log: func(string) {}})
	edge := mustOpen(t, Config{Connect: []string{at}, KeepAlive: 2 * time.Millisecond, Log: func(string) {}})
	var observed, chunks atomic.Int64
	var seen atomic.Int64
	action, err := server.Publisher("@m/r1/action", wire.ActionQoS)
	if err != nil {
		t.Fatal(err)
	}
	chunk, head := make([]byte, 3000), make([]byte, 27)
	if _, err := server.Subscribe("@m/*/obs", func(s wire.Sample) {
		observed.Add(int64(len(s.Payload)))
		seen.Add(1)
		action.Put(chunk, head)
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := edge.Subscribe("@m/r1/action", func(s wire.Sample) { chunks.Add(1) }); err != nil {
		t.Fatal(err)
	}
	hearing(t, server, "@m/r1/action")
	hearing(t, edge, "@m/r1/obs")
	newest, err := edge.Publisher("@m/r1/obs", wire.ObservationQoS)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := edge.Publisher("@m/r1/obs", wire.QoS{Priority: wire.DataHigh, Reliable: true})
	if err != nil {
		t.Fatal(err)
	}
	payload := make([]byte, 100_000)
	pace := time.NewTicker(500 * time.Microsecond)
	defer pace.Stop()
	tick := func(i int) {
		// Sizes of pictures: they vary from one to the next, and some of them
		// need fragments.
		size := 50_000 + (i*7919)%30_000
		if _, err := newest.PutLatest(payload[:size], head); err != nil {
			t.Errorf("PutLatest = %v", err)
		}
		// A host that takes a core away makes Put drop, as it should.
		if err := plain.Put(payload[:200], head); err != nil && !errors.Is(err, link.ErrCongested) {
			t.Errorf("Put = %v", err)
		}
		<-pace.C
	}
	ticks := 10_000
	if testing.Short() {
		ticks = 1000
	}
	// As on an armed edge: a collection would empty the runtime's own caches,
	// which then allocate.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	rt.Stock()
	for i := range 2000 {
		tick(i)
	}
	before := counted()
	for i := range ticks {
		tick(i)
	}
	// Silent for a while: keep-alives alone.
	time.Sleep(50 * time.Millisecond)
	mallocs := counted() - before
	t.Logf("%d observations, %d MB, %d chunks, %d mallocs, stats %+v", seen.Load(), observed.Load()>>20, chunks.Load(), mallocs, edge.Stats())
	if seen.Load() < int64(ticks)/2 || chunks.Load() < int64(ticks)/2 {
		t.Errorf("%d observations and %d chunks arrived of %d ticks: the test did not exercise the path", seen.Load(), chunks.Load(), ticks)
	}
	if mallocs != 0 {
		t.Errorf("%d mallocs in %d ticks, want 0", mallocs, ticks)
	}
}

func TestPutAllocatesNothing(t *testing.T) {
	server, at := listener(t, Config{Log: func(string) {}})
	if _, err := server.Subscribe("k", func(wire.Sample) {}); err != nil {
		t.Fatal(err)
	}
	edge := mustOpen(t, Config{Connect: []string{at}, Log: func(string) {}})
	pub, err := edge.Publisher("k", wire.QoS{Block: true, Reliable: true})
	if err != nil {
		t.Fatal(err)
	}
	payload := make([]byte, 20_000)
	for range 2000 {
		pub.Put(payload, payload[:27])
		pub.PutLatest(payload, payload[:27])
	}
	if n := testing.AllocsPerRun(1000, func() { pub.Put(payload, payload[:27]) }); n != 0 {
		t.Errorf("Put and its reception allocate %v times, want 0", n)
	}
	if n := testing.AllocsPerRun(1000, func() { pub.PutLatest(payload, payload[:27]) }); n != 0 {
		t.Errorf("PutLatest and its reception allocate %v times, want 0", n)
	}
}

// BenchmarkRoundTrip puts a sample that the other end's callback answers with
// another, beside a plain TCP echo of the same size.
func BenchmarkRoundTrip(b *testing.B) {
	for _, size := range []int{200, 60_000} {
		b.Run("transport=zenoh/bytes="+itoa(size), func(b *testing.B) { benchZenoh(b, size) })
		b.Run("transport=tcp/bytes="+itoa(size), func(b *testing.B) { benchTCP(b, size) })
	}
}

func itoa(n int) string {
	if n == 200 {
		return "200"
	}
	return "60000"
}

func benchZenoh(b *testing.B, size int) {
	server, err := Open(b.Context(), Config{Listen: []string{"tcp/127.0.0.1:0"}})
	if err != nil {
		b.Fatal(err)
	}
	defer server.Close()
	edge, err := Open(b.Context(), Config{Connect: server.(*Session).Endpoints()})
	if err != nil {
		b.Fatal(err)
	}
	defer edge.Close()
	pong, _ := server.Publisher("pong", wire.ActionQoS)
	server.Subscribe("ping", func(s wire.Sample) { pong.Put(s.Payload, nil) })
	back := make(chan struct{}, 1)
	edge.Subscribe("pong", func(wire.Sample) { back <- struct{}{} })
	ping, _ := edge.Publisher("ping", wire.ActionQoS)
	payload := make([]byte, size)
	for ready := false; !ready; {
		ping.Put(payload, nil)
		select {
		case <-back:
			ready = true
		case <-time.After(10 * time.Millisecond):
		}
	}
	b.ReportAllocs()
	b.SetBytes(int64(2 * size))
	for b.Loop() {
		ping.Put(payload, nil)
		<-back
	}
}

func benchTCP(b *testing.B, size int) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		buf := make([]byte, size)
		for {
			if _, err := io.ReadFull(conn, buf); err != nil {
				return
			}
			conn.Write(buf)
		}
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	buf := make([]byte, size)
	b.ReportAllocs()
	b.SetBytes(int64(2 * size))
	for b.Loop() {
		conn.Write(buf)
		io.ReadFull(conn, buf)
	}
}
