package policy

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim"
	"github.com/edge-rt/edge-rt/wire/trained"
)

const (
	width  = 160
	height = 120
)

// demoStatistics returns the statistics of the demo's bundle.
func demoStatistics(t *testing.T) *trained.Statistics {
	t.Helper()
	return rttest.Must(trained.Parse(rttest.Must(os.ReadFile("../testdata/demo/bundle/statistics.json"))(t)))(t)
}

var joints = []string{"shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper"}

// observe returns the first observation of a world.
func observe(seed uint64) (state []float32, p trained.Picture) {
	w := sim.NewWorld(seed, int(seed%2)*2-1)
	q := w.Q()
	for _, x := range q {
		state = append(state, float32(x))
	}
	p = trained.Picture{Name: "top", W: width, H: height, RGB: make([]byte, 3*width*height)}
	w.Render(p.RGB, width, height)
	return state, p
}

// each changes every pixel.
func each(change func(pixel []byte)) func(*trained.Picture) {
	return func(p *trained.Picture) {
		for i := 0; i < len(p.RGB); i += 3 {
			change(p.RGB[i : i+3])
		}
	}
}

func scaled(by, plus float64) func(*trained.Picture) {
	return each(func(pixel []byte) {
		for i, x := range pixel {
			pixel[i] = byte(min(255, by*float64(x)+plus))
		}
	})
}

// turn turns a picture upside down.
func turn(p *trained.Picture) {
	slices.Reverse(p.RGB)
	each(func(pixel []byte) { pixel[0], pixel[2] = pixel[2], pixel[0] })(p)
}

// The check reports nothing for the first observations of 1,000 scenes of the demo that are not part of the statistics,
// also with half their light or with another white balance. It reports each fault in at least 99 of 100 scenes.
func TestNoFalseAlarm(t *testing.T) {
	s := demoStatistics(t)
	for _, tt := range []struct {
		name   string
		change func(*trained.Picture)
		says   string
		scenes uint64
	}{
		{"as it is", func(*trained.Picture) {}, "", 1000},
		{"half the light", scaled(0.5, 0), "", 200},
		{"warm light", each(func(pixel []byte) { pixel[2] = byte(0.8 * float64(pixel[2])) }), "", 200},
		{"cold light", each(func(pixel []byte) { pixel[0] = byte(0.8 * float64(pixel[0])) }), "", 200},
		{"dark", scaled(0.1, 0), "too dark", 100},
		{"bright", scaled(0.1, 235), "too bright", 100},
		{"red and blue", each(func(pixel []byte) { pixel[0], pixel[2] = pixel[2], pixel[0] }), "red and blue", 100},
		{"upside down", turn, "upside down", 100},
	} {
		wrong := uint64(0)
		for seed := range tt.scenes {
			state, p := observe(1_000_000 + seed)
			tt.change(&p)
			found := s.Examine(joints, state, []trained.Picture{p})
			if tt.says == "" && len(found) > 0 || tt.says != "" &&
				(len(found) != 1 || !strings.Contains(found[0], tt.says)) {
				if wrong++; wrong == 1 {
					t.Logf("%s, seed %d: %q", tt.name, seed, found)
				}
			}
		}
		if t.Logf("%s: %d of %d scenes wrong", tt.name, wrong, tt.scenes); tt.says == "" && wrong > 0 ||
			100*wrong > tt.scenes {
			t.Errorf("%s: %d of %d scenes wrong", tt.name, wrong, tt.scenes)
		}
	}
}
