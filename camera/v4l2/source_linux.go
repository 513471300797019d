package v4l2

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/rt"
)

const (
	minWatchdog    = time.Second
	watchdogFrames = 4
	retryInterval  = 250 * time.Millisecond // interval of the search for an absent camera
	copies         = camera.LentMax + 1     // pictures that the source lends if the driver has too few buffers
)

// Source is an open camera.
//
// Owner: the capture thread, apart from the counts.
type Source struct {
	// Constant after Open.
	cfg       Config
	clock     rt.Clock
	mode      Mode
	format    camera.Format
	card, bus string
	lends     bool
	remark    string
	watchdog  time.Duration // longest silence

	stream     *stream // nil while the camera is absent
	generation int     // number of streams so far
	ended      []endedStream
	copies     []mapping  // used when the driver's buffers cannot be lent
	retryAt    rt.Instant // time of the next search while the camera is absent
	sequence   uint64
	last       uint32     // the driver's sequence number of the newest frame
	counted    bool       // last is from the present stream
	stamp      rt.Instant // the driver's time stamp of the newest picture
	unsteady   bool       // the driver's time stamps do not always grow, so they are not used

	missed, skipped, broken, restarts atomic.Uint64
	closed                            atomic.Bool
}

// endedStream holds the buffers that an ended stream still lends.
type endedStream struct {
	generation int
	buffers    []mapping
}

var (
	_ camera.Source  = (*Source)(nil)
	_ camera.Lender  = (*Source)(nil)
	_ camera.Counter = (*Source)(nil)
	_ camera.Live    = (*Source)(nil)
)

// Open opens a camera, chooses its mode, sets its controls and starts it.
func Open(cfg Config, clock rt.Clock) (*Source, error) {
	s := &Source{cfg: cfg, clock: clock}
	d, err := openDevice(cfg.Path)
	if err != nil {
		return nil, err
	}
	s.card, s.bus = text(d.cap.card[:]), text(d.cap.busInfo[:])
	if s.mode, err = choose(d.modes(cfg.Want), cfg.Want); err == nil {
		s.format, err = d.setMode(s.mode)
	}
	if err == nil {
		err = d.apply(cfg.Controls)
	}
	if err != nil {
		d.close()
		return nil, err
	}
	s.mode.FPS = float64(s.format.FPS)
	s.remark = s.mode.remark(cfg.Want)
	s.watchdog = max(minWatchdog, watchdogFrames*time.Second/time.Duration(s.format.FPS))
	if s.stream, err = d.startStream(); err != nil {
		return nil, err
	}
	s.generation = 1
	s.lends = s.stream.lends()
	if !s.lends {
		s.copies = make([]mapping, copies)
		for i := range s.copies {
			s.copies[i].mem = make([]byte, len(s.stream.buffers[0].mem))
		}
	}
	return s, nil
}

// Format returns the format of the frames.
func (s *Source) Format() camera.Format { return s.format }

// Lends makes Source a camera.Lender: frames point at the source's memory.
func (s *Source) Lends() {}

// Live makes Source a camera.Live: the pictures come from a sensor.
func (s *Source) Live() {}

// Describe returns the camera's name, its mode, and how the mode differs from the wanted one.
func (s *Source) Describe() (card, picked, remark string) {
	return s.card, s.format.String(), s.remark
}

// Counts returns the reasons for missing sequence numbers.
func (s *Source) Counts() camera.Counts {
	return camera.Counts{
		Missed:   s.missed.Load(),
		Skipped:  s.skipped.Load(),
		Broken:   s.broken.Load(),
		Restarts: s.restarts.Load(),
	}
}

