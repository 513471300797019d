package zenoh_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim/netfault"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
	"github.com/edge-rt/edge-rt/wire/zenoh/zenohtest"
)

// chaosTime returns how long TestChaos runs. make soak OF=router sets ten minutes.
func chaosTime(t *testing.T) time.Duration {
	d, err := time.ParseDuration(os.Getenv("CHAOS"))
	if err != nil {
		return 12 * time.Second
	}
	t.Logf("for %v", d)
	return d
}

const (
	killEvery = 5 * time.Second // time from one kill of the router to the next
	foulEvery = 700 * time.Millisecond
)

// once records the numbers of samples. It counts samples that arrive twice or after a newer one: each number is sent
// once, so it must not arrive twice.
type once struct {
	mu    sync.Mutex
	last  map[uint64]uint64 // publisher -> its newest number
	old   int               // arrived twice, or after a newer one
	count atomic.Uint64
}

func (o *once) deposit(s wire.Sample) {
	who, n := binary.LittleEndian.Uint64(s.Payload), binary.LittleEndian.Uint64(s.Payload[8:])
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last == nil {
		o.last = map[uint64]uint64{}
	}
	if n <= o.last[who] {
		o.old++
	}
	o.last[who] = n
	o.count.Add(1)
}

func (o *once) repeated() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.old
}

// robot is one session that dials through a proxy, with a declaration of every kind.
type robot struct {
	id   uint64
	s    wire.Session
	way  *netfault.Proxy
	pub  wire.Publisher
	n    atomic.Uint64 // number of the last sample that the robot put
	seen once

	mu    sync.Mutex
	alive map[string]int // how often each token appeared, minus how often it vanished; guarded by mu
}

func joinRobot(t *testing.T, id uint64, at string) *robot {
	t.Helper()
	way := rttest.Must(netfault.NewProxy(at))(t)
	t.Cleanup(way.Close)
	r := &robot{id: id, way: way, alive: map[string]int{}}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r.s = rttest.Must(zenoh.Open(ctx, zenoh.Config{Connect: []string{way.Endpoint()},
		BackoffMin: 20 * time.Millisecond, BackoffMax: 300 * time.Millisecond}))(t)
	t.Cleanup(func() { r.s.Close() })
	rttest.Must(r.s.Subscribe("chaos/*/data", r.seen.deposit))(t)
	rttest.Must(r.s.Queryable(r.key("status"), func(q wire.Query) { q.Reply(r.key("status"), nil); q.Finish() }))(t)
	rttest.Must(r.s.Token(r.key("alive")))(t)
	rttest.Must(r.s.SubscribeTokens("chaos/*/alive", func(key string, alive bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if alive {
			r.alive[key]++
		} else {
			r.alive[key]--
		}
	}))(t)
	r.pub = rttest.Must(r.s.Publisher(r.key("data"), wire.QoS{Priority: wire.Data, Reliable: true}))(t)
	return r
}

func (r *robot) key(what string) string { return fmt.Sprintf("chaos/%d/%s", r.id, what) }

// talk puts samples of all sizes until done is closed.
func (r *robot) talk(done <-chan struct{}) {
	payload := make([]byte, 100_000)
	binary.LittleEndian.PutUint64(payload, r.id)
	rng := rand.New(rand.NewPCG(r.id, 1))
	for {
		select {
		case <-done:
			return
		case <-time.After(2 * time.Millisecond):
		}
		binary.LittleEndian.PutUint64(payload[8:], r.n.Add(1))
		size := 16 + rng.IntN(2000)
		if rng.IntN(20) == 0 {
			size = 60_000 + rng.IntN(40_000)
		}
		r.pub.Put(payload[:size], nil)
	}
}

// sees returns the number of tokens that, by the watcher's reports, are alive.
func (r *robot) sees() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range r.alive {
		n += min(v, 1)
	}
	return n
}

// foul disturbs one robot's connection in one way, or restores it.
func foul(way *netfault.Proxy) {
	switch rand.IntN(6) {
	case 0:
		way.Cut()
	case 1:
		way.Delay(50 * time.Millisecond)
	case 2:
		way.Slow(100_000)
	case 3:
		way.Set(netfault.CutUp | netfault.CutDown)
	default:
		heal(way)
	}
}

func heal(way *netfault.Proxy) {
	way.Set(netfault.Whole)
	way.Slow(0)
	way.Delay(0)
}

