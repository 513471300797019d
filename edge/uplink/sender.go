package uplink

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/wire"
)

// senderPoll is the interval at which a sender without snapshots checks whether it should end.
const senderPoll = 50 * time.Millisecond

// SenderConfig is the configuration of a sender.
type SenderConfig struct {
	DOF      int
	Cameras  []*capture.Camera
	Encoders []*capture.Encoder // each camera's
	Waker    *rt.Waker          // wakes the sender for a snapshot or an action step
	Missing  *atomic.Int32      // cameras without a first picture
}

// Sender turns snapshots into observations with each camera's newest picture. It publishes them in such a way that a
// newer observation replaces an unsent observation. Owner: the sender thread.
type Sender struct {
	// Constant after Open.
	SenderConfig
	Previews []*capture.Preview // previews of the cameras; nil: no page

	clock  rt.Clock
	in     *Inbox
	out    *Outbox
	stats  *Stats
	stamps *stamps
	record *record.Recorder // nil: nothing is recorded

	examiner    examiner
	past        *past     // nil: the policy does not look back
	noise       *rand.PCG // random bits of the stamps
	observation wire.Observation
	taken       []rt.Instant // capture instant of each picture in observation; 0: its preview has been published
	stale       []string     // wire names of the cameras with a stale picture in this observation
	body        []byte
	header      []byte
}

// NewSender allocates a body for the largest picture of each camera, at each action step that the policy looks at.
// Outbox.Prepare must have been called.
func (l *Link) NewSender(cfg SenderConfig) *Sender {
	s := &Sender{
		SenderConfig: cfg,
		clock:        l.Clock,
		in:           l.In,
		out:          l.Out,
		stats:        l.Stats,
		stamps:       l.stamps,
		record:       l.Record,
		examiner:     examiner{link: l},
		noise:        newNoise(),
		taken:        make([]rt.Instant, len(cfg.Cameras)),
		header:       make([]byte, 0, wire.HeaderSize),
		stale:        make([]string, 0, len(cfg.Cameras)),
	}
	total, steps := wire.ObservationRoom, 1
	if l.Out.Steps != nil {
		steps = l.Out.Steps.N
		s.past = newPast(l.Out.Steps, s.DOF, s.Encoders)
		s.observation.PastImages = make([]wire.Image, 0, (steps-1)*len(s.Cameras))
	}
	for i, e := range s.Cameras {
		s.observation.Images = append(s.observation.Images, wire.Image{Name: e.ImageName})
		total += steps * s.Encoders[i].MaxBytes()
	}
	s.body = make([]byte, 0, total)
	return s
}

// Run sends until stop is set.
func (s *Sender) Run(stop *atomic.Bool) error {
	for !stop.Load() {
		if s.Waker.Wait(senderPoll) {
			s.Work()
		}
		if s.examiner.err != nil {
			return s.examiner.err
		}
		for _, v := range s.Encoders {
			v.AwaitFirst(s.Missing)
		}
		s.updatePreviews()
	}
	return nil
}

// Work sends the observation that the tick requested, and keeps the action steps without a request.
//
//rt:noalloc
func (s *Sender) Work() {
	if snap, _, fresh := s.out.Snapshots.Front(); fresh {
		s.send(snap)
	}
	if s.past != nil {
		s.past.take(newestStep, s.resumedAt())
	}
}

//rt:noalloc
func (s *Sender) resumedAt() rt.Instant { return rt.Instant(s.out.ResumedAt.Load()) }

// updatePreviews gives each preview the picture that has just been sent, or else a picture that was made for the
// preview alone.
//
//rt:noalloc
func (s *Sender) updatePreviews() {
	for i, p := range s.Previews {
		now := s.clock.Now()
		if s.taken[i] != 0 {
			p.Publish(&s.observation.Images[i], s.taken[i], now)
			s.taken[i] = 0
		}
		p.Refresh(now)
	}
}