// Grab lends the newest frame. It returns camera.ErrClosed after Close. After camera.ErrStalled, ErrStream and ErrGone
// the next call sets the stream up again.
//
//rt:noalloc
func (s *Source) Grab(dst *camera.Frame) error {
	if s.closed.Load() {
		return camera.ErrClosed
	}
	s.giveBack(dst)
	if s.stream == nil {
		if err := s.reopen(); err != nil {
			return err
		}
	}
	for limit := s.clock.Now().Add(s.watchdog); ; {
		left := limit.Sub(s.clock.Now())
		if left <= 0 {
			return s.fail(camera.ErrStalled)
		}
		if s.stream.wait(int(left/time.Millisecond)+1) == 0 {
			continue
		}
		index, errno := s.newest()
		switch {
		case errno == unix.ENODEV:
			return s.fail(camera.ErrGone)
		case errno != 0:
			return s.fail(camera.ErrStream)
		case index >= 0:
			s.lend(dst, index)
			return nil
		}
	}
}

// newest dequeues all full buffers and queues them again, except the newest good one. It returns the index of this
// buffer, which s.stream.dq describes, or -1 if no buffer is good. An errno means that the stream has failed.
//
//rt:noalloc
func (s *Source) newest() (index int, errno unix.Errno) {
	st := s.stream
	index = -1
	kept := buffer{}
	for range len(st.buffers) {
		errno := st.dequeue()
		if errno == unix.EAGAIN {
			if index < 0 && st.poll[0].Revents&unix.POLLIN == 0 {
				return -1, unix.EIO // the device has an error, and no more frames come
			}
			break
		}
		if errno != 0 || int(st.dq.index) >= len(st.buffers) {
			return -1, max(errno, 1)
		}
		s.count(st.dq.sequence)
		back := int(st.dq.index)
		if s.good(&st.dq) {
			if index >= 0 {
				s.skipped.Add(1)
			}
			back, index, kept = index, back, st.dq
		} else {
			s.broken.Add(1)
		}
		if back >= 0 {
			if errno := st.queue(back); errno != 0 {
				return -1, errno
			}
		}
	}
	st.dq = kept
	return index, 0
}

//rt:noalloc
func (s *Source) good(b *buffer) bool {
	if b.flags&bufFlagError != 0 || b.bytesUsed == 0 || int(b.bytesUsed) > len(s.stream.buffers[b.index].mem) {
		return false
	}
	if s.format.Pixels == camera.MJPEG {
		return true
	}
	whole := s.format
	whole.Size = 0
	return int(b.bytesUsed) >= whole.FrameBytes()
}

// count adds the step of the driver's sequence number to s.sequence, and the frames in between to s.missed. The
// driver's number may wrap, restart or stand still.
//
//rt:noalloc
func (s *Source) count(sequence uint32) {
	step := sequence - s.last
	if !s.counted || step == 0 || step > 1<<31 {
		step = 1
	}
	s.missed.Add(uint64(step - 1))
	s.sequence += uint64(step)
	s.last, s.counted = sequence, true
}

//rt:noalloc
func (s *Source) lend(dst *camera.Frame, index int) {
	st, b := s.stream, &s.stream.dq
	now := s.clock.Now()
	dst.Format = s.format
	dst.Sequence = s.sequence
	dst.At = s.takenAt(b, now)
	if s.lends {
		st.buffers[index].lent = true
		dst.Pix, dst.Lent = st.buffers[index].mem[:b.bytesUsed], s.generation*maxBuffers+index+1
		return
	}
	for i := range s.copies {
		if c := &s.copies[i]; !c.lent {
			n := copy(c.mem, st.buffers[index].mem[:b.bytesUsed])
			c.lent = true
			dst.Pix = c.mem[:n]
			dst.Lent = i + 1
			break
		}
	}
	st.queue(index) // if this fails, the next dequeue returns the error
}

// takenAt returns the instant at which a picture was taken, or now if the driver has no time stamps. After the first
// time stamp that is not newer than the previous one, takenAt always returns now. Otherwise a run could wait forever
// for a newer picture.
//
//rt:noalloc
func (s *Source) takenAt(b *buffer, now rt.Instant) rt.Instant {
	stamp := rt.Instant(b.timestamp.Nano())
	s.unsteady = s.unsteady || b.flags&bufFlagStampMask != bufFlagStampSteady || stamp <= s.stamp
	s.stamp = stamp
	if s.unsteady {
		return now
	}
	return min(stamp, now)
}

