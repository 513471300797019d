package camera

import (
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestGridKeepsItsRateForever(t *testing.T) {
	for _, tt := range []struct {
		fps  int
		k    uint64
		want time.Duration
	}{
		{30, 0, 0},
		{30, 1, 33_333_334},
		{30, 3, 100 * time.Millisecond},
		{60, 1, 16_666_667},
		{60, 60 * 3600 * 24 * 365, 365 * 24 * time.Hour},
		{1, 7, 7 * time.Second},
	} {
		g := Grid{Origin: 5, FPS: tt.fps}
		rttest.Want(t, g.Instant(tt.k).Sub(5), tt.want, "%d fps: Instant(%d) = origin +", tt.fps, tt.k)
	}
}

func TestFirstIsTheFrameAtOrAfter(t *testing.T) {
	for _, fps := range []int{1, 7, 25, 30, 60, 90, 1000} {
		g := Grid{Origin: rt.Instant(time.Hour), FPS: fps}
		rttest.Want(t, g.First(0), 0, "%d fps: First(before the origin)", fps)
		for _, k := range []uint64{0, 1, 2, uint64(fps), uint64(fps) + 1, 1_000_003} {
			at := g.Instant(k)
			rttest.Want(t, g.First(at), k, "%d fps: First(instant of frame %d)", fps, k)
			rttest.Want(t, g.First(at+1), k+1, "%d fps: First(just after frame %d)", fps, k)
		}
	}
}

func TestGridNoAlloc(t *testing.T) {
	g := Grid{FPS: 30}
	var k uint64
	if n := testing.AllocsPerRun(100, func() { k = g.First(g.Instant(k) + 1) }); n != 0 || k < 100 {
		t.Errorf("First and Instant allocate %v times until frame %d, want 0", n, k)
	}
}
