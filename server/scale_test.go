package server

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/servertest"
	"github.com/edge-rt/edge-rt/wire"
)

// shrunk returns the picture in which each block of k x k pixels is one pixel with their mean.
func shrunk(pix []byte, w, h, k int) []byte {
	out := make([]byte, 0, 3*(w/k)*(h/k))
	for i := range cap(out) {
		c := i % 3
		x := i / 3 % (w / k)
		y := i / 3 / (w / k)
		sum := 0
		for j := range k * k {
			sum += int(pix[3*((y*k+j/k)*w+x*k+j%k)+c])
		}
		out = append(out, byte((sum+k*k/2)/(k*k)))
	}
	return out
}

// apart returns the mean difference of the values of two pictures, from 0 to 255.
func apart(a, b []byte) float64 {
	sum := 0
	for i := range a {
		sum += max(int(a[i])-int(b[i]), int(b[i])-int(a[i]))
	}
	return float64(sum) / float64(len(a))
}

// If the bundle allows it, a larger JPEG is scaled while it is decoded. The result is, within a few levels, the picture
// that full decoding and a resize give, and nothing is allocated.
func TestLargerPicturesAreScaledInTheDecoder(t *testing.T) {
	const w, h = 160, 120
	m := newCameras(policy.Camera{Name: "top", W: w, H: h, DecodeScale: 8})
	s := m.bench(t).server
	row, session := s.worker.engine.tensors, s.sessions.find("arm")
	for k := 1; k <= 8; k *= 2 {
		for _, chroma := range []jpeg.Chroma{jpeg.Chroma420, jpeg.Chroma422, jpeg.Chroma444} {
			_, file := scenery(t, k*w, k*h, chroma)
			full := make([]byte, 3*k*w*k*h)
			rttest.Do(t, row.decoder.DecodeRGB(full, file, k*w, k*h))
			body := wire.AppendObservation(nil, observation(wire.Image{Name: top, Data: file}))
			if len(body) > s.receiver.observationMax {
				t.Errorf("1/%d: an observation of %d bytes, at most %d are taken", k, len(body),
					s.receiver.observationMax)
			}
			rttest.NoAllocs(t, fmt.Sprintf("1/%d, %v: %%v allocations a picture", k, chroma), 30, func() {
				rttest.Do(t, rttest.Err(row.fill(0, session, 1, body)))
			})
			want := shrunk(full, k*w, k*h, k)
			limit := map[int]float64{1: 0, 2: 2, 4: 1, 8: 1}[k]
			// 4:2:2 has twice as many rows as columns of colour, and the decoder would have to reduce the rows more
			if chroma == jpeg.Chroma422 {
				limit = map[int]float64{1: 0, 2: 3.5, 4: 5, 8: 10}[k]
			}
			got := apart(m.images[0], want)
			t.Logf("1/%d, %v: %.2f levels from full decoding and a resize", k, chroma, got)
			if got > limit {
				t.Errorf("1/%d, %v: the tensor is %.2f levels from full decoding and a resize, want at most %g", k,
					chroma, got, limit)
			}
			if shifted := apart(m.images[0][3:], want); shifted < limit+5 {
				t.Errorf("1/%d, %v: a picture shifted by one pixel is %.2f levels away: the limit sees nothing", k,
					chroma, shifted)
			}
		}
	}
}

// When a bundle demands exact sizes, pictures of other sizes are refused, and the reason lists the allowed sizes.
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
		{"three times", 8, wire.Image{Data: between},
			"got 480x360, want 160x120, or up to 8 times that by a power of two"},
		{"four times where two are allowed", 2, wire.Image{Data: four}, "got 640x480, want 160x120, or up to 2 times"},
		{"wider", 4, wire.Image{Data: wide}, "got 320x120"},
		{"torn", 2, wire.Image{Data: twice[:len(twice)/2]}, "make sense"},
		{"raw", 2, wire.Image{Codec: wire.Raw, W: 2 * w, H: 2 * h, C: 3, Data: raw}, "240x320"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newCameras(policy.Camera{
				Name:        "top",
				W:           w,
				H:           h,
				DecodeScale: tt.scale,
				ExactSize:   true,
			}).bench(t).server
			tt.image.Name = top
			_, err := s.worker.engine.tensors.fill(0, s.sessions.find("arm"), 1,
				wire.AppendObservation(nil, observation(tt.image)))
			if tt.says == "" && err != nil || tt.says != "" && (!rttest.Says(err, tt.says)) {
				t.Errorf("fill() = %v, want %q", err, tt.says)
			}
			if tt.scale == 0 && !errors.Is(err, jpeg.ErrSize) {
				t.Errorf("fill() = %v, want %v", err, jpeg.ErrSize)
			}
		})
	}
}

