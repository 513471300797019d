// Package record is a robot's flight recorder: what a run did, in MCAP files that
// Foxglove, Rerun and any MCAP reader open (docs/record.md).
//
// A message takes this way:
//
//	message.go   the threads of a robot fill fixed-size messages in rings (Lane)
//	recorder.go  one thread takes them out, encodes them as protobuf (coder.go, schema.go)
//	window.go    and keeps the newest in memory: minutes of messages, seconds of pictures
//	writer.go    another thread writes what is there into files, when it is asked to
//	folder.go    which together stay below a size, the oldest of which goes first;
//	repair.go    those that a power cut has torn are made whole at the next start
//	read.go      and this reads them
//
// The disk is behind both: while it takes nothing, what is in memory gives way to what is
// new and is counted. Only the thread that writes knows of it.
package record

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"edgert/rt"
)

// Mode says what is written.
type Mode string

// The modes.
const (
	Off  Mode = "off"  // nothing is kept
	Ring Mode = "ring" // the last minutes, when something has happened
	All  Mode = "all"  // everything
)

// Bounds of the memory.
const (
	MaxMemory = 24 << 20 // all that a recorder keeps

	lanes        = 6
	tickSlots    = 512 // 8 s at 60 Hz, 0.5 s at 1 kHz
	otherSlots   = 64  // requests, chunks and what is rarer
	messageBytes = 7 << 20
	pictureBytes = 8 << 20
	scratchBytes = 1 << 20 // the largest message
	messageSpan  = 10 * time.Minute
	pictureSpan  = 10 * time.Second
	wallStep     = 100 * time.Millisecond
)

// The rest is for the chunk that is written: the entries taken out for it, the library's
// own copy and its compressed form.
const _ = uint(MaxMemory - messageBytes - pictureBytes - scratchBytes - 4*chunkBytes)

// Config is one recorder.
type Config struct {
	Mode    Mode
	Dir     string // where the files go; it is made
	Size    int64  // most bytes of all files in it
	ID      string // the robot's, with which the files' names begin
	Cameras []string
	Clock   rt.Clock
	Now     func() time.Time // the time of day; nil: time.Now

	// Closed is called behind each file, on the thread that writes: what the file's writer
	// leaves is garbage now. nil: nothing is done.
	Closed func()

	// Report is told what becomes of the files, on the thread that writes.
	Report func(Report)
}

// Report is something about the files that a person should hear of.
type Report struct {
	File string
	Why  string // what a file was written for; Repaired: it was torn; Deleted: it was this run's
	Err  error  // not nil: nothing can be written, until it can again
}

// What has become of a file that is not being written.
const (
	Repaired = "repaired" // a torn one of an earlier run
	Deleted  = "deleted"  // one that this run has written, for Config.Size or a disk that is full

	// Unreserved: the run's files, of which this is the first, are to stay, and other
	// recorders of the folder cannot be told.
	Unreserved = "unreserved"
)

// Recorder takes messages off a robot's threads. A nil one takes none.
type Recorder struct {
	Ticks    *Lane[Tick]    // the tick's
	Requests *Lane[Request] // likewise
	Merges   *Lane[Chunk]   // likewise
	Refused  *Lane[Chunk]   // the receiver's
	Sent     *Lane[Sent]    // the sender's

	cfg  Config
	wall atomic.Int64 // ns from an instant to the time of day

	noting sync.Mutex // among the threads that call Note
	events *Lane[Event]
	cuts   *Lane[Episode]

	// Owner: the thread that calls Collect.
	coder    coder
	messages *window // nil: Mode is Off
	pictures *window // nil: there are no cameras
	tell     Visitor
	line     logLine

	asked   atomic.Pointer[string] // why what is in memory is to be written; nil: it is not
	urgent  atomic.Bool            // at once
	keepOwn atomic.Bool            // no file of this run is deleted
	counts  counts
	run     atomic.Pointer[map[string]string]
	writer  writer
}

// counts are what Stats says.
type counts struct {
	files, bytes, written, pictures atomic.Uint64
	lost, lostPictures, unmade      atomic.Uint64
	saves, repaired, deleted        atomic.Uint64
	failing                         atomic.Pointer[string]
}

// Lane is a ring of messages from one thread to the recorder's.
type Lane[T any] struct {
	ring *rt.Ring[T]
	lost atomic.Uint64
}

func newLane[T any](slots int) *Lane[T] { return &Lane[T]{ring: rt.NewRing[T](slots)} }

// Put lends the next message to fill, which holds what was left in it; nil when there is
// no room: that message is lost and counted. Owner: one thread, like Commit.
//
//rt:noalloc
func (l *Lane[T]) Put() *T {
	slot := l.ring.Reserve()
	if slot == nil {
		l.lost.Add(1)
	}
	return slot
}

// Commit hands over the message last lent.
//
//rt:noalloc
func (l *Lane[T]) Commit() { l.ring.Commit() }

