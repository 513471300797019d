package eye

import (
	"fmt"
	"math"
	"sync/atomic"

	"edgert/camera"
	"edgert/internal/exit"
	"edgert/jpeg"
	"edgert/rt"
	"edgert/wire"
)

// Develop says what becomes of a camera's pictures.
type Develop struct {
	Quality  int  // of JPEG, 1 to 100; 0: raw
	Asked    bool // the quality was asked for: the camera's own JPEG is encoded anew
	WantW    int  // what the policy wants, 0: anything
	WantH    int
	Restarts int // rows of blocks between restart markers; 0: none
}

// aspectSlack is how far the shapes of two pictures may differ before scaling
// one to the other shows: a policy's cups must stay round.
const aspectSlack = 0.02

// Developer turns an eye's pictures into those of an observation.
//
// Owner: the sender thread.
type Developer struct {
	eye     *Eye
	pass    bool // the camera's own JPEG leaves as it came
	rework  *rework
	encoder *jpeg.Encoder // nil: raw
	decoder *jpeg.Decoder // nil: the camera's layout goes into the encoder as it is
	rgb     []byte        // decoded or converted
	spare   []byte        // the next rgb where that itself is sent; nil: it is not
	file    []byte        // encoded
	picture jpeg.Image

	// The last picture that was made, and which of the eye's was looked at last. A
	// broken one leaves the former as it was.
	kept    wire.Image
	keptAt  rt.Instant // 0: none yet
	last    int64      // its key
	failure error      // why it gave none
	blind   bool       // no picture has been decoded yet, which the eye waits for
}

// NewDeveloper plans what is done to the eye's pictures and allocates all of it.
// Close frees it.
func NewDeveloper(e *Eye, c *Config, d Develop) (*Developer, error) {
	f := e.Source.Format()
	quality := d.Quality
	if c.Quality > 0 {
		quality = c.Quality
	}
	outW, outH := c.SendW, c.SendH
	if outW == 0 {
		outW, outH = d.WantW, d.WantH
	}
	if d.WantW > 0 && (outW != d.WantW || outH != d.WantH) {
		return nil, exit.Errorf(exit.Config, "camera %s: send=%dx%d, but the policy wants %dx%d", e.Name, outW, outH, d.WantW, d.WantH)
	}
	r, err := newRework(f.Width, f.Height, c.Crop, c.Rotate, outW, outH)
	if err != nil {
		return nil, exit.Errorf(exit.Usage, "camera %s: %w", e.Name, err)
	}
	if a, b := float64(r.tw)/float64(r.th), float64(r.outW)/float64(r.outH); math.Abs(a/b-1) > aspectSlack {
		return nil, exit.Errorf(exit.Config, "camera %s: %dx%d squeezed into %dx%d: %s", e.Name, r.tw, r.th, r.outW, r.outH, cropHint(f, c, r))
	}
	v := &Developer{eye: e, rework: r, last: rt.NoKey}
	asked := d.Asked || c.Quality > 0
	v.pass = f.Pixels == camera.MJPEG && quality > 0 && !asked && r.idle()
	if v.pass {
		return v, nil
	}
	if quality > 0 {
		if v.encoder, err = jpeg.NewEncoderOf(jpeg.Params{Quality: quality, Chroma: jpeg.Chroma420, Restart: d.Restarts}); err != nil {
			return nil, err
		}
		v.file = make([]byte, jpeg.MaxSize(r.outW, r.outH))
	}
	padded := f.Stride != 0 && f.Stride != 3*f.Width
	if f.Pixels == camera.MJPEG || (quality == 0 || !r.idle()) && (f.Pixels != camera.RGB8 || padded) {
		if v.decoder, err = jpeg.NewDecoder(); err != nil {
			v.Close()
			return nil, err
		}
		v.rgb = make([]byte, 3*f.Width*f.Height)
		if v.encoder == nil && r.idle() {
			v.spare = make([]byte, len(v.rgb))
		}
		e.proves = f.Pixels == camera.MJPEG
		v.blind = e.proves
	}
	v.reserve(f)
	return v, nil
}

// reserve makes room for what the first picture would need otherwise.
func (v *Developer) reserve(f camera.Format) {
	m := imageOf(&camera.Frame{Format: f})
	switch {
	case f.Pixels == camera.MJPEG:
	case v.decoder != nil:
		v.decoder.Reserve(&m)
	case v.encoder != nil:
		v.encoder.Reserve(&m)
	}
}

// idle reports whether nothing is done to a picture: none is decoded, scaled or
// encoded.
//
//rt:noalloc
func (v *Developer) idle() bool { return v.encoder == nil && v.decoder == nil && v.rework.idle() }

// cropHint names the part of the picture that has the right shape.
func cropHint(f camera.Format, c *Config, r *rework) string {
	w, h := r.outW, r.outH
	if c.Rotate == 90 || c.Rotate == 270 {
		w, h = h, w
	}
	cw, ch := f.Width, f.Width*h/w
	if ch > f.Height {
		cw, ch = f.Height*w/h, f.Height
	}
	return fmt.Sprintf("add crop=%dx%d+%d+%d, or choose another size of the camera (edge-rt cameras)", cw, ch, (f.Width-cw)/2, (f.Height-ch)/2)
}

