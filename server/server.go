// Package server serves one exported policy to many robots.
//
// An observation passes through these parts:
//
//	receive.go    the transport's callback finds the robot's session and copies the
//	              observation
//	queue         a robot's newest observation waits, older ones are dropped; the
//	              scheduler chooses the next robots
//	worker.go     the observations of the next batch are decoded into its rows
//	              (tensors.go) while the device's thread (batch) runs the previous batch
//	publish.go    the chunk is sent with the observation's header on the robot's action
//	              key, and is dropped when the robot's link is full
//
// No part of this path allocates once its buffers have grown to the robots' sizes, and the garbage
// collector is off meanwhile. A second goroutine does the work that may take time
// (housekeeping.go): it answers status, session and reset queries (queries.go, admission.go), sends
// the events that a callback may not send (events.go), and closes the sessions of robots that left
// (session.go). Each request carries all that the policy needs: when a server dies, its robots open
// a session at another one.
//
// run.go loads a policy and serves it, check.go reports what a manifest would serve, and replay.go
// answers captured requests again. health.go, metrics.go and notifier.go report the server's
// condition. Package manifest reads the settings, package audit keeps a record of each request.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/policy/tokenizer"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/server/acl"
	"github.com/edge-rt/edge-rt/server/audit"
	"github.com/edge-rt/edge-rt/server/capacity"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/server/memory"
	"github.com/edge-rt/edge-rt/server/peers"
	"github.com/edge-rt/edge-rt/server/queue"
	"github.com/edge-rt/edge-rt/server/quota"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

const (
	// observationSlack is the size of an observation without its pictures: state, prefixes, names.
	// A robot may also send cameras that the policy does not use, so the pictures are allowed four
	// times their size, or the largest size that the policy scales down.
	observationSlack = 1 << 20
	pictureAllowance = 4

	// farewellTime is how long a server with robots goes on answering queries after it has
	// withdrawn its tokens. A router may keep a query to a server that has left until its time-out,
	// and robots that look for another server query all of them.
	farewellTime = 300 * time.Millisecond
)

// LogMissing counts the lines that are missing from the log. A nil function counts 0.
//
// Owner: any goroutine.
type LogMissing struct {
	Lost    func() uint64 // the log's reader did not read them in time
	LeftOut func() uint64 // similar lines had been written a moment before
}

// Deps holds the parts that a Server works with. All fields are required except LogMissing and
// those whose nil is explained.
type Deps struct {
	Meta    *policy.Meta
	SHA256  string // of the bundle
	Repo    string // model id
	Prefix  string // beginning of all keys, from cfg.Prefix
	Model   Model
	Text    *tokenizer.Tokenizer // nil: the policy does not read its task
	Network wire.Session
	Clock   rt.Clock
	Log     *slog.Logger
	Audit   *audit.Writer // nil: no request is recorded
	Tests   []policy.Test // durations of Model's self-test; nil: it had no self-test

	Placement policy.Placement // where Model computes
	Access    *acl.Service     // rights of the robots at the network's listener; nil: the listener does not check them
	Links     *Links           // of Network; nil: its links are not counted

	LogMissing LogMissing
}

// Links counts the links of a network.
//
// Atomic.
type Links struct {
	Up   atomic.Uint64 // came up
	Down atomic.Uint64 // went down, or did not come up
}

// service is the state that all parts of a server share.
type service struct {
	// Constant after New.
	cfg       manifest.Config
	prefix    string // beginning of all its keys
	id        string // server_id
	caps      wire.Capabilities
	meta      *policy.Meta
	tasks     taskReader
	limit     int           // most sessions, or their upper bound where max_sessions is auto
	window    time.Duration // how long a batch waits to fill
	placement policy.Placement
	access    *acl.Service // nil: the network has no listener of this package
	links     *Links       // nil: not counted
	transport transport    // the network, if it counts its losses; else nil
	network   wire.Session
	clock     rt.Clock
	log       *slog.Logger // never blocks
	missing   LogMissing
	sessions  *registry
	others    *peers.Others // the other servers of the service
	memory    *memory.Bound // on the memory that robots take
	pool      *queue.Pool   // of the mailboxes
	fed       atomic.Int32  // sessions that max_sessions: auto allows; 0: no limit by auto. Written by housekeeping
	promised  atomic.Int64  // bytes promised to all sessions. Written by housekeeping
	stats     *stats
	pace      pace
	pauses    *rt.Pauses // of garbage collections, since the worker was ready; nil before

	// Atomic.
	warmed       atomic.Bool // warm-up is over
	serving      atomic.Bool // everything is declared
	draining     atomic.Bool
	certificates certificates // checked by housekeeping
}

