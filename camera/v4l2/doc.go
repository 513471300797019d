// Package v4l2 captures from the kernel's cameras without cgo.
//
// A Source streams through memory-mapped buffers and lends them, so the first copy of a picture is the copy into its
// message. When several frames are ready, it keeps the newest. Timestamps are the driver's, on the monotonic clock. The
// driver's sequence numbers reveal lost frames.
//
// When the stream ends (unplugged, I/O error, silence) Grab returns the reason, and the next Grab
// sets it up again: the same camera, found by its name and socket, in the same format with the same
// controls.
//
// list_linux.go and device_linux.go query the kernel (ioctl_linux.go), mode.go and control.go
// choose mode and controls without a device, stream_linux.go manages the buffers, and
// source_linux.go is the camera.
package v4l2

import (
	"errors"

	"github.com/edge-rt/edge-rt/camera"
)

// Errors of Open, for errors.Is.
var (
	ErrAbsent  = errors.New("v4l2: no such camera") // the camera may be plugged in later
	errBusy    = errors.New("v4l2: another program uses the camera")
	ErrNoVideo = errors.New("v4l2: not a camera")
	ErrMode    = errors.New("v4l2: the camera has no such mode")
	ErrControl = errors.New("v4l2: control")
)

// Config selects a camera and how to open it.
type Config struct {
	Path     string // device, such as /dev/video0, or a link such as /dev/v4l/by-id/...
	Want     Want
	Controls []Setting
}

// Setting is one control and its value: exposure auto, gain 12, power-line-frequency 1.
type Setting struct{ Name, Value string }

// Info is a camera's description of itself.
type Info struct {
	Path   string // /dev/video0
	ByID   string // /dev/v4l/by-id/...; empty without udev
	ByPath string
	Card   string // the camera's name
	Driver string
	Bus    string // place where the camera is plugged in

	Modes    []Mode
	Controls []Control
}

// Mode is a format, size and rate in which a camera can stream.
type Mode struct {
	Pixels        camera.PixelFormat
	Width, Height int
	FPS           float64
}

// Control is one of a camera's controls.
type Control struct {
	ID             uint32
	Name           string // name in the form of a setting, such as power-line-frequency
	Kind           string // integer, boolean, menu, button
	Min, Max, Step int32
	Value          int32
	Inactive       bool // another control, such as an automatic one, overrides this one at present
	ReadOnly       bool
	Menu           []string // the words of a menu by value, empty for a value that does not exist
}
