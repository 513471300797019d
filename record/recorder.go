// Package record is a robot's flight recorder: it records a run in MCAP files that Foxglove, Rerun
// and any MCAP reader open (docs/record.md).
//
// The path of a message:
//
//	message.go   the robot's threads fill fixed-size messages in rings (Lane)
//	recorder.go  one thread takes the messages out and encodes them as protobuf (coder.go, schema.go)
//	window.go    this thread keeps the newest in memory: minutes of messages, seconds of pictures
//	writer.go    another thread writes the memory's content into files: at a save, or always in mode All
//	folder.go    the files together stay below a size, and leave the disk room; the oldest are deleted first
//	repair.go    the next start repairs files that a power cut has torn
//	read.go      reads the files
//
// Only the writing thread touches the disk. When the disk is full, folder.go deletes the oldest records. If the disk
// still accepts no data, new messages displace old messages in memory; writer.go counts the lost messages and tries
// again every two to eight seconds.
package record

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

// Mode selects the messages that the recorder writes to disk.
type Mode string

// The modes.
const (
	Off  Mode = "off"  // nothing
	Ring Mode = "ring" // the last minutes, after an incident
	All  Mode = "all"  // everything
)

// Bounds of the memory.
const (
	maxMemory = 24 << 20 // maximum memory of a recorder

	tickSlots    = 512 // messages: 8 s at 60 Hz, 0.5 s at 1 kHz
	otherSlots   = 64  // messages: requests, chunks and rarer kinds
	messageBytes = 7 << 20
	pictureBytes = 8 << 20
	scratchBytes = 1 << 20 // size of the largest message
	messageSpan  = 10 * time.Minute
	pictureSpan  = 10 * time.Second
	wallStep     = 100 * time.Millisecond // least change of the time of day that setWall adopts
)

// The rest of maxMemory is for the chunk that is being written: the entries that the writer has taken out of a window,
// the library's own copy of them, and their compressed form.
const _ = uint(maxMemory - messageBytes - pictureBytes - scratchBytes - 4*chunkBytes)

// Config configures one recorder.
type Config struct {
	Mode    Mode
	Dir     string // folder of the files; the recorder makes it
	Size    int64  // maximum bytes of all files in Dir
	ID      string // the robot's id, with which the files' names begin
	Cameras []string
	Clock   rt.Clock
	Now     func() time.Time // the time of day; nil: time.Now

	// Closed is called on the writing thread after each file, when the memory that wrote the file has become garbage.
	// May be nil.
	Closed func()

	// Report receives news of the files, on Repair's thread for repaired files, and on Write's thread for other files.
	// May be nil.
	Report func(Report)
}

// Report is news about the record's files for a person.
type Report struct {
	File string
	Why  string // reason for beginning the file, or Repaired, Deleted or Unreserved
	Err  error  // cause of a failed repair or reservation; if File is empty, writing fails until a report of a new file
}

// Values of Report.Why for news about other things than a new file.
const (
	Repaired = "repaired" // a torn file of an earlier run was repaired
	Deleted  = "deleted"  // a file of this run was deleted, because of Config.Size or a full disk

	// Unreserved: the run's files (File is the first of them) must stay, but the recorder could not
	// reserve them against the folder's other recorders.
	Unreserved = "unreserved"
)

// Recorder takes messages from a robot's threads. The Note functions and Save work on a nil
// Recorder and record nothing.
type Recorder struct {
	Ticks    *Lane[Tick]    // from the tick thread
	Requests *Lane[Request] // from the tick thread
	Merges   *Lane[Chunk]   // from the tick thread
	Refused  *Lane[Chunk]   // from the receiver
	Sent     *Lane[Sent]    // from the sender

	cfg  Config
	wall atomic.Int64 // Unix time of instant 0, in ns

	noting sync.Mutex // held by the threads that call Note
	events *Lane[Event]
	cuts   *Lane[Episode]

	// Owner: the thread that calls Collect.
	coder    coder
	messages *window // nil: Mode is Off
	pictures *window // empty: there are no cameras
	visitor  Visitor
	line     logLine

	asked   atomic.Pointer[string] // reason of a requested save; nil: no request
	urgent  atomic.Bool            // the requested save may not wait for the pace of saves
	keepOwn atomic.Bool            // the recorder must not delete files of this run
	counts  counts
	run     atomic.Pointer[map[string]string]
	writer  writer
}

