package trained

import (
	"fmt"
	"math"
	"slices"
)

// The limits of the comparison. TestNoFalseAlarm measures how many false alarms and missed faults
// they cause.
const (
	// stateMargin is the share of a joint's trained range by which the joint may start outside this range, like the
	// limits that the exporter writes. stateLeast is the least margin, in the robot's units (degrees, percent), because
	// a joint that never moved in the training does not return to exactly the same place.
	stateMargin = 0.1
	stateLeast  = 2

	// A picture is too dark if its brightness is below darkShare of the trained brightness, and too bright if its
	// distance from white is below darkShare of the trained distance. It must also be darker or brighter than all
	// frames of the training, by lightShare.
	darkShare  = 0.3
	lightShare = 0.7
	lightLeast = 0.05 // difference of brightness that is always permitted

	// A picture differs from a reference by the mean square of its cells' deviations, after the best gain of each
	// channel. The unit of a deviation is the training's standard deviation of the cell, at least cellLeast. So the
	// difference is about 1 for a usual frame of the training, in any light. A picture has a fault when its own
	// difference exceeds the constant unlike, and that of another form of the picture (red and blue exchanged, upside
	// down, another camera's picture) is below the constant alike and below the product of the picture's own difference
	// and the constant better.
	cellLeast = 0.01
	usualMin  = 0.05
	gainMost  = 4.0
	unlike    = 2
	alike     = 1.5
	better    = 0.5

	// Without a grid, red and blue count as exchanged if the difference of their means has the other sign than in the
	// training, and if both differences exceed colourLeast.
	colourLeast = 0.06
)

// Picture is a camera's picture: 3*W*H bytes, RGB, row by row from the top.
type Picture struct {
	Name string
	W, H int
	RGB  []byte
}

// Examine compares an observation with the training. The parameter state has the positions of the joints, in the order
// of joints. Each finding is a sentence that names the joint or the camera, and the cure.
func (s *Statistics) Examine(joints []string, state []float32, pictures []Picture) (findings []string) {
	findings = s.examineState(joints, state)
	views := make([]view, 0, len(pictures))
	for _, p := range pictures {
		for i := range s.Cameras {
			if c := &s.Cameras[i]; c.Name == p.Name && p.W >= Side && p.H >= Side && len(p.RGB) == 3*p.W*p.H {
				views = append(views, view{camera: c, grid: reduce(&p)})
			}
		}
	}
	for i := range views {
		for j := range views[:i] {
			if exchanged(&views[j], &views[i]) {
				views[i].told, views[j].told = true, true
				findings = append(findings, fmt.Sprintf("cameras %s and %s are exchanged: each shows the picture that "+
					"the other had in the training; exchange their sources in --camera", views[j].camera.Name,
					views[i].camera.Name))
			}
		}
	}
	for i := range views {
		if v := &views[i]; !v.told {
			findings = append(findings, v.examine()...)
		}
	}
	return findings
}

func (s *Statistics) examineState(joints []string, state []float32) (findings []string) {
	if len(s.State.Min) != len(state) || len(joints) != len(state) {
		return nil
	}
	for i, x := range state {
		low, high := s.State.Min[i], s.State.Max[i]
		margin := max(stateMargin*(high-low), stateLeast)
		if v := float64(x); v < low-margin || v > high+margin {
			findings = append(findings,
				fmt.Sprintf("joint %s is at %.1f, and the training had %.1f to %.1f: move the arm "+
					"to where the demonstrations began, or check its calibration", joints[i], v, low, high))
		}
	}
	return findings
}

// view is a picture together with its camera's reference.
type view struct {
	camera *Camera
	grid   []float64 // grid of the picture, in the form of Camera.Grid
	told   bool      // another finding already explains this picture's difference
}

// reduce returns the mean of each cell.
func reduce(p *Picture) []float64 {
	grid := make([]float64, Side*Side*3)
	for row := range Side {
		top, bottom := row*p.H/Side, (row+1)*p.H/Side
		for column := range Side {
			left, right := column*p.W/Side, (column+1)*p.W/Side
			var sum [3]int
			for y := top; y < bottom; y++ {
				for x := left; x < right; x++ {
					pixel := p.RGB[3*(y*p.W+x):]
					sum[0] += int(pixel[0])
					sum[1] += int(pixel[1])
					sum[2] += int(pixel[2])
				}
			}
			for channel, total := range sum {
				grid[3*(row*Side+column)+channel] = float64(total) / float64(255*(bottom-top)*(right-left))
			}
		}
	}
	return grid
}

