package why

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// ride adds an observation whose stages are known: the picture is 20 ms old, encoding and sending
// take 2 ms, the chunk arrives 40 ms later and is merged after 5 ms, and the goals of the first
// action are written 3 ms after their tick.
func (s *story) ride(audit *strings.Builder, change func(*record.Sent, *record.Chunk)) {
	s.request(func(q *record.Request) { q.Step = s.step + 1 })
	sent := record.Sent{
		At:       s.now + 2*millisecond,
		Seq:      s.seq,
		Epoch:    1,
		Observed: s.now - 20*millisecond,
		Encoded:  s.now + millisecond,
		Outcome:  "sent",
	}
	chunk := record.Chunk{
		At:        s.now + 47*millisecond,
		Arrived:   s.now + 42*millisecond,
		QueueWait: int64(4 * millisecond),
		Inference: int64(20 * millisecond),
	}
	change(&sent, &chunk)
	_ = s.v.Sent(&sent)
	seq := s.seq
	s.now = chunk.At
	s.answer(seq, func(c *record.Chunk) {
		c.At = chunk.At
		c.Arrived = chunk.Arrived
		c.QueueWait = chunk.QueueWait
		c.Inference = chunk.Inference
	})
	s.ticks(3, func(t *record.Tick) { t.Read, t.Act = int64(2*millisecond), int64(millisecond) })
	fmt.Fprintf(audit, `{"ts":"2026-11-24T14:03:20.1Z","session_id":"s-1","session_epoch":1,"seq_id":%d,`+
		`"queue_wait_ms":4,"decode_ms":2,"inference_ms":18,"service_ms":25,"outcome":"ok"}`+"\n", seq)
}

func TestLatency(t *testing.T) {
	s, lines := newStory(), &strings.Builder{}
	s.ticks(1)
	for range 9 {
		s.ride(lines, func(*record.Sent, *record.Chunk) {})
	}
	s.ride(lines, func(_ *record.Sent, c *record.Chunk) {
		c.Arrived, c.At = c.Arrived+100*millisecond, c.At+100*millisecond
	})
	s.ask(500) // this request is never answered, so it has no stages
	a := rttest.Must(readAudit(strings.NewReader(lines.String()), s.Log))(t)
	const tick = 1000 / 60.
	for name, tt := range map[string]struct {
		audit *Audit
		want  map[string][3]float64 // n, p50, p99
	}{
		"with an audit": {a, map[string][3]float64{
			"exposure": {}, "capture": {10, 20, 20}, "encode": {10, 1, 1}, "send": {10, 1, 1}, "network": {10, 15, 115},
			"queue": {10, 4, 4}, "decode": {10, 2, 2}, "inference": {10, 18, 18}, "send back": {10, 1, 1},
			"merge": {10, 5, 5}, "bus": {10, tick + 3, tick + 3},
			"glass to motor": {10, 20 + 47 + tick + 3, 20 + 147 + tick + 3},
		}},
		"without one": {nil, map[string][3]float64{
			"network": {10, 16, 116}, "queue": {10, 4, 4}, "decode": {}, "inference": {10, 20, 20}, "send back": {},
		}},
	} {
		got := Latency(s.Log, tt.audit)
		for _, stage := range got {
			want, named := tt.want[stage.Name]
			near := func(a, b float64) bool { return a-b < 0.01 && b-a < 0.01 }
			if named && (stage.N != int(want[0]) || !near(stage.P50, want[1]) || !near(stage.P99, want[2])) {
				t.Errorf("%s: %+v, want %v", name, stage, want)
			}
		}
		rttest.Want(t, len(got), 12, "%s: stages", name)
	}
	var out bytes.Buffer
	rttest.Do(t, (&Report{Latency: Latency(s.Log, a)}).WriteLatency(&out))
	rttest.Contains(t, out.String(), "exposure              -          -          -\n",
		"network              10      15.00     115.00\n")
}

// An older record lacks the instants of encoding and arrival, and a foreign record may have any
// times. Stages without valid times have no value.
func TestLatencyOfOtherRecords(t *testing.T) {
	s, lines := newStory(), &strings.Builder{}
	s.ticks(1)
	s.ride(lines, func(m *record.Sent, c *record.Chunk) { m.Encoded, c.Arrived = 0, 0 })
	s.ride(lines, func(m *record.Sent, c *record.Chunk) {
		m.Observed = 1 << 62
		m.Encoded = -1 << 62
		c.Arrived = rt.Instant(-1 << 62)
		c.QueueWait, c.Inference = -1<<62, -1<<62
	})
	for _, stage := range Latency(s.Log, nil) {
		want := map[string]int{"capture": 1, "queue": 1, "inference": 1, "bus": 2, "glass to motor": 1}
		if stage.N != want[stage.Name] {
			t.Errorf("%+v, want %d values", stage, want[stage.Name])
		}
	}
}
