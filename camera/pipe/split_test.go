package pipe

import (
	"bytes"
	"image"
	stdjpeg "image/jpeg"
	"testing"

	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// picture returns a JPEG whose APP1 segment contains another JPEG, as for a thumbnail.
func picture(t testing.TB, shade byte) []byte {
	t.Helper()
	m := image.NewGray(image.Rect(0, 0, 32, 16))
	for i := range m.Pix {
		m.Pix[i] = shade + byte(i*7)
	}
	var b bytes.Buffer
	rttest.Do(t, stdjpeg.Encode(&b, m, nil))
	small := append([]byte("Exif"), b.Bytes()...)
	app1 := append([]byte{0xff, 0xe1, byte((len(small) + 2) >> 8), byte(len(small) + 2)}, small...)
	return bytes.Join([][]byte{b.Bytes()[:2], app1, b.Bytes()[2:]}, nil)
}

// cutAll cuts a stream that arrives in pieces. The parameter piece is the number of bytes of each. It returns the
// pictures, the number of dropped bytes, and the number of torn pictures.
func cutAll(stream []byte, piece int) (pictures [][]byte, dropped, torn int) {
	var s splitter
	var in []byte
	for len(stream) > 0 {
		n := min(piece, len(stream))
		in, stream = append(in, stream[:n]...), stream[n:]
		for again := true; again; {
			c := s.next(in)
			dropped += c.drop
			in = in[c.drop:]
			if c.torn {
				torn++
			}
			if c.picture > 0 {
				pictures = append(pictures, bytes.Clone(in[:c.picture]))
				in = in[c.picture:]
			}
			again = c.torn || c.picture > 0
		}
	}
	return pictures, dropped, torn
}

func TestPicturesAreCutOutOfAStream(t *testing.T) {
	a, b := picture(t, 0), picture(t, 100)
	header := []byte("\r\n--ffmpeg\r\nContent-type: image/jpeg\r\n\r\n")
	for _, tt := range []struct {
		name          string
		stream        [][]byte
		want          [][]byte
		dropped, torn int
	}{
		{"one after the other", [][]byte{a, b, a}, [][]byte{a, b, a}, 0, 0},
		{"the headers of multipart", [][]byte{header, a, header, b}, [][]byte{a, b}, 2 * len(header), 0},
		{"padding", [][]byte{a, make([]byte, 50), b}, [][]byte{a, b}, 50, 0},
		{"torn in the scan", [][]byte{a[:len(a)-9], b}, [][]byte{b}, len(a) - 9, 1},
		{"torn twice", [][]byte{a[:len(a)-9], a[:len(a)-9], b}, [][]byte{b}, 2 * (len(a) - 9), 2},
		{"begun in the middle", [][]byte{a[len(a)-40:], b}, [][]byte{b}, 40, 0},
		{"text", [][]byte{header}, nil, len(header) - 2, 0},
		{"the last one is cut", [][]byte{a, b[:len(b)-1]}, [][]byte{a}, 0, 0},
	} {
		for _, piece := range []int{1, 2, 7, 64, 1 << 20} {
			got, dropped, torn := cutAll(bytes.Join(tt.stream, nil), piece)
			if len(got) != len(tt.want) || dropped != tt.dropped || torn != tt.torn {
				t.Errorf("%s, in pieces of %d: %d pictures, %d bytes dropped, %d torn, want %d, %d, %d", tt.name, piece,
					len(got), dropped, torn, len(tt.want), tt.dropped, tt.torn)
				continue
			}
			for i := range got {
				if !bytes.Equal(got[i], tt.want[i]) {
					t.Errorf("%s, in pieces of %d: picture %d differs", tt.name, piece, i)
				}
			}
		}
	}
}

// Property: the result does not depend on the pieces in which a stream arrives. The pictures are parts of the stream in
// order, and a picture that jpeg.Inspect accepts is cut where it ends.
func FuzzSplit(f *testing.F) {
	a := picture(f, 0)
	f.Add(a, 3)
	f.Add(append(a[:len(a)-30:len(a)-30], a...), 1)
	f.Add([]byte("\xff\xd8\xff\xd8\xff\xff\xd8\xff\xe0\x00\x00\xff\xd9"), 2)
	f.Fuzz(func(t *testing.T, stream []byte, piece int) {
		whole, dropped, torn := cutAll(stream, len(stream)+1)
		again, droppedAgain, tornAgain := cutAll(stream, max(1, piece%97))
		if len(whole) != len(again) || torn != tornAgain {
			t.Fatalf("%d pictures and %d torn at once, %d and %d in pieces", len(whole), torn, len(again), tornAgain)
		}
		total := dropped
		rest := stream
		for i, p := range whole {
			total += len(p)
			if !bytes.Equal(p, again[i]) {
				t.Fatalf("picture %d differs in pieces", i)
			}
			at := bytes.Index(rest, p)
			if at < 0 || !bytes.HasPrefix(p, startOfImage[:2]) || !bytes.HasSuffix(p, []byte{mark0, markEOI}) {
				t.Fatalf("picture %d is no part of the stream", i)
			}
			rest = rest[at+len(p):]
			if k, err := jpeg.Inspect(p); err == nil && k.End != len(p) {
				t.Fatalf("picture %d ends at %d of %d", i, k.End, len(p))
			}
		}
		if total > len(stream) || droppedAgain > len(stream) {
			t.Fatalf("%d bytes are in pictures or dropped, the stream has %d", total, len(stream))
		}
	})
}
