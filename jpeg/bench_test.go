//go:build cgo

package jpeg

import (
	"fmt"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim/pattern"
)

var benchSizes = [][2]int{{160, 120}, {640, 480}}

func BenchmarkEncodeRGB(b *testing.B) {
	for _, size := range benchSizes {
		w, h := size[0], size[1]
		b.Run(fmt.Sprintf("size=%dx%d", w, h), func(b *testing.B) {
			e := rttest.Must(NewEncoder(90, ChromaOfPicture))(b)
			defer e.Close()
			pix, dst := pattern.Scenery(w, h), make([]byte, MaxSize(w, h, Chroma420))
			b.SetBytes(int64(len(pix)))
			b.ReportAllocs()
			for b.Loop() {
				rttest.Must(e.EncodeRGB(dst, pix, w, h))(b)
			}
		})
	}
}

func BenchmarkDecodeRGB(b *testing.B) {
	for _, size := range benchSizes {
		w, h := size[0], size[1]
		b.Run(fmt.Sprintf("size=%dx%d", w, h), func(b *testing.B) {
			d := decoder(b)
			src := encode(b, pattern.Scenery(w, h), w, h, 90)
			dst := make([]byte, w*h*3)
			b.SetBytes(int64(len(dst)))
			b.ReportAllocs()
			for b.Loop() {
				rttest.Do(b, d.DecodeRGB(dst, src, w, h))
			}
		})
	}
}
