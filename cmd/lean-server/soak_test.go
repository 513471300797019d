package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/stage"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
	"github.com/edge-rt/edge-rt/wire/zenoh/access"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint/endpointtest"
	"github.com/edge-rt/edge-rt/wire/zenoh/zenohtest"
)

var (
	soakFor  = flag.Duration("soak", 8*time.Second, "duration of TestSoak")
	soakSeed = flag.Uint64("soak-seed", 1, "seed of TestSoak's random numbers")
)

const (
	soakRobots  = 6
	soakMemory  = 128 << 20 // the manifest's memory
	soakGarbage = 96 << 20  // memory above soakMemory for Go's garbage and the allocator's free memory
	soakAnswer  = 5 * time.Second
	soakSettle  = 90 * time.Second // longest time until the server has freed the memory for all clients
)

// soak is a real server, the robots that it serves and hostile clients.
type soak struct {
	t      *testing.T
	r      *running
	prefix string
	model  wire.Observation // observation of the robots, without state and prefix
	tls    map[string]zenoh.Config
	over   context.Context

	chunks, opens, closes, kills, unanswered, events, foreign, denied atomic.Uint64

	mu      sync.Mutex
	refused map[string]int // refusals by their first words; guarded by mu
}

// soakRobot is an honest robot. It must not get a chunk that was made for another robot.
type soakRobot struct {
	*soak
	random  *rand.Rand
	n       int // number of the robot, which its committed actions contain
	uuid    string
	cfg     zenoh.Config
	epoch   uint32
	network wire.Session
	session string
	obs     wire.Publisher
	got     chan wire.ActionChunk
	seq     uint64
}

// rows returns the robot's committed actions in its request number seq. No other robot sends equal
// ones.
func (r *soakRobot) rows(seq uint64) []float32 {
	rows := make([]float32, 18)
	for i := range rows {
		rows[i] = []float32{40, -30, 90, 10, -40, 10}[i%6] + float32(r.n)*0.5 + float32(seq%16)*0.03
	}
	return rows
}

// join opens a link and a session, and tries again until it succeeds or the test is over.
func (r *soakRobot) join() {
	for r.over.Err() == nil && r.network == nil {
		network, err := zenoh.Open(r.over, r.cfg)
		if err != nil {
			return // the test is over
		}
		r.epoch++
		alive, _ := wire.EpochAliveKey(r.prefix, r.uuid, r.epoch)
		action, _ := wire.ActionKey(r.prefix, r.uuid)
		key, _ := wire.ObsKey(r.prefix, r.uuid)
		_, err1 := network.Token(alive)
		_, err2 := network.Subscribe(action, r.receive)
		obs, err3 := network.Publisher(key, wire.ObservationQoS)
		if err1 != nil || err2 != nil || err3 != nil {
			network.Close() // the server ended the link meanwhile
			continue
		}
		o := demoOpen(r.t, r.uuid)
		o.SessionEpoch = r.epoch
		o.Instance = fmt.Sprintf("soak-%d", r.n)
		o.Host = "soak"
		for r.over.Err() == nil {
			ack, ok := r.open(network, o)
			if ok && ack.Accepted {
				r.session = ack.SessionID
				r.seq = 0
				r.network = network
				r.obs = obs
				r.opens.Add(1)
				break
			}
			if ok && !ack.Temporary() {
				r.t.Errorf("%s is refused for good: %s", r.uuid, ack.Error)
			}
			stage.Sleep(r.over, max(100*time.Millisecond, time.Duration(ack.RetryAfterMs)*time.Millisecond))
		}
		if r.network == nil {
			network.Close()
		}
	}
}

// open requests a session, and checks that a refusal has a reason. ok is false if no answer comes.
func (s *soak) open(network wire.Session, o wire.SessionOpen) (ack wire.SessionAck, ok bool) {
	key, _ := wire.RobotSessionKey(s.prefix, o.ClientUUID)
	replies, err := network.Get(s.t.Context(), key, wire.Append(nil, &o), soakAnswer)
	if err != nil || len(replies) == 0 {
		return ack, false
	}
	if replies[0].Err {
		if access.IsDenied(replies[0].Payload) {
			s.denied.Add(1)
		}
		return ack, false
	}
	if err := wire.Parse(&ack, replies[0].Payload); err != nil {
		s.t.Errorf("an open is answered with %q: %v", replies[0].Payload, err)
		return ack, false
	}
	if !ack.Accepted {
		words := strings.Fields(ack.Error)
		if len(words) < 3 {
			s.t.Errorf("a refusal without words: %+v", ack)
		}
		s.mu.Lock()
		s.refused[strings.Join(words[:min(2, len(words))], " ")]++
		s.mu.Unlock()
	}
	return ack, true
}

