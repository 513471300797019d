// Package recording runs the flight recorder of a process that drives an arm: its two threads, the
// pictures of its cameras, and the record of the run's end. One thread collects messages, decodes or
// encodes pictures, and counts torn ones (torn.go); the other writes files (package record).
//
//	Open    the recorder, before the arm
//	Tap     each camera
//	Start   the threads
//	Note    each event that is not of the tick (note.go); the tick fills Recorder's lanes itself
//	End     after all other threads
//
// A nil Recording records nothing. All its methods except Ending may be called.
package recording

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/wire"
)

const (
	collectEvery = 10 * time.Millisecond // interval of reading the lanes and the cameras
	// interval of each camera's pictures in the ring; ten seconds of several cameras fit into memory
	ringPictureEvery = 100 * time.Millisecond
	pictureQuality   = 90 // JPEG quality of pictures that are sent raw
	// queue of each camera with --record all: bridges 130 ms of a busy CPU at 60 pictures per
	// second
	picturesWaiting = 8
	endTimeout      = 5 * time.Second // longest wait for the disk after the arm was released

	// Folder is the name of the folder of records, in the robot's state folder.
	Folder = "records"

	// Calibration is the setting that holds the arm's calibration, as servo.Calibration.Text.
	Calibration = "calibration"

	// MinSize is the smallest value of --record-size. One save of the ring needs less.
	MinSize = 64 << 20
)

// The reasons for saving the ring in memory.
var (
	SavedFault   = "a fault"
	SavedRefusal = "the server refuses"
	savedByHand  = "edge-rt ctl save"
	savedExit    = "the exit code"
)

// Config is the configuration of one process's record.
type Config struct {
	Mode    record.Mode // empty: off
	Dir     string
	Size    int64
	ID      string // the robot's
	Robot   string // name of the robot's description
	Joints  int
	Clock   rt.Clock
	Log     *slog.Logger
	Watched bool   // the page shows the run: with Mode off the recorder runs, but keeps nothing
	Closed  func() // called on the writing thread when a file is finished; may be nil

	// Failed is called on the record's threads: with an error when nothing can be written, and with
	// nil when writing works again. If Failed is nil, only the log reports this.
	Failed func(error)
}

// Recording is a record in progress.
type Recording struct {
	Recorder *record.Recorder // constant after Open

	cfg                 Config
	taps                []tap
	decoder             *jpeg.Decoder // checks JPEGs; nil: no camera gives any. Owner: the collecting thread
	torn                atomic.Uint64 // torn pictures of all cameras
	collecting, writing atomic.Bool   // set to end the thread
	collected, written  sync.WaitGroup
	text                []byte // owner: the thread that calls event
	panicked            atomic.Pointer[error]
	shortened           bool // files of this run were deleted; owner: the writing thread
}

// tap carries one camera's pictures to the record. Owner: the collecting thread.
type tap struct {
	*capture.Tap
	camera   *capture.Camera
	encoder  *capture.Encoder
	asItCame bool // the camera's pictures are recorded without being decoded
	picture  wire.Image
	last     rt.Instant
	torn     torn
}

// Open makes the recorder. It returns nil if nothing is to be recorded. Under --record all, a folder that cannot be
// written is an error before the run begins. A run that only keeps the ring goes on without the folder.
func Open(cfg Config) (*Recording, error) {
	off := cfg.Mode == "" || cfg.Mode == record.Off
	if off && !cfg.Watched {
		return nil, nil
	}
	if cfg.Joints > record.MaxJoints {
		if off {
			return nil, nil
		}
		if cfg.Mode == record.All {
			return nil, exit.Errorf(exit.Usage,
				"--record keeps at most %d joints, and robot %s has %d: add --record off", record.MaxJoints, cfg.Robot,
				cfg.Joints)
		}
		cfg.Log.Warn("nothing is recorded, the arm goes on", "joints", cfg.Joints, "at_most", record.MaxJoints)
		return nil, nil
	}
	r := &Recording{cfg: cfg}
	var err error
	r.Recorder, err = record.New(record.Config{
		Mode:   cmp.Or(cfg.Mode, record.Off),
		Dir:    cfg.Dir,
		Size:   cfg.Size,
		ID:     cfg.ID,
		Clock:  cfg.Clock,
		Report: r.report,
		Closed: cfg.Closed,
	})
	if err == nil && cfg.Mode == record.All {
		if err = record.Probe(cfg.Dir); err != nil {
			err = fmt.Errorf("--record all: %w; %s, or add --record off", err, cure(err))
		}
	}
	return r, err
}

func cure(err error) string {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return "make room, or name another --record-dir"
	}
	return "name another --record-dir"
}

// keeps reports whether messages are recorded. With Mode off, the recorder only serves the page.
func (r *Recording) keeps() bool { return r != nil && r.cfg.Mode != "" && r.cfg.Mode != record.Off }

// Lanes returns the recorder, or nil if nothing is recorded. The tick and other threads fill the recorder's lanes.
func (r *Recording) Lanes() *record.Recorder {
	if r == nil {
		return nil
	}
	return r.Recorder
}

