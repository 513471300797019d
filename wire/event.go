package wire

import (
	"math"

	"github.com/tinylib/msgp/msgp"
)

// EventCode says what happened to a robot's request.
type EventCode string

// The codes there are. A receiver treats an unknown one as information.
const (
	EventDraining       EventCode = "draining"        // the server is going away: open elsewhere
	EventBadObservation EventCode = "bad_observation" // refused, Text says why; sending the same again will not help
	EventUnknownSession EventCode = "unknown_session" // not open here: open again
	EventLate           EventCode = "late"            // answered too late to be of use, so not at all
)

// Event is what a server says instead of a chunk, on the robot's action key
// with a header of type MsgEvent. To an old robot it looks like a chunk without
// actions, which it counts as a loss.
type Event struct {
	Code         EventCode
	Text         string
	Seq          uint64 // seq_id of the observation it is about; 0: none
	RetryAfterMs int    // 0: at once, or never, as the code says

	// Optional keys, by which a robot tells its own server from others.
	ServerID string // who says so
	Nonce    int64  // of the session, if one is open there; 0 does not travel
}

// AppendEvent appends the body of e: {code, text, seq, retry_after_ms} and what
// is set of {server_id, nonce}.
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
