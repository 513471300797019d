package v4l2

import (
	"errors"
	"fmt"
	"math"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/edge-rt/edge-rt/camera"
)

// Bounds of a driver's lists, which might be endless.
const (
	maxFormats   = 128
	maxSizes     = 128
	maxIntervals = 64
	maxControls  = 512
	maxMenu      = 64
)

// pixels are the kernel's formats that a Source can deliver.
var pixels = map[uint32]camera.PixelFormat{
	fourcc("MJPG"): camera.MJPEG, fourcc("JPEG"): camera.MJPEG, fourcc("YUYV"): camera.YUYV,
	fourcc("NV12"): camera.NV12, fourcc("GREY"): camera.Gray8, fourcc("RGB3"): camera.RGB8,
}

// device is an open node.
type device struct {
	fd   int
	path string
	cap  capability
}

// openDevice opens a node. It returns an error if the node is no camera that can stream.
func openDevice(path string) (*device, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return nil, fmt.Errorf("%w at %s: plug it in; edge-rt cameras lists those that are there", ErrAbsent, path)
	case errors.Is(err, unix.EACCES):
		return nil, fmt.Errorf("v4l2: %s may not be opened by this user: add the user to the group video, or install "+
			"systemd/99-edge-rt.rules", path)
	case err != nil:
		return nil, fmt.Errorf("v4l2: open %s: %w", path, err)
	}
	d := &device{fd: fd, path: path}
	if errno := ioctl(fd, vidiocQueryCap, unsafe.Pointer(&d.cap)); errno != 0 {
		d.close()
		return nil, fmt.Errorf("%w: %s does not answer as a video device (%w)", ErrNoVideo, path, errno)
	}
	caps := d.cap.capabilities
	if caps&capDeviceCaps != 0 {
		caps = d.cap.deviceCaps
	}
	switch {
	case caps&capCapture != 0 && caps&capStreaming != 0:
		return d, nil
	case caps&capMeta != 0:
		err = fmt.Errorf("%w: %s carries the camera's metadata; its pictures are on another node, often the one before",
			ErrNoVideo, path)
	case caps&capCaptureMP != 0:
		err = fmt.Errorf("%w: %s gives pictures in several planes, as camera sensors behind an image processor do; "+
			"use its libcamera program and a v4l2loopback device", ErrNoVideo, path)
	default:
		err = fmt.Errorf("%w: %s (%s) does not capture", ErrNoVideo, path, text(d.cap.card[:]))
	}
	d.close()
	return nil, err
}

func (d *device) close() { unix.Close(d.fd) }

// modes lists the camera's modes. If the driver offers a range of sizes, modes lists only the sizes that w names.
func (d *device) modes(w Want) (all []Mode) {
	for i := range uint32(maxFormats) {
		f := fmtdesc{index: i, kind: bufTypeCapture}
		if ioctl(d.fd, vidiocEnumFmt, unsafe.Pointer(&f)) != 0 {
			break
		}
		p, ok := pixels[f.pixelformat]
		if !ok {
			continue
		}
		for _, s := range d.sizes(f.pixelformat, w) {
			for _, fps := range d.rates(f.pixelformat, s[0], s[1], w) {
				all = append(all, Mode{
					Pixels: p,
					Width:  int(s[0]),
					Height: int(s[1]),
					FPS:    fps,
				})
			}
		}
	}
	return all
}

func (d *device) sizes(pixelformat uint32, w Want) (all [][2]uint32) {
	for i := range uint32(maxSizes) {
		s := frmsize{index: i, pixelformat: pixelformat}
		if ioctl(d.fd, vidiocEnumSizes, unsafe.Pointer(&s)) != 0 {
			break
		}
		if s.kind == sizeDiscrete {
			all = append(all, [2]uint32{s.u[0], s.u[1]})
			continue
		}
		width, height := s.u[:3], s.u[3:]
		for _, c := range [][2]int{{w.Width, w.Height}, {w.NearW, w.NearH}, {usualWidth, usualHeight},
			{int(width[1]), int(height[1])}} {
			if size := [2]uint32{uint32(c[0]), uint32(c[1])}; within(size[0], width) && within(size[1], height) {
				all = append(all, size)
			}
		}
		break
	}
	return all
}

// within reports whether a side is in a span: min, max and step.
func within(side uint32, span []uint32) bool {
	return side >= span[0] && side <= span[1] && (side-span[0])%max(span[2], 1) == 0
}

func (d *device) rates(pixelformat, width, height uint32, w Want) (all []float64) {
	for i := range uint32(maxIntervals) {
		v := frmival{
			index:       i,
			pixelformat: pixelformat,
			width:       width,
			height:      height,
		}
		if ioctl(d.fd, vidiocEnumIvals, unsafe.Pointer(&v)) != 0 {
			break
		}
		if v.kind == intervalDiscrete {
			all = append(all, v.min.rate())
			continue
		}
		return append(all, min(max(w.fps(), v.max.rate()), v.min.rate()))
	}
	if len(all) == 0 { // a driver may list no rates
		all = append(all, usualFPS)
	}
	return all
}

func (f fraction) rate() float64 {
	if f.num == 0 {
		return 0
	}
	return float64(f.den) / float64(f.num)
}