// counts are the counters of Stats, updated by any thread.
type counts struct {
	files, bytes, written, pictures atomic.Uint64
	lost, lostPictures, unmade      atomic.Uint64
	saves, repaired, deleted        atomic.Uint64
	failing                         atomic.Pointer[string]
}

// Lane is a ring of messages from one thread to the recorder's thread.
type Lane[T any] struct {
	ring *rt.Ring[T]
	lost atomic.Uint64
}

func newLane[T any](slots int) *Lane[T] { return &Lane[T]{ring: rt.NewRing[T](slots)} }

// Put lends the next message for filling; the message still has its old content. When the ring is full, Put
// returns nil, and the message is lost and counted.
//
// Owner: one thread, which also calls Commit.
//
//rt:noalloc
func (l *Lane[T]) Put() *T {
	slot := l.ring.Reserve()
	if slot == nil {
		l.lost.Add(1)
	}
	return slot
}

// Commit hands over the message that was lent last.
//
//rt:noalloc
func (l *Lane[T]) Commit() { l.ring.Commit() }

// New returns a recorder. It writes nothing until threads call Collect and Write.
func New(cfg Config) (*Recorder, error) {
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
		Ticks:    newLane[Tick](tickSlots),
		Requests: newLane[Request](otherSlots),
		Merges:   newLane[Chunk](otherSlots),
		Refused:  newLane[Chunk](otherSlots),
		Sent:     newLane[Sent](otherSlots),
		events:   newLane[Event](otherSlots),
		cuts:     newLane[Episode](otherSlots),
		cfg:      cfg,
		pictures: &window{},
	}
	if cfg.Mode != Off {
		r.messages = newWindow(messageBytes, messageSpan)
	}
	r.wall.Store(r.wallOffset())
	r.coder = coder{out: make([]byte, 0, scratchBytes)}
	r.SetRun(nil)
	r.writer.init(r)
	return r, r.SetCameras(cfg.Cameras)
}

// wallOffset returns the Unix time of instant 0, in ns.
func (r *Recorder) wallOffset() int64 { return r.cfg.Now().UnixNano() - int64(r.cfg.Clock.Now()) }

// setWall adopts the time of day if it was set, for example after a machine without a real-time clock has reached the
// network, and returns the Unix time of instant 0. Messages in memory keep their times. setWall ignores the drift
// between the two clocks, so that all files of a run share one scale.
func (r *Recorder) setWall() int64 {
	if now := r.wallOffset(); time.Duration(now-r.wall.Load()).Abs() > wallStep {
		r.wall.Store(now)
	}
	return r.wall.Load()
}

// Visit registers a visitor for the messages that Collect takes in, except sessions and pictures, also in mode Off. The
// thread that calls Collect calls the visitor's funcs and ignores their errors; the funcs must not delay it. Call Visit
// before this thread starts.
func (r *Recorder) Visit(v Visitor) { r.visitor = r.visitor.and(v) }

// Wall returns the Unix time of instant 0, in ns, as in the files.
func (r *Recorder) Wall() int64 { return r.wall.Load() }

// SetRun sets the metadata of the files. Any thread may call it.
func (r *Recorder) SetRun(run map[string]string) { r.run.Store(&run) }

// ChangeRun changes a value of the metadata in the files that begin later. One thread may call it, after SetRun.
func (r *Recorder) ChangeRun(key, value string) {
	if r != nil {
		run := map[string]string{}
		maps.Copy(run, *r.run.Load())
		run[key] = value
		r.SetRun(run)
	}
}

