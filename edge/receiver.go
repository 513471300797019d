package edge

import (
	"math/rand/v2"
	"sync/atomic"

	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/wire"
)

// linkFlags is shared by the tick and the threads of the network. Each comment names the writer.
type linkFlags struct {
	epoch   atomic.Uint32                  // link: epoch of the open session, 0 without one
	session atomic.Pointer[record.Session] // link: the newest session, stored before its epoch
	server  atomic.Pointer[ServerSummary]  // link: of the newest session
	lost    atomic.Bool                    // link: set when a session is lost; the tick resets it
	// receiver: the server does not know the session, or drains; the link resets it
	evicted atomic.Bool
	refused atomic.Bool // link: the server refuses the contract with a final error
	// receiver: answers to another robot of this name arrive; the link resets it
	duplicate      atomic.Bool
	missingCameras atomic.Int32 // capture threads: cameras without a first picture
	sentKey        atomic.Int64 // tick: newest request
	// tick: instant of the first request since the newest chunk
	askedAt  atomic.Int64
	mergedAt atomic.Int64 // tick: instant of the newest merge
	// tick: end of the last suspension of the machine; pictures from before it are not used
	resumedAt atomic.Int64
	stamps    stamps // sender: of the last requests
	// link: the longest reason for having no session, or the reason of the last loss; kept when a
	// session opens
	sessionError atomic.Pointer[string]
	task         atomic.Pointer[string] // operator: task of the arm, for policies that read it
	// link: id of the session's server, stored before its epoch; nil or empty: not announced
	serverID atomic.Pointer[string]
	// link: nonce that the session's chunks repeat, stored before its epoch; 0: no nonce
	nonce atomic.Int64
	said  sharedPace // link: the server's announced time for a chunk
	pace  sharedPace // tick: the same, corrected by the answers; 0: no answer yet
	// link: the server answered no query when its session was lost, and no session has opened since
	unheard atomic.Bool
	aliveAt atomic.Int64 // link: instant of the last status reply while an answer was due
	// tick: no action of this policy can run within the limits of the flags
	tooSlow atomic.Bool
	past    [pastSessions]atomic.Pointer[pastSession] // link: the last sessions, by epoch, each stored before its epoch
}

// pastSessions is the number of remembered sessions, whose late answers are accepted.
const pastSessions = 8

// pastSession is a session of this run. Its answers are accepted after its loss as long as the
// policy is the same, since the server may have worked on them for long.
type pastSession struct {
	epoch uint32
	nonce int64 // its chunks repeat it
	model string
}

// nonceOf returns the nonce in the chunks of an epoch. ok is false unless the epoch is the open
// session's or that of a past session with the same policy.
//
//rt:noalloc
func (f *linkFlags) nonceOf(epoch uint32) (nonce int64, ok bool) {
	if epoch == f.epoch.Load() {
		return f.nonce.Load(), epoch != 0
	}
	s, newest := f.past[epoch%pastSessions].Load(), f.session.Load()
	if s == nil || s.epoch != epoch || newest == nil || modelOf(newest) != s.model {
		return 0, false
	}
	return s.nonce, true
}

// sessionID returns the newest session's id.
func (f *linkFlags) sessionID() string {
	if s := f.session.Load(); s != nil {
		return s.ID
	}
	return ""
}

// modelOf identifies the policy of a session: by the digest of its weights if the server sends it,
// else by its name.
//
//rt:noalloc
func modelOf(s *record.Session) string {
	if s.SHA256 != "" {
		return s.SHA256
	}
	return s.Model
}

// knownPace returns the server's time for a chunk, from the answers and the server's own figures.
//
//rt:noalloc
func (f *linkFlags) knownPace() serverPace {
	p, answered := f.said.load(), f.pace.load()
	if answered.least > 0 {
		p.least, p.most = answered.least, max(p.most, answered.most)
	}
	return p
}

// learnedPace returns the time for a chunk from the answers of this run, and the announced time
// until some have arrived: a single slow inference from before this run does not make the server
// slow.
//
//rt:noalloc
func (f *linkFlags) learnedPace() serverPace {
	if p := f.pace.load(); p.least > 0 {
		return p
	}
	return f.said.load()
}

// taskText returns the current task of the arm.
//
//rt:noalloc
func (f *linkFlags) taskText() string {
	if text := f.task.Load(); text != nil {
		return *text
	}
	return ""
}

// answer is one chunk on its way from the receiver to the tick.
type answer struct {
	epoch, episode uint32
	body           wire.ActionChunk
}

// receiver checks chunks as they arrive and leaves the newest for the tick. Owner: the transport's
// receiving goroutine.
type receiver struct {
	flags   *linkFlags
	inbox   *rt.Latest[answer]
	stats   *tickStats
	event   wire.Event
	onEvent func(wire.Event) // gets the server's events, which are rare; nil: they are only counted
	record  *record.Recorder // nil: nothing is recorded
	clock   rt.Clock         // of the record
	newest  wire.Header      // header of the last answer that was left for the tick
}

func newReceiver(onEvent func(wire.Event)) *receiver {
	return &receiver{
		flags:   &linkFlags{},
		inbox:   rt.NewLatest[answer](nil),
		stats:   newTickStats(),
		onEvent: onEvent,
	}
}

