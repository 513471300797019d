package wire

import (
	"fmt"
	"slices"

	"github.com/tinylib/msgp/msgp"
)

// Codec is the encoding of a picture.
type Codec uint8

// The codecs. A message that names no codec means JPEG.
const (
	JPEG Codec = iota
	Raw        // H x W x 3 bytes, R first, rows top to bottom
)

// String returns the codec's name on the wire.
func (c Codec) String() string {
	if c == Raw {
		return "raw"
	}
	return "jpeg"
}

// Image is one camera's picture. H, W and C are 0 for JPEG, whose bytes contain the size; C is 3
// for Raw.
type Image struct {
	Name    string // canonical, such as observation.images.top
	Codec   Codec
	H, W, C int
	Data    []byte // after Parse: part of the source

	// Splice is sent as part of Data, before Data[SpliceAt]. It holds tables that a camera's JPEG
	// lacks; sending them from here saves a copy of the picture. Parse leaves it empty.
	Splice   string
	SpliceAt int
}

// Span names successive actions of an earlier chunk, which the server still has: rows Start to End (half-open) of the
// answer to the request with key Source.
type Span struct {
	Source     int64
	Start, End int32
}

// Observation is a robot's inputs at one instant, together with the actions that it will run until the answer arrives.
type Observation struct {
	State               []float32 // [state_dim]
	Images              []Image
	Task                string
	InferenceDelaySteps int    // rows of the prefix that will have run when the chunk arrives
	PrefixModel         Matrix // unexecuted rows, the model's output; row 0 is the next action
	PrefixRobot         Matrix // the same rows as the arm will execute them
	EpisodeStart        bool

	// Optional keys. Each key with a Has field is sent only if that field is set.
	HasT          bool
	T             int64 // request key: grows with each request of a session epoch
	HasN          bool
	N             int64 // last executed action step; row 0 of the answer is step N+1
	HasOverlapEnd bool
	OverlapEnd    int // first row of the prefix that does not condition the chunk
	HasRunway     bool
	RunwayMs      float64 // time until the robot runs out of actions
	HasFrameAge   bool
	FrameAgeMs    float64  // age of the oldest picture when the state was read
	StaleCameras  []string // names of the pictures that are older than the robot's bound; sent when not empty
	Spans         []Span   // sent when not empty

	// The earlier control steps, oldest first, for a policy with a history. Both are sent when not empty. PastImages
	// has one picture per step, camera after camera. A picture without Data equals that of the next step; the last of
	// these steps is followed by the step of Images.
	PastStates Matrix // [steps-1, state_dim]
	PastImages []Image

	names *interned
}

// interned keeps a few texts of the last messages, so that parsing the same texts again does not allocate.
type interned struct {
	texts [2 * MaxImages]string
	next  int
}

//go:noinline
func newInterned() *interned { return new(interned) }

//rt:noalloc
func (n *interned) text(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	for i := range n.texts {
		if n.texts[i] == string(b) {
			return n.texts[i]
		}
	}
	return n.remember(b)
}

//go:noinline
func (n *interned) remember(b []byte) string {
	s := string(b)
	n.texts[n.next] = s
	n.next = (n.next + 1) % len(n.texts)
	return s
}

// clear empties o and keeps its memory.
//
//rt:noalloc
func (o *Observation) clear() {
	prefixModel, prefixRobot := o.PrefixModel, o.PrefixRobot
	prefixModel.clear()
	prefixRobot.clear()
	past := o.PastStates
	past.clear()
	*o = Observation{
		State:        o.State[:0],
		Images:       o.Images[:0],
		Spans:        o.Spans[:0],
		StaleCameras: o.StaleCameras[:0],
		PrefixModel:  prefixModel,
		PrefixRobot:  prefixRobot,
		PastStates:   past,
		PastImages:   o.PastImages[:0],
		names:        o.names,
	}
}