// setMode sets the mode and returns the format that the driver has chosen.
func (d *device) setMode(m Mode) (camera.Format, error) {
	var code uint32
	for c, p := range pixels {
		if p == m.Pixels && (code == 0 || c < code && p != camera.MJPEG || c == fourcc("MJPG")) {
			code = c
		}
	}
	f := format{kind: bufTypeCapture, pix: pixFormat{
		width:       uint32(m.Width),
		height:      uint32(m.Height),
		pixelformat: code,
		field:       fieldAny,
	}}
	errno := ioctl(d.fd, vidiocSFmt, unsafe.Pointer(&f))
	if errno == unix.EINVAL && m.Pixels == camera.MJPEG {
		f.pix.pixelformat = fourcc("JPEG")
		errno = ioctl(d.fd, vidiocSFmt, unsafe.Pointer(&f))
	}
	if errno != 0 {
		return camera.Format{}, d.refused("set the format of", errno)
	}
	got := camera.Format{
		Width:  int(f.pix.width),
		Height: int(f.pix.height),
		Pixels: pixels[f.pix.pixelformat],
		Full: f.pix.quantization == quantizationAll || f.pix.quantization != quantizationLow &&
			f.pix.colorspace == colorspaceJPEG,
		Size: int(f.pix.sizeImage),
	}
	if got.Pixels != m.Pixels || got.Width != m.Width || got.Height != m.Height {
		return got, fmt.Errorf("%w: it lists %v and delivers %v", ErrMode, m, got)
	}
	if got.Pixels != camera.MJPEG {
		got.Stride = int(f.pix.bytesPerLine)
	}
	p := streamparm{kind: bufTypeCapture, perFrame: interval(m.FPS)}
	if ioctl(d.fd, vidiocSParm, unsafe.Pointer(&p)) == 0 && p.perFrame.rate() > 0 {
		got.FPS = int(math.Round(p.perFrame.rate()))
	}
	if got.FPS < 1 {
		got.FPS = max(1, int(math.Round(m.FPS)))
	}
	return got, nil
}

func interval(fps float64) fraction {
	if r := math.Round(fps); math.Abs(r-fps) < 0.005 {
		return fraction{1, uint32(r)}
	}
	return fraction{1000, uint32(math.Round(fps * 1000))}
}

// refused returns an error for a failed step of the set-up: the cause and often a cure.
func (d *device) refused(what string, errno unix.Errno) error {
	switch errno {
	case unix.EBUSY:
		return fmt.Errorf("%w: %s; end it (fuser -v %s names it)", errBusy, d.path, d.path)
	case unix.ENODEV:
		return fmt.Errorf("%w at %s: it was unplugged", ErrAbsent, d.path)
	case unix.ENOSPC:
		return fmt.Errorf("v4l2: %s does not fit on its USB bus beside the other cameras: use format=mjpeg, a "+
			"smaller size, fewer frames a second, or another socket", d.path)
	}
	return fmt.Errorf("v4l2: %s %s: %w", what, d.path, errno)
}

// controls lists the camera's controls with their values.
func (d *device) controls() (all []Control) {
	id := uint32(ctrlNext)
	for range maxControls {
		q := queryctrl{id: id}
		if ioctl(d.fd, vidiocQueryCtrl, unsafe.Pointer(&q)) != 0 {
			break
		}
		id = q.id | ctrlNext
		kind := map[uint32]string{
			ctrlInteger:     "integer",
			ctrlBoolean:     "boolean",
			ctrlMenu:        "menu",
			ctrlIntegerMenu: "menu",
			ctrlButton:      "button",
			ctrlBitmask:     "bitmask",
		}[q.kind]
		if kind == "" || q.flags&ctrlDisabled != 0 {
			continue
		}
		c := Control{
			ID:       q.id,
			Name:     slug(text(q.name[:])),
			Kind:     kind,
			Min:      q.minimum,
			Max:      q.maximum,
			Step:     q.step,
			Inactive: q.flags&ctrlInactive != 0,
			ReadOnly: q.flags&ctrlReadOnly != 0,
		}
		if kind == "menu" {
			c.Menu = d.menu(&q)
		}
		c.Value, _ = d.control(q.id)
		all = append(all, c)
	}
	return all
}

func (d *device) menu(q *queryctrl) []string {
	if q.minimum < 0 || q.maximum >= maxMenu {
		return nil
	}
	words := make([]string, q.maximum+1)
	for i := q.minimum; i <= q.maximum; i++ {
		m := querymenu{id: q.id, index: uint32(i)}
		if ioctl(d.fd, vidiocQueryMenu, unsafe.Pointer(&m)) != 0 {
			continue
		}
		words[i] = text(m.name[:])
		if q.kind == ctrlIntegerMenu {
			words[i] = fmt.Sprint(*(*int64)(unsafe.Pointer(&m.name)))
		}
	}
	return words
}

func (d *device) control(id uint32) (int32, unix.Errno) {
	c := control{id: id}
	errno := ioctl(d.fd, vidiocGCtrl, unsafe.Pointer(&c))
	return c.value, errno
}

// apply sets the controls in order and checks each of them by a read.
func (d *device) apply(settings []Setting) error {
	all := d.controls()
	for _, s := range settings {
		todo, err := resolve(all, s)
		if err != nil {
			return err
		}
		for _, a := range todo {
			c := control{id: a.control.ID, value: a.value}
			if errno := ioctl(d.fd, vidiocSCtrl, unsafe.Pointer(&c)); errno == unix.ENODEV {
				return d.refused("set a control of", errno)
			} else if errno != 0 {
				return fmt.Errorf("%w %s=%s: the camera refuses %s=%d: %w", ErrControl, s.Name, s.Value, a.control.Name,
					a.value, errno)
			}
			if a.control.Kind == "button" {
				continue
			}
			if got, errno := d.control(a.control.ID); errno == 0 && got != a.value {
				return fmt.Errorf("%w %s=%s: %s reads back %d, set was %d; it takes %s", ErrControl, s.Name, s.Value,
					a.control.Name, got, a.value, a.control.Span())
			}
		}
	}
	return nil
}
