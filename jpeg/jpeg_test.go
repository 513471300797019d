//go:build cgo

package jpeg

import (
	"bytes"
	"encoding/binary"
	"errors"
	"image"
	"image/color"
	stdjpeg "image/jpeg"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

const bandsW, bandsH = 128, 64

// bands are the colours of testdata/jpeg, each 32 columns wide.
var bands = [4][3]byte{{255, 0, 0}, {0, 255, 0}, {0, 0, 255}, {255, 140, 0}}

func picture() []byte {
	pix := make([]byte, bandsW*bandsH*3)
	for i := range bandsW * bandsH {
		copy(pix[3*i:], bands[i%bandsW/32][:])
	}
	return pix
}

func read(t testing.TB, name string) []byte {
	t.Helper()
	return rttest.Must(os.ReadFile(filepath.Join("..", "testdata", "jpeg", name)))(t)
}

func decoder(t testing.TB) *Decoder {
	t.Helper()
	d := rttest.Must(NewDecoder())(t)
	t.Cleanup(func() { d.Close() })
	return d
}

func encode(t testing.TB, pix []byte, w, h, quality int) []byte {
	t.Helper()
	e := rttest.Must(NewEncoder(quality, ChromaOfPicture))(t)
	defer e.Close()
	dst := make([]byte, MaxSize(w, h, Chroma420))
	n, err := e.EncodeRGB(dst, pix, w, h)
	if err != nil {
		t.Fatalf("EncodeRGB(%dx%d) = %v", w, h, err)
	}
	return dst[:n]
}

// checkBands compares the middle of each band, away from the blurred borders.
func checkBands(t *testing.T, pix []byte, want [4][3]byte, tolerance int) {
	t.Helper()
	for band, colour := range want {
		for row := range bandsH {
			for col := 32*band + 8; col < 32*band+24; col++ {
				got := pix[3*(row*bandsW+col):][:3]
				for c := range 3 {
					if d := int(got[c]) - int(colour[c]); d > tolerance || d < -tolerance {
						t.Fatalf("pixel (%d,%d) of band %d = %v, want %v +-%d", row, col, band, got, colour, tolerance)
					}
				}
			}
		}
	}
}

// Pictures of another encoder decode to red, green, blue and orange: the channel order is RGB.
func TestDecodeOthersPictures(t *testing.T) {
	gray := [4][3]byte{{76, 76, 76}, {150, 150, 150}, {29, 29, 29}, {158, 158, 158}} // ITU-R 601 luma
	for _, tt := range []struct {
		file string
		want [4][3]byte
	}{
		{"bands_420.jpg", bands},
		{"bands_444.jpg", bands},
		{"bands_rgb.jpg", bands},
		{"bands_gray.jpg", gray},
	} {
		t.Run(tt.file, func(t *testing.T) {
			d, src := decoder(t), read(t, tt.file)
			if p, err := Inspect(src); p.W != bandsW || p.H != bandsH || p.End != len(src) || !p.Tables || err != nil {
				t.Fatalf("Inspect() = %+v, %v, want %dx%d with tables, %d bytes", p, err, bandsW, bandsH, len(src))
			}
			pix := make([]byte, bandsW*bandsH*3)
			if err := d.DecodeRGB(pix, src, bandsW, bandsH); err != nil {
				t.Fatalf("DecodeRGB() = %v", err)
			}
			checkBands(t, pix, tt.want, 3)
		})
	}
}

// The test uses the standard library as encoder and as decoder, because it shares no code with the C library.
func TestStandardLibraryAgrees(t *testing.T) {
	pix := picture()
	src := encode(t, pix, bandsW, bandsH, 95)
	im := rttest.Must(stdjpeg.Decode(bytes.NewReader(src)))(t)
	y, ok := im.(*image.YCbCr)
	if !ok || y.SubsampleRatio != image.YCbCrSubsampleRatio420 {
		t.Errorf("encoded as %T, want 4:2:0 YCbCr", im)
	}
	got := make([]byte, 0, len(pix))
	for row := range bandsH {
		for col := range bandsW {
			c := color.RGBAModel.Convert(im.At(col, row)).(color.RGBA)
			got = append(got, c.R, c.G, c.B)
		}
	}
	checkBands(t, got, bands, 3)

	rgba := image.NewRGBA(image.Rect(0, 0, bandsW, bandsH))
	for i := range bandsW * bandsH {
		copy(rgba.Pix[4*i:], append(slices.Clone(pix[3*i:3*i+3]), 255))
	}
	var file bytes.Buffer
	rttest.Do(t, stdjpeg.Encode(&file, rgba, &stdjpeg.Options{Quality: 95}))
	clear(got)
	rttest.Do(t, decoder(t).DecodeRGB(got, file.Bytes(), bandsW, bandsH))
	checkBands(t, got, bands, 3)
}

// A smooth picture of any size, even of a single pixel, changes by at most 12 levels when it is encoded at quality 95
// and decoded. MaxSize bytes are enough for noise at quality 100.
func TestRoundTripSizes(t *testing.T) {
	d := decoder(t)
	for _, size := range [][2]int{{1, 1}, {7, 3}, {16, 16}, {17, 33}, {160, 120}, {321, 243}} {
		w, h := size[0], size[1]
		smooth, noise := make([]byte, w*h*3), make([]byte, w*h*3)
		for i := range w * h {
			smooth[3*i] = byte(i % w / 2)
			smooth[3*i+1] = byte(i / w / 2)
			smooth[3*i+2] = 128
		}
		for i, x := 0, uint32(1); i < len(noise); i++ {
			x = x*1664525 + 1013904223
			noise[i] = byte(x >> 24)
		}
		got := make([]byte, w*h*3)
		if err := d.DecodeRGB(got, encode(t, smooth, w, h, 95), w, h); err != nil {
			t.Fatalf("%dx%d: %v", w, h, err)
		}
		for i := range got {
			if delta := int(got[i]) - int(smooth[i]); delta > 12 || delta < -12 {
				t.Fatalf("%dx%d: byte %d = %d, want %d +-12", w, h, i, got[i], smooth[i])
			}
		}
		if n := len(encode(t, noise, w, h, 100)); n > MaxSize(w, h, Chroma420) {
			t.Errorf("%dx%d: noise takes %d bytes, MaxSize says %d", w, h, n, MaxSize(w, h, Chroma420))
		}
	}
}

// patchSize writes another size into the frame header of a picture.
func patchSize(src []byte, w, h int) []byte {
	out := slices.Clone(src)
	for i := 2; i+9 < len(out); {
		marker, length := out[i+1], int(binary.BigEndian.Uint16(out[i+2:]))
		if marker == 0xc0 || marker == 0xc2 {
			binary.BigEndian.PutUint16(out[i+5:], uint16(h))
			binary.BigEndian.PutUint16(out[i+7:], uint16(w))
			return out
		}
		i += 2 + length
	}
	panic("no frame header")
}

func TestDecodeRefuses(t *testing.T) {
	whole := read(t, "bands_420.jpg")
	progressive := read(t, "bands_progressive.jpg")
	scan := whole[bytes.LastIndex(whole, []byte{0xff, 0xda}) : len(whole)-2]
	bomb := append(append(slices.Clone(whole[:len(whole)-2]), bytes.Repeat(scan, 400)...), 0xff, 0xd9)
	flipped := slices.Clone(whole)
	for i := len(flipped) - 200; i < len(flipped)-100; i++ {
		flipped[i] = 0xff
	}
	tests := []struct {
		name string
		src  []byte
		w, h int
		want error
	}{
		{"no bytes", nil, bandsW, bandsH, ErrCorrupt},
		{"only the first marker", whole[:2], bandsW, bandsH, ErrCorrupt},
		{"not a picture", []byte("hello, world"), bandsW, bandsH, ErrCorrupt},
		{"cut in the header", whole[:100], bandsW, bandsH, ErrCorrupt},
		{"cut in the middle", whole[:len(whole)*2/3], bandsW, bandsH, ErrCorrupt},
		{"cut before the end marker", whole[:len(whole)-2], bandsW, bandsH, ErrCorrupt},
		{"nonsense in the scan", flipped, bandsW, bandsH, ErrCorrupt},
		{"narrower than told", whole, bandsW + 1, bandsH, ErrSize},
		{"turned", whole, bandsH, bandsW, ErrSize},
		{"half the size, to which the library could scale", whole, bandsW / 2, bandsH / 2, ErrSize},
		{"a header of 65500x65500 on a small file", patchSize(whole, 65500, 65500)[:200], bandsW, bandsH, ErrTooLarge},
		{"a header of 65500x65500 with its tables", patchSize(whole, 65500, 65500), bandsW, bandsH, ErrTooLarge},
		{"a header of no width", patchSize(whole, 0, 64), bandsW, bandsH, ErrCorrupt},
		{"told a size without limit", whole, math.MaxInt, math.MaxInt, ErrTooLarge},
		{"told a negative size", whole, -1, bandsH, ErrTooLarge},
		{"400 scans", bomb, bandsW, bandsH, ErrTooLarge},
		{"progressive", progressive, bandsW, bandsH, ErrProgressive},
		{"four components", read(t, "bands_cmyk.jpg"), bandsW, bandsH, errFormat},
	}
	d := decoder(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dst := bytes.Repeat([]byte{0xa5}, bandsW*bandsH*3+64)
			err := d.DecodeRGB(dst[:bandsW*bandsH*3:bandsW*bandsH*3], tt.src, tt.w, tt.h)
			rttest.FailsAs(t, err, tt.want)
			if !bytes.Equal(dst[bandsW*bandsH*3:], bytes.Repeat([]byte{0xa5}, 64)) {
				t.Errorf("DecodeRGB() wrote behind dst")
			}
			// Afterwards the decoder works as before.
			if err := d.DecodeRGB(dst, whole, bandsW, bandsH); err != nil {
				t.Errorf("DecodeRGB() of a good picture afterwards = %v", err)
			}
		})
	}
	// The buffer is one byte too short.
	rttest.FailsAs(t, d.DecodeRGB(make([]byte, bandsW*bandsH*3-1), whole, bandsW, bandsH), ErrSize)
}