// SetCameras sets the names of the cameras. Call it once, before the first picture and the first
// file.
func (r *Recorder) SetCameras(names []string) error {
	if err := checkCameras(names); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	r.cfg.Cameras = names
	if len(names) > 0 && r.cfg.Mode != Off {
		r.pictures = newWindow(pictureBytes, pictureSpan)
	}
	return nil
}

// Note records an event. Any thread except the tick's may call it, also on a nil Recorder.
func (r *Recorder) Note(at rt.Instant, kind string, level uint32, text string) {
	note(r, Event{At: at, Kind: kind, Level: level}, text)
}

// NoteEvent does the same as Note for an event that has a code and two numbers, a and b.
func (r *Recorder) NoteEvent(at rt.Instant, kind string, level, code uint32, a, b int64, text []byte) {
	note(r, Event{
		At:    at,
		Kind:  kind,
		Level: level,
		Code:  code,
		A:     a,
		B:     b,
	}, text)
}

// NoteSession records the opening of a session.
func (r *Recorder) NoteSession(at rt.Instant, s *Session) {
	note(r, Event{
		At:      at,
		Kind:    "link",
		Level:   LevelInfo,
		session: s,
	}, "session open")
}

func note[T string | []byte](r *Recorder, e Event, text T) {
	if r == nil {
		return
	}
	r.noting.Lock()
	defer r.noting.Unlock()
	if m := r.events.Put(); m != nil {
		*m = e
		m.Text.n = uint8(fit(m.Text.b[:], text))
		r.events.Commit()
	}
}

// NoteEpisode records the beginning or the end of an episode. Any thread except the tick's may call
// it, also on a nil Recorder.
func (r *Recorder) NoteEpisode(at rt.Instant, number uint32, ended bool, outcome, task string) {
	if r == nil {
		return
	}
	r.noting.Lock()
	defer r.noting.Unlock()
	if m := r.cuts.Put(); m != nil {
		*m = Episode{
			At:      at,
			Number:  number,
			Ended:   ended,
			Outcome: outcome,
		}
		m.Task.Set(task)
		r.cuts.Commit()
	}
}

// Keep protects all files of this run from deletion from now on. When these files fill Config.Size, the recorder drops
// new messages instead, and counts and reports them. Any thread may call it.
func (r *Recorder) Keep() { r.keepOwn.Store(true) }

// Save makes the writing thread write the memory's content to disk. With atOnce the save does not wait for the pause
// after an earlier save. The parameter why points to the reason that the file gets. This text must not change. Any
// thread may call it, also on a nil Recorder.
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

// Collect moves the messages from the lanes into memory.
//
// Owner: one thread, which also calls Image.
//
//rt:noalloc
func (r *Recorder) Collect() {
	for m := r.Ticks.ring.Peek(); m != nil; m = r.Ticks.ring.Peek() {
		if m.Starved {
			r.Save(&starved, false)
		}
		take(r, r.Ticks, channelTick, m, r.visitor.Tick)
	}
	all(r, r.Requests, channelRequest, r.visitor.Request)
	all(r, r.Sent, channelSent, r.visitor.Sent)
	all(r, r.Merges, channelChunk, r.visitor.Chunk)
	all(r, r.Refused, channelChunk, r.visitor.Chunk)
	all(r, r.cuts, channelEpisode, r.visitor.Episode)
	for e := r.events.ring.Peek(); e != nil; e = r.events.ring.Peek() {
		if e.session != nil {
			e.session.visit(r.begin())
			r.keep(channelSession, e.At)
		}
		r.line.at = e.At
		r.line.level = e.Level
		r.line.text = e.Text
		r.line.name = e.Kind
		take(r, r.events, channelEvent, e, r.visitor.Event)
		r.line.visit(r.begin())
		r.keep(channelLog, r.line.at)
	}
}

