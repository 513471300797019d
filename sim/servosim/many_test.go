package servosim

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// runs returns the number of executions of a mutation test: the variable PARSER_RUNS, or a small number without it.
func runs(t *testing.T) int {
	if v := os.Getenv("PARSER_RUNS"); v != "" {
		return rttest.Must(strconv.Atoi(v))(t)
	}
	return 300_000
}

// dice is a small, fast generator of random numbers, so that the mutations do not take longer than the code under test.
type dice uint64

func (d *dice) roll(n int) int {
	*d ^= *d << 13
	*d ^= *d >> 7
	*d ^= *d << 17
	return int(uint64(*d) % uint64(n))
}

// mutate builds bytes for a parser: valid frames one after the other. Flips, header bytes, losses
// and cuts damage some of them.
func (d *dice) mutate(dst []byte, good [][]byte) []byte {
	dst = dst[:0]
	for range 1 + d.roll(3) {
		dst = append(dst, good[d.roll(len(good))]...)
	}
	for range d.roll(4) {
		i := d.roll(len(dst))
		switch d.roll(4) {
		case 0:
			dst[i] ^= 1 << d.roll(8)
		case 1:
			dst[i] = "\xFF\xFF\xFD\x00\xFE\x55"[d.roll(6)]
		case 2:
			dst = append(dst[:i], dst[i+1:]...)
		case 3:
			dst = dst[:i]
		}
		if len(dst) == 0 {
			return dst
		}
	}
	return dst
}

// Property: the parsers never panic or hang, make progress, and servos stay valid after any
// request. The test makes many more executions than a fuzzer, with mutations that suit the formats.
// Twenty servos of all series obey the accepted frames.
func TestParsersUnderMutations(t *testing.T) {
	var good [][]byte
	all := vectors(t)
	for _, model := range slices.Sorted(maps.Keys(all)) {
		for _, v := range all[model] {
			good = append(good, unhex(t, v.request))
		}
	}
	var servos []*servo
	for i := range models {
		cfg := Config{Servos: []Servo{{1, models[i].name}}, Plant: newPosed()}
		rttest.Do(t, cfg.check())
		s := new(servo)
		s.powerUp(&cfg, new(rail), 0, 1)
		servos = append(servos, s)
	}
	d, n := dice(88172645463325252), runs(t)
	executions := map[string]int{}
	var in, plain, room []byte
	plain, room = make([]byte, wireBuffer), make([]byte, 0, memSize)
	for i := 0; i < n; {
		in = d.mutate(in, good)
		for _, packets := range []bool{false, true} {
			name := "frames"
			if packets {
				name = "packets"
			}
			for rest, steps := in, 0; ; steps++ {
				f, used, ok, bad := cut(rest)
				if packets {
					f, used, ok, bad = cutPacket(rest, plain[:0])
				}
				executions[name]++
				i++
				if used < 0 || used > len(rest) || steps > len(in) || ok && used == 0 || bad && used == 0 {
					t.Fatalf("%s: % X: uses %d of %d in step %d, ok %v, bad %v", name, in, used, len(rest), steps, ok,
						bad)
				}
				if used == 0 {
					break
				}
				rest = rest[used:]
				r, fits := parse(f, packets)
				if !ok || !fits {
					continue
				}
				for p, more := r.next(); toMany(r.inst) && more; p, more = r.next() {
					if p.size < 0 {
						t.Fatalf("% X: a part of %d bytes", in, p.size)
					}
				}
				s := servos[d.roll(len(servos))]
				if s.protocol2() != packets || !s.supports(r.inst) || toMany(r.inst) {
					continue
				}
				executions["instructions"]++
				if data, _, _ := s.obey(&r, room, 2); len(data) > memSize {
					t.Fatalf("% X: a reply of %d bytes", in, len(data))
				}
				if s.mem[s.at.id] > idMax || s.rate(s.mem[s.at.baud]) == 0 {
					t.Fatalf("% X leaves id %d, baud code %d", in, s.mem[s.at.id], s.mem[s.at.baud])
				}
			}
		}
	}
	t.Logf("executions: %v", executions)
}