func (r *soakRobot) receive(sample wire.Sample) {
	h, err := wire.ParseHeader(sample.Attachment)
	if err == nil && h.MsgType == wire.MsgEvent {
		r.events.Add(1)
		var e wire.Event
		if err := wire.Parse(&e, sample.Payload); err != nil || e.Text == "" {
			r.t.Errorf("%s got an event without words: %q, %v", r.uuid, sample.Payload, err)
		}
		return
	}
	var c wire.ActionChunk
	if err == nil {
		err = wire.ParseActionChunk(&c, sample.Payload)
	}
	if err != nil {
		r.t.Errorf("%s got what is no chunk: %v", r.uuid, err)
		return
	}
	want := r.rows(c.SeqIDEcho)
	for i, v := range want {
		if got := c.ChunkRobot.Data[i]; got-v > 5e-3 || v-got > 5e-3 {
			r.foreign.Add(1)
			r.t.Errorf("%s, request %d: row value %d is %v, want its own %v: a chunk of another", r.uuid, c.SeqIDEcho,
				i, got, v)
			return
		}
	}
	select {
	case r.got <- c:
	default:
	}
}

// ask sends an observation and waits a limited time for its chunk.
func (r *soakRobot) ask() {
	r.seq++
	body := r.model
	rows := r.rows(r.seq)
	body.State = rows[:6]
	body.PrefixRobot = wire.Matrix{Rows: 3, Cols: 6, Data: rows}
	body.InferenceDelaySteps = 3
	if r.obs.Put(wire.AppendObservation(nil, &body), headOf(r.seq, r.epoch)) != nil {
		return
	}
	for {
		select {
		case c := <-r.got:
			if c.SeqIDEcho == r.seq {
				r.chunks.Add(1)
				return
			}
		case <-time.After(time.Second):
			r.unanswered.Add(1)
			return
		case <-r.over.Done():
			return
		}
	}
}

// live is a robot's life: it requests chunks, and now and then closes its session, dies, or sends
// nonsense.
func (r *soakRobot) live() {
	lost := 0
	for r.over.Err() == nil {
		if r.network == nil {
			r.join()
			continue
		}
		before := r.unanswered.Load()
		switch r.random.IntN(60) {
		case 0: // the robot closes its session and leaves
			key, _ := wire.RobotSessionKey(r.prefix, r.uuid)
			_, _ = r.network.Get(r.over, key, wire.Append(nil,
				&wire.SessionClose{ClientUUID: r.uuid, SessionID: r.session}), soakAnswer)
			r.closes.Add(1)
			r.leave()
		case 1: // the robot leaves like a killed process
			r.kills.Add(1)
			r.leave()
		case 2:
			_ = r.obs.Put([]byte("no observation"), []byte("no header"))
		case 3:
			r.seq++
			_ = r.obs.Put(nonsense(r.random), headOf(r.seq, r.epoch))
		default:
			r.ask()
		}
		stage.Sleep(r.over, time.Duration(20+r.random.IntN(60))*time.Millisecond)
		if r.unanswered.Load() == before {
			lost = 0
		} else if lost++; lost >= 5 && r.network != nil { // the server ended the session meanwhile
			lost = 0
			r.leave()
		}
	}
	if r.network != nil {
		r.leave()
	}
}

func (r *soakRobot) leave() {
	_ = r.network.Close()
	r.network = nil
}

func nonsense(random *rand.Rand) []byte {
	b := make([]byte, random.IntN(20_000))
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}

// duplicates opens sessions, as second processes would, under the names of running robots.
func (s *soak) duplicates(random *rand.Rand) {
	for s.over.Err() == nil {
		network, err := zenoh.Open(s.over, zenoh.Config{Connect: []string{s.r.endpoint}})
		if err != nil {
			return
		}
		o := demoOpen(s.t, fmt.Sprintf("arm-%d", random.IntN(soakRobots)))
		o.SessionEpoch = 1 << 20
		o.Instance = "thief"
		o.Host = "elsewhere"
		if ack, ok := s.open(network, o); ok && ack.Accepted { // the robot was away
			key, _ := wire.RobotSessionKey(s.prefix, o.ClientUUID)
			_, _ = network.Get(s.t.Context(), key, wire.Append(nil,
				&wire.SessionClose{ClientUUID: o.ClientUUID, SessionID: ack.SessionID}), soakAnswer)
		}
		stage.Sleep(s.over, time.Duration(50+random.IntN(200))*time.Millisecond)
		_ = network.Close()
	}
}

