package server

import (
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"edgert/policy"
	"edgert/rt"
	"edgert/server/queue"
	"edgert/server/quota"
	"edgert/wire"
)

// Session is one robot's address, mailbox and counters: what a policy needs travels
// with every request, so losing a session costs one handshake.
type Session struct {
	// Constant after open.
	uuid     string // the robot's id, one key segment
	id       string // 32 hex digits, new at every open
	opened   *task  // the one it was opened with
	rtc      bool   // condition chunks on the prefix
	extended bool   // the robot speaks the optional keys and events
	epoch    uint32 // all its observations name it; 0: the robot did not say
	noise    policy.NoiseKey
	actions  wire.Publisher   // nil in tests of the pure parts
	obs      wire.Declaration // subscription of its observations, while the session is open
	held     wire.Declaration // tells the other servers of the session
	place    quota.Place
	fps      float64     // control steps a second as the robot says; 0: it does not
	asked    int         // bytes that an observation of it has as it says
	memory   int64       // bytes that it was promised, its own among them
	since    rt.Instant  // when it opened
	instance string      // names the process that opened it; empty: it did not say
	host     string      // where that runs, for people
	from     wire.Origin // who opened it
	tags     string      // of audit.Tags
	nonce    int64       // its chunks carry it; 0: none, for a robot that does not know the key

	mailbox   queue.Mailbox
	announced atomic.Pointer[task] // by the newest reset that named one; nil: none
	presence

	// Atomic.
	episode       atomic.Int64  // from the last reset or observation; -1 before
	stale         atomic.Uint32 // cameraSet of the last observation
	squeezed      atomic.Uint32 // cameraSet of all observations
	stalePictures atomic.Uint64 // older than the robot allows, since it opened
	strayPictures atomic.Uint64 // with stray bytes, since it opened
	received      atomic.Uint64 // observations that were not late, since it opened
	answered      atomic.Uint64 // chunks, since it opened
	shown         shown
	inHand        atomic.Bool // a request of it has a row. Written by the worker

	// Owner: worker.
	refusals rateLimit

	// Owner: worker, or the thread that fills the row of the request in hand.
	history *policy.History // nil: nothing is conditioned
	changed *task           // by the newest observation with a task of its own; nil: none

	// Owner: housekeeping.
	warnings                    rateLimit
	staleLogged, squeezedLogged cameraSet
}

// newSession makes a session for uuid that has shown no token yet, whose observations
// have so many bytes as it says.
func newSession(uuid string, pool *queue.Pool, asked int) *Session {
	s := &Session{uuid: uuid, opened: &task{}, id: fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64()), asked: asked, mailbox: queue.NewMailbox(pool, asked)}
	s.episode.Store(-1)
	s.tokenEpoch.Store(-1)
	s.shown.runway.Store(-1)
	s.shown.service.Store(-1)
	return s
}

// streams reports whether the robot has had a chunk, or what it sent last waits for one:
// observations that cannot be answered keep no place.
func (s *Session) streams() bool {
	return s.answered.Load() > 0 || s.received.Load() > s.shown.failed.Load()+s.shown.superseded.Load()
}

// header is that of an event which answers no observation.
func (s *Session) header() wire.Header {
	return wire.Header{
		SchemaVersion: wire.SchemaVersion, MsgType: wire.MsgEvent,
		EpisodeID: uint32(max(0, s.episode.Load())), SessionEpoch: s.epoch,
	}
}

// withdraw takes back what the session declared.
func (s *Session) withdraw() (err error) {
	for _, d := range []wire.Declaration{s.obs, s.held, s.actions} {
		if d != nil {
			err = errors.Join(err, d.Undeclare())
		}
	}
	return err
}

// randomNonce is what the chunks of one session carry: nobody can guess it.
func randomNonce() int64 {
	var b [8]byte
	_, _ = crand.Read(b[:]) // never fails, says its documentation
	return int64(binary.LittleEndian.Uint64(b[:])>>1 | 1)
}

// reset begins an episode: what waits belongs to the one before.
func (s *Session) reset(episode int64) {
	s.mailbox.Clear()
	s.episode.Store(episode)
}

// countPictures counts old pictures, and those used although they have stray bytes or
// another shape than the policy's.
//
//rt:noalloc
func (s *Session) countPictures(total *stats, stale, stray, squeezed cameraSet) {
	squeezed.count(&total.squeezed)
	s.squeezed.Or(uint32(squeezed))
	s.stale.Store(uint32(stale))
	s.stalePictures.Add(stale.count(&total.stale))
	s.strayPictures.Add(stray.count(&total.stray))
}

// eventInterval is the shortest time between two events to one robot: a stock
// client asks again at once, so answering each would make the two race.
const eventInterval = 200 * time.Millisecond

// rateLimit spaces the events to one robot.
type rateLimit struct {
	last rt.Instant
	used bool // last is valid
}

// allow reports whether an event may be sent now, and if so remembers it.
//
//rt:noalloc
func (l *rateLimit) allow(now rt.Instant) bool {
	if l.used && now.Sub(l.last) < eventInterval {
		return false
	}
	l.last, l.used = now, true
	return true
}

const (
	// ownerTimeout is how long a robot that shows no token counts as there after it
	// was last seen: longer than the lease of a link, so that one which has just
	// opened does not count as gone before its token comes.
	ownerTimeout = 3 * time.Second
	// tokenGrace is how long a robot's token may be gone before its session is
	// closed: LeRobot's figure, longer than a reconnect takes.
	tokenGrace = 5 * time.Second
	// idleTimeout closes a session whose robot neither sends nor shows a token any more.
	idleTimeout = 300 * time.Second
	// idleGrace is how long a robot that has opened may take to send, before it may
	// have to give way to another one when the server is full.
	idleGrace = 10 * time.Second
	// tokenlessTimeout closes one whose robot does not send and never showed a token,
	// which robots do right behind the open: its link may be long gone. One that has sent
	// gets as long again: it may be us who hang.
	tokenlessTimeout = 15 * time.Second
)

