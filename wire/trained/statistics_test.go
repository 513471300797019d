package trained

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// plain returns a grey picture. The parameters left and right are the brightness of its two halves.
func plain(name string, left, right byte) Picture {
	const w, h = 16, 16
	p := Picture{Name: name, W: w, H: h}
	for i := range w * h {
		x := left
		if i%w >= w/2 {
			x = right
		}
		p.RGB = append(p.RGB, x, x, x)
	}
	return p
}

// reference returns the statistics of a camera that always delivers p.
func reference(p Picture) Camera {
	return Camera{Name: p.Name, Mean: []float64{0.5, 0.5, 0.5}, Grid: reduce(&p), GridStd: make([]float64, Side*Side*3)}
}

func TestExchangedCameras(t *testing.T) {
	front, wrist := plain("front", 30, 200), plain("wrist", 200, 30)
	s := Statistics{Cameras: []Camera{reference(front), reference(wrist)}}
	if found := s.Examine(nil, nil, []Picture{front, wrist}); found != nil {
		t.Errorf("cameras in their places: %q", found)
	}
	front.RGB, wrist.RGB = wrist.RGB, front.RGB
	if found := s.Examine(nil, nil, []Picture{front, wrist}); len(found) != 1 ||
		!strings.Contains(found[0], "cameras front and wrist are exchanged") {
		t.Errorf("exchanged cameras: %q", found)
	}
}

// Without a grid only brightness and the mean of the colours are compared.
func TestMeansOnly(t *testing.T) {
	s := Statistics{Cameras: []Camera{{Name: "top", Mean: []float64{0.6, 0.5, 0.3}}}}
	p := plain("top", 80, 80)
	for i := 0; i < len(p.RGB); i += 3 {
		p.RGB[i], p.RGB[i+2] = 70, 160
	}
	if found := s.Examine(nil, nil, []Picture{p}); len(found) != 1 || !strings.Contains(found[0], "red and blue") {
		t.Errorf("blue instead of red: %q", found)
	}
	if found := s.Examine(nil, nil, []Picture{plain("top", 60, 160)}); found != nil {
		t.Errorf("grey: %q", found)
	}
}

func TestParseRefuses(t *testing.T) {
	for text, says := range map[string]string{
		`{`:                                                                             "unexpected end",
		`{"state": {"min": [1], "max": []}}`:                                            "1 values of min and 0 of max",
		`{"state": {"min": [1], "max": [0]}}`:                                           "state.min[0] is 1 and state.max[0] 0, want",
		`{"cameras": [{"mean": [0,0,0]}]}`:                                              "name is empty",
		`{"cameras": [{"name": "a", "mean": [0,0]}]}`:                                   `camera "a": mean has 2 values, want 3`,
		`{"cameras": [{"name": "a", "mean": [0,0,2]}]}`:                                 "mean[2] is 2, want 0 to 1",
		`{"cameras": [{"name": "a", "mean": [0,0,0], "grid": [0]}]}`:                    "grid has 1 values, want 192",
		`{"cameras": [{"name": "a", "mean": [0,0,0], "light": [1,0]}]}`:                 "light is [1 0], want",
		`{"cameras": [{"name": "a", "mean": [0,0,0]}, {"name": "a", "mean": [0,0,0]}]}`: "twice",
		`{"cameras": [` + strings.Repeat(`{"name": "a"},`, maxCameras) +
			`{"name": "b"}]}`: "17 cameras, want at most 16",
		strings.Repeat(" ", 70_000): "70000 bytes, want at most 65536",
	} {
		rttest.Fails(t, rttest.Err(Parse([]byte(text))), says)
	}
}

// Property: Parse does not panic on any text, and statistics that it accepts can be compared with any picture.
func FuzzParse(f *testing.F) {
	c := reference(plain("top", 30, 200))
	f.Add(rttest.Must(json.Marshal(Statistics{State{[]float64{0}, []float64{1}}, []Camera{c}}))(f))
	f.Add([]byte(`{"cameras": [{"name": "top", "mean": [0.1, 0.5, 1]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		state := make([]float32, len(s.State.Min))
		joints := slices.Repeat([]string{"pan"}, len(state))
		s.Examine(joints, state, []Picture{plain("top", 0, 255), plain("top", 0, 0)})
	})
}
