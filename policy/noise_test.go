package policy

import (
	"math"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// The known answers are those of Random123, kat_vectors, philox4x32 with 10 rounds.
func TestPhiloxKnownAnswers(t *testing.T) {
	for _, tt := range []struct {
		name    string
		counter [4]uint32
		key     [2]uint32
		want    [4]uint32
	}{
		{"zeros", [4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{"ones", [4]uint32{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, [2]uint32{0xffffffff, 0xffffffff},
			[4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{"digits of pi", [4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, [2]uint32{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rttest.Want(t, philox(tt.counter, tt.key), tt.want, "philox(%x, %x)", tt.counter, tt.key)
		})
	}
}

// The expected values come from the standard library, whose last bit may differ between machines.
func TestLogAndSinCosAgreeWithTheStandardLibrary(t *testing.T) {
	for i := range uint32(200_000) {
		word := i * 21475 // spread over all words
		u := (float64(word) + 0.5) / (1 << 32)
		if got, want := logUnit(u), math.Log(u); math.Abs(got-want) > 4e-16*max(1, math.Abs(want)) {
			t.Fatalf("logUnit(%v) = %v, want %v", u, got, want)
		}
		turn := float64(word) / (1 << 32)
		sin, cos := sinCosTurn(turn)
		wantSin, wantCos := math.Sincos(2 * math.Pi * turn)
		if math.Abs(sin-wantSin) > 1e-15 || math.Abs(cos-wantCos) > 1e-15 {
			t.Fatalf("sinCosTurn(%v) = %v, %v, want %v, %v", turn, sin, cos, wantSin, wantCos)
		}
	}
	for _, u := range []float64{0.5 / (1 << 32), 0.5, math.Nextafter(math.Sqrt2/2, 0), 1 - 0.5/(1<<32)} {
		if got, want := logUnit(u), math.Log(u); math.Abs(got-want) > 4e-16*max(1, math.Abs(want)) {
			t.Errorf("logUnit(%v) = %v, want %v", u, got, want)
		}
	}
}

func TestNoiseIsStandardNormal(t *testing.T) {
	z := make([]float32, 400_001) // not a multiple of four
	FillNoise(z, 7, 9)
	var sum, squares, fourth, lag, within float64
	for i, v := range z {
		x := float64(v)
		sum += x
		squares += x * x
		fourth += x * x * x * x
		if i > 0 {
			lag += x * float64(z[i-1])
		}
		if math.Abs(x) < 1 {
			within++
		}
	}
	n := float64(len(z))
	for _, c := range []struct {
		name             string
		got, want, want5 float64 // want5 is five standard errors
	}{
		{"mean", sum / n, 0, 0.008},
		{"variance", squares / n, 1, 0.012},
		{"fourth moment", fourth / n, 3, 0.08},
		{"correlation of neighbours", lag / n, 0, 0.008},
		{"share within one sigma", within / n, 0.682689, 0.004},
	} {
		if math.Abs(c.got-c.want) > c.want5 {
			t.Errorf("%s = %.5f, want %.5f within %.3f", c.name, c.got, c.want, c.want5)
		}
	}
}

func TestNoiseDependsOnKeySequenceAndIndexOnly(t *testing.T) {
	long, short := make([]float32, 300), make([]float32, 7)
	FillNoise(long, 1, 2)
	FillNoise(short, 1, 2)
	for i := range short {
		rttest.Want(t, short[i], long[i], "value %d of a short slice", i)
	}
	for _, other := range []struct {
		key NoiseKey
		seq uint64
	}{{2, 2}, {1, 3}, {1 << 32, 2}, {1, 2 | 1<<32}} {
		FillNoise(short, other.key, other.seq)
		if short[0] == long[0] && short[1] == long[1] {
			t.Errorf("key %d, seq %d gives the noise of key 1, seq 2", other.key, other.seq)
		}
	}
}

// The expected numbers are the output of the first version. They must not change, so that the noise of an old recording
// can be reproduced.
func TestNoisePin(t *testing.T) {
	var z [6]float32
	FillNoise(z[:], NewNoiseKey("bundle", "robot", "1"), 42)
	want := [6]float32{0.011435019, -0.20068629, -2.2794209, -0.5592895, 0.6100157, 1.2427087}
	rttest.Want(t, z, want, "FillNoise")
}

func TestNewNoiseKeyKeepsNamesApart(t *testing.T) {
	if NewNoiseKey("ab", "c") == NewNoiseKey("a", "bc") {
		t.Error(`NewNoiseKey("ab", "c") = NewNoiseKey("a", "bc"), want different keys`)
	}
}

func TestFillNoiseNoAlloc(t *testing.T) {
	z := make([]float32, 300)
	rttest.NoAllocs(t, "FillNoise allocates %v times, want 0", 100, func() { FillNoise(z, 1, 2) })
}

func BenchmarkFillNoise(b *testing.B) {
	z := make([]float32, 300)
	b.ReportAllocs()
	b.SetBytes(int64(4 * len(z)))
	for b.Loop() {
		FillNoise(z, 1, 2)
	}
}
