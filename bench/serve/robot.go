package serve

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/network"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

const (
	// answerLimit is the least time after which a chunk counts as lost; for a slow policy it is
	// answerTurns turns of all robots.
	answerLimit = 10 * time.Second
	answerTurns = 3
	queryLimit  = 10 * time.Second
	// longestInference bounds the inference time that a server reports.
	longestInference = 10 * time.Minute
	imagePrefix      = "observation.images."
	jpegQuality      = 90
	prefixRows       = 3
)

// robot sends requests to a server over a link of its own.
type robot struct {
	link   wire.Session
	prefix string // of the service
	obs    wire.Publisher

	// Owner: the goroutine that sends requests.
	observation wire.Observation
	body, head  []byte
	seq         uint64
	answered    int
	lost        int
	trips       []float64 // ms
	timer       *time.Timer
	inference   time.Duration // of the policy, as the server reports it
	limit       time.Duration // of an answer

	// Owner: the link's receiver.
	chunk wire.ActionChunk

	awaited atomic.Uint64 // seq
	answers chan struct{} // cap 1
	refused atomic.Uint64 // events in place of a chunk
	strange atomic.Uint64 // messages that cannot be read, or chunks that do not fit
	rows    int           // of a chunk
}

// crowd is the robots of one server.
type crowd struct{ robots []*robot }

// join opens the sessions of n robots.
func (s *stand) join(ctx context.Context, endpoint string, n int) (*crowd, error) {
	observation, err := s.observation()
	if err != nil {
		return nil, err
	}
	c := new(crowd)
	for i := range n {
		r, err := s.newRobot(ctx, endpoint, fmt.Sprintf("arm-%03d", i), observation)
		if err != nil {
			c.leave()
			return nil, err
		}
		r.limit = max(answerLimit, answerTurns*time.Duration(n)*r.inference)
		c.robots = append(c.robots, r)
	}
	return c, nil
}

func (c *crowd) leave() {
	for _, r := range c.robots {
		_ = r.link.Close()
	}
}

// observation returns every robot's observation: pictures of waves, as JPEG.
func (s *stand) observation() (o wire.Observation, err error) {
	meta := &s.bundle.Meta
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

// writePictures writes the decoded pictures of the robots, for a client that sends them raw.
func (s *stand) writePictures() (folder string, err error) {
	o, err := s.observation()
	if err != nil {
		return "", err
	}
	decoder, err := jpeg.NewDecoder()
	if err != nil {
		return "", err
	}
	defer decoder.Close()
	folder = filepath.Join(s.dir, "pictures")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	for i, camera := range s.bundle.Cameras {
		pix := make([]byte, camera.Bytes())
		if err := decoder.DecodeRGB(pix, o.Images[i].Data, camera.W, camera.H); err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(folder, camera.Name+".rgb"), pix, 0o600); err != nil {
			return "", err
		}
	}
	return folder, nil
}

func (s *stand) newRobot(ctx context.Context, endpoint, id string, o wire.Observation) (r *robot, err error) {
	meta := &s.bundle.Meta
	r = &robot{
		observation: o,
		answers:     make(chan struct{}, 1),
		rows:        meta.ChunkSize,
		timer:       time.NewTimer(time.Hour),
	}
	if r.link, err = network.Open(ctx, zenoh.Config{Connect: []string{endpoint}}); err != nil {
		return nil, err
	}
	if err = r.open(ctx, meta, id); err != nil {
		return nil, errors.Join(err, r.link.Close())
	}
	return r, nil
}

func (r *robot) open(ctx context.Context, meta *policy.Meta, id string) error {
	var keys []string
	for end := time.Now().Add(queryLimit); len(keys) == 0; {
		var err error
		if keys, err = r.link.Tokens(ctx, wire.ServerAliveAny, queryLimit); err != nil {
			return err
		}
		if len(keys) == 0 && time.Now().After(end) { // it listens before it is warm
			return fmt.Errorf("no server shows its token within %v", queryLimit)
		}
	}
	service, err := wire.ServiceOf(keys[0])
	if err != nil {
		return err
	}
	r.prefix = service.Prefix()
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
	for _, m := range r.observation.Images {
		open.CameraNames = append(open.CameraNames, m.Name)
	}
	token, err := wire.EpochAliveKey(r.prefix, id, 1)
	if err != nil {
		return err
	}
	if _, err := r.link.Token(token); err != nil {
		return err
	}
	replies, err := r.link.Get(ctx, wire.SessionKey(r.prefix), wire.AppendSessionOpen(nil, &open), queryLimit)
	if err != nil || len(replies) != 1 {
		return fmt.Errorf("%s opens a session: %d answers, %v", id, len(replies), err) //nolint:errorlint // may be nil
	}
	var ack wire.SessionAck
	if err := wire.ParseSessionAck(&ack, replies[0].Payload); err != nil {
		return err
	}
	if !ack.Accepted {
		return fmt.Errorf("%s gets no session: %s", id, ack.Error)
	}
	r.inference = time.Duration(min(ack.InferenceMsP99, longestInference.Seconds()*1e3) * float64(time.Millisecond))
	key, err := wire.ActionKey(r.prefix, id)
	if err != nil {
		return err
	}
	if _, err := r.link.Subscribe(key, r.receive); err != nil {
		return err
	}
	if key, err = wire.ObsKey(r.prefix, id); err != nil {
		return err
	}
	r.obs, err = r.link.Publisher(key, wire.ObservationQoS)
	return err
}

