package smoothing

import (
	"math"
	"slices"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func goldens[T any](t *testing.T, file, name string) []T {
	t.Helper()
	return rttest.Cases[T](t, "../../testdata/golden/"+file, name)
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-11*max(1, math.Abs(b)) }

// scipy's own coefficients, 72 sets, relative to 1e-11.
func TestButterworthDesignGolden(t *testing.T) {
	type golden struct {
		FPS, Cutoff float64
		Order       int
		SOS         [][6]float64
	}
	for _, c := range goldens[golden](t, "drtc.json", "butter_sos") {
		got := design(c.Cutoff, c.FPS, c.Order)
		if len(got) != len(c.SOS) {
			t.Fatalf("%v Hz at %v, order %d: %d sections, want %d", c.Cutoff, c.FPS, c.Order, len(got), len(c.SOS))
		}
		for i, s := range got {
			for k, v := range []float64{s.b0, s.b1, s.b2, 1, s.a1, s.a2} {
				if w := c.SOS[i][k]; math.Abs(v-w) > 1e-11*math.Abs(w)+1e-15 {
					t.Errorf("%v Hz at %v, order %d, section %d: coefficient %d is %v, want %v", c.Cutoff, c.FPS,
						c.Order, i, k, v, w)
				}
			}
		}
	}
}

type filterCase struct {
	Name              string
	FPS, Cutoff, Gain float64
	Order             int
	DType             string
	X, Y              [][]float64
}

// The filter returns the same rows as the DRTC program's filter, which uses scipy's sosfilt, also with the gains of 2
// and more that newButterworth refuses.
func TestButterworthGolden(t *testing.T) {
	for _, c := range goldens[filterCase](t, "drtc.json", "filter") {
		t.Run(c.Name, func(t *testing.T) {
			dof := len(c.X[0])
			f := filterOf(design(c.Cutoff, c.FPS, c.Order), c.Gain, dof)
			if c.DType == "<f4" {
				compareFloat32(t, f, c)
				return
			}
			n := len(f.sections)
			for j := range dof {
				z, last := f.now.z[j*n:(j+1)*n], c.X[0][j]
				f.settle(z, last)
				for i := 1; i < len(c.X); i++ {
					if last = f.step(z, last, c.X[i][j]); !near(last, c.Y[i][j]) {
						t.Fatalf("joint %d, step %d: %v, want %v", j, i, last, c.Y[i][j])
					}
				}
			}
		})
	}
}

func compareFloat32(t *testing.T, f *butterworth, c filterCase) {
	for i, x := range c.X {
		row := make([]float32, len(x))
		for j, v := range x {
			row[j] = float32(v)
		}
		f.apply(row)
		for j, v := range row {
			if math.Abs(float64(v)-c.Y[i][j]) > 1e-6 {
				t.Errorf("step %d: %v, want %v", i, row, c.Y[i])
			}
		}
	}
}

func TestButterworthRefuses(t *testing.T) {
	good := Config{Cutoff: 3, Order: 2, Gain: 1.4}
	rttest.Must(newButterworth(good, 60, 6))(t)
	if f, err := newButterworth(Config{Cutoff: 3}, 60, 1); err != nil || f.gain != 1 || len(f.sections) != 1 {
		t.Errorf("without order and gain: %+v, %v, want order 2 and gain 1", f, err)
	}
	for name, change := range map[string]func(*Config){
		"no cutoff":         func(c *Config) { c.Cutoff = 0 },
		"a cutoff too high": func(c *Config) { c.Cutoff = 30 },
		"no number":         func(c *Config) { c.Cutoff = math.NaN() },
		"order 5":           func(c *Config) { c.Order = 5 },
		"a negative order":  func(c *Config) { c.Order = -1 },
		"a gain of 2":       func(c *Config) { c.Gain = 2 },
		"a negative gain":   func(c *Config) { c.Gain = -1 },
	} {
		c := good
		change(&c)
		if _, err := newButterworth(c, 60, 6); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Preview predicts Apply and changes no state. After Reset the next row passes unchanged.
func TestButterworthPreviewAndReset(t *testing.T) {
	f := rttest.Must(newButterworth(Config{Cutoff: 3, Order: 3, Gain: 1.4}, 60, 2))(t)
	next := func(i int) []float32 { return []float32{float32(i % 5), float32(-3 * i)} }
	preview := func(from, n int) (rows []float32) {
		for i := range n {
			rows = append(rows, next(from+i)...)
		}
		f.preview(rows)
		return rows
	}
	for _, start := range []int{0, 4} { // rows that run before the preview
		want := preview(start, 4)
		if again := preview(start, 4); !slices.Equal(want, again) {
			t.Fatalf("Preview changed the filter: %v, then %v", want, again)
		}
		var got []float32
		for i := range 4 {
			row := next(start + i)
			f.apply(row)
			got = append(got, row...)
		}
		if !slices.Equal(got, want) {
			t.Errorf("from row %d: Apply made %v, Preview said %v", start, got, want)
		}
	}
	f.reset()
	row := []float32{77, -7}
	if f.apply(row); row[0] != 77 || row[1] != -7 {
		t.Errorf("the first row after Reset is %v, want as it came", row)
	}
}

func TestInterpolatorGolden(t *testing.T) {
	type golden struct {
		Multiplier int
		In         [][]float32
		Out        []struct {
			A      []float32
			Policy bool
		}
	}
	for _, c := range goldens[golden](t, "lerobot.json", "interpolator") {
		p := rttest.Must(newInterpolator(c.Multiplier, len(c.In[0])))(t)
		in := c.In
		for i, want := range c.Out {
			if p.needsAction() {
				p.add(in[0])
				in = in[1:]
			}
			if got, policy := p.next(), p.index == p.count; !slices.Equal(got, want.A) || policy != want.Policy {
				t.Errorf("x%d, tick %d: %v of the policy %v, want %v %v", c.Multiplier, i, got, policy, want.A,
					want.Policy)
			}
		}
		if len(in) > 0 || !p.needsAction() || p.next() != nil {
			t.Errorf("x%d: %d actions left, or something after the last", c.Multiplier, len(in))
		}
		p.reset()
		p.add(c.In[1])
		if got := p.next(); !slices.Equal(got, c.In[1]) || !p.needsAction() {
			t.Errorf("x%d: after Reset %v and more, want the action alone", c.Multiplier, got)
		}
	}
	for _, n := range []int{0, -1, maxMultiplier + 1} {
		if _, err := newInterpolator(n, 1); err == nil {
			t.Errorf("a multiplier of %d: no error", n)
		}
	}
}

// follow applies limits to a goal for the given ticks at 60 Hz, checks that the limits hold, and returns the positions.
func follow(t *testing.T, speed, accel float64, ticks int, goal func(tick int) float64) (at []float64) {
	t.Helper()
	const rate = 60
	l := rttest.Must(newRateLimit(speed, accel, rate, 1))(t)
	l.reset([]float32{0})
	var before, v float64
	for tick := range ticks {
		row := []float32{float32(goal(tick))}
		l.apply(row)
		next := float64(row[0])
		now := (next - before) * rate
		if speed > 0 && math.Abs(now) > speed*1.001 {
			t.Fatalf("tick %d: velocity %v, want at most %v", tick, now, speed)
		}
		if accel > 0 && math.Abs(now-v)*rate > accel*1.01 {
			t.Fatalf("tick %d: acceleration %v, want at most %v", tick, (now-v)*rate, accel)
		}
		before, v = next, now
		at = append(at, next)
	}
	return at
}

// After a step of the goal the joint moves without overshoot, and ends exactly at the goal.
func TestRateLimit(t *testing.T) {
	for _, c := range []struct {
		name         string
		speed, accel float64
		fewest       int // smallest number of ticks to reach the goal
	}{
		{"neither", 0, 0, 1}, {"velocity", 30, 0, 100}, {"acceleration", 0, 200, 58}, {"both", 30, 200, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			const goal = 50
			at := follow(t, c.speed, c.accel, 400, func(int) float64 { return goal })
			took := slices.IndexFunc(at, func(x float64) bool { return x >= goal }) + 1
			if slices.Max(at) != goal || at[399] != goal || took < c.fewest || took > c.fewest+c.fewest/3+3 {
				t.Errorf("at %v after %d ticks, at most %v, want %v after about %d", at[399], took, slices.Max(at),
					goal, c.fewest)
			}
		})
	}
}

func TestRateLimitPreviewRestAndNaN(t *testing.T) {
	l := rttest.Must(newRateLimit(30, 100, 60, 1))(t)
	row := []float32{5}
	if l.preview(row, 1); row[0] != 5 {
		t.Errorf("Preview before anything ran = %v, want 5", row)
	}
	l.apply(row) // the first passes
	for range 5 {
		l.apply([]float32{9})
	}
	rows := []float32{9, 9, 2}
	l.preview(rows, 1)
	for i, x := range []float32{9, 9, 2} {
		one := []float32{x}
		if l.apply(one); one[0] != rows[i] {
			t.Errorf("row %d: Apply made %v, Preview said %v", i, one[0], rows[i])
		}
	}
	nan := []float32{float32(math.NaN())}
	if l.apply(nan); !math.IsNaN(float64(nan[0])) || l.v[0] != 0 {
		t.Errorf("NaN became %v at velocity %v, want it untouched and the joint at rest", nan, l.v[0])
	}
	l.v[0] = 3
	if l.rest(); l.v[0] != 0 {
		t.Error("Rest left a velocity")
	}
	for _, bad := range [][3]float64{{-1, 0, 60}, {0, -1, 60}, {0, 0, 0}, {math.NaN(), 0, 60}} {
		if _, err := newRateLimit(bad[0], bad[1], bad[2], 1); err == nil {
			t.Errorf("limits %v: no error", bad)
		}
	}
}

func TestStagesNoAlloc(t *testing.T) {
	f, _ := newButterworth(Config{Cutoff: 3, Order: 4, Gain: 1.4}, 60, 6)
	p, _ := newInterpolator(2, 6)
	l, _ := newRateLimit(30, 100, 120, 6)
	row, rows := make([]float32, 6), make([]float32, 60)
	rttest.NoAllocs(t, "%v allocations per tick, want 0", 200, func() {
		if p.needsAction() {
			f.apply(row)
			p.add(row)
		}
		l.apply(p.next())
		f.preview(rows)
		l.preview(rows, 2)
		l.rest()
	})
}

// Without any stage an action passes unchanged. With all stages, the filter gets actions, the limits get ticks, and
// Preview predicts the result.
func TestChain(t *testing.T) {
	plain := rttest.Must(NewChain(Config{}, 60, 2))(t)
	row := []float32{1.5, -2}
	plain.Preview(row)
	plain.Add(row)
	if got := plain.Next(); !slices.Equal(got, row) || !plain.NeedsAction() || plain.Next() != nil ||
		plain.Multiplier() != 1 {
		t.Errorf("without stages %v became %v, or more", row, got)
	}
	c := rttest.Must(NewChain(Config{Cutoff: 3, Gain: 1.4, Multiplier: 2, Velocity: 20, Accel: 300}, 30, 1))(t)
	c.Reset([]float32{0})
	c.Add([]float32{0})
	if c.Next() == nil || !c.NeedsAction() {
		t.Fatal("the first action lasts longer than a tick")
	}
	rows := []float32{5, 5, 5, 0}
	want := slices.Clone(rows)
	c.Preview(want)
	for i, x := range rows {
		c.Add([]float32{x})
		c.Next()
		if got := c.Next(); math.Abs(float64(got[0]-want[i])) > 0.05 || !c.NeedsAction() {
			t.Errorf("action %d ends at %v, Preview said %v", i, got, want[i])
		}
	}
	if c.Next() != nil || c.limit.v[0] != 0 {
		t.Error("a tick without an action leaves a velocity")
	}
	c.limit.v[0] = 1
	if c.Rest(); c.limit.v[0] != 0 {
		t.Error("Rest leaves a velocity")
	}
	for _, bad := range []Config{{Order: 2}, {Gain: 1}, {Cutoff: 99}, {Multiplier: -1}, {Velocity: -1}, {Accel: -1}} {
		if _, err := NewChain(bad, 60, 1); err == nil {
			t.Errorf("%+v: no error", bad)
		}
	}
}

// The bounds hold in both directions, and through a reversal at full speed.
func TestRateLimitBothWays(t *testing.T) {
	for _, c := range []struct{ speed, accel float64 }{{30, 0}, {0, 200}, {30, 200}} {
		for name, goal := range map[string]func(tick int) float64{
			"down":       func(int) float64 { return -50 },
			"up, down":   func(tick int) float64 { return 50 - 100*float64(tick/30%2) },
			"down, up":   func(tick int) float64 { return 100*float64(tick/30%2) - 50 },
			"up, behind": func(tick int) float64 { return 50 - 60*float64(min(tick/30, 1)) },
		} {
			at := follow(t, c.speed, c.accel, 60, goal)
			if name == "down" && at[59] > -25 { // full velocity would reach -30 in this second
				t.Errorf("%s, %+v: at %v after a second, want on its way down", name, c, at[59])
			}
		}
	}
}

// Goal: a reset clears the state of the filter, the interpolator and the limits: the next action
// passes the filter unchanged.
func TestChainReset(t *testing.T) {
	c := rttest.Must(NewChain(Config{Cutoff: 3, Multiplier: 2, Velocity: 600, Accel: 36000}, 60, 1))(t)
	for range 20 {
		c.Add([]float32{90})
		c.Next()
		c.Next()
	}
	c.Add([]float32{90}) // an action whose ticks have not run
	c.Reset([]float32{5})
	if !c.NeedsAction() || c.Next() != nil {
		t.Error("after Reset an earlier tick is left")
	}
	c.Reset([]float32{5})
	c.Add([]float32{6})
	if got := c.Next(); len(got) != 1 || got[0] != 6 {
		t.Errorf("the first action after Reset to 5 runs as %v, want 6 as it came", got)
	}
}
