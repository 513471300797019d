package edge

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"edgert/chunk"
	"edgert/edge/capture"
	"edgert/edge/event"
	"edgert/internal/exit"
	"edgert/record"
	"edgert/rt"
	"edgert/wire"
)

const (
	collectEvery     = 10 * time.Millisecond  // from the lanes and the cameras
	ringPictureEvery = 100 * time.Millisecond // of each camera, so that ten seconds of some fit into memory
	recordQuality    = 90                     // of pictures that are sent raw

	recordFolder = "records" // beside the robot's id

	// MinRecordSize is the least --record-size: one save of the ring and room beside it.
	MinRecordSize = 64 << 20
)

// Why what is in memory is written.
var (
	savedFault   = "a fault"
	savedRefusal = "the server refuses"
	savedByHand  = "edge-rt ctl save"
	savedExit    = "the exit code"
)

// recording is the two threads of the record, which end after all others.
type recording struct {
	dir                 string      // where the files go. Constant after Open
	collecting, writing atomic.Bool // they shall end
	collected, written  sync.WaitGroup
	text                []byte // owner: the housekeeping goroutine
	panicked            atomic.Pointer[error]
}

// tap is one camera's pictures on their way to the record. Owner: the record thread.
type tap struct {
	*capture.Tap
	encoder *capture.Encoder
	picture wire.Image
	last    rt.Instant
}

// openRecord makes the recorder. That its folder cannot be written ends a run of
// --record all before it begins, and never one that only keeps the ring.
func (e *Edge) openRecord(context.Context) (err error) {
	if e.cfg.Record == "" || e.cfg.Record == record.Off {
		return nil
	}
	if joints := len(e.robot.ActionNames()); joints > record.MaxJoints {
		if e.cfg.Record == record.All {
			return exit.Errorf(exit.Usage, "--record keeps at most %d joints, and robot %s has %d: add --record off", record.MaxJoints, e.cfg.Robot, joints)
		}
		e.log.Warn("nothing is recorded, the arm goes on", "joints", joints, "at_most", record.MaxJoints)
		return nil
	}
	dir := cmp.Or(e.cfg.RecordDir, filepath.Join(e.identity.Dir, recordFolder))
	e.record, err = record.New(record.Config{
		Mode: e.cfg.Record, Dir: dir, Size: e.cfg.RecordSize, ID: e.identity.ID, Clock: e.clock, Report: e.reportRecord, Closed: e.collectGarbage,
	})
	if err == nil && e.cfg.Record == record.All {
		if err = record.Probe(dir); err != nil {
			err = fmt.Errorf("--record all: %w; make room or name another --record-dir, or add --record off", err)
		}
	}
	e.recording.dir = dir
	return err
}

// writeRecord is the thread that writes. Of a ring it says at once when its folder cannot be
// written: nobody else waits for a disk that may hang.
func (e *Edge) writeRecord() {
	if e.cfg.Record == record.Ring {
		if err := record.Probe(e.recording.dir); err != nil {
			e.log.Warn("what happens cannot be saved for now, the arm goes on", "folder", e.recording.dir, "why", err, "next", "name another --record-dir")
		}
	}
	e.record.Write(&e.recording.writing)
}

// tapCamera has the record get a camera's pictures, as they are sent.
func (e *Edge) tapCamera(cam *capture.Camera, c capture.Config, d capture.Encoding) error {
	if e.record == nil {
		return nil
	}
	every := ringPictureEvery
	if e.cfg.Record == record.All {
		every = 0
	}
	if cmp.Or(c.Quality, d.Quality) == 0 {
		c.Quality = recordQuality
	}
	t := tap{Tap: cam.Tap(every)}
	var err error
	if t.encoder, err = capture.NewEncoder(t.Frames, &c, d); err != nil {
		return err
	}
	e.taps = append(e.taps, t)
	return nil
}