// A small file cannot keep the decoder busy. The test decodes the largest accepted picture with the largest number of
// scans; a block has one bit per component in each scan.
func TestManyScansAreBounded(t *testing.T) {
	rttest.RealTime(t)
	src := patchSize(read(t, "bands_420.jpg"), 4096, 4096)
	scan := src[bytes.LastIndex(src, []byte{0xff, 0xda}) : len(src)-2]
	src = append(append(src[:len(src)-2:len(src)-2], bytes.Repeat(scan, maxScans-1)...), 0xff, 0xd9)
	if _, err := Inspect(src); err != nil {
		t.Fatalf("Inspect() of %d scans = %v, want it let through", maxScans, err)
	}
	if _, err := Inspect(append(append(src[:len(src)-2:len(src)-2], scan...), 0xff,
		0xd9)); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("Inspect() of %d scans = %v, want %v", maxScans+1, err, ErrTooLarge)
	}
	d, dst := decoder(t), make([]byte, 3*4096*4096)
	start := time.Now()
	rttest.FailsAs(t, d.DecodeRGB(dst, src, 4096, 4096), ErrCorrupt)
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("DecodeRGB of %d scans took %v, want below 5s", maxScans, took)
	}
}

func TestEncodeRefuses(t *testing.T) {
	for _, quality := range []int{-1, 0, 101} {
		rttest.FailsAs(t, rttest.Err(NewEncoder(quality, ChromaOfPicture)), errQuality)
	}
	e := rttest.Must(NewEncoder(90, ChromaOfPicture))(t)
	pix, dst := make([]byte, 16*16*3), make([]byte, MaxSize(16, 16, Chroma420))
	for _, tt := range []struct {
		name     string
		dst, pix []byte
		w, h     int
		want     error
	}{
		{"as it should be", dst, pix, 16, 16, nil},
		{"one byte less than MaxSize", dst[:len(dst)-1], pix, 16, 16, ErrSize},
		{"a pixel too few", dst, pix[3:], 16, 16, ErrSize},
		{"no width", dst, nil, 0, 16, ErrTooLarge},
		{"a size that overflows", dst, pix, math.MaxInt, 4, ErrTooLarge},
		{"wider than a JPEG can be", make([]byte, MaxSize(65536, 1, Chroma420)), make([]byte, 65536*3), 65536, 1,
			ErrTooLarge},
	} {
		rttest.FailsAs(t, rttest.Err(e.EncodeRGB(tt.dst, tt.pix, tt.w, tt.h)), tt.want)
	}
	if err := e.Close(); err != nil {
		t.Errorf("Close() = %v", err)
	}
	if _, err := e.EncodeRGB(dst, pix, 16, 16); !errors.Is(err, errClosed) || !errors.Is(e.Close(), errClosed) {
		t.Errorf("EncodeRGB() after Close = %v, want %v", err, errClosed)
	}
}

