package zenoh

import (
	"math"
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
)

// counted returns the number of the process's mallocs so far. It does not allocate.
func counted() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// trip returns a function that sends a message of n bytes from a to b, whose callback answers with n bytes, and waits
// for the answer.
func trip(t *testing.T, a, b *Session, n int) func() {
	t.Helper()
	pong := rttest.Must(a.Publisher("@trip/pong", wire.ActionQoS))(t)
	rttest.Must(a.Subscribe("@trip/ping", func(s wire.Sample) { pong.Put(s.Payload, s.Attachment) }))(t)
	back := make(chan int, 1)
	rttest.Must(b.Subscribe("@trip/pong", func(s wire.Sample) { back <- len(s.Payload) }))(t)
	ping := rttest.Must(b.Publisher("@trip/ping", wire.ObservationQoS))(t)
	hearing(t, a, "@trip/pong")
	hearing(t, b, "@trip/ping")
	payload, head := make([]byte, n), make([]byte, wire.HeaderSize)
	timeout := time.NewTimer(time.Hour)
	t.Cleanup(func() { timeout.Stop() })
	return func() {
		rttest.Do(t, ping.Put(payload, head))
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

// Goal: over every transport, sending and receiving a message of any size allocates nothing. The only exception is
// crypto/tls, which allocates 24 bytes for each read from the socket, and reads at most twice for each record of 16
// KiB.
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
				a, at := listener(t, cfg.listen)
				dial := cfg.dial
				dial.Connect = []string{at}
				once := trip(t, a, mustOpen(t, dial), size)
				for range 500 {
					once()
				}
				// A goroutine of a session that has just ended may still allocate, so the test uses the best of three
				// measurements.
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

// stream publishes a sample of n bytes at the interval pace until stop is set, except while quiet is set. If latest
// is set, the samples vary in size and replace each other. stream counts the samples that arrive.
type stream struct {
	put      func(payload, attachment []byte) (replaced bool, err error)
	n        int
	pace     time.Duration
	latest   bool
	sent     int64
	arrived  atomic.Int64
	replaced int64
	failed   int64
}

func newStream(t *testing.T, from, to *Session, key string, n int, pace time.Duration, latest bool) *stream {
	t.Helper()
	st := &stream{n: n, pace: pace, latest: latest}
	rttest.Must(to.Subscribe(key, func(s wire.Sample) {
		if (latest || len(s.Payload) == n) && len(s.Attachment) == wire.HeaderSize {
			st.arrived.Add(1)
		}
	}))(t)
	hearing(t, from, key)
	pub := mustPublisher(t, from, key, wire.QoS{Priority: wire.Data, Reliable: true})
	st.put = pub.PutLatest
	if !latest {
		st.put = func(payload, attachment []byte) (bool, error) { return false, pub.Put(payload, attachment) }
	}
	return st
}

func (st *stream) run(stop, quiet *atomic.Bool) {
	payload := make([]byte, st.n)
	for pace := time.NewTicker(st.pace); !stop.Load(); <-pace.C {
		if quiet.Load() {
			continue
		}
		st.sent++
		size := st.n
		if st.latest { // some of these sizes need no fragments, as with pictures
			size = st.n/2 + int(st.sent*7919)%(st.n/2)
		}
		replaced, err := st.put(payload[:size], payload[:wire.HeaderSize])
		if replaced {
			st.replaced++
		}
		if err != nil {
			st.failed++
		}
	}
}

// soakTime returns how long TestSoakAllocatesNothing measures: the time in EDGERT_SOAK, such as 1m, or a short time.
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

// Goal: with messages of 64 B, 4 KiB and 50 to 100 KiB in fragments, in both directions at once, and
// then with keep-alives only, the process allocates nothing in the given time.
func TestSoakAllocatesNothing(t *testing.T) {
	rttest.RealTime(t) // real time determines how far queues and buffers fill
	// The garbage collector is off, as on an armed edge. A collection would empty the runtime's own caches, and filling
	// these again allocates.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	server, at := listener(t, Config{KeepAlive: 2 * time.Millisecond})
	edge := mustOpen(t, Config{Connect: []string{at}, KeepAlive: 2 * time.Millisecond})
	var streams []*stream
	for name, way := range map[string][2]*Session{"up": {edge, server}, "down": {server, edge}} {
		streams = append(streams,
			newStream(t, way[0], way[1], "@soak/"+name+"/64", 64, time.Millisecond, false),
			newStream(t, way[0], way[1], "@soak/"+name+"/4k", 4<<10, 5*time.Millisecond, false),
			newStream(t, way[0], way[1], "@soak/"+name+"/100k", 100<<10, 16*time.Millisecond, true))
	}
	rt.PrefillRuntime()
	var stop, quiet atomic.Bool
	var all sync.WaitGroup
	for _, st := range streams {
		all.Go(func() { st.run(&stop, &quiet) })
	}
	time.Sleep(2 * time.Second) // buffers grow to their final size in this time
	before, began := counted(), time.Now()
	time.Sleep(soakTime(t)) // the streams run during this time
	quiet.Store(true)
	time.Sleep(50 * time.Millisecond) // meanwhile only keep-alives are sent
	mallocs, took := counted()-before, time.Since(began)
	stop.Store(true)
	all.Wait()
	var sent, arrived, lost int64
	for _, st := range streams {
		given := st.replaced + st.failed
		rttest.Eventually(t, "what was sent", func() bool { return st.arrived.Load()+given == st.sent })
		sent = sent + st.sent
		arrived = arrived + st.arrived.Load()
		lost = lost + given
	}
	t.Logf("%d messages in %v: %d arrived, %d replaced or dropped, %d mallocs", sent, took.Round(time.Millisecond),
		arrived, lost, mallocs)
	if mallocs != 0 || arrived < sent/2 {
		t.Errorf("%d mallocs in %v, %d of %d arrived; want 0 mallocs, and at least half", mallocs, took, arrived, sent)
	}
}