// all moves the messages from a lane into memory.
//
//rt:noalloc
func all[T any, M messagePointer[T]](r *Recorder, lane *Lane[T], channel uint16, visit func(M) error) {
	for m := lane.ring.Peek(); m != nil; m = lane.ring.Peek() {
		take(r, lane, channel, M(m), visit)
	}
}

// take moves a lane's next message, m, into memory.
//
//rt:noalloc
func take[T any, M messagePointer[T]](r *Recorder, lane *Lane[T], channel uint16, m M, visit func(M) error) {
	m.visit(r.begin())
	if visit != nil {
		_ = visit(m)
	}
	lane.ring.Release()
	r.keep(channel, r.coder.at)
}

// begin returns the coder, ready for a message.
//
//rt:noalloc
func (r *Recorder) begin() *coder {
	r.coder.out = r.coder.out[:0]
	r.coder.num = 0
	r.coder.wall = r.wall.Load()
	return &r.coder
}

//rt:noalloc
func (r *Recorder) keep(channel uint16, at rt.Instant) {
	if r.messages != nil && !r.messages.put(channel, at, r.coder.out) {
		r.counts.unmade.Add(1)
	}
}

// Image keeps a picture, which is a JPEG. camera is the index of its camera in Config.Cameras.
//
//rt:noalloc
func (r *Recorder) Image(camera int, at rt.Instant, data Bytes) {
	if len(data.A)+len(data.B)+len(data.C)+maxText > scratchBytes {
		r.counts.lostPictures.Add(1)
		return
	}
	m := Image{
		At:     at,
		Data:   data,
		Format: "jpeg",
		Camera: r.cfg.Cameras[camera],
	}
	m.visit(r.begin())
	if !r.pictures.put(channelCamera+uint16(camera), at, r.coder.out) {
		r.counts.lostPictures.Add(1)
	}
}

// Stats are the recorder's counters; their JSON keys are a contract (docs/json.md).
type Stats struct {
	Mode     Mode   `json:"mode"`     // --record
	Files    uint64 `json:"files"`    // files begun
	Bytes    uint64 `json:"bytes"`    // bytes, written into the files
	Messages uint64 `json:"messages"` // messages in the files, without pictures
	Pictures uint64 `json:"pictures"` // pictures in the files
	// messages that were not written: the disk failed or a thread was too slow
	Lost         uint64 `json:"lost"`
	LostPictures uint64 `json:"lost_pictures"` // pictures that were not written, for the same reasons
	// pictures that do not decode; the log names their cameras, a dataset leaves them out
	TornPictures uint64 `json:"torn_pictures"`
	Saves        uint64 `json:"saves"`           // writes of the ring
	Repaired     uint64 `json:"repaired"`        // files of earlier runs without an end, which were completed
	Deleted      uint64 `json:"deleted"`         // old files deleted because of --record-size or a full disk
	Error        string `json:"error,omitempty"` // why nothing could be written at the end
}

// Stats returns the counters. Any thread may call it.
func (r *Recorder) Stats() Stats {
	c := &r.counts
	s := Stats{
		Mode:     r.cfg.Mode,
		Files:    c.files.Load(),
		Bytes:    c.bytes.Load(),
		Messages: c.written.Load(),
		Pictures: c.pictures.Load(),
		Lost: c.lost.Load() + c.unmade.Load() + r.Ticks.lost.Load() + r.Requests.lost.Load() +
			r.Merges.lost.Load() + r.Refused.lost.Load() + r.Sent.lost.Load() + r.events.lost.Load() +
			r.cuts.lost.Load(),
		LostPictures: c.lostPictures.Load(),
		Saves:        c.saves.Load(),
		Repaired:     c.repaired.Load(),
		Deleted:      c.deleted.Load(),
	}
	if why := c.failing.Load(); why != nil {
		s.Error = *why
	}
	return s
}