func (v *view) examine() (findings []string) {
	name, had := v.camera.Name, mean(v.camera.Mean)
	dark, bright := had, had
	if len(v.camera.Light) == 2 {
		dark, bright = v.camera.Light[0], v.camera.Light[1]
	}
	switch is := mean(v.grid); {
	case is < darkShare*had && is < lightShare*dark && is < had-lightLeast:
		return []string{fmt.Sprintf("camera %s is too dark: its mean brightness is %.0f %%, and the training had "+
			"%.0f %%: switch the light on, take the cap off, or set exposure=", name, 100*is, 100*had)}
	case 1-is < darkShare*(1-had) && 1-is < lightShare*(1-bright) && is > had+lightLeast:
		return []string{fmt.Sprintf("camera %s is too bright: its mean brightness is %.0f %%, and the training had "+
			"%.0f %%: shade the scene, or set exposure=", name, 100*is, 100*had)}
	}
	if v.swapped() {
		findings = append(findings,
			fmt.Sprintf("camera %s has red and blue exchanged: choose another format= in --camera, or mend the "+
				"program that delivers its pictures", name))
	}
	if v.explains(turned(v.grid)) {
		findings = append(findings,
			fmt.Sprintf("camera %s is upside down: turn it, or add rotate=180 to its --camera", name))
	}
	return findings
}

// explains reports whether grid, another form of the camera's picture, looks like a frame of the
// training while the picture itself does not.
func (v *view) explains(grid []float64) bool {
	is, other := v.camera.differs(v.grid), v.camera.differs(grid)
	return is > unlike && other < min(alike, better*is)
}

// swapped reports whether red and blue are exchanged.
func (v *view) swapped() bool {
	if len(v.camera.Grid) > 0 {
		return v.explains(exchangedColours(v.grid))
	}
	var red, blue float64
	for i := 0; i < len(v.grid); i += 3 {
		red += v.grid[i] / (Side * Side)
		blue += v.grid[i+2] / (Side * Side)
	}
	had, now := v.camera.Mean[0]-v.camera.Mean[2], red-blue
	return min(math.Abs(had), math.Abs(now)) > colourLeast && had*now < 0
}

// exchanged reports whether each of two cameras shows the other's picture.
func exchanged(a, b *view) bool { return a.explains(b.grid) && b.explains(a.grid) }

func exchangedColours(grid []float64) []float64 {
	of := slices.Clone(grid)
	for i := 0; i < len(of); i += 3 {
		of[i], of[i+2] = of[i+2], of[i]
	}
	return of
}

// turned returns the grid of the picture turned upside down.
func turned(grid []float64) []float64 {
	of := exchangedColours(grid)
	slices.Reverse(of)
	return of
}

// differs returns the difference of a picture from the camera's reference, or 0 when the camera has no reference.
func (c *Camera) differs(grid []float64) float64 {
	if len(c.Grid) == 0 {
		return 0
	}
	var gain [3]float64
	for channel := range gain {
		var square, product float64
		for i := channel; i < len(grid); i += 3 {
			square += grid[i] * grid[i] / c.variance(i)
			product += grid[i] * c.Grid[i] / c.variance(i)
		}
		gain[channel] = 1
		if square > 0 {
			gain[channel] = max(1/gainMost, min(gainMost, product/square))
		}
	}
	var is, usual float64
	for i, x := range grid {
		d := gain[i%3]*x - c.Grid[i]
		is += d * d / c.variance(i)
		usual += c.GridStd[i] * c.GridStd[i] / c.variance(i)
	}
	return is / max(usual, usualMin*float64(len(grid)))
}

// variance returns the square of a cell's standard deviation, where a deviation below cellLeast
// counts as cellLeast.
func (c *Camera) variance(i int) float64 {
	d := max(c.GridStd[i], cellLeast)
	return d * d
}

func mean(values []float64) (m float64) {
	for _, v := range values {
		m += v
	}
	return m / float64(len(values))
}
