package jpeg

import (
	"bytes"
	"context"
	"math"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestSpeedOf(t *testing.T) {
	const rgb = "\nWarmup time = 0.1 seconds\n\nPixel      JPEG\nRGB  (TD)  4:2:2    90    640    480     55.73   " +
		"14.65   75.50   \n"
	const yuv = "RGB  (TD)  4:2:2    90    640    480     231.2   73.45   14.65   100.8   410.1\n"
	for _, tt := range []struct {
		out  string
		ref  reference
		want float64
	}{
		{rgb, reference{"422", false, false}, 55.73}, {rgb, reference{"422", false, true}, 75.5},
		{yuv, reference{"422", true, false}, 73.45}, {yuv, reference{"422", true, true}, 100.8},
	} {
		rttest.Want(t, rttest.Must(speedOf(tt.out, tt.ref))(t), tt.want, "speedOf(%+v)", tt.ref)
	}
	rttest.Fails(t, rttest.Err(speedOf("nothing\n", reference{})))
}

func TestReportTakesNeighbours(t *testing.T) {
	r := newReport(Config{Size: Size{2, 2}}, []subject{{name: "a"}, {name: "b"}})
	for _, v := range [][2]float64{{2, 1}, {30, 20}, {9, 10}} {
		r.add("a", v[0], v[1], 0.4)
	}
	r.add("b", 1, 0, 3)
	r.finish()
	a, b := r.Results[0], r.Results[1]
	if a.MS != 9 || a.Tjbench != 10 || a.Ratio != 1.5 || a.BestRatio != 2 || a.Allocs != 0 {
		t.Errorf("a = %+v, want 9 and 10 ms, ratio 1.5, best 2, no allocation", a)
	}
	if b.Ratio != 0 || b.Allocs != 3 {
		t.Errorf("b = %+v, want no ratio and 3 allocations", b)
	}
	var out bytes.Buffer
	if r.WriteTable(&out); !strings.Contains(out.String(), "1.50") {
		t.Errorf("table %q lacks the ratio", out.String())
	}
}

// One round of the real measurement has every figure, and allocates nothing.
func TestMeasure(t *testing.T) {
	if _, err := exec.LookPath("tjbench"); err != nil {
		rttest.Ends(t, rttest.Err(Measure(context.Background(),
			Config{Size: Size{64, 64}, Quality: 90})), exit.Usage, "libjpeg-turbo-progs")
		t.Skip("needs tjbench")
	}
	r := rttest.Must(Measure(context.Background(),
		Config{Size: Size{160, 120}, Quality: 90, Duration: time.Millisecond}))(t)
	for _, res := range r.Results {
		if !(res.MS > 0) || res.Allocs != 0 || math.IsNaN(res.Ratio) || res.Name != "pass MJPEG through" &&
			!(res.Tjbench > 0) {
			t.Errorf("%+v, want times and no allocation", res)
		}
	}
	for _, bad := range []Config{{Size: Size{63, 64}, Quality: 90}, {Size: Size{640, 5000}, Quality: 90},
		{Size: Size{640, 480}}, {Size: Size{641, 480}, Quality: 90}} {
		rttest.Ends(t, rttest.Err(Measure(context.Background(), bad)), exit.Usage)
	}
}

func TestSize(t *testing.T) {
	var s Size
	if err := s.UnmarshalText([]byte("640x480")); err != nil || s != (Size{640, 480}) || s.String() != "640x480" {
		t.Errorf("640x480 is %v, %v", s, err)
	}
	for _, bad := range []string{"", "640", "640x", "640x480x3", "ax480", "640x480 "} {
		if err := s.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q is %v, want an error", bad, s)
		}
	}
}
