package record

import (
	"unicode/utf8"

	"github.com/edge-rt/edge-rt/rt"
)

// Limits of one message.
const (
	MaxJoints  = 32
	MaxCameras = 8
	MaxTask    = 4096 // largest number of bytes of a task, as many as an observation carries

	maxText = 240 // bytes of any other text; a longer text is cut and ends in an ellipsis
)

const ellipsis = "…"

// Row is one number per joint, in robot units.
type Row struct {
	N int
	V [MaxJoints]float32
}

// Set copies the values, of which MaxJoints at most are kept.
//
//rt:noalloc
func (r *Row) Set(values []float32) { r.N = copy(r.V[:], values) }

// Values returns the numbers, lent.
func (r *Row) Values() []float32 { return r.V[:r.N] }

// Text is a short text that holds its own bytes.
type Text struct {
	n uint8
	b [maxText]byte
}

// Set copies a text. A text that is too long ends in an ellipsis.
//
//rt:noalloc
func (t *Text) Set(text string) { t.n = uint8(fit(t.b[:], text)) }

// setBytes does the same as Set for bytes.
//
//rt:noalloc
func (t *Text) setBytes(text []byte) { t.n = uint8(fit(t.b[:], text)) }

func (t *Text) String() string { return string(t.b[:t.n]) }

// Is reports whether t equals the result of Set(text).
//
//rt:noalloc
func (t *Text) Is(text string) bool {
	var other Text
	other.Set(text)
	return string(t.b[:t.n]) == string(other.b[:other.n])
}

// Task is a task that holds its own bytes.
type Task struct {
	n   uint16
	b   [MaxTask]byte
	cut bool // true: the task may be the beginning of a longer task
}

// oldTask is the length in bytes at which older versions of edge-rt cut a task, also within a
// character.
const oldTask = 240

// Set copies a text. A text of more than MaxTask bytes ends in an ellipsis, but the programs already refuse such a task
// at their input.
//
//rt:noalloc
func (t *Task) Set(text string) { t.n, t.cut = uint16(fit(t.b[:], text)), false }

func (t *Task) String() string { return string(t.b[:t.n]) }

// Cut reports whether a task that was read from a file may be the beginning of a longer task, which an older edge-rt
// has cut.
func (t *Task) Cut() bool { return t.cut }

// Text copies the task into the text of an event.
//
//rt:noalloc
func (t *Task) Text(to *Text) { to.setBytes(t.b[:t.n]) }

// fit copies a text into room and returns its length. It cuts a text that is too long between two
// characters and ends it in an ellipsis.
//
//rt:noalloc
func fit[T string | []byte](room []byte, text T) int {
	if len(text) <= len(room) {
		return copy(room, text)
	}
	n := len(room) - len(ellipsis)
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	copy(room, text[:n])
	return n + copy(room[n:], ellipsis)
}

// Session is the session in which a chunk was requested. It never changes, so that messages may
// point to it.
type Session struct {
	ID       string
	Epoch    uint32
	Service  string // beginning of the server's keys
	ServerID string // empty: the server sends no id
	Model    string
	Revision string
	SHA256   string // hash of the model; empty if the server sends no hash
}

var noSession Session

// visit codes the fields, in the order of their numbers.
//
//rt:noalloc
func (s *Session) visit(c *coder) {
	c.string("session", &s.ID)
	c.uint32("epoch", &s.Epoch)
	c.string("service", &s.Service)
	c.string("server_id", &s.ServerID)
	c.string("model", &s.Model)
	c.string("revision", &s.Revision)
	c.string("model_sha256", &s.SHA256)
}

