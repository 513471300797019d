package audit

import (
	"time"

	"github.com/edge-rt/edge-rt/wire/otlp"
)

// trace sends the spans of a request that ended at the instant end. It places the spans of the
// request's parts one after the other, although decoding may have run during the wait.
func (w *Writer) trace(r *Record, end time.Time) {
	if w.traces == nil {
		return
	}
	ids := otlp.Of(r.SessionID, r.Header.SeqID)
	whole := otlp.Span{
		Trace:  ids.Trace,
		ID:     ids.Server,
		Parent: ids.Robot,
		Name:   "serve",
		Kind:   otlp.Server,
		Start:  end.Add(-r.Service),
		End:    end,
		Values: [8]otlp.Value{
			{Key: "edge_rt.session", Text: r.SessionID},
			{Key: "edge_rt.seq", Number: int64(r.Header.SeqID)},
			{Key: "edge_rt.robot", Text: r.ClientUUID},
			{Key: "lean_server.batch", Number: int64(r.Batch)},
			{Key: "lean_server.conditioning", Text: r.Controls.Mode.String()},
			{Key: "lean_server.superseded", Number: int64(r.Superseded)},
		},
	}
	if r.Outcome != Answered {
		whole.Failed = r.Outcome.String() + ": " + r.Why
	}
	w.traces.Add(whole)
	at := whole.Start
	for i, part := range []struct {
		name string
		took time.Duration
	}{{"wait", r.QueueWait}, {"decode", r.Decode}, {"infer", r.Inference}} {
		w.traces.Add(otlp.Span{
			Trace:  ids.Trace,
			ID:     otlp.Part(ids.Server, byte(i+1)),
			Parent: ids.Server,
			Name:   part.name,
			Kind:   otlp.Internal,
			Start:  at,
			End:    at.Add(part.took),
		})
		at = at.Add(part.took)
	}
}
