package sim

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/edge-rt/edge-rt/policy/safetensors"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// goldenScene is one scene with the picture that the program that trains the policy has painted.
type goldenScene struct {
	scene
	image []byte
}

// loadScenes reads scenes.safetensors.gz of testdata/sim.
func loadScenes(t testing.TB) []goldenScene {
	t.Helper()
	_, tensors, err := safetensors.Parse(rttest.Unzip(t, "../testdata/sim/scenes.safetensors.gz"))
	rttest.Do(t, err)
	value := func(name string, i int) float64 {
		return math.Float64frombits(binary.LittleEndian.Uint64(tensors[name].Data[8*i:]))
	}
	scenes := make([]goldenScene, tensors["q"].Shape[0])
	const pixels = NativeWidth * NativeHeight * 3
	for i := range scenes {
		scenes[i] = goldenScene{scene: scene{
			Pan: value("q", DOF*i+pan), Elbow: value("q", DOF*i+elbow),
			Target: Point{value("target", 2*i), value("target", 2*i+1)},
			Post:   Point{value("post", 2*i), value("post", 2*i+1)},
		}, image: tensors["image"].Data[i*pixels : (i+1)*pixels]}
	}
	return scenes
}

func TestRenderEqualsTheTrainingPictures(t *testing.T) {
	scenes := loadScenes(t)
	if len(scenes) != 50 {
		t.Fatalf("got %d scenes, want 50", len(scenes))
	}
	got := make([]byte, NativeWidth*NativeHeight*3)
	off, worst := 0, 0
	for i := range scenes {
		scenes[i].render(got, NativeWidth, NativeHeight)
		for k, want := range scenes[i].image {
			d := int(got[k]) - int(want)
			if d != 0 {
				off++
			}
			worst = max(worst, d, -d)
		}
	}
	// A sine that differs in its last bit can change the rounding of single bytes.
	if worst > 1 || off > 20 {
		t.Errorf("%d of %d bytes differ, the worst by %d levels; want at most 20, by 1", off, 50*len(got), worst)
	}
}

func TestWorldsDrawTheRecordedPlaces(t *testing.T) {
	var worlds []struct {
		Seed        uint64
		Direction   int
		Post, Start [2]float64
		Joints      [DOF]float64
		Targets     [][2]float64
	}
	rttest.ReadJSON(t, "../testdata/sim/worlds.json", &worlds)
	if len(worlds) != 8 {
		t.Fatalf("got %d worlds, want 8", len(worlds))
	}
	for _, want := range worlds {
		w := NewWorld(want.Seed, want.Direction)
		if got := w.Post(); got != (Point{want.Post[0], want.Post[1]}) {
			t.Errorf("seed %d: post = %v, want %v", want.Seed, got, want.Post)
		}
		if d := distance(w.tip(), Point{want.Start[0], want.Start[1]}); d > 1e-12 {
			t.Errorf("seed %d: tip is %g m from the start", want.Seed, d)
		}
		for j, q := range w.Q() {
			if math.Abs(q-want.Joints[j]) > 1e-12 {
				t.Errorf("seed %d: joint %d = %.17g, want %.17g", want.Seed, j, q, want.Joints[j])
			}
		}
		for i, p := range want.Targets {
			if got := w.Target(); got != (Point{p[0], p[1]}) {
				t.Fatalf("seed %d: target %d = %v, want %v", want.Seed, i, got, p)
			}
			reachTarget(t, w)
		}
	}
}

// reachTarget moves the arm to the present target, if necessary through the post.
func reachTarget(t *testing.T, w *World) {
	t.Helper()
	before := w.Target()
	for range legTicksMax {
		goal := poseAt(before, 0)
		w.Step(goal[:])
		if w.Target() != before {
			if w.LastLeg().Outcome == TimedOut {
				t.Fatal("the leg timed out")
			}
			return
		}
	}
	t.Fatal("the target did not change")
}

func TestDrawsAreSplitMix64(t *testing.T) {
	d := splitMix64{state: 0}
	rttest.Want(t, d.next(), 0xe220a8397b1dcdaf, "first draw of seed 0")
	d = splitMix64{state: 1}
	if a, b := d.next(), d.next(); a != 0x910a2dec89025cc1 || b != 0xbeeb8da1658eec67 {
		t.Errorf("first draws of seed 1 = %#x, %#x, want 0x910a2dec89025cc1, 0xbeeb8da1658eec67", a, b)
	}
}
