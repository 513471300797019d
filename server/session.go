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

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/server/queue"
	"github.com/edge-rt/edge-rt/server/quota"
	"github.com/edge-rt/edge-rt/wire"
)

// session holds one robot's address, mailbox and counters. Each request contains all that the policy needs, so a robot
// that loses its session only has to open another.
type session struct {
	// Constant after open.
	uuid     string // the robot's id, one key segment
	id       string // 32 hex digits, new at every open
	opened   *task  // task of the open
	rtc      bool   // chunks are conditioned on the prefix
	extended bool   // the robot knows the optional keys and events
	epoch    uint32 // epoch of all the robot's observations; 0: the robot names no epoch
	noise    policy.NoiseKey
	actions  wire.Publisher   // publisher of the robot's chunks; nil in tests of the pure parts
	obs      wire.Declaration // subscription to the robot's observations, while the session is open
	held     wire.Declaration // token that announces the session to the other servers
	place    quota.Place
	meter    *quota.Meter // meter of the robot's id; nil: the id has no quotas
	fps      float64      // control steps per second, from the open; 0: not given
	asked    int          // bytes of one observation, from the sizes in the open
	memory   int64        // bytes promised to the session, including its own
	since    rt.Instant   // time of the open
	instance string       // name of the process that opened the session; empty: not given
	host     string       // host of that process, for people
	from     wire.Origin  // link or certificate that opened the session
	tags     string       // the robot's tags, as audit.Tags encodes them
	nonce    int64        // repeated in each of the session's chunks; 0: the robot does not read the key

	mailbox   queue.Mailbox
	announced atomic.Pointer[task] // task of the newest reset with a task; nil: no reset had a task
	presence

	// Atomic.
	episode       atomic.Int64  // episode of the last reset or observation; -1 before the first
	stale         atomic.Uint32 // cameraSet: cameras whose pictures of the last observation were stale
	squeezed      atomic.Uint32 // cameraSet: cameras whose pictures ever had another shape than the policy's
	stalePictures atomic.Uint64 // pictures older than the robot allows, since the open
	strayPictures atomic.Uint64 // pictures with stray bytes, since the open
	received      atomic.Uint64 // observations that were not late, since the open
	answered      atomic.Uint64 // chunks, since the open
	shown         shown
	inHand        atomic.Bool // one of the robot's requests has a row of a batch. Written by the worker

	// Owner: worker.
	refusals rateLimit
	heldTold rt.Instant // time of the newest event about a quota; 0: there was no such event

	// Owner: worker, or the thread that fills the row of the present request.
	history *policy.History // nil: chunks are not conditioned
	changed *task           // task of the newest observation that named one; nil: no observation did

	// Owner: housekeeping.
	warnings rateLimit
	// times of the first and the newest event about another model; 0: there was no such event
	movedFirst, movedTold       rt.Instant
	staleLogged, squeezedLogged cameraSet
}

// newSession returns a session for robot uuid, whose liveliness token has not been seen yet. The parameter asked is
// the size of one observation in bytes, from the robot's open.
func newSession(uuid string, pool *queue.Pool, asked int) *session {
	s := &session{
		uuid:    uuid,
		opened:  &task{},
		id:      fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64()),
		asked:   asked,
		mailbox: queue.NewMailbox(pool, asked),
	}
	s.episode.Store(-1)
	s.tokenEpoch.Store(-1)
	s.shown.runway.Store(-1)
	s.shown.service.Store(-1)
	return s
}

// streams reports whether the robot has had a chunk, or its last observation waits for one. A robot whose observations
// cannot be answered does not stream, and may lose its session to another robot.
func (s *session) streams() bool {
	return s.answered.Load() > 0 || s.received.Load() > s.shown.failed.Load()+s.shown.superseded.Load()
}

// withdraw undeclares everything that the session declared.
func (s *session) withdraw() (err error) {
	for _, d := range []wire.Declaration{s.obs, s.held, s.actions} {
		if d != nil {
			err = errors.Join(err, d.Undeclare())
		}
	}
	return err
}

// randomNonce returns an unguessable number for the chunks of one session.
func randomNonce() int64 {
	var b [8]byte
	_, _ = crand.Read(b[:]) // never fails, according to its documentation
	return int64(binary.LittleEndian.Uint64(b[:])>>1 | 1)
}

// reset begins an episode and drops the waiting observation, which belongs to the previous episode.
func (s *session) reset(episode int64) {
	s.mailbox.Clear()
	s.episode.Store(episode)
}