// Ending reports whether the last write of the record has begun.
func (r *Recording) Ending() bool { return r.writing.Load() }

// write is the writing thread. In mode Ring it first checks whether the folder can be written. Only this thread may do
// so, since the disk may hang.
func (r *Recording) write() {
	if r.cfg.Mode == record.Ring {
		if err := record.Probe(r.cfg.Dir); err != nil {
			r.cfg.Log.Warn("the run cannot be saved for now, the arm goes on", "folder", r.cfg.Dir, "why", err,
				"next", cure(err))
		}
	}
	r.Recorder.Write(&r.writing)
}

// Tap adds a camera's pictures to the record: JPEG as it is sent, and raw pictures as JPEG. Call it before
// Describe, and before the camera runs.
func (r *Recording) Tap(cam *capture.Camera, c capture.Config, d capture.Encoding) error {
	if !r.keeps() {
		return nil
	}
	every, waiting := ringPictureEvery, 1
	if r.cfg.Mode == record.All {
		every, waiting = 0, picturesWaiting
	}
	if cmp.Or(c.Quality, d.Quality) == 0 {
		c.Quality = pictureQuality
	}
	t := tap{Tap: cam.Tap(every, waiting), camera: cam}
	var err error
	if t.encoder, err = capture.NewEncoder(t.Frames, &c, d); err != nil {
		return err
	}
	if t.asItCame = t.encoder.AsItCame(); t.asItCame && r.decoder == nil {
		if r.decoder, err = jpeg.NewDecoder(); err != nil {
			t.encoder.Close()
			return err
		}
	}
	r.taps = append(r.taps, t)
	return nil
}

// Describe writes the description of the run into the files, once all of it is known: its identity,
// arm and settings.
func (r *Recording) Describe(id *operator.Identity, arm robot.Robot, bus string, settings map[string]string) error {
	if r == nil {
		return nil
	}
	var cameras []string
	for _, t := range r.taps {
		cameras = append(cameras, t.Frames.Name)
	}
	run := map[string]string{
		"id": id.ID, "instance": id.Instance, "host": id.Host, "robot": arm.Name, "bus": bus,
		"joints": strings.Join(arm.ActionNames(), ","), "units": strings.Join(arm.Units(), ","),
	}
	if arm.Type != "" {
		run["robot_type"] = arm.Type
	}
	if names := arm.PartNames(); names != "" {
		run["robot_type"] = arm.DataType()
		run["parts"] = strings.ReplaceAll(names, ", ", ",")
	}
	maps.Copy(run, settings)
	r.Recorder.SetRun(run)
	return r.Recorder.SetCameras(cameras)
}

// Start starts the two threads, and a third thread that repairs files and then ends.
func (r *Recording) Start() {
	if r == nil {
		return
	}
	r.collected.Go(func() { r.withoutPanic(r.collect) })
	if r.keeps() {
		r.written.Go(func() { r.withoutPanic(r.write) })
		go r.withoutPanic(func() { r.Recorder.Repair(&r.writing) }) // the end of the run does not wait for the repair
	}
}

// withoutPanic turns a panic of the recorder into a log line, so that the run goes on.
func (r *Recording) withoutPanic(f func()) {
	defer func() {
		if p := recover(); p != nil {
			err := fmt.Errorf("the record: panic: %v", p)
			r.panicked.CompareAndSwap(nil, &err)
			r.cfg.Log.Error("nothing more is recorded, the arm goes on", "why", err)
			r.failed(err)
		}
	}()
	f()
}

// collect takes messages and pictures into memory, until the run has ended.
func (r *Recording) collect() {
	for ended := false; !ended; {
		ended = r.collecting.Load() // if it is set, this pass is the last one
		r.Recorder.Collect()
		for i := range r.taps {
			t := &r.taps[i]
			for n := 0; n < picturesWaiting && t.Next(); n++ {
				if n > 0 {
					r.Recorder.Collect() // a large picture takes long to encode, and the lanes are short
				}
				at, err := t.encoder.Picture(&t.picture)
				r.check(t, at, err, n > 0)
				if at != 0 && at != t.last {
					t.last = at
					m := &t.picture
					r.Recorder.Image(i, at, record.Bytes{A: m.Data[:m.SpliceAt], B: m.Splice, C: m.Data[m.SpliceAt:]})
				}
			}
		}
		now := r.cfg.Clock.Now()
		for i := range r.taps {
			r.reportTorn(i, now)
		}
		r.cfg.Clock.SleepUntil(now.Add(collectEvery))
	}
}

// gaveUp is the error of a run that ended because a lack (reason for a missing chunk) lasted too long.
type gaveUp struct {
	lack event.Lack
	text string
}

func (e gaveUp) Error() string { return e.text }

// GaveUp returns an error for a run that ends because of a lasting lack. End writes the lack into the record.
func GaveUp(lack event.Lack, text string) error { return gaveUp{lack, text} }

