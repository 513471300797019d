package stage

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/wire"
)

const (
	queryLimit  = 10 * time.Second // longest wait for a server's token, and for the opening of a session
	imagePrefix = "observation.images."
	jpegQuality = 90
)

// FakeRobot is a robot without an arm: it sends observations over a real link, and waits for their
// chunks.
type FakeRobot struct {
	Link   wire.Session
	Prefix string          // prefix of the service
	Ack    wire.SessionAck // answer to the robot's open
	rows   int             // rows of a chunk; 0: any number
	obs    wire.Publisher

	// Owner: the goroutine that sends requests.
	Observation wire.Observation
	Header      wire.Header // header of the newest request
	body, head  []byte
	sent        time.Time
	timer       *time.Timer

	// Owner: the link's receiver, until Await returns true.
	Chunk wire.ActionChunk

	Events chan wire.Event // the first events of the server

	awaited atomic.Uint64 // seq
	answers chan struct{} // cap 1
	refused atomic.Uint64 // events in place of a chunk
	strange atomic.Uint64 // messages that cannot be read, or chunks that do not fit
}

// OpenOf returns the message that opens a session for the robot id, with the joints and cameras of
// the policy.
func OpenOf(meta *policy.Meta, id string) wire.SessionOpen {
	open := wire.SessionOpen{
		ClientUUID:    id,
		RobotType:     "so101",
		FPS:           meta.FPS,
		ActionNames:   meta.ActionNames,
		StateDim:      len(meta.StateNames),
		SchemaVersion: wire.SchemaVersion,
		RTCEnabled:    meta.RTC != "none",
		SessionEpoch:  1,
	}
	for _, c := range meta.Cameras {
		open.CameraNames = append(open.CameraNames, imagePrefix+c.Name)
	}
	return open
}

// ObservationOf returns an observation that fits a policy: pictures of waves, as JPEG, a state of
// zeros, and, for a policy that continues a chunk, prefixRows committed rows of zeros.
func ObservationOf(meta *policy.Meta, prefixRows int) (o wire.Observation, err error) {
	o.State = make([]float32, len(meta.StateNames))
	if meta.RTC != "none" {
		o.PrefixRobot = wire.Matrix{Rows: prefixRows, Cols: meta.ActionDim,
			Data: make([]float32, prefixRows*meta.ActionDim)}
		o.InferenceDelaySteps = prefixRows
	}
	encoder, err := jpeg.NewEncoder(jpegQuality, jpeg.ChromaOfPicture)
	if err != nil {
		return o, err
	}
	defer encoder.Close()
	for _, camera := range meta.Cameras {
		pix := make([]byte, camera.Bytes())
		for i := range pix {
			x, y := i/3%camera.W, i/3/camera.W
			pix[i] = byte(128 + 60*math.Sin(float64(x)/11) + 60*math.Sin(float64(y)/7+float64(i%3)))
		}
		file := make([]byte, jpeg.MaxSize(camera.W, camera.H, jpeg.Chroma420))
		n, err := encoder.EncodeRGB(file, pix, camera.W, camera.H)
		if err != nil {
			return o, err
		}
		o.Images = append(o.Images, wire.Image{Name: imagePrefix + camera.Name, Data: file[:n]})
	}
	return o, nil
}

