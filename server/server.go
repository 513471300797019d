// Package server serves one exported policy to many robots.
//
// An observation arrives on the transport's receiving goroutine, which copies
// it into its robot's mailbox (steward.go, mailbox.go) and returns. The worker, one
// locked thread that owns the model, takes the newest observation of the robot
// whose turn it is (session.go), decodes it straight into the model's tensors
// (tensor.go), infers, and publishes the chunk with the observation's header on
// the robot's action key (worker.go), dropping it rather than waiting for a
// robot whose link is full. Nothing on that way allocates once buffers have
// grown to the robots' sizes, and the garbage collector is off meanwhile.
//
// The steward is the goroutine for everything slow: it answers status, session
// and reset queries (control.go, validate.go), tells robots what went wrong, and
// closes the sessions of robots that left (steward.go).
//
// The manifest (package manifest) says what is served; health.go shows how
// it goes. What a policy needs travels with each request, so a server that dies
// takes nothing with it: its robots open a session at the next one.
package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"edgert/policy"
	"edgert/rt"
	"edgert/server/manifest"
	"edgert/wire"
)

const (
	// observationSlack is what an observation may have beside its pictures:
	// state, prefixes, names. Cameras that the policy does not use may come too,
	// so pictures count four times, or as large as the policy lets them be.
	observationSlack  = 1 << 20
	pictureAllowance  = 4
	workerStopTimeout = 1200 * time.Millisecond

	// retryAfterDraining is when a robot without another server may ask here
	// again, ms: about what a restart takes.
	retryAfterDraining = 1000
)

var (
	errTooLarge  = errors.New("observation is larger than the pictures of this policy can be")
	errNoSession = errors.New("no session is open here: open one")
)

// Deps is what a Server works with. All that is exported is required.
type Deps struct {
	Meta    *policy.Meta
	SHA256  string // of the bundle
	Repo    string // model id, first part of the key prefix
	Model   Model
	Network wire.Session
	Clock   rt.Clock
	Log     *slog.Logger

	journal *journal // what cfg asks for, opened before the model was; nil: none
}

// Server is one policy being served.
type Server struct {
	// Constant after New.
	cfg            manifest.Config
	prefix         string // of all its keys
	id             string // server_id
	caps           wire.Capabilities
	meta           *policy.Meta
	limit          int // sessions
	observationMax int // bytes
	network        wire.Session
	clock          rt.Clock
	log            *slog.Logger
	sessions       *registry
	stats          *stats
	worker         *worker
	journal        *journal // nil: none

	queries chan query
	notices chan notice
	grown   chan struct{} // cap 1: a mailbox takes more than before

	// Atomic.
	warmed   atomic.Bool // warm-up is over
	serving  atomic.Bool // everything is declared
	draining atomic.Bool
	baseline atomic.Pointer[rt.HeapStat] // when the worker was ready

	// Owner: steward.
	events       eventWriter
	strangers    map[string]stranger
	servedBefore uint64
	gc           *rt.Hold
	collected    rt.HeapStat // after the last collection
}

// New prepares a server; nothing is declared before Serve.
func New(cfg manifest.Config, d Deps) (*Server, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	prefix, err := cfg.Prefix(d.Repo)
	if err != nil {
		return nil, err
	}
	limit, mode := cfg.Sessions()
	s := &Server{
		cfg: cfg, prefix: prefix, id: serverID(), limit: limit,
		caps:    capabilities(d.Meta, d.SHA256, d.Repo, cfg.Model.Revision, mode),
		network: d.Network, clock: d.Clock, log: d.Log,
		sessions: newRegistry(), stats: newStats(), gc: new(rt.Hold),
		queries: make(chan query, queriesWaiting), notices: make(chan notice, noticesWaiting), grown: make(chan struct{}, 1),
		strangers:      make(map[string]stranger),
		observationMax: min(observationMax(d.Meta), wire.MaxMessageBytes),
	}
	how := cfg.Conditioning.Policy()
	if err := d.Meta.CheckConditioning(how); err != nil {
		return nil, cfg.Errorf("conditioning", "%w", err)
	}
	s.meta = d.Meta
	row, err := newRow(d.Meta, d.Model, &s.caps, how)
	if err != nil {
		return nil, err
	}
	chunkBytes := 2*4*d.Meta.ChunkSize*d.Meta.ActionDim + 1024
	s.worker = &worker{
		clock: d.Clock, meta: d.Meta, model: d.Model, sessions: s.sessions, limit: limit, serverID: s.id,
		stats: s.stats, log: d.Log, journal: d.journal, wake: make(chan struct{}, 1), stop: make(chan struct{}),
		row: row, payload: make([]byte, 0, chunkBytes), attachment: make([]byte, 0, wire.HeaderSize),
	}
	if s.journal = d.journal; s.journal != nil && s.journal.capture != nil {
		s.journal.capture.sha256 = d.SHA256
	}
	return s, nil
}