// New returns a recorder that keeps nothing on disk yet: the threads that call Collect
// and Write do.
func New(cfg Config) (*Recorder, error) {
	if err := CheckCameras(cfg.Cameras); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Closed == nil {
		cfg.Closed = func() {}
	}
	if cfg.Report == nil {
		cfg.Report = func(Report) {}
	}
	r := &Recorder{
		Ticks: newLane[Tick](tickSlots), Requests: newLane[Request](otherSlots), Merges: newLane[Chunk](otherSlots),
		Refused: newLane[Chunk](otherSlots), Sent: newLane[Sent](otherSlots), events: newLane[Event](otherSlots), cuts: newLane[Episode](otherSlots),
		cfg: cfg,
	}
	if cfg.Mode != Off {
		r.messages = newWindow(messageBytes, messageSpan)
	}
	if len(cfg.Cameras) > 0 && cfg.Mode != Off {
		r.pictures = newWindow(pictureBytes, pictureSpan)
	}
	r.wall.Store(r.wallOffset())
	r.coder = coder{out: make([]byte, 0, scratchBytes)}
	r.SetRun(nil)
	r.writer.init(r)
	return r, nil
}

// wallOffset is how many ns an instant is behind the time of day.
func (r *Recorder) wallOffset() int64 { return r.cfg.Now().UnixNano() - int64(r.cfg.Clock.Now()) }

// setWall follows a time of day that was set, as once a machine without a clock of its
// own has found the network; what is in memory keeps the time it has. What the two clocks
// drift apart is left out, so that all files of a run have one scale.
func (r *Recorder) setWall() int64 {
	if now := r.wallOffset(); time.Duration(now-r.wall.Load()).Abs() > wallStep {
		r.wall.Store(now)
	}
	return r.wall.Load()
}

// Tell has a visitor get each tick, request, chunk, episode and event as it is taken in, also where
// Mode is Off. Its funcs are called by the thread that calls Collect, and must be as quick as
// that has to be; what they return is not looked at. Call it before that thread begins.
func (r *Recorder) Tell(v Visitor) { r.tell = v }

// Wall is how many ns an instant is behind the time of day, as the files have it.
func (r *Recorder) Wall() int64 { return r.wall.Load() }

// SetRun says what the run is, for the files' metadata. Any thread may call it.
func (r *Recorder) SetRun(run map[string]string) { r.run.Store(&run) }

// SetCameras says whose pictures will come, once, before any does and before a file is
// begun.
func (r *Recorder) SetCameras(names []string) error {
	if err := CheckCameras(names); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	if r.cfg.Cameras = names; len(names) > 0 && r.pictures == nil && r.cfg.Mode != Off {
		r.pictures = newWindow(pictureBytes, pictureSpan)
	}
	return nil
}

// Note records an event. Any thread but the tick's may call it, also of a nil Recorder.
func (r *Recorder) Note(at rt.Instant, kind string, level uint32, text string) {
	if r != nil {
		r.note(at, kind, level, 0, 0, 0, nil, text, nil)
	}
}

// NoteEvent is Note of an event that the tick has reported.
func (r *Recorder) NoteEvent(at rt.Instant, kind string, level, code uint32, a, b int64, text []byte) {
	if r != nil {
		r.note(at, kind, level, code, a, b, text, "", nil)
	}
}

// NoteSession records a session that was opened.
func (r *Recorder) NoteSession(at rt.Instant, s *Session) {
	if r != nil {
		r.note(at, "link", LevelInfo, 0, 0, 0, nil, "session open", s)
	}
}

func (r *Recorder) note(at rt.Instant, kind string, level, code uint32, a, b int64, bytes []byte, text string, s *Session) {
	r.noting.Lock()
	defer r.noting.Unlock()
	e := r.events.Put()
	if e == nil {
		return
	}
	e.At, e.Kind, e.Level, e.Code, e.A, e.B, e.session = at, kind, level, code, a, b, s
	if text != "" {
		e.Text.Set(text)
	} else {
		e.Text.SetBytes(bytes)
	}
	r.events.Commit()
}

// NoteEpisode records an episode's begin or its end. Any thread but the tick's may call it,
// also of a nil Recorder.
func (r *Recorder) NoteEpisode(at rt.Instant, number uint32, ended bool, outcome, task string) {
	if r == nil {
		return
	}
	r.noting.Lock()
	defer r.noting.Unlock()
	m := r.cuts.Put()
	if m == nil {
		return
	}
	*m = Episode{At: at, Number: number, Ended: ended, Outcome: outcome}
	m.Task.Set(task)
	r.cuts.Commit()
}

// Keep has no file of this run deleted from now on: where all of Config.Size is the run's
// own, what comes is lost instead, and reported. Any thread may call it.
func (r *Recorder) Keep() { r.keepOwn.Store(true) }

// Save asks for what is in memory to be written; at once also when that was done shortly
// before. why must not change. Any thread may call it, also of a nil Recorder.
//
//rt:noalloc
func (r *Recorder) Save(why *string, atOnce bool) {
	if r == nil {
		return
	}
	r.asked.CompareAndSwap(nil, why)
	if atOnce {
		r.urgent.Store(true)
	}
}

var starved = "a tick without an action"