// crowds acts like a series of processes, each of which opens many sessions, floods them with the largest pictures
// that a link carries, and dies.
func (s *soak) crowds(random *rand.Rand) {
	for life := 0; s.over.Err() == nil; life++ {
		network, err := zenoh.Open(s.over, zenoh.Config{Connect: []string{s.r.endpoint}})
		if err != nil {
			return
		}
		var all []wire.Publisher
		for i := range 20 {
			o := demoOpen(s.t, fmt.Sprintf("bot-%d-%d", life%50, i))
			if alive, _ := wire.ClientAliveKey(s.prefix, o.ClientUUID); *soakFor < time.Minute {
				_, _ = network.Token(alive) // for a robot without a token, the server would wait for 15 to 30 s
			}
			if ack, ok := s.open(network, o); !ok || !ack.Accepted {
				continue
			}
			key, _ := wire.ObsKey(s.prefix, o.ClientUUID)
			if p, err := network.Publisher(key, wire.ObservationQoS); err == nil {
				all = append(all, p)
			}
		}
		body := s.model
		body.State = []float32{40, -30, 90, 10, -40, 10}
		body.RunwayMs, body.HasRunway = 1, true
		body.Images = append(slices.Clone(body.Images),
			wire.Image{Name: "observation.images.side", Data: make([]byte, 1+random.IntN(4<<20))})
		flood := wire.AppendObservation(nil, &body)
		for i := range 60 {
			for _, p := range all {
				_ = p.Put(flood, headOf(uint64(i+1), 0))
			}
			stage.Sleep(s.over, 20*time.Millisecond)
		}
		_ = network.Close()
	}
}

// thieves opens sessions under a robot's name with the certificate of another robot.
func (s *soak) thieves(random *rand.Rand) {
	for s.over.Err() == nil {
		network, err := zenoh.Open(s.over, s.tls["cert-thief"])
		if err != nil {
			return
		}
		victim := fmt.Sprintf("cert-%d", random.IntN(2))
		if ack, ok := s.open(network, demoOpen(s.t, victim)); ok && ack.Accepted {
			s.t.Errorf("another robot's certificate opened %s's session", victim)
		}
		key, _ := wire.ObsKey(s.prefix, victim)
		if p, err := network.Publisher(key, wire.ObservationQoS); err == nil {
			_ = p.Put([]byte("stolen"), headOf(1<<62, 1<<30))
		}
		stage.Sleep(s.over, time.Duration(100+random.IntN(300))*time.Millisecond)
		_ = network.Close()
	}
}

// attacks runs zenohtest's attacks, one after the other.
func (s *soak) attacks(random *rand.Rand) {
	for s.over.Err() == nil {
		x := zenohtest.Attacks[random.IntN(len(zenohtest.Attacks))].Start(s.r.endpoint, time.Second)
		for s.over.Err() == nil && !x.Wait(100*time.Millisecond) {
		}
		x.Close()
		stage.Sleep(s.over, time.Second)
	}
}

// watch measures the server's memory until the test is over and returns the peak.
func (s *soak) watch() (peak int64) {
	for s.over.Err() == nil {
		now, _ := zenohtest.Resident(s.t, s.r.Process.Pid)
		peak = max(peak, int64(now))
		stage.Sleep(s.over, 50*time.Millisecond)
	}
	return peak
}

// leftover returns the metric that still counts clients that have left; "": no metric does.
func leftover(before, now map[string]float64) string {
	for _, name := range []string{
		"lean_server_active_sessions", `lean_server_memory_bytes{part="sessions"}`,
		`lean_server_memory_bytes{part="observations"}`, "lean_server_memory_promised_bytes",
	} {
		if now[name] != 0 {
			return fmt.Sprintf("%s is %v", name, now[name])
		}
	}
	for name, more := range map[string]float64{"go_goroutines": 8, "process_open_fds": 8} {
		if now[name] > before[name]+more {
			return fmt.Sprintf("%s is %v, and was %v", name, now[name], before[name])
		}
	}
	return ""
}

