package safety

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/edge-rt/edge-rt/sim/referee"
	"github.com/edge-rt/edge-rt/stage"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

var notFinite = []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), math.MaxFloat32}

// notNumbers fills a chunk with NaN and infinities.
func notNumbers(c *wire.ActionChunk) { fill(c, notFinite) }

// jumps fills a chunk with rows beyond the joints' lower and upper ends, alternately.
func jumps(c *wire.ActionChunk) { fill(c, []float32{-400, 400}) }

// fill overwrites a chunk. All joints of a row get the same value; the rows take the values in turn.
func fill(c *wire.ActionChunk, values []float32) {
	for _, m := range []*wire.Matrix{&c.ChunkModel, &c.ChunkRobot} {
		m.Data = slices.Clone(m.Data)
		for i := range m.Data {
			m.Data[i] = values[i/m.Cols%len(values)]
		}
	}
}

// garbage publishes messages of noise, of a valid header with noise after it, and of chunks with wrong shapes.
func garbage(r *run) error {
	session, err := zenoh.Open(r.ctx, zenoh.Config{Connect: []string{r.server}})
	if err != nil {
		return err
	}
	defer session.Close()
	key, err := wire.ActionKey(r.sine.Prefix, robotID)
	if err != nil {
		return err
	}
	p, err := session.Publisher(key, wire.ActionQoS)
	if err != nil {
		return err
	}
	dice := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 4096)
	for i := 0; now().Sub(r.at) < r.fault.For && r.ended == 0; i++ {
		for k := range noise {
			noise[k] = byte(dice.Uint32())
		}
		body, head := noise[:dice.IntN(len(noise))], noise[:dice.IntN(2*wire.HeaderSize)]
		if i%3 > 0 {
			head = wire.AppendHeader(nil, wire.Header{
				SchemaVersion: 1,
				MsgType:       wire.MsgActionChunk,
				SeqID:         uint64(i),
				EpisodeID:     1,
				SessionEpoch:  1,
			})
		}
		if i%3 > 1 {
			m := wire.Matrix{Rows: 2, Cols: 3, Data: []float32{1, 2, 3, 4, 5, 6}}
			body = wire.AppendActionChunk(nil, &wire.ActionChunk{ChunkModel: m, ChunkRobot: m})
		}
		_ = p.Put(body, head) // a lost sample does no harm
		r.sleep(5 * time.Millisecond)
	}
	return nil
}

// secondRobot runs another robot with the same id, as from a cloned SD card.
func secondRobot(r *run) error {
	dir := filepath.Join(r.dir, "second")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	second := &run{
		ctx:   r.ctx,
		cfg:   r.cfg,
		dir:   dir,
		robot: r.robot,
		fault: &fault{},
	}
	defer second.close()
	if err := second.openArms(); err != nil {
		return err
	}
	second.firstChunk(now())
	if err := second.startEdge(r.server, r.fault.Lean, "--max-offline", "4s"); err != nil {
		return err
	}
	both := func() bool { second.observe(); r.observe(); return r.ctx.Err() != nil }
	stage.Until(r.fault.For-now().Sub(r.at), both)
	if second.ended == 0 {
		_ = second.edge.Signal(syscall.SIGTERM)
		stage.Until(exitLimit, func() bool { return both() || second.ended != 0 })
	}
	r.sleep(torqueTime)
	second.judges(func(j *referee.Referee) { j.CheckAt(now()) })
	r.other = second.verdicts()
	r.result.Note = fmt.Sprintf("the second robot got %d goals", combined(r.other).Goals)
	if why := second.edge.Reason(); why != "" {
		r.result.Note += ": " + why
	}
	return nil
}

// rest begins an episode and ends it.
func rest(r *run) error {
	if err := r.edge.Ctl("start"); err != nil {
		return err
	}
	time.Sleep(time.Second) // a second of the episode passes before the fault begins
	r.onRevert(func() { _ = r.edge.Ctl("resume") })
	return r.from(r.edge.Ctl("success"))
}

// correct begins a take-over by a person, who then does not move the arm.
func correct(r *run) error {
	r.onRevert(func() { _ = r.edge.Ctl("resume") })
	return r.from(r.edge.Ctl("correct"))
}

// from sets the fault's beginning to now, after a command has taken effect, and returns the command's error.
func (r *run) from(err error) error {
	r.at = now()
	return err
}

// pictures writes the folder of pictures that the camera shows.
func pictures(r *run) error {
	dir := filepath.Join(r.dir, "pictures")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	b, err := picture()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "1.jpg"), b, 0o600)
}

// strayBytes writes the picture that the camera shows. It has stray bytes like those of a Logitech C270.
func strayBytes(r *run) error {
	bad, err := spoiltPicture()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dir, "bad.jpg"), bad, 0o600)
}

// spoiltPicture returns a picture with 16 stray bytes before its end. A decoder reads 64 bits at a
// time, so it may use up to 7 of them as part of the picture without a warning.
func spoiltPicture() ([]byte, error) {
	good, err := picture()
	if err != nil {
		return nil, err
	}
	end := len(good) - 2
	return slices.Concat(good[:end], make([]byte, 16), good[end:]), nil
}

func picture() ([]byte, error) {
	im := image.NewRGBA(image.Rect(0, 0, 320, 240))
	for y := range 240 {
		for x := range 320 {
			im.Set(x, y, color.RGBA{uint8(x), uint8(y), uint8(x + y), 255})
		}
	}
	var b bytes.Buffer
	err := jpeg.Encode(&b, im, nil)
	return b.Bytes(), err
}