// deposit takes a sample of the action topic and counts invalid samples by reason. It refuses
// request numbers that were never sent: such a number would exclude all true answers with lower
// numbers.
func (r *receiver) deposit(s wire.Sample) {
	h, err := wire.ParseHeader(s.Attachment)
	if err != nil || h.SchemaVersion != wire.SchemaVersion {
		r.refuse(&h, dropHeader)
		return
	}
	if h.MsgType == wire.MsgEvent {
		if h.SeqID != 0 && !r.flags.stamps.ours(h.SeqID, h.ClientMonoNs) {
			r.drop(dropForeign)
			return
		}
		r.onServerEvent(h.SessionEpoch, s.Payload)
		return
	}
	sent := uint64(r.flags.sentKey.Load())
	nonce, known := r.flags.nonceOf(h.SessionEpoch)
	switch {
	case h.Check(wire.MsgActionChunk) != nil:
		r.refuse(&h, dropHeader)
		return
	case !known:
		r.refuse(&h, dropEpoch)
		return
	case h.SeqID == 0 || h.SeqID > sent || h.SeqID+stampSlots <= sent:
		r.refuse(&h, dropUnknown)
		return
	case !r.flags.stamps.ours(h.SeqID, h.ClientMonoNs):
		r.refuse(&h, dropForeign)
		return
	}
	a := r.inbox.Back()
	if wire.ParseActionChunk(&a.body, s.Payload) != nil {
		r.refuse(&h, dropBody)
		return
	}
	if a.body.Nonce != nonce {
		r.refuse(&h, dropForeign)
		return
	}
	a.epoch, a.episode = h.SessionEpoch, h.EpisodeID
	before := r.inbox.Replaced()
	if !r.inbox.Publish(int64(h.SeqID)) {
		r.refuse(&h, dropNewer)
		return
	}
	if r.inbox.Replaced() != before {
		r.refuse(&r.newest, dropNewer) // the previous answer, which the tick has not seen
	}
	r.newest = h
}

// refuse counts and records an answer that the tick does not get.
//
//rt:noalloc
func (r *receiver) refuse(h *wire.Header, reason int) {
	r.drop(reason)
	if r.record == nil {
		return
	}
	if m := r.record.Refused.Put(); m != nil {
		*m = record.Chunk{
			At:      r.clock.Now(),
			Seq:     h.SeqID,
			Epoch:   h.SessionEpoch,
			Episode: h.EpisodeID,
			Outcome: dropNames[reason],
		}
		r.record.Refused.Commit()
	}
}

// drop counts an answer that is not used. An answer to another robot's request means that another
// robot has this name.
//
//rt:noalloc
func (r *receiver) drop(reason int) {
	r.stats.drop(reason)
	if reason == dropForeign {
		r.flags.duplicate.Store(true)
	}
}

func (r *receiver) onServerEvent(epoch uint32, payload []byte) {
	r.stats.notices.Add(1)
	if err := wire.ParseEvent(&r.event, payload); err != nil {
		r.stats.drop(dropBody)
		return
	}
	if reason, ok := r.ofSession(epoch); !ok {
		r.stats.drop(reason)
		return
	}
	if r.event.Code == wire.EventUnknownSession || r.event.Code == wire.EventDraining {
		r.flags.evicted.Store(true)
	}
	if r.onEvent != nil {
		r.onEvent(r.event)
	}
}

// ofSession reports whether the event in hand is about the open session, with the reason if it is
// not: other servers of the service send this robot events, too. The event of an old server has no
// server id, and its header may lack the epoch.
func (r *receiver) ofSession(epoch uint32) (reason int, ok bool) {
	e, server := &r.event, ""
	if id := r.flags.serverID.Load(); id != nil {
		server = *id
	}
	switch old := e.ServerID == ""; {
	case epoch != r.flags.epoch.Load() && (epoch != 0 || !old):
		return dropEpoch, false
	case old:
		return 0, true
	case e.ServerID != server && server != "":
		return dropForeign, false
	case e.Nonce != r.flags.nonce.Load() && (e.Nonce != 0 || e.Code != wire.EventUnknownSession):
		return dropForeign, false
	}
	return 0, true
}

const (
	stampSlots = 256       // remembered requests, as many as package chunk remembers
	stampNoise = 1<<20 - 1 // random bits of a stamp, about 1 ms, which distinguish robots with one id
)

// stamps remembers the stamps (`client_mono_ns`) of the last requests. A server echoes them, and
// two robots of one name read the same key. The sender issues stamps, the receiver checks them.
type stamps struct{ slots [stampSlots]atomic.Int64 }

//rt:noalloc
func (s *stamps) issue(seq uint64, stamp int64) { s.slots[seq%stampSlots].Store(stamp) }

//rt:noalloc
func (s *stamps) ours(seq uint64, stamp int64) bool {
	return stamp != 0 && s.slots[seq%stampSlots].Load() == stamp
}

// newNoise returns a generator with a random seed.
func newNoise() *rand.PCG { return rand.NewPCG(rand.Uint64(), rand.Uint64()) }

// newStamp returns the stamp of a request that was made at this instant; it is never 0.
//
//rt:noalloc
func newStamp(at rt.Instant, noise *rand.PCG) int64 {
	return int64(at)&^stampNoise | int64(noise.Uint64()&stampNoise) | 1
}