// AppendObservation appends the body of o. It panics on a picture or prefix whose data does not
// fill its sizes.
//
//rt:noalloc
func AppendObservation(dst []byte, o *Observation) []byte {
	optional := count(o.HasT, o.HasN, o.HasOverlapEnd, o.HasRunway, o.HasFrameAge, len(o.Spans) > 0,
		len(o.StaleCameras) > 0,
		o.PastStates.Rows > 0, len(o.PastImages) > 0)
	dst = msgp.AppendMapHeader(dst, 7+optional)
	dst = msgp.AppendString(dst, "state")
	dst = appendVector(dst, o.State)
	dst = msgp.AppendString(dst, "images")
	dst = msgp.AppendMapHeader(dst, uint32(len(o.Images)))
	for i := range o.Images {
		dst = appendImage(dst, &o.Images[i])
	}
	dst = appendTextKey(dst, "task", o.Task)
	dst = appendIntKey(dst, "inference_delay_steps", int64(o.InferenceDelaySteps))
	dst = msgp.AppendString(dst, "prefix_model")
	dst = appendMatrix(dst, &o.PrefixModel)
	dst = msgp.AppendString(dst, "prefix_robot")
	dst = appendMatrix(dst, &o.PrefixRobot)
	dst = appendBoolKey(dst, "episode_start", o.EpisodeStart)
	return o.appendOptional(dst)
}

// count returns the number of optional keys that are sent.
//
//rt:noalloc
func count(travels ...bool) (n uint32) {
	for _, does := range travels {
		if does {
			n++
		}
	}
	return n
}

//rt:noalloc
func (o *Observation) appendOptional(dst []byte) []byte {
	if o.HasT {
		dst = appendIntKey(dst, "t", o.T)
	}
	if o.HasN {
		dst = appendIntKey(dst, "n", o.N)
	}
	if len(o.Spans) > 0 {
		dst = msgp.AppendString(dst, "spans")
		dst = msgp.AppendArrayHeader(dst, uint32(len(o.Spans)))
		for _, s := range o.Spans {
			dst = msgp.AppendArrayHeader(dst, 3)
			dst = appendInt(dst, s.Source)
			dst = appendInt(dst, int64(s.Start))
			dst = appendInt(dst, int64(s.End))
		}
	}
	if o.HasOverlapEnd {
		dst = appendIntKey(dst, "overlap_end", int64(o.OverlapEnd))
	}
	if o.HasRunway {
		dst = appendFloatKey(dst, "runway_ms", o.RunwayMs)
	}
	if o.HasFrameAge {
		dst = appendFloatKey(dst, "frame_age_ms", o.FrameAgeMs)
	}
	if len(o.StaleCameras) > 0 {
		dst = appendStrings(msgp.AppendString(dst, "stale_cameras"), o.StaleCameras)
	}
	if o.PastStates.Rows > 0 {
		dst = appendMatrix(msgp.AppendString(dst, "past_states"), &o.PastStates)
	}
	if len(o.PastImages) > 0 {
		dst = appendPastImages(msgp.AppendString(dst, "past_images"), o.PastImages)
	}
	return dst
}

//rt:noalloc
func appendPastImages(dst []byte, images []Image) []byte {
	cameras := uint32(0)
	for rest := images; len(rest) > 0; rest = rest[runOf(rest):] {
		cameras++
	}
	dst = msgp.AppendMapHeader(dst, cameras)
	for rest := images; len(rest) > 0; rest = rest[runOf(rest):] {
		run := rest[:runOf(rest)]
		dst = msgp.AppendArrayHeader(msgp.AppendString(dst, run[0].Name), uint32(len(run)))
		for i := range run {
			if len(run[i].Data) == 0 {
				dst = msgp.AppendNil(dst)
			} else {
				dst = appendPicture(dst, &run[i])
			}
		}
	}
	return dst
}

