// Package v4l2 captures from the kernel's cameras without cgo.
//
// A Source streams through memory-mapped buffers and lends them as they are: a
// picture's first copy is the one into its message. Whenever frames have piled
// up, all but the newest go straight back. Timestamps are the driver's own, on
// the monotonic clock; its sequence numbers tell what was lost.
//
// Whatever ends the stream, a pulled cable, an I/O error or silence, Grab says so
// and sets everything up again when called again: the same camera, found by the
// path it was opened with or by what it says of itself, the same format and the
// same controls. The capture thread alone waits for that.
//
// Which of a camera's modes to use is decided in mode.go, which of its controls a
// word means in control.go, both without a device.
package v4l2

import (
	"errors"

	"edgert/camera"
)

// Errors of Open, for errors.Is.
var (
	ErrAbsent  = errors.New("v4l2: no such camera") // it may come
	ErrBusy    = errors.New("v4l2: another program uses the camera")
	ErrNoVideo = errors.New("v4l2: not a camera")
	ErrMode    = errors.New("v4l2: the camera has no such mode")
	ErrControl = errors.New("v4l2: control")
)

// Config says which camera to open and how.
type Config struct {
	Path     string // /dev/video0, or a link such as /dev/v4l/by-id/...
	Want     Want
	Controls []Setting
}

// Setting is one control and what it is set to, as a person writes it: exposure
// auto, gain 12, power-line-frequency 1.
type Setting struct{ Name, Value string }

// Info is what a camera says of itself.
type Info struct {
	Path   string // /dev/video0
	ByID   string // /dev/v4l/by-id/...; empty without udev
	ByPath string
	Card   string // the camera's name
	Driver string
	Bus    string // where it is plugged in

	Modes    []Mode
	Controls []Control
}

// Mode is one way in which a camera can stream.
type Mode struct {
	Pixels        camera.PixelFormat
	Width, Height int
	FPS           float64
}

// Control is one of a camera's controls.
type Control struct {
	ID             uint32
	Name           string // as a setting names it: power-line-frequency
	Kind           string // integer, boolean, menu, button
	Min, Max, Step int32
	Default, Value int32
	Inactive       bool // another control, such as an automatic, governs it now
	ReadOnly       bool
	Menu           []string // the words of a menu by value, empty where there is no such value
}
