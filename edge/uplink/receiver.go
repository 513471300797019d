package uplink

import (
	"math/rand/v2"
	"sync/atomic"

	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/wire"
)

// receiver checks chunks as they arrive and leaves the newest for the tick. Owner: the transport's
// receiving goroutine.
type receiver struct {
	in      *Inbox
	out     *Outbox
	stats   *Stats
	stamps  *stamps
	event   wire.Event
	onEvent func(wire.Event) // nil: the server's events are only counted
	record  *record.Recorder // nil: nothing is recorded
	clock   rt.Clock         // clock of the record's instants
	newest  wire.Header      // header of the last answer that was left for the tick

	// The receiver writes these, and the link's thread reads them.
	evicted   atomic.Uint32 // epoch of the last session that its server does not know, or whose server drains
	moved     atomic.Uint32 // epoch of the last session whose server has another model for this robot
	duplicate atomic.Bool   // answers to another robot of this name arrive
}

func newReceiver(l *Link) *receiver {
	return &receiver{
		in:      l.In,
		out:     l.Out,
		stats:   l.Stats,
		stamps:  l.stamps,
		onEvent: l.OnEvent,
		record:  l.Record,
		clock:   l.Clock,
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
		if h.SeqID != 0 && !r.stamps.ours(h.SeqID, h.ClientMonoNs) {
			r.drop(dropForeign)
			return
		}
		r.onServerEvent(h.SessionEpoch, s.Payload)
		return
	}
	sent := uint64(r.out.SentKey.Load())
	session := r.in.Sessions().answering(h.SessionEpoch)
	switch {
	case h.Check(wire.MsgActionChunk) != nil:
		r.refuse(&h, dropHeader)
		return
	case session == nil:
		r.refuse(&h, DropEpoch)
		return
	case h.SeqID == 0 || h.SeqID > sent || h.SeqID+stampSlots <= sent:
		r.refuse(&h, DropUnknown)
		return
	case !r.stamps.ours(h.SeqID, h.ClientMonoNs):
		r.refuse(&h, dropForeign)
		return
	}
	a := r.in.Answers.Back()
	if wire.ParseActionChunk(&a.Body, s.Payload) != nil {
		r.refuse(&h, dropBody)
		return
	}
	if a.Body.Nonce != session.Nonce {
		r.refuse(&h, dropForeign)
		return
	}
	a.Epoch = h.SessionEpoch
	a.Episode = h.EpisodeID
	a.At = r.clock.Now()
	before := r.in.Answers.Replaced()
	if !r.in.Answers.Publish(int64(h.SeqID)) {
		r.refuse(&h, dropNewer)
		return
	}
	if r.in.Answers.Replaced() != before {
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
			Outcome: DropNames[reason],
		}
		r.record.Refused.Commit()
	}
}

// drop counts an answer that is not used. An answer to another robot's request means that another
// robot has this name.
//
//rt:noalloc
func (r *receiver) drop(reason int) {
	r.stats.Dropped[reason].Add(1)
	if reason == dropForeign {
		r.duplicate.Store(true)
	}
}

func (r *receiver) onServerEvent(epoch uint32, payload []byte) {
	if err := wire.Parse(&r.event, payload); err != nil {
		r.stats.Dropped[dropBody].Add(1)
		return
	}
	open := r.in.Sessions().Open
	if reason, ok := r.ofSession(open, epoch); !ok {
		r.stats.Dropped[reason].Add(1)
		return
	}
	if open != nil && (r.event.Code == wire.EventUnknownSession || r.event.Code == wire.EventDraining) {
		r.evicted.Store(open.Epoch)
	}
	if open != nil && r.event.Code == wire.EventModel && r.moved.Swap(open.Epoch) == open.Epoch {
		return // a server repeats this event
	}
	if r.onEvent != nil {
		r.onEvent(r.event)
	}
}

// ofSession reports whether the event just parsed is about the open session, and the reason if it is not. Other servers
// of the service, and any client, may send events to this robot, too. An old server has no server id, and the header of
// its event may lack the epoch.
func (r *receiver) ofSession(open *Session, epoch uint32) (reason int, ok bool) {
	if open == nil {
		open = &noSession
	}
	switch old := open.ServerID == ""; {
	case epoch != open.Epoch && (epoch != 0 || !old):
		return DropEpoch, false
	case r.event.ServerID != open.ServerID, r.event.Nonce != open.Nonce:
		return dropForeign, false
	}
	return 0, true
}

const (
	stampSlots = 256       // remembered requests, as many as package chunk remembers
	stampNoise = 1<<20 - 1 // random bits of a stamp, about 1 ms, which distinguish robots with one id
)

// stamps remembers the stamps (`client_mono_ns`) of the last requests. A server returns a request's stamp with its
// answer. So a robot recognizes its own answers, although two robots of one name read the same key. The sender issues
// stamps, the receiver checks them.
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