// Tick is one period of the arm.
type Tick struct {
	At       rt.Instant // the tick's wake-up
	Lateness int64      // ns after its deadline
	Skipped  uint64     // periods without a tick before this tick
	State    Row        // measured
	Goal     Row        // goal that was written on this tick; without a write, the previous goal
	Action   Row        // the policy's action for this step; empty: no action began on this tick

	// The following fields describe the action that began on this tick.
	Step         int64
	Source       rt.Instant // instant of the state or of the oldest picture for this action, whichever is older
	Seq          uint64     // number of the request that the action answers
	Epoch        uint32     // session of that request
	Episode      uint32
	Index        int32 // index of the row in the chunk
	Delay        int32 // rows that the request expected to run before the chunk's arrival
	Dropped      int32 // rows that had already run when the chunk was merged
	RangeClipped uint32
	StepClipped  uint32 // joints, one bit each, whose goal the gate limited

	Read, Act, Merge, Ask int64 // ns that the parts of the tick took

	RunState  uint32 // index in RunStates
	Queue     int32  // number of actions that are left
	Starved   bool   // an action was due, and no action ran
	TooOld    bool   // the due action was older than --max-action-age
	BusSilent bool   // too few joints answered, so nothing moved
	Paused    bool   // paused by an operator, between two episodes, or while a leader moves to the follower
	NoPicture bool   // a camera has not delivered its first picture
	NoSession bool
	Stale     uint32 // joints, one bit each, that did not answer on this tick
	Frozen    uint32 // joints that have been silent for so long that they keep their goals
	Held      uint32 // joints that keep their goal for another reason

	OverrunOwn  int64 // ns of an earlier tick's computation and bus wait, if longer than a period
	OverrunHost int64 // ns that the host stole from this machine around that tick
	Suspended   int64 // ns that the machine was suspended before this tick

	Intervention bool // Action is a person's, from a leader arm

	// ns for which the host did not run this machine's CPUs since the previous tick, as far as
	// known then
	Stolen  int64
	Retried uint32 // bus transactions repeated since the previous tick
	Lost    uint32 // positions that were lost although transactions were repeated
	Spoilt  uint32 // sequences of bytes that are not a frame, and unexpected frames
}

// RunStates names the values of RunState.
var RunStates = []string{"DEAD", "CONNECTING", "STREAMING", "DEGRADED", "STALLED", "RECONNECTING"}

//rt:noalloc
func (t *Tick) visit(c *coder) {
	c.begin(&t.At)
	c.int("lateness_ns", &t.Lateness)
	c.uint64("skipped", &t.Skipped)
	c.row("state", &t.State)
	c.row("goal", &t.Goal)
	c.row("action", &t.Action)
	c.int("step", &t.Step)
	c.instant("source_ns", &t.Source)
	c.uint64("seq", &t.Seq)
	c.uint32("epoch", &t.Epoch)
	c.uint32("episode", &t.Episode)
	c.int32("chunk_index", &t.Index)
	c.int32("delay", &t.Delay)
	c.int32("dropped", &t.Dropped)
	c.uint32("clipped_range", &t.RangeClipped)
	c.uint32("clipped_step", &t.StepClipped)
	c.int("read_ns", &t.Read)
	c.int("act_ns", &t.Act)
	c.int("merge_ns", &t.Merge)
	c.int("ask_ns", &t.Ask)
	c.enum("run_state", ".edgert.RunState", &t.RunState)
	c.int32("queue", &t.Queue)
	c.bool("starved", &t.Starved)
	c.bool("too_old", &t.TooOld)
	c.bool("bus_silent", &t.BusSilent)
	c.bool("paused", &t.Paused)
	c.bool("no_picture", &t.NoPicture)
	c.bool("no_session", &t.NoSession)
	c.uint32("stale", &t.Stale)
	c.uint32("frozen", &t.Frozen)
	c.uint32("held", &t.Held)
	c.int("overrun_own_ns", &t.OverrunOwn)
	c.int("overrun_host_ns", &t.OverrunHost)
	c.int("suspended_ns", &t.Suspended)
	c.bool("intervention", &t.Intervention)
	c.int("stolen_ns", &t.Stolen)
	c.uint32("bus_retried", &t.Retried)
	c.uint32("bus_lost", &t.Lost)
	c.uint32("bus_spoilt", &t.Spoilt)
}

