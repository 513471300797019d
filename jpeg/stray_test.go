//go:build cgo

package jpeg

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// stray returns src with n meaningless bytes before the marker at the offset at.
func stray(src []byte, at, n int) []byte {
	return slices.Insert(slices.Clone(src), at, bytes.Repeat([]byte{0x11, 0x5a, 0x00}, n/3+1)[:n]...)
}

// warning returns the library's message if the last picture was decoded with a warning, otherwise "".
func warning(d *Decoder) string {
	if !d.Warned() {
		return ""
	}
	text, _, _ := bytes.Cut(d.message[:], []byte{0})
	return string(text)
}

// Webcams send stray bytes before a marker. The decoder leaves them out, and Warned reports them.
func TestStrayBytesAreAWarning(t *testing.T) {
	for _, tt := range []struct {
		file   string
		marker []byte // the stray bytes are inserted before the last occurrence of these bytes
		n      int
		warned bool
	}{
		{"scene_422.jpg", []byte{0xff, markEOI}, 0, false},
		{"scene_422.jpg", []byte{0xff, markEOI}, 2, false}, // no warning: the library has already read these two bytes
		{"scene_422.jpg", []byte{0xff, markEOI}, 4, true},
		{"scene_420.jpg", []byte{0xff, markEOI}, maxStray, true},
		{"scene_444.jpg", []byte{0xff, markEOI}, 20, true},
		{"scene_gray.jpg", []byte{0xff, markEOI}, 20, true},
		{"scene_bare.jpg", []byte{0xff, markEOI}, 20, true},
		{"scene_restart.jpg", []byte{0xff, markEOI}, 20, true},
		{"scene_restart.jpg", []byte{0xff, markRST0 + 1}, 20, true},
		{"scene_422.jpg", []byte{0xff, markDQT}, 1, true},
		{"scene_420.jpg", []byte{0xff, markSOS}, maxStray, true},
	} {
		src := golden(t, tt.file)
		d := decoder(t)
		want := make([]byte, 3*sceneW*sceneH)
		got := make([]byte, 3*sceneW*sceneH)
		if err := d.DecodeRGB(want, src, sceneW, sceneH); err != nil || d.Warned() || warning(d) != "" {
			t.Fatalf("%s as it is: %v, warned %v", tt.file, err, d.Warned())
		}
		at := bytes.LastIndex(src, tt.marker)
		if at < 0 {
			t.Fatalf("%s has no marker %x", tt.file, tt.marker)
		}
		if err := d.DecodeRGB(got, stray(src, at, tt.n), sceneW, sceneH); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s with %d bytes before %x: %v, or another picture", tt.file, tt.n, tt.marker, err)
		}
		if d.Warned() != tt.warned || strings.Contains(warning(d), "extraneous bytes before marker") != tt.warned {
			t.Errorf("%s with %d bytes before %x: warned %v, %q, want %v", tt.file, tt.n, tt.marker, d.Warned(),
				warning(d), tt.warned)
		}
		if err := d.DecodeRGB(got, src, sceneW, sceneH); err != nil || d.Warned() {
			t.Errorf("%s as it is, afterwards: %v, warned %v", tt.file, err, d.Warned())
		}
	}
}

// The decoder refuses a picture with a missing part, even if the library only warns.
func TestDamageIsAnError(t *testing.T) {
	src := golden(t, "scene_422.jpg")
	eoi := len(src) - 2
	flipped := slices.Clone(src)
	flipped[len(src)-340] ^= 0x55
	lost := slices.Delete(slices.Clone(src), eoi/2, eoi/2+200)
	for name, src := range map[string][]byte{
		"nothing":                                 nil,
		"one byte":                                src[:1],
		"two markers alone":                       {0xff, markSOI, 0xff, markEOI},
		"cut in the middle":                       src[:len(src)/2],
		"cut in the middle, with an end":          append(slices.Clone(src[:len(src)*2/3]), 0xff, markEOI),
		"without its last byte, with an end":      append(slices.Clone(src[:eoi-1]), 0xff, markEOI),
		"a Huffman code that is none":             flipped,
		"200 bytes lost on the way":               lost,
		"more stray bytes than a camera sends":    stray(src, eoi, 200),
		"more stray bytes than that in the front": stray(src, bytes.Index(src, []byte{0xff, markDQT}), maxStray+1),
		"cut, and stray bytes at the end": stray(append(slices.Clone(src[:len(src)*2/3]), 0xff, markEOI),
			len(src)*2/3, 1),
	} {
		d := decoder(t)
		err := d.DecodeRGB(make([]byte, 3*sceneW*sceneH), src, sceneW, sceneH)
		if !errors.Is(err, ErrCorrupt) || d.Warned() || warning(d) != "" {
			t.Errorf("%s: %v, warned %v, want %v", name, err, d.Warned(), ErrCorrupt)
		}
		if got := d.Explain(err, src, sceneW, sceneH); !errors.Is(got, ErrCorrupt) || !rttest.Says(got, "bytes") {
			t.Errorf("%s: Explain() = %v", name, got)
		}
	}
}

func TestWarningNoAlloc(t *testing.T) {
	src := golden(t, "scene_422.jpg")
	src = stray(src, len(src)-2, 9)
	d, dst := decoder(t), make([]byte, 3*sceneW*sceneH)
	rttest.NoAllocs(t, "a picture with stray bytes allocates %v times, want 0", 100, func() {
		if err := d.DecodeRGB(dst, src, sceneW, sceneH); err != nil || !d.Warned() {
			t.Fatal(err)
		}
	})
}
