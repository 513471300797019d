package capture

import (
	"cmp"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/wire"
)

// Encoding is the form in which pictures are sent, for all cameras of a run.
type Encoding struct {
	Quality  int  // JPEG quality, 1 to 100; 0: raw
	Reencode bool // encode a camera's own JPEG anew, in this quality
	WantW    int  // the policy's size; 0: any size
	WantH    int
}

// DefaultQuality is the JPEG quality of pictures that a camera delivers raw.
const DefaultQuality = 90

// aspectSlack is the relative difference of two aspect ratios above which scaling is visible.
const aspectSlack = 0.02

// Encoder turns a camera's pictures into the pictures of an observation.
//
// Owner: the sender thread.
type Encoder struct {
	camera      *Camera
	passthrough bool // the camera's own JPEG is sent unchanged
	transform   *transform
	encoder     *jpeg.Encoder // nil: raw
	decoder     *jpeg.Decoder // nil: the encoder takes the camera's layout
	rgb         []byte        // decoded or converted
	nextRGB     []byte        // memory of the next picture if rgb itself is sent, else nil
	file        []byte        // encoded
	picture     jpeg.Image

	image     wire.Image // the last encoded picture
	imageAt   rt.Instant // 0: no picture yet
	lastKey   int64      // key of the last frame that was encoded, or failed
	err       error      // error of that frame
	undecoded bool       // the camera's pictures must decode, and no picture has decoded yet
}

// CheckBuild refuses cameras in a program that was built without cgo and therefore without JPEG:
// otherwise the session would open, and end at the first picture.
func CheckBuild() error {
	d, err := jpeg.NewDecoder()
	if err != nil {
		return exit.Errorf(exit.Config, "--camera: this program cannot encode pictures: %w", err)
	}
	return d.Close()
}

// NewEncoder plans the processing of the pictures and allocates its memory; Close frees it.
func NewEncoder(e *Camera, c *Config, d Encoding) (*Encoder, error) {
	f := e.Source.Format()
	quality := cmp.Or(c.Quality, d.Quality)
	outW, outH := c.SendW, c.SendH
	if outW == 0 {
		outW, outH = d.WantW, d.WantH
	}
	if d.WantW > 0 && (outW != d.WantW || outH != d.WantH) {
		return nil, exit.Errorf(exit.Config, "camera %s: send=%dx%d, but the policy wants %dx%d", e.Name, outW, outH,
			d.WantW, d.WantH)
	}
	r, err := newTransform(f.Width, f.Height, c.Crop, c.Rotate, outW, outH)
	if err != nil {
		return nil, exit.Errorf(exit.Usage, "camera %s: %w", e.Name, err)
	}
	if a, b := float64(r.rotatedW)/float64(r.rotatedH), float64(r.outW)/float64(r.outH); math.Abs(a/b-1) > aspectSlack {
		return nil, exit.Errorf(exit.Config, "camera %s: %dx%d squeezed into %dx%d: %s", e.Name, r.rotatedW, r.rotatedH,
			r.outW, r.outH, cropHint(f, c, r))
	}
	v := &Encoder{camera: e, transform: r, lastKey: rt.NoKey}
	asked := d.Reencode || c.Quality > 0
	v.passthrough = f.Pixels == camera.MJPEG && quality > 0 && !asked && r.identity()
	if v.passthrough {
		return v, nil
	}
	if quality > 0 {
		if v.encoder, err = jpeg.NewEncoder(quality, jpeg.Chroma420); err != nil {
			return nil, err
		}
		v.file = make([]byte, jpeg.MaxSize(r.outW, r.outH, jpeg.Chroma420))
	}
	padded := f.Stride != 0 && f.Stride != 3*f.Width
	if f.Pixels == camera.MJPEG || (quality == 0 || !r.identity()) && (f.Pixels != camera.RGB8 || padded) {
		if v.decoder, err = jpeg.NewDecoder(); err != nil {
			v.Close()
			return nil, err
		}
		v.rgb = make([]byte, 3*f.Width*f.Height)
		if v.encoder == nil && r.identity() {
			v.nextRGB = make([]byte, len(v.rgb))
		}
		e.mustDecode = f.Pixels == camera.MJPEG
		v.undecoded = e.mustDecode
	}
	v.reserve(f)
	return v, nil
}