// Request is one request of the tick for a chunk.
type Request struct {
	At      rt.Instant // instant of the tick, and of its state
	Seq     uint64
	Epoch   uint32
	Episode uint32
	Start   bool  // this is the first request of the episode
	Step    int64 // step of row 0 of the answer
	Delay   int32 // rows that are expected to have run when the answer arrives
	Rows    int32 // rows of the prefix that conditions the answer
	Runway  int64 // ns until the actions end
	Session *Session
}

//rt:noalloc
func (r *Request) visit(c *coder) {
	c.begin(&r.At)
	c.uint64("seq", &r.Seq)
	c.uint32("epoch", &r.Epoch)
	c.uint32("episode", &r.Episode)
	c.bool("episode_start", &r.Start)
	c.int("step", &r.Step)
	c.int32("delay", &r.Delay)
	c.int32("prefix_rows", &r.Rows)
	c.int("runway_ns", &r.Runway)
	session(c, &r.Session)
}

// session adds the fields of a message's session, so that the message is complete even if the
// session's own message is no longer in the file.
//
//rt:noalloc
func session(c *coder, s **Session) {
	switch {
	case c.mode == decoding:
		*s = &Session{} //rt:allow reading a file is no path of a robot
	case *s == nil:
		*s = &noSession
	}
	of := **s
	c.string("session", &of.ID)
	c.string("server_id", &of.ServerID)
	c.string("model", &of.Model)
	c.string("revision", &of.Revision)
	c.string("model_sha256", &of.SHA256)
	if c.mode == decoding {
		**s = of
	}
}

// Sent is the outcome of sending a request's observation.
type Sent struct {
	At       rt.Instant
	Seq      uint64
	Epoch    uint32
	Observed rt.Instant // instant of the request's state or oldest picture, whichever is older; 0: no picture
	Bytes    int64
	Outcome  string     // sent, no_session, no_picture, unlike_training, error
	Encoded  rt.Instant // instant at which the message was complete; 0: not on record, or not sent
}

//rt:noalloc
func (s *Sent) visit(c *coder) {
	c.begin(&s.At)
	c.uint64("seq", &s.Seq)
	c.uint32("epoch", &s.Epoch)
	c.instant("observed_ns", &s.Observed)
	c.int("bytes", &s.Bytes)
	c.string("outcome", &s.Outcome)
	c.instant("encoded_ns", &s.Encoded)
}

// Joined is the outcome of a merged Chunk.
const Joined = "joined"

// Chunk is one answer of the server.
type Chunk struct {
	At        rt.Instant
	Seq       uint64
	Epoch     uint32
	Episode   uint32
	Outcome   string // Joined, or the reason of the drop, as in chunks_dropped in docs/json.md
	Step      int64  // step of row 0, if joined
	Rows      int32
	Dropped   int32 // rows that had already run
	RTT       int64 // ns from the state's measurement to the merge
	QueueWait int64 // ns in the server's queue, as the server reports
	Inference int64 // ns, as the server reports
	// observations of this robot that the server replaced, before any work on them, since the
	// previous answer
	Superseded uint64
	Observed   rt.Instant // instant of the request's observation
	Jump       int64      // largest distance between a row and the action that it replaced, in 10^-6 robot units
	Session    *Session
	Arrived    rt.Instant // instant at which the message was read; 0: not on record
}

//rt:noalloc
func (k *Chunk) visit(c *coder) {
	c.begin(&k.At)
	c.uint64("seq", &k.Seq)
	c.uint32("epoch", &k.Epoch)
	c.uint32("episode", &k.Episode)
	c.string("outcome", &k.Outcome)
	c.int("step", &k.Step)
	c.int32("rows", &k.Rows)
	c.int32("dropped", &k.Dropped)
	c.int("rtt_ns", &k.RTT)
	c.int("queue_wait_ns", &k.QueueWait)
	c.int("inference_ns", &k.Inference)
	c.uint64("superseded", &k.Superseded)
	c.instant("observed_ns", &k.Observed)
	c.int("jump_micro", &k.Jump)
	session(c, &k.Session)
	c.instant("arrived_ns", &k.Arrived)
}