// transport is a network that counts its losses and its memory: this module's network does, the C
// library's does not.
type transport interface {
	Stats() zenoh.Stats
	MemoryUsed() int
}

func (s *service) transportStat(value func(zenoh.Stats) uint64) float64 {
	if s.transport == nil {
		return 0
	}
	return float64(value(s.transport.Stats()))
}

//rt:noalloc
func (s *service) load() float64 { return float64(len(s.sessions.all())) / float64(s.capacity()) }

// capacity returns the most sessions the server takes, as far as it is known.
//
//rt:noalloc
func (s *service) capacity() int {
	if n := s.fed.Load(); n > 0 {
		return int(n)
	}
	return s.limit
}

// transportMemory returns the bytes that the links hold, 0 where the transport does not report
// them.
func (s *service) transportMemory() int64 {
	if s.transport == nil {
		return 0
	}
	return int64(s.transport.MemoryUsed())
}

// lostLines returns the number of log lines that were not read in time.
func (s *service) lostLines() uint64 { return count(s.missing.Lost) }

// leftOutLines returns the number of log lines that were left out because similar ones had been
// written a moment before.
func (s *service) leftOutLines() uint64 { return count(s.missing.LeftOut) }

func count(of func() uint64) uint64 {
	if of == nil {
		return 0
	}
	return of()
}

// Server serves one policy.
type Server struct {
	*service
	receiver    *receiver
	worker      *worker
	queries     *queries
	housekeeper *housekeeper
	audit       *audit.Writer // nil: no request is recorded

	baseline atomic.Pointer[rt.HeapStat] // when the worker was ready

	modelInUse bool // after Serve: an inference still runs, although it was terminated
}

// newService returns the state that the server's parts share.
func newService(cfg manifest.Config, d Deps) *service {
	limit, mode := cfg.Sessions()
	id := serverID()
	shared := &service{
		cfg:       cfg,
		prefix:    d.Prefix,
		id:        id,
		limit:     limit,
		window:    cfg.BatchWindow(),
		meta:      d.Meta,
		tasks:     newTaskReader(&cfg, d.Text),
		caps:      capabilities(d.Meta, d.SHA256, d.Repo, cfg.Model.Revision, mode),
		access:    d.Access,
		links:     d.Links,
		placement: d.Placement,
		network:   d.Network,
		clock:     d.Clock,
		log:       d.Log,
		missing:   d.LogMissing,
		sessions:  newRegistry(),
		stats:     newStats(),
		memory:    memory.New(cfg.RobotMemory()),
	}
	if cfg.Conditioning.Mode == conditioningOff {
		shared.caps.SupportsRTC, shared.caps.RTCExecutionHorizon = false, 0
	}
	shared.pool, shared.others = queue.NewPool(shared.memory), peers.New(d.Prefix, id, shared.memory)
	d.Audit.Bind(shared.memory)
	shared.transport, _ = d.Network.(transport)
	return shared
}

// New prepares a server; nothing is declared before Serve.
func New(cfg manifest.Config, d Deps) (*Server, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	shared := newService(cfg, d)
	order, err := queue.New(cfg.Scheduler)
	if err != nil {
		return nil, cfg.Errorf("scheduler", "%w", err)
	}
	conditioning := cfg.Conditioning.Policy()
	if err := d.Meta.CheckConditioning(conditioning); err != nil {
		return nil, cfg.Errorf("conditioning", "%w", err)
	}
	if _, err := shared.tasks.read(cfg.DefaultTask); err != nil {
		return nil, cfg.Errorf("default_task", "%w", err)
	}
	var fills []*tensors // of the worker and of each thread of its crew
	for range 1 + decoders(&cfg, d.Model) {
		t, err := newTensors(d.Meta, d.Model, &shared.caps, conditioning, &shared.tasks)
		if err != nil {
			return nil, err
		}
		fills = append(fills, t)
	}
	events, grown := newEvents(shared), make(chan struct{}, 1)
	worker := newWorker(shared, d.Model, fills, order, d.Audit)
	queries := &queries{
		service: shared,
		book:    quota.NewBook(quota.Limits{Link: cfg.SessionsPerLink, Host: cfg.SessionsPerHost}),
		waiting: make(chan query, queriesWaiting),
		counted: make(chan struct{}, 1),
		events:  events,
	}
	typical := wire.SessionOpen{CameraNames: shared.caps.ExpectedCameras}
	queries.typical = sessionNeed(d.Meta, observationBytes(d.Meta, &shared.caps, &typical))
	if cfg.Auto() {
		queries.auto = capacity.NewAuto(d.Meta, cfg.Scheduler, worker.sizes, d.Clock)
	}
	receiver := &receiver{shared, observationLimit(d.Meta), worker.work, grown, events}
	queries.receive, queries.sizes = receiver.onObservation, worker.sizes
	for _, t := range d.Tests {
		if t.Rows == 1 {
			shared.pace.warm(t.Took)
		}
	}
	return &Server{
		service:  shared,
		worker:   worker,
		queries:  queries,
		audit:    d.Audit,
		receiver: receiver,
		housekeeper: &housekeeper{
			service: shared,
			queries: queries,
			events:  events,
			grown:   grown,
			heap:    &collector{service: shared, worker: worker, hold: new(rt.Hold)},
		},
	}, nil
}