// Goal: the real server serves robots and hostile clients for minutes (random opens, closes, kills, second owners of
// names, nonsense, floods, hostile nodes, certificates of others). No robot gets the chunk of another robot, as its
// committed rows prove. The memory stays within its bound, and every refusal and event has a reason. When all clients
// have left, nothing of them remains. make soak OF=server runs it for ten minutes.
func TestSoak(t *testing.T) {
	rttest.RealTime(t)
	t.Parallel() // beside another test that mostly waits
	if testing.Short() {
		t.Skip("a minute")
	}
	ca := endpointtest.New(t)
	cert, key := ca.Issue("server", "localhost", "127.0.0.1")
	secure := "tls/localhost:" + freePort(t)
	r, network, prefix := serve(t, "--quiet", "--listen", secure, "--manifest", writeManifest(t, fmt.Sprintf(`%s
max_sessions: 24
memory: %dMiB
zenoh: {tls: {root_ca_certificate: %q, listen_certificate: %q, listen_private_key: %q, enable_mtls: true}}
`, demoBundle(t), soakMemory>>20, ca.CA, cert, key)))
	model := newArmNamed(t, network, "model")
	model.ask()
	over, end := context.WithTimeout(t.Context(), *soakFor)
	defer end()
	s := &soak{
		t:       t,
		r:       r,
		prefix:  prefix,
		model:   model.Observation,
		tls:     map[string]zenoh.Config{},
		over:    over,
		refused: map[string]int{},
	}
	_ = network.Close()
	for _, name := range []string{"cert-0", "cert-1", "cert-thief"} {
		cert, key := ca.Issue(name)
		s.tls[name] = zenoh.Config{Connect: []string{secure},
			TLS: endpoint.Security{RootCA: ca.CA, ConnectCertificate: cert, ConnectKey: key}}
	}
	before := r.metrics()
	idle, _ := zenohtest.Resident(t, r.Process.Pid)
	var all sync.WaitGroup
	for i := range soakRobots + 2 {
		robot := &soakRobot{
			soak:   s,
			random: rand.New(rand.NewPCG(*soakSeed, uint64(i))),
			n:      i,
			uuid:   fmt.Sprintf("arm-%d", i),
			cfg:    zenoh.Config{Connect: []string{r.endpoint}},
			got:    make(chan wire.ActionChunk, 4),
		}
		if i >= soakRobots {
			robot.uuid = fmt.Sprintf("cert-%d", i-soakRobots)
			robot.cfg = s.tls[robot.uuid]
		}
		all.Go(robot.live)
	}
	for i, others := range []func(*rand.Rand){s.duplicates, s.crowds, s.thieves, s.attacks} {
		all.Go(func() { others(rand.New(rand.NewPCG(*soakSeed, uint64(100+i)))) })
	}
	peak := s.watch()
	all.Wait()
	t.Logf("%v: %d chunks, %d unanswered, %d events; %d opens, %d closes, %d kills, %d denied; RSS %d MB idle, at "+
		"most %d MB; refused: %v", *soakFor,
		s.chunks.Load(), s.unanswered.Load(), s.events.Load(), s.opens.Load(), s.closes.Load(), s.kills.Load(),
		s.denied.Load(), idle>>20, peak>>20, s.refused)
	if peak-int64(idle) > soakMemory+soakGarbage {
		t.Errorf("the server grew by %d MB, want at most %d", (peak-int64(idle))>>20, (soakMemory+soakGarbage)>>20)
	}
	if s.chunks.Load() < uint64(soakFor.Seconds()) || s.opens.Load() < soakRobots || s.denied.Load() == 0 ||
		len(s.refused) < 2 {
		t.Errorf("too little happened: %v", slices.Collect(maps.Keys(s.refused)))
	}
	left := ""
	// For soakSettle, sessions may outlive their robots.
	for began := time.Now(); time.Since(began) < soakSettle; time.Sleep(time.Second) {
		if left = leftover(before, s.r.metrics()); left == "" {
			break
		}
	}
	rttest.Want(t, left, "", "%v after all have gone", soakSettle)
	if sum := r.stop(syscall.SIGTERM); sum.Memory.MostMB > sum.Memory.LimitMB {
		t.Errorf("memory %+v", sum.Memory)
	} else {
		t.Logf("memory %.0f of %.0f MB at most; %d requests, %d errors; refusals %v", sum.Memory.MostMB,
			sum.Memory.LimitMB, sum.Requests, sum.Errors, sum.Refusals)
	}
}
