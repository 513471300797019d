package server

import (
	"errors"
	"fmt"
	"strings"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/server/memory"
	"github.com/edge-rt/edge-rt/server/queue"
	"github.com/edge-rt/edge-rt/wire"
)

var errLate = errors.New("a newer observation was here already")

// receiver holds the transport's callbacks for observations and tokens that arrive.
//
// Owner: the transport's receiving goroutines.
type receiver struct {
	clock          rt.Clock
	prefix         string // beginning of the service's keys
	sessions       *registry
	stats          *stats
	pool           *queue.Pool   // pool of the mailboxes
	memory         *memory.Bound // bound on the memory of the robots
	events         *events
	observationMax int          // largest observation in bytes
	work           queue.Signal // wakes the worker
	grown          queue.Signal // signals to housekeeping that the mailboxes take more memory than before
}

// onObservation copies an observation into its mailbox and wakes the worker.
//
//rt:noalloc
func (r *receiver) onObservation(sample wire.Sample) {
	now := r.clock.Now()
	h, err := wire.ParseHeader(sample.Attachment)
	if err == nil {
		err = h.Check(wire.MsgObservation)
	}
	uuid, keyErr := wire.ClientUUID(sample.Key)
	if keyErr != nil {
		r.stats.malformed.Add(1)
		return
	}
	r.stats.receivedBytes.Add(uint64(len(sample.Payload)))
	session := r.sessions.find(uuid)
	switch {
	case session == nil: // the session ended while the observation was on its way
		r.stats.unknown.Add(1)
	case err != nil:
		r.stats.malformed.Add(1)
		r.events.queue(uuid, h, wire.EventBadObservation, err)
	case len(sample.Payload) > r.observationMax:
		r.stats.malformed.Add(1)
		r.events.queue(uuid, h, wire.EventBadObservation, r.tooLarge(len(sample.Payload)))
	default:
		r.put(session, h, sample.Payload, now)
	}
}

//rt:noalloc
func (r *receiver) put(session *session, h wire.Header, body []byte, now rt.Instant) {
	if session.epoch != 0 && h.SessionEpoch != session.epoch {
		// the observation is from an earlier process or another robot, and this robot would ignore an event about it
		r.stats.late.Add(1)
		return
	}
	session.seen(now)
	asked, _ := wire.ReadAsked(body) // a malformed body is refused when it is parsed
	size := r.pool.Bytes()
	put := session.mailbox.Put(&h, body, now, queue.Schedule{Deadline: queue.Deadline(now, asked.RunwayMs,
		asked.HasRunway),
		HasN: asked.HasN, N: asked.N})
	if r.pool.Bytes() != size {
		r.grown.Wake()
	}
	switch put {
	case queue.Late:
		r.stats.late.Add(1)
		// A client of the draft gets no event, because it would treat the event as the answer to its newest request.
		if session.extended && session.mailbox.Overtaken(&h) {
			r.events.queue(session.uuid, h, wire.EventLate, errLate)
		}
		return
	case queue.NoRoom:
		r.stats.noRoom.Add(1)
		r.events.queue(session.uuid, h, wire.EventBadObservation, r.noRoom(session, len(body)))
		return
	}
	session.received.Add(1) // counted before its outcome, see session.streams
	if put == queue.Replaced || put == queue.Answered {
		r.stats.superseded.Add(1)
		session.shown.superseded.Add(1)
	}
	r.work.Wake()
}

// tooLarge returns the error for an observation of n bytes.
//
//go:noinline
func (r *receiver) tooLarge(n int) error {
	return fmt.Errorf("an observation of %s, where this policy's pictures need at most %s: send JPEG, or smaller or "+
		"fewer pictures", memory.Size(n), memory.Size(r.observationMax))
}

