package server

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"edgert/jpeg"
	"edgert/policy"
	"edgert/wire"
)

// shrunk is the mean of every k x k pixels.
func shrunk(pix []byte, w, h, k int) []byte {
	out := make([]byte, 0, 3*(w/k)*(h/k))
	for i := range cap(out) {
		c, x, y, sum := i%3, i/3%(w/k), i/3/(w/k), 0
		for j := range k * k {
			sum += int(pix[3*((y*k+j/k)*w+x*k+j%k)+c])
		}
		out = append(out, byte((sum+k*k/2)/(k*k)))
	}
	return out
}

// apart is the mean difference of two pictures, in levels.
func apart(a, b []byte) float64 {
	sum := 0
	for i := range a {
		sum += max(int(a[i])-int(b[i]), int(b[i])-int(a[i]))
	}
	return float64(sum) / float64(len(a))
}

// Where the bundle allows it, a larger JPEG becomes the picture that full
// decoding and a resize give, within a few levels, and takes no memory.
func TestLargerPicturesAreScaledInTheDecoder(t *testing.T) {
	const w, h = 160, 120
	m := newCameras(policy.Camera{Name: "top", W: w, H: h, DecodeScale: 8})
	s := m.bench(t)
	row, session := s.worker.tensors, s.sessions.find("arm")
	for k := 1; k <= 8; k *= 2 {
		for _, chroma := range []jpeg.Chroma{jpeg.Chroma420, jpeg.Chroma422, jpeg.Chroma444} {
			_, file := scenery(t, k*w, k*h, chroma)
			full := make([]byte, 3*k*w*k*h)
			if err := row.decoder.DecodeRGB(full, file, k*w, k*h); err != nil {
				t.Fatal(err)
			}
			body := wire.AppendObservation(nil, &wire.Observation{
				State: []float32{10, 20}, Images: []wire.Image{{Name: imagePrefix + "top", Data: file}},
			})
			if len(body) > s.receiver.observationMax {
				t.Errorf("1/%d: an observation of %d bytes, at most %d are taken", k, len(body), s.receiver.observationMax)
			}
			if n := testing.AllocsPerRun(30, func() {
				if _, err := row.fill(0, session, 1, body); err != nil {
					t.Fatalf("1/%d, %v: %v", k, chroma, err)
				}
			}); n != 0 {
				t.Errorf("1/%d, %v: %v allocations a picture, want 0", k, chroma, n)
			}
			want := shrunk(full, k*w, k*h, k)
			limit := map[int]float64{1: 0, 2: 2, 4: 1, 8: 1}[k]
			if chroma == jpeg.Chroma422 { // its colours cannot be scaled less across than down
				limit = map[int]float64{1: 0, 2: 3.5, 4: 5, 8: 10}[k]
			}
			got := apart(m.images[0], want)
			t.Logf("1/%d, %v: %.2f levels from full decoding and a resize", k, chroma, got)
			if got > limit {
				t.Errorf("1/%d, %v: the tensor is %.2f levels from full decoding and a resize, want at most %g", k, chroma, got, limit)
			}
			if shifted := apart(m.images[0][3:], want); shifted < limit+5 {
				t.Errorf("1/%d, %v: a picture shifted by one pixel is %.2f levels away: the limit sees nothing", k, chroma, shifted)
			}
		}
	}
}

// What the bundle does not allow is refused, with the sizes that it takes.
func TestLargerPicturesAreRefused(t *testing.T) {
	const w, h = 160, 120
	_, twice := scenery(t, 2*w, 2*h, jpeg.Chroma420)
	raw, _ := scenery(t, 2*w, 2*h, jpeg.Chroma420)
	_, between := scenery(t, 3*w, 3*h, jpeg.Chroma420)
	_, four := scenery(t, 4*w, 4*h, jpeg.Chroma420)
	_, wide := scenery(t, 2*w, h, jpeg.Chroma420)
	for _, tt := range []struct {
		name  string
		scale int
		image wire.Image
		says  string
	}{
		{"twice as large", 2, wire.Image{Data: twice}, ""},
		{"twice as large, not allowed", 0, wire.Image{Data: twice}, "got 320x240, want 160x120"},
		{"three times", 8, wire.Image{Data: between}, "got 480x360, want 160x120, or up to 8 times that by a power of two"},
		{"four times where two are allowed", 2, wire.Image{Data: four}, "got 640x480, want 160x120, or up to 2 times"},
		{"wider", 4, wire.Image{Data: wide}, "got 320x120"},
		{"torn", 2, wire.Image{Data: twice[:len(twice)/2]}, "make sense"},
		{"raw", 2, wire.Image{Codec: wire.Raw, W: 2 * w, H: 2 * h, C: 3, Data: raw}, "240x320"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newCameras(policy.Camera{Name: "top", W: w, H: h, DecodeScale: tt.scale}).bench(t)
			tt.image.Name = imagePrefix + "top"
			_, err := s.worker.tensors.fill(0, s.sessions.find("arm"), 1, wire.AppendObservation(nil, &wire.Observation{
				State: []float32{10, 20}, Images: []wire.Image{tt.image},
			}))
			if tt.says == "" && err != nil || tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
				t.Errorf("fill() = %v, want %q", err, tt.says)
			}
			if tt.scale == 0 && !errors.Is(err, jpeg.ErrSize) {
				t.Errorf("fill() = %v, want %v", err, jpeg.ErrSize)
			}
		})
	}
}

// A robot that names its cameras' sizes at open may name those that are scaled.
func TestOpenWithLargerPictures(t *testing.T) {
	for _, tt := range []struct {
		w, h, c int
		ok      bool
	}{{160, 120, 3, true}, {320, 240, 3, true}, {640, 480, 3, true}, {1280, 960, 3, false}, {480, 360, 3, false}, {320, 120, 3, false}, {320, 240, 1, false}} {
		s := newCameras(policy.Camera{Name: "top", W: 160, H: 120, DecodeScale: 4}).bench(t)
		o := fakeOpen("leg")
		o.CameraShapes = []wire.CameraShape{{Name: imagePrefix + "top", W: tt.w, H: tt.h, C: tt.c}}
		ack := s.queries.open(&o, "")
		if ack.Accepted != tt.ok || !tt.ok && !strings.Contains(ack.Error, fmt.Sprintf("%dx%dx%d", tt.h, tt.w, tt.c)) {
			t.Errorf("open with %dx%dx%d: accepted %v, %q, want %v", tt.w, tt.h, tt.c, ack.Accepted, ack.Error, tt.ok)
		}
		if o.CameraShapes[0].W != tt.w {
			t.Error("the robot's message was changed")
		}
	}
}
