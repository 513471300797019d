package v4l2

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// webcam lists the formats of a common webcam.
var webcam = func() (all []Mode) {
	for _, p := range []camera.PixelFormat{camera.YUYV, camera.MJPEG} {
		for _, size := range [][2]int{{640, 480}, {320, 240}, {1280, 720}} {
			for _, fps := range []float64{30, 15, 60} {
				if p == camera.YUYV && (fps == 60 || size[0] == 1280 && fps == 30) {
					continue // exceeds the bandwidth of USB 2
				}
				all = append(all, Mode{p, size[0], size[1], fps})
			}
		}
	}
	return all
}()

func TestChoose(t *testing.T) {
	const yuyv, mjpeg = camera.YUYV, camera.MJPEG
	for _, tt := range []struct {
		name string
		want Want
		mode Mode
	}{
		{"nothing asked: the usual, sent as it is", Want{}, Mode{mjpeg, 640, 480, 30}},
		{"pictures will be changed: no decoding", Want{Raw: true}, Mode{yuyv, 640, 480, 30}},
		{"only MJPEG is fast enough", Want{Raw: true, FPS: 60}, Mode{mjpeg, 640, 480, 60}},
		{"only MJPEG is fast enough at that size", Want{Raw: true, Width: 1280, Height: 720},
			Mode{mjpeg, 1280, 720, 30}},
		{"no faster than asked", Want{FPS: 15}, Mode{mjpeg, 640, 480, 15}},
		{"a little above what is asked", Want{FPS: 20}, Mode{mjpeg, 640, 480, 30}},
		{"more than there is", Want{FPS: 90}, Mode{mjpeg, 640, 480, 60}},
		{"pixels as asked, though slower", Want{Pixels: yuyv, Width: 1280, Height: 720}, Mode{yuyv, 1280, 720, 15}},
		{"near a small picture", Want{NearW: 160, NearH: 120}, Mode{mjpeg, 320, 240, 30}},
		{"near a large picture", Want{NearW: 3000, NearH: 2000}, Mode{mjpeg, 1280, 720, 30}},
		{"near one that is wider", Want{NearW: 641, NearH: 10}, Mode{mjpeg, 1280, 720, 30}},
	} {
		for _, modes := range [][]Mode{webcam, reversed(webcam)} { // the order of the driver's list does not matter
			rttest.Want(t, rttest.Must(choose(modes, tt.want))(t), tt.mode, "%s: choose(%+v)", tt.name, tt.want)
		}
	}
	for text, want := range map[string]Want{
		"it has 640x480, 320x240, 1280x720": {Width: 800, Height: 600},
		"it has yuyv, mjpeg":                {Pixels: camera.NV12},
	} {
		rttest.FailsAs(t, rttest.Err(choose(webcam, want)), ErrMode, text)
	}
	rttest.FailsAs(t, rttest.Err(choose(nil, Want{})), ErrMode)
	if m, _ := choose(webcam, Want{FPS: 90}); !strings.Contains(m.remark(Want{FPS: 90}),
		"60 frames a second is the most") || m.remark(Want{FPS: 60}) != "" {
		t.Errorf("remark() = %q and %q, want one about 60", m.remark(Want{FPS: 90}), m.remark(Want{FPS: 60}))
	}
}

func reversed(modes []Mode) []Mode {
	modes = slices.Clone(modes)
	slices.Reverse(modes)
	return modes
}

