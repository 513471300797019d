package packet

import (
	"bytes"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Property: on a line that flips, loses, doubles and invents bytes, every reply that Cut returns
// was sent, except for damaged replies whose checksum fits by chance: an 8-bit sum fits once in
// some hundred times and a CRC-16 hardly ever.
//
// EDGERT_EXECUTIONS=100000000 runs that many damaged streams; a minute is enough for some ten
// million.
func TestDamagedStreams(t *testing.T) {
	n := 100_000
	if text := os.Getenv("EDGERT_EXECUTIONS"); text != "" {
		n = rttest.Must(strconv.Atoi(text))(t)
	}
	for _, tt := range []struct {
		name       string
		format     Format
		append     func(dst []byte, id byte, data []byte) []byte
		collisions int // largest number of wrong replies that Cut may return in a million
	}{
		{"plain", Feetech, func(dst []byte, id byte, data []byte) []byte {
			start := len(dst)
			return plainEnd(append(append(dst, 0xFF, 0xFF, id, 0, 0), data...), start)
		}, 20_000},
		{"packet", Dynamixel2{}, func(dst []byte, id byte, data []byte) []byte {
			start := len(dst)
			return dxlEnd(append(append(dxlBegin(dst, id, status), 0), data...), start)
		}, 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			stream, data := make([]byte, 0, 512), make([]byte, 4)
			cut, wrong := 0, 0
			for range n {
				stream = stream[:0]
				for id := byte(1); id <= 3; id++ {
					value(data, id, rng.Uint32())
					stream = tt.append(stream, id, data)
				}
				stream = damage(rng, stream)
				for in := stream; ; {
					r, skipped, rest, ok := tt.format.Cut(in, 4)
					if skipped+len(rest) > len(in) {
						t.Fatalf("Cut(% X) leaves more than it got", in)
					}
					if !ok {
						break
					}
					if cut++; !bytes.Equal(r.Params[2:], check(r.ID, r.Params)) {
						wrong++
					}
					in = rest
				}
			}
			t.Logf("%d streams, %d replies cut out, %d of them by a colliding checksum", n, cut, wrong)
			if cut < n || wrong*1_000_000 > tt.collisions*cut {
				t.Errorf("%d wrong replies of %d, want at most %d in a million", wrong, cut, tt.collisions)
			}
		})
	}
}

// value fills data with two random bytes and two bytes that depend on them and on the id, so that a
// test recognizes data that were never sent.
func value(data []byte, id byte, random uint32) {
	data[0], data[1] = byte(random), byte(random>>8)
	if random>>16&3 == 0 {
		data[0], data[1] = 0xFF, 0xFF // the most difficult data
	}
	copy(data[2:], check(id, data))
}

func check(id byte, data []byte) []byte {
	c := crc(uint16(id)<<8, data[:2])
	return []byte{byte(c), byte(c >> 8)}
}

// damage changes up to four places of a stream.
func damage(rng *rand.Rand, s []byte) []byte {
	for range rng.IntN(5) {
		if len(s) == 0 {
			return s
		}
		at := rng.IntN(len(s))
		switch rng.IntN(5) {
		case 0:
			s[at] ^= 1 << rng.IntN(8)
		case 1:
			s[at] = byte(rng.Uint32())
		case 2:
			s = append(s[:at], s[at+1:]...)
		case 3:
			s = append(s[:at+1], s[at:]...) // a doubled byte
		case 4:
			s = s[:at]
		}
	}
	return s
}
