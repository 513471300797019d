package v4l2

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Values of the kernel's interface.
//
// Source: include/uapi/linux/videodev2.h, v4l2-controls.h (Linux 6.1).
const (
	bufTypeCapture = 1
	memoryMmap     = 1
	fieldAny       = 0

	capCapture    = 0x00000001
	capCaptureMP  = 0x00001000
	capMeta       = 0x00800000
	capStreaming  = 0x04000000
	capDeviceCaps = 0x80000000 // deviceCaps describes only this node

	bufFlagError       = 0x00000040
	bufFlagStampMask   = 0x0000e000
	bufFlagStampSteady = 0x00002000 // CLOCK_MONOTONIC

	sizeDiscrete     = 1
	intervalDiscrete = 1

	ctrlNext     = 0x80000000
	ctrlDisabled = 0x0001
	ctrlReadOnly = 0x0004
	ctrlInactive = 0x0010

	ctrlInteger     = 1
	ctrlBoolean     = 2
	ctrlMenu        = 3
	ctrlButton      = 4
	ctrlIntegerMenu = 9
	ctrlBitmask     = 8

	colorspaceJPEG  = 7
	quantizationLow = 2 // limited range
	quantizationAll = 1 // full range
)

// fourcc packs a pixel format's four letters.
func fourcc(s string) uint32 {
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}

// The structs below are the kernel's on the 64-bit machines that use its usual ioctl numbers: amd64, arm64, riscv64.
// layout_test.go compares them with the layout that the C compiler derives from the kernel's header.

type capability struct {
	driver                            [16]byte
	card, busInfo                     [32]byte
	version, capabilities, deviceCaps uint32
	_                                 [3]uint32
}

type fmtdesc struct {
	index, kind, flags uint32
	description        [32]byte
	pixelformat, mbus  uint32
	_                  [3]uint32
}

type frmsize struct {
	index, pixelformat, kind uint32
	// For one size: width, height. For a range of sizes: min, max and step of the width, then of the height.
	u [6]uint32
	_ [2]uint32
}

type fraction struct{ num, den uint32 }

type frmival struct {
	index, pixelformat, width, height, kind uint32
	min, max, step                          fraction // discrete: min only
	_                                       [2]uint32
}

type pixFormat struct {
	width, height, pixelformat, field         uint32
	bytesPerLine, sizeImage, colorspace, priv uint32
	flags, encoding, quantization, transfer   uint32
}

type format struct {
	kind uint32
	_    uint32 // padding, because the union contains pointers and is aligned to 8 bytes
	pix  pixFormat
	_    [200 - unsafe.Sizeof(pixFormat{})]byte
}

type streamparm struct {
	kind             uint32
	capability, mode uint32
	perFrame         fraction
	extended, reads  uint32
	_                [200 - 24]byte
}

type requestBuffers struct {
	count, kind, memory, capabilities, flags uint32
}

type buffer struct {
	index, kind, bytesUsed, flags, field uint32
	timestamp                            unix.Timeval
	timecode                             [16]byte
	sequence, memory                     uint32
	offset                               uint64 // union; its lower half is the offset for mmap
	length                               uint32
	_                                    uint32
	requestFD                            int32
}

type queryctrl struct {
	id, kind                       uint32
	name                           [32]byte
	minimum, maximum, step, preset int32
	flags                          uint32
	_                              [2]uint32
}

type querymenu struct {
	id, index uint32
	name      [32]byte // name of a menu item; an integer menu has an int64 here
	_         uint32
}

type control struct {
	id    uint32
	value int32
}

// The sizes are part of the ioctl numbers, so a struct of a wrong size must not compile.
var (
	_ [104]byte = [unsafe.Sizeof(capability{})]byte{}
	_ [64]byte  = [unsafe.Sizeof(fmtdesc{})]byte{}
	_ [44]byte  = [unsafe.Sizeof(frmsize{})]byte{}
	_ [52]byte  = [unsafe.Sizeof(frmival{})]byte{}
	_ [208]byte = [unsafe.Sizeof(format{})]byte{}
	_ [8]byte   = [unsafe.Offsetof(format{}.pix)]byte{}
	_ [204]byte = [unsafe.Sizeof(streamparm{})]byte{}
	_ [20]byte  = [unsafe.Sizeof(requestBuffers{})]byte{}
	_ [88]byte  = [unsafe.Sizeof(buffer{})]byte{}
	_ [24]byte  = [unsafe.Offsetof(buffer{}.timestamp)]byte{}
	_ [64]byte  = [unsafe.Offsetof(buffer{}.offset)]byte{}
	_ [68]byte  = [unsafe.Sizeof(queryctrl{})]byte{}
	_ [44]byte  = [unsafe.Sizeof(querymenu{})]byte{}
	_ [8]byte   = [unsafe.Sizeof(control{})]byte{}
)

// The parts of an ioctl number that do not depend on the command: V4L2's letter, and the direction.
const (
	ioWrite = 1<<30 | 'V'<<8
	ioRead  = 2<<30 | 'V'<<8
	ioBoth  = ioRead | ioWrite
)

// Source: include/uapi/asm-generic/ioctl.h, _IOC.
const (
	vidiocQueryCap  = ioRead | unsafe.Sizeof(capability{})<<16 // number 0
	vidiocEnumFmt   = ioBoth | unsafe.Sizeof(fmtdesc{})<<16 | 2
	vidiocSFmt      = ioBoth | unsafe.Sizeof(format{})<<16 | 5
	vidiocReqBufs   = ioBoth | unsafe.Sizeof(requestBuffers{})<<16 | 8
	vidiocQueryBuf  = ioBoth | unsafe.Sizeof(buffer{})<<16 | 9
	vidiocQBuf      = ioBoth | unsafe.Sizeof(buffer{})<<16 | 15
	vidiocDQBuf     = ioBoth | unsafe.Sizeof(buffer{})<<16 | 17
	vidiocStreamOn  = ioWrite | 4<<16 | 18
	vidiocStreamOff = ioWrite | 4<<16 | 19
	vidiocSParm     = ioBoth | unsafe.Sizeof(streamparm{})<<16 | 22
	vidiocGCtrl     = ioBoth | unsafe.Sizeof(control{})<<16 | 27
	vidiocSCtrl     = ioBoth | unsafe.Sizeof(control{})<<16 | 28
	vidiocQueryCtrl = ioBoth | unsafe.Sizeof(queryctrl{})<<16 | 36
	vidiocQueryMenu = ioBoth | unsafe.Sizeof(querymenu{})<<16 | 37
	vidiocEnumSizes = ioBoth | unsafe.Sizeof(frmsize{})<<16 | 74
	vidiocEnumIvals = ioBoth | unsafe.Sizeof(frmival{})<<16 | 75
)

//rt:noalloc
func ioctl(fd int, number uintptr, p unsafe.Pointer) unix.Errno {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), number, uintptr(p))
		if errno != unix.EINTR {
			return errno
		}
	}
}

// text returns the C string in b, which has no zero byte at its end if it is as long as b.
func text(b []byte) string { return unix.ByteSliceToString(b) }
