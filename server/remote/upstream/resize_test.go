package upstream

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// noise returns a picture of random bytes.
func noise(h, w int) []byte {
	b, x := make([]byte, h*w*channels), uint32(h+w)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

// TestResizeAsOpenpiClient compares the SHA-256 sums of results with those of
// image_tools.resize_with_pad of openpi-client 0.1.2 with Pillow 13.0, for the same random
// pictures.
func TestResizeAsOpenpiClient(t *testing.T) {
	for _, g := range []struct {
		h, w, frameH, frameW int
		sum                  string
	}{
		{480, 640, 224, 224, "f5552f431c35363ef6b7316e51eef09b78e0efe79eecedafaf7e722037f0c7eb"},
		{224, 224, 224, 224, "2e37b0d1d6b51999bc1d79f5c18dc8194f15a17115c168b2ee36678afa0df95f"},
		{720, 1280, 224, 224, "c941c01c89e712263bab65190e141e41cacc4b4adca46fc657bbcaaae362d76e"},
		{64, 48, 224, 224, "985978e80169e42be30c0ff284cff05bff778028e4100f066395187f9ec27b57"},
		{256, 256, 224, 224, "6c8075ba5ae31af208f312ec02389eb460394052ab872c3f6213256e6003c1bf"},
		{97, 131, 60, 224, "53038b2cc4c3bd0f0f19a642a3d7ab421c02318ec14010d0c145e339fa2d80d6"},
		{5, 9, 7, 3, "1b4842481f216ba61800ef75a11a405ed31525570e4555b0015212c1d438caa1"},
		{30, 20, 20, 30, "15963168922660c3328abd2e81b91c0863758dabc32e55d266d7434518b294be"},
		{224, 168, 224, 224, "e3a3587fd1e2ef24a049da16c25271b78929e42703174ed6abb2adaaccc5afdb"},
	} {
		r := newResizer(g.h, g.w, g.frameH, g.frameW)
		src, dst := noise(g.h, g.w), make([]byte, g.frameH*g.frameW*channels)
		rttest.NoAllocs(t, "resize allocates %v times, want 0", 1, func() { r.resize(dst, src) })
		if sum := sha256.Sum256(dst); hex.EncodeToString(sum[:]) != g.sum {
			t.Errorf("%dx%d into %dx%d: sum %x, want %s", g.h, g.w, g.frameH, g.frameW, sum, g.sum)
		}
	}
}

func TestResizeOfALine(t *testing.T) { // Pillow would scale this line to a picture of height 0
	r := newResizer(1, 100, 10, 10)
	dst := make([]byte, 10*10*channels)
	r.resize(dst, noise(1, 100))
	rttest.Want(t, r.inH, 1, "height of a picture of one line")
}

func BenchmarkResize(b *testing.B) {
	r := newResizer(480, 640, 224, 224)
	src, dst := noise(480, 640), make([]byte, 224*224*channels)
	b.ReportAllocs()
	for b.Loop() {
		r.resize(dst, src)
	}
}