// Collect takes what the robot's threads have put into the lanes and keeps it in memory.
//
// Owner: one thread, like Image.
//
//rt:noalloc
func (r *Recorder) Collect() {
	for m := r.Ticks.ring.Peek(); m != nil; m = r.Ticks.ring.Peek() {
		m.visit(r.begin())
		if m.Starved {
			r.Save(&starved, false)
		}
		if r.tell.Tick != nil {
			_ = r.tell.Tick(m)
		}
		at := m.At
		r.Ticks.ring.Release()
		r.keep(channelTick, at)
	}
	for m := r.Requests.ring.Peek(); m != nil; m = r.Requests.ring.Peek() {
		m.visit(r.begin())
		if r.tell.Request != nil {
			_ = r.tell.Request(m)
		}
		at := m.At
		r.Requests.ring.Release()
		r.keep(channelRequest, at)
	}
	for m := r.Sent.ring.Peek(); m != nil; m = r.Sent.ring.Peek() {
		m.visit(r.begin())
		at := m.At
		r.Sent.ring.Release()
		r.keep(channelSent, at)
	}
	r.chunks(r.Merges)
	r.chunks(r.Refused)
	for m := r.cuts.ring.Peek(); m != nil; m = r.cuts.ring.Peek() {
		m.visit(r.begin())
		if r.tell.Episode != nil {
			_ = r.tell.Episode(m)
		}
		at := m.At
		r.cuts.ring.Release()
		r.keep(channelEpisode, at)
	}
	for e := r.events.ring.Peek(); e != nil; e = r.events.ring.Peek() {
		if e.session != nil {
			e.session.visit(r.begin())
			r.keep(channelSession, e.At)
		}
		e.visit(r.begin())
		r.keep(channelEvent, e.At)
		if r.tell.Event != nil {
			_ = r.tell.Event(e)
		}
		r.line.at, r.line.level, r.line.text, r.line.name = e.At, e.Level, e.Text, e.Kind
		r.line.visit(r.begin())
		at := e.At
		r.events.ring.Release()
		r.keep(channelLog, at)
	}
}

//rt:noalloc
func (r *Recorder) chunks(lane *Lane[Chunk]) {
	for m := lane.ring.Peek(); m != nil; m = lane.ring.Peek() {
		m.visit(r.begin())
		if r.tell.Chunk != nil {
			_ = r.tell.Chunk(m)
		}
		at := m.At
		lane.ring.Release()
		r.keep(channelChunk, at)
	}
}

// begin returns the coder, ready for a message.
//
//rt:noalloc
func (r *Recorder) begin() *coder {
	r.coder.out, r.coder.num, r.coder.wall = r.coder.out[:0], 0, r.wall.Load()
	return &r.coder
}

//rt:noalloc
func (r *Recorder) keep(channel uint16, at rt.Instant) {
	if r.messages != nil && !r.messages.put(channel, at, r.coder.out) {
		r.counts.unmade.Add(1)
	}
}

// Image keeps a picture of the camera of that number, a JPEG.
//
//rt:noalloc
func (r *Recorder) Image(camera int, at rt.Instant, data Bytes) {
	if len(data.A)+len(data.B)+len(data.C)+maxText > scratchBytes {
		r.counts.lostPictures.Add(1)
		return
	}
	m := Image{At: at, Data: data, Format: "jpeg", Camera: r.cfg.Cameras[camera]}
	m.visit(r.begin())
	if !r.pictures.put(channelCamera+uint16(camera), at, r.coder.out) {
		r.counts.lostPictures.Add(1)
	}
}

// Stats is what a recorder has done; its JSON keys are a contract (docs/json.md).
type Stats struct {
	Mode         Mode   `json:"mode"`
	Files        uint64 `json:"files"`
	Bytes        uint64 `json:"bytes"`
	Messages     uint64 `json:"messages"`
	Pictures     uint64 `json:"pictures"`
	Lost         uint64 `json:"lost"`
	LostPictures uint64 `json:"lost_pictures"`
	TornPictures uint64 `json:"torn_pictures"` // that do not decode; counted by the edge
	Saves        uint64 `json:"saves"`
	Repaired     uint64 `json:"repaired"`
	Deleted      uint64 `json:"deleted"`
	Error        string `json:"error,omitempty"`
}

// Stats may be called by any thread.
func (r *Recorder) Stats() Stats {
	c := &r.counts
	s := Stats{
		Mode: r.cfg.Mode, Files: c.files.Load(), Bytes: c.bytes.Load(), Messages: c.written.Load(), Pictures: c.pictures.Load(),
		Lost:         c.lost.Load() + c.unmade.Load() + r.Ticks.lost.Load() + r.Requests.lost.Load() + r.Merges.lost.Load() + r.Refused.lost.Load() + r.Sent.lost.Load() + r.events.lost.Load() + r.cuts.lost.Load(),
		LostPictures: c.lostPictures.Load(), Saves: c.saves.Load(), Repaired: c.repaired.Load(), Deleted: c.deleted.Load(),
	}
	if why := c.failing.Load(); why != nil {
		s.Error = *why
	}
	return s
}