// OpenFakeRobot opens a session at the first server that shows its token on the link. The parameter rows is the number
// of rows of the policy's chunks. A chunk with another number counts as strange, unless this parameter is 0.
func OpenFakeRobot(ctx context.Context, link wire.Session, open wire.SessionOpen, rows int) (*FakeRobot, error) {
	r := &FakeRobot{
		Link: link,
		rows: rows,
		Header: wire.Header{SchemaVersion: wire.SchemaVersion, MsgType: wire.MsgObservation,
			SessionEpoch: open.SessionEpoch},
		Events:  make(chan wire.Event, 8),
		answers: make(chan struct{}, 1),
		timer:   time.NewTimer(time.Hour),
	}
	var keys []string
	for end := time.Now().Add(queryLimit); len(keys) == 0; {
		var err error
		if keys, err = link.Tokens(ctx, wire.ServerAliveAny, queryLimit); err != nil {
			return nil, err
		}
		if len(keys) == 0 && time.Now().After(end) { // a server listens before it has warmed up and shows its token
			return nil, fmt.Errorf("no server shows its token within %v", queryLimit)
		}
	}
	service, err := wire.ServiceOf(keys[0])
	if err != nil {
		return nil, err
	}
	r.Prefix = service.Prefix()
	return r, r.open(ctx, &open)
}

func (r *FakeRobot) open(ctx context.Context, open *wire.SessionOpen) error {
	token, err := wire.EpochAliveKey(r.Prefix, open.ClientUUID, open.SessionEpoch)
	if err != nil {
		return err
	}
	if _, err := r.Link.Token(token); err != nil {
		return err
	}
	replies, err := r.Link.Get(ctx, wire.SessionKey(r.Prefix), wire.Append(nil, open), queryLimit)
	if err != nil || len(replies) != 1 {
		return fmt.Errorf("%s opens a session: %d answers, %v", open.ClientUUID, len(replies),
			err) //nolint:errorlint // may be nil
	}
	if err := wire.Parse(&r.Ack, replies[0].Payload); err != nil {
		return err
	}
	if !r.Ack.Accepted {
		return fmt.Errorf("%s gets no session: %s", open.ClientUUID, r.Ack.Error)
	}
	key, err := wire.ActionKey(r.Prefix, open.ClientUUID)
	if err != nil {
		return err
	}
	if _, err := r.Link.Subscribe(key, r.receive); err != nil {
		return err
	}
	if key, err = wire.ObsKey(r.Prefix, open.ClientUUID); err != nil {
		return err
	}
	r.obs, err = r.Link.Publisher(key, wire.ObservationQoS)
	return err
}

// receive is called by the link.
func (r *FakeRobot) receive(sample wire.Sample) {
	h, err := wire.ParseHeader(sample.Attachment)
	switch {
	case err != nil:
		r.strange.Add(1)
	case h.MsgType == wire.MsgEvent:
		var e wire.Event
		if err := wire.Parse(&e, sample.Payload); err != nil || e.Code != wire.EventLate {
			r.refused.Add(1)
		}
		select {
		case r.Events <- e:
		default:
		}
	case wire.ParseActionChunk(&r.Chunk, sample.Payload) != nil || r.Chunk.SeqIDEcho != h.SeqID ||
		r.rows > 0 && r.Chunk.ChunkRobot.Rows != r.rows:
		r.strange.Add(1)
	case h.SeqID == r.awaited.Load():
		select {
		case r.answers <- struct{}{}:
		default:
		}
	}
}

// Failures returns how many messages of the server were neither the chunk for a request nor the
// event that a request came too late.
func (r *FakeRobot) Failures() int { return int(r.refused.Load() + r.strange.Load()) }

// Send sends the observation.
func (r *FakeRobot) Send() error {
	r.Header.SeqID++
	r.awaited.Store(r.Header.SeqID)
	select {
	case <-r.answers:
	default:
	}
	r.body = wire.AppendObservation(r.body[:0], &r.Observation)
	r.head = wire.AppendHeader(r.head[:0], r.Header)
	r.sent = time.Now()
	return r.obs.Put(r.body, r.head)
}

// Await waits for the chunk of the request that was sent last, and returns the time since then; ok
// is false after the limit, and when ctx ends.
func (r *FakeRobot) Await(ctx context.Context, limit time.Duration) (trip time.Duration, ok bool) {
	r.timer.Reset(limit)
	select {
	case <-r.answers:
		return time.Since(r.sent), true
	case <-ctx.Done():
	case <-r.timer.C:
	}
	return 0, false
}
