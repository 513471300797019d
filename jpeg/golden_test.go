//go:build cgo

package jpeg

import (
	"bytes"
	"image"
	stdjpeg "image/jpeg"
	"image/png"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

const sceneW, sceneH = 96, 64

// rgbOf returns a picture's RGB, decoded by the standard library only.
func rgbOf(im image.Image) []byte {
	b := im.Bounds()
	pix := make([]byte, 0, 3*b.Dx()*b.Dy())
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			r, g, bl, _ := im.At(x, y).RGBA()
			pix = append(pix, byte(r>>8), byte(g>>8), byte(bl>>8))
		}
	}
	return pix
}

func golden(t *testing.T, name string) []byte { return read(t, "golden/"+name) }

func goldenPNG(t *testing.T, name string) []byte {
	t.Helper()
	im := rttest.Must(png.Decode(bytes.NewReader(golden(t, name))))(t)
	return rgbOf(im)
}

// difference returns the largest and the mean difference of two pictures.
func difference(a, b []byte) (most int, mean float64) {
	sum := 0
	for i := range a {
		d := int(a[i]) - int(b[i])
		if d < 0 {
			d = -d
		}
		most, sum = max(most, d), sum+d
	}
	return most, float64(sum) / float64(len(a))
}

// Our decoder and an independent decoder give the same pixels: the channels and rows are in the same order.
func TestDecodeIsTheIndependentDecoders(t *testing.T) {
	for file, want := range map[string]string{
		"scene_420.jpg": "scene_420.png", "scene_422.jpg": "scene_422.png", "scene_444.jpg": "scene_444.png",
		"scene_gray.jpg": "scene_gray.png", "scene_restart.jpg": "scene_restart.png", "scene_bare.jpg": "scene_422.png",
	} {
		got := make([]byte, 3*sceneW*sceneH)
		if err := decoder(t).DecodeRGB(got, golden(t, file), sceneW, sceneH); err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if most, mean := difference(got, goldenPNG(t, want)); most > 2 || mean > 0.1 {
			t.Errorf("%s: differs from %s by %d at most, %.2f in the mean, want 2 and 0.1", file, want, most, mean)
		}
	}
}

// sceneImages returns the golden picture in each raw layout.
func sceneImages(t *testing.T) map[string]Image {
	all := map[string]Image{
		"rgb":  {Layout: RGB, Pix: goldenPNG(t, "scene.png")},
		"gray": {Layout: Gray, Pix: golden(t, "scene.gray")},
	}
	for name, layout := range map[string]Layout{"yuyv": YUYV, "nv12": NV12} {
		all[name+" full"] = Image{Layout: layout, Full: true, Pix: golden(t, "scene_full."+name)}
		all[name+" narrow"] = Image{Layout: layout, Pix: golden(t, "scene_narrow."+name)}
	}
	for name, m := range all {
		m.W, m.H = sceneW, sceneH
		all[name] = m
	}
	return all
}

// Every raw layout of a picture gives the same RGB picture in two ways: encoded by us and decoded by the standard
// library, and converted without JPEG.
func TestEncodeIsThePicture(t *testing.T) {
	for name, m := range sceneImages(t) {
		want := goldenPNG(t, "scene.png")
		if m.Layout == Gray {
			want = goldenPNG(t, "scene_gray.png")
		}
		for _, p := range []Chroma{ChromaOfPicture, Chroma420, Chroma444} {
			e := rttest.Must(NewEncoder(95, p))(t)
			dst := make([]byte, MaxSize(sceneW, sceneH, e.chromaOf(m.Layout)))
			n, err := e.Encode(dst, &m)
			if err != nil {
				t.Fatalf("%s, %v: %v", name, p, err)
			}
			chroma := e.chromaOf(m.Layout)
			e.Close()
			pic, err := Inspect(dst[:n])
			if err != nil || pic.Chroma != chroma {
				t.Errorf("%s, %v: Inspect() = %+v, %v, want chroma %v", name, p, pic, err, chroma)
			}
			im, err := stdjpeg.Decode(bytes.NewReader(dst[:n]))
			if err != nil {
				t.Fatalf("%s, %v: the standard library says %v", name, p, err)
			}
			// The library's own q90 pictures differ as much, because chroma is averaged.
			if most, mean := difference(rgbOf(im), want); mean > 3 || most > 90 {
				t.Errorf("%s, %v: differs by %d at most, %.2f in the mean, want 90 and 3", name, p, most, mean)
			}
		}
		got := make([]byte, 3*sceneW*sceneH)
		if err := decoder(t).ConvertRGB(got, &m); err != nil {
			t.Errorf("%s: ConvertRGB() = %v", name, err)
		} else if most, mean := difference(got, want); mean > 2 || most > 90 {
			t.Errorf("%s: ConvertRGB() differs by %d at most, %.2f in the mean, want 90 and 2", name, most, mean)
		}
	}
}

