package v4l2

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/edge-rt/edge-rt/camera"
)

const (
	wantBuffers = 8 // buffers to request from the driver; the caller may hold LentMax of them
	minQueued   = 3 // the driver needs two to stream, and a third is dequeued
	maxBuffers  = 32
)

// mapping is one of the driver's buffers, or the memory that has replaced it.
type mapping struct {
	mem  []byte
	lent bool
}

// stream is a device that is streaming.
//
// Owner: the capture thread.
type stream struct {
	*device
	buffers []mapping
	poll    [1]unix.PollFd
	dq, q   buffer
}

// startStream requests buffers, queues them and starts the stream. If it fails, it closes the device.
func (d *device) startStream() (*stream, error) {
	s := &stream{device: d}
	s.poll[0] = unix.PollFd{Fd: int32(d.fd), Events: unix.POLLIN}
	if err := s.start(); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func (s *stream) start() error {
	req := requestBuffers{count: wantBuffers, kind: bufTypeCapture, memory: memoryMmap}
	if errno := ioctl(s.fd, vidiocReqBufs, unsafe.Pointer(&req)); errno != 0 {
		return s.refused("get buffers of", errno)
	}
	if req.count == 0 {
		return fmt.Errorf("v4l2: %s gives no buffer for pictures", s.path)
	}
	for i := range min(req.count, maxBuffers) {
		b := buffer{index: i, kind: bufTypeCapture, memory: memoryMmap}
		if errno := ioctl(s.fd, vidiocQueryBuf, unsafe.Pointer(&b)); errno != 0 {
			return s.refused("look at the buffers of", errno)
		}
		p, err := unix.MmapPtr(s.fd, int64(uint32(b.offset)), nil, uintptr(b.length), unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_SHARED)
		if err != nil {
			return fmt.Errorf("v4l2: map the buffers of %s: %w", s.path, err)
		}
		s.buffers = append(s.buffers, mapping{mem: unsafe.Slice((*byte)(p), b.length)})
		if errno := s.queue(int(i)); errno != 0 {
			return s.refused("queue the buffers of", errno)
		}
	}
	on := int32(bufTypeCapture)
	if errno := ioctl(s.fd, vidiocStreamOn, unsafe.Pointer(&on)); errno != 0 {
		return s.refused("start", errno)
	}
	return nil
}

// lends reports whether the driver can spare LentMax buffers. v4l2loopback writes into dequeued
// buffers, so its pictures are copied.
func (s *stream) lends() bool {
	return len(s.buffers) >= camera.LentMax+minQueued && text(s.cap.driver[:]) != "v4l2 loopback"
}

//rt:noalloc
func (s *stream) queue(index int) unix.Errno {
	s.q = buffer{index: uint32(index), kind: bufTypeCapture, memory: memoryMmap}
	return ioctl(s.fd, vidiocQBuf, unsafe.Pointer(&s.q))
}

//rt:noalloc
func (s *stream) dequeue() unix.Errno {
	s.dq = buffer{kind: bufTypeCapture, memory: memoryMmap}
	return ioctl(s.fd, vidiocDQBuf, unsafe.Pointer(&s.dq))
}

// wait waits at most ms milliseconds for a full buffer. It returns poll's events, or 0 after that time or a signal.
//
//rt:noalloc
func (s *stream) wait(ms int) int16 {
	s.poll[0].Revents = 0
	if _, err := unix.Poll(s.poll[:], ms); err != nil { // a signal
		return 0
	}
	return s.poll[0].Revents
}

// stop ends the stream and frees everything but the lent pictures, which it returns. It moves these to anonymous memory
// at the same addresses. An unplugged camera cannot return while a page of the driver's memory is mapped.
func (s *stream) stop() (lent []mapping) {
	off := int32(bufTypeCapture)
	ioctl(s.fd, vidiocStreamOff, unsafe.Pointer(&off))
	lent = make([]mapping, len(s.buffers))
	for i, b := range s.buffers {
		if !b.lent {
			unmap(b.mem)
			continue
		}
		lent[i] = b
		moveAway(b.mem) // if this fails, the camera stays absent until the caller returns the picture
	}
	s.buffers = nil
	none := requestBuffers{kind: bufTypeCapture, memory: memoryMmap}
	ioctl(s.fd, vidiocReqBufs, unsafe.Pointer(&none))
	s.close()
	return lent
}

// moveAway replaces a mapping by a copy at the same address. A concurrent reader finds either of them, with the same
// bytes.
func moveAway(mem []byte) error {
	size := uintptr(len(mem))
	p, err := unix.MmapPtr(-1, 0, nil, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	copy(unsafe.Slice((*byte)(p), size), mem)
	_, err = unix.MremapPtr(p, size, unsafe.Pointer(unsafe.SliceData(mem)), size, unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED)
	if err != nil {
		unix.MunmapPtr(p, size)
	}
	return err
}

func unmap(mem []byte) { unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(mem)), uintptr(len(mem))) }