// countPictures counts stale pictures, and pictures that were used although they have stray bytes
// or another shape than the policy's.
//
//rt:noalloc
func (s *session) countPictures(total *stats, stale, stray, squeezed cameraSet) {
	squeezed.count(&total.squeezed)
	s.squeezed.Or(uint32(squeezed))
	s.stale.Store(uint32(stale))
	s.stalePictures.Add(stale.count(&total.stale))
	s.strayPictures.Add(stray.count(&total.stray))
}

// eventInterval is the shortest time between two events to one robot. A client of LeRobot's draft
// sends its next request immediately after an event, so client and server would loop if each bad
// request were answered with an event.
const eventInterval = 200 * time.Millisecond

// rateLimit spaces the events to one robot.
type rateLimit struct {
	last rt.Instant // time of the last event; 0: there was no event
}

// allow reports whether an event may be sent now, and if so records it.
//
//rt:noalloc
func (l *rateLimit) allow(now rt.Instant) bool {
	if l.last != 0 && now.Sub(l.last) < eventInterval {
		return false
	}
	l.last = max(now, 1)
	return true
}

const (
	// ownerTimeout is how long a robot without a liveliness token still counts as running after its
	// last message. It is longer than the lease of a link, so that a robot that has just opened
	// counts as running until its token arrives.
	ownerTimeout = 3 * time.Second
	// tokenGrace is how long a robot's token may be missing before its session is closed. LeRobot's server uses the
	// same time; a reconnect takes less.
	tokenGrace = 5 * time.Second
	// idleTimeout closes a session whose robot neither sends nor shows a token.
	idleTimeout = 300 * time.Second
	// idleGrace is how long a robot may wait after its open before it sends. After that, when the server is full,
	// another robot may get its session.
	idleGrace = 10 * time.Second
	// tokenlessTimeout closes a session whose robot does not send and has never shown a token.
	// Robots show their token right after the open, so such a robot has probably lost its link. A
	// robot that has sent gets twice the time, because the token may be missing through a fault of
	// this server.
	tokenlessTimeout = 15 * time.Second
)

// presence records whether a session's robot is reachable.
//
// Atomic.
type presence struct {
	seenAt    atomic.Int64 // time at which the robot last opened a session or sent
	droppedAt atomic.Int64 // time at which its liveliness token vanished; 0: it has not vanished
	// epoch of the followed token (all others are ignored); -1: that token has no epoch
	tokenEpoch atomic.Int64
	tokenUp    atomic.Bool // the followed token is shown
	tokenSeen  atomic.Bool // the followed token was shown once
	sent       atomic.Bool // the robot has sent since the open
}

// seen records that the robot has sent, and so is alive even if its token has vanished.
//
//rt:noalloc
func (p *presence) seen(now rt.Instant) {
	p.seenAt.Store(int64(now))
	p.sent.Store(true)
	p.droppedAt.Store(0)
}

// tokenChanged records that the robot's token without an epoch appeared or vanished. For a robot whose token has an
// epoch, it does nothing.
func (p *presence) tokenChanged(alive bool, now rt.Instant) {
	if p.tokenEpoch.Load() >= 0 {
		return
	}
	p.tokenOf(alive, now)
}

// epochTokenChanged records that a token with an epoch appeared or vanished. It ignores tokens of other epochs than the
// open's, because the end of an earlier token does not concern a robot that came back, and any client may declare a
// token with a later epoch.
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

// alive returns false from the moment at which the robot's token vanishes until the robot sends or shows a token again.
func (p *presence) alive() bool { return p.droppedAt.Load() == 0 }

// owned reports whether the process that opened the session may still run.
func (p *presence) owned(now rt.Instant) bool {
	return p.tokenUp.Load() || p.alive() && now.Sub(rt.Instant(p.seenAt.Load())) <= ownerTimeout
}

// vanished reports whether the robot has sent nothing for ownerTimeout and never showed a token, as when its process
// died after the open.
func (p *presence) vanished(now rt.Instant) bool {
	return !p.tokenSeen.Load() && now.Sub(rt.Instant(p.seenAt.Load())) > ownerTimeout
}

// lost returns the reason why the robot counts as gone; "" when it does not.
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

// lost returns the reason why the robot counts as gone; "" when it does not. Unlike presence.lost, it does not count a
// robot that waits for a chunk as idle, because such a robot may send nothing before it has its answer. An observation
// that has waited for longer than patience no longer counts.
func (s *session) lost(now rt.Instant, patience time.Duration) (why string) {
	since, _, waits := s.mailbox.Waiting()
	if s.alive() && (s.inHand.Load() || waits && now.Sub(since) < patience) {
		return ""
	}
	return s.presence.lost(now)
}

