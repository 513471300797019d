package pipe

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/rt"
)

// Config is the configuration of a program.
type Config struct {
	Command string        // command line for /bin/sh
	Format  camera.Format // FPS is the expected rate; Width and Height may be 0 for MJPEG, and Open sets them

	// Canceled ends Open early; nil: never.
	Canceled func() bool
}

// Source is a running program.
//
// Owner: the capture thread, apart from the counts.
type Source struct {
	// Constant after Open.
	command string
	clock   rt.Clock
	format  camera.Format
	size    int           // bytes of a raw picture; 0: JPEG
	largest int           // largest size of one picture in bytes
	pause   time.Duration // a pause of this length in the output ends a burst of raw pictures

	program *program // running program; nil: no program is running
	poll    [1]unix.PollFd
	in      []byte // bytes read after the last picture that Grab returned
	split   splitter
	stray   int        // bytes dropped since the last picture
	firstAt rt.Instant // arrival time of the first byte in the buffer in
	heardAt rt.Instant // instant of the newest output, or of the start
	begunAt rt.Instant // instant of the first picture since the start; 0: no picture yet
	burst   burst
	flow    flow

	down     error         // why the program is not running
	retryAt  rt.Instant    // instant of the next start
	backoff  time.Duration // pause before the next start
	sequence uint64

	skipped, broken, restarts atomic.Uint64
	closed                    atomic.Bool
}

// burst counts the raw pictures between two pauses of the output. A program pauses between two of its pictures, so the
// number of bytes between two pauses shows whether the pictures have the declared size.
type burst struct {
	pictures int  // pictures since the last pause
	count    int  // bursts that have ended
	first    int  // pictures in the first burst
	varied   bool // another burst had a different number of pictures
	single   bool // a burst had exactly one picture
	uneven   int  // consecutive bursts that ended within a picture
}

// flow limits the bytes that are read in a second.
type flow struct {
	since rt.Instant
	bytes int
}

var (
	_ camera.Source  = (*Source)(nil)
	_ camera.Counter = (*Source)(nil)
)

// Open starts the program and waits for its first whole picture, at most for firstWait. It returns
// ErrProgram, ErrPictures, ErrEnded or ErrSilent.
func Open(cfg Config, clock rt.Clock) (*Source, error) {
	s := &Source{
		command: cfg.Command,
		clock:   clock,
		format:  cfg.Format,
		backoff: backoffMin,
		largest: unknownSize,
		pause:   time.Second / time.Duration(2*cfg.Format.FPS),
	}
	if s.format.Width > 0 {
		s.limit()
	}
	if s.format.Pixels != camera.MJPEG {
		s.size = s.largest
	}
	s.in = make([]byte, 0, s.largest+chunk)
	var err error
	if s.program, err = start(s.command); err != nil {
		return nil, err
	}
	s.begin()
	if err := s.first(cfg.Canceled); err != nil {
		s.program.stop()
		return nil, err
	}
	return s, nil
}

// limit computes the size of the largest picture from the format. For JPEG it is at least the constant smallest,
// because the tables of a small JPEG need more bytes than its pixels.
func (s *Source) limit() {
	if s.format.Pixels == camera.MJPEG {
		s.format.Size = max(s.format.FrameBytes(), smallest)
	}
	s.largest = s.format.FrameBytes()
}

// first waits for the first whole picture. A JPEG also defines the size. For raw output, first finds out from the
// pauses whether the declared size is right.
func (s *Source) first(canceled func() bool) error {
	f := camera.Frame{Pix: make([]byte, s.largest)}
	limit := s.clock.Now().Add(firstWait)
	for canceled == nil || !canceled() {
		now := s.clock.Now()
		err := s.take(&f, min(now.Add(look), limit))
		switch b := &s.burst; {
		case err != nil && !errors.Is(err, camera.ErrStalled):
			return err
		case err == nil && s.size == 0:
			return s.checkFirst(&f)
		case b.single, s.begunAt != 0 && now.Sub(s.begunAt) >= judge && (b.count == 0 || b.varied || now >= limit):
			return nil
		case b.count >= sameBursts && !b.varied && b.first > 1:
			return fmt.Errorf("%w: it writes %d bytes at a time, as many as %d pictures of %v: declare the size and "+
				"format that it writes", ErrPictures, b.first*s.size, b.first, s.format)
		case s.begunAt == 0 && now >= limit:
			return s.nothing()
		}
	}
	return fmt.Errorf("%w: stopped before its first picture", ErrEnded)
}

// checkFirst compares the size of the first JPEG with the declared size. If no size is declared, it stores the size of
// the JPEG.
func (s *Source) checkFirst(f *camera.Frame) error {
	p, err := jpeg.Inspect(f.Pix)
	switch {
	case err != nil:
		return fmt.Errorf("%w: its first JPEG of %d bytes: %w", ErrPictures, len(f.Pix), err)
	case p.Progressive:
		return fmt.Errorf("%w: %w: let it write baseline JPEG", ErrPictures, jpeg.ErrProgressive)
	case s.format.Width == 0:
		s.format.Width, s.format.Height = p.W, p.H
		s.limit()
		s.largest = min(s.largest, unknownSize) // the buffers have no room for larger pictures
	case s.format.Width != p.W || s.format.Height != p.H:
		return fmt.Errorf("%w: they are %dx%d, the flag has %dx%d: change the flag, or the program's options",
			ErrPictures, p.W, p.H, s.format.Width, s.format.Height)
	}
	return nil
}

