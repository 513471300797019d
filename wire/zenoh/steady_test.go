package zenoh

import (
	"errors"
	"io"
	"math"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh/link"
)

// counted reads the process's mallocs without allocating.
func counted() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// Goal: an edge and a server exchange observations of varying size, with attachments, and chunks,
// with keep-alives in between, and after warm-up the whole process, goroutines of both sessions
// included, allocates nothing.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	rttest.RealTime(t) // real time determines how far queues and buffers fill
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
	plain, err := edge.Publisher("@m/r1/obs", wire.QoS{Priority: 4, Reliable: true})
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
		// A host that takes a core away makes Put drop, as intended.
		if err := plain.Put(payload[:200], head); err != nil && !errors.Is(err, link.ErrCongested) {
			t.Errorf("Put = %v", err)
		}
		<-pace.C
	}
	ticks := 10_000
	if testing.Short() {
		ticks = 1000
	}
	// As on an armed edge, the collector is off: a collection would empty the runtime's own caches,
	// which then allocate.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	rt.PrefillRuntime()
	for i := range 2000 {
		tick(i)
	}
	mallocs := fewestMallocs(t, func() {
		seen.Store(0)
		chunks.Store(0)
		for i := range ticks {
			tick(i)
		}
		// A silence, with keep-alives only.
		time.Sleep(50 * time.Millisecond)
		if seen.Load() < int64(ticks)/2 || chunks.Load() < int64(ticks)/2 {
			t.Errorf("%d observations and %d chunks arrived of %d ticks: the test did not exercise the path",
				seen.Load(), chunks.Load(), ticks)
		}
	})
	t.Logf("%d observations, %d MB in all, %d chunks, %d mallocs, stats %+v", seen.Load(), observed.Load()>>20,
		chunks.Load(), mallocs, edge.Stats())
	if mallocs != 0 {
		t.Errorf("%d mallocs in %d ticks, want 0", mallocs, ticks)
	}
}

// fewestMallocs runs a window until it allocates nothing, at most three times, and returns the
// fewest mallocs. Allocations that happen once, such as another thread of the runtime on a busy
// machine, do not recur in the next window; those of each message or tick recur in every window.
func fewestMallocs(t *testing.T, window func()) (fewest uint64) {
	t.Helper()
	fewest = math.MaxUint64
	for try := 1; try <= 3 && fewest > 0 && !t.Failed(); try++ {
		before := counted()
		window()
		n := counted() - before
		fewest = min(fewest, n)
		if n > 0 {
			t.Logf("window %d: %d mallocs", try, n)
		}
	}
	return fewest
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

// BenchmarkRoundTrip measures a sample that the other end's callback answers with another, beside a
// plain TCP echo of the same size.
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

// trip is a ping that the other end's callback answers, both of n bytes.
func trip(t *testing.T, a, b *Session, n int) func() {
	t.Helper()
	pong, err := a.Publisher("@trip/pong", wire.ActionQoS)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Subscribe("@trip/ping", func(s wire.Sample) { pong.Put(s.Payload, s.Attachment) }); err != nil {
		t.Fatal(err)
	}
	back := make(chan int, 1)
	if _, err := b.Subscribe("@trip/pong", func(s wire.Sample) { back <- len(s.Payload) }); err != nil {
		t.Fatal(err)
	}
	ping, err := b.Publisher("@trip/ping", wire.ObservationQoS)
	if err != nil {
		t.Fatal(err)
	}
	hearing(t, a, "@trip/pong")
	hearing(t, b, "@trip/ping")
	payload, head := make([]byte, n), make([]byte, wire.HeaderSize)
	timeout := time.NewTimer(time.Hour)
	t.Cleanup(func() { timeout.Stop() })
	return func() {
		if err := ping.Put(payload, head); err != nil {
			t.Fatal(err)
		}
		timeout.Reset(10 * time.Second)
		select {
		case got := <-back:
			if got != n {
				t.Fatalf("%d bytes came back, want %d", got, n)
			}
		case <-timeout.C:
			t.Fatal("nothing came back in 10 s")
		}
	}
}

// Goal: a message of any size allocates nothing, neither sent nor received, over every transport.
// crypto/tls allocates 24 bytes per read from the socket, at most two reads for each of the 16 KiB
// records of a message, which the standard library does not let us avoid.
func TestEverySizeAllocatesNothing(t *testing.T) {
	rttest.RealTime(t) // real time determines how far queues and buffers fill
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	rt.PrefillRuntime()
	for name, cfg := range transports(t) {
		if testing.Short() && (name == "tls" || name == "mtls") {
			continue // the race detector empties the pools of crypto/tls at random
		}
		for _, size := range []int{64, 4096, 100_000} {
			t.Run(name+"/"+strconv.Itoa(size), func(t *testing.T) {
				cfg.listen.Listen = append([]string(nil), cfg.listen.Listen...)
				cfg.listen.Log = func(string) {}
				a, at := listener(t, cfg.listen)
				dial := cfg.dial
				dial.Connect, dial.Log = []string{at}, func(string) {}
				once := trip(t, a, mustOpen(t, dial), size)
				for range 500 {
					once()
				}
				// A goroutine of a session that has just ended may still allocate, so the best of
				// three windows is taken.
				const trips = 1000
				mallocs := uint64(math.MaxUint64)
				for i := 0; i < 3 && mallocs > 0; i++ {
					before := counted()
					for range trips {
						once()
					}
					mallocs = min(mallocs, counted()-before)
				}
				perMessage := float64(mallocs) / (2 * trips)
				t.Logf("%.3f mallocs per message of %d bytes", perMessage, size)
				most := 0.0
				if name == "tls" || name == "mtls" {
					most = float64(2 * (1 + size/16384))
				}
				if perMessage > most {
					t.Errorf("%.3f mallocs per message, want at most %v", perMessage, most)
				}
				a.Close()
			})
		}
	}
}

// stream publishes n bytes every pace until stop, and counts the arriving samples.
type stream struct {
	pub      wire.Publisher
	payload  []byte
	pace     *time.Ticker
	latest   bool
	sent     atomic.Int64
	arrived  atomic.Int64
	replaced atomic.Int64
	failed   atomic.Int64
}

func newStream(t *testing.T, from, to *Session, key string, n int, pace time.Duration, latest bool) *stream {
	t.Helper()
	st := &stream{payload: make([]byte, n), pace: time.NewTicker(pace), latest: latest}
	if _, err := to.Subscribe(key, func(s wire.Sample) {
		if len(s.Payload) == n && len(s.Attachment) == wire.HeaderSize {
			st.arrived.Add(1)
		}
	}); err != nil {
		t.Fatal(err)
	}
	hearing(t, from, key)
	var err error
	if st.pub, err = from.Publisher(key, wire.QoS{Priority: wire.Data, Reliable: true}); err != nil {
		t.Fatal(err)
	}
	return st
}

func (st *stream) run(stop *atomic.Bool) {
	head := st.payload[:wire.HeaderSize]
	for !stop.Load() {
		<-st.pace.C
		st.sent.Add(1)
		var err error
		if st.latest {
			var replaced bool
			if replaced, err = st.pub.PutLatest(st.payload, head); replaced {
				st.replaced.Add(1)
			}
		} else {
			err = st.pub.Put(st.payload, head)
		}
		if err != nil {
			st.failed.Add(1)
		}
	}
}

// soakTime returns how long TestSoak measures: EDGERT_SOAK, such as 1m, else the limit for a test.
func soakTime(t *testing.T) time.Duration {
	if text := os.Getenv("EDGERT_SOAK"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			t.Fatalf("EDGERT_SOAK=%q, want a duration such as 1m", text)
		}
		return d
	}
	if testing.Short() {
		return 500 * time.Millisecond
	}
	return 2 * time.Second
}