// describeRecord says in the files what the run is, once all of it is known.
func (e *Edge) describeRecord() error {
	if e.record == nil {
		return nil
	}
	var cameras []string
	for _, cam := range e.cameras {
		cameras = append(cameras, cam.Name)
	}
	c := &e.cfg
	e.record.SetRun(map[string]string{
		"id": e.identity.ID, "instance": e.identity.Instance, "host": e.identity.Host, "robot": c.Robot, "bus": c.Bus,
		"joints": strings.Join(e.robot.ActionNames(), ","), "units": strings.Join(unitsOf(e.robot), ","), "cameras": strings.Join(cameras, ","),
		"fps": strconv.FormatFloat(c.FPS, 'g', -1, 64), "interpolation_multiplier": strconv.Itoa(max(c.Stages.Multiplier, 1)),
		"schedule": c.Schedule.Schedule, "compat": strconv.FormatBool(c.Schedule.Compat), "task": c.Task,
		"leader": c.Leader.Bus, "connect": strings.Join(c.Connect, ","), "service": e.link.contract.prefix, "model": e.link.contract.model,
		"revision": e.link.contract.revision, "model_sha256": e.link.contract.sha256, "horizon": strconv.Itoa(e.link.contract.horizon),
		"max_action_age": c.MaxActionAge.String(), "jpeg_quality": strconv.Itoa(c.JPEGQuality), "on_exit": c.OnExit,
		"record": string(c.Record), "schedule_settings": fmt.Sprintf("%+v", c.Schedule), "stages": fmt.Sprintf("%+v", c.Stages),
	})
	return e.record.SetCameras(cameras)
}

func (e *Edge) startRecord() {
	if e.record == nil {
		return
	}
	r := &e.recording
	r.collected.Go(func() { e.withoutPanic(e.collect) })
	r.written.Go(func() { e.withoutPanic(e.writeRecord) })
}

// withoutPanic keeps the record's own mistakes from the run.
func (e *Edge) withoutPanic(f func()) {
	defer func() {
		if p := recover(); p != nil {
			err := fmt.Errorf("the record: panic: %v", p)
			e.recording.panicked.CompareAndSwap(nil, &err)
			e.log.Error("nothing more is recorded, the arm goes on", "why", err)
		}
	}()
	f()
}

// collect takes messages and pictures into memory, until the run has ended.
func (e *Edge) collect() {
	for ended := false; !ended; {
		ended = e.recording.collecting.Load() // once more then
		e.record.Collect()
		for i := range e.taps {
			t := &e.taps[i]
			if at, _ := t.encoder.Picture(&t.picture); at != 0 && at != t.last {
				t.last = at
				m := &t.picture
				e.record.Image(i, at, record.Bytes{A: m.Data[:m.SpliceAt], B: m.Splice, C: m.Data[m.SpliceAt:]})
			}
		}
		e.clock.SleepUntil(e.clock.Now().Add(collectEvery))
	}
}

// endRecord notes how the run ends, has the record written and waits for that. It returns
// how the run ends, whose code a disk that hangs, or a panic of the recorder, does not change.
func (e *Edge) endRecord(err error) error {
	if e.record == nil {
		return err
	}
	level, now := uint32(record.LevelInfo), e.clock.Now()
	ended := ending(err, "as asked")
	if ended.Code != 0 {
		level = record.LevelError
		e.record.Save(&savedExit, true)
	}
	e.record.Note(now, "exit", level, fmt.Sprintf("code %d: %s", ended.Code, ended.Reason))
	r := &e.recording
	r.collecting.Store(true)
	r.collected.Wait() // it waits for nobody
	r.writing.Store(true)
	if !e.within(stuckLimit, &r.written) {
		e.stuck = true
		return keepCode(err, fmt.Errorf("what was to be recorded was not written within %v: the folder of --record-dir hangs", stuckLimit))
	}
	if why := r.panicked.Load(); why != nil {
		return keepCode(err, *why)
	}
	return err
}

