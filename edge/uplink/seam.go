package uplink

import (
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/trained"
)

// sourceSlots is the number of observations whose pictures' ages may wait for the tick.
const sourceSlots = 64

// Outbox is the data that the run publishes to the link. The tick writes all of it except Task.
type Outbox struct {
	// Constant once Prepare has returned.
	Snapshots *rt.Latest[Snapshot]
	Steps     *Steps // nil: the policy does not look back

	SentKey   atomic.Int64 // the newest request
	AskedAt   atomic.Int64 // instant of the first request since the newest chunk
	MergedAt  atomic.Int64 // instant of the newest merge
	ResumedAt atomic.Int64 // end of the last suspension of the machine; pictures from before it are not used
	TooSlow   atomic.Bool  // no action of this policy can run within the limits of the flags
	pace      sharedPace

	Task atomic.Pointer[string] // task of the arm, for policies that read it; operators write it
}

// Prepare allocates the snapshots for chunks of horizon rows and dof joints. If steps is more than 1, it also allocates
// the history for a policy that looks at this many observations together.
func (o *Outbox) Prepare(horizon, dof, steps int) {
	o.Snapshots = rt.NewLatest(func(s *Snapshot) {
		s.State, s.Ask = make([]float32, dof), chunk.NewAsk(horizon, dof)
	})
	if steps > 1 {
		o.Steps = newSteps(steps, dof)
	}
}

// SetPace publishes the server's time for a chunk, as the answers show it.
//
//rt:noalloc
func (o *Outbox) SetPace(p Pace) { o.pace.store(p) }

// Pace returns the server's time for a chunk, as the answers show it. It is zero before the first
// answer.
//
//rt:noalloc
func (o *Outbox) Pace() Pace { return o.pace.load() }

// TaskText returns the current task of the arm.
//
//rt:noalloc
func (o *Outbox) TaskText() string {
	if text := o.Task.Load(); text != nil {
		return *text
	}
	return ""
}

// Snapshot is one observation on its way to the sender, with the actions that will run meanwhile.
type Snapshot struct {
	Ask     chunk.Ask
	Epoch   uint32
	Episode uint32
	Start   bool // first observation of the episode
	At      rt.Instant
	Step    int64 // key of the action step in the history; 0: not in the history
	Runway  time.Duration
	State   []float32 // [dof]
}

// Inbox is the data that the link publishes to the run.
type Inbox struct {
	Answers *rt.Latest[Answer] // receiver: the newest chunk
	Sources *rt.Ring[Source]   // sender: ages of the pictures in the observations that left

	// Written by the link's thread.
	sessions  atomic.Pointer[Sessions]
	announced sharedPace
	Refused   atomic.Bool            // the server refuses the contract with a final error
	AliveAt   atomic.Int64           // instant of the last status reply while an answer was due
	NoSession atomic.Pointer[string] // longest-lasting reason for having no session, or reason of the last loss
	// the server answered no query when its session was lost, and no session has opened since
	Unheard atomic.Bool
}

// newInbox returns an inbox without a session.
func newInbox() *Inbox {
	return &Inbox{Answers: rt.NewLatest[Answer](nil), Sources: rt.NewRing[Source](sourceSlots)}
}

// Announce publishes the server's announced time for a chunk. Owner: the link's thread.
func (i *Inbox) Announce(p Pace) { i.announced.store(p) }

// Announced returns the server's announced time for a chunk.
//
//rt:noalloc
func (i *Inbox) Announced() Pace { return i.announced.load() }

// Answer is one chunk on its way from the receiver to the tick.
type Answer struct {
	Epoch, Episode uint32
	At             rt.Instant // instant of its arrival
	Body           wire.ActionChunk
}

// Source is the age of a request's pictures, on its way from the sender to the tick.
type Source struct {
	Key int64
	At  rt.Instant // instant of the state or of the oldest picture, whichever is older
}

// pastSessions is the largest number of remembered sessions. Late answers of remembered sessions are accepted.
const pastSessions = 8

// Session is one session with a server. It is immutable once it is published.
type Session struct {
	record.Session
	Nonce     int64               // number that the session's chunks repeat; 0: the server gave no number
	Publisher wire.Publisher      // takes the session's observations
	Steps     int                 // observations in one message, the newest included
	Trained   *trained.Statistics // statistics of the policy's training; nil: not known
	Old       bool                // the server speaks the schema without our keys: its ack has no key t
}

// policy identifies the policy of a session: by the digest of its weights if the server sends it,
// else by its name.
//
//rt:noalloc
func (s *Session) policy() string {
	if s.SHA256 != "" {
		return s.SHA256
	}
	return s.Model
}

// Sessions are the sessions of a run up to now. A value is immutable: each change publishes another value, so that a
// reader never sees half of a change.
type Sessions struct {
	Open   *Session // nil: no session is open
	Newest *Session // the open session, else the last session; nil: no session so far
	Opened uint64   // sessions so far
	Lost   uint64   // sessions that were lost so far
	past   [pastSessions]*Session
}

var (
	noSessions = new(Sessions)
	noSession  Session
)

// Sessions returns the sessions up to now.
//
//rt:noalloc
func (i *Inbox) Sessions() *Sessions {
	if s := i.sessions.Load(); s != nil {
		return s
	}
	return noSessions
}

// Open publishes a session. Owner: the link's thread.
func (i *Inbox) Open(s *Session) {
	now := *i.Sessions()
	now.Open = s
	now.Newest = s
	now.Opened++
	now.past[s.Epoch%pastSessions] = s
	i.sessions.Store(&now)
}

// Lose publishes the loss of the open session. Owner: the link's thread.
func (i *Inbox) Lose() {
	now := *i.Sessions()
	now.Open = nil
	now.Lost++
	i.sessions.Store(&now)
}

// end publishes that no session is open any more. It returns the session that was open, nil if there was none; the
// caller closes it. Owner: the link's thread, or, after it has ended, the goroutine that closes the link.
func (i *Inbox) end() (open *Session) {
	now := *i.Sessions()
	if open = now.Open; open != nil {
		now.Open = nil
		i.sessions.Store(&now)
	}
	return open
}

// Epoch returns the epoch of the open session, 0 if no session is open.
//
//rt:noalloc
func (s *Sessions) Epoch() uint32 {
	if s.Open == nil {
		return 0
	}
	return s.Open.Epoch
}

// ID returns the newest session's id.
func (s *Sessions) ID() string {
	if s.Newest == nil {
		return ""
	}
	return s.Newest.ID
}

// Of returns the session of an epoch, nil if the run does not remember it: a later session may have taken its place in
// past.
//
//rt:noalloc
func (s *Sessions) Of(epoch uint32) *Session {
	if past := s.past[epoch%pastSessions]; past != nil && past.Epoch == epoch {
		return past
	}
	return nil
}

// Record returns the session of an epoch in the form of the record, nil if the run does not remember it.
//
//rt:noalloc
func (s *Sessions) Record(epoch uint32) *record.Session {
	if of := s.Of(epoch); of != nil {
		return &of.Session
	}
	return nil
}

// answering returns the session of an epoch if the run takes the chunks of this session, else nil. The run takes the
// chunks of the open session, and of past sessions with the policy of the newest session, since a server may have
// worked on such a chunk for long.
//
//rt:noalloc
func (s *Sessions) answering(epoch uint32) *Session {
	if of := s.Of(epoch); of != nil && (of == s.Open || of.policy() == s.Newest.policy()) {
		return of
	}
	return nil
}
