package bringup

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/camera/v4l2"
	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/internal/exit"
)

// CamerasReport is the --json of edge-rt cameras.
type CamerasReport struct {
	Cameras []CameraFound `json:"cameras"`
	Denied  []string      `json:"denied"` // devices that could not be opened, with the reason
}

// CameraFound is one camera with its modes and controls.
type CameraFound struct {
	Path   string `json:"path"`    // device, such as /dev/video0
	ByID   string `json:"by_id"`   // link by serial number, which two cameras may share; empty without udev
	ByPath string `json:"by_path"` // link by USB socket
	// the link, by_id or by_path, that always leads to this camera; empty: neither does
	Stable   string          `json:"stable"`
	Why      string          `json:"why"`    // why stable is not by serial number; empty otherwise
	Card     string          `json:"card"`   // name of the device
	Driver   string          `json:"driver"` // name of the driver
	Bus      string          `json:"bus"`    // place on the bus
	Modes    []CameraMode    `json:"modes"`
	Controls []CameraControl `json:"controls"`
}

// CameraMode is one streaming mode of a camera.
type CameraMode struct {
	Format string  `json:"format"` // pixel format
	Width  int     `json:"width"`  // pixels
	Height int     `json:"height"` // pixels
	FPS    float64 `json:"fps"`    // Hz, pictures per second
}

// CameraControl is one setting of a camera.
type CameraControl struct {
	Name     string `json:"name"`      // name of the control
	Value    int32  `json:"value"`     // its value
	Values   string `json:"values"`    // possible values
	ReadOnly bool   `json:"read_only"` // the control cannot be set
	Inactive bool   `json:"inactive"`  // another control governs it
}

func cameraOf(c *v4l2.Info) CameraFound {
	found := CameraFound{
		Path:     c.Path,
		ByID:     c.ByID,
		ByPath:   c.ByPath,
		Card:     c.Card,
		Driver:   c.Driver,
		Bus:      c.Bus,
		Modes:    []CameraMode{},
		Controls: []CameraControl{},
	}
	for _, m := range c.Modes {
		found.Modes = append(found.Modes, CameraMode{m.Pixels.String(), m.Width, m.Height, m.FPS})
	}
	for _, c := range c.Controls {
		found.Controls = append(found.Controls, CameraControl{c.Name, c.Value, c.Span(), c.ReadOnly, c.Inactive})
	}
	return found
}

// Cameras lists this machine's cameras, with every mode and control if all or --json.
func Cameras(cfg Config, all bool) error {
	found, denied := v4l2.List()
	return listCameras(cfg, all, "/sys", found, denied)
}

func listCameras(cfg Config, all bool, sys string, found []v4l2.Info, denied []error) error {
	s, devices := newSession(cfg), findUSB(sys)
	report := CamerasReport{Cameras: []CameraFound{}, Denied: []string{}}
	for _, err := range denied {
		s.printf("%v", err)
		report.Denied = append(report.Denied, err.Error())
	}
	if len(found) == 0 {
		none := exit.Errorf(exit.Absent, "no camera here: plug one in and look again (edge-rt cameras); without one, "+
			"--camera top=pattern shows bars, --camera top=./folder plays pictures, and --camera top=pipe:'COMMAND' "+
			"takes those of a program, as of a CSI or network camera")
		return errors.Join(none, s.report(report))
	}
	for i := range found {
		c := &found[i]
		name := devices.choose(device.USBFolder(sys, "video4linux", filepath.Base(c.Path)), c.ByID, c.ByPath)
		report.Cameras = append(report.Cameras, cameraOf(c))
		last := &report.Cameras[len(report.Cameras)-1]
		last.Stable, last.Why = name.link, name.why
		fmt.Fprintf(cfg.Out, "%s  %s (%s, at %s)\n", c.Path, c.Card, c.Driver, c.Bus)
		if name.link != "" || name.why != "" {
			fmt.Fprintf(cfg.Out, "  %s%s\n", cmp.Or(name.link, c.Path), name.reason())
		}
		writeModes(cfg.Out, c.Modes, all)
		writeControls(cfg.Out, c.Controls, all)
	}
	first := &report.Cameras[0]
	path := cmp.Or(first.Stable, first.Path)
	fmt.Fprintf(cfg.Out, "next: look through one: edge-rt cameras snapshot --camera front=%s -o front.jpg\n", path)
	fmt.Fprintf(cfg.Out, "then: run with it: edge-rt --bus PORT --camera front=%s (the name is the policy's: "+
		"observation.images.front)\n", path)
	if first.Stable == "" {
		fmt.Fprintln(cfg.Out, "note: /dev/videoN changes with the order of plugging; names in /dev/v4l/by-id and "+
			"/dev/v4l/by-path stay (they come with udev)")
	}
	return s.report(report)
}

func writeModes(w io.Writer, modes []v4l2.Mode, all bool) {
	const few = 6
	var order []camera.PixelFormat
	sizes, rates := map[camera.PixelFormat][]string{}, map[string][]string{}
	for _, m := range modes {
		if !slices.Contains(order, m.Pixels) {
			order = append(order, m.Pixels)
		}
		size := fmt.Sprintf("%dx%d", m.Width, m.Height)
		if !slices.Contains(sizes[m.Pixels], size) {
			sizes[m.Pixels] = append(sizes[m.Pixels], size)
		}
		key := m.Pixels.String() + size
		if fps := fmt.Sprintf("%.3g", m.FPS); !slices.Contains(rates[key], fps) {
			rates[key] = append(rates[key], fps)
		}
	}
	for _, p := range order {
		list := sizes[p]
		more := ""
		if len(list) > few && !all {
			list, more = list[:few], fmt.Sprintf(" and %d more (--all)", len(list)-few)
		}
		var texts []string
		for _, size := range list {
			fps := rates[p.String()+size]
			if len(fps) > few && !all {
				fps = append(fps[:1:1], "...", fps[len(fps)-1])
			}
			texts = append(texts, size+"@"+strings.Join(fps, "/"))
		}
		fmt.Fprintf(w, "  %-6v %s%s\n", p, strings.Join(texts, "  "), more)
	}
}

// usualControls are parts of the names of the controls that matter to a policy.
var usualControls = []string{"exposure", "white-balance", "focus", "gain", "brightness", "power-line"}

func writeControls(w io.Writer, controls []v4l2.Control, all bool) {
	left := 0
	for _, c := range controls {
		usual := slices.ContainsFunc(usualControls, func(word string) bool { return strings.Contains(c.Name, word) })
		if c.ReadOnly || !usual && !all {
			left++
			continue
		}
		state := ""
		if c.Inactive {
			state = ", governed by another"
		}
		fmt.Fprintf(w, "  %s=%d (%s%s)\n", c.Name, c.Value, c.Span(), state)
	}
	if left > 0 {
		fmt.Fprintf(w, "  and %d more controls (--all)\n", left)
	}
}