// Goal: with messages of 64 B, 4 KiB and 100 KiB in fragments, in both directions at once, the
// process allocates nothing in the given time.
func TestSoakAllocatesNothing(t *testing.T) {
	rttest.RealTime(t) // real time determines how far queues and buffers fill
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	server, at := listener(t, Config{Log: func(string) {}})
	edge := mustOpen(t, Config{Connect: []string{at}, Log: func(string) {}})
	var streams []*stream
	for _, way := range []struct {
		name     string
		from, to *Session
	}{{"up", edge, server}, {"down", server, edge}} {
		streams = append(streams,
			newStream(t, way.from, way.to, "@soak/"+way.name+"/64", 64, time.Millisecond, false),
			newStream(t, way.from, way.to, "@soak/"+way.name+"/4k", 4<<10, 5*time.Millisecond, false),
			newStream(t, way.from, way.to, "@soak/"+way.name+"/100k", 100<<10, 16*time.Millisecond, true))
	}
	rt.PrefillRuntime()
	var stop atomic.Bool
	var all sync.WaitGroup
	for _, st := range streams {
		all.Add(1)
		go func() { defer all.Done(); st.run(&stop) }()
	}
	time.Sleep(2 * time.Second) // buffers grow to their size first
	before, began := counted(), time.Now()
	time.Sleep(soakTime(t)) // the streams run meanwhile
	mallocs, took := counted()-before, time.Since(began)
	stop.Store(true)
	all.Wait()
	var sent, arrived, lost int64
	for _, st := range streams {
		given := st.replaced.Load() + st.failed.Load()
		rttest.Eventually(t, "what was sent", func() bool { return st.arrived.Load()+given == st.sent.Load() })
		sent = sent + st.sent.Load()
		arrived = arrived + st.arrived.Load()
		lost = lost + given
	}
	t.Logf("%d messages in %v: %d arrived, %d replaced or dropped, %d mallocs", sent, took.Round(time.Millisecond),
		arrived, lost, mallocs)
	if mallocs != 0 {
		t.Errorf("%d mallocs in %v, want 0", mallocs, took)
	}
}