func TestExplainSaysGotAndWanted(t *testing.T) {
	d, src := decoder(t), read(t, "bands_420.jpg")
	for _, tt := range []struct {
		src  []byte
		w, h int
		want string
	}{
		{src, 160, 120, "got 128x64, want 160x120"},
		{src[:len(src)-9], bandsW, bandsH, "make sense, and which begin with \"\\xff\\xd8\\xff\\xe0\""},
		{bytes.Replace(src, []byte{0xff, 0xc0}, []byte{0xff, 0xc9}, 1), bandsW, bandsH, "Huffman"}, // arithmetic coding
		{append(src[:len(src)-90:len(src)-90], 0xff, 0xd9), bandsW, bandsH, "end of data segment"},
	} {
		decoded := make(chan error)
		go func() { // another thread may call the decoder
			runtime.LockOSThread()
			decoded <- d.DecodeRGB(make([]byte, tt.w*tt.h*3), tt.src, tt.w, tt.h)
		}()
		err := <-decoded
		rttest.FailsAs(t, d.Explain(err, tt.src, tt.w, tt.h), err, tt.want)
	}
	if got := d.Explain(nil, src, 1, 1); got != nil {
		t.Errorf("Explain(nil) = %v, want nil", got)
	}
}

func TestJPEGNoAlloc(t *testing.T) {
	pix, dst := picture(), make([]byte, MaxSize(bandsW, bandsH, Chroma420))
	e := rttest.Must(NewEncoder(90, ChromaOfPicture))(t)
	defer e.Close()
	d, out := decoder(t), make([]byte, len(pix))
	rttest.NoAllocs(t, "a picture allocates %v times, want 0", 100, func() {
		n := rttest.Must(e.EncodeRGB(dst, pix, bandsW, bandsH))(t)
		rttest.Do(t, d.DecodeRGB(out, dst[:n], bandsW, bandsH))
		if err := d.DecodeRGB(out, dst[:n/2], bandsW, bandsH); err != ErrCorrupt {
			t.Fatal(err)
		}
	})
}

