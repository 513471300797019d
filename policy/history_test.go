package policy

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
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
	rttest.Want(t, h.Copy(dst, 1, 0, 1), 0, "rows of an empty history")
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
		{"rows beyond the chunk", 12, 3, 5, nil}, {"rows before it", 12, -1, 1, nil}, {"no rows", 12, 2, 2, nil},
		{"rows backwards", 12, 3, 1, nil},
	} {
		if got := h.Copy(dst, tt.key, tt.start, tt.end); got != len(tt.want)/2 || !slices.Equal(dst[:2*got], tt.want) {
			t.Errorf("%s: %d rows %v, want %v", tt.name, got, dst[:2*got], tt.want)
		}
	}
	rttest.Want(t, h.Copy(dst[:2], 12, 0, 2), 0, "rows that Copy gives for a span of two with room for one")
	h.Put(12, chunk(7))
	if h.Copy(dst, 12, 0, 1) != 1 || dst[0] != 7 || h.Copy(dst, 3, 0, 1) != 1 {
		t.Error("a key that is there was not replaced in its place")
	}
	h.Put(0, chunk(1))
	h.Put(13, chunk(1)[:2])
	if h.Copy(dst, 13, 0, 1) != 0 {
		t.Error("a chunk of another size was kept")
	}
	rttest.NoAllocs(t, "Put and Copy allocate %v times", 100, func() { h.Put(20, dst); h.Copy(dst, 20, 0, 4) })
	h.Clear()
	if h.Copy(dst, 20, 0, 1) != 0 {
		t.Error("a cleared history remembers")
	}
}

// History returns the same prefixes as DRTC's server assembled from the spans of its own chunks.
func TestHistoryGolden(t *testing.T) {
	type golden struct {
		Name  string
		Cache [][2]json.RawMessage // key, rows of one joint
		Meta  struct {
			Spans [][3]int64 `json:"action_schedule_spans"`
		}
		H      int
		Prefix [][]float32
	}
	deviations := map[string]string{
		"first_span_missing_shifts_left": "what is left would be the rows of other instants",
		"end_past_chunk_truncates":       "a row that is not there is a mistake of the caller",
		"negative_start_python_slice":    "so are rows from the end",
		"lru_evicts_oldest_at_H":         "ten chunks are kept, not H",
		"pad_to_max_action_dim":          "the graph pads by itself",
		"garbage_meta":                   "refused by package wire",
	}
	compared := 0
	for _, text := range rtcSection[json.RawMessage](t, "drtc_rtc", "server_prefix") {
		var c golden
		if err := json.Unmarshal(text, &c); err != nil && c.Name != "garbage_meta" {
			t.Fatal(err)
		}
		if deviations[c.Name] != "" {
			continue
		}
		compared++
		h := NewHistory(c.H, 1)
		for _, entry := range c.Cache {
			var key int64
			var rows []float32
			rttest.Do(t, errors.Join(json.Unmarshal(entry[0], &key), json.Unmarshal(entry[1], &rows)))
			h.Put(key, rows)
		}
		dst, n := make([]float32, c.H), 0
		for _, s := range c.Meta.Spans {
			n += h.Copy(dst[n:], s[0], int(s[1]), int(s[2]))
		}
		var want []float32
		for _, row := range c.Prefix {
			want = append(want, row...)
		}
		if !slices.Equal(dst[:n], want) {
			t.Errorf("%s: %v, want %v", c.Name, dst[:n], want)
		}
	}
	rttest.Want(t, compared, 15-len(deviations), "cases compared")
}

func TestHistoryIsBounded(t *testing.T) {
	rttest.Want(t, len(NewHistory(MaxRows, maxDim).keys), 1, "chunks of the largest policy")
	rttest.Want(t, len(NewHistory(50, 6).keys), historyChunks, "chunks of a small one")
}
