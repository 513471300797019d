// Package audit keeps the worker's actions on disk: one JSON line for each request (line.go), and a
// ring of the newest requests with their answers, to be answered again later (capture.go).
//
// The worker copies a Record into a preallocated slot and does not wait for the disk; another goroutine formats and
// writes. When no slot is free, the worker counts the record as dropped.
package audit

import (
	"cmp"
	"errors"
	"io"
	"log/slog"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/edge-rt/edge-rt/internal/terminal"
	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/server/memory"
	"github.com/edge-rt/edge-rt/server/queue"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/otlp"
)

const (
	// linesWaiting is how many lines may wait for the disk: two seconds of the fastest known
	// policy.
	linesWaiting = 1024
	// flushBytes is the size from which the collected lines are written.
	flushBytes = 32 << 10

	// endTimeout is how long stop waits for a goroutine that writes no further record.
	endTimeout = 5 * time.Second
)

// Outcome is the result of a request that had its turn.
type Outcome uint8

// The outcomes.
const (
	Answered Outcome = iota
	BadObservation
	InferenceFailed
	NotFinite
	Unsent
	NumOutcomes
)

var outcomeNames = [NumOutcomes]string{"ok", "bad_observation", "inference_failed", "not_finite", "unsent"}

func (o Outcome) String() string { return outcomeNames[o] }

// Record is the result of one request. A copy has a fixed size: it shares the strings and Cameras.
type Record struct {
	ClientUUID, SessionID, Task string
	// digest of the policy that answered; empty: that of the Origin given to Start
	Model      string
	Tags       string // the robot's tags, as Tags encodes them
	RTC        bool   // the session's chunks are conditioned
	Header     wire.Header
	At         rt.Instant // when the request was over
	QueueWait  time.Duration
	Decode     time.Duration
	Inference  time.Duration // time of the graph alone
	Service    time.Duration // time from arrival to the hand-over to the transport
	Batch, Row int           // size of the request's batch (0: no batch), and its row in the batch
	Superseded uint64        // the number that the chunk reports as superseded
	Controls   policy.Controls
	First      int64              // action step of the chunk's row 0; valid when there is a chunk
	Rows       int                // rows of the chunk; 0: no chunk
	Stale      uint32             // bit i: the picture of Cameras[i] was older than the robot allows
	Cameras    []wire.CameraShape // constant
	Outcome    Outcome
	Why        string // reason of the failure; "" without a failure
}

// Writer carries Records to the disk. A nil Writer drops them.
type Writer struct {
	// Constant after Open.
	lines    io.Writer      // nil: no lines are written
	file     *os.File       // the file of lines, for Close; nil: lines is not a file
	captures *ring          // nil: no captures are kept
	traces   *otlp.Exporter // nil: no traces are sent
	clock    rt.Clock
	log      *slog.Logger
	wake     queue.Signal // set when a record or request waits
	records  *rt.Ring[Record]
	requests *rt.Ring[request]
	memory   *memory.Bound // bounds the memory of captures
	adding   sync.Mutex    // held while a worker copies a record: a roll-out has two workers
	// bytes of the largest capture so far, which the ring's buffer must hold; guarded by adding
	largest int

	Counts Counts

	// Owner: the writer's goroutine.
	model   string // digest of the server's own policy; constant once the writer runs
	text    []byte
	count   uint64 // lines in text
	failing failing
	torn    bool // the last write ended within a line, so the next begins with a newline

	stalled bool // the goroutine hangs and was given up. Owner: the caller of stop and Close
}

// failing reports, for lines and for captures, that the last writes failed and that this was logged. Lines and captures
// may be on different disks.
type failing struct{ lines, captures bool }

// Counts counts the written and the dropped records.
//
// Atomic.
type Counts struct {
	Lines, LinesDropped       atomic.Uint64 // dropped: no slot was free, or the write failed
	Captures, CapturesDropped atomic.Uint64
}

