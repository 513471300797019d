package record

import (
	"unicode/utf8"

	"edgert/rt"
)

// Limits of what one message holds.
const (
	MaxJoints  = 32
	MaxCameras = 8
	MaxTask    = 4096 // bytes of a task, as many as an observation carries

	maxText = 240 // bytes of another text; a longer one is cut, and ends in ellipsis
)

const ellipsis = "…"

// Row is a number for each joint, in robot units.
type Row struct {
	N int
	V [MaxJoints]float32
}

// Set copies values, of which there are at most MaxJoints.
//
//rt:noalloc
func (r *Row) Set(values []float32) { r.N = copy(r.V[:], values) }

// Values are the numbers, lent.
func (r *Row) Values() []float32 { return r.V[:r.N] }

// Text is a short text in memory of its own.
type Text struct {
	n uint8
	b [maxText]byte
}

// Set copies a text. One that is too long ends in an ellipsis.
//
//rt:noalloc
func (t *Text) Set(text string) { t.n = uint8(fit(t.b[:], text)) }

// SetBytes is Set of bytes.
//
//rt:noalloc
func (t *Text) SetBytes(text []byte) { t.n = uint8(fit(t.b[:], text)) }

func (t *Text) String() string { return string(t.b[:t.n]) }

// Is reports whether it is what Set makes of a text.
//
//rt:noalloc
func (t *Text) Is(text string) bool {
	var other Text
	other.Set(text)
	return string(t.b[:t.n]) == string(other.b[:other.n])
}

// Task is a task in memory of its own.
type Task struct {
	n   uint16
	b   [MaxTask]byte
	cut bool // it may be the beginning of a longer one
}

// oldTask is how many bytes of a task edge-rt kept before it kept all of it. It cut the
// rest, also within a character.
const oldTask = 240

// Set copies a text. The programs refuse one of more than MaxTask bytes where a person
// gives it; here it would end in an ellipsis.
//
//rt:noalloc
func (t *Task) Set(text string) { t.n, t.cut = uint16(fit(t.b[:], text)), false }

func (t *Task) String() string { return string(t.b[:t.n]) }

// Cut reports whether a task that was read may be the beginning of a longer one: the
// record of an older edge-rt.
func (t *Task) Cut() bool { return t.cut }

// Text is the task as a text of an event has it.
//
//rt:noalloc
func (t *Task) Text(to *Text) { to.SetBytes(t.b[:t.n]) }

// fit copies a text into room and returns its length. A text that is too long is cut
// between two characters and ends in an ellipsis.
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

// Session is the session in which a chunk was requested. It never changes, so that
// messages may point to it.
type Session struct {
	ID       string
	Epoch    uint32
	Service  string // beginning of the server's keys
	ServerID string // empty: the server does not say
	Model    string
	Revision string
	SHA256   string // the model's; empty where the server does not say
}

var nobody Session

// visit names the fields, in the order of their numbers.
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
	At       rt.Instant // when it woke
	Lateness int64      // ns after its deadline
	Skipped  uint64     // periods without a tick before it
	State    Row        // measured
	Goal     Row        // written, or as it was where nothing was written
	Action   Row        // what the policy wanted for this step; empty: no action began on this tick

	// Of the action that began on this tick.
	Step         int64
	Source       rt.Instant // older of the state and the oldest picture that it was computed from
	Seq          uint64     // its request
	Epoch        uint32     // of that session
	Episode      uint32
	Index        int32 // row of the chunk
	Delay        int32 // rows that were announced to run before the chunk came
	Dropped      int32 // rows that had run when it was merged
	RangeClipped uint32
	StepClipped  uint32 // joints, one bit each, whose goal the gate brought back

	Read, Act, Merge, Ask int64 // ns that the parts took

	RunState  uint32 // RunStates
	Queue     int32  // actions left
	Starved   bool   // an action was due and none ran
	TooOld    bool   // one was there, and older than --max-action-age
	BusSilent bool   // so many joints did not answer that nothing moved
	Paused    bool   // by an operator, between two episodes, or a leader comes to the follower before a person takes over
	NoPicture bool   // a camera has not given its first
	NoSession bool
	Stale     uint32 // joints, one bit each, that did not answer on this tick
	Frozen    uint32 // that have not for so long that they keep their goal
	Held      uint32 // that keep it for another reason

	OverrunOwn  int64 // ns that an earlier tick computed and waited for the bus, when that was more than a period
	OverrunHost int64 // ns that the machine took around it
	Suspended   int64 // ns that the machine was suspended before this tick

	Intervention bool // Action is a person's, at a leader arm

	Stolen  int64  // ns that the host took of this machine's CPUs since the tick before, as known by then
	Retried uint32 // transactions on the bus that were repeated since the tick before
	Lost    uint32 // positions that did not come all the same
	Spoilt  uint32 // runs of bytes that were no frame, and frames that nobody asked for
}

// RunStates names the values of RunState.
var RunStates = []string{"DEAD", "CONNECTING", "STREAMING", "DEGRADED", "STALLED", "RECONNECTING"}

