package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
)

// NoiseKey selects one of 2^64 independent noise streams.
type NoiseKey uint64

// NewNoiseKey derives a key from the names of a stream, such as digest, robot and session. The boundaries between the
// names matter: ("ab", "c") and ("a", "bc") give different keys.
func NewNoiseKey(names ...string) NoiseKey {
	h := sha256.New()
	var size [8]byte
	for _, name := range names {
		binary.LittleEndian.PutUint64(size[:], uint64(len(name)))
		h.Write(size[:])
		h.Write([]byte(name))
	}
	return NoiseKey(binary.LittleEndian.Uint64(h.Sum(nil)))
}

// FillNoise fills dst with standard normal numbers that depend on key, seq and
// index only, on any machine. The numbers at index 4k to 4k+3 come from the counter (seq, k).
//
// Source: Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3 (SC11),
// Philox4x32-10; Box and Muller 1958.
//
//rt:noalloc
func FillNoise(dst []float32, key NoiseKey, seq uint64) {
	var z [4]float32
	for at, block := 0, uint64(0); at < len(dst); block++ {
		x := philox([4]uint32{uint32(seq), uint32(seq >> 32), uint32(block), uint32(block >> 32)},
			[2]uint32{uint32(key), uint32(key >> 32)})
		z[0], z[1] = boxMuller(x[0], x[1])
		z[2], z[3] = boxMuller(x[2], x[3])
		at += copy(dst[at:], z[:])
	}
}

// philox is Philox4x32-10: ten rounds of two 32x32 bit products.
//
//rt:noalloc
func philox(x [4]uint32, key [2]uint32) [4]uint32 {
	const (
		mul0, mul1   = 0xD2511F53, 0xCD9E8D57
		weyl0, weyl1 = 0x9E3779B9, 0xBB67AE85
		rounds       = 10
	)
	for range rounds {
		p0, p1 := uint64(mul0)*uint64(x[0]), uint64(mul1)*uint64(x[2])
		x = [4]uint32{uint32(p1>>32) ^ x[1] ^ key[0], uint32(p1), uint32(p0>>32) ^ x[3] ^ key[1], uint32(p0)}
		key[0] += weyl0
		key[1] += weyl1
	}
	return x
}

// boxMuller turns two uniform words into two independent standard normal numbers.
// The added half keeps the logarithm's argument above 0, so that |z| <= 6.8.
//
//rt:noalloc
func boxMuller(a, b uint32) (z0, z1 float32) {
	const unit = 1.0 / (1 << 32)
	radius := math.Sqrt(-2 * logUnit((float64(a)+0.5)*unit))
	sin, cos := sinCosTurn(float64(b) * unit)
	return float32(radius * cos), float32(radius * sin)
}

// Coefficients of atanh(s)/s, sin(x)/x and cos(x) as polynomials in the square of the argument, highest power first.
// There are enough terms for |s| < 0.172 and x < pi/2.
var (
	atanhSeries = [...]float64{1. / 23, 1. / 21, 1. / 19, 1. / 17, 1. / 15, 1. / 13, 1. / 11, 1. / 9, 1. / 7, 1. / 5,
		1. / 3, 1}
	sinSeries = [...]float64{
		-1. / 25852016738884976640000, 1. / 51090942171709440000, -1. / 121645100408832000, 1. / 355687428096000,
		-1. / 1307674368000, 1. / 6227020800, -1. / 39916800, 1. / 362880, -1. / 5040, 1. / 120, -1. / 6, 1,
	}
	cosSeries = [...]float64{
		-1. / 1124000727777607680000, 1. / 2432902008176640000, -1. / 6402373705728000, 1. / 20922789888000,
		-1. / 87178291200, 1. / 479001600, -1. / 3628800, 1. / 40320, -1. / 720, 1. / 24, -1. / 2, 1,
	}
)

// logUnit returns the natural logarithm of u for 0 < u < 1, within a few ulp. Noise must not depend on the machine, so
// this function rounds every product before it is added: the standard library's logarithm is assembly on some machines,
// and compilers fuse multiply-adds on others.
//
// log(2^e m) = e log 2 + 2 atanh(s), s = (m-1)/(m+1), |s| < 0.172.
//
//rt:noalloc
func logUnit(u float64) float64 {
	bits := math.Float64bits(u)
	exp := int(bits>>52) - 1023
	m := math.Float64frombits(bits&(1<<52-1) | 1023<<52) // m is in [1, 2)
	if m > math.Sqrt2 {
		m *= 0.5
		exp++
	}
	s := (m - 1) / (m + 1)
	ss := float64(s * s)
	sum := 0.0
	for _, c := range atanhSeries {
		sum = float64(sum*ss) + c
	}
	return float64(float64(exp)*math.Ln2) + float64(2*float64(s*sum))
}

// sinCosTurn returns the sine and cosine of a share of a full turn, 0 <= turn < 1, within a few ulp. It does not use
// the standard library, for the same reason as logUnit. It subtracts whole quarter turns exactly and computes the rest
// by Taylor series.
//
//rt:noalloc
func sinCosTurn(turn float64) (sin, cos float64) {
	quarter := math.Floor(turn * 4)
	x := float64((turn*4 - quarter) * (math.Pi / 2))
	xx := float64(x * x)
	for i := range sinSeries {
		sin = float64(sin*xx) + sinSeries[i]
		cos = float64(cos*xx) + cosSeries[i]
	}
	sin = float64(x * sin)
	switch int(quarter) & 3 {
	case 1:
		return cos, -sin
	case 2:
		return -sin, -cos
	case 3:
		return -cos, sin
	}
	return sin, cos
}