// runOf returns the number of pictures at the beginning of images that are of the same camera.
//
//rt:noalloc
func runOf(images []Image) (n int) {
	for n = 1; n < len(images) && images[n].Name == images[0].Name; n++ {
	}
	return n
}

//rt:noalloc
func appendImage(dst []byte, m *Image) []byte {
	return appendPicture(msgp.AppendString(dst, m.Name), m)
}

//rt:noalloc
func appendPicture(dst []byte, m *Image) []byte {
	if m.Codec == Raw {
		if m.C != 3 || m.H*m.W*m.C != len(m.Data) {
			panic("wire: raw picture is not H x W x 3 bytes")
		}
		dst = msgp.AppendMapHeader(dst, 3)
		dst = appendTextKey(dst, "codec", "raw")
		dst = appendShape(dst, m.H, m.W, m.C)
	} else {
		dst = msgp.AppendMapHeader(dst, 2)
		dst = appendTextKey(dst, "codec", "jpeg")
	}
	dst = msgp.AppendString(dst, "data")
	dst = msgp.AppendBytesHeader(dst, uint32(len(m.Data)+len(m.Splice)))
	return m.AppendData(dst)
}

// AppendData appends Data with Splice in it: a JPEG with its tables, or a raw picture.
func (m *Image) AppendData(dst []byte) []byte {
	dst = append(dst, m.Data[:m.SpliceAt]...)
	dst = append(dst, m.Splice...)
	return append(dst, m.Data[m.SpliceAt:]...)
}

// ParseObservation reads a body into o. Pictures are borrowed from src; everything else is copied
// into o's memory, which is reused. After an error o is empty. Sizes are checked against the schema
// only: Shapes checks them against a policy.
//
//rt:noalloc
func ParseObservation(o *Observation, src []byte) error {
	o.clear()
	if o.names == nil {
		o.names = newInterned()
	}
	var r reader
	for range r.open(src) {
		o.field(&r, r.next())
	}
	err := r.close()
	if err != nil {
		o.clear()
	}
	return err
}

//rt:noalloc
func (o *Observation) field(r *reader, key []byte) {
	switch string(key) {
	case "state":
		o.State = r.vector(o.State)
	case "images":
		o.images(r)
	case "task":
		o.Task = o.names.text(r.text(MaxTextBytes))
	case "inference_delay_steps":
		o.InferenceDelaySteps = int(r.int(-MaxRows, MaxRows))
	case "prefix_model":
		r.matrix(&o.PrefixModel)
	case "prefix_robot":
		r.matrix(&o.PrefixRobot)
	case "episode_start":
		o.EpisodeStart = r.bool()
	case "t":
		o.HasT, o.T = r.optionalInt()
	case "n":
		o.HasN, o.N = r.optionalInt()
	case "spans":
		o.spans(r)
	case "overlap_end":
		if o.HasOverlapEnd = !r.null(); o.HasOverlapEnd {
			o.OverlapEnd = int(r.int(0, MaxRows))
		}
	case "runway_ms":
		o.HasRunway, o.RunwayMs = r.optionalFloat()
	case "frame_age_ms":
		o.HasFrameAge, o.FrameAgeMs = r.optionalFloat()
	case "stale_cameras":
		o.staleCameras(r)
	case "past_states":
		r.matrix(&o.PastStates)
	case "past_images":
		o.pastImages(r)
	default:
		r.skip(0)
	}
}

// images reads the pictures. If two pictures have the same name, it keeps the last one, as a Python dict does.
//
//rt:noalloc
func (o *Observation) images(r *reader) {
	o.Images = o.Images[:0]
	for range r.mapHeader(MaxImages) {
		name := r.text(MaxNameBytes)
		i := slices.IndexFunc(o.Images, func(m Image) bool { return m.Name == string(name) })
		if i < 0 {
			i = len(o.Images)
			o.Images = append(o.Images, Image{})
		}
		o.Images[i] = Image{Name: o.names.text(name)}
		r.image(&o.Images[i])
		if r.err != nil {
			r.of(o.Images[i].Name)
			return
		}
	}
}

