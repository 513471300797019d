package edge

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/edge/recording"
	"github.com/edge-rt/edge-rt/edge/uplink"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
)

// openRecord makes the recorder.
func (e *Edge) openRecord(context.Context) (err error) {
	e.recording, err = recording.Open(recording.Config{
		Mode:    e.cfg.Record,
		Dir:     cmp.Or(e.cfg.RecordDir, filepath.Join(e.identity.Dir, recording.Folder)),
		Size:    e.cfg.RecordSize,
		ID:      e.identity.ID,
		Robot:   e.cfg.Robot,
		Joints:  len(e.robot.ActionNames()),
		Clock:   e.clock,
		Log:     e.log,
		Closed:  e.collectGarbage,
		Watched: e.page != nil || e.cfg.Traces != "",
		Failed:  func(why error) { e.episodes.Failing(why) },
	})
	e.record = e.recording.Lanes()
	return err
}

// describeRecord writes the description of the run into the record's files, once all of it is
// known.
func (e *Edge) describeRecord() error {
	var cameras []string
	for _, cam := range e.cameras {
		cameras = append(cameras, cam.Name)
	}
	c := &e.cfg
	return e.recording.Describe(e.identity, e.robot, c.Bus, map[string]string{
		"cameras":                  strings.Join(cameras, ","),
		"fps":                      strconv.FormatFloat(c.FPS, 'g', -1, 64),
		"interpolation_multiplier": strconv.Itoa(max(c.Stages.Multiplier, 1)),
		"schedule":                 c.Schedule.Schedule, "compat": strconv.FormatBool(c.Schedule.Compat),
		"task":   c.Task,
		"leader": c.Leader.Bus, "connect": strings.Join(c.Connect, ","), "service": e.contract.Prefix,
		"model":    e.contract.Model,
		"revision": e.contract.Revision, "model_sha256": e.contract.SHA256,
		"horizon":        strconv.Itoa(e.contract.Horizon),
		"max_action_age": e.effectiveMaxAge().String(), "request_timeout": c.RequestTimeout.String(),
		"jpeg_quality": strconv.Itoa(c.JPEGQuality), "on_exit": c.OnExit,
		"record": string(c.Record), "schedule_settings": fmt.Sprintf("%+v", c.Schedule),
		"stages":              fmt.Sprintf("%+v", c.Stages),
		recording.Calibration: e.arms.Calibration(e.robot).Text(),
	})
}

// endRecord ends the recording and waits until the files are written.
func (e *Edge) endRecord(err error) error {
	end, stuck := e.recording.End(err)
	e.stuck = e.stuck || stuck
	return end
}

// The wait of collectGarbage for the end of a tick.
const (
	collectPoll = 2 * time.Millisecond
	tickLimit   = time.Second // the period of the slowest rate
)

// collectGarbage runs the garbage collector, which is otherwise off during a run, after a file of
// the record has been written. The collection begins right after a tick. Owner: the writing thread
// of the record.
func (e *Edge) collectGarbage() {
	if e.recording.Ending() {
		return // the run is over
	}
	before := e.drive.Stats().Ticks
	for end := e.clock.Now().Add(tickLimit); e.drive.Stats().Ticks == before && e.clock.Now() < end; {
		e.clock.SleepUntil(e.clock.Now().Add(collectPoll))
	}
	runtime.GC()
}

// effectiveMaxAge returns the permitted age of an action at the pace of the first session.
func (e *Edge) effectiveMaxAge() time.Duration {
	p := e.link.Patience(e.contract.Horizon, e.cfg.FPS)
	return p.Age(e.link.KnownPace())
}

