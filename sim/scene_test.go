package sim

import (
	"fmt"
	"math"
	"testing"
)

// renderSlowly paints every shape into every pixel, as the definition demands. It is the oracle for
// the spans and short cuts of Render.
func renderSlowly(s scene, width, height int) []byte {
	mpp := 0.004 * max(160/float64(width), 120/float64(height))
	e, tip := reach(s.Pan, s.Elbow)
	base := Point{0, -0.35}
	shapes := []capsule{
		{s.Target, s.Target, 0.018, colour{220, 30, 30}}, {s.Post, s.Post, 0.050, colour{70, 70, 70}},
		{base, e, 0.012, colour{60, 90, 200}}, {e, tip, 0.010, colour{60, 90, 200}},
		{tip, tip, 0.014, colour{20, 160, 60}},
	}
	pix := make([]byte, 0, width*height*3)
	for row := range height {
		for col := range width {
			x := (float64(col) + 0.5 - float64(width)/2) * mpp
			y := (float64(height)/2 - float64(row) - 0.5) * mpp
			c := colour{225, 225, 225}
			for _, k := range shapes {
				abx, aby := k.b.X-k.a.X, k.b.Y-k.a.Y
				t := (float64((x-k.a.X)*abx) + float64((y-k.a.Y)*aby)) / (float64(abx*abx) + float64(aby*aby) + 1e-9)
				t = min(max(t, 0), 1)
				dx, dy := x-k.a.X-float64(t*abx), y-k.a.Y-float64(t*aby)
				w := (k.r-math.Sqrt(float64(dx*dx)+float64(dy*dy)))/mpp + 0.5
				w = min(max(w, 0), 1)
				for i := range c {
					c[i] += float64(w * (k.paint[i] - c[i]))
				}
			}
			for _, v := range c {
				pix = append(pix, byte(math.RoundToEven(v)))
			}
		}
	}
	return pix
}

func TestRenderEqualsItsDefinitionAtEverySize(t *testing.T) {
	scenes := []scene{{Pan: 90, Elbow: 0, Target: Point{0.9, 0.9}}, {Pan: 0, Elbow: 0, Post: Point{0.3, -0.2}},
		{Pan: -180, Elbow: 180}}
	for seed := range uint64(6) {
		w := NewWorld(seed, 1)
		scenes = append(scenes, w.scene())
	}
	for _, size := range [][2]int{{160, 120}, {161, 119}, {331, 240}, {64, 200}, {5, 3}, {1, 1}} {
		got := make([]byte, size[0]*size[1]*3)
		for i, s := range scenes {
			s.render(got, size[0], size[1])
			want := renderSlowly(s, size[0], size[1])
			for k := range want {
				if got[k] != want[k] {
					t.Fatalf("scene %d at %dx%d: pixel %d,%d = %v, want %v", i, size[0], size[1],
						k/3%size[0], k/3/size[0], got[k/3*3:k/3*3+3], want[k/3*3:k/3*3+3])
				}
			}
		}
	}
}

func TestRenderRefusesImpossibleSizes(t *testing.T) {
	for _, size := range [][2]int{{0, 10}, {10, 0}, {-1, 10}, {MaxSide + 1, 10}, {10, MaxSide + 1}} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Errorf("Render(%d, %d) does not panic", size[0], size[1])
				}
			}()
			new(scene).render(make([]byte, 1<<20), size[0], size[1])
		})
	}
}