func observationMax(m *policy.Meta) int {
	n := observationSlack
	for _, c := range m.Cameras {
		n += max(pictureAllowance, c.Scale()*c.Scale()) * c.Bytes()
	}
	return n
}

// serverID tells replicas of one service apart.
func serverID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "server"
	}
	var random [3]byte
	_, _ = rand.Read(random[:]) // never fails, says its documentation
	return host + "-" + hex.EncodeToString(random[:])
}

// Prefix is the first part of all keys of the service.
func (s *Server) Prefix() string { return s.prefix }

// Ready reports whether robots get chunks here: the model is warm, everything
// is declared, robots can come in, and the server is not about to leave. A
// server that listens waits for them; one that only dials needs its router.
func (s *Server) Ready() (ok bool, why string) {
	switch {
	case s.draining.Load():
		return false, "draining"
	case !s.warmed.Load():
		return false, "warming up"
	case !s.serving.Load():
		return false, "declaring"
	case len(s.cfg.Listen()) == 0 && !s.network.Connected():
		return false, "no link to a router"
	}
	return s.worker.healthy()
}

// Serve warms the model up, declares the service and answers robots until ctx
// is done; then it finishes the request in hand, withdraws everything and
// returns nil. The network stays open. It is called once.
func (s *Server) Serve(ctx context.Context) error {
	defer s.startJournal()()
	worker := s.startWorker()
	select {
	case <-worker.warmed:
	case <-worker.done:
		return worker.err
	}
	s.warmed.Store(true)
	s.gc = rt.HoldGC(rt.Headroom + int64(s.limit)*manifest.SessionMemory + s.journal.room(s.observationMax))
	defer s.gc.Release()
	heap := rt.ReadHeap()
	s.collected = heap
	s.baseline.Store(&heap)

	stewarding, stopSteward := context.WithCancel(context.Background())
	var steward sync.WaitGroup
	steward.Go(func() { s.steward(stewarding) })
	declared, err := s.declare()
	if err == nil {
		s.serving.Store(true)
		s.log.Info("serving", "prefix", s.prefix, "server_id", s.id, "sessions", s.limit, "mode", s.caps.ServingMode,
			"fps", s.caps.TrainedFPS, "chunk", s.caps.ChunkSize, "rtc", s.caps.SupportsRTC)
		select {
		case <-worker.done:
		case <-ctx.Done():
		}
	}
	s.draining.Store(true)
	s.announceDraining()
	failed := undeclare(declared[max(0, len(declared)-1):]) // the server's token first
	err = errors.Join(err, worker.finish())
	stopSteward()
	steward.Wait()
	failed = errors.Join(failed, undeclare(declared[:max(0, len(declared)-1)]))
	for _, session := range s.sessions.all() {
		failed = errors.Join(failed, session.actions.Undeclare())
	}
	if failed != nil && !errors.Is(failed, wire.ErrClosed) && !errors.Is(failed, wire.ErrDisconnected) {
		s.log.Warn("not everything was withdrawn", "why", failed)
	}
	return err
}

