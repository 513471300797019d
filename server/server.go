// Package server serves one exported policy to many robots.
//
// An observation passes through these parts:
//
//	receive.go    the transport's callback finds the robot's session and copies the
//	              observation, or leaves the robot's event to housekeeping
//	queue         a robot's newest observation waits, older ones are dropped; the
//	              scheduler chooses the next robots
//	worker.go     the observations of the next batch are decoded into its rows (rows.go,
//	              tensors.go), by the decoding threads (batch) or, when only one waits,
//	              by the worker's own; the device's thread (engine.go, batch) runs the
//	              previous batch meanwhile
//	publish.go    the chunk is sent with the observation's header on the robot's action
//	              key; while the robot's link is full, a newer chunk replaces it
//
// No part of this path allocates once its buffers have grown to the robots' sizes, and the garbage
// collector is off meanwhile. A second goroutine does the work that may take time
// (housekeeping.go): it answers status, session and reset queries (queries.go), opens and ends
// sessions (open.go, admission.go, session.go), and sends the events that a callback may not send.
// Each request carries all that the policy needs, so when a server dies, its robots open a session at another one.
//
// run.go loads a policy and serves it, check.go reports what a manifest would serve, and replay.go
// answers captured requests again. health.go, metrics.go and live.go report the server's
// condition. Package manifest reads the settings, package audit keeps a record of each request.
package server

