package fleet

import (
	"math/rand/v2"
	"slices"

	"edgert/sim"
)

// answer is a chunk on its way back.
type answer struct {
	due   int // tick in which it can be merged
	key   int64
	chunk []float32
}

// link delays and loses answers. The pictures of an answer are long gone, so
// only rows travel.
type link struct {
	draws  *rand.Rand
	flying []answer
	spare  [][]float32
}

func (l *link) reset(seed uint64, direction int) {
	l.draws = rand.New(rand.NewPCG(seed, uint64(direction)))
	for _, a := range l.flying {
		l.spare = append(l.spare, a.chunk)
	}
	l.flying = l.flying[:0]
}

// send puts a copy of the chunk on its way, unless it is lost.
func (l *link) send(cfg *Config, tick int, key int64, chunk []float32) {
	late := l.draws.IntN(cfg.Jitter + 1)
	if l.draws.Float64() < cfg.Loss {
		return
	}
	var rows []float32
	if n := len(l.spare); n > 0 {
		rows, l.spare = l.spare[n-1], l.spare[:n-1]
	} else {
		rows = make([]float32, cfg.Policy.Horizon()*sim.DOF)
	}
	copy(rows, chunk)
	l.flying = append(l.flying, answer{due: tick + cfg.Delay + late, key: key, chunk: rows})
}

// receive returns the newest answer that has come by this tick; those it
// overtook are dropped, as the receiver's register does. The chunk is lent until
// the next send.
func (l *link) receive(tick int) (newest answer, ok bool) {
	l.flying = slices.DeleteFunc(l.flying, func(a answer) bool {
		if a.due > tick {
			return false
		}
		if !ok || a.key > newest.key {
			newest, ok = a, true
		}
		l.spare = append(l.spare, a.chunk)
		return true
	})
	return newest, ok
}