// Goal: a router is killed and restarted every few seconds, and the network cuts, delays and stalls connections. The
// sessions reconnect without help, with all their declarations; no sample arrives twice or out of order; and
// goroutines, descriptors and memory do not grow.
func TestChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds at least")
	}
	at, restart := hub(t)
	const n = 4
	var robots []*robot
	for i := range n {
		robots = append(robots, joinRobot(t, uint64(i+1), at))
	}
	done := make(chan struct{})
	var talking sync.WaitGroup
	for _, r := range robots {
		talking.Go(func() { r.talk(done) })
	}
	whole(t, robots, "at first")
	early := measure(t)
	kill := time.Now().Add(killEvery)
	kills := 0
	// Faults come at this interval until the test ends.
	for end := time.Now().Add(chaosTime(t)); time.Now().Before(end); time.Sleep(foulEvery) {
		foul(robots[rand.IntN(n)].way)
		if time.Now().After(kill) {
			restart()
			kills++
			kill = time.Now().Add(killEvery)
		}
		if kills == 2 && !early.warm {
			for _, r := range robots { // measure with all links up, because a link that is down takes no memory
				heal(r.way)
			}
			whole(t, robots, "before the early measurement")
			early = measure(t)
			early.warm = true
		}
	}
	for _, r := range robots {
		heal(r.way)
	}
	whole(t, robots, "at last")
	late := measure(t)
	var stacks strings.Builder
	pprof.Lookup("goroutine").WriteTo(&stacks, 1)
	close(done)
	talking.Wait()
	var sent, got, cuts uint64
	for _, r := range robots {
		sent = sent + r.n.Load()
		got = got + r.seen.count.Load()
		cuts = cuts + r.way.Cuts.Load()
		rttest.Want(t, r.seen.repeated(), 0, "robot %d: samples twice or out of order", r.id)
	}
	t.Logf("%d router kills, %d connection ends cut, %d samples put, %d arrived (each goes to %d)", kills, cuts, sent,
		got, n)
	t.Logf("early %v, late %v", early, late)
	if late.goroutines > early.goroutines+20 || late.files > early.files+20 {
		t.Errorf("goroutines or descriptors grew: early %v, late %v:\n%s", early, late, &stacks)
	}
	if late.rss > early.rss+64<<20 {
		t.Errorf("memory grew: early %v, late %v", early, late)
	}
}

// hub starts an official router as a separate process, or a listener of ours if the official router is not installed.
// restart ends it, the official router by a kill, and starts it again on the same port.
func hub(t *testing.T) (at string, restart func()) {
	python := zenohtest.Python{Path: os.Getenv("EDGERT_PYTHON")}
	if _, err := python.Check(); err != nil {
		t.Logf("%v: a listener of ours is the router", err)
		open := func(at string) *zenoh.Session {
			return rttest.Must(zenoh.Open(t.Context(), zenoh.Config{Listen: []string{at}}))(t).(*zenoh.Session)
		}
		s := open("tcp/127.0.0.1:0")
		at := s.Endpoints()[0]
		t.Cleanup(func() { s.Close() })
		return at, func() { s.Close(); s = open(at) }
	}
	proxy := rttest.Must(netfault.NewProxy("tcp/127.0.0.1:1"))(t) // a free port
	at = proxy.Endpoint()
	proxy.Close()
	start := func() *zenohtest.Node {
		n := rttest.Must(zenohtest.Start(python))(t)
		rttest.Must(n.Open(zenohtest.Config{Mode: "router", Listen: []string{at}}))(t)
		return n
	}
	n := start()
	t.Cleanup(func() { n.Kill() })
	return at, func() { n.Kill(); n = start() }
}

// whole waits until every robot receives samples from every other robot, gets answers to its
// queries from it, and sees its token.
func whole(t *testing.T, robots []*robot, when string) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for _, r := range robots {
		for {
			before := r.seen.received()
			replies, _ := r.s.Get(t.Context(), "chaos/*/status", nil, time.Second)
			time.Sleep(50 * time.Millisecond) // meanwhile every robot puts samples
			after := r.seen.received()
			news := 0
			for who, n := range after {
				if n > before[who] {
					news++
				}
			}
			if others := len(robots) - 1; len(replies) == others && r.sees() == len(robots) && news == others {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: robot %d receives from %d, gets %d replies and sees %d tokens of %d", when, r.id, news,
					len(replies), r.sees(), len(robots))
			}
		}
	}
}

// received returns the newest number of every publisher.
func (o *once) received() map[uint64]uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.last)
}

// weight is the amount of resources that the process uses. A leak would increase one of them.
type weight struct {
	goroutines, files int
	rss               int64
	warm              bool
}

func (w weight) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, %d MiB resident", w.goroutines, w.files, w.rss>>20)
}

func measure(t *testing.T) weight {
	t.Helper()
	runtime.GC()
	files, _ := filepath.Glob("/proc/self/fd/*")
	statm := rttest.ReadFile(t, "/proc/self/statm")
	pages, _ := strconv.ParseInt(strings.Fields(statm)[1], 10, 64)
	return weight{goroutines: runtime.NumGoroutine(), files: len(files), rss: pages * int64(os.Getpagesize())}
}
