package server

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"edgert/policy"
	"edgert/rt"
	"edgert/server/manifest"
	"edgert/wire"
)

const (
	// turnsWaiting is how many audit lines may wait for the disk: two seconds of
	// the fastest policy there is.
	turnsWaiting = 1024
	// flushBytes is how much of the audit goes out in one write.
	flushBytes = 32 << 10
)

// outcome is how a request that had its turn ended.
type outcome uint8

const (
	answered outcome = iota
	badObservation
	inferenceFailed
	notFinite
	unsent
	numOutcomes
)

var outcomeNames = [numOutcomes]string{"ok", "bad_observation", "inference_failed", "not_finite", "unsent"}

func (o outcome) String() string { return outcomeNames[o] }

// turn is what became of one request, in a fixed size: the worker writes it,
// the journal formats it.
type turn struct {
	session    *Session
	header     wire.Header
	at         rt.Instant // when it was over
	queueWait  time.Duration
	decode     time.Duration
	inference  time.Duration // the graph alone
	service    time.Duration // from arrival to the hand-over to the transport
	superseded uint64        // as reported in the chunk
	controls   policy.Controls
	first      int64 // action step of row 0, when there is a chunk
	rows       int   // of the chunk; 0: none
	stale      staleCameras
	cameras    []wire.CameraShape // what stale counts; constant
	outcome    outcome
	why        string // what went wrong; "" when nothing did
}

// journal carries what the worker did to the disk: one audit line for each
// request, and the capture ring. The worker copies into preallocated slots and
// wakes the journal's goroutine; what finds no free slot is counted, never
// waited for. A nil journal keeps nothing.
type journal struct {
	// Constant after open.
	audit   io.Writer // nil: no audit
	file    *os.File  // what to close at the end, when audit is a file
	capture *captures // nil: no capture
	clock   rt.Clock
	log     *slog.Logger
	wake    chan struct{} // cap 1: something waits
	stop    chan struct{}
	turns   *rt.Ring[turn]
	shots   *rt.Ring[shot]

	// Atomic.
	lines       atomic.Uint64 // audit lines written
	linesLost   atomic.Uint64 // no slot was free, or the write failed
	kept        atomic.Uint64 // requests captured
	keptNot     atomic.Uint64 // the same for captures
	complaining atomic.Bool   // a failed write was logged

	// Owner: the journal's goroutine.
	text  []byte
	count uint64 // lines in text
}

// replyRoom is what a captured reply may take, for room's sake: a chunk is far
// smaller.
const replyRoom = 1 << 20

// room is how many bytes the captures that wait for the disk may grow to.
func (j *journal) room(observation int) int64 {
	if j == nil || j.capture == nil {
		return 0
	}
	return shotsWaiting * int64(roomFor(observation)+replyRoom)
}

// openJournal opens the audit file and the capture files that cfg names; nil
// when it names neither. It does so before anything that takes time, and
// allocates what running needs.
func openJournal(cfg *manifest.Config, clock rt.Clock, log *slog.Logger) (*journal, error) {
	if cfg.Audit == "" && cfg.Debug.CaptureDir == "" {
		return nil, nil
	}
	j := &journal{
		clock: clock, log: log, wake: make(chan struct{}, 1), stop: make(chan struct{}),
		turns: rt.NewRing[turn](turnsWaiting), text: make([]byte, 0, flushBytes+lineMax),
	}
	switch cfg.Audit {
	case "":
	case "-":
		j.audit = os.Stdout
	default:
		file, err := os.OpenFile(cfg.Audit, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
		if err != nil {
			return nil, cfg.Errorf("", "--audit: %w", err)
		}
		j.audit, j.file = file, file
	}
	if cfg.Debug.CaptureDir != "" {
		var err error
		if j.capture, err = openCaptures(cfg.Debug.CaptureDir, cfg.Debug.CaptureMax); err != nil {
			return nil, errors.Join(cfg.Errorf("debug.capture_dir", "debug.capture_dir: %w", err), closeFile(j.file))
		}
		j.shots = rt.NewRing[shot](shotsWaiting)
	}
	return j, nil
}

// note records a turn; body is the observation and reply the chunk's body, empty
// when there was none. Both are copied when they are captured.
//
// Owner: worker.
//
//rt:noalloc
func (j *journal) note(t *turn, body, reply []byte) {
	if j == nil {
		return
	}
	if j.audit != nil {
		if slot := j.turns.Reserve(); slot != nil {
			*slot = *t
			j.turns.Commit()
		} else {
			j.linesLost.Add(1)
		}
	}
	if j.capture != nil {
		if slot := j.shots.Reserve(); slot != nil {
			slot.fill(t, body, reply)
			j.shots.Commit()
		} else {
			j.keptNot.Add(1)
		}
	}
	poke(j.wake)
}

func closeFile(f *os.File) error {
	if f == nil {
		return nil
	}
	return f.Close()
}

// run writes until stop is closed, then what is left.
func (j *journal) run() {
	for stopped := false; !stopped; {
		select {
		case <-j.wake:
		case <-j.stop:
			stopped = true
		}
		j.drain()
	}
}

// close closes the files.
func (j *journal) close() error {
	if j == nil {
		return nil
	}
	return errors.Join(closeFile(j.file), j.capture.close())
}

// drain writes everything that waits.
func (j *journal) drain() {
	// The wall clock is read once; a turn's own instant is how long ago it was.
	wall, now := time.Now().UTC(), j.clock.Now()
	for t := j.turns.Peek(); t != nil; t = j.turns.Peek() {
		j.text = appendAudit(j.text, t, wall.Add(-now.Sub(t.at)))
		j.count++
		j.turns.Release()
		if len(j.text) >= flushBytes {
			j.flush()
		}
	}
	j.flush()
	if j.capture == nil {
		return
	}
	for s := j.shots.Peek(); s != nil; s = j.shots.Peek() {
		err := j.capture.write(s, wall.Add(-now.Sub(s.turn.at)))
		j.shots.Release()
		j.tally(err, 1, &j.kept, &j.keptNot)
	}
}

// flush writes the lines gathered in text.
func (j *journal) flush() {
	if j.count == 0 {
		return
	}
	_, err := j.audit.Write(j.text)
	j.tally(err, j.count, &j.lines, &j.linesLost)
	j.text, j.count = j.text[:0], 0
}

// tally counts n records as written or lost, and logs the first of a run of
// failures: a full disk must not fill the log as well.
func (j *journal) tally(err error, n uint64, written, lost *atomic.Uint64) {
	if err == nil {
		written.Add(n)
		j.complaining.Store(false)
		return
	}
	lost.Add(n)
	if !j.complaining.Swap(true) {
		j.log.Warn("audit or capture is not written", "why", err)
	}
}