// observationMax returns the largest observation that memory is planned for, in bytes.
func observationMax(m *policy.Meta) int {
	n := observationSlack
	for _, c := range m.Cameras {
		n += max(pictureAllowance, c.Scale()*c.Scale()) * c.Bytes() * m.Steps()
	}
	return min(n, wire.MaxMessageBytes)
}

// observationLimit returns the largest observation that is accepted, in bytes. Where a camera's
// pictures may have any size that is the most a link carries, because observations wait in the same
// memory.
func observationLimit(m *policy.Meta) int {
	n := observationMax(m)
	if slices.ContainsFunc(m.Cameras, func(c policy.Camera) bool { return !c.ExactSize }) {
		n = max(n, wire.MaxCarriedBytes)
	}
	return n
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// serverID returns an id that distinguishes the replicas of one service, and a server from its
// earlier runs. It is one key segment.
func serverID() string {
	host, _ := os.Hostname() // an empty name is refused by Slug
	host, err := wire.Slug(host)
	if err != nil {
		host = "lean"
	}
	return fmt.Sprintf("%s-%08x", host, rand.Uint32())
}

// Prefix is the first part of all keys of the service.
func (s *Server) Prefix() string { return s.prefix }

// Ready reports whether robots get chunks from this server. A server that listens is ready without
// a link; a server that only dials needs a link to its router.
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
	if ok, why = s.healthy(); ok {
		ok, why = s.certificates.usable()
	}
	return ok, why
}

// healthy reports whether the process works. When it does not, it must be restarted.
//
// Owner: any goroutine.
func (s *Server) healthy() (ok bool, why string) {
	if ok, why := s.worker.healthy(); !ok {
		return false, why
	}
	return s.housekeeper.healthy()
}

// Serve warms the model up, declares the service and answers robots until ctx is done; then it
// finishes the request in hand, withdraws its declarations and returns nil. The network stays open.
// Serve is called once.
func (s *Server) Serve(ctx context.Context) (err error) {
	endAudit := s.audit.Start(origin(s.caps.ModelSHA256, s.placement))
	defer func() { err = errors.Join(err, endAudit()) }()
	s.worker.start(s.cfg.WarmupInferences)
	select {
	case <-s.worker.warmed:
	case <-s.worker.done:
		return s.worker.err
	case <-ctx.Done():
		return s.left(ctx, s.worker.abandon())
	}
	s.warmed.Store(true)
	if a := s.queries.auto; a != nil {
		s.fed.Store(int32(a.Begin()))
	}
	defer s.housekeeper.heap.holdGC().Release()
	heap := s.housekeeper.heap.last
	s.pauses = rt.NewPauses() // before baseline, whose value announces it
	s.baseline.Store(&heap)

	s.certificates.look(s.network, time.Now(), s.log)
	keeping, stopHousekeeper := context.WithCancel(context.Background())
	var housekeeper sync.WaitGroup
	housekeeper.Go(func() { s.housekeeper.run(keeping) })
	declared, tokens, err := s.declare()
	if err == nil {
		s.serving.Store(true)
		wake(s.queries.counted)
		s.log.Info("serving", "prefix", s.prefix, "server_id", s.id, "sessions", s.capacity(),
			"mode", s.caps.ServingMode,
			"fps", s.caps.TrainedFPS, "chunk", s.caps.ChunkSize, "rtc", s.caps.SupportsRTC)
		select {
		case <-s.worker.done:
		case <-s.worker.lost:
			err = s.worker.sickness()
		case <-ctx.Done():
		}
	}
	s.draining.Store(true)
	text := drainingText
	if s.worker.sickness() != nil {
		text = sickText
	}
	var events eventWriter
	for _, session := range s.sessions.all() { // robots look for another server while their actions last
		events.putDraining(s.id, session, text)
	}
	failed := undeclare(tokens) // first, so that no further robot comes
	stay := time.Duration(0)
	if len(s.sessions.all()) > 0 && s.network.Connected() {
		stay = farewellTime
	}
	farewell := time.NewTimer(stay)
	err = errors.Join(err, s.left(ctx, s.worker.finish()))
	<-farewell.C
	failed = errors.Join(failed, undeclare(declared)) // queries are answered until robots no longer send them here
	stopHousekeeper()
	housekeeper.Wait()
	s.queries.answerWaiting()
	failed = errors.Join(failed, s.queries.withdrawRoom())
	for _, session := range s.sessions.all() {
		failed = errors.Join(failed, session.withdraw())
	}
	if failed != nil && !errors.Is(failed, wire.ErrClosed) && !errors.Is(failed, wire.ErrDisconnected) {
		s.log.Warn("not everything was withdrawn", "why", failed)
	}
	return err
}

