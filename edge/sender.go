package edge

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/history"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/wire"
)

// senderPoll is the interval at which a sender without snapshots checks whether it should end.
const senderPoll = 50 * time.Millisecond

// sender turns snapshots into observations with each camera's newest picture. It publishes them so
// that a newer observation replaces an unsent one. Owner: the sender thread.
type sender struct {
	// Constant after Open.
	dof      int
	cameras  []*capture.Camera
	encoders []*capture.Encoder // each camera's
	previews []*capture.Preview // each camera's; nil: no page

	clock  rt.Clock
	waker  *rt.Waker
	tick   *mailboxes
	flags  *linkFlags
	uplink *atomic.Pointer[uplink]
	stats  *tickStats
	record *record.Recorder // nil: nothing is recorded

	past        *history.Past // nil: the policy does not look back
	noise       *rand.PCG     // random bits of the stamps
	observation wire.Observation
	taken       []rt.Instant // capture instant of each picture in observation; 0: its preview has been published
	stale       []string     // wire names of the cameras with a stale picture in this observation
	body        []byte
	header      []byte
}

// uplink is the destination of the open session's observations.
type uplink struct {
	publisher wire.Publisher
	prefix    string
	epoch     uint32
	steps     int  // observations in one message, the newest included
	old       bool // the server speaks the schema without our keys: its ack has no t
}

// newSender allocates a body for the largest picture of each camera, at each action step that the
// policy looks at.
func newSender(c *control, to *atomic.Pointer[uplink], cameras []*capture.Camera, encoders []*capture.Encoder) *sender {
	s := &sender{
		dof:      len(c.arm.Goal),
		cameras:  cameras,
		encoders: encoders,
		clock:    c.clock,
		waker:    c.waker,
		tick:     &c.out,
		flags:    c.flags,
		uplink:   to,
		stats:    c.stats,
		record:   c.record,
		noise:    newNoise(),
		taken:    make([]rt.Instant, len(cameras)),
		header:   make([]byte, 0, wire.HeaderSize),
		stale:    make([]string, 0, len(cameras)),
	}
	total, steps := wire.ObservationRoom, 1
	if c.out.steps != nil {
		steps = c.out.steps.N
		s.past = history.NewPast(c.out.steps, s.dof, encoders)
		s.observation.PastImages = make([]wire.Image, 0, (steps-1)*len(cameras))
	}
	for i, e := range cameras {
		s.observation.Images = append(s.observation.Images, wire.Image{Name: e.ImageName})
		total += steps * encoders[i].MaxBytes()
	}
	s.body = make([]byte, 0, total)
	return s
}

// run sends until stop is set.
func (s *sender) run(stop *atomic.Bool) error {
	for !stop.Load() {
		if s.waker.Wait(senderPoll) {
			s.work()
		}
		for _, v := range s.encoders {
			v.AwaitFirst(&s.flags.missingCameras)
		}
		s.updatePreviews()
	}
	return nil
}

// work sends the observation that the tick requested, and keeps the action steps without a request.
//
//rt:noalloc
func (s *sender) work() {
	if snap, _, fresh := s.tick.snapshots.Front(); fresh {
		s.send(snap)
	}
	if s.past != nil {
		s.past.Take(history.Newest, s.resumedAt())
	}
}

//rt:noalloc
func (s *sender) resumedAt() rt.Instant { return rt.Instant(s.flags.resumedAt.Load()) }

// updatePreviews publishes the pictures that have just been sent, or else a picture for the
// preview.
//
//rt:noalloc
func (s *sender) updatePreviews() {
	for i, p := range s.previews {
		now := s.clock.Now()
		if s.taken[i] != 0 {
			p.Publish(&s.observation.Images[i], s.taken[i], now)
			s.taken[i] = 0
		}
		p.Refresh(now)
	}
}