// End notes the end of the run, makes the threads write the record and waits for them. It returns err, joined with the
// error of a hanging disk or of a panic of the recorder; the exit code stays that of err. stuck reports that the
// writing thread did not end.
func (r *Recording) End(err error) (end error, stuck bool) {
	if r == nil {
		return err, false
	}
	level, reason := uint32(record.LevelInfo), "as asked"
	if err != nil {
		reason = err.Error()
	}
	if exit.Of(err) != exit.Clean {
		level = record.LevelError
		r.Recorder.Save(&savedExit, true)
	}
	lack := gaveUp{}
	errors.As(err, &lack)
	r.Note(event.Ended, level, int64(exit.Of(err)), int64(lack.lack), fmt.Sprintf("code %d: %s", exit.Of(err), reason))
	r.collecting.Store(true)
	r.collected.Wait() // the collecting thread never blocks
	r.writing.Store(true)
	if !device.Within(r.cfg.Clock, endTimeout, &r.written) {
		return exit.Keep(err, fmt.Errorf("the record was not written within %v: the folder of --record-dir hangs",
			endTimeout)), true
	}
	if why := r.panicked.Load(); why != nil {
		return exit.Keep(err, *why), false
	}
	return err, false
}

// Close frees the encoders. It must run before the cameras' memory is freed.
func (r *Recording) Close() {
	if r == nil {
		return
	}
	for _, t := range r.taps {
		t.encoder.Close()
	}
	if r.decoder != nil {
		r.decoder.Close()
	}
}

// report logs the state of the files. Owner: the writing thread, and for repaired files the repairing thread.
func (r *Recording) report(m record.Report) {
	log := r.cfg.Log
	switch {
	case m.Why == record.Repaired && m.Err != nil:
		log.Warn("a record of an earlier run has no end, was not repaired and stays as it is", "file", m.File,
			"why", m.Err)
	case m.Why == record.Repaired:
		log.Info("a record of an earlier run had no end, and was repaired", "file", m.File)
	case m.Why == record.Deleted:
		if r.cfg.Mode == record.All && !r.shortened {
			r.shortened = true
			log.Warn("--record-size is reached, or the disk full: from now on the oldest files are deleted, and this "+
				"run's own files with them", "deleted", m.File, "next", "give a larger --record-size, or make room")
		}
	case m.Why == record.Unreserved:
		log.Warn("another robot that records into this folder may delete this run's episodes: the note that protects "+
			"them cannot be written there", "file", m.File, "why", m.Err)
	case m.Err != nil:
		log.Warn("nothing can be recorded for now, the arm goes on", "why", m.Err)
		r.failed(m.Err)
	default:
		log.Info("recording", "file", m.File, "why", m.Why)
		r.failed(nil)
	}
}

func (r *Recording) failed(err error) {
	if r.cfg.Failed != nil {
		r.cfg.Failed(err)
	}
}

// event records an event of the tick. If the event is a fault, it requests a save of the ring. Owner: one thread.
func (r *Recording) event(ev event.Event, level slog.Level, attrs []slog.Attr) {
	if r == nil {
		return
	}
	b := append(r.text[:0], ev.Code.String()...)
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
	r.text = b
	severity := uint32(record.LevelInfo)
	if level >= slog.LevelWarn {
		severity = record.LevelWarning
	}
	r.Recorder.NoteEvent(ev.At, ev.Code.Kind(), severity, uint32(ev.Code), ev.A, ev.B, b)
	if ev.Code.Fault() {
		r.Recorder.Save(&SavedFault, false)
	}
}

// Save writes the ring in memory to disk, on a person's command.
func (r *Recording) Save() error {
	if !r.keeps() {
		return errors.New("nothing to save: the run has --record off")
	}
	r.Recorder.Save(&savedByHand, true)
	return nil
}

// Stats returns the counters, nil if nothing is recorded. Any thread may call it.
func (r *Recording) Stats() *record.Stats {
	if !r.keeps() {
		return nil
	}
	s := r.Recorder.Stats()
	for _, t := range r.taps {
		if r.cfg.Mode == record.All {
			s.LostPictures += t.Missed()
		}
	}
	s.TornPictures = r.torn.Load()
	return &s
}

// Losses returns how many messages and pictures were lost before they could be written. Any thread may call it.
func (r *Recording) Losses() (messages, pictures uint64) {
	if s := r.Stats(); s != nil {
		return s.Lost, s.LostPictures
	}
	return 0, 0
}

// Line formats the record's part of a summary for people.
func Line(s *record.Stats) string {
	text := fmt.Sprintf("%s, %d files with %d messages and %d pictures, %.1f MB", s.Mode, s.Files, s.Messages,
		s.Pictures, float64(s.Bytes)/1e6)
	if s.Lost+s.LostPictures > 0 {
		text += fmt.Sprintf(", lost %d messages and %d pictures", s.Lost, s.LostPictures)
	}
	if s.TornPictures > 0 {
		text += fmt.Sprintf(", %d pictures are torn", s.TornPictures)
	}
	if s.Deleted > 0 {
		text += fmt.Sprintf("; %d old files deleted for --record-size", s.Deleted)
	}
	if s.Error != "" {
		text += ", " + s.Error
	}
	return text
}
