//go:build cgo

package jpeg

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Check accepts a damaged picture exactly when DecodeRGB decodes it. The test cuts pictures off and adds an end marker,
// as in a torn picture of a camera, or changes bytes.
func TestCheckIsAsStrictAsDecoding(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	d := decoder(t)
	pix := make([]byte, 3*sceneW*sceneH)
	refused, passed := 0, 0
	for _, name := range []string{"scene_420.jpg", "scene_422.jpg", "scene_444.jpg", "scene_gray.jpg",
		"scene_restart.jpg", "scene_bare.jpg"} {
		good := golden(t, name)
		if err := d.Check(good); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for i := range 400 {
			bad := slices.Clone(good)
			at := 2 + random.IntN(len(bad)-4)
			switch i % 4 {
			case 0:
				bad = append(bad[:at], 0xff, markEOI)
			case 1:
				bad[at] ^= byte(1 + random.IntN(255))
			case 2:
				clear(bad[at:min(at+50, len(bad)-2)])
			default:
				bad = append(bad[:at], bad[min(at+1+random.IntN(40), len(bad)-2):]...)
			}
			want := d.DecodeRGB(pix, bad, sceneW, sceneH)
			if errors.Is(want, ErrSize) { // the damage changed the size in the header, and Check does not compare sizes
				continue
			}
			if got := d.Check(bad); !errors.Is(got, want) || (got == nil) != (want == nil) {
				t.Fatalf("%s, damage %d at %d: Check() = %v, and DecodeRGB() = %v", name, i, at, got, want)
			}
			if want != nil {
				refused++
			} else {
				passed++
			}
		}
	}
	if refused < 500 || passed < 100 {
		t.Errorf("%d refused and %d passed: the damages test nothing", refused, passed)
	}
	src := golden(t, "scene_420.jpg")
	rttest.NoAllocs(t, "%v allocations", 50, func() { d.Check(src) })
}
