package capture

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
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
	warmUpFrames = 10
	warmUpLimit  = 5 * time.Second
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
	cam, picked, err := openAlone(&c, encoding.Reencode || encoding.Quality == 0)
	if err != nil {
		return err
	}
	defer cam.Source.Close()
	encoder, err := NewEncoder(cam, &c, encoding)
	if err != nil {
		return err
	}
	defer encoder.Close()
	if _, err := cam.take(rt.KernelClock(), warmUpFrames, warmUpLimit); err != nil { // the last one is the snapshot
		return err
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
	cam, picked, err := openAlone(c, false)
	if err != nil {
		return 0, "", err
	}
	defer cam.Source.Close()
	clock := rt.KernelClock()
	if _, err := cam.take(clock, warmUpFrames, warmUpLimit); err != nil {
		return 0, picked, err
	}
	began := clock.Now()
	taken, err := cam.take(clock, math.MaxInt, span)
	return float64(taken) / clock.Now().Sub(began).Seconds(), picked, err
}

// openAlone opens a camera outside a run. decoded is Options.Decoded.
func openAlone(c *Config, decoded bool) (cam *Camera, picked string, err error) {
	clock := rt.KernelClock()
	source, picked, err := Open(c, Options{
		Clock:   clock,
		World:   func() *sim.Live { return sim.NewLive(sim.NewWorld(0, 1), clock, clock.Now()) },
		Decoded: decoded,
	})
	if err != nil {
		return nil, "", err
	}
	return New(c.Name, source, c.MaxAge), picked, nil
}

// take captures at most the given number of pictures, until the time limit is over, and returns their number. It fails
// if there is no whole picture.
func (e *Camera) take(clock rt.Clock, most int, limit time.Duration) (taken int, err error) {
	var last error
	for end := clock.Now().Add(limit); taken < most && clock.Now() < end; {
		s := e.Newest.Back()
		if last = e.Source.Grab(&s.Frame); last != nil {
			pause(clock, last)
		} else if last = checkFrame(s); last == nil {
			e.Newest.Publish(int64(s.At))
			taken++
		}
	}
	if taken == 0 {
		return 0, exit.Errorf(exit.Absent, "camera %s: no whole picture in %v: %w", e.Name, limit, last)
	}
	return taken, nil
}

// Decode returns a picture of an observation as a raw picture.
func Decode(m *wire.Image) (*wire.Image, error) {
	if m.Codec == wire.Raw {
		return m, nil
	}
	file := m.AppendData(nil)
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
	return &wire.Image{Name: m.Name, W: p.W, H: p.H, Data: pix}, d.DecodeRGB(pix, file, p.W, p.H)
}

// encodeFile returns the picture as a file of the type with extension ext.
func encodeFile(m *wire.Image, ext string) ([]byte, error) {
	if ext != ".png" {
		if m.Codec == wire.Raw {
			return nil, fmt.Errorf("a raw picture is no JPEG: name the file *.png")
		}
		return m.AppendData(nil), nil
	}
	m, err := Decode(m)
	if err != nil {
		return nil, err
	}
	im := image.NewRGBA(image.Rect(0, 0, m.W, m.H))
	for i := range m.W * m.H {
		im.SetRGBA(i%m.W, i/m.W, color.RGBA{m.Data[3*i], m.Data[3*i+1], m.Data[3*i+2], 255})
	}
	var b bytes.Buffer
	err = png.Encode(&b, im)
	return b.Bytes(), err
}