// A picture of any size, JPEG or raw, becomes the result of full decoding and scaling. A picture that has the policy's
// size does not change. Nothing is allocated for any of these pictures.
func TestPicturesOfAnySize(t *testing.T) {
	const w, h = 160, 120
	m := newCameras(policy.Camera{Name: "top", W: w, H: h})
	s := m.bench(t).server
	row, session := s.worker.engine.tensors, s.sessions.find("arm")
	scaler := jpeg.NewScaler(jpeg.MaxFitSide, w)
	var bodies [][]byte
	for _, size := range [][2]int{{w, h}, {2 * w, 2 * h}, {3*w + 1, 2 * h}, {w - 1, h}, {w / 4, h / 4}, {w, 2 * h},
		{1, 1}} {
		fromW, fromH := size[0], size[1]
		pix, file := scenery(t, fromW, fromH, jpeg.Chroma422)
		decoded := make([]byte, len(pix))
		rttest.Do(t, row.decoder.DecodeRGB(decoded, file, fromW, fromH))
		for _, sent := range []struct {
			wire.Image
			from []byte
		}{
			{wire.Image{Data: file}, decoded},
			{wire.Image{Codec: wire.Raw, W: fromW, H: fromH, C: 3, Data: pix}, pix},
		} {
			sent.Name = top
			body := wire.AppendObservation(nil, observation(sent.Image))
			bodies = append(bodies, body)
			f, err := row.fill(0, session, 1, body)
			if err != nil {
				t.Errorf("%dx%d, %v: %v", fromW, fromH, sent.Codec, err)
				continue
			}
			want := make([]byte, 3*w*h)
			rttest.Do(t, scaler.Scale(want, w, h, sent.from, fromW, fromH))
			if fromW == w && fromH == h {
				want = sent.from
			}
			if !bytes.Equal(m.images[0], want) {
				t.Errorf("%dx%d, %v: %.2f levels from decoding and scaling, want none", fromW, fromH, sent.Codec,
					apart(m.images[0], want))
			}
			if squeezed := fromW*3 != fromH*4 && fromW != w-1; squeezed != (f.squeezed == 1) && fromW > 1 {
				t.Errorf("%dx%d, %v: squeezed %b", fromW, fromH, sent.Codec, f.squeezed)
			}
		}
	}
	i := 0
	rttest.NoAllocs(t, "%v allocations a picture of changing size, want 0", 100, func() {
		i++
		rttest.Must(row.fill(0, session, 1, bodies[i*5%len(bodies)]))(t)
	})
}

// Pictures that are too large to be scaled are refused with a text that explains it. Later pictures
// are accepted.
func TestPicturesTooLargeToScale(t *testing.T) {
	m := newCameras(policy.Camera{Name: "top", W: 160, H: 120})
	s := m.bench(t).server
	_, good := scenery(t, 160, 120, jpeg.Chroma420)
	large := bytes.Clone(good)
	at := bytes.Index(large, []byte{0xff, 0xc0})
	for _, tt := range []struct {
		w, h uint16
		says string
	}{
		{65500, 65500, "got 65500x65500"},
		{65500, 100, "sides of 8192"},
		{160, 65000, "observation.images.top"},
	} {
		binary.BigEndian.PutUint16(large[at+5:], tt.h)
		binary.BigEndian.PutUint16(large[at+7:], tt.w)
		for _, file := range [][]byte{large, good} {
			_, err := s.worker.engine.tensors.fill(0, s.sessions.find("arm"), 1,
				wire.AppendObservation(nil, observation(wire.Image{Name: top, Data: file})))
			if bad := &file[0] == &large[0]; bad != (err != nil) || bad && !rttest.Says(err, tt.says) {
				t.Errorf("%dx%d: fill() = %v, want %q", tt.w, tt.h, err, tt.says)
			}
		}
	}
}