// controls are those of a common webcam.
var controls = []Control{
	{ID: 0x00980900, Name: "brightness", Kind: "integer", Min: -64, Max: 64, Step: 1},
	{ID: cidAutoWhiteBalance, Name: "white-balance-automatic", Kind: "boolean", Max: 1, Step: 1},
	{ID: cidGain, Name: "gain", Kind: "integer", Max: 100, Step: 1},
	{
		ID:   0x00980918,
		Name: "power-line-frequency",
		Kind: "menu",
		Max:  2,
		Step: 1,
		Menu: []string{"Disabled", "50 Hz", "60 Hz"},
	},
	{ID: cidTemperature, Name: "white-balance-temperature", Kind: "integer", Min: 2800, Max: 6500, Step: 10},
	{
		ID:   cidExposureAuto,
		Name: "auto-exposure",
		Kind: "menu",
		Max:  3,
		Step: 1,
		Menu: []string{"", "Manual Mode", "", "Aperture Priority Mode"},
	},
	{ID: cidExposureAbsolute, Name: "exposure-time-absolute", Kind: "integer", Min: 1, Max: 5000, Step: 1},
	{ID: cidExposurePriority, Name: "exposure-dynamic-framerate", Kind: "boolean", Max: 1, Step: 1},
	{ID: 0x00980999, Name: "serial", Kind: "integer", ReadOnly: true},
}

func TestResolve(t *testing.T) {
	for _, tt := range []struct {
		set  Setting
		want []string // name=value
		err  string
	}{
		{Setting{"exposure", "156"}, []string{"auto-exposure=1", "exposure-dynamic-framerate=0",
			"exposure-time-absolute=156"}, ""},
		{Setting{"exposure", "auto"}, []string{"auto-exposure=3"}, ""},
		{Setting{"white-balance", "4600"}, []string{"white-balance-automatic=0", "white-balance-temperature=4600"}, ""},
		{Setting{"white-balance", "auto"}, []string{"white-balance-automatic=1"}, ""},
		{Setting{"gain", "12"}, []string{"gain=12"}, ""}, // gain has no automatic control
		{Setting{"power-line-frequency", "1"}, []string{"power-line-frequency=1"}, ""},
		{Setting{"power-line-frequency", "50-hz"}, []string{"power-line-frequency=1"}, ""},
		{Setting{"white-balance-automatic", "off"}, []string{"white-balance-automatic=0"}, ""},
		{Setting{"white-balance-automatic", "on"}, []string{"white-balance-automatic=1"}, ""},
		{Setting{"gain", "012"}, []string{"gain=12"}, ""}, // not the octal number 10
		{Setting{"brightness", "-64"}, []string{"brightness=-64"}, ""},

		{Setting{"exposure", "5001"}, nil, "1 to 5000"},
		{Setting{"white-balance", "4605"}, nil, "2800 to 6500 in steps of 10"},
		{Setting{"power-line-frequency", "70"}, nil, "0 (disabled), 1 (50-hz), 2 (60-hz)"},
		{Setting{"power-line-frequency", "fast"}, nil, "0 (disabled)"},
		{Setting{"auto-exposure", "0"}, nil, "1 (manual-mode), 3"},
		{Setting{"focus", "10"}, nil, "the camera has none; it has brightness"},
		{Setting{"gain", "auto"}, nil, "no automatic"},
		{Setting{"exposre", "10"}, nil, "no such control"},
		{Setting{"serial", "1"}, nil, "only be read"},
		{Setting{"brightness", "99999999999"}, nil, "-64 to 64"},
	} {
		got, err := resolve(controls, tt.set)
		var list []string
		for _, a := range got {
			list = append(list, fmt.Sprintf("%s=%d", a.control.Name, a.value))
		}
		if tt.err == "" && (err != nil || !slices.Equal(list, tt.want)) {
			t.Errorf("%v: %v, %v, want %v", tt.set, list, err, tt.want)
		}
		if tt.err != "" && (!errors.Is(err, ErrControl) || !rttest.Says(err, tt.err)) {
			t.Errorf("%v: %v, want one that says %q", tt.set, err, tt.err)
		}
	}
}

func TestSlug(t *testing.T) {
	for name, want := range map[string]string{
		"Power Line Frequency": "power-line-frequency", "White Balance, Automatic": "white-balance-automatic",
		"Auto-Exposure": "auto-exposure", "  ": "",
	} {
		rttest.Want(t, slug(name), want, "slug(%q)", name)
	}
}