// A picture with padded rows, as a camera may deliver it, gives the same result as without padding.
func TestStrideIsSkipped(t *testing.T) {
	for name, m := range sceneImages(t) {
		stride := m.stride()
		rows := len(m.Pix) / stride
		wide := make([]byte, rows*(stride+10))
		for i := range wide {
			wide[i] = 0x77
		}
		for y := range rows {
			copy(wide[y*(stride+10):], m.Pix[y*stride:(y+1)*stride])
		}
		padded := m
		padded.Stride, padded.Pix = stride+10, wide[:len(wide)-10]
		a, b := make([]byte, 3*sceneW*sceneH), make([]byte, 3*sceneW*sceneH)
		d := decoder(t)
		rttest.Do(t, d.ConvertRGB(a, &m))
		if err := d.ConvertRGB(b, &padded); err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s with padded rows: %v, or another picture", name, err)
		}
		padded.Pix = padded.Pix[:len(padded.Pix)-1]
		rttest.Want(t, d.ConvertRGB(b, &padded), ErrSize, "%s one byte short", name)
	}
}

// A picture that the decoder shrinks equals the whole picture, only smaller.
func TestDecodeScaled(t *testing.T) {
	whole := goldenPNG(t, "scene_422.png")
	for _, k := range []int{1, 2, 4, 8} {
		w, h := sceneW/k, sceneH/k
		got, want := make([]byte, 3*w*h), make([]byte, 0, 3*w*h)
		if err := decoder(t).DecodeScaled(got, golden(t, "scene_422.jpg"), w, h, 8); err != nil {
			t.Fatalf("1/%d: %v", k, err)
		}
		for i := range 3 * w * h {
			c := i % 3
			x := i / 3 % w
			y := i / 3 / w
			sum := 0
			for j := range k * k {
				sum += int(whole[3*((y*k+j/k)*sceneW+x*k+j%k)+c])
			}
			want = append(want, byte(sum/k/k))
		}
		if most, mean := difference(got, want); mean > []float64{1: 0.1, 2: 3, 4: 4, 8: 6}[k] {
			t.Errorf("1/%d: differs from the mean of the pixels by %d at most, %.2f in the mean", k, most, mean)
		}
	}
}

