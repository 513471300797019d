package capture

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/rt"
)

// ImageKey begins LeRobot's name of a camera's feature.
const ImageKey = "observation.images."

// errBackoff is the pause after a failed Grab.
const errBackoff = 50 * time.Millisecond

// Frame is a captured picture. If it is a JPEG, JPEG holds its markers.
type Frame struct {
	camera.Frame
	JPEG jpeg.Picture
}

// Camera is an open camera. Its capture thread keeps the newest picture.
type Camera struct {
	// Constant after Open.
	Name       string // name on the command line, such as top
	ImageName  string // name on the wire, such as observation.images.top
	Source     camera.Source
	MaxAge     time.Duration
	mustDecode bool // the first picture is usable only when it has been decoded

	Newest *rt.Latest[Frame] // producer: capture thread; reader: sender
	tap    *Tap              // nil: no second reader

	// Written by the sender.
	Age               *rt.Hist      // age of the picture when the observation leaves
	Stale             atomic.Uint64 // observations whose picture was older than MaxAge
	warned, undecoded atomic.Uint64
	decodeOutage      outage // pictures that do not decode

	// Written by the capture thread.
	captured, dropped, torn, errors atomic.Uint64
	same                            atomic.Uint64 // repeated pictures of a live camera
	repeats                         repeats
	repeatOutage                    outage                        // repeated pictures
	lost                            atomic.Bool                   // the last Grab failed
	grabOutage                      outage                        // failed Grabs and torn pictures
	baseline                        atomic.Pointer[camera.Counts] // the source's counts at the first frame; nil before
}

type outage struct {
	since rt.Instant            // start of the outage; 0: the last attempt succeeded. Owner: the thread that tries
	err   atomic.Pointer[error] // set when the outage exceeds its limit; any thread may read it
}

//rt:noalloc
func (o *outage) failed(now rt.Instant, limit time.Duration) bool {
	if o.since == 0 {
		o.since = now
	}
	return now.Sub(o.since) >= limit && o.err.Load() == nil
}

//go:noinline
func (o *outage) report(err error) { o.err.Store(&err) }

//rt:noalloc
func (o *outage) succeeded() {
	if o.since != 0 {
		o.since = 0
		o.err.Store(nil)
	}
}

// New returns a camera on an open source; maxAge 0 means defaultMaxAge.
func New(name string, source camera.Source, maxAge time.Duration) *Camera {
	size := source.Format().FrameBytes()
	if _, lends := source.(camera.Lender); lends {
		size = 0
	}
	_, live := source.(camera.Live)
	return &Camera{
		Name:      name,
		ImageName: ImageKey + name,
		Source:    source,
		MaxAge:    cmp.Or(maxAge, defaultMaxAge),
		Age:       rt.NewHist(),
		repeats:   repeats{seed: maphash.MakeSeed(), live: live},
		Newest:    rt.NewLatest(func(s *Frame) { s.Pix = make([]byte, size) }),
	}
}

// Run captures until stop is set. The first picture lowers pending, the number of cameras without a
// picture, by one, unless the picture must be decoded first. Owner: the camera's capture thread.
func (e *Camera) Run(clock rt.Clock, stop *atomic.Bool, pending *atomic.Int32) {
	last, any := uint64(0), false
	for !stop.Load() {
		s := e.Newest.Back()
		if err := e.Source.Grab(&s.Frame); err != nil {
			e.errors.Add(1)
			e.lost.Store(true)
			if e.grabOutage.failed(clock.Now(), e.MaxAge) {
				e.grabOutage.report(err)
			}
			pause(clock, err)
			continue
		}
		if any && s.Sequence > last+1 {
			e.dropped.Add(s.Sequence - last - 1)
		}
		if !any {
			e.setBaseline()
		}
		last, any = s.Sequence, true
		if err := checkFrame(s); err != nil {
			e.torn.Add(1)
			if e.grabOutage.failed(clock.Now(), e.MaxAge) {
				e.grabOutage.report(unusable(s, err))
			}
			continue
		}
		e.lost.Store(false)
		e.grabOutage.succeeded()
		if e.repeats.again(s) {
			e.repeated(s)
			continue
		}
		e.repeatOutage.succeeded()
		if e.tap != nil {
			e.tap.offer(s)
		}
		e.Newest.Publish(int64(s.At)) // Publish gives the slot away
		if e.captured.Add(1) == 1 && !e.mustDecode {
			pending.Add(-1)
		}
	}
}

