package zenoh

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	"edgert/wire/zenoh/codec"
)

// Goal: what a link held is gone with it, though another link's routes led to it
// and their keys never come again.
func TestRoutesLetGoOfLinks(t *testing.T) {
	victim, at := listener(t, Config{Log: func(string) {}})
	a, b := mustAttack(t, at), mustAttack(t, at)
	b.declare(codec.DeclareSubscriber, 1, "@stale")
	b.settle(1)
	a.send(codec.Message{Kind: codec.KindPush, Push: codec.Push{Expr: codec.Key([]byte("@stale"))}})
	a.settle(1)
	victim.mu.Lock()
	faces := len(victim.faces)
	gone := weak.Make(victim.faces[1].link)
	victim.mu.Unlock()
	if faces != 2 {
		t.Fatalf("%d links, want 2", faces)
	}
	b.conn.Close()
	eventually(t, "the link to be forgotten", func() bool {
		a.send(codec.Message{Kind: codec.KindPush, Push: codec.Push{Expr: codec.Key([]byte("@other"))}}) // its buffers are another message's
		runtime.GC()
		return gone.Value() == nil
	})
}

// Goal: a key under many numbers counts for each of them, until they are taken
// back.
func TestNumbersOfOneKeyCount(t *testing.T) {
	const numbers = 10_000
	victim, at := listener(t, Config{Log: func(string) {}})
	bytes := func() int {
		victim.mu.Lock()
		defer victim.mu.Unlock()
		return victim.memory()
	}
	before := bytes()
	a := mustAttack(t, at)
	for id := range uint32(numbers) {
		a.declare(codec.DeclareToken, id+1, "@same")
	}
	a.settle(1)
	if n := bytes() - before; n < numbers*numberedBytes {
		t.Errorf("%d numbers of one key count as %d bytes, want at least %d", numbers, n, numbers*numberedBytes)
	}
	for id := range uint32(numbers) {
		a.declare(codec.DeclareToken+1, id+1, "@same")
	}
	a.settle(2)
	if n := bytes(); n != before {
		t.Errorf("%d bytes are left of what was taken back, want %d", n, before)
	}
}

// Goal: a map that was long gives its memory back.
func TestSlim(t *testing.T) {
	const n = 1 << 20
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	m, most := map[int]int{}, 0
	before := heap()
	for i := range n {
		m[i] = i
	}
	full := heap()
	for i := range n - 1 {
		delete(m, i)
		m = slim(m, &most)
	}
	if after := heap(); after-before > (full-before)/4 { // other tests' garbage goes meanwhile
		t.Errorf("%d bytes for one of %d entries, %d for all", after-before, n, full-before)
	}
	if len(m) != 1 || m[n-1] != n-1 {
		t.Errorf("what is left is %v", m)
	}
	runtime.KeepAlive(m)
}

// Goal: pushes on keys whose chunks are all wild cost what their length does for
// each declared chunk, not its square: others are not kept waiting.
func TestWildChunksAreCheap(t *testing.T) {
	victim, at := listener(t, Config{Log: func(string) {}})
	a := mustAttack(t, at)
	for id := range uint32(5000) {
		a.declare(codec.DeclareSubscriber, id+1, fmt.Sprintf("@g/%s%d", strings.Repeat("a", 890), id))
	}
	a.settle(1)
	began := time.Now()
	for i := range 20 {
		a.send(codec.Message{Kind: codec.KindPush, Push: codec.Push{Expr: codec.Key(fmt.Appendf(nil, "@g/%sb%d", strings.Repeat("a$*", 300), i))}})
	}
	a.settle(2)
	if took := time.Since(began); took > 10*time.Second { // 30 s and more, where each pair costs the product of its lengths
		t.Errorf("20 keys took %v", took)
	}
	serves(t, victim, at)
}