// presence says whether a session's robot is there.
//
// Atomic.
type presence struct {
	seenAt     atomic.Int64 // when the robot last opened or sent
	droppedAt  atomic.Int64 // when its liveliness token vanished; 0 while it has not
	tokenEpoch atomic.Int64 // whose liveliness token counts; -1: the robot has none with an epoch
	tokenUp    atomic.Bool  // the token that counts is there
	tokenSeen  atomic.Bool  // or was
	sent       atomic.Bool  // since it opened
}

// seen notes that the robot sent: it is alive, whatever its token says.
//
//rt:noalloc
func (p *presence) seen(now rt.Instant) {
	p.seenAt.Store(int64(now))
	p.sent.Store(true)
	p.droppedAt.Store(0)
}

// tokenChanged notes that the robot's liveliness token came or went. Of a robot that
// shows tokens with an epoch only those count.
func (p *presence) tokenChanged(alive bool, now rt.Instant) {
	if p.tokenEpoch.Load() >= 0 {
		return
	}
	p.tokenOf(alive, now)
}

// epochTokenChanged is tokenChanged for the token of one epoch: that of the open
// counts, and no other. The end of an old one says nothing about a robot that came
// back, and anybody may show a later one.
func (p *presence) epochTokenChanged(epoch uint32, alive bool, now rt.Instant) {
	if int64(epoch) == p.tokenEpoch.Load() {
		p.tokenOf(alive, now)
	}
}

func (p *presence) tokenOf(alive bool, now rt.Instant) {
	if alive {
		p.tokenUp.Store(true)
		p.tokenSeen.Store(true)
		p.droppedAt.Store(0)
		return
	}
	p.tokenDropped(now)
}

func (p *presence) tokenDropped(now rt.Instant) {
	p.tokenUp.Store(false)
	p.droppedAt.CompareAndSwap(0, int64(max(now, 1)))
}

// alive reports whether the robot was seen since its token vanished.
func (p *presence) alive() bool { return p.droppedAt.Load() == 0 }

// owned reports whether the process that opened the session may still run.
func (p *presence) owned(now rt.Instant) bool {
	return p.tokenUp.Load() || p.alive() && now.Sub(rt.Instant(p.seenAt.Load())) <= ownerTimeout
}

// vanished reports whether the robot neither sends nor ever showed a token, as of a
// process that opened and died.
func (p *presence) vanished(now rt.Instant) bool {
	return !p.tokenSeen.Load() && now.Sub(rt.Instant(p.seenAt.Load())) > ownerTimeout
}

// lost says why the robot counts as gone, "" when it does not.
func (p *presence) lost(now rt.Instant) (why string) {
	dropped, silent := rt.Instant(p.droppedAt.Load()), now.Sub(rt.Instant(p.seenAt.Load()))
	switch {
	case dropped != 0 && now.Sub(dropped) > tokenGrace:
		return "liveliness token dropped"
	case silent > idleTimeout:
		return "idle timeout"
	case silent > tokenlessTimeout && !p.tokenSeen.Load() && (silent > 2*tokenlessTimeout || !p.sent.Load()):
		return "it shows no liveliness token and does not send"
	}
	return ""
}

// lost is presence's, but a robot that waits for a chunk is not idle: it may send nothing
// more before it has its answer. Its turn comes within patience.
func (s *Session) lost(now rt.Instant, patience time.Duration) (why string) {
	since, _, waits := s.mailbox.Waiting()
	if s.alive() && (s.inHand.Load() || waits && now.Sub(since) < patience) {
		return ""
	}
	return s.presence.lost(now)
}

// registry holds the open sessions, sorted by uuid. Readers take no lock: every
// change makes a new list.
type registry struct {
	mu   sync.Mutex // held while the list is replaced
	list atomic.Pointer[[]*Session]
}

func newRegistry() *registry {
	r := new(registry)
	r.list.Store(&[]*Session{})
	return r
}

// all lends the sessions, read only, in byte order of their uuids.
//
//rt:noalloc
func (r *registry) all() []*Session { return *r.list.Load() }

//rt:noalloc
func (r *registry) find(uuid string) *Session {
	list := r.all()
	low, high := 0, len(list)
	for low < high {
		middle := int(uint(low+high) / 2)
		switch c := strings.Compare(list[middle].uuid, uuid); {
		case c == 0:
			return list[middle]
		case c < 0:
			low = middle + 1
		default:
			high = middle
		}
	}
	return nil
}

// others counts the sessions of everyone but uuid: opening again never counts
// against the capacity.
func (r *registry) others(uuid string) int {
	n := len(r.all())
	if r.find(uuid) != nil {
		n--
	}
	return n
}

// add inserts s and returns the session of the same uuid that it displaced.
func (r *registry) add(s *Session) (displaced *Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := slices.Clone(r.all())
	i, found := slices.BinarySearchFunc(list, s.uuid, func(e *Session, uuid string) int { return strings.Compare(e.uuid, uuid) })
	if found {
		displaced, list[i] = list[i], s
	} else {
		list = slices.Insert(list, i, s)
	}
	r.list.Store(&list)
	return displaced
}

// remove takes exactly this session out, not a newer one of the same robot, and
// reports whether it was there.
func (r *registry) remove(s *Session) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(r.all(), s)
	if i < 0 {
		return false
	}
	list := slices.Delete(slices.Clone(r.all()), i, i+1)
	r.list.Store(&list)
	return true
}