// Counted returns the counts of a writer. For a nil Writer, all counts are zero.
func (w *Writer) Counted() *Counts {
	if w == nil {
		return new(Counts)
	}
	return &w.Counts
}

func (c *Counts) sum() uint64 {
	return c.Lines.Load() + c.LinesDropped.Load() + c.Captures.Load() + c.CapturesDropped.Load()
}

// Open opens the files that cfg names, and returns nil when cfg asks for no lines, captures or traces. The caller calls
// it before any slow work. It allocates all memory for the run. Its errors wrap manifest.ErrInvalid.
func Open(cfg *manifest.Config, clock rt.Clock, log *slog.Logger) (*Writer, error) {
	if cfg.Audit == "" && cfg.Debug.CaptureDir == "" && cfg.Traces == "" {
		return nil, nil
	}
	w := newWriter(clock, log)
	host, _ := os.Hostname()
	var err error
	if w.traces, err = otlp.Open(cfg.Traces, "lean-server", host, func(why string) {
		log.Warn("traces are lost until the collector takes them", "why", why)
	}); err != nil {
		return nil, cfg.Errorf("", "--traces: %w", err)
	}
	switch cfg.Audit {
	case "":
	case "-":
		w.lines = os.Stdout
	default:
		if err := w.openFile(cfg.Audit); err != nil {
			return nil, cfg.Errorf("", "--audit: %w", err)
		}
	}
	if cfg.Debug.CaptureDir != "" {
		if w.captures, err = openRing(cfg.Debug.CaptureDir, cfg.Debug.CaptureMax); err != nil {
			return nil, errors.Join(cfg.Errorf("debug.capture_dir", "debug.capture_dir: %w", err), closeFile(w.file))
		}
		w.requests = rt.NewRing[request](requestsWaiting)
	}
	return w, nil
}

// openFile opens the file of the lines.
func (w *Writer) openFile(name string) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err == nil {
		w.lines = file
		w.file = file
		w.torn = endsTorn(name)
	}
	return err
}

// deleted reports whether an open file was deleted. The disk still accepts writes to it, but no reader can find them.
//
//rt:noalloc
func deleted(file *os.File) bool {
	var is unix.Stat_t
	return unix.Fstat(int(file.Fd()), &is) == nil && is.Nlink == 0
}

// endsTorn reports whether a file of lines ends in the middle of a line, as it may after a full disk or a power
// failure.
func endsTorn(name string) bool {
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return false // opening a pipe would block
	}
	file, err := os.Open(name)
	if err != nil {
		return false
	}
	defer file.Close()
	var last [1]byte
	_, err = file.ReadAt(last[:], info.Size()-1)
	return err == nil && last[0] != '\n'
}

func newWriter(clock rt.Clock, log *slog.Logger) *Writer {
	return &Writer{
		clock:   clock,
		log:     log,
		wake:    queue.NewSignal(),
		records: rt.NewRing[Record](linesWaiting),
		text:    make([]byte, 0, 1+flushBytes+lineMax),
		memory:  memory.New(math.MaxInt64),
	}
}

// Bind makes m the bound on the memory of captures that wait for the disk. They may use only memory that m does not
// need for robots. Captures that do not fit are dropped and counted.
func (w *Writer) Bind(m *memory.Bound) {
	if w != nil {
		w.memory = m
	}
}

// Add copies a record for the audit line. For the capture it also copies the observation and the reply, which is the
// chunk's body or, without a chunk, empty.
//
// Owner: workers.
//
//rt:noalloc
func (w *Writer) Add(r *Record, observation, reply []byte) {
	if w == nil {
		return
	}
	w.adding.Lock()
	defer w.adding.Unlock()
	if w.lines != nil || w.traces != nil {
		if slot := w.records.Reserve(); slot != nil {
			*slot = *r
			w.records.Commit()
		} else {
			w.Counts.LinesDropped.Add(1)
		}
	}
	if w.captures != nil {
		if slot := w.requests.Reserve(); slot != nil && w.fits(slot, len(observation), len(reply)) {
			slot.fill(r, observation, reply)
			w.requests.Commit()
		} else {
			w.Counts.CapturesDropped.Add(1)
		}
	}
	w.wake.Wake()
}

