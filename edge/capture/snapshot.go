package capture

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"edgert/camera"
	"edgert/camera/v4l2"
	"edgert/internal/exit"
	"edgert/jpeg"
	"edgert/rt"
	"edgert/sim"
	"edgert/wire"
)

// WriteList lists the cameras of this machine, and what to write for them. all
// shows every mode and control.
func WriteList(w io.Writer, all bool) error {
	found, denied := v4l2.List()
	for _, err := range denied {
		fmt.Fprintf(w, "%v\n", err)
	}
	if len(found) == 0 {
		return exit.Errorf(exit.Absent, "no camera here: plug one in and look again (edge-rt cameras); without one, --camera top=pattern shows bars and --camera top=./folder plays pictures")
	}
	for i := range found {
		c := &found[i]
		fmt.Fprintf(w, "%s  %s (%s, at %s)\n", c.Path, c.Card, c.Driver, c.Bus)
		for _, link := range []string{c.ByID, c.ByPath} {
			if link != "" {
				fmt.Fprintf(w, "  %s\n", link)
			}
		}
		writeModes(w, c.Modes, all)
		writeControls(w, c.Controls, all)
	}
	c := &found[0]
	path := c.Path
	if c.ByID != "" {
		path = c.ByID
	}
	fmt.Fprintf(w, "next: look through one: edge-rt cameras snapshot --camera front=%s -o front.jpg\n", path)
	fmt.Fprintf(w, "then: run with it: edge-rt --bus PORT --camera front=%s (the name is the policy's: observation.images.front)\n", path)
	if c.ByID == "" {
		fmt.Fprintln(w, "note: /dev/videoN changes with the order of plugging; names in /dev/v4l/by-id stay (they come with udev)")
	}
	return nil
}

// writeModes writes a line for each pixel format.
func writeModes(w io.Writer, modes []v4l2.Mode, all bool) {
	const few = 6
	var order []camera.PixelFormat
	sizes, rates := map[camera.PixelFormat][]string{}, map[string][]string{}
	for _, m := range modes {
		if !slices.Contains(order, m.Pixels) {
			order = append(order, m.Pixels)
		}
		size := fmt.Sprintf("%dx%d", m.Width, m.Height)
		if !slices.Contains(sizes[m.Pixels], size) {
			sizes[m.Pixels] = append(sizes[m.Pixels], size)
		}
		key := m.Pixels.String() + size
		if fps := fmt.Sprintf("%.3g", m.FPS); !slices.Contains(rates[key], fps) {
			rates[key] = append(rates[key], fps)
		}
	}
	for _, p := range order {
		list := sizes[p]
		more := ""
		if len(list) > few && !all {
			list, more = list[:few], fmt.Sprintf(" and %d more (--all)", len(list)-few)
		}
		var texts []string
		for _, size := range list {
			fps := rates[p.String()+size]
			if len(fps) > few && !all {
				fps = append(fps[:1:1], "...", fps[len(fps)-1])
			}
			texts = append(texts, size+"@"+strings.Join(fps, "/"))
		}
		fmt.Fprintf(w, "  %-6v %s%s\n", p, strings.Join(texts, "  "), more)
	}
}

// usualControls are those that matter to a policy.
var usualControls = []string{"exposure", "white-balance", "focus", "gain", "brightness", "power-line"}

func writeControls(w io.Writer, controls []v4l2.Control, all bool) {
	left := 0
	for _, c := range controls {
		usual := slices.ContainsFunc(usualControls, func(word string) bool { return strings.Contains(c.Name, word) })
		if c.ReadOnly || !usual && !all {
			left++
			continue
		}
		state := ""
		if c.Inactive {
			state = ", governed by another"
		}
		fmt.Fprintf(w, "  %s=%d (%s%s)\n", c.Name, c.Value, c.Span(), state)
	}
	if left > 0 {
		fmt.Fprintf(w, "  and %d more controls (--all)\n", left)
	}
}

// snapshotFrames are taken before the one that counts: the first of many cameras
// are dark, until the automatics have settled.
const (
	snapshotFrames = 10
	snapshotLimit  = 5 * time.Second
)

// Snapshot takes one picture as an observation would hold it and writes it to a
// file: *.jpg, or *.png.
func Snapshot(out io.Writer, c *Config, encoding Encoding, file string) error {
	ext := strings.ToLower(filepath.Ext(file))
	if ext != ".jpg" && ext != ".jpeg" && ext != ".png" {
		return exit.Errorf(exit.Usage, "-o %s: want *.jpg or *.png", file)
	}
	clock := rt.KernelClock()
	world := func() World { return sim.NewLive(sim.NewWorld(0, 1), clock, clock.Now()) }
	source, picked, err := Open(c, Options{Clock: clock, World: world, Decoded: encoding.Reencode || encoding.Quality == 0})
	if err != nil {
		return err
	}
	defer source.Close()
	cam := New(c.Name, source, c.MaxAge)
	encoder, err := NewEncoder(cam, c, encoding)
	if err != nil {
		return err
	}
	defer encoder.Close()
	if err := cam.warmUp(clock); err != nil {
		return exit.With(exit.Absent, fmt.Errorf("camera %s: %w", c.Name, err))
	}
	var m wire.Image
	if _, err := encoder.Picture(&m); err != nil {
		return encoder.Explain(err)
	}
	content, err := encodeFile(&m, ext)
	if err == nil {
		err = os.WriteFile(file, content, 0o644)
	}
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	fmt.Fprintf(out, "%s: %d bytes, %s; pictures are %s\n", file, len(content), picked, encoder)
	fmt.Fprintf(out, "next: is it sharp, upright and what the policy was trained on? else try rotate=180, crop=WxH+X+Y, exposure=N; then edge-rt --camera %s=%s\n", c.Name, c.Source)
	return nil
}

// warmUp takes pictures until the automatics have had time.
func (e *Camera) warmUp(clock rt.Clock) error {
	var last error
	taken := 0
	for end := clock.Now().Add(snapshotLimit); taken < snapshotFrames && clock.Now() < end; {
		s := e.Newest.Back()
		if last = e.Source.Grab(&s.Frame); last == nil && checkFrame(s) == nil {
			e.Newest.Publish(int64(s.At))
			taken++
		}
	}
	if taken > 0 {
		return nil
	}
	if last == nil {
		last = camera.ErrStalled
	}
	return fmt.Errorf("no whole picture in %v: %w", snapshotLimit, last)
}

// encodeFile returns the picture as a file of the kind that its name says.
func encodeFile(m *wire.Image, ext string) ([]byte, error) {
	file := m.Data
	if m.Codec == wire.JPEG {
		file = bytes.Join([][]byte{m.Data[:m.SpliceAt], []byte(m.Splice), m.Data[m.SpliceAt:]}, nil)
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
