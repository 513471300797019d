//go:build linux

package v4l2

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// numbers are the ioctl numbers of the kernel on every machine with 64 bits and
// the usual encoding: amd64, arm64, riscv64.
var numbers = []struct {
	name string
	ours uintptr
	want uintptr
}{
	{"VIDIOC_QUERYCAP", vidiocQueryCap, 0x80685600},
	{"VIDIOC_ENUM_FMT", vidiocEnumFmt, 0xc0405602},
	{"VIDIOC_S_FMT", vidiocSFmt, 0xc0d05605},
	{"VIDIOC_REQBUFS", vidiocReqBufs, 0xc0145608},
	{"VIDIOC_QUERYBUF", vidiocQueryBuf, 0xc0585609},
	{"VIDIOC_QBUF", vidiocQBuf, 0xc058560f},
	{"VIDIOC_DQBUF", vidiocDQBuf, 0xc0585611},
	{"VIDIOC_STREAMON", vidiocStreamOn, 0x40045612},
	{"VIDIOC_STREAMOFF", vidiocStreamOff, 0x40045613},
	{"VIDIOC_S_PARM", vidiocSParm, 0xc0cc5616},
	{"VIDIOC_G_CTRL", vidiocGCtrl, 0xc008561b},
	{"VIDIOC_S_CTRL", vidiocSCtrl, 0xc008561c},
	{"VIDIOC_QUERYCTRL", vidiocQueryCtrl, 0xc0445624},
	{"VIDIOC_QUERYMENU", vidiocQueryMenu, 0xc02c5625},
	{"VIDIOC_ENUM_FRAMESIZES", vidiocEnumSizes, 0xc02c564a},
	{"VIDIOC_ENUM_FRAMEINTERVALS", vidiocEnumIvals, 0xc034564b},
}

func TestIoctlNumbers(t *testing.T) {
	for _, n := range numbers {
		rttest.Want(t, n.ours, n.want, "%s", n.name)
	}
}

// The package, with the assertions about its structs, compiles on amd64 and arm64.
func TestLayoutOnEveryArchitecture(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command here")
	}
	for _, arch := range []string{"amd64", "arm64"} {
		cmd := exec.Command(goTool, "build", "-o", os.DevNull, ".")
		cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("GOARCH=%s: %v\n%s", arch, err, out)
		}
	}
}

// offsets has the offsets of our fields, each with the C expression for the kernel's offset.
var offsets = []struct {
	field string
	ours  uintptr
}{
	{"offsetof(struct v4l2_capability, device_caps)", unsafe.Offsetof(capability{}.deviceCaps)},
	{"offsetof(struct v4l2_fmtdesc, pixelformat)", unsafe.Offsetof(fmtdesc{}.pixelformat)},
	{"offsetof(struct v4l2_frmsizeenum, discrete)", unsafe.Offsetof(frmsize{}.u)},
	{"offsetof(struct v4l2_frmivalenum, discrete)", unsafe.Offsetof(frmival{}.min)},
	{"offsetof(struct v4l2_format, fmt.pix.sizeimage)",
		unsafe.Offsetof(format{}.pix) + unsafe.Offsetof(pixFormat{}.sizeImage)},
	{"offsetof(struct v4l2_format, fmt.pix.quantization)",
		unsafe.Offsetof(format{}.pix) + unsafe.Offsetof(pixFormat{}.quantization)},
	{"offsetof(struct v4l2_streamparm, parm.capture.timeperframe)", unsafe.Offsetof(streamparm{}.perFrame)},
	{"offsetof(struct v4l2_buffer, timestamp)", unsafe.Offsetof(buffer{}.timestamp)},
	{"offsetof(struct v4l2_buffer, sequence)", unsafe.Offsetof(buffer{}.sequence)},
	{"offsetof(struct v4l2_buffer, m.offset)", unsafe.Offsetof(buffer{}.offset)},
	{"offsetof(struct v4l2_buffer, length)", unsafe.Offsetof(buffer{}.length)},
	{"offsetof(struct v4l2_queryctrl, default_value)", unsafe.Offsetof(queryctrl{}.preset)},
	{"offsetof(struct v4l2_queryctrl, flags)", unsafe.Offsetof(queryctrl{}.flags)},
	{"offsetof(struct v4l2_querymenu, name)", unsafe.Offsetof(querymenu{}.name)},
	{"V4L2_CID_EXPOSURE_AUTO", cidExposureAuto}, {"V4L2_CID_EXPOSURE_ABSOLUTE", cidExposureAbsolute},
	{"V4L2_CID_EXPOSURE_AUTO_PRIORITY", cidExposurePriority}, {"V4L2_CID_EXPOSURE", cidExposure},
	{"V4L2_CID_AUTO_WHITE_BALANCE", cidAutoWhiteBalance}, {"V4L2_CID_WHITE_BALANCE_TEMPERATURE", cidTemperature},
	{"V4L2_CID_FOCUS_AUTO", cidFocusAuto}, {"V4L2_CID_FOCUS_ABSOLUTE", cidFocusAbsolute},
	{"V4L2_CID_AUTOGAIN", cidAutogain}, {"V4L2_CID_GAIN", cidGain},
	{"V4L2_COLORSPACE_JPEG", colorspaceJPEG}, {"V4L2_QUANTIZATION_FULL_RANGE", quantizationAll},
	{"V4L2_QUANTIZATION_LIM_RANGE", quantizationLow},
	{"V4L2_BUF_FLAG_TIMESTAMP_MASK", bufFlagStampMask}, {"V4L2_BUF_FLAG_TIMESTAMP_MONOTONIC", bufFlagStampSteady},
	{"V4L2_BUF_FLAG_ERROR", bufFlagError},
	{"V4L2_CAP_META_CAPTURE", capMeta}, {"V4L2_CAP_STREAMING", capStreaming},
	{"V4L2_CAP_VIDEO_CAPTURE_MPLANE", capCaptureMP},
}

// The C compiler computes the same sizes and offsets from the kernel's header.
func TestLayoutIsTheKernelHeaders(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler here")
	}
	dir := t.TempDir()
	var src strings.Builder
	src.WriteString("#include <linux/videodev2.h>\n#include <stddef.h>\n")
	for _, n := range numbers {
		fmt.Fprintf(&src, "_Static_assert(%s == %#xul, %q);\n", n.name, n.ours, n.name)
	}
	for _, o := range offsets {
		fmt.Fprintf(&src, "_Static_assert(%s == %dul, %q);\n", o.field, o.ours, o.field)
	}
	file := rttest.WriteFile(t, dir, "layout.c", src.String())
	if out, err := exec.Command(cc, "-c", "-o", filepath.Join(dir, "layout.o"), file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