// Property: on any bytes, the decoder returns, writes nothing beyond the expected picture, and decodes a good picture
// afterwards.
func FuzzDecode(f *testing.F) {
	for _, name := range []string{"bands_420.jpg", "bands_444.jpg", "bands_progressive.jpg", "bands_rgb.jpg",
		"bands_gray.jpg", "bands_cmyk.jpg"} {
		f.Add(read(f, name))
	}
	good, d := read(f, "bands_420.jpg"), decoder(f)
	f.Add(patchSize(good, 65500, 65500))
	f.Add(stray(good, len(good)-2, 20))
	f.Add(stray(good, bytes.Index(good, []byte{0xff, markDQT}), 1))
	f.Add(append(slices.Clone(good[:len(good)-90]), 0xff, markEOI))
	guard := bytes.Repeat([]byte{0xa5}, 4096)
	const fitW, fitH = 37, 29
	d.ReserveFit(fitW)
	f.Fuzz(func(t *testing.T, src []byte) {
		p, err := Inspect(src)
		if p.End < 0 || p.End > len(src) || p.Insert < 0 || p.Insert > p.End {
			t.Fatalf("Inspect of %d bytes = %+v", len(src), p)
		}
		w, h := p.W, p.H
		if err != nil || w*h > 1<<20 {
			w, h = bandsW, bandsH
		}
		dst := append(make([]byte, w*h*3), guard...)
		err = d.DecodeRGB(dst[:w*h*3], src, w, h)
		if !bytes.Equal(dst[w*h*3:], guard) {
			t.Fatalf("DecodeRGB of %d bytes as %dx%d wrote behind dst", len(src), w, h)
		}
		if d.Explain(err, src, w, h) == nil != (err == nil) {
			t.Fatalf("Explain(%v) loses the error", err)
		}
		warned := d.Warned()
		if warned && err != nil || (warning(d) != "") != warned {
			t.Fatalf("DecodeRGB of %d bytes = %v, warned %v, %q", len(src), err, warned, warning(d))
		}
		for k := 2; k <= MaxShrink; k *= 2 {
			sw, sh := (w+k-1)/k, (h+k-1)/k
			small := append(make([]byte, 3*sw*sh), guard...)
			scaled := d.DecodeScaled(small[:3*sw*sh], src, sw, sh, k)
			if !bytes.Equal(small[3*sw*sh:], guard) {
				t.Fatalf("DecodeScaled of %d bytes as %dx%d wrote behind dst", len(src), sw, sh)
			}
			if (scaled == nil) != (err == nil) || d.Warned() != warned {
				t.Fatalf("DecodeScaled by %d = %v, warned %v, DecodeRGB = %v, warned %v", k, scaled, d.Warned(), err,
					warned)
			}
		}
		fit := append(make([]byte, 3*fitW*fitH), guard...)
		_, _, fitted := d.DecodeFit(fit[:3*fitW*fitH], src, fitW, fitH)
		if !bytes.Equal(fit[3*fitW*fitH:], guard) {
			t.Fatalf("DecodeFit of %d bytes wrote behind dst", len(src))
		}
		if err == nil && CanFit(w, h) && fitted != nil {
			t.Fatalf("DecodeFit of %d bytes = %v, DecodeRGB as %dx%d has no error", len(src), fitted, w, h)
		}
		if err == nil {
			// A picture that decodes also decodes without its padding and with the standard tables inserted.
			file := append(append(append([]byte(nil), src[:p.Insert]...), StandardTables...), src[p.Insert:p.End]...)
			if q, err := Inspect(file); err != nil || !q.Tables {
				t.Fatalf("Inspect with the tables written out = %+v, %v", q, err)
			}
			again := make([]byte, w*h*3)
			if err := d.DecodeRGB(again, file, w, h); err != nil || !bytes.Equal(again, dst[:w*h*3]) {
				t.Fatalf("with the tables written out the picture is another one: %v", err)
			}
		}
		out := make([]byte, bandsW*bandsH*3)
		if err := d.DecodeRGB(out, good, bandsW, bandsH); err != nil {
			t.Fatalf("DecodeRGB of a good picture afterwards = %v", err)
		}
	})
}