// collectGarbage has the collector run, which is off, once a file is written: just after a
// tick. Owner: the thread that writes.
func (e *Edge) collectGarbage() {
	if e.recording.writing.Load() {
		return // the run is over
	}
	before := e.loop.Stats().Ticks
	for end := e.clock.Now().Add(tickTimeout); e.loop.Stats().Ticks == before && e.clock.Now() < end; {
		e.clock.SleepUntil(e.clock.Now().Add(joinPoll))
	}
	runtime.GC()
}

// reportRecord logs what becomes of the files. Owner: the thread that writes.
func (e *Edge) reportRecord(r record.Report) {
	switch {
	case r.Why == "repaired" && r.Err != nil:
		e.log.Warn("a record of an earlier run has no end, and could not be repaired; all but its end can be read", "file", r.File, "why", r.Err)
	case r.Why == "repaired":
		e.log.Info("a record of an earlier run had no end, and was repaired", "file", r.File)
	case r.Err != nil:
		e.log.Warn("nothing can be recorded for now, the arm goes on", "why", r.Err)
	default:
		e.log.Info("recording", "file", r.File, "why", r.Why)
	}
}

// recordEvent records what the tick has reported. A fault saves what was before it.
// Owner: the housekeeping goroutine.
func (e *Edge) recordEvent(ev event.Event, level slog.Level, attrs []slog.Attr) {
	if e.record == nil {
		return
	}
	b := append(e.recording.text[:0], ev.Code.String()...)
	for _, a := range attrs {
		b = append(append(append(b, "  "...), a.Key...), ' ')
		switch v := a.Value; v.Kind() {
		case slog.KindString:
			b = append(b, v.String()...)
		case slog.KindInt64:
			b = strconv.AppendInt(b, v.Int64(), 10)
		case slog.KindFloat64:
			b = strconv.AppendFloat(b, v.Float64(), 'g', -1, 64)
		case slog.KindDuration:
			b = append(strconv.AppendInt(b, v.Duration().Microseconds(), 10), " us"...)
		}
	}
	e.recording.text = b
	severity := uint32(record.LevelInfo)
	if level >= slog.LevelWarn {
		severity = record.LevelWarning
	}
	e.record.NoteEvent(ev.At, ev.Code.Kind(), severity, uint32(ev.Code), ev.A, ev.B, b)
	if ev.Code.Fault() {
		e.record.Save(&savedFault, false)
	}
}

// noteOperator records a command and what became of it.
func (e *Edge) noteOperator(line string, err error) {
	level, text := uint32(record.LevelInfo), line
	if err != nil {
		level, text = record.LevelWarning, line+": "+err.Error()
	}
	e.record.Note(e.clock.Now(), "operator", level, text)
}

// recordStats is nil where nothing is recorded.
func (e *Edge) recordStats() *record.Stats {
	if e.record == nil {
		return nil
	}
	s := e.record.Stats()
	for _, t := range e.taps {
		if e.cfg.Record == record.All {
			s.LostPictures += t.Missed()
		}
	}
	return &s
}

// recordLine is the record in the summary's table.
func recordLine(s *record.Stats) string {
	text := fmt.Sprintf("%s, %d files with %d messages and %d pictures, %.1f MB", s.Mode, s.Files, s.Messages, s.Pictures, float64(s.Bytes)/1e6)
	if s.Lost+s.LostPictures > 0 {
		text += fmt.Sprintf(", lost %d and %d", s.Lost, s.LostPictures)
	}
	if s.Error != "" {
		text += ", " + s.Error
	}
	return text
}

// beginRecord begins this tick's record; without room there is none.
//
//rt:noalloc
func (c *control) beginRecord(t rt.Tick) {
	if c.record == nil {
		return
	}
	if c.entry = c.record.Ticks.Put(); c.entry == nil {
		return
	}
	*c.entry = record.Tick{At: t.Woke, Lateness: int64(t.Woke.Sub(t.Deadline)), Skipped: t.Skipped, Suspended: int64(t.Suspended)}
	if o := t.Overrun; o.Own {
		c.entry.OverrunOwn, c.entry.OverrunHost = int64(o.CPU+o.IOWait), int64(o.Stolen)
	}
}