func (v *Encoder) reserve(f camera.Format) {
	m := jpegImage(&camera.Frame{Format: f})
	switch {
	case f.Pixels == camera.MJPEG:
	case v.decoder != nil:
		v.decoder.Reserve(&m)
	case v.encoder != nil:
		v.encoder.Reserve(&m)
	}
}

//rt:noalloc
func (v *Encoder) unchanged() bool {
	return v.encoder == nil && v.decoder == nil && v.transform.identity()
}

// cropHint suggests the part of the picture that has the policy's aspect ratio.
func cropHint(f camera.Format, c *Config, r *transform) string {
	w, h := r.outW, r.outH
	if c.Rotate == 90 || c.Rotate == 270 {
		w, h = h, w
	}
	cw, ch := f.Width, f.Width*h/w
	if ch > f.Height {
		cw, ch = f.Height*w/h, f.Height
	}
	return fmt.Sprintf("add crop=%dx%d+%d+%d, or choose another size of the camera (edge-rt cameras)", cw, ch,
		(f.Width-cw)/2, (f.Height-ch)/2)
}

// String returns the form in which the pictures are sent, and their size if it changes, for a log.
func (v *Encoder) String() string {
	how := "encoded"
	switch {
	case v.passthrough:
		how = "sent as they come"
	case v.encoder == nil:
		how = "sent raw"
	}
	if r := v.transform; !r.identity() {
		how += fmt.Sprintf(" as %dx%d", r.outW, r.outH)
	}
	return how
}

// MaxBytes returns the largest size of a picture in a message.
func (v *Encoder) MaxBytes() int {
	switch {
	case v.passthrough:
		return v.camera.Source.Format().FrameBytes() + len(jpeg.StandardTables)
	case v.encoder != nil:
		return len(v.file)
	}
	raw, _ := v.Raw()
	return raw.H * raw.W * raw.C
}

// Raw returns the shape of the pictures, and whether they are sent raw.
func (v *Encoder) Raw() (s wire.CameraShape, raw bool) {
	raw = v.encoder == nil && !v.passthrough
	return wire.CameraShape{
		Name: v.camera.ImageName,
		H:    v.transform.outH,
		W:    v.transform.outW,
		C:    3,
	}, raw
}

// Picture sets m to the newest picture that is not broken and returns the instant at which it was taken, 0 if there is
// no such picture yet. If a newer picture was left out, the error is the reason: an error of package jpeg, to which
// cameraError adds details. m is lent until the next call.
//
//rt:noalloc
func (v *Encoder) Picture(m *wire.Image) (rt.Instant, error) {
	s, key, _ := v.camera.Newest.Front()
	if s.At == 0 {
		return 0, nil
	}
	if v.passthrough {
		*m = wire.Image{Name: v.camera.ImageName, Codec: wire.JPEG, Data: s.Pix[:s.JPEG.End]}
		if !s.JPEG.Tables {
			m.Splice, m.SpliceAt = jpeg.StandardTables, s.JPEG.Insert
		}
		return s.At, nil
	}
	if key != v.lastKey {
		v.lastKey = key
		v.update(s)
	}
	if v.imageAt != 0 {
		*m = v.image
	}
	return v.imageAt, v.err
}

