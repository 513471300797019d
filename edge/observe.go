package edge

import (
	"fmt"
	"sync/atomic"
	"time"

	"edgert/jpeg"
	"edgert/rt"
	"edgert/wire"
)

// senderPoll is how often the sender looks up from an idle eventfd to see
// whether it should end.
const senderPoll = 50 * time.Millisecond

// sender turns snapshots into observations: it takes the newest picture of each
// camera, encodes it, and puts the message where a newer one can replace it.
//
// Owner: the sender thread.
type sender struct {
	// Constant after Open.
	dof     int
	eyes    []*eye
	encoder *jpeg.Encoder // nil: raw pictures
	task    string

	snapshots *rt.Latest[snapshot]
	waker     *rt.Waker
	departed  *rt.Ring[departure]
	uplink    *atomic.Pointer[uplink]
	stats     *tickStats

	observation wire.Observation
	pictures    [][]byte // per camera, encoded
	body        []byte
	header      []byte
}

// uplink is where observations of the open session go.
type uplink struct {
	publisher wire.Publisher
	prefix    string
	epoch     uint32
	old       bool // the server speaks the schema without our keys: no t in its ack
}

// sendBuffer is the room reserved in a message beside the pictures.
const sendBuffer = 64 << 10

// newSender allocates every buffer for the largest picture of each camera.
// quality 0 sends raw pictures.
func newSender(c *control, eyes []*eye, quality int, task string) (*sender, error) {
	s := &sender{
		dof: c.dof, eyes: eyes, task: task, snapshots: c.snapshots, waker: c.waker,
		departed: c.departed, stats: c.stats, header: make([]byte, 0, wire.HeaderSize),
	}
	if quality > 0 {
		var err error
		if s.encoder, err = jpeg.NewEncoder(quality); err != nil {
			return nil, err
		}
	}
	total := sendBuffer
	for _, e := range eyes {
		f := e.source.Format()
		size := f.FrameBytes()
		if quality > 0 {
			size = jpeg.MaxSize(f.Width, f.Height)
		}
		s.pictures = append(s.pictures, make([]byte, size))
		s.observation.Images = append(s.observation.Images, wire.Image{Name: e.wire})
		total += size
	}
	s.body = make([]byte, 0, total)
	return s, nil
}

// run sends until stop is set.
func (s *sender) run(stop *atomic.Bool) error {
	for !stop.Load() {
		if !s.waker.Wait(senderPoll) {
			continue
		}
		snap, _, fresh := s.snapshots.Front()
		if !fresh {
			continue
		}
		if err := s.send(snap); err != nil {
			return err
		}
	}
	return nil
}

// send encodes and publishes one snapshot. What cannot be sent is counted: the
// trigger asks again by itself.
func (s *sender) send(snap *snapshot) error {
	up := s.uplink.Load()
	if up == nil || up.epoch != snap.epoch {
		s.stats.late.Add(1)
		return nil
	}
	oldest := snap.at
	for i, e := range s.eyes {
		at, err := s.picture(i, e)
		if err != nil {
			return err
		}
		if at == 0 {
			s.stats.late.Add(1)
			return nil
		}
		e.age.Record(max(0, snap.at.Sub(at)))
		oldest = min(oldest, at)
	}
	s.fill(snap, up, oldest)
	s.body = wire.AppendObservation(s.body[:0], &s.observation)
	s.header = wire.AppendHeader(s.header[:0], wire.Header{
		SchemaVersion: wire.SchemaVersion, MsgType: wire.MsgObservation, SeqID: uint64(snap.ask.Key),
		EpisodeID: snap.episode, ClientMonoNs: int64(snap.at), SessionEpoch: snap.epoch,
	})
	if d := s.departed.Reserve(); d != nil {
		*d = departure{snap.ask.Key, oldest}
		s.departed.Commit()
	}
	replaced, err := up.publisher.PutLatest(s.body, s.header)
	if err != nil {
		s.stats.sendErrors.Add(1)
		return nil
	}
	s.stats.sent.Add(1)
	if replaced {
		s.stats.replaced.Add(1)
	}
	return nil
}

// picture encodes the newest frame of camera i into its message slot and
// returns when it was taken, 0 when there is none yet.
//
//rt:noalloc
func (s *sender) picture(i int, e *eye) (rt.Instant, error) {
	frame, _, _ := e.newest.Front()
	if frame.At == 0 {
		return 0, nil
	}
	m := &s.observation.Images[i]
	if s.encoder == nil {
		*m = wire.Image{Name: e.wire, Codec: wire.Raw, H: frame.Height, W: frame.Width, C: 3, Data: frame.Pix}
		return frame.At, nil
	}
	n, err := s.encoder.EncodeRGB(s.pictures[i], frame.Pix, frame.Width, frame.Height)
	if err != nil {
		return 0, encodeError(e.name, err)
	}
	*m = wire.Image{Name: e.wire, Codec: wire.JPEG, Data: s.pictures[i][:n]}
	return frame.At, nil
}

//go:noinline
func encodeError(camera string, err error) error {
	return fmt.Errorf("camera %s: encode: %w", camera, err)
}

//rt:noalloc
func (s *sender) fill(snap *snapshot, up *uplink, oldest rt.Instant) {
	o := &s.observation
	o.State = snap.state
	o.Task = s.task
	a := &snap.ask
	o.InferenceDelaySteps = a.Delay
	o.EpisodeStart = snap.start
	o.PrefixRobot, o.PrefixModel = s.matrix(a.Robot, a.Rows), wire.Matrix{}
	o.HasT, o.HasN, o.HasOverlapEnd, o.HasRunway, o.HasFrameAge = false, false, false, false, false
	if up.old {
		// A peer of the draft conditions on the model's own rows and wants both
		// prefixes of equal length.
		rows := min(a.Rows, a.ModelRows)
		o.PrefixRobot, o.PrefixModel = s.matrix(a.Robot, rows), s.matrix(a.Model, rows)
		o.InferenceDelaySteps = min(a.Delay, rows)
		return
	}
	o.HasT, o.T = true, a.Key
	o.HasN, o.N = true, a.Step-1
	o.HasOverlapEnd, o.OverlapEnd = true, a.PrefixEnd
	o.HasRunway, o.RunwayMs = true, float64(snap.runway)/float64(time.Millisecond)
	o.HasFrameAge, o.FrameAgeMs = true, float64(snap.at.Sub(oldest))/float64(time.Millisecond)
}

// matrix is the first rows of a prefix, nothing for none.
//
//rt:noalloc
func (s *sender) matrix(data []float32, rows int) wire.Matrix {
	if rows == 0 {
		return wire.Matrix{}
	}
	return wire.Matrix{Rows: rows, Cols: s.dof, Data: data[:rows*s.dof]}
}
