package capture

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/userfile"
	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/sim"
	"github.com/edge-rt/edge-rt/wire"
)

// Limits of the warm-up: the first frames of many cameras are dark until their automatic exposure has settled.
const (
	snapshotFrames = 10
	snapshotLimit  = 5 * time.Second
)

// Snapshot writes one picture of a --camera flag, as in an observation, to a *.jpg or *.png file.
func Snapshot(out io.Writer, flag string, encoding Encoding, file string) error {
	c, err := Parse(flag)
	if err != nil {
		return err
	}
	ext := strings.ToLower(filepath.Ext(file))
	if ext != ".jpg" && ext != ".jpeg" && ext != ".png" {
		return exit.Errorf(exit.Usage, "-o %s: want *.jpg or *.png", file)
	}
	clock := rt.KernelClock()
	world := func() *sim.Live { return sim.NewLive(sim.NewWorld(0, 1), clock, clock.Now()) }
	source, picked, err := Open(&c, Options{Clock: clock, World: world, Decoded: encoding.Reencode ||
		encoding.Quality == 0})
	if err != nil {
		return err
	}
	defer source.Close()
	cam := New(c.Name, source, c.MaxAge)
	encoder, err := NewEncoder(cam, &c, encoding)
	if err != nil {
		return err
	}
	defer encoder.Close()
	if err := cam.warmUp(clock); err != nil {
		return exit.Errorf(exit.Absent, "camera %s: %w", c.Name, err)
	}
	var m wire.Image
	if _, err := encoder.Picture(&m); err != nil {
		return encoder.cameraError(err)
	}
	content, err := encodeFile(&m, ext)
	if err == nil {
		err = userfile.Write(file, content)
	}
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	fmt.Fprintf(out, "%s: %d bytes, %s; pictures are %s\n", file, len(content), picked, encoder)
	fmt.Fprintf(out, "next: is it sharp, upright and like the pictures of the policy's training? else try "+
		"rotate=180, crop=WxH+X+Y, exposure=N; then edge-rt --camera %s\n", device.Quote(flag))
	return nil
}

// MeasureRate takes pictures for a time, and returns their number per second and the mode of the
// camera.
func MeasureRate(c *Config, span time.Duration) (fps float64, picked string, err error) {
	clock := rt.KernelClock()
	world := func() *sim.Live { return sim.NewLive(sim.NewWorld(0, 1), clock, clock.Now()) }
	source, picked, err := Open(c, Options{Clock: clock, World: world})
	if err != nil {
		return 0, "", err
	}
	defer source.Close()
	cam := New(c.Name, source, c.MaxAge)
	if err := cam.warmUp(clock); err != nil {
		return 0, picked, exit.Errorf(exit.Absent, "camera %s: %w", c.Name, err)
	}
	began, taken := clock.Now(), 0
	for clock.Now().Sub(began) < span {
		s := cam.Newest.Back()
		if source.Grab(&s.Frame) == nil && checkFrame(s) == nil {
			cam.Newest.Publish(int64(s.At))
			taken++
		}
	}
	return float64(taken) / clock.Now().Sub(began).Seconds(), picked, nil
}

// warmUp captures snapshotFrames pictures. The last one is the snapshot.
func (e *Camera) warmUp(clock rt.Clock) error {
	var last error
	taken := 0
	for end := clock.Now().Add(snapshotLimit); taken < snapshotFrames && clock.Now() < end; {
		s := e.Newest.Back()
		if last = e.Source.Grab(&s.Frame); last == nil {
			last = checkFrame(s)
		}
		if last == nil {
			e.Newest.Publish(int64(s.At))
			taken++
		}
	}
	if taken > 0 {
		return nil
	}
	return fmt.Errorf("no whole picture in %v: %w", snapshotLimit, last)
}

// encodeFile returns the picture as a file of the type with extension ext.
func encodeFile(m *wire.Image, ext string) ([]byte, error) {
	if m.Codec == wire.JPEG {
		file := bytes.Join([][]byte{m.Data[:m.SpliceAt], []byte(m.Splice), m.Data[m.SpliceAt:]}, nil)
		if ext != ".png" {
			return file, nil
		}
		p, err := jpeg.Inspect(file)
		if err != nil {
			return nil, err
		}
		d, err := jpeg.NewDecoder()
		if err != nil {
			return nil, err
		}
		defer d.Close()
		pix := make([]byte, 3*p.W*p.H)
		if err := d.DecodeRGB(pix, file, p.W, p.H); err != nil {
			return nil, err
		}
		m = &wire.Image{W: p.W, H: p.H, Data: pix}
	}
	if ext != ".png" {
		return nil, fmt.Errorf("a raw picture is no JPEG: name the file *.png")
	}
	im := image.NewRGBA(image.Rect(0, 0, m.W, m.H))
	for i := range m.W * m.H {
		im.SetRGBA(i%m.W, i/m.W, color.RGBA{m.Data[3*i], m.Data[3*i+1], m.Data[3*i+2], 255})
	}
	var b bytes.Buffer
	err := png.Encode(&b, im)
	return b.Bytes(), err
}
