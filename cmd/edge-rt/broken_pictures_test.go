package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/edge-rt/edge-rt/edge"
	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// scene returns three pictures: a valid JPEG, the same JPEG with the four stray bytes that a Logitech C270 sends
// before the end marker, and the same JPEG without some of its data. The markers of the third picture do not reveal
// the loss.
func scene(t *testing.T) (good, stray, half []byte) {
	t.Helper()
	good = rttest.Must(os.ReadFile(filepath.Join("..", "..", "testdata", "jpeg", "golden", "scene_422.jpg")))(t)
	end := len(good) - 2
	return good, slices.Insert(slices.Clone(good), end, 0x12, 0x00, 0x7f, 0x31),
		append(slices.Clone(good[:len(good)-400]), good[end:]...)
}

// album writes the pictures to a folder, in this order, and returns its path.
func album(t *testing.T, pictures ...[]byte) string {
	t.Helper()
	dir := t.TempDir()
	for i, p := range pictures {
		rttest.WriteFile(t, dir, fmt.Sprintf("%04d.jpg", i), string(p))
	}
	return dir
}

// photographed runs edge-rt with a camera that plays the pictures in dir, to the end of the run.
func photographed(t *testing.T, s *holdServer, dir string, args ...string) (sum edge.Summary, code, stiffAfter int,
	log string) {
	t.Helper()
	b := simBus(t)
	r := runOn(t, s, b, append([]string{"--camera", "front=" + dir}, args...)...)
	code, sum = r.play()
	return sum, code, underTorque(b), r.Log.String()
}

// Pictures with stray bytes and incomplete pictures do not end a run that re-encodes them: the
// policy receives only whole pictures.
func TestBrokenPicturesDoNotEndARun(t *testing.T) {
	t.Parallel()
	good, stray, half := scene(t)
	s := newHoldServer(t)
	d, err := jpeg.NewDecoder()
	if err != nil {
		t.Skip(err)
	}
	defer d.Close()
	const w, h = 96, 64
	var seen, torn, gray atomic.Uint64
	s.SetAnswer(func(sample wire.Sample) { // the transport calls this function on one thread only
		s.Hold(sample)
		var o wire.Observation
		pix := make([]byte, 3*w*h)
		if wire.ParseObservation(&o, sample.Payload) != nil || len(o.Images) != 1 ||
			d.DecodeRGB(pix, o.Images[0].Data, w, h) != nil || d.Warned() {
			torn.Add(1)
		}
		// the library fills a missing row with gray
		if bytes.Equal(pix[len(pix)-3*w:], bytes.Repeat([]byte{128}, 3*w)) {
			gray.Add(1)
		}
		seen.Add(1)
	})
	run, code, on, log := photographed(t, s, album(t, good, stray, half, half, stray, good, half)+"@30",
		"--jpeg-quality", "80", "--duration", "4s")
	f := run.Frames["front"]
	if code != 0 || on != 0 || run.Chunks < 3 || f.Warned == 0 || f.Undecoded == 0 || f.Broken != 0 {
		t.Errorf("exit code %d, %d motors under torque, %d chunks, %+v, %s; want a clean end, pictures with stray "+
			"bytes and broken ones", code, on, run.Chunks, f, log)
	}
	if seen.Load() < 3 || torn.Load() != 0 || gray.Load() != 0 {
		t.Errorf("of %d observations %d have no whole picture and %d one with a part missing, want none", seen.Load(),
			torn.Load(), gray.Load())
	}
}

// A camera's own JPEG reaches the policy unchanged, stray bytes included.
func TestStrayBytesReachThePolicy(t *testing.T) {
	t.Parallel()
	_, stray, _ := scene(t)
	s := newHoldServer(t)
	var same, other atomic.Uint64
	s.SetAnswer(func(sample wire.Sample) {
		s.Hold(sample)
		var o wire.Observation
		if wire.ParseObservation(&o, sample.Payload) == nil && len(o.Images) == 1 &&
			bytes.Equal(o.Images[0].Data, stray) {
			same.Add(1)
		} else {
			other.Add(1)
		}
	})
	run, code, _, log := photographed(t, s, album(t, stray)+"@30", "--duration", "3s")
	if code != 0 || run.Chunks == 0 || same.Load() == 0 || other.Load() != 0 {
		t.Errorf("exit code %d, %d chunks, %d observations with the camera's bytes and %d others, %s", code, run.Chunks,
			same.Load(), other.Load(), log)
	}
}

// A camera whose pictures become unusable is treated like an unplugged one. The camera's last picture ages, the arm
// holds after --max-action-age, and the log gives the reason.
func TestACameraThatGoesBad(t *testing.T) {
	t.Parallel()
	good, _, half := scene(t)
	// The pictures are good for 3 s from the start.
	pictures := append(slices.Repeat([][]byte{good}, 90), slices.Repeat([][]byte{half}, 600)...)
	run, code, on, log := photographed(t, newHoldServer(t), album(t, pictures...)+"@30", "--jpeg-quality", "80",
		"--duration", "6s", "--max-action-age", "1s")
	f := run.Frames["front"]
	if code != 0 || on != 0 || run.Actions == 0 || run.ActionsTooOld < 5 || f.Undecoded == 0 || f.Stale == 0 {
		t.Errorf("exit code %d, %d motors under torque, %d actions, %d too old, %+v; want a clean end, and actions "+
			"that are too old", code, on, run.Actions, run.ActionsTooOld, f)
	}
	rttest.Contains(t, log, "waiting for pictures of camera front", "premature end of data segment")
}

// A run treats a camera that has never delivered a usable picture as absent: the run does not touch the arm, and its
// error names the camera.
func TestACameraThatIsBadFromTheStart(t *testing.T) {
	t.Parallel()
	_, _, half := scene(t)
	run, code, on, log := photographed(t, newHoldServer(t), album(t, half)+"@30", "--jpeg-quality", "80",
		"--max-offline", "3s")
	if code != 4 || on != 0 || run.Requests != 0 || run.Actions != 0 || run.Sessions != 1 ||
		!strings.Contains(run.Exit.Reason, "camera front: no picture decodes") {
		t.Errorf("exit code %d, %d motors under torque, %d requests, %d sessions, %q, %s; want 4, no request and the "+
			"camera's name", code, on, run.Requests, run.Sessions, run.Exit.Reason, log)
	}
}

// If a live camera repeats one picture, the run reports the camera's name, the picture ages, and the summary counts the
// repetitions. With live=yes, picture files count as a live camera.
func TestACameraThatRepeatsAPictureIsNamed(t *testing.T) {
	t.Parallel()
	good, _, _ := scene(t)
	for _, live := range []bool{true, false} {
		option := ""
		if live {
			option = ",live=yes"
		}
		s := newHoldServer(t)
		run, code, _, log := photographed(t, s, album(t, good)+"@30"+option, "--duration", "4s")
		f := run.Frames["front"]
		if said := strings.Contains(log, "it has repeated one picture for"); code != 0 || said != live ||
			(f.Repeated > 0) != live || (f.Stale > 0) != live || (f.Age > 1000) != live {
			t.Errorf("live %v: exit code %d, %+v, want it named, counted and old only where it is live:\n%s", live,
				code, f, log)
		}
	}
}