// Outcomes of an Episode. An episode without an outcome is in progress, or the end of the run cut
// it short.
const (
	Success  = "success"
	Failure  = "failure"
	Timeout  = "timeout"  // its time ran out before an operator gave an outcome
	Discard  = "discard"  // the operator wants a dataset without this episode
	Rerecord = "rerecord" // a dataset leaves this episode out; the next episode takes its place
)

// Episode is the beginning or the end of an episode; the ticks between them are its frames. A second end with the same
// number corrects the outcome, but the first end still determines the last frame.
type Episode struct {
	At      rt.Instant
	Number  uint32 // the first episode of a run has number 1
	Ended   bool
	Outcome string // for an end: the outcome; empty at a beginning
	Task    Task
}

//rt:noalloc
func (e *Episode) visit(c *coder) {
	c.begin(&e.At)
	c.uint32("number", &e.Number)
	c.bool("ended", &e.Ended)
	c.string("outcome", &e.Outcome)
	c.task("task", &e.Task)
}

// Levels of an Event, as in foxglove.Log.
const (
	LevelInfo    = 2
	LevelWarning = 3
	LevelError   = 4
)

// Event is any incident other than ticks, requests and chunks.
type Event struct {
	At    rt.Instant
	Kind  string // state, bus, joint, tick, operator, server, link, camera, record, exit
	Level uint32
	Code  uint32 // of package event; 0: no code
	A, B  int64  // arguments of the code
	Text  Text

	session *Session // not nil: the session's own message is written together with this event
}

//rt:noalloc
func (e *Event) visit(c *coder) {
	c.begin(&e.At)
	c.string("kind", &e.Kind)
	c.enum("level", ".edgert.Level", &e.Level)
	c.uint32("code", &e.Code)
	c.int("a", &e.A)
	c.int("b", &e.B)
	c.text("text", &e.Text)
}

// logLine is an Event as foxglove.Log.
type logLine struct {
	at         rt.Instant
	level      uint32
	text       Text
	name, file string
}

//rt:noalloc
func (l *logLine) visit(c *coder) {
	c.stamp("timestamp", &l.at)
	c.enum("level", ".foxglove.Log.Level", &l.level)
	c.text("message", &l.text)
	c.string("name", &l.name)
	c.string("file", &l.file)
	if c.num++; c.mode == describing {
		c.describe("line", typeFixed32, labelOptional, "")
	}
}

// Bytes are data in up to three parts. Data that were read from a file are in A.
type Bytes struct {
	A []byte
	B string
	C []byte
}

// Image is a picture as foxglove.CompressedImage: a JPEG.
type Image struct {
	At     rt.Instant
	Data   Bytes // the JPEG
	Format string
	Camera string
}

// visit names the fields. Read sets At from the message's LogTime instead (read.go): between the
// encoding of the picture and the beginning of its file, the time of day may have been set.
//
//rt:noalloc
func (m *Image) visit(c *coder) {
	c.stamp("timestamp", &m.At)
	c.bytes("data", &m.Data)
	c.string("format", &m.Format)
	c.string("frame_id", &m.Camera)
}

// parse decodes a message into one of *Tick, *Request, *Sent, *Chunk, *Session, *Event, *Episode
// and *Image; wall is the Unix time of the file's instant 0, in ns.
func parse(m message, data []byte, wall int64) error {
	var c coder
	if err := c.parse(data); err != nil {
		return err
	}
	c.wall = wall
	m.visit(&c)
	return c.err
}

// Append appends a message of one of the types of parse, in the encoding of the files.
func Append(to []byte, m message, wall int64) []byte {
	c := coder{out: to, wall: wall}
	m.visit(&c)
	return c.out
}

type message interface{ visit(*coder) }

// messagePointer is a pointer to a message.
type messagePointer[T any] interface {
	*T
	message
}