// String says what is done.
func (v *Developer) String() string {
	how := "sent as they come"
	switch {
	case v.pass:
	case v.encoder == nil:
		how = "sent raw"
	default:
		how = "encoded"
	}
	if r := v.rework; !r.idle() {
		how += fmt.Sprintf(" as %dx%d", r.outW, r.outH)
	}
	return how
}

// MaxBytes is the most that a picture takes in a message.
func (v *Developer) MaxBytes() int {
	switch {
	case v.pass:
		return v.eye.Source.Format().FrameBytes() + len(jpeg.StandardTables)
	case v.encoder != nil:
		return len(v.file)
	}
	return 3 * v.rework.outW * v.rework.outH
}

// Picture makes m the newest picture that is not broken and returns when it was
// taken, 0 when there is none yet. The error is why a newer one is left out: it
// is one of package jpeg's, and Explain has more words. What m holds is lent
// until the next call.
//
//rt:noalloc
func (v *Developer) Picture(m *wire.Image) (rt.Instant, error) {
	s, key, _ := v.eye.Newest.Front()
	if s.At == 0 {
		return 0, nil
	}
	if v.pass {
		*m = wire.Image{Name: v.eye.Wire, Codec: wire.JPEG, Data: s.Pix[:s.JPEG.End]}
		if !s.JPEG.Tables {
			m.Splice, m.SpliceAt = jpeg.StandardTables, s.JPEG.Insert
		}
		return s.At, nil
	}
	if key != v.last {
		v.last = key
		v.take(s)
	}
	if v.keptAt != 0 {
		*m = v.kept
	}
	return v.keptAt, v.failure
}

// take makes the eye's picture the one that is kept, unless it is broken.
//
//rt:noalloc
func (v *Developer) take(s *Shot) {
	if v.failure = v.make(s); v.failure != nil {
		v.eye.undecoded.Add(1)
		if v.eye.spoilt.lasts(s.At, v.eye.MaxAge) {
			v.eye.spoilt.say(fmt.Errorf("no picture decodes: %w", v.explain(v.failure, s))) //rt:allow once, in a run of broken pictures
		}
		return
	}
	v.keptAt = s.At
	v.eye.spoilt.over()
	if v.decoder != nil && v.decoder.Warned() {
		v.eye.warned.Add(1)
	}
}

// make develops a picture and puts it into v.kept.
//
//rt:noalloc
func (v *Developer) make(s *Shot) error {
	if err := v.develop(s); err != nil {
		return err
	}
	if v.encoder == nil {
		v.kept = wire.Image{Name: v.eye.Wire, Codec: wire.Raw, H: v.picture.H, W: v.picture.W, C: 3, Data: v.picture.Pix}
		return nil
	}
	n, err := v.encoder.Encode(v.file, &v.picture)
	if err != nil {
		v.keptAt = 0 // nobody knows what is in the file now
		return err
	}
	v.kept = wire.Image{Name: v.eye.Wire, Codec: wire.JPEG, Data: v.file[:n]}
	return nil
}

// Prove looks at the newest picture as long as none has been decoded, and lowers
// blind by one with the first that is: a camera whose pictures cannot be used has
// shown nothing yet.
//
// Owner: the sender thread.
//
//rt:noalloc
func (v *Developer) Prove(blind *atomic.Int32) {
	if !v.blind {
		return
	}
	var m wire.Image
	if at, _ := v.Picture(&m); at != 0 {
		v.blind = false
		blind.Add(-1)
	}
}

// develop makes v.picture what is to be encoded or sent raw.
//
//rt:noalloc
func (v *Developer) develop(s *Shot) error {
	v.picture = imageOf(&s.Frame)
	if v.decoder == nil && v.rework.idle() {
		if s.Pixels == camera.RGB8 && v.encoder == nil {
			v.picture.Pix = s.Pix[:3*s.Width*s.Height]
		}
		return nil
	}
	rgb := s.Pix
	if v.decoder != nil {
		rgb = v.rgb
		if v.spare != nil {
			rgb = v.spare
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
		if v.spare != nil {
			v.rgb, v.spare = v.spare, v.rgb
		}
	}
	v.picture = jpeg.Image{W: v.rework.outW, H: v.rework.outH, Layout: jpeg.RGB, Pix: v.rework.run(rgb)}
	return nil
}

// imageOf is a frame as the encoder calls it.
//
//rt:noalloc
func imageOf(f *camera.Frame) jpeg.Image {
	m := jpeg.Image{W: f.Width, H: f.Height, Stride: f.Stride, Full: f.Full, Pix: f.Pix, Layout: jpeg.RGB}
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

// Explain says in words what Picture returned about the newest picture. Call it
// before the next.
func (v *Developer) Explain(err error) error {
	s, _, _ := v.eye.Newest.Front()
	return fmt.Errorf("camera %s: %w", v.eye.Name, v.explain(err, s))
}

//go:noinline
func (v *Developer) explain(err error, s *Shot) error {
	if v.decoder == nil || s.Pixels != camera.MJPEG {
		return err
	}
	return v.decoder.Explain(err, s.Pix, s.Width, s.Height)
}

// Close frees the encoder and the decoder.
func (v *Developer) Close() {
	if v.encoder != nil {
		v.encoder.Close()
	}
	if v.decoder != nil {
		v.decoder.Close()
	}
}
