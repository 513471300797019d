//go:build cgo

package jpeg

import (
	"bytes"
	"fmt"
	"image/png"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim/pattern"
)

const noiseW, noiseH = 60, 44

// OpenCV makes the same picture: means where a side shrinks, linear interpolation where it grows, separately for each
// side. LeRobot's policy server also makes the same picture where it does not leave pixels out.
func TestScaleIsOpenCVs(t *testing.T) {
	noise := scaled(t, "noise")
	names, err := filepath.Glob("../testdata/jpeg/scale/*_*.png")
	if err != nil || len(names) != 18 {
		t.Fatalf("%d pictures, %v, want 18", len(names), err)
	}
	s := NewScaler(noiseW, 240)
	for _, name := range names {
		name = strings.TrimSuffix(filepath.Base(name), ".png")
		var w, h int
		rttest.Must(fmt.Sscanf(name[strings.IndexByte(name, '_'):], "_%dx%d", &w, &h))(t)
		want, got := scaled(t, name), make([]byte, 3*w*h)
		if err := s.Scale(got, w, h, noise, noiseW, noiseH); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if most, mean := difference(got, want); most > 1 || mean > 0.2 {
			t.Errorf("%s differs by %d levels at most, %.3f in the mean, want 1 and 0.2", name, most, mean)
		}
		if len(want) > 30 {
			if _, mean := difference(got[3:], want); mean < 5 && w > 1 && h > 1 {
				t.Errorf("%s shifted by a pixel differs by %.1f levels: the test sees nothing", name, mean)
			}
		}
	}
	if same := make([]byte, len(noise)); s.Scale(same, noiseW, noiseH, noise, noiseW, noiseH) != nil ||
		!bytes.Equal(same, noise) {
		t.Error("a picture that keeps its size is another one")
	}
}

func scaled(t *testing.T, name string) []byte {
	t.Helper()
	im := rttest.Must(png.Decode(bytes.NewReader(read(t, "scale/"+name+".png"))))(t)
	return rgbOf(im)
}

// Property: for all sizes the weights of a pixel add up to one and lie within the picture, so a
// picture of one colour keeps its exact colour.
func TestScaleOfOneColour(t *testing.T) {
	s := NewScaler(700, 40)
	for _, from := range []int{1, 2, 3, 7, 39, 40, 41, 255, 640, 699, 700} {
		for _, to := range []int{1, 2, 3, 7, 13, 38, 39, 40} {
			for _, size := range [][4]int{{from, 2, to, 2}, {2, from, 2, to}} {
				fromW := size[0]
				fromH := size[1]
				w := size[2]
				h := size[3]
				src, dst := bytes.Repeat([]byte{255, 1, 77}, fromW*fromH), bytes.Repeat([]byte{0xa5}, 3*w*h+8)
				if err := s.Scale(dst[:3*w*h], w, h, src, fromW, fromH); err != nil {
					t.Fatalf("%dx%d to %dx%d: %v", fromW, fromH, w, h, err)
				}
				if want := append(bytes.Repeat([]byte{255, 1, 77}, w*h),
					bytes.Repeat([]byte{0xa5}, 8)...); !bytes.Equal(dst, want) {
					t.Fatalf("%dx%d to %dx%d is not of one colour, or too long: %v", fromW, fromH, w, h, dst)
				}
			}
		}
	}
}

func TestScaleRefuses(t *testing.T) {
	s := NewScaler(8, 4)
	src := make([]byte, 3*9*9)
	dst := make([]byte, 3*5*5)
	for _, tt := range []struct {
		w, h, fromW, fromH, dst, src int
		want                         error
	}{
		{4, 4, 8, 8, 48, 192, nil},
		{4, 4, 8, 8, 47, 192, ErrSize},
		{4, 4, 8, 8, 48, 191, ErrSize},
		{0, 4, 8, 8, 48, 192, ErrSize},
		{4, 4, 8, -1, 48, 192, ErrSize},
		{4, 4, 9, 8, 48, 243, ErrTooLarge},
		{4, 4, 8, 9, 48, 243, ErrTooLarge},
		{5, 4, 8, 8, 75, 192, ErrTooLarge},
		{4, 5, 8, 8, 75, 192, ErrTooLarge},
	} {
		rttest.Want(t, s.Scale(dst[:tt.dst], tt.w, tt.h, src[:tt.src], tt.fromW, tt.fromH), tt.want, "%+v", tt)
	}
}

// Scaling allocates nothing for any sequence of sizes.
func TestScaleNoAlloc(t *testing.T) {
	s := NewScaler(300, 100)
	src := make([]byte, 3*300*300)
	dst := make([]byte, 3*100*100)
	i := 0
	rttest.NoAllocs(t, "%v allocations a picture, want 0", 500, func() {
		i += 37
		rttest.Do(t, s.Scale(dst, 1+i%100, 1+i*7%100, src, 1+i%300, 1+i*11%300))
	})
}