//rt:noalloc
func (s *Source) giveBack(dst *camera.Frame) {
	mark := dst.Lent - 1
	if mark < 0 {
		return
	}
	dst.Lent, dst.Pix = 0, nil
	if !s.lends {
		s.copies[mark].lent = false
		return
	}
	if st := s.stream; st != nil && mark/maxBuffers == s.generation {
		index := mark % maxBuffers
		st.buffers[index].lent = false
		st.queue(index)
		return
	}
	s.freeEnded(mark)
}

// freeEnded frees a picture that an ended stream had lent.
//
//go:noinline
func (s *Source) freeEnded(mark int) {
	for i := range s.ended {
		o := &s.ended[i]
		if index := mark % maxBuffers; mark/maxBuffers == o.generation {
			unmap(o.buffers[index].mem)
			o.buffers[index] = mapping{}
			return
		}
	}
}

//go:noinline
func (s *Source) fail(why error) error {
	s.end()
	s.retryAt = s.clock.Now()
	return why
}

func (s *Source) end() {
	if s.stream == nil {
		return
	}
	lent := s.stream.stop()
	s.stream = nil
	kept := s.ended[:0]
	for _, o := range append(s.ended, endedStream{s.generation, lent}) {
		if slices.ContainsFunc(o.buffers, func(b mapping) bool { return b.lent }) {
			kept = append(kept, o)
		}
	}
	s.ended = kept
}

// reopen sets the camera up as before. While the camera is absent, each call waits for retryInterval and returns an
// error.
//
//go:noinline
func (s *Source) reopen() error {
	s.clock.SleepUntil(s.retryAt)
	s.retryAt = s.clock.Now().Add(retryInterval)
	d := s.locate()
	if d == nil {
		return camera.ErrGone
	}
	format, err := d.setMode(s.mode)
	if err == nil {
		err = d.apply(s.cfg.Controls)
	}
	if err == nil && (format.FrameBytes() > s.format.FrameBytes() || format.Stride != s.format.Stride) {
		err = fmt.Errorf("%w: it delivers other pictures than before", ErrMode)
	}
	if err != nil {
		d.close()
		return again(err)
	}
	st, err := d.startStream()
	if err != nil { // startStream has closed the device
		return again(err)
	}
	if s.lends != st.lends() || !s.lends && len(st.buffers[0].mem) > len(s.copies[0].mem) {
		st.stop()
		return fmt.Errorf("%w: it gives other buffers than before", camera.ErrStream)
	}
	s.stream, s.counted = st, false
	s.generation++
	s.restarts.Add(1)
	return nil
}

// again returns the error of a camera that cannot be set up as before.
func again(err error) error {
	if errors.Is(err, ErrAbsent) {
		return camera.ErrGone
	}
	return fmt.Errorf("%w, and it cannot be set up again: %w", camera.ErrStream, err)
}

// locate opens the node of the camera with the same name at the same socket. The kernel may have given the node another
// number.
func (s *Source) locate() *device {
	nodes, _ := filepath.Glob("/dev/video*")
	for _, path := range append([]string{s.cfg.Path}, nodes...) {
		d, err := openDevice(path)
		if err != nil {
			continue
		}
		if text(d.cap.card[:]) == s.card && text(d.cap.busInfo[:]) == s.bus {
			return d
		}
		d.close()
	}
	return nil
}

// Close stops the camera. The caller must not use lent frames afterwards.
func (s *Source) Close() error {
	if s.closed.Swap(true) {
		return camera.ErrClosed
	}
	if s.stream != nil {
		for i := range s.stream.buffers {
			s.stream.buffers[i].lent = false
		}
		s.end()
	}
	for _, o := range s.ended {
		for _, b := range o.buffers {
			if b.lent {
				unmap(b.mem)
			}
		}
	}
	s.ended = nil
	return nil
}