// startJournal starts the journal's goroutine; stop ends it when the worker has
// ended and everything is written.
func (s *Server) startJournal() (stop func()) {
	if s.journal == nil {
		return func() {}
	}
	var running sync.WaitGroup
	running.Go(s.journal.run)
	return func() {
		close(s.journal.stop)
		running.Wait()
	}
}

const drainingText = "server is draining: open elsewhere"

// drainingEvent tells a robot to leave before the server does.
var drainingEvent = &wire.Event{Code: wire.EventDraining, Text: drainingText, RetryAfterMs: retryAfterDraining}

// announceDraining tells every robot that the server is about to leave, so that
// it can look for another one while its actions last.
func (s *Server) announceDraining() {
	var events eventWriter
	for _, session := range s.sessions.all() {
		events.put(session.actions, drainingHeader(session), drainingEvent)
	}
}

// drainingHeader is the header of an event that answers no observation.
func drainingHeader(s *Session) *wire.Header {
	return &wire.Header{
		SchemaVersion: wire.SchemaVersion, MsgType: wire.MsgEvent,
		EpisodeID: uint32(max(0, s.episode.Load())), SessionEpoch: uint32(max(0, s.tokenEpoch.Load())),
	}
}

// working is the worker's goroutine seen from outside.
type working struct {
	worker *worker
	warmed chan struct{}
	done   chan struct{} // closed at its end; then err is valid
	err    error
}

func (s *Server) startWorker() *working {
	w := &working{worker: s.worker, warmed: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.err = errors.Join(s.worker.run(s.cfg.WarmupInferences, func() { close(w.warmed) }), s.worker.row.close())
	}()
	return w
}

// finish lets the request in hand end, but does not wait for ever.
func (w *working) finish() error {
	close(w.worker.stop)
	timeout := time.NewTimer(workerStopTimeout)
	defer timeout.Stop()
	select {
	case <-w.done:
		return w.err
	case <-timeout.C:
		return fmt.Errorf("server: the request in hand took longer than %v to finish", workerStopTimeout)
	}
}

// declare announces the service, the server's own token last, so that whoever
// sees the token finds the rest.
func (s *Server) declare() (declared []wire.Declaration, err error) {
	for _, next := range []func() (wire.Declaration, error){
		func() (wire.Declaration, error) {
			return s.network.Subscribe(wire.ObsWildcard(s.prefix), s.onObservation)
		},
		func() (wire.Declaration, error) {
			return s.network.Queryable(wire.StatusKey(s.prefix), s.enqueue(statusQuery))
		},
		func() (wire.Declaration, error) {
			return s.network.Queryable(wire.SessionKey(s.prefix), s.enqueue(sessionQuery))
		},
		func() (wire.Declaration, error) {
			return s.network.Queryable(wire.ResetWildcard(s.prefix), s.enqueue(resetQuery))
		},
		func() (wire.Declaration, error) {
			return s.network.SubscribeTokens(wire.ClientAliveWildcard(s.prefix), s.onToken)
		},
		func() (wire.Declaration, error) {
			return s.network.SubscribeTokens(wire.EpochAliveWildcard(s.prefix), s.onToken)
		},
		func() (wire.Declaration, error) { return s.network.Token(wire.ServerAliveKey(s.prefix)) },
	} {
		d, err := next()
		if err != nil {
			return declared, fmt.Errorf("server: declare %s: %w", s.prefix, err)
		}
		declared = append(declared, d)
	}
	return declared, nil
}

func undeclare(declared []wire.Declaration) (err error) {
	for _, d := range declared {
		err = errors.Join(err, d.Undeclare())
	}
	return err
}

// Summary is what happened so far.
func (s *Server) Summary() Summary {
	out := Summary{Service: s.prefix, ServerID: s.id}
	s.stats.fill(&out)
	out.Sessions.Active = len(s.sessions.all())
	if before := s.baseline.Load(); before != nil {
		now := rt.ReadHeap()
		out.PathMallocs = now.Allocs - before.Allocs
		out.GCCycles, out.GCForced = now.Cycles-before.Cycles, now.Forced-before.Forced
	}
	return out
}