// A robot may name any size at open. If the aspect ratio of its pictures is not the policy's, it gets a warning with
// the crop that would have the right ratio. Only pictures that cannot be scaled are refused. A raw picture is scaled
// from its place in the message, without a copy. If the policy demands exact sizes, only a JPEG that the decoder itself
// can reduce may be larger.
func TestOpenWithPicturesOfAnySize(t *testing.T) {
	usual := policy.Camera{Name: "top", W: 160, H: 120}
	exact := policy.Camera{Name: "top", W: 160, H: 120, DecodeScale: 4, ExactSize: true}
	large := policy.Camera{Name: "top", W: 2048, H: 2048}
	const refused, accepted = true, false
	const asJPEG, raw = false, true
	for _, tt := range []struct {
		camera  policy.Camera
		w, h, c int
		raw     bool
		refused bool
		words   string // text of the refusal or the warning; "": there is neither
	}{
		{usual, 160, 120, 3, asJPEG, accepted, ""},
		{usual, 320, 240, 3, asJPEG, accepted, ""},
		{usual, 480, 360, 3, raw, accepted, ""},
		{usual, 100, 75, 3, asJPEG, accepted, ""},
		{usual, 159, 120, 3, asJPEG, accepted, ""},
		{usual, 1280, 720, 3, asJPEG, accepted, "pictures of 1280x720 are squeezed to 160x120 (width x height), " +
			"another shape than the policy was trained with: crop them to 960x720"},
		{usual, 240, 320, 3, raw, accepted, "crop them to 240x180"},
		{usual, 8192, 8192, 3, asJPEG, refused, "a JPEG of 8192x8192 (width x height) is too large: a picture that " +
			"is scaled to 160x120 has at most 4194304 pixels (2560x1600) and sides of 8192: have the camera send " +
			"smaller pictures"},
		{usual, 2048, 2048, 3, asJPEG, accepted, "crop them to 2048x1536"},
		{usual, 2049, 2048, 3, asJPEG, refused, "a JPEG of 2049x2048 (width x height) is too large"},
		{usual, 320, 240, 1, asJPEG, refused, "client has 240x320x1"},
		{usual, 2560, 2400, 3, raw, refused, ""},
		{exact, 160, 120, 3, asJPEG, accepted, ""},
		{exact, 320, 240, 3, asJPEG, accepted, ""},
		{exact, 640, 480, 3, asJPEG, accepted, ""},
		{exact, 1280, 960, 3, asJPEG, refused, "960x1280x3"},
		{exact, 480, 360, 3, asJPEG, refused, "360x480x3"},
		{exact, 320, 120, 3, asJPEG, refused, "120x320x3"},
		{exact, 320, 240, 1, asJPEG, refused, "240x320x1"},
		{large, 2300, 2300, 3, raw, accepted, ""},
		{large, 2300, 2300, 3, asJPEG, refused, "too large"},
	} {
		b := newCameras(tt.camera).bench(t)
		o := fakeOpen("leg")
		o.CameraShapes = []wire.CameraShape{{Name: top, W: tt.w, H: tt.h, C: tt.c}}
		if tt.raw {
			o.RawImages = []string{top}
		}
		ack := b.openFrom(wire.Origin{}, o)
		text := ack.Error + strings.Join(ack.Warnings, "\n")
		if ack.Accepted == tt.refused || !strings.Contains(text, tt.words) ||
			!tt.refused && strings.Contains(text, "squeezed") != (tt.words != "") {
			t.Errorf("%+v: accepted %v, %q, warnings %q", tt, ack.Accepted, ack.Error, ack.Warnings)
		}
		if o.CameraShapes[0].W != tt.w {
			t.Error("the robot's message was changed")
		}
	}
	if limit := observationLimit(servertest.Meta()); limit < wire.MaxCarriedBytes {
		t.Errorf("an observation may have %d bytes, want the most that a link carries", limit)
	}
}

// When a robot's open names no sizes, the pictures themselves are checked. Pictures with another shape are counted,
// shown, and logged once for each session.
func TestSqueezedPicturesAreShown(t *testing.T) {
	var log bytes.Buffer
	b := newCameras(policy.Camera{Name: "top", W: 160, H: 120}).bench(t, logTo(&log))
	s, r := b.server, b.robot("arm")
	// a picture without a size in the open may be larger than the policy's sizes allow
	wide, _ := scenery(t, 1280, 480, jpeg.Chroma420)
	small, _ := scenery(t, 80, 60, jpeg.Chroma420)
	for i, image := range []wire.Image{
		{W: 80, H: 60, Data: small}, {W: 1280, H: 480, Data: wide}, {W: 1280, H: 480, Data: wide},
		{W: 80, H: 60, Data: small},
	} {
		image.Name = top
		image.Codec = wire.Raw
		image.C = 3
		r.send(obsHeader(0, uint64(i+1)), observation(image))
		b.serveOne()
		log.Reset()
		b.tick()
		rttest.Want(t, strings.Contains(log.String(), `cameras=observation.images.top`), i == 1,
			"after picture %d the log names the camera in %q", i, log.String())
	}
	h := pages(t, s)
	rttest.Want(t, scrape(t, h)[`lean_server_squeezed_pictures_total{camera="observation.images.top"}`], 2,
		"the metric")
	if got := s.summary(); got.SqueezedPictures != 2 || got.Requests != 4 {
		t.Errorf("the summary says %d squeezed of %d, want 2 of 4", got.SqueezedPictures, got.Requests)
	}
}