// nothing returns the error that explains why a running program has delivered no picture.
func (s *Source) nothing() error {
	words := s.program.words.last()
	switch {
	case s.size > 0 && s.stray+len(s.in) > 0:
		return fmt.Errorf("%w: %d bytes in %v, and a picture of %v has %d%s", ErrPictures, s.stray+len(s.in),
			firstWait, s.format, s.size, words)
	case s.stray+len(s.in) > 0:
		return fmt.Errorf("%w: %d bytes in %v without a whole JPEG%s%s", ErrPictures, s.stray+len(s.in), firstWait,
			mjpegHint, words)
	}
	return fmt.Errorf("%w to its standard output in %v: let it write there (rpicam-vid -o -, ffmpeg … -)%s", ErrSilent,
		firstWait, words)
}

// mjpegHint names the options of common programs.
const mjpegHint = ": let it write motion JPEG (rpicam-vid --codec mjpeg, ffmpeg -f mjpeg), or declare raw " +
	"pictures with a size and format=rgb, yuyv, nv12 or grey"

// Format returns the format of the frames.
func (s *Source) Format() camera.Format { return s.format }

// Counts returns the reasons for missing sequence numbers.
func (s *Source) Counts() camera.Counts {
	return camera.Counts{Skipped: s.skipped.Load(), Broken: s.broken.Load(), Restarts: s.restarts.Load()}
}

// Grab fills dst with the newest picture. While the program is not running, each call waits at most for the time
// watchdog and returns the reason why the program is not running.
//
//rt:noalloc
func (s *Source) Grab(dst *camera.Frame) error {
	if s.closed.Load() {
		return camera.ErrClosed
	}
	if s.program == nil {
		if err := s.restart(); err != nil {
			return err
		}
	}
	now := s.clock.Now()
	err := s.take(dst, now.Add(watchdog))
	if err == nil {
		return nil
	}
	patience := silence
	if s.begunAt == 0 {
		patience = firstWait
	}
	switch now := s.clock.Now(); {
	case !errors.Is(err, camera.ErrStalled):
		s.fail(err)
		return err
	case now.Sub(s.heardAt) >= patience:
		err = s.silent()
		s.fail(err)
		return err
	}
	return err
}

//go:noinline
func (s *Source) silent() error {
	if s.begunAt == 0 {
		return s.nothing()
	}
	return fmt.Errorf("%w for %v, and is started again%s", ErrSilent, silence, s.program.words.last())
}

// take fills dst with the newest picture that arrives before limit. It returns camera.ErrStalled if no picture arrives,
// and another error if the output is useless or ends.
//
//rt:noalloc
func (s *Source) take(dst *camera.Frame, limit rt.Instant) error {
	taken := 0
	for {
		got, err := s.cutOne(dst)
		if err != nil {
			return err
		}
		if got {
			if taken++; taken > 1 {
				s.skipped.Add(1)
			}
			if taken > maxSkipped {
				return nil
			}
			continue
		}
		now := s.clock.Now()
		if taken == 0 && now >= limit {
			return camera.ErrStalled
		}
		ready, err := s.read(now, limit, taken > 0)
		switch {
		case err != nil && taken == 0:
			return err
		case err != nil, !ready && taken > 0:
			return nil // the next call returns the error
		}
	}
}

// read waits for output until the instant limit, and reads the output. If atOnce is true, it does not wait. The result
// ready reports whether there was output.
//
//rt:noalloc
func (s *Source) read(now, limit rt.Instant, atOnce bool) (ready bool, err error) {
	wait := limit.Sub(now)
	if s.size > 0 && (len(s.in) > 0 || s.burst.pictures > 0) {
		wait = min(wait, s.pause)
	}
	if s.slowDown(now); atOnce {
		wait = 0
	}
	s.poll[0] = unix.PollFd{Fd: int32(s.program.out), Events: unix.POLLIN}
	if n, err := unix.Poll(s.poll[:], int((wait+time.Millisecond-1)/time.Millisecond)); err != nil || n == 0 {
		if err == nil && !atOnce && s.size > 0 {
			return false, s.paused()
		}
		return false, nil // a signal, or silence
	}
	n, errno := unix.Read(s.program.out, s.in[len(s.in):cap(s.in)])
	if errno == unix.EINTR {
		return true, nil
	}
	if n <= 0 {
		return false, s.ended()
	}
	if s.heardAt = s.clock.Now(); len(s.in) == 0 {
		s.firstAt = s.heardAt
	}
	s.in = s.in[:len(s.in)+n]
	s.flow.bytes += n
	return true, nil
}