// errStalled reports that the writer gave up lines or captures, because the disk accepted no data for too long.
var errStalled = errors.New("audit: nothing was taken for " + terminal.StallTimeout.String() +
	": the last lines or captures are lost (standard output is not read, or the disk hangs)")

// Start starts the writer's goroutine. stop ends it when all records are written, or with
// errStalled when no record is written for terminal.StallTimeout; Add must not be called after stop.
func (w *Writer) Start(origin Origin) (stop func() error) {
	if w == nil {
		return func() error { return nil }
	}
	w.model = origin.ModelSHA256
	if w.captures != nil {
		w.captures.origin = origin
	}
	ending, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		w.run(ending)
	}()
	return func() error {
		close(ending)
		return w.await(ended)
	}
}

// await waits for the writer's goroutine while it makes progress.
func (w *Writer) await(ended <-chan struct{}) error {
	if terminal.Await(ended, w.Counts.sum, endTimeout) {
		return nil
	}
	w.stalled = true
	return errStalled
}

func (w *Writer) run(ending <-chan struct{}) {
	for ended := false; !ended; {
		select {
		case <-w.wake:
		case <-ending:
			ended = true
		}
		w.drain()
	}
}

// Close closes the files. When the goroutine hangs in a write, they stay open until the process
// ends.
func (w *Writer) Close() error {
	if w == nil || w.stalled {
		return nil
	}
	w.traces.Close()
	return errors.Join(closeFile(w.file), w.captures.close())
}

func closeFile(f *os.File) error {
	if f == nil {
		return nil
	}
	return f.Close()
}

func (w *Writer) drain() {
	// The wall clock is read once. A record's wall time is this reading minus the record's age.
	wall, now := time.Now().UTC(), w.clock.Now()
	for r := w.records.Peek(); r != nil; r = w.records.Peek() {
		at := wall.Add(-now.Sub(r.At))
		w.trace(r, at)
		if w.lines != nil {
			if w.torn && w.count == 0 {
				w.text = append(w.text, '\n')
			}
			w.text = appendLine(w.text, r, cmp.Or(r.Model, w.model), at)
			w.count++
		}
		w.records.Release()
		if len(w.text) >= flushBytes {
			w.flush()
		}
	}
	w.flush()
	if w.captures == nil {
		return
	}
	for r := w.requests.Peek(); r != nil; r = w.requests.Peek() {
		err := w.captures.write(r, wall.Add(-now.Sub(r.At)))
		w.requests.Release()
		w.counted("captures", err, 1, &w.failing.captures, &w.Counts.Captures, &w.Counts.CapturesDropped)
	}
}

func (w *Writer) flush() {
	if w.count == 0 {
		return
	}
	var n int
	var err error
	if w.file != nil && deleted(w.file) { // logrotate without copytruncate deletes the file
		old := w.file
		if err = w.openFile(old.Name()); err == nil {
			old.Close()
		}
	}
	if err == nil {
		n, err = w.lines.Write(w.text)
	}
	if n > 0 { // if nothing was written, the end of the file is unchanged
		w.torn = w.text[n-1] != '\n'
	}
	w.counted("audit lines", err, w.count, &w.failing.lines, &w.Counts.Lines, &w.Counts.LinesDropped)
	w.text, w.count = w.text[:0], 0
}

// counted counts n records as written or dropped. Of a series of failures it logs only the first, and later the end of
// the series, so that a full disk does not fill the log as well.
func (w *Writer) counted(what string, err error, n uint64, failing *bool, written, dropped *atomic.Uint64) {
	if err == nil {
		written.Add(n)
		if *failing {
			*failing = false
			w.log.Info(what+" are written again", "lost", dropped.Load())
		}
		return
	}
	dropped.Add(n)
	if !*failing {
		*failing = true
		w.log.Warn(what+" are not written", "why", err)
	}
}
