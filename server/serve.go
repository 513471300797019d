package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/wire"
)

// drainTime is how long a server with robots still answers queries after it has withdrawn its
// tokens. Robots that look for another server query all servers, and when a server has ended, a
// router may keep such a query until its time-out.
const drainTime = 300 * time.Millisecond

// Serve warms the model up, declares the service and answers robots until ctx is done. Then it
// finishes the present request, withdraws its declarations and returns nil. The network stays open.
// Serve is called once.
func (s *Server) Serve(ctx context.Context) (err error) {
	if s.first != nil {
		defer s.first.part()
	} else {
		endAudit := s.audit.Start(origin(s.caps.ModelSHA256, s.runtime, s.placement))
		defer func() { err = errors.Join(err, endAudit()) }()
	}
	s.worker.start(s.cfg.WarmupInferences)
	select {
	case <-s.worker.warmed:
	case <-s.worker.done:
		return s.worker.err
	case <-ctx.Done():
		return s.endError(ctx, s.worker.abandon())
	}
	s.phase.warmed.Store(true)
	if s.first == nil {
		defer s.holdGC().Release()
	}
	keeping, stopHousekeeper := context.WithCancel(context.Background())
	rolling, stopRollout := context.WithCancel(ctx)
	var housekeeper, rollout sync.WaitGroup
	housekeeper.Go(func() { s.housekeeper.run(keeping) })
	declared, tokens, err := s.declare()
	if err == nil {
		s.phase.serving.Store(true)
		s.opener.counted.Wake()
		if s.first == nil {
			rollout.Go(func() { s.rollout.Run(rolling) })
		}
		s.log.Info("serving", "prefix", s.prefix, "server_id", s.id, "sessions", s.sessions.capacity(),
			"mode", s.caps.ServingMode,
			"fps", s.caps.TrainedFPS, "chunk", s.caps.ChunkSize, "rtc", s.caps.SupportsRTC)
		s.fronts.Start(s.prefix, s.opener.meta, &s.stats.fronts, s.log)
		select {
		case err = <-s.fronts.Failed():
		case <-s.worker.done:
		case <-s.worker.engine.lost:
			err = s.worker.engine.failure()
		case <-ctx.Done():
		}
	}
	stopRollout()
	s.announceEnd()
	failed := undeclare(tokens) // the tokens first, so that no further robot comes
	stay := time.Duration(0)
	if len(s.sessions.all()) > 0 && s.network.Connected() {
		stay = drainTime
	}
	drained := time.NewTimer(stay)
	err = errors.Join(err, s.endError(ctx, s.worker.finish()))
	<-drained.C
	s.fronts.Stop()
	failed = errors.Join(failed, undeclare(declared)) // robots may query this server until now
	rollout.Wait()
	stopHousekeeper()
	housekeeper.Wait()
	s.withdraw(failed)
	return err
}

// withdraw answers the last queries, and withdraws the remaining declarations. The parameter failed is the error of
// the earlier withdrawals.
func (s *Server) withdraw(failed error) {
	s.work.Lock()
	defer s.work.Unlock()
	s.queries.answerWaiting()
	failed = errors.Join(failed, s.opener.withdrawRoom())
	for _, session := range s.sessions.all() {
		if s.first != nil { // robots of the other server can then use the memory and the places
			s.opener.drop(session, "its model is unloaded")
			continue
		}
		failed = errors.Join(failed, session.withdraw())
	}
	if failed != nil && !errors.Is(failed, wire.ErrClosed) && !errors.Is(failed, wire.ErrDisconnected) {
		s.log.Warn("not everything was withdrawn", "why", failed)
	}
}

// holdGC turns Go's collector off until the returned hold is released, and begins to measure the capacity, the heap and
// the pauses.
func (s *Server) holdGC() *rt.Hold {
	if a := s.opener.auto; a != nil {
		s.sessions.fed.Store(int32(a.Begin()))
	}
	hold := s.housekeeper.heap.holdGC()
	heap := s.housekeeper.heap.last
	s.pauses = rt.NewPauses() // before baseline, because a set baseline means that pauses is set
	s.baseline.Store(&heap)
	s.certificates.check(s.network, time.Now(), s.log)
	return hold
}

// allowHeap lets a second model use the given number of heap bytes.
func (s *Server) allowHeap(bytes int64) {
	s.work.Lock()
	defer s.work.Unlock()
	s.housekeeper.heap.beside = bytes
	s.housekeeper.heap.raiseLimit()
}

// join makes a second server of this process. The limits, quotas and memory of s bound the sessions of both servers
// together, until part is called.
func (s *Server) join(cfg manifest.Config, d Deps) (second *Server, err error) {
	s.work.Lock()
	defer s.work.Unlock()
	d.first = s
	if second, err = New(cfg, d); err == nil {
		s.second.Store(second)
	}
	return second, err
}

// part ends the common counting when the second server has ended.
func (s *Server) part() {
	s.work.Lock()
	defer s.work.Unlock()
	s.second.Store(nil)
	s.sessions.beside.Store(nil)
	s.opener.counter.Part()
	s.opener.counted.Wake()
}

// models returns the servers of this process, one for each model.
func (s *Server) models() []*Server {
	if second := s.second.Load(); second != nil {
		return []*Server{s, second}
	}
	return []*Server{s}
}

// instead returns the reason for which a model of this process computes on the CPU instead of a GPU; "" if each
// computes on its device.
func (s *Server) instead() (why string) {
	for _, model := range s.models() {
		why = cmp.Or(why, model.placement.Why())
	}
	return why
}

// announceEnd sends the robots the draining event, so that they look for another server while they still have actions.
func (s *Server) announceEnd() {
	s.phase.draining.Store(true)
	text := drainingText
	if s.worker.engine.failure() != nil {
		text = failedText
	}
	events := eventWriter{id: s.id}
	for _, session := range s.sessions.all() {
		events.inform(session, wire.EventDraining, text)
	}
}

// endError returns err, the error of the worker, or nil if it is no error of the server: if ctx is done and the device
// works, an inference that cannot be terminated is only logged.
func (s *Server) endError(ctx context.Context, err error) error {
	if !errors.Is(err, errStillInferring) {
		return err
	}
	s.modelInUse = true
	if ctx.Err() == nil || s.worker.engine.failure() != nil {
		return err
	}
	s.log.Warn("the inference in hand does not end when it is terminated: it ends with the process", "why", err)
	return nil
}

// declare announces the service. It subscribes to the tokens of the other servers first, so that it answers no query
// before it has seen them. It declares the server's own tokens last, so that everything else is declared when a robot
// sees them.
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