func TestReduction(t *testing.T) {
	for _, tt := range []struct{ fromW, fromH, w, h, want int }{
		{640, 480, 320, 240, 1},
		{1280, 960, 320, 240, 2},
		{1279, 960, 320, 240, 2},
		{1278, 960, 320, 240, 1},
		{1280, 720, 320, 240, 1},
		{1920, 1080, 224, 224, 2},
		{2048, 2048, 224, 224, 4},
		{2560, 1600, 96, 96, 8},
		{2560, 1600, 8, 8, 8},
		{8192, 64, 640, 480, 1},
		{8192, 64, 640, 8, 4},
		{10, 10, 640, 480, 1},
		{1, 1, 1, 1, 1},
	} {
		rttest.Want(t, reduction(tt.fromW, tt.fromH, tt.w, tt.h), tt.want, "reduction(%dx%d, %dx%d)", tt.fromW,
			tt.fromH, tt.w, tt.h)
	}
}

func TestCanFit(t *testing.T) {
	for _, tt := range []struct {
		w, h int
		want bool
	}{{1, 1, true}, {2560, 1600, true}, {2048, 2048, true}, {2049, 2048, false}, {8192, 512, true}, {8193, 1, false},
		{1, 8193, false}, {0, 5, false}, {5, -1, false}} {
		rttest.Want(t, CanFit(tt.w, tt.h), tt.want, "CanFit(%d, %d)", tt.w, tt.h)
	}
}

// For a JPEG of another size, DecodeFit gives the result of full decoding and scaling: the same bytes if the JPEG is
// less than four times as large, otherwise a picture within one level in the mean. It allocates nothing.
func TestDecodeFit(t *testing.T) {
	const w, h = 64, 48
	d := decoder(t)
	d.ReserveFit(w)
	s := NewScaler(2048, w)
	for _, size := range [][2]int{{64, 48}, {80, 40}, {128, 96}, {161, 99}, {32, 24}, {63, 200}, {256, 192}, {640, 480},
		{1100, 1200}} {
		fromW, fromH := size[0], size[1]
		for _, chroma := range []Chroma{Chroma420, Chroma422, Chroma444} {
			e := rttest.Must(NewEncoder(90, chroma))(t)
			defer e.Close()
			file := make([]byte, MaxSize(fromW, fromH, chroma))
			n := rttest.Must(e.Encode(file, &Image{
				W:      fromW,
				H:      fromH,
				Layout: RGB,
				Pix:    pattern.Scenery(fromW, fromH),
			}))(t)
			whole, want := make([]byte, 3*fromW*fromH), make([]byte, 3*w*h)
			rttest.Do(t, d.DecodeRGB(whole, file[:n], fromW, fromH))
			rttest.Do(t, s.Scale(want, w, h, whole, fromW, fromH))
			got := bytes.Repeat([]byte{0xa5}, 3*w*h+64)
			allocated := 1.0
			for try := 0; try < 3 && allocated != 0; try++ { // the garbage collector may allocate once
				allocated = testing.AllocsPerRun(3, func() {
					if gotW, gotH, err := d.DecodeFit(got[:3*w*h], file[:n], w, h); err != nil || gotW != fromW ||
						gotH != fromH {
						t.Fatalf("%dx%d, %v: %v, was %dx%d", fromW, fromH, chroma, err, gotW, gotH)
					}
				})
			}
			rttest.Want(t, allocated, 0, "%dx%d, %v: allocations a picture", fromW, fromH, chroma)
			limit := 0.0
			if reduction(fromW, fromH, w, h) > 1 {
				limit = 1
			}
			if most, mean := difference(got[:3*w*h], want); mean > limit {
				t.Errorf("%dx%d, %v: differs by %d levels at most, %.2f in the mean, want %g", fromW, fromH, chroma,
					most, mean, limit)
			} else {
				t.Logf("%dx%d, %v: %d levels at most, %.2f in the mean", fromW, fromH, chroma, most, mean)
			}
			if !bytes.Equal(got[3*w*h:], bytes.Repeat([]byte{0xa5}, 64)) {
				t.Errorf("%dx%d, %v: wrote behind the picture", fromW, fromH, chroma)
			}
		}
	}
	for _, tt := range []struct {
		src  []byte
		room int
		want error
	}{
		{patchSize(read(t, "bands_420.jpg"), 65500, 200), 3 * w * h, ErrTooLarge},
		{patchSize(read(t, "bands_420.jpg"), 2049, 2048), 3 * w * h, ErrTooLarge},
		{read(t, "bands_progressive.jpg"), 3 * w * h, ErrProgressive},
		{read(t, "bands_cmyk.jpg"), 3 * w * h, errFormat},
		{read(t, "bands_420.jpg"), 3*w*h - 1, ErrSize},
		{read(t, "bands_420.jpg")[:400], 3 * w * h, ErrCorrupt},
	} {
		if _, _, err := d.DecodeFit(make([]byte, tt.room), tt.src, w, h); err != tt.want {
			t.Errorf("DecodeFit of %d bytes into %d = %v, want %v", len(tt.src), tt.room, err, tt.want)
		}
	}
}