import (
	"cmp"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/policy/tokenizer"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/server/acl"
	"github.com/edge-rt/edge-rt/server/audit"
	"github.com/edge-rt/edge-rt/server/capacity"
	"github.com/edge-rt/edge-rt/server/front"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/server/memory"
	"github.com/edge-rt/edge-rt/server/peers"
	"github.com/edge-rt/edge-rt/server/queue"
	"github.com/edge-rt/edge-rt/server/quota"
	"github.com/edge-rt/edge-rt/server/rollout"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

// LogMissing counts the lines that are missing from the log. A nil function counts 0.
//
// Owner: any goroutine.
type LogMissing struct {
	Lost    func() uint64 // lines that the log's reader did not read in time
	LeftOut func() uint64 // lines left out because similar ones had been written a moment before
}

// Deps holds the parts that a Server works with. All fields are required except LogMissing and the fields whose comment
// explains a nil value.
type Deps struct {
	Meta    *policy.Meta
	SHA256  string // digest of the bundle
	Repo    string // model id
	Prefix  string // beginning of all keys, from cfg.Prefix
	Model   Model
	Text    *tokenizer.Tokenizer // nil: the policy does not read its task, or reads it as text
	Network wire.Session
	Clock   rt.Clock
	Log     *slog.Logger
	Audit   *audit.Writer // nil: no request is recorded
	Tests   []policy.Test // durations of Model's self-test; nil: it had no self-test

	Statistics string // statistics of the training's observations; empty: not known
	ReadsTask  bool   // chunks depend on the task's text
	Exclusive  bool   // the policy keeps state of one robot: one session at a time
	Runtime    string // version of the program that computes, such as ONNX Runtime's

	Placement policy.Placement // where Model computes
	Access    *acl.Service     // rights of the robots at the network's listener; nil: the listener does not check them
	Links     *Links           // links of Network; nil: they are not counted
	Fronts    []front.Front    // fronts for foreign clients

	LogMissing LogMissing

	Rollout *rollout.Keeper // nil: there is one model
	// the first server of this process, if this server serves Rollout's new model; nil: this server is the first
	first *Server
}

// Server serves one policy.
type Server struct {
	// Constant after New.
	cfg       manifest.Config
	prefix    string // beginning of the service's keys
	id        string // server_id
	caps      wire.Capabilities
	placement policy.Placement
	runtime   string    // version of the program that computes
	transport transport // the network, if it counts what its links lose; otherwise nil
	network   wire.Session
	fronts    front.Fronts // fronts for foreign clients
	clock     rt.Clock
	log       *slog.Logger // never blocks
	missing   LogMissing
	counters  []counter // all that /metrics shows
	sessions  *registry
	others    *peers.Others // the other servers of the service
	memory    *memory.Bound // bound on the memory that robots take
	pool      *queue.Pool   // pool of the mailboxes
	stats     *stats
	audit     *audit.Writer // nil: no request is recorded

	rollout *rollout.Keeper        // nil: there is one model
	second  atomic.Pointer[Server] // server of this process with the new model of rollout; nil: there is none
	first   *Server                // first server of this process; nil: this server is the first
	work    *sync.Mutex            // see housekeeper

	events      *events
	receiver    *receiver
	opener      *opener
	queries     *queries
	worker      *worker
	housekeeper *housekeeper

	phase        phase
	certificates certificates // checked by housekeeping

	pauses     *rt.Pauses                  // pauses of garbage collections since holdGC; nil before
	baseline   atomic.Pointer[rt.HeapStat] // the heap when the worker became ready
	modelInUse bool                        // an inference still runs after Serve, although it was terminated
}

// accepts returns the reader of the robots' tasks. It returns an error when the policy cannot use the manifest's
// conditioning or default_task.
func (d *Deps) accepts(cfg *manifest.Config) (*taskReader, error) {
	if err := d.Meta.CheckConditioning(cfg.Conditioning.Policy()); err != nil {
		return nil, cfg.Errorf("conditioning", "%w", err)
	}
	tasks := newTaskReader(cfg, d.Text, d.ReadsTask)
	if _, err := tasks.read(cfg.DefaultTask); err != nil {
		return nil, cfg.Errorf("default_task", "%w", err)
	}
	return tasks, nil
}

// New prepares a server. It declares nothing on the network; Serve does.
func New(cfg manifest.Config, d Deps) (*Server, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	conditioning := cfg.Conditioning.Policy()
	tasks, err := d.accepts(&cfg)
	if err != nil {
		return nil, err
	}
	s := newServer(cfg, d)
	var fills []*tensors // one for the worker and one for each thread that decodes
	for range 1 + decoders(&cfg, d.Model) {
		t, err := newTensors(d.Meta, d.Model, &s.caps, conditioning, tasks)
		if err != nil {
			return nil, err
		}
		fills = append(fills, t)
	}
	if err := s.addWorker(d, fills); err != nil {
		return nil, err
	}
	s.addNetwork(d.Meta, tasks)
	s.opener.statistics = d.Statistics
	s.addHousekeeper()
	for _, t := range d.Tests {
		if t.Rows == 1 {
			s.worker.engine.tally.pace.warm(t.Took)
		}
	}
	return s, nil
}

// newServer returns a server with those parts that depend only on the manifest and on d.
func newServer(cfg manifest.Config, d Deps) *Server {
	limit, mode := cfg.Sessions()
	id, forRobots := serverID(), cfg.RobotMemory()
	var budget *front.Budget
	if len(d.Fronts) > 0 {
		budget = front.NewBudget(forRobots/front.MemoryFraction, limit)
		forRobots -= budget.Limit()
	}
	bound := memory.New(forRobots)
	if d.first != nil {
		id = wire.NamedServer(id)
	}
	s := &Server{
		cfg:       cfg,
		prefix:    d.Prefix,
		id:        id,
		caps:      capabilities(d.Meta, d.SHA256, d.Repo, cfg.Model.Revision, mode),
		placement: d.Placement,
		runtime:   d.Runtime,
		clock:     d.Clock,
		log:       d.Log,
		sessions:  newRegistry(limit),
		others:    peers.New(d.Prefix, id, bound),
		memory:    bound,
		pool:      queue.NewPool(bound),
		stats:     newStats(),
		audit:     d.Audit,
		rollout:   d.Rollout,
		first:     d.first,
		work:      new(sync.Mutex),
	}
	if f := d.first; f != nil {
		s.work, s.sessions = f.work, f.sessions.second()
		s.memory = f.memory // only s.others still uses the bound made above
		s.pool = f.pool
		s.stats = f.stats
	}
	if cfg.Conditioning.Mode == conditioningOff {
		s.caps.SupportsRTC, s.caps.RTCExecutionHorizon = false, 0
	}
	if d.first == nil {
		d.Audit.Bind(bound)
	}
	s.network = s.fronts.Join(d.Fronts, d.Network, budget)
	s.transport, _ = d.Network.(transport)
	s.missing.Lost, s.missing.LeftOut = orZero(d.LogMissing.Lost), orZero(d.LogMissing.LeftOut)
	s.counters = counters(s.stats, cmp.Or(d.Links, new(Links)), cmp.Or(d.Access, new(acl.Service)), s.others,
		d.Audit.Counted())
	return s
}

// orZero returns count, or a function that returns 0 when count is nil.
func orZero(count func() uint64) func() uint64 {
	if count == nil {
		return func() uint64 { return 0 }
	}
	return count
}

// addWorker adds the worker with its engine. fills[0] fills rows in the worker's thread, and each other element in a
// decoding thread.
func (s *Server) addWorker(d Deps, fills []*tensors) error {
	order, err := queue.New(s.cfg.Scheduler)
	if err != nil {
		return s.cfg.Errorf("scheduler", "%w", err)
	}
	filler := newFiller(s.clock, s.log, fills, d.Model.Buffers()*d.Model.MaxBatch())
	engine := newEngine(s.clock, s.log, s.stats, s.placement.Device, d.Model, filler.own)
	s.worker = &worker{
		clock:     s.clock,
		log:       s.log,
		window:    s.cfg.BatchWindow(),
		sessions:  s.sessions,
		stats:     s.stats,
		engine:    engine,
		filler:    filler,
		scheduler: order,
		publisher: &publisher{
			id:         s.id,
			model:      s.caps.ModelSHA256,
			clock:      s.clock,
			log:        s.log,
			sessions:   s.sessions,
			stats:      s.stats,
			pool:       s.pool,
			audit:      s.audit,
			engine:     engine,
			leaving:    make(chan struct{}),
			payload:    make([]byte, 0, chunkBytes(d.Meta)),
			attachment: make([]byte, 0, wire.HeaderSize),
			events:     eventWriter{id: s.id},
		},
		work:       filler.work,
		collectNow: queue.NewSignal(),
		warmed:     make(chan struct{}),
		done:       make(chan struct{}),
		timer:      time.NewTimer(time.Hour),
	}
	return nil
}

// addNetwork adds the parts that answer robots: receiver, events, opener and queries.
func (s *Server) addNetwork(m *policy.Meta, tasks *taskReader) {
	s.events = &events{
		clock:    s.clock,
		sessions: s.sessions,
		stats:    s.stats,
		waiting:  make(chan event, eventsWaiting),
		writer:   eventWriter{id: s.id},
	}
	s.receiver = &receiver{
		clock:          s.clock,
		prefix:         s.prefix,
		sessions:       s.sessions,
		stats:          s.stats,
		pool:           s.pool,
		memory:         s.memory,
		events:         s.events,
		observationMax: observationLimit(m),
		work:           s.worker.work,
		grown:          queue.NewSignal(),
	}
	typical := wire.SessionOpen{CameraNames: s.caps.ExpectedCameras}
	s.opener = &opener{
		cfg:      &s.cfg,
		prefix:   s.prefix,
		id:       s.id,
		caps:     s.caps,
		meta:     m,
		tasks:    tasks,
		typical:  sessionNeed(m, observationBytes(m, &s.caps, &typical)),
		network:  s.network,
		clock:    s.clock,
		log:      s.log,
		phase:    &s.phase,
		sessions: s.sessions,
		others:   s.others,
		memory:   s.memory,
		pool:     s.pool,
		stats:    s.stats,
		events:   s.events,
		receive:  s.receiver.onObservation,
		counted:  queue.NewSignal(),
		sizes:    s.worker.engine.sizes,
		tally:    s.worker.engine.tally,
		rollout:  s.rollout,
		second:   s.first != nil,
	}
	s.addLimits(m)
	s.queries = &queries{
		prefix:   s.prefix,
		id:       s.id,
		device:   s.placement.Device.String(),
		log:      s.log,
		phase:    &s.phase,
		sessions: s.sessions,
		others:   s.others,
		stats:    s.stats,
		tasks:    tasks,
		opener:   s.opener,
		waiting:  make(chan query, queriesWaiting),
	}
}

// addLimits adds the quotas and the limits of the robots. A second server shares them with the first server.
func (s *Server) addLimits(m *policy.Meta) {
	o := s.opener
	if f := s.first; f != nil {
		o.counter, o.auto = f.opener.counter.Beside(), f.opener.auto
		o.counted, s.receiver.grown = f.opener.counted, f.receiver.grown
		return
	}
	o.counter = quota.NewCounter(quota.Limits{
		Link:  s.cfg.SessionsPerLink,
		Host:  s.cfg.SessionsPerHost,
		Robot: quota.RobotLimits{Rate: s.cfg.RatePerRobot, Share: s.cfg.SharePerRobot},
	})
	if s.cfg.Auto() {
		o.auto = capacity.NewAuto(m, s.cfg.Scheduler, s.worker.engine.sizes, s.clock)
	}
}

func (s *Server) addHousekeeper() {
	s.housekeeper = &housekeeper{
		prefix:       s.prefix,
		cameras:      s.caps.CameraShapes,
		dials:        len(s.cfg.Zenoh.ConnectEndpoints) > 0,
		network:      s.network,
		clock:        s.clock,
		log:          s.log,
		sessions:     s.sessions,
		stats:        s.stats,
		pool:         s.pool,
		others:       s.others,
		certificates: &s.certificates,
		engine:       s.worker.engine,
		opener:       s.opener,
		counted:      s.opener.counted,
		work:         s.work,
		queries:      s.queries,
		events:       s.events,
		grown:        s.receiver.grown,
		heap: &collector{
			memory: s.memory,
			fronts: s.fronts.Budget(),
			links:  s.cfg.TransportMemory(),
			stats:  s.stats,
			worker: s.worker,
			hold:   new(rt.Hold),
		},
	}
	if s.first != nil {
		s.housekeeper.counted, s.housekeeper.grown = nil, nil // the first server's housekeeping gets these signals
	}
}

// transport is a network that counts the losses and the memory of its links. This module's network does that; the C
// library's does not.
type transport interface {
	Stats() zenoh.Stats
	MemoryUsed() int
}

// transportStats returns the counts of the links' losses. They are zero when the transport does not count them.
func (s *Server) transportStats() (t zenoh.Stats) {
	if s.transport != nil {
		t = s.transport.Stats()
	}
	return t
}

// transportMemory returns the bytes that the links hold; 0 when the transport does not count them.
func (s *Server) transportMemory() int64 {
	if s.transport == nil {
		return 0
	}
	return int64(s.transport.MemoryUsed())
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// serverID returns an id that distinguishes the replicas of one service, and a server from its
// earlier runs. It is one key segment.
func serverID() string {
	host, _ := os.Hostname() // after an error the name is empty, and Slug refuses it
	host, err := wire.Slug(host)
	if err != nil {
		host = "lean"
	}
	return fmt.Sprintf("%s-%08x", host, rand.Uint32())
}

// ready reports whether robots get chunks from this server. A server that listens is ready without
// a link; a server that only dials needs a link to its router.
func (s *Server) ready() (ok bool, why string) {
	switch {
	case s.phase.draining.Load():
		return false, "draining"
	case !s.phase.warmed.Load():
		return false, "warming up"
	case !s.phase.serving.Load():
		return false, "declaring"
	case len(s.cfg.Listen()) == 0 && !s.network.Connected():
		return false, "no link to a router"
	}
	if ok, why = s.healthy(); ok {
		ok, why = s.certificates.usable()
	}
	if away := s.worker.engine.away; ok && away != nil {
		c := away.Condition()
		ok, why = c.Ready, c.Text()
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

// origin identifies the policy, the program and the device that answer now.
func origin(sha256, program string, p policy.Placement) audit.Origin {
	return audit.Origin{ModelSHA256: sha256, Runtime: program, Device: p.Device.String()}
}