// send encodes and publishes one snapshot. It counts a snapshot that cannot be sent; the trigger then asks again. In
// place of a broken picture it sends the last good picture.
//
//rt:noalloc
func (s *Sender) send(snap *Snapshot) {
	open := s.in.Sessions().Open
	// If the first observation is held back, the history begins again with the next observation.
	first := open != nil && s.examiner.due(open)
	if s.past != nil && !s.past.reach(snap.Step, snap.At, snap.State, s.resumedAt(), first) || open == nil ||
		open.Epoch != snap.Epoch {
		s.note(snap, 0, 0, "no_session")
		return
	}
	oldest := snap.At
	s.stale = s.stale[:0]
	for i, e := range s.Cameras {
		at := s.picture(i)
		if at == 0 || at < s.resumedAt() {
			s.note(snap, 0, 0, "no_picture")
			return
		}
		s.taken[i] = at
		age := max(0, snap.At.Sub(at))
		e.Age.Record(age)
		if age > e.MaxAge {
			e.Stale.Add(1)
			s.stale = append(s.stale, e.ImageName)
		}
		oldest = min(oldest, at)
	}
	if first && s.examiner.holds(&s.observation, snap.State, open) {
		s.note(snap, 0, 0, "unlike_training")
		return
	}
	s.fill(snap, open, oldest)
	s.body = wire.AppendObservation(s.body[:0], &s.observation)
	stamp := newStamp(snap.At, s.noise)
	s.stamps.issue(uint64(snap.Ask.Key), stamp)
	s.header = wire.AppendHeader(s.header[:0], wire.Header{
		SchemaVersion: wire.SchemaVersion,
		MsgType:       wire.MsgObservation,
		SeqID:         uint64(snap.Ask.Key),
		EpisodeID:     snap.Episode,
		ClientMonoNs:  stamp,
		SessionEpoch:  snap.Epoch,
	})
	if slot := s.in.Sources.Reserve(); slot != nil {
		*slot = Source{snap.Ask.Key, oldest}
		s.in.Sources.Commit()
	}
	encoded := s.clock.Now()
	replaced, err := open.Publisher.PutLatest(s.body, s.header)
	if err != nil {
		s.stats.SendErrors.Add(1)
		s.note(snap, oldest, encoded, "error")
		return
	}
	if replaced { // an older observation has not left
		s.stats.Replaced.Add(1)
	}
	s.note(snap, oldest, encoded, "sent")
}

// note records the outcome of a request's observation. It counts an observation that was not encoded, with encoded 0,
// as not sent.
//
//rt:noalloc
func (s *Sender) note(snap *Snapshot, observed, encoded rt.Instant, outcome string) {
	bytes := len(s.body)
	if encoded == 0 {
		s.stats.Unsent.Add(1)
		bytes = 0
	}
	if s.record == nil {
		return
	}
	if m := s.record.Sent.Put(); m != nil {
		*m = record.Sent{
			At:       s.clock.Now(),
			Seq:      uint64(snap.Ask.Key),
			Epoch:    snap.Epoch,
			Observed: observed,
			Bytes:    int64(bytes),
			Outcome:  outcome,
			Encoded:  encoded,
		}
		s.record.Sent.Commit()
	}
}

// picture puts a camera's newest picture into the observation, or the picture of the newest action step if the policy
// looks back. It returns the instant at which the picture was taken.
//
//rt:noalloc
func (s *Sender) picture(camera int) (at rt.Instant) {
	m := &s.observation.Images[camera]
	if s.past != nil {
		*m, at = s.past.picture(camera)
		return at
	}
	at, _ = s.Encoders[camera].Picture(m)
	return at
}

//rt:noalloc
func (s *Sender) fill(snap *Snapshot, open *Session, oldest rt.Instant) {
	o := &s.observation
	o.State = snap.State
	o.Task = s.out.TaskText()
	a := &snap.Ask
	o.InferenceDelaySteps = a.Delay
	o.EpisodeStart = snap.Start
	o.PrefixRobot, o.PrefixModel = s.matrix(a.Robot, a.Rows), wire.Matrix{}
	o.StaleCameras = nil
	if s.past != nil {
		s.past.fill(o, open.Steps)
	}
	o.Spans = o.Spans[:0]
	o.HasT = false
	o.HasN = false
	o.HasOverlapEnd = false
	o.HasRunway = false
	o.HasFrameAge = false
	if open.Old {
		// A server of LeRobot's draft requires prefixes of equal length, made of the model's own rows.
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
	o.HasRunway, o.RunwayMs = true, float64(snap.Runway)/float64(time.Millisecond)
	o.StaleCameras = s.stale
	o.HasFrameAge, o.FrameAgeMs = true, float64(snap.At.Sub(oldest))/float64(time.Millisecond)
}

//rt:noalloc
func (s *Sender) matrix(data []float32, rows int) wire.Matrix {
	if rows == 0 {
		return wire.Matrix{}
	}
	return wire.Matrix{Rows: rows, Cols: s.DOF, Data: data[:rows*s.DOF]}
}