//rt:noalloc
func (v *Encoder) update(s *Frame) {
	if v.err = v.encode(s); v.err != nil {
		v.camera.undecoded.Add(1)
		if v.camera.decodeOutage.failed(s.At, v.camera.MaxAge) {
			err := v.explain(v.err, s)
			v.camera.decodeOutage.report(fmt.Errorf("no picture decodes: %w", err)) //rt:allow once in an outage
		}
		return
	}
	v.imageAt = s.At
	v.camera.decodeOutage.succeeded()
	if v.decoder != nil && v.decoder.Warned() {
		v.camera.warned.Add(1)
	}
}

//rt:noalloc
func (v *Encoder) encode(s *Frame) error {
	if err := v.prepare(s); err != nil {
		return err
	}
	if v.encoder == nil {
		v.image = wire.Image{
			Name:  v.camera.ImageName,
			Codec: wire.Raw,
			H:     v.picture.H,
			W:     v.picture.W,
			C:     3,
			Data:  v.picture.Pix,
		}
		return nil
	}
	n, err := v.encoder.Encode(v.file, &v.picture)
	if err != nil {
		v.imageAt = 0 // the content of v.file is undefined now
		return err
	}
	v.image = wire.Image{Name: v.camera.ImageName, Codec: wire.JPEG, Data: v.file[:n]}
	return nil
}

// AwaitFirst tries to decode the newest picture; the first success lowers pending by one, and later
// calls do nothing. Owner: the sender thread.
//
//rt:noalloc
func (v *Encoder) AwaitFirst(pending *atomic.Int32) {
	if !v.undecoded {
		return
	}
	var m wire.Image
	if at, _ := v.Picture(&m); at != 0 {
		v.undecoded = false
		pending.Add(-1)
	}
}

//rt:noalloc
func (v *Encoder) prepare(s *Frame) error {
	v.picture = jpegImage(&s.Frame)
	if v.decoder == nil && v.transform.identity() {
		if s.Pixels == camera.RGB8 && v.encoder == nil {
			v.picture.Pix = s.Pix[:3*s.Width*s.Height]
		}
		return nil
	}
	rgb := s.Pix
	if v.decoder != nil {
		rgb = v.rgb
		if v.nextRGB != nil {
			rgb = v.nextRGB
		}
		var err error
		if s.Pixels == camera.MJPEG {
			err = v.decoder.DecodeRGB(rgb, s.Pix, s.Width, s.Height)
		} else {
			err = v.decoder.ConvertRGB(rgb, &v.picture)
		}
		if err != nil {
			return err
		}
		if v.nextRGB != nil {
			v.rgb, v.nextRGB = v.nextRGB, v.rgb
		}
	}
	v.picture = jpeg.Image{
		W:      v.transform.outW,
		H:      v.transform.outH,
		Layout: jpeg.RGB,
		Pix:    v.transform.apply(rgb),
	}
	return nil
}

//rt:noalloc
func jpegImage(f *camera.Frame) jpeg.Image {
	m := jpeg.Image{
		W:      f.Width,
		H:      f.Height,
		Stride: f.Stride,
		Full:   f.Full,
		Pix:    f.Pix,
		Layout: jpeg.RGB,
	}
	switch f.Pixels {
	case camera.YUYV:
		m.Layout = jpeg.YUYV
	case camera.NV12:
		m.Layout = jpeg.NV12
	case camera.Gray8:
		m.Layout = jpeg.Gray
	}
	return m
}

// cameraError adds details to the error that Picture returned. Call it before the next Picture.
func (v *Encoder) cameraError(err error) error {
	s, _, _ := v.camera.Newest.Front()
	return fmt.Errorf("camera %s: %w", v.camera.Name, v.explain(err, s))
}

//go:noinline
func (v *Encoder) explain(err error, s *Frame) error {
	if v.decoder == nil || s.Pixels != camera.MJPEG {
		return err
	}
	return v.decoder.Explain(err, s.Pix, s.Width, s.Height)
}

// Close frees the encoder and the decoder.
func (v *Encoder) Close() {
	if v.encoder != nil {
		v.encoder.Close()
	}
	if v.decoder != nil {
		v.decoder.Close()
	}
}