// registry holds the open sessions, sorted by uuid. Readers need no lock, because every change makes a new list.
type registry struct {
	limit    int           // largest number of sessions, or its upper bound where max_sessions is auto. Constant
	fed      *atomic.Int32 // sessions that max_sessions: auto allows; 0: no limit by auto. Written by housekeeping
	promised atomic.Int64  // bytes promised to all sessions. Written by housekeeping

	beside atomic.Pointer[registry] // registry of a second server, which shares the limits; nil: there is none

	mu   sync.Mutex // held while list is replaced
	list atomic.Pointer[[]*session]
}

// newRegistry returns a registry of at most limit sessions.
func newRegistry(limit int) *registry {
	r := &registry{limit: limit, fed: new(atomic.Int32)}
	r.list.Store(&[]*session{})
	return r
}

// second returns the registry of a second server of this process. r's limits hold for both registries together.
func (r *registry) second() *registry {
	s := newRegistry(r.limit)
	s.fed = r.fed
	s.beside.Store(r)
	r.beside.Store(s)
	return s
}

// everywhere returns one session of each robot of all servers of this process.
func (r *registry) everywhere() []*session {
	list := slices.Clip(r.all())
	if other := r.beside.Load(); other != nil {
		for _, s := range other.all() {
			if r.find(s.uuid) == nil { // a robot that changes its model has two sessions for a moment
				list = append(list, s)
			}
		}
	}
	return list
}

// count returns the number of sessions of all servers of this process.
//
//rt:noalloc
func (r *registry) count() int {
	n := len(r.all())
	if other := r.beside.Load(); other != nil {
		n += len(other.all())
	}
	return n
}

// promises returns the bytes promised to the robots of all servers of this process, except the robot with the id "but".
func (r *registry) promises(but string) (bytes int64) {
	for _, of := range []*registry{r, r.beside.Load()} {
		if of == nil {
			continue
		}
		bytes += of.promised.Load()
		if own := of.find(but); own != nil {
			bytes -= own.memory
		}
	}
	return bytes
}

// capacity returns how many sessions the server takes: the number that max_sessions: auto has found, else the limit.
//
//rt:noalloc
func (r *registry) capacity() int {
	if n := r.fed.Load(); n > 0 {
		return int(n)
	}
	return r.limit
}

//rt:noalloc
func (r *registry) load() float64 { return float64(r.count()) / float64(r.capacity()) }

// waiting appends the robots with a waiting observation to dst. The field Robot is the robot's index in list. The
// function leaves out a robot whose last request has a row of a batch: that robot's next request may name rows of the
// chunk that is being computed, and other robots have their turn first.
//
//rt:noalloc
func waiting(dst []queue.Waiting, list []*session) []queue.Waiting {
	for i, s := range list {
		if s.inHand.Load() {
			continue
		}
		if since, deadline, ok := s.mailbox.Waiting(); ok {
			dst = append(dst, queue.Waiting{
				ID:       s.uuid,
				Robot:    i,
				Since:    since,
				Deadline: deadline,
				Group:    s.place.Group(),
			})
		}
	}
	return dst
}

// all returns the sessions in byte order of their uuids. The caller must not change the list.
//
//rt:noalloc
func (r *registry) all() []*session { return *r.list.Load() }

func byUUID(s *session, uuid string) int { return strings.Compare(s.uuid, uuid) }

//rt:noalloc
func (r *registry) find(uuid string) *session {
	list := r.all()
	if i, found := slices.BinarySearchFunc(list, uuid, byUUID); found {
		return list[i]
	}
	return nil
}

// others returns the number of robots with a session other than robot uuid. A robot that opens
// again does not use more of the capacity.
func (r *registry) others(uuid string) (n int) {
	for _, s := range r.everywhere() {
		if s.uuid != uuid {
			n++
		}
	}
	return n
}

// add inserts s in place of an earlier session of the same robot. It returns that earlier session;
// nil when there was none.
func (r *registry) add(s *session) (displaced *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := slices.Clone(r.all())
	i, found := slices.BinarySearchFunc(list, s.uuid, byUUID)
	if found {
		displaced, list[i] = list[i], s
	} else {
		list = slices.Insert(list, i, s)
	}
	r.list.Store(&list)
	return displaced
}

// remove removes exactly this session, not a newer one of the same robot, and reports whether the
// registry held it.
func (r *registry) remove(s *session) bool {
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

// fairness returns Jain's index of the sessions' shares of answered observations; 1 when no observation was answered.
func fairness(sessions []*session) float64 {
	var n, sum, squares float64
	for _, s := range sessions {
		if received := s.received.Load(); received > 0 {
			share := min(1, float64(s.answered.Load())/float64(received))
			n++
			sum += share
			squares += share * share
		}
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (n * squares)
}
