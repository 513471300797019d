package server

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"edgert/policy"
	"edgert/rt"
	"edgert/wire"
)

// Session is one robot that opened one. What a policy needs travels with every
// request, so a session is only an address, a mailbox and counters: losing it
// costs the robot one handshake.
type Session struct {
	// Constant after open.
	uuid    string // the robot's id, one key segment
	id      string // 32 hex digits, new at every open
	task    string
	rtc     bool // condition chunks on the prefix
	ours    bool // the robot knows the optional keys, and what an event is
	noise   policy.NoiseKey
	actions wire.Publisher // nil in tests of the pure parts

	instance string // of the process that opened it; empty: it did not say
	host     string // where that runs, for people
	nonce    int64  // its chunks carry it; 0: none, the robot would not know it

	box mailbox

	// Atomic.
	episode    atomic.Int64 // of the last reset or observation; -1 before
	seenAt     atomic.Int64 // when the robot last opened or sent
	droppedAt  atomic.Int64 // when its liveliness token vanished; 0 while nothing speaks against it
	tokenEpoch atomic.Int64 // newest epoch that has a liveliness token of its own; -1: none
	tokenUp    atomic.Bool  // the token that counts is there

	stale         atomic.Uint32 // staleCameras of the last observation
	stalePictures atomic.Uint64 // older than the robot allows, since it opened

	warnedPictures atomic.Uint64 // with stray bytes, since it opened

	past   *policy.History // nil: nothing is conditioned. Owner: worker.
	told   lastWord        // Owner: worker.
	warned lastWord        // Owner: steward.

	staleTold staleCameras // Owner: steward.
}

// lastWord spaces the events to one robot.
type lastWord struct {
	at     rt.Instant
	spoken bool // at is valid
}

// due reports whether an event may be sent now, and if so remembers it.
//
//rt:noalloc
func (l *lastWord) due(now rt.Instant) bool {
	if l.spoken && now.Sub(l.at) < eventInterval {
		return false
	}
	l.at, l.spoken = now, true
	return true
}

// newSession makes a session for uuid that no token has vouched for yet.
func newSession(uuid string) *Session {
	s := &Session{uuid: uuid, id: randomID(), box: newMailbox()}
	s.episode.Store(-1)
	s.tokenEpoch.Store(-1)
	return s
}

// randomNonce is what the chunks of one session carry.
func randomNonce() int64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, says its documentation
	return int64(binary.LittleEndian.Uint64(b[:])>>1 | 1)
}

func randomID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails, says its documentation
	return hex.EncodeToString(id[:])
}

// deposit puts an observation into the mailbox. A robot that sends is alive,
// whatever its token says.
//
//rt:noalloc
func (s *Session) deposit(h wire.Header, body []byte, at rt.Instant) (newest, replaced bool) {
	s.seenAt.Store(int64(at))
	s.droppedAt.Store(0)
	return s.box.deposit(h, body, at)
}

// tokenChanged notes that the robot's liveliness token came or went. Once the
// robot shows tokens with an epoch, only those count.
func (s *Session) tokenChanged(alive bool, now rt.Instant) {
	old := s.tokenEpoch.Load() < 0
	switch {
	case alive:
		s.droppedAt.Store(0)
		s.tokenUp.Store(old || s.tokenUp.Load())
	case old:
		s.tokenUp.Store(false)
		s.drop(now)
	}
}

// epochTokenChanged is tokenChanged for the token of one epoch. The death of an
// old epoch's token says nothing about a robot that came back.
func (s *Session) epochTokenChanged(epoch uint32, alive bool, now rt.Instant) {
	newest := s.tokenEpoch.Load()
	switch {
	case alive && int64(epoch) >= newest:
		s.tokenEpoch.Store(int64(epoch))
		s.tokenUp.Store(true)
		s.droppedAt.Store(0)
	case !alive && int64(epoch) == newest:
		s.tokenUp.Store(false)
		s.drop(now)
	}
}

func (s *Session) drop(now rt.Instant) { s.droppedAt.CompareAndSwap(0, int64(max(now, 1))) }

// alive reports whether nothing speaks against the robot being there.
func (s *Session) alive() bool { return s.droppedAt.Load() == 0 }

// ownerQuiet is how long a robot that shows no token counts as there after it was
// heard: longer than the lease of a link, so that one which has just opened is not
// gone before its token comes.
const ownerQuiet = 3 * time.Second

// owned reports whether the process that opened the session may still run.
func (s *Session) owned(now rt.Instant) bool {
	return s.tokenUp.Load() || s.alive() && now.Sub(rt.Instant(s.seenAt.Load())) <= ownerQuiet
}

// reset begins an episode: what waits belongs to the one before.
func (s *Session) reset(episode int64) {
	s.box.clear()
	s.episode.Store(episode)
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

// all lends the sessions in byte order of their uuids; nobody may write to it.
//
//rt:noalloc
func (r *registry) all() []*Session { return *r.list.Load() }

// find returns the session of uuid, or nil.
//
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

// roundRobin gives every robot that waits one inference per turn, in byte order
// of the uuids: the first after the last one served, else the first of all.
type roundRobin struct{ last string }

// next returns the session to serve, or nil when nobody waits. sessions are
// sorted by uuid.
//
// Owner: worker.
//
//rt:noalloc
func (r *roundRobin) next(sessions []*Session) *Session {
	var first *Session
	for _, s := range sessions {
		if !s.box.pending() {
			continue
		}
		if s.uuid > r.last {
			r.last = s.uuid
			return s
		}
		if first == nil {
			first = s
		}
	}
	if first != nil {
		r.last = first.uuid
	}
	return first
}