// noRoom returns the error for an observation of n bytes for which there is no memory.
//
//go:noinline
func (r *receiver) noRoom(s *session, n int) error {
	return fmt.Errorf("no memory for an observation of %s where the robot's open announced %s: %v; send fewer or "+
		"smaller ones, open elsewhere, or raise memory in the server's manifest",
		memory.Size(n), memory.Size(s.asked), r.memory)
}

// onToken handles a change of a robot's liveliness token, with or without an epoch. alive reports whether the token was
// declared or has vanished.
func (r *receiver) onToken(key string, alive bool) {
	now := r.clock.Now()
	if _, _, err := wire.ParseReplicaKey(r.prefix, key); err == nil {
		return // a server's token; its id may equal a robot's name
	}
	if uuid, epoch, err := wire.ParseEpochAlive(r.prefix, key); err == nil {
		if session := r.sessions.find(uuid); session != nil {
			session.epochTokenChanged(epoch, alive, now)
		}
		return
	}
	uuid, err := wire.ClientUUID(key)
	if err != nil {
		return
	}
	if session := r.sessions.find(uuid); session != nil { // a server's own token has no session
		session.tokenChanged(alive, now)
	}
}

const eventsWaiting = 64

// events holds the events for robots whose observations were refused in a callback of the transport. A callback may not
// publish, so housekeeping sends them.
type events struct {
	clock    rt.Clock
	sessions *registry
	stats    *stats
	waiting  chan event

	// Owner: housekeeping.
	writer eventWriter
}

type event struct {
	uuid   string
	header wire.Header
	code   wire.EventCode
	text   string
}

// queue passes an event for a robot on to housekeeping. It copies uuid. When too many events wait, it drops and counts
// the event.
//
// Owner: any goroutine.
//
//go:noinline
func (e *events) queue(uuid string, h wire.Header, code wire.EventCode, why error) {
	select {
	case e.waiting <- event{strings.Clone(uuid), h, code, eventText(why)}:
	default:
		e.stats.silenced.Add(1)
	}
}

// send sends an event to a robot, at most one per interval.
func (e *events) send(ev event) {
	session := e.sessions.find(ev.uuid)
	if session == nil || !session.warnings.allow(e.clock.Now()) {
		e.stats.silenced.Add(1)
		return
	}
	e.writer.put(session, &ev.header, ev.code, ev.text)
}

const eventTextMax = 1024 // bytes

//go:noinline
func eventText(err error) string {
	text := err.Error()
	return strings.ToValidUTF8(text[:min(len(text), eventTextMax)], "")
}

// eventWriter publishes events; it owns their buffers.
type eventWriter struct {
	id           string // server_id
	body, header []byte
}

// put publishes an event with the header of the observation that it answers. It ignores errors, because a lost event is
// no worse than a lost chunk.
func (w *eventWriter) put(s *session, h *wire.Header, code wire.EventCode, text string) {
	e := wire.Event{
		Code:     code,
		Text:     text,
		Seq:      h.SeqID,
		ServerID: w.id,
		Nonce:    s.nonce,
	}
	if code == wire.EventDraining {
		e.RetryAfterMs = retryAfterDraining
	}
	w.body = wire.Append(w.body[:0], &e)
	w.header = wire.AppendHeader(w.header[:0], h.Reply(wire.MsgEvent))
	_ = s.actions.Put(w.body, w.header)
}

// inform publishes an event that answers no observation.
func (w *eventWriter) inform(s *session, code wire.EventCode, text string) {
	w.put(s, &wire.Header{
		SchemaVersion: wire.SchemaVersion,
		EpisodeID:     uint32(max(0, s.episode.Load())),
		SessionEpoch:  s.epoch,
	}, code, text)
}

const (
	lateText     = "your actions end before a chunk can come: robots that can still be served go first"
	drainingText = "server is draining: open elsewhere"
	failedText   = "this server's device failed and it restarts: open elsewhere"
)

// retryAfterDraining is the time in ms after which a robot without another server may ask again:
// about the time of a restart.
const retryAfterDraining = 1000