// RecordFolders returns in dirs the folders in which the robots of this host, services included,
// keep their records without --record-dir. hidden is a service's folder that this user may not
// read. name is id as it appears in the names of files.
func RecordFolders(id string) (dirs []string, hidden, name string, err error) {
	states, closed, err := operator.StateDirs()
	if err != nil {
		return nil, "", "", exit.With(exit.Config, err)
	}
	if id != "" {
		if name, err = operator.RobotID(id); err != nil {
			return nil, "", "", err
		}
	}
	for _, dir := range states {
		dirs = append(dirs, filepath.Join(dir, recording.Folder))
	}
	if closed != "" {
		hidden = filepath.Join(closed, recording.Folder)
	}
	return dirs, hidden, name, nil
}

// starve counts and records a tick on which an action was due and none ran.
//
//rt:noalloc
func (c *control) starve() {
	c.stats.starved.Add(1)
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
	e.Seq = p.Seq
	e.Epoch = p.Epoch
	e.Episode = p.Episode
	e.Index = p.Index
	e.Delay = p.Asked
	e.Dropped = p.Delay
}

// commitRecord hands this tick's record over.
//
//rt:noalloc
func (c *control) commitRecord() {
	e := c.entry
	if e == nil {
		return
	}
	recording.Arm(e, c.arm)
	e.Read, e.Act = int64(c.phases.Took(phaseRead)), int64(c.phases.Took(phaseAct))
	e.Merge, e.Ask = int64(c.phases.Took(phaseMerge)), int64(c.phases.Took(phaseAsk))
	e.RunState, e.Queue = uint32(c.run.state), int32(c.core.Schedule.View().Size)
	e.BusSilent, e.Paused = c.blocked&blockBusSilent != 0, c.held()
	e.NoPicture, e.NoSession = c.blocked&blockNoPicture != 0, c.blocked&blockNoSession != 0
	now, was := c.bus.Stats(), &c.counted
	e.Retried = uint32(now.Retries - was.Retries)
	e.Lost = uint32(now.Lost - was.Lost)
	e.Spoilt = uint32(now.Corrupt - was.Corrupt)
	c.counted = now
	c.entry = nil
	c.record.Ticks.Commit()
}

// recordChunk notes an answer with its outcome.
//
//rt:noalloc
func (c *control) recordChunk(a *uplink.Answer, key int64, outcome string, res chunk.Result) {
	if c.record == nil {
		return
	}
	m := c.record.Merges.Put()
	if m == nil {
		return
	}
	*m = record.Chunk{
		At:         c.clock.Now(),
		Seq:        uint64(key),
		Epoch:      a.Epoch,
		Episode:    a.Episode,
		Outcome:    outcome,
		Session:    c.session.all.Record(a.Epoch),
		Rows:       int32(a.Body.ChunkRobot.Rows),
		Dropped:    int32(res.Delay),
		RTT:        int64(res.RTT),
		Superseded: a.Body.SupersededSeqs,
		Jump:       int64(res.MaxL2 * 1e6),
		QueueWait:  int64(a.Body.QueueWaitMs * 1e6),
		Inference:  int64(a.Body.InferenceMs * 1e6),
		Observed:   c.asked(key),
		Arrived:    a.At,
	}
	if a.Body.HasN {
		m.Step = a.Body.N + 1
	}
	c.record.Merges.Commit()
}

// asked returns the instant of the observation in the request with this key, 0 when c.observed no longer has the
// request.
//
//rt:noalloc
func (c *control) asked(key int64) rt.Instant {
	if s := c.observed[key%int64(len(c.observed))]; s.Key == key {
		return s.At
	}
	return 0
}

//rt:noalloc
func (c *control) recordRequest(s *uplink.Snapshot) {
	if c.record == nil {
		return
	}
	m := c.record.Requests.Put()
	if m == nil {
		return
	}
	*m = record.Request{
		At:      s.At,
		Seq:     uint64(s.Ask.Key),
		Epoch:   s.Epoch,
		Episode: s.Episode,
		Start:   s.Start,
		Step:    s.Ask.Step,
		Delay:   int32(s.Ask.Delay),
		Rows:    int32(s.Ask.Rows),
		Runway:  int64(s.Runway),
		Session: c.session.all.Record(s.Epoch),
	}
	c.record.Requests.Commit()
}