// slowDown pauses before a read when the program writes far more bytes than its pictures need. The full pipe then makes
// the program wait.
//
//rt:noalloc
func (s *Source) slowDown(now rt.Instant) {
	f := &s.flow
	end := f.since.Add(time.Second)
	if now < end && f.bytes >= flood*s.format.FPS*s.largest {
		s.clock.SleepUntil(end)
		now = s.clock.Now()
	}
	if now >= end {
		f.since, f.bytes = now, 0
	}
}

// cutOne moves the first whole picture in s.in to dst. got reports whether there was one.
//
//rt:noalloc
func (s *Source) cutOne(dst *camera.Frame) (got bool, err error) {
	if s.size > 0 {
		if len(s.in) < s.size {
			return false, nil
		}
		s.burst.pictures++
		s.deliver(dst, s.size)
		return true, nil
	}
	for {
		c := s.split.next(s.in)
		if c.torn {
			s.lose()
		}
		s.stray += c.drop
		s.remove(c.drop)
		switch {
		case c.picture > s.largest, c.picture == 0 && len(s.in) >= s.largest:
			s.lose() // the picture is too large
			s.split.restart()
			s.stray += len(s.in)
			s.remove(len(s.in))
		case c.picture > 0:
			s.deliver(dst, c.picture)
			return true, nil
		case !c.torn:
			if s.stray > maxStray {
				return false, s.useless()
			}
			return false, nil
		}
	}
}

// lose counts a picture that is torn or too large.
//
//rt:noalloc
func (s *Source) lose() {
	s.sequence++
	s.broken.Add(1)
}

//rt:noalloc
func (s *Source) deliver(dst *camera.Frame, size int) {
	s.sequence++
	s.stray = 0
	dst.Format = s.format
	dst.Sequence = s.sequence
	dst.At = s.firstAt
	dst.Pix = dst.Pix[:copy(dst.Pix[:cap(dst.Pix)], s.in[:size])]
	if s.begunAt == 0 {
		s.begunAt = s.heardAt
	}
	s.remove(size)
}

// remove drops the first n bytes of s.in. The remaining bytes arrived with the last read.
//
//rt:noalloc
func (s *Source) remove(n int) {
	if n > 0 {
		s.in = s.in[:copy(s.in, s.in[n:])]
		s.firstAt = s.heardAt
	}
}

// paused ends a burst. It drops an incomplete picture at the burst's end, so that the next burst begins with a picture.
// It returns an error when such bursts show that the declared size is wrong.
//
//go:noinline
func (s *Source) paused() error {
	b, rest := &s.burst, len(s.in)
	if b.pictures == 0 && rest == 0 {
		return nil
	}
	if b.count++; b.count == 1 {
		b.first = b.pictures
	}
	whole := b.pictures
	b.varied = b.varied || whole != b.first
	b.single = b.single || whole == 1 && rest == 0
	b.pictures = 0
	if rest == 0 {
		b.uneven = 0
		return nil
	}
	s.lose()
	s.stray += rest
	s.remove(rest)
	if b.uneven++; b.uneven < unevenBursts {
		return nil
	}
	return fmt.Errorf("%w: it writes %d bytes at a time, and a picture of %v has %d: declare the size and format that "+
		"it writes", ErrPictures, whole*s.size+rest, s.format, s.size)
}

//go:noinline
func (s *Source) useless() error {
	return fmt.Errorf("%w: no JPEG in %d bytes%s%s", ErrPictures, s.stray, mjpegHint, s.program.words.last())
}

//go:noinline
func (s *Source) ended() error {
	err := s.program.result()
	if s.stray+len(s.in) > 0 && s.begunAt == 0 {
		err = fmt.Errorf("%w; it had written %d bytes without a whole picture", err, s.stray+len(s.in))
	}
	return err
}

// fail ends the program and plans its next start.
//
//go:noinline
func (s *Source) fail(why error) {
	now := s.clock.Now()
	if s.begunAt != 0 && now.Sub(s.begunAt) >= steady {
		s.backoff = backoffMin
	}
	s.program.stop()
	s.program = nil
	s.down, s.retryAt = why, now.Add(s.backoff)
	s.backoff = min(2*s.backoff, backoffMax)
}

// restart starts the program again when the pause is over; until then it returns the reason why the program ended.
//
//go:noinline
func (s *Source) restart() error {
	now := s.clock.Now()
	s.clock.SleepUntil(min(s.retryAt, now.Add(watchdog)))
	if s.clock.Now() < s.retryAt {
		return s.down
	}
	p, err := start(s.command)
	if err != nil {
		s.down, s.retryAt = err, s.clock.Now().Add(s.backoff)
		s.backoff = min(2*s.backoff, backoffMax)
		return err
	}
	s.program = p
	s.restarts.Add(1)
	s.begin()
	return nil
}

// begin prepares for the output of a new program.
func (s *Source) begin() {
	s.in, s.stray = s.in[:0], 0
	s.split.restart()
	s.burst = burst{}
	s.heardAt, s.begunAt = s.clock.Now(), 0
}

// Close ends the program.
func (s *Source) Close() error {
	if s.closed.Swap(true) {
		return camera.ErrClosed
	}
	if s.program != nil {
		s.program.stop()
		s.program = nil
	}
	return nil
}