// DecodeScaled shrinks a picture only by the allowed factors.
func TestDecodeScaledRefuses(t *testing.T) {
	d, src := decoder(t), golden(t, "scene_422.jpg")
	for _, tt := range []struct {
		name       string
		w, h, most int
		want       error
	}{
		{"the whole", 96, 64, 1, nil},
		{"a half", 48, 32, 2, nil},
		{"a half, where nothing may be shrunk", 48, 32, 1, ErrSize},
		{"a quarter, where a half is allowed", 24, 16, 2, ErrSize},
		{"a third", 32, 21, 8, ErrSize},
		{"a half across only", 48, 64, 8, ErrSize},
		{"twice", 192, 128, 8, ErrSize},
		{"a sixteenth", 6, 4, 16, ErrSize},
		{"nothing allowed at all", 96, 64, 0, ErrSize},
	} {
		dst := bytes.Repeat([]byte{0xa5}, 3*192*128+64)
		rttest.Want(t, d.DecodeScaled(dst[:3*tt.w*tt.h], src, tt.w, tt.h, tt.most), tt.want, "%s", tt.name)
		if end := dst[3*tt.w*tt.h:]; !bytes.Equal(end, bytes.Repeat([]byte{0xa5}, len(end))) {
			t.Errorf("%s: DecodeScaled wrote behind the picture", tt.name)
		}
	}
	for _, tt := range [][6]int{{321, 241, 161, 121, 8, 2}, {320, 240, 161, 121, 8, 0}, {1, 1, 1, 1, 8, 1},
		{8, 8, 1, 1, 8, 8}, {8, 8, 1, 1, 4, 0}} {
		rttest.Want(t, Shrink(tt[0], tt[1], tt[2], tt[3], tt[4]), tt[5], "Shrink(%v)", tt[:5])
	}
}

// After StandardTables are inserted into a webcam's picture, any decoder can read it.
func TestStandardTablesMakeItWhole(t *testing.T) {
	bare := golden(t, "scene_bare.jpg")
	p, err := Inspect(bare)
	if err != nil || p.Tables || p.Chroma != Chroma422 || p.W != sceneW || p.H != sceneH {
		t.Fatalf("Inspect() = %+v, %v, want one without tables", p, err)
	}
	if _, err := stdjpeg.Decode(bytes.NewReader(bare)); err == nil {
		t.Fatal("the standard library decodes it as it is: it is no test")
	}
	whole := append(append(append([]byte(nil), bare[:p.Insert]...), StandardTables...), bare[p.Insert:p.End]...)
	im := rttest.Must(stdjpeg.Decode(bytes.NewReader(whole)))(t)
	if most, mean := difference(rgbOf(im), goldenPNG(t, "scene_422.png")); mean > 3 {
		t.Errorf("differs by %d at most, %.2f in the mean", most, mean)
	}
	var other bytes.Buffer // the encoder of the standard library writes the same tables
	stdjpeg.Encode(&other, image.NewYCbCr(image.Rect(0, 0, 8, 8), image.YCbCrSubsampleRatio420), nil)
	if n := len(StandardTables); n != 420 || !bytes.Contains(other.Bytes(), []byte(StandardTables[4+29:4+29+17])) {
		t.Errorf("StandardTables has %d bytes, or another AC table than the standard library's", n)
	}
}

func TestInspectPadding(t *testing.T) {
	src := golden(t, "scene_420.jpg")
	padded := append(bytes.Clone(src), 0, 0, 0xff, 0xd9, 0x12)
	if p, err := Inspect(padded); err != nil || p.End != len(src) {
		t.Errorf("Inspect() of a padded picture = %+v, %v, want its end at %d", p, err, len(src))
	}
	for cut := range len(src) {
		if p, err := Inspect(src[:cut]); err == nil {
			t.Fatalf("Inspect() of %d of %d bytes = %+v, want an error", cut, len(src), p)
		}
	}
}

func TestEveryLayoutAllocatesNothing(t *testing.T) {
	for name, m := range sceneImages(t) {
		e := rttest.Must(NewEncoder(90, ChromaOfPicture))(t)
		defer e.Close()
		d := decoder(t)
		dst := make([]byte, MaxSize(sceneW, sceneH, Chroma444))
		rgb := make([]byte, 3*sceneW*sceneH)
		if n := testing.AllocsPerRun(20, func() {
			n := rttest.Must(e.Encode(dst, &m))(t)
			rttest.Do(t, d.DecodeScaled(rgb, dst[:n], sceneW/2, sceneH/2, 2))
			rttest.Do(t, d.ConvertRGB(rgb, &m))
		}); n != 0 {
			t.Errorf("%s allocates %v times, want 0", name, n)
		}
	}
}