// pastImages reads the pictures of earlier steps, a list for each camera. If a camera has two lists, pastImages keeps
// the last list, as a Python dict does.
//
//rt:noalloc
func (o *Observation) pastImages(r *reader) {
	o.PastImages = o.PastImages[:0]
	if r.null() {
		return
	}
	for range r.mapHeader(MaxImages) {
		name := o.names.text(r.text(MaxNameBytes))
		o.PastImages = slices.DeleteFunc(o.PastImages, func(m Image) bool { return m.Name == name })
		for range r.arrayHeader(MaxSteps - 1) {
			m := Image{Name: name}
			if !r.null() {
				r.image(&m)
			}
			o.PastImages = append(o.PastImages, m)
		}
		if r.err != nil {
			r.of(name)
			return
		}
	}
}

// Past lends the pictures of one camera from PastImages, the oldest first.
//
//rt:noalloc
func (o *Observation) Past(name string) []Image {
	for rest := o.PastImages; len(rest) > 0; rest = rest[runOf(rest):] {
		if rest[0].Name == name {
			return rest[:runOf(rest)]
		}
	}
	return nil
}

//rt:noalloc
func (r *reader) image(m *Image) {
	var v tensorView
	for range r.mapHeader(MaxMapKeys) {
		switch key := r.key(); string(key) {
		case "codec":
			m.Codec = r.codec()
		case "shape":
			r.dims(&v)
		case "data":
			m.Data = r.data(MaxImageBytes)
		default:
			r.skip(0)
		}
	}
	if r.err != nil {
		return
	}
	if len(m.Data) == 0 {
		r.shape("no data", "a picture")
		return
	}
	if m.Codec != Raw {
		return
	}
	m.H = v.shape[0]
	m.W = v.shape[1]
	m.C = v.shape[2]
	if v.rank != 3 || m.C != 3 || m.H > MaxImageSide || m.W > MaxImageSide || m.H*m.W*m.C != len(m.Data) {
		r.rawShape(v, len(m.Data))
	}
}

//rt:noalloc
func (r *reader) codec() Codec {
	name := r.text(MaxNameBytes)
	switch string(name) {
	case "raw":
		return Raw
	case "jpeg":
		return JPEG
	}
	r.badCodec(name)
	return JPEG
}

//rt:noalloc
func (o *Observation) spans(r *reader) {
	o.Spans = o.Spans[:0]
	if r.null() {
		return
	}
	for range r.arrayHeader(MaxSpans) {
		if r.arrayHeader(3) != 3 {
			r.shape("another number of values", "source, start and end")
			return
		}
		var s Span
		_, s.Source = r.optionalInt()
		s.Start = int32(r.int(0, MaxRows))
		s.End = int32(r.int(int64(s.Start), MaxRows))
		o.Spans = append(o.Spans, s)
	}
}

//rt:noalloc
func (o *Observation) staleCameras(r *reader) {
	o.StaleCameras = o.StaleCameras[:0]
	if r.null() {
		return
	}
	for range r.arrayHeader(MaxImages) {
		o.StaleCameras = append(o.StaleCameras, o.names.text(r.text(MaxNameBytes)))
	}
}

// of adds the name of the camera to the error.
//
//go:noinline
func (r *reader) of(name string) { r.err = fmt.Errorf("image %s: %w", name, r.err) }

//go:noinline
func (r *reader) badCodec(name []byte) {
	r.shape(fmt.Sprintf("codec %q", name), "jpeg or raw")
}

//go:noinline
func (r *reader) rawShape(v tensorView, n int) {
	r.shape(fmt.Sprintf("raw shape %v with %d bytes", v.shape[:v.rank], n),
		fmt.Sprintf("[H, W, 3] with H x W x 3 bytes, sides at most %d", MaxImageSide))
}