// left returns the error with which the worker ended. When ctx is done and the device is not sick,
// an inference that cannot be terminated is logged and is no error.
func (s *Server) left(ctx context.Context, err error) error {
	if !errors.Is(err, errStillInferring) {
		return err
	}
	s.modelInUse = true
	if ctx.Err() == nil || s.worker.sickness() != nil {
		return err
	}
	s.log.Warn("the inference in hand does not end when it is terminated: it ends with the process", "why", err)
	return nil
}

// declare announces the service. It subscribes to the tokens of others first, so that no query is
// answered before the other replicas are known, and shows the server's own tokens last, so that a
// robot that sees them finds everything else declared.
func (s *Server) declare() (declared, tokens []wire.Declaration, err error) {
	add := func(to *[]wire.Declaration, d wire.Declaration, failed error) {
		if failed == nil {
			*to = append(*to, d)
		} else if err == nil {
			err = fmt.Errorf("server: declare %s: %w", s.prefix, failed)
		}
	}
	for _, w := range []struct {
		key     string
		deposit func(string, bool)
	}{
		{wire.ReplicaAliveWildcard(s.prefix), s.others.OnToken}, {wire.ReplicaRoomWildcard(s.prefix), s.others.OnToken},
		{wire.HeldWildcard(s.prefix), s.others.OnToken},
		{wire.ClientAliveWildcard(s.prefix), s.receiver.onToken},
		{wire.EpochAliveWildcard(s.prefix), s.receiver.onToken},
	} {
		d, err := s.network.SubscribeTokens(w.key, w.deposit)
		add(&declared, d, err)
	}
	for _, q := range []struct {
		key    string
		answer func(wire.Query) (string, []byte)
	}{
		{wire.StatusKey(s.prefix), s.queries.status}, {wire.SessionKey(s.prefix), s.queries.session},
		{wire.RobotSessionWildcard(s.prefix), s.queries.robotSession}, {wire.ResetWildcard(s.prefix), s.queries.reset},
	} {
		d, err := s.network.Queryable(q.key, s.queries.enqueue(q.answer))
		add(&declared, d, err)
	}
	if err != nil {
		return declared, nil, err
	}
	for _, key := range []string{wire.ReplicaAliveKey(s.prefix, s.id), wire.ServerAliveKey(s.prefix)} {
		d, err := s.network.Token(key)
		add(&tokens, d, err)
	}
	return declared, tokens, err
}

func undeclare(declared []wire.Declaration) (err error) {
	for _, d := range declared {
		err = errors.Join(err, d.Undeclare())
	}
	return err
}

// Summary returns the counters since the start.
func (s *Server) Summary() Summary {
	out := Summary{Service: s.prefix, ServerID: s.id, Device: s.placement.Device.String()}
	s.stats.fill(&out)
	out.Memory.LimitMB = mib(s.memory.Limit())
	out.Memory.UsedMB = mib(s.memory.Used())
	out.Memory.MostMB = mib(s.memory.Most())
	out.Sessions.Active = len(s.sessions.all())
	out.LogLinesLost = s.lostLines()
	out.LogLinesLeftOut = s.leftOutLines()
	if before := s.baseline.Load(); before != nil {
		now := rt.ReadHeap()
		out.PathMallocs = now.Allocs - before.Allocs
		out.GCPauseMaxMs = ms(s.pauses.Max())
		out.GCCycles, out.GCForced = now.Cycles-before.Cycles, now.Forced-before.Forced
	}
	return out
}
