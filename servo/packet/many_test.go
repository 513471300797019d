package packet

import (
	"os"
	"strconv"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Property: Cut never panics or hangs, makes progress, and invents no frame. The test makes many
// more executions than a fuzzer, with mutations that suit the formats. PARSER_RUNS is the number of
// executions.
func TestParsersUnderMutations(t *testing.T) {
	runs := 300_000
	if v := os.Getenv("PARSER_RUNS"); v != "" {
		runs = rttest.Must(strconv.Atoi(v))(t)
	}
	formats := []struct {
		name string
		Format
	}{{"Feetech", Feetech}, {"protocol 1.0", Dynamixel1}, {"protocol 2.0", Dynamixel2{}}}
	good := statuses()
	seed := uint64(88172645463325252)
	roll := func(n int) int {
		seed ^= seed << 13
		seed ^= seed >> 7
		seed ^= seed << 17
		return int(seed % uint64(n))
	}
	executions := map[string]int{}
	in, copied := make([]byte, 0, 1024), make([]byte, 0, 1024)
	for i := 0; i < runs; {
		in = in[:0]
		for range 1 + roll(3) {
			in = append(in, good[roll(len(good))]...)
		}
		for range roll(4) {
			k := roll(len(in))
			switch roll(4) {
			case 0:
				in[k] ^= 1 << roll(8)
			case 1:
				in[k] = "\xFF\xFF\xFD\x00\xFE\x55"[roll(6)]
			case 2:
				in = append(in[:k], in[k+1:]...)
			case 3:
				in = in[:k]
			}
			if len(in) == 0 {
				break
			}
		}
		params := roll(12) - 1
		for _, f := range formats {
			copied = append(copied[:0], in...) // protocol 2.0 is unstuffed in place
			for rest, steps := copied, 0; ; steps++ {
				r, skipped, behind, ok := f.Cut(rest, params)
				executions[f.name]++
				i++
				if skipped < 0 || len(behind) > len(rest) || steps > len(in) || ok && len(behind) == len(rest) ||
					len(r.Params) > len(rest) {
					t.Fatalf("%s: % X, %d parameters: skips %d, leaves %d of %d in step %d, ok %v", f.name, in, params,
						skipped, len(behind), len(rest), steps, ok)
				}
				if !ok {
					break
				}
				rest = behind
			}
		}
		var fast Fast
		for n := 0; ; n++ {
			_, ok, broken := fast.Next(in, 1+roll(6), max(params, 0))
			executions["fast"]++
			i++
			if n > len(in) {
				t.Fatalf("% X: a fast reply without an end", in)
			}
			if !ok || broken {
				break
			}
		}
	}
	t.Logf("executions: %v", executions)
}

// statuses returns intact replies of all formats.
func statuses() (all [][]byte) {
	for n := range 11 {
		data := make([]byte, n)
		for i := range data {
			data[i] = "\xFF\xFF\xFD\x00\x10\x08"[(n+i)%6]
		}
		plain := append([]byte{0xFF, 0xFF, byte(n + 1), byte(n + 2), 0}, data...)
		all = append(all, append(plain, checksum(plain[2:])))
		start := dxlBegin(nil, byte(n+1), status)
		all = append(all, dxlEnd(append(append(start, 0), data...), 0))
	}
	fast := []byte{0xFF, 0xFF, 0xFD, 0, Broadcast, byte(1 + 6*8), 0, byte(status)}
	for id := byte(1); id <= 6; id++ {
		fast = append(fast, 0, id, id, 8, 0, 0)
		c := crc(0, fast)
		fast = append(fast, byte(c), byte(c>>8))
	}
	return append(all, fast)
}
