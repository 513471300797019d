package fleet

import (
	"os"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim"
)

// qualities are the tested JPEG qualities, with the real encoder and decoder; 0: raw pictures.
var qualities = []int{0, 90, 60}

// comparePictures plays the same worlds with each quality. The seeds, targets, noise and delays are
// the same; only the pictures differ.
func comparePictures(t *testing.T, seeds, ticks int) map[int]*Result {
	p := demo(t)
	results := map[int]*Result{}
	for _, q := range qualities {
		r := mustRun(t, Config{Policy: p, Ticks: ticks, Delay: 5, Quality: q, Counts: true}, seeds)
		t.Logf("jpeg %d: %s", q, r.String())
		rttest.Want(t, r.Starved, 0, "jpeg %d: starved ticks", q)
		results[q] = &r
	}
	return results
}

// JPEG pictures of the default quality do not make the demo policy worse. At quality 60 the policy
// becomes only slightly worse.
func TestPicturesAsJPEG(t *testing.T) {
	results := comparePictures(t, 2, 600)
	for _, q := range qualities {
		r := results[q]
		if got := r.Both().success(); got < 0.95 {
			t.Errorf("jpeg %d: success per leg %.3f, want 0.95: of some 30 legs one may fail", q, got)
		}
	}
	again := comparePictures(t, 2, 600)
	if a, b := results[60].Both(), again[60].Both(); a != b {
		t.Errorf("the same worlds give %+v and then %+v", a, b)
	}
}

// The test repeats the published figures: 200 episodes of 20 s with each kind of picture.
func TestPicturesAsJPEGFull(t *testing.T) {
	if os.Getenv(fullEnv) == "" {
		t.Skipf("takes minutes; set %s=1", fullEnv)
	}
	results := comparePictures(t, 100, 0)
	raw := results[0]
	for _, q := range qualities {
		r := results[q]
		if got, want := r.Both().success(), raw.Both().success()-0.01; got < want || got < 0.98 {
			t.Errorf("jpeg %d: success per leg %.4f, raw pictures %.4f, want no less than 0.01 below and 0.98", q, got,
				raw.Both().success())
		}
		if got := r.LegsPer20s(); got < raw.LegsPer20s()-0.2 {
			t.Errorf("jpeg %d: %.2f legs per 20 s, raw pictures %.2f", q, got, raw.LegsPer20s())
		}
	}
}

// seeing is a policy that never moves the arm and keeps its pictures.
type seeing struct {
	still
	width, height int
	seen          [][]byte
}

func (s *seeing) Picture() (width, height int) { return s.width, s.height }

func (s *seeing) Answer(o *Observation) (Answer, error) {
	s.seen = append(s.seen, o.Picture)
	return s.still.Answer(o)
}

// A policy gets the whole scene in its own picture size.
func TestPicturesOfThePolicysSize(t *testing.T) {
	for _, quality := range []int{0, 90} {
		p := &seeing{width: 80, height: 60}
		mustRun(t, Config{Policy: p, Ticks: 60, Delay: 3, Quality: quality}, 1)
		world := sim.NewWorld(DefaultSeed, 1)
		want := make([]byte, 80*60*3)
		world.Render(want, 80, 60)
		if len(p.seen) == 0 || len(p.seen[0]) != len(want) {
			t.Fatalf("jpeg %d: %d pictures, want some of %d bytes", quality, len(p.seen), len(want))
		}
		off := 0
		for i, v := range want {
			off += max(int(v), int(p.seen[0][i])) - min(int(v), int(p.seen[0][i]))
		}
		if most := 4 * len(want) * min(quality, 1); off > most {
			t.Errorf("jpeg %d: the first picture is off by %d in all, want at most %d", quality, off, most)
		}
	}
}
