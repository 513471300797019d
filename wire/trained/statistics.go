// Package trained describes the observations of a policy's training, and compares a robot's first observation
// with them: joints outside the trained range, and pictures that are too dark or too bright, that have red and
// blue exchanged, that are upside down, or that come from each other's cameras.
//
// An exporter writes the statistics into a bundle (statistics.json), a server sends them when a session opens, and
// a robot compares before its arm gets torque.
package trained

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/edge-rt/edge-rt/wire"
)

const (
	maxJoints  = 1024
	maxCameras = 16
)

// Side is the number of cells of a picture's reference in each direction.
const Side = 8

// Statistics describes the observations of a training. Parse ignores other keys.
type Statistics struct {
	State   State    `json:"state"`
	Cameras []Camera `json:"cameras"`
}

// State is the range of the joints, in the policy's order and in the robot's units. Both slices are empty when the
// range is not known.
type State struct {
	Min []float64 `json:"min"`
	Max []float64 `json:"max"`
}

// Camera describes the pictures of one camera. All values are shares of full brightness, 0 to 1.
type Camera struct {
	Name  string    `json:"name"`  // as the policy names it, such as top
	Mean  []float64 `json:"mean"`  // [3] of all pixels: red, green, blue
	Light []float64 `json:"light"` // [2] the darkest and the brightest frame's mean; empty: not known
	// [Side][Side][3] mean and standard deviation of each cell over frames, row by row; empty: not known
	Grid    []float64 `json:"grid"`
	GridStd []float64 `json:"grid_std"`
}

// Parse reads statistics, which may come from an untrusted sender. The error names the key, its value and the permitted
// values.
func Parse(text []byte) (*Statistics, error) {
	if len(text) > wire.MaxStatisticsBytes {
		return nil, fmt.Errorf("%d bytes, want at most %d", len(text), wire.MaxStatisticsBytes)
	}
	s := new(Statistics)
	if err := json.Unmarshal(text, s); err != nil {
		return nil, err
	}
	return s, s.check()
}

func (s *Statistics) check() error {
	low, high := s.State.Min, s.State.Max
	if len(low) != len(high) || len(low) > maxJoints {
		return fmt.Errorf("state has %d values of min and %d of max, want one of each for a joint", len(low), len(high))
	}
	for i := range low {
		if !(low[i] <= high[i]) || math.IsInf(high[i]-low[i], 0) {
			return fmt.Errorf("state.min[%d] is %v and state.max[%[1]d] %[3]v, want finite numbers in this order",
				i, low[i], high[i])
		}
	}
	if len(s.Cameras) > maxCameras {
		return fmt.Errorf("%d cameras, want at most %d", len(s.Cameras), maxCameras)
	}
	for i, c := range s.Cameras {
		if err := c.check(); err != nil {
			return fmt.Errorf("camera %q: %w", c.Name, err)
		}
		if slices.ContainsFunc(s.Cameras[:i], func(o Camera) bool { return o.Name == c.Name }) {
			return fmt.Errorf("camera %q is there twice", c.Name)
		}
	}
	return nil
}

func (c *Camera) check() error {
	if c.Name == "" {
		return errors.New("name is empty, want the policy's")
	}
	for _, v := range []struct {
		key    string
		values []float64
		size   int
		must   bool
	}{{"mean", c.Mean, 3, true}, {"light", c.Light, 2, false}, {"grid", c.Grid, Side * Side * 3, false},
		{"grid_std", c.GridStd, Side * Side * 3, len(c.Grid) > 0}} {
		if len(v.values) != v.size && (v.must || len(v.values) > 0) {
			return fmt.Errorf("%s has %d values, want %d", v.key, len(v.values), v.size)
		}
		if i := slices.IndexFunc(v.values, func(x float64) bool { return !(x >= 0 && x <= 1) }); i >= 0 {
			return fmt.Errorf("%s[%d] is %v, want 0 to 1", v.key, i, v.values[i])
		}
	}
	if !slices.IsSorted(c.Light) {
		return fmt.Errorf("light is %v, want the darkest frame before the brightest", c.Light)
	}
	return nil
}