// receive is called by the link.
func (r *robot) receive(sample wire.Sample) {
	h, err := wire.ParseHeader(sample.Attachment)
	switch {
	case err != nil:
		r.strange.Add(1)
	case h.MsgType == wire.MsgEvent:
		var e wire.Event
		if err := wire.ParseEvent(&e, sample.Payload); err != nil || e.Code != wire.EventLate {
			r.refused.Add(1)
		}
	case wire.ParseActionChunk(&r.chunk, sample.Payload) != nil || r.chunk.SeqIDEcho != h.SeqID ||
		r.chunk.ChunkRobot.Rows != r.rows:
		r.strange.Add(1)
	case h.SeqID == r.awaited.Load():
		select {
		case r.answers <- struct{}{}:
		default:
		}
	}
}

// ask sends an observation and waits for its chunk; it returns false without one.
func (r *robot) ask(ctx context.Context) bool {
	r.seq++
	r.awaited.Store(r.seq)
	select {
	case <-r.answers:
	default:
	}
	r.body = wire.AppendObservation(r.body[:0], &r.observation)
	r.head = wire.AppendHeader(r.head[:0], wire.Header{
		SchemaVersion: wire.SchemaVersion,
		MsgType:       wire.MsgObservation,
		SeqID:         r.seq,
		SessionEpoch:  1,
	})
	begin := time.Now()
	if err := r.obs.Put(r.body, r.head); err != nil {
		r.lost++
		return false
	}
	r.timer.Reset(r.limit)
	select {
	case <-r.answers:
		r.answered++
		r.trips = append(r.trips, time.Since(begin).Seconds()*1e3)
		return true
	case <-ctx.Done():
	case <-r.timer.C:
		r.lost++
	}
	return false
}

// flood lets all robots send requests as fast as they are answered, and returns the chunks per
// second.
func (c *crowd) flood(ctx context.Context, slice time.Duration) (perS float64, err error) {
	before, begin := c.answered(), time.Now()
	var all sync.WaitGroup
	for _, r := range c.robots {
		all.Go(func() {
			for ctx.Err() == nil && time.Since(begin) < slice {
				if !r.ask(ctx) {
					return
				}
			}
		})
	}
	all.Wait()
	return float64(c.answered()-before) / time.Since(begin).Seconds(), context.Cause(ctx)
}

func (c *crowd) answered() (n int) {
	for _, r := range c.robots {
		n += r.answered
	}
	return n
}

// lost returns the number of requests without a chunk.
func (c *crowd) lost() (n int) {
	for _, r := range c.robots {
		n += r.lost + int(r.refused.Load()+r.strange.Load())
	}
	return n
}

// fill adds the robots' counts to a Crowd.
func (c *crowd) fill(to *Crowd) {
	var trips []float64
	var sum, squares float64
	for _, r := range c.robots {
		trips = append(trips, r.trips...)
		to.Answered += r.answered
		sum, squares = sum+float64(r.answered), squares+float64(r.answered)*float64(r.answered)
	}
	to.Lost, to.RoundTrip = c.lost(), quantiles(trips)
	if squares > 0 {
		to.Jain = round(sum * sum / (float64(len(c.robots)) * squares))
	}
}

// served returns how many robots are still served: each sends one more request.
func (c *crowd) served(ctx context.Context) (n int) {
	var all sync.WaitGroup
	var served atomic.Int64
	for _, r := range c.robots {
		all.Go(func() {
			if r.ask(ctx) {
				served.Add(1)
			}
		})
	}
	all.Wait()
	return int(served.Load())
}