//rt:noalloc
func (c *control) recordStarved() {
	if c.entry != nil {
		c.entry.Starved = true
	}
}

// recordAction notes the action that this tick began to run.
//
//rt:noalloc
func (c *control) recordAction(action []float32) {
	e := c.entry
	if e == nil {
		return
	}
	p := c.core.Schedule.Last()
	e.Action.Set(action)
	e.Source, e.Step = c.source, c.core.Schedule.View().N
	e.Seq, e.Epoch, e.Episode, e.Index, e.Delay, e.Dropped = p.Seq, p.Epoch, p.Episode, p.Index, p.Asked, p.Delay
}

// commitRecord hands this tick's record over.
//
//rt:noalloc
func (c *control) commitRecord() {
	e := c.entry
	if e == nil {
		return
	}
	e.State.Set(c.arm.State)
	e.Goal.Set(c.arm.Goal)
	e.RangeClipped, e.StepClipped = c.arm.Gate().Clipped()
	e.Read, e.Act = int64(c.phases.Took(phaseRead)), int64(c.phases.Took(phaseAct))
	e.Merge, e.Ask = int64(c.phases.Took(phaseMerge)), int64(c.phases.Took(phaseAsk))
	e.RunState, e.Queue = uint32(c.run.state), int32(c.core.Schedule.View().Size)
	e.BusSilent, e.Paused = c.blocked&blockBusSilent != 0, c.blocked&blockHeld != 0
	e.NoPicture, e.NoSession = c.blocked&blockNoPicture != 0, c.blocked&blockNoSession != 0
	e.Stale, e.Frozen, e.Held = c.arm.Stale(), c.arm.Frozen(), c.arm.Held()
	c.entry = nil
	c.record.Ticks.Commit()
}

// recordChunk notes an answer: outcome says what became of it.
//
//rt:noalloc
func (c *control) recordChunk(a *answer, key int64, outcome string, res chunk.Result) {
	if c.record == nil {
		return
	}
	m := c.record.Merges.Put()
	if m == nil {
		return
	}
	*m = record.Chunk{
		At: c.clock.Now(), Seq: uint64(key), Epoch: a.epoch, Episode: a.episode, Outcome: outcome, Session: c.session.of(a.epoch),
		Rows: int32(a.body.ChunkRobot.Rows), Dropped: int32(res.Delay), RTT: int64(res.RTT), Superseded: a.body.SupersededSeqs, Jump: int64(res.MaxL2 * 1e6),
		QueueWait: int64(a.body.QueueWaitMs * 1e6), Inference: int64(a.body.InferenceMs * 1e6), Observed: c.asked(key),
	}
	if a.body.HasN {
		m.Step = a.body.N + 1
	}
	c.record.Merges.Commit()
}

// asked is when what a request carried was measured; 0: that is forgotten.
//
//rt:noalloc
func (c *control) asked(key int64) rt.Instant {
	if s := c.observed[key%int64(len(c.observed))]; s.key == key {
		return s.at
	}
	return 0
}

//rt:noalloc
func (c *control) recordRequest(s *snapshot) {
	if c.record == nil {
		return
	}
	m := c.record.Requests.Put()
	if m == nil {
		return
	}
	*m = record.Request{
		At: s.at, Seq: uint64(s.ask.Key), Epoch: s.epoch, Episode: s.episode, Start: s.start, Step: s.ask.Step, Delay: int32(s.ask.Delay),
		Rows: int32(s.ask.Rows), Runway: int64(s.runway), Session: c.session.of(s.epoch),
	}
	c.record.Requests.Commit()
}
