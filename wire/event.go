package wire

import (
	"math"

	"github.com/tinylib/msgp/msgp"
)

// EventCode is the outcome of a robot's request.
type EventCode string

// The defined codes. A receiver treats an unknown code as information.
const (
	EventDraining EventCode = "draining" // the server is shutting down: open elsewhere
	// refused, with the reason in Text; sending the same again will not help
	EventBadObservation EventCode = "bad_observation"
	EventUnknownSession EventCode = "unknown_session" // not open here: open again
	// the answer would come too late to be used, so there is no answer
	EventLate EventCode = "late"
)

// Event is a server's message instead of a chunk, on the robot's action key with a header of type
// MsgEvent. An old robot takes it for a chunk without actions and counts it as lost.
type Event struct {
	Code         EventCode
	Text         string
	Seq          uint64 // seq_id of the observation that it concerns; 0: no observation
	RetryAfterMs int    // 0: at once, or never, depending on the code

	// Optional keys, by which a robot distinguishes its own server from others.
	ServerID string // the sender
	Nonce    int64  // of the session, if it has one; 0 is not sent
}

// AppendEvent appends the body of e: {code, text, seq, retry_after_ms}, and those of {server_id,
// nonce} that are set.
func AppendEvent(dst []byte, e *Event) []byte {
	keys := uint32(4)
	if e.ServerID != "" {
		keys++
	}
	if e.Nonce != 0 {
		keys++
	}
	dst = msgp.AppendMapHeader(dst, keys)
	dst = appendTextKey(dst, "code", string(e.Code))
	dst = appendTextKey(dst, "text", e.Text)
	dst = msgp.AppendString(dst, "seq")
	dst = msgp.AppendUint64(dst, e.Seq)
	dst = appendIntKey(dst, "retry_after_ms", int64(e.RetryAfterMs))
	if e.ServerID != "" {
		dst = appendTextKey(dst, "server_id", e.ServerID)
	}
	if e.Nonce != 0 {
		dst = appendIntKey(dst, "nonce", e.Nonce)
	}
	return dst
}

// ParseEvent reads a body into a fresh *e.
func ParseEvent(e *Event, src []byte) error {
	*e = Event{}
	var r reader
	for range r.open(src) {
		switch key := string(r.key()); key {
		case "code":
			e.Code = EventCode(r.string(key, MaxNameBytes))
		case "text":
			e.Text = r.string(key, MaxTextBytes)
		case "seq":
			e.Seq = r.uint64(key)
		case "retry_after_ms":
			e.RetryAfterMs = int(r.int(key, 0, math.MaxInt32))
		case "server_id":
			e.ServerID = r.string(key, MaxNameBytes)
		case "nonce":
			e.Nonce = r.int(key, math.MinInt64, math.MaxInt64)
		default:
			r.skip(0)
		}
	}
	return r.close()
}