// send encodes and publishes one snapshot. It counts a snapshot that cannot be sent; the trigger
// then asks again. The last good picture replaces a broken one.
//
//rt:noalloc
func (s *sender) send(snap *snapshot) {
	up := s.uplink.Load()
	if s.past != nil && !s.past.Reach(snap.step, snap.at, snap.state, s.resumedAt()) || up == nil ||
		up.epoch != snap.epoch {
		s.stats.unsent.Add(1)
		s.note(snap, 0, 0, "no_session")
		return
	}
	oldest := snap.at
	s.stale = s.stale[:0]
	for i, e := range s.cameras {
		at := s.picture(i)
		if at == 0 || at < s.resumedAt() {
			s.stats.unsent.Add(1)
			s.note(snap, 0, 0, "no_picture")
			return
		}
		s.taken[i] = at
		age := max(0, snap.at.Sub(at))
		e.Age.Record(age)
		if age > e.MaxAge {
			e.Stale.Add(1)
			s.stale = append(s.stale, e.ImageName)
		}
		oldest = min(oldest, at)
	}
	s.fill(snap, up, oldest)
	s.body = wire.AppendObservation(s.body[:0], &s.observation)
	stamp := newStamp(snap.at, s.noise)
	s.flags.stamps.issue(uint64(snap.ask.Key), stamp)
	s.header = wire.AppendHeader(s.header[:0], wire.Header{
		SchemaVersion: wire.SchemaVersion,
		MsgType:       wire.MsgObservation,
		SeqID:         uint64(snap.ask.Key),
		EpisodeID:     snap.episode,
		ClientMonoNs:  stamp,
		SessionEpoch:  snap.epoch,
	})
	if slot := s.tick.sources.Reserve(); slot != nil {
		*slot = source{snap.ask.Key, oldest}
		s.tick.sources.Commit()
	}
	replaced, err := up.publisher.PutLatest(s.body, s.header)
	if err != nil {
		s.stats.sendErrors.Add(1)
		s.note(snap, oldest, len(s.body), "error")
		return
	}
	if replaced { // an older observation
		s.stats.replaced.Add(1)
	}
	s.note(snap, oldest, len(s.body), "sent")
}

// note records the outcome of a request's observation.
//
//rt:noalloc
func (s *sender) note(snap *snapshot, observed rt.Instant, bytes int, outcome string) {
	if s.record == nil {
		return
	}
	if m := s.record.Sent.Put(); m != nil {
		*m = record.Sent{
			At:       s.clock.Now(),
			Seq:      uint64(snap.ask.Key),
			Epoch:    snap.epoch,
			Observed: observed,
			Bytes:    int64(bytes),
			Outcome:  outcome,
		}
		s.record.Sent.Commit()
	}
}

// picture puts a camera's newest picture, or that of the newest action step, into the observation
// and returns the instant at which it was taken.
//
//rt:noalloc
func (s *sender) picture(camera int) (at rt.Instant) {
	m := &s.observation.Images[camera]
	if s.past != nil {
		*m, at = s.past.Picture(camera)
		return at
	}
	at, _ = s.encoders[camera].Picture(m)
	return at
}

//rt:noalloc
func (s *sender) fill(snap *snapshot, up *uplink, oldest rt.Instant) {
	o := &s.observation
	o.State = snap.state
	o.Task = s.flags.taskText()
	a := &snap.ask
	o.InferenceDelaySteps = a.Delay
	o.EpisodeStart = snap.start
	o.PrefixRobot, o.PrefixModel = s.matrix(a.Robot, a.Rows), wire.Matrix{}
	o.StaleCameras = nil
	if s.past != nil {
		s.past.Fill(o, up.steps)
	}
	o.Spans = o.Spans[:0]
	o.HasT = false
	o.HasN = false
	o.HasOverlapEnd = false
	o.HasRunway = false
	o.HasFrameAge = false
	if up.old {
		// A peer of the draft requires prefixes of equal length, made of the model's own rows.
		rows := min(a.Rows, a.ModelRows)
		o.PrefixRobot, o.PrefixModel = s.matrix(a.Robot, rows), s.matrix(a.Model, rows)
		o.InferenceDelaySteps = min(a.Delay, rows)
		return
	}
	if len(a.Spans) > 0 {
		o.PrefixRobot = wire.Matrix{}
		for _, span := range a.Spans {
			o.Spans = append(o.Spans, wire.Span{Source: span.Key, Start: int32(span.Start), End: int32(span.End)})
		}
	} else if a.BothRows {
		o.PrefixModel = s.matrix(a.Model, min(a.Rows, a.ModelRows))
	}
	o.HasT, o.T = true, a.Key
	o.HasN, o.N = true, a.Step-1
	o.HasOverlapEnd, o.OverlapEnd = true, a.PrefixEnd
	o.HasRunway, o.RunwayMs = true, float64(snap.runway)/float64(time.Millisecond)
	o.StaleCameras = s.stale
	o.HasFrameAge, o.FrameAgeMs = true, float64(snap.at.Sub(oldest))/float64(time.Millisecond)
}

//rt:noalloc
func (s *sender) matrix(data []float32, rows int) wire.Matrix {
	if rows == 0 {
		return wire.Matrix{}
	}
	return wire.Matrix{Rows: rows, Cols: s.dof, Data: data[:rows*s.dof]}
}
