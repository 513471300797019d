package policy

import (
	"slices"
	"testing"
)

func TestHistory(t *testing.T) {
	h := NewHistory(4, 2)
	chunk := func(v float32) []float32 {
		c := make([]float32, 8)
		for i := range c {
			c[i] = v + float32(i)
		}
		return c
	}
	dst := make([]float32, 8)
	if got := h.Copy(dst, 1, 0, 1); got != 0 {
		t.Errorf("an empty history knows %d rows", got)
	}
	for key := range int64(historyChunks + 2) {
		h.Put(key+1, chunk(float32(100*(key+1))))
	}
	for _, tt := range []struct {
		name       string
		key        int64
		start, end int
		want       []float32
	}{
		{"the newest", historyChunks + 2, 1, 3, []float32{1202, 1203, 1204, 1205}},
		{"the oldest that is kept", 3, 0, 1, []float32{300, 301}},
		{"one that was forgotten", 2, 0, 1, nil}, {"one that never was", 99, 0, 1, nil},
		{"the key of an empty place", 0, 0, 1, nil}, {"a negative key", -3, 0, 1, nil},
		{"rows beyond the chunk", 12, 3, 5, nil}, {"rows before it", 12, -1, 1, nil}, {"no rows", 12, 2, 2, nil}, {"rows backwards", 12, 3, 1, nil},
	} {
		if got := h.Copy(dst, tt.key, tt.start, tt.end); got != len(tt.want)/2 || !slices.Equal(dst[:2*got], tt.want) {
			t.Errorf("%s: %d rows %v, want %v", tt.name, got, dst[:2*got], tt.want)
		}
	}
	if got := h.Copy(dst[:2], 12, 0, 2); got != 0 {
		t.Errorf("%d rows where there is room for one", got)
	}
	h.Put(12, chunk(7))
	if h.Copy(dst, 12, 0, 1) != 1 || dst[0] != 7 || h.Copy(dst, 3, 0, 1) != 1 {
		t.Error("a key that is there was not replaced in its place")
	}
	h.Put(0, chunk(1))
	h.Put(13, chunk(1)[:2])
	if h.Copy(dst, 13, 0, 1) != 0 {
		t.Error("a chunk of another size was kept")
	}
	if n := testing.AllocsPerRun(100, func() { h.Put(20, dst); h.Copy(dst, 20, 0, 4) }); n != 0 {
		t.Errorf("Put and Copy allocate %v times", n)
	}
	h.Clear()
	if h.Copy(dst, 20, 0, 1) != 0 {
		t.Error("a cleared history remembers")
	}
}

func TestHistoryIsBounded(t *testing.T) {
	if h := NewHistory(maxRows, maxDim); len(h.keys) != 1 {
		t.Errorf("%d chunks of the largest policy, want 1", len(h.keys))
	}
	if h := NewHistory(50, 6); len(h.keys) != historyChunks {
		t.Errorf("%d chunks of a small one, want %d", len(h.keys), historyChunks)
	}
}