// pause waits after err, the error of a Grab, unless the Grab itself has waited for a picture.
func pause(clock rt.Clock, err error) {
	if !errors.Is(err, camera.ErrStalled) {
		clock.SleepUntil(clock.Now().Add(errBackoff))
	}
}

// unusable explains err, the error of checkFrame for the newest picture s, when all recent pictures
// were refused.
func unusable(s *Frame, err error) error {
	if errors.Is(err, jpeg.ErrSize) {
		return fmt.Errorf("its pictures are %dx%d by now, want %dx%d as at the start: %w; start edge-rt again",
			s.JPEG.W, s.JPEG.H, s.Width, s.Height, err)
	}
	return fmt.Errorf("no picture is whole, the last has %d bytes: %w", len(s.Pix), err)
}

// checkFrame refuses a torn or progressive JPEG, and a JPEG of another size than the negotiated
// size.
//
//rt:noalloc
func checkFrame(s *Frame) (err error) {
	if s.Pixels != camera.MJPEG {
		return nil
	}
	switch s.JPEG, err = jpeg.Inspect(s.Pix); {
	case err != nil:
		return err
	case s.JPEG.Progressive:
		return jpeg.ErrProgressive
	case s.JPEG.W != s.Width || s.JPEG.H != s.Height:
		return jpeg.ErrSize
	}
	return nil
}

// Spoilt reports whether a picture was torn, had stray bytes or did not decode. Any thread may call
// it.
func (e *Camera) Spoilt() bool { return e.warned.Load()+e.undecoded.Load()+e.torn.Load() > 0 }

// Err returns the reason why no usable picture has arrived for MaxAge, else nil. Any thread may
// call it.
func (e *Camera) Err() error {
	for _, b := range [...]*outage{&e.grabOutage, &e.repeatOutage, &e.decodeOutage} {
		if why := b.err.Load(); why != nil {
			return *why
		}
	}
	return nil
}

// Failing lists the cameras without usable pictures, for the end of a sentence. Any thread may call it.
func Failing(cameras []*Camera) (text string) {
	for _, c := range cameras {
		if err := c.Err(); err != nil {
			text += "; camera " + c.Name + ": " + err.Error()
		}
	}
	return text
}

// NotReady returns the reason why an episode cannot begin with these cameras, "" without one. The parameter pending is
// whether a camera has not given its first picture. Any thread may call it.
func NotReady(cameras []*Camera, pending bool) string {
	switch failing := Failing(cameras); {
	case pending:
		return "a camera has not given its first picture" + failing
	case failing != "":
		return "not every camera gives pictures" + failing
	}
	return ""
}

// Stats are the counts of a camera's pictures.
type Stats struct {
	Captured  uint64        // complete pictures, without repetitions
	Dropped   uint64        // gaps in the device's numbers: missed, skipped or broken pictures
	Torn      uint64        // incomplete JPEG
	Warned    uint64        // JPEG with stray bytes that was decoded here and used nevertheless
	Undecoded uint64        // JPEG with complete markers that did not decode; the previous picture was used
	Repeated  uint64        // live camera: repetitions of earlier pictures; the newest new picture was used
	Errors    uint64        // failed attempts to get a picture
	Stale     uint64        // observations with a picture older than MaxAge
	Lost      bool          // the device is away now
	Source    camera.Counts // counts of the source since the first frame
}

// Stats returns the counts. Any thread may call it.
func (e *Camera) Stats() Stats {
	t := Stats{
		Captured:  e.captured.Load(),
		Dropped:   e.dropped.Load(),
		Torn:      e.torn.Load(),
		Errors:    e.errors.Load(),
		Stale:     e.Stale.Load(),
		Lost:      e.lost.Load(),
		Warned:    e.warned.Load(),
		Undecoded: e.undecoded.Load(),
		Repeated:  e.same.Load(),
	}
	if c, ok := e.Source.(camera.Counter); ok {
		t.Source = c.Counts()
		if before := e.baseline.Load(); before != nil {
			t.Source.Missed -= before.Missed
			t.Source.Skipped -= before.Skipped
			t.Source.Broken -= before.Broken
		}
	}
	return t
}

// setBaseline stores the source's counts before the first frame: earlier losses are not counted.
func (e *Camera) setBaseline() {
	if c, ok := e.Source.(camera.Counter); ok {
		before := c.Counts()
		e.baseline.Store(&before)
	}
}