//rt:noalloc
func (t *Tick) visit(c *coder) {
	c.int("t_ns", (*int64)(&t.At))
	c.int("lateness_ns", &t.Lateness)
	c.uint64("skipped", &t.Skipped)
	c.row("state", &t.State)
	c.row("goal", &t.Goal)
	c.row("action", &t.Action)
	c.int("step", &t.Step)
	c.int("source_ns", (*int64)(&t.Source))
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

// Request is one time that the tick asked for a chunk.
type Request struct {
	At      rt.Instant // the tick's, at which its state was measured
	Seq     uint64
	Epoch   uint32
	Episode uint32
	Start   bool  // first of the episode
	Step    int64 // of row 0 of the answer
	Delay   int32 // rows that will have run when the answer comes
	Rows    int32 // of the prefix that conditions the answer
	Runway  int64 // ns until the actions end
	Session *Session
}

//rt:noalloc
func (r *Request) visit(c *coder) {
	c.int("t_ns", (*int64)(&r.At))
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

// session adds the fields of a message's session, so that a message explains itself
// where the one of the session is no longer in the file.
//
//rt:noalloc
func session(c *coder, s **Session) {
	switch {
	case c.mode == decoding:
		*s = &Session{} //rt:allow reading a file is no path of a robot
	case *s == nil:
		*s = &nobody
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

// Sent is what became of a request's observation.
type Sent struct {
	At       rt.Instant
	Seq      uint64
	Epoch    uint32
	Observed rt.Instant // older of its state and its oldest picture; 0: there was no picture
	Bytes    int64
	Outcome  string // sent, no_session, no_picture, error
}

//rt:noalloc
func (s *Sent) visit(c *coder) {
	c.int("t_ns", (*int64)(&s.At))
	c.uint64("seq", &s.Seq)
	c.uint32("epoch", &s.Epoch)
	c.int("observed_ns", (*int64)(&s.Observed))
	c.int("bytes", &s.Bytes)
	c.string("outcome", &s.Outcome)
}

// Joined is the outcome of a Chunk that was merged.
const Joined = "joined"

// Chunk is one answer.
type Chunk struct {
	At         rt.Instant
	Seq        uint64
	Epoch      uint32
	Episode    uint32
	Outcome    string // Joined, or why it was dropped, as chunks_dropped in docs/json.md
	Step       int64  // of its row 0; where it was joined
	Rows       int32
	Dropped    int32      // rows that had run
	RTT        int64      // ns from the state's measurement to the merge
	QueueWait  int64      // ns at the server, as it says
	Inference  int64      // likewise
	Superseded uint64     // observations of this robot that the server replaced unseen since its last answer
	Observed   rt.Instant // the request's
	Jump       int64      // largest distance to an action that it replaced, in 10^-6 robot units
	Session    *Session
}

//rt:noalloc
func (k *Chunk) visit(c *coder) {
	c.int("t_ns", (*int64)(&k.At))
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
	c.int("observed_ns", (*int64)(&k.Observed))
	c.int("jump_micro", &k.Jump)
	session(c, &k.Session)
}

// Outcomes of an Episode. One without is under way, or was cut short by the end of the run.
const (
	Success  = "success"
	Failure  = "failure"
	Timeout  = "timeout"  // its time was over, and nobody has said how it went
	Discard  = "discard"  // to be left out of a data set
	Rerecord = "rerecord" // likewise; the next one takes its place
)

// Episode is the begin of one, or its end: ticks from the one to the other are its frames.
// A second end of the same number is a person's second thought: its outcome counts, and the
// frames end with the first.
type Episode struct {
	At      rt.Instant
	Number  uint32 // the first of a run is 1
	Ended   bool
	Outcome string // of one that has ended
	Task    Task
}

//rt:noalloc
func (e *Episode) visit(c *coder) {
	c.int("t_ns", (*int64)(&e.At))
	c.uint32("number", &e.Number)
	c.bool("ended", &e.Ended)
	c.string("outcome", &e.Outcome)
	c.task("task", &e.Task)
}

// Levels of an Event, foxglove.Log's.
const (
	LevelInfo    = 2
	LevelWarning = 3
	LevelError   = 4
)

// Event is what happened beside ticks, requests and chunks.
type Event struct {
	At    rt.Instant
	Kind  string // state, bus, joint, tick, operator, server, link, camera, record, exit
	Level uint32
	Code  uint32 // of package event; 0: it has none
	A, B  int64  // what that code says
	Text  Text

	session *Session // not nil: it is the message of a session
}

//rt:noalloc
func (e *Event) visit(c *coder) {
	c.int("t_ns", (*int64)(&e.At))
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
	line       uint32
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

// Bytes are data in up to three parts; what was read is in A.
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

// visit names the fields. Reading takes At from the message's place in the file (read.go):
// the time of day may have been set between the moment in which the picture was encoded
// and the one in which its file began.
//
//rt:noalloc
func (m *Image) visit(c *coder) {
	c.stamp("timestamp", &m.At)
	c.bytes("data", &m.Data)
	c.string("format", &m.Format)
	c.string("frame_id", &m.Camera)
}

// Parse reads a message into one of *Tick, *Request, *Sent, *Chunk, *Session, *Event,
// *Episode and *Image; wall is the file's ns from an instant to the time of day.
func Parse(m message, data []byte, wall int64) error {
	var c coder
	if err := c.parse(data); err != nil {
		return err
	}
	c.wall = wall
	m.visit(&c)
	return c.err
}

// Append appends such a message, as it is in a file.
func Append(to []byte, m message, wall int64) []byte {
	c := coder{out: to, wall: wall}
	m.visit(&c)
	return c.out
}

type message interface{ visit(*coder) }
