package policy

// Limits of a robot's History.
const (
	historyChunks = 10      // the number in DRTC's server
	historyBytes  = 4 << 20 // memory for one robot's chunks; fewer than historyChunks fit if the policy is large
)

// History keeps a robot's last chunks. A request may name rows of these chunks as its prefix instead of sending the
// rows. When a named chunk is no longer kept, the request's chunk is not conditioned.
//
// Owner: one goroutine.
type History struct {
	horizon, dof int
	keys         []int64 // 0: an empty slot
	rows         []float32
	next         int
}

// HistoryBytes returns the memory in bytes of a History for chunks of horizon rows and dof columns.
func HistoryBytes(horizon, dof int) int64 {
	return int64(historyLen(horizon, dof)) * int64(8+4*horizon*dof)
}

func historyLen(horizon, dof int) int {
	return min(historyChunks, max(1, historyBytes/(4*horizon*dof)))
}

// NewHistory returns room for the chunks [horizon*dof] of one robot.
func NewHistory(horizon, dof int) *History {
	n := historyLen(horizon, dof)
	return &History{
		horizon: horizon,
		dof:     dof,
		keys:    make([]int64, n),
		rows:    make([]float32, n*horizon*dof),
	}
}

// Put stores a chunk under the key of its request, which is above 0. It replaces the chunk with the same key, or else
// the oldest chunk.
//
//rt:noalloc
func (h *History) Put(key int64, chunk []float32) {
	if key <= 0 || len(chunk) != h.horizon*h.dof {
		return
	}
	at := h.find(key)
	if at < 0 {
		at = h.next
		h.next = (h.next + 1) % len(h.keys)
	}
	h.keys[at] = key
	copy(h.rows[at*len(chunk):], chunk)
}

// Copy copies the rows from start up to, but without, end to dst, from the chunk that was stored under the key. It
// returns the number of these rows. It returns 0 if the chunk or the rows are absent, or if dst is too short.
//
//rt:noalloc
func (h *History) Copy(dst []float32, key int64, start, end int) (rows int) {
	at := h.find(key)
	if at < 0 || start < 0 || end <= start || end > h.horizon || (end-start)*h.dof > len(dst) {
		return 0
	}
	first := at * h.horizon * h.dof
	return copy(dst, h.rows[first+start*h.dof:first+end*h.dof]) / h.dof
}

// Clear removes all chunks.
func (h *History) Clear() { clear(h.keys) }

//rt:noalloc
func (h *History) find(key int64) int {
	if key <= 0 {
		return -1
	}
	for i, k := range h.keys {
		if k == key {
			return i
		}
	}
	return -1
}
