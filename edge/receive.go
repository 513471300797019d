package edge

import (
	"sync/atomic"

	"edgert/record"
	"edgert/rt"
	"edgert/wire"
)

// linkFlags is what the threads that talk to the network and the tick tell each
// other. All fields are atomic; the comment says who writes.
type linkFlags struct {
	epoch   atomic.Uint32                  // link: of the open session, 0 when there is none
	session atomic.Pointer[record.Session] // link: the newest one, stored before its epoch
	lost    atomic.Bool                    // link: set when a session is lost; the tick takes it back
	evicted atomic.Bool                    // receiver: the server does not know the session, or leaves; link takes it back
	refused atomic.Bool                    // link: the server refuses the contract for good
	blind   atomic.Int32                   // capture threads: cameras without a first picture
	sentKey atomic.Int64                   // tick: newest request
	asked   atomic.Int64                   // tick: instant of the newest request
	merged  atomic.Int64                   // tick: instant of the newest merge
}

// receiver checks chunks as they come and leaves the newest for the tick.
//
// Owner: the transport's receiving goroutine.
type receiver struct {
	link  *linkFlags
	inbox *rt.Latest[arrival]
	stats *tickStats
	event wire.Event
	told  func(wire.Event) // notices of the server, rare; nil: only counted
}

// deposit takes one sample of the action topic. What the tick must not see is
// dropped here and counted by reason; a sequence number that was never sent
// would otherwise shut out every true answer below it.
func (r *receiver) deposit(s wire.Sample) {
	h, err := wire.ParseHeader(s.Attachment)
	if err != nil || h.SchemaVersion != wire.SchemaVersion {
		r.stats.drop(dropHeader)
		return
	}
	if h.MsgType == wire.MsgEvent {
		r.notice(s.Payload)
		return
	}
	switch {
	case h.Check(wire.MsgActionChunk) != nil:
		r.stats.drop(dropHeader)
		return
	case h.SessionEpoch != r.link.epoch.Load():
		r.stats.drop(dropEpoch)
		return
	case h.SeqID == 0 || h.SeqID > uint64(r.link.sentKey.Load()):
		r.stats.drop(dropUnknown)
		return
	}
	a := r.inbox.Back()
	if wire.ParseActionChunk(&a.body, s.Payload) != nil {
		r.stats.drop(dropBody)
		return
	}
	a.epoch, a.episode = h.SessionEpoch, h.EpisodeID
	before := r.inbox.Replaced()
	if !r.inbox.Publish(int64(h.SeqID)) || r.inbox.Replaced() != before {
		r.stats.drop(dropNewer)
	}
}

// notice handles an event message.
func (r *receiver) notice(payload []byte) {
	r.stats.notices.Add(1)
	if err := wire.ParseEvent(&r.event, payload); err != nil {
		r.stats.drop(dropBody)
		return
	}
	if r.event.Code == wire.EventUnknownSession || r.event.Code == wire.EventDraining {
		r.link.evicted.Store(true)
	}
	if r.told != nil {
		r.told(r.event)
	}
}
