package remote

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire/zenoh/codec"
	"github.com/edge-rt/edge-rt/wire/zenoh/link"
)

// Goal: a map that was large, and has few entries left, frees its memory.
func TestShrink(t *testing.T) {
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
		m = Shrink(m, &most)
	}
	if after := heap(); after-before > (full-before)/4 { // a margin, because garbage of other tests is freed meanwhile
		t.Errorf("%d bytes for one of %d entries, %d for all", after-before, n, full-before)
	}
	if len(m) != 1 || m[n-1] != n-1 {
		t.Errorf("what is left is %v", m)
	}
	runtime.KeepAlive(m)
}

// Goal: the memory for numbers is bounded, counted and freed. A number may be declared with the help of an earlier
// number.
func TestNumbers(t *testing.T) {
	held := 0
	n := Numbers{Hold: func(more int) bool { held += more; return true }, Counters: new(link.Counters)}
	declare := func(id uint32, e codec.Expr) {
		n.Declared(&codec.Declare{Kind: codec.DeclareExpr, ID: id, Expr: e})
	}
	declare(7, codec.Key("@num"))
	declare(9, codec.Expr{Scope: 7, Suffix: []byte("/x")})
	declare(8, codec.Key("a//b"))
	declare(0, codec.Key("@zero"))
	rttest.Want(t, n.Counters.Stats(), link.Stats{Keys: 1, Declarations: 1}, "counters")
	if key, ok := n.Key(codec.Expr{Scope: 9, Suffix: []byte("/y"), Sender: true}); !ok || key != "@num/x/y" {
		t.Errorf("Key = %q, %v, want @num/x/y", key, ok)
	}
	named := codec.Expr{Scope: 9, Suffix: []byte("/y"), Sender: true}
	rttest.NoAllocs(t, "Expand allocates %v times, want 0", 100, func() { n.Expand(named) })
	if _, ok := n.Key(codec.Expr{Scope: 9}); ok {
		t.Error("a number of ours was taken for the remote's")
	}
	for id := uint32(10); id < 2*maxNumbers; id++ {
		declare(id, codec.Key(fmt.Append(nil, "k", id)))
	}
	rttest.Want(t, len(n.keys), maxNumbers, "numbers")
	for id := range uint32(2 * maxNumbers) {
		n.Declared(&codec.Declare{Kind: codec.UndeclareExpr, ID: id})
	}
	if len(n.keys) != 0 || held != 0 || n.bytes != 0 {
		t.Errorf("%d numbers, %d bytes held, %d counted; want none", len(n.keys), held, n.bytes)
	}
}
