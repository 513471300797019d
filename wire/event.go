package wire

import "math"

// EventCode is the outcome of a robot's request.
type EventCode string

// The defined codes. A receiver treats an unknown code as information.
const (
	EventDraining EventCode = "draining" // the server is shutting down: open elsewhere
	// the server refuses the observation, for the reason in Text; sending the same observation again is of no use
	EventBadObservation EventCode = "bad_observation"
	EventUnknownSession EventCode = "unknown_session" // the session is not open here: open again
	// the answer would come too late to be used, so there is no answer
	EventLate EventCode = "late"
	// the service has another model for the robot, which may open again between two episodes or keep its session
	EventModel EventCode = "model"
	// the program that computes the policy does not answer now: a later observation gets a chunk again
	EventUnavailable EventCode = "unavailable"
	// information: the robot waits because it has used up a quota of the server
	EventQuota EventCode = "quota"
)

// Event is a message that a server sends in place of a chunk, on the robot's action key with a header of type MsgEvent.
// An old robot takes it for a chunk without actions and counts that chunk as lost.
type Event struct {
	Code         EventCode
	Text         string
	Seq          uint64 // seq_id of the observation that the event is about; 0: the event is about no observation
	RetryAfterMs int    // 0: the code decides whether the robot may retry at once or never

	// Optional keys, by which a robot distinguishes its own server from others.
	ServerID string // the sender
	Nonce    int64  // the session's nonce, if it has one; 0 is not sent
}

func (e *Event) fields() []field {
	return []field{
		{key: "code", value: (*string)(&e.Code), limit: MaxNameBytes},
		{key: "text", value: &e.Text, limit: MaxTextBytes},
		{key: "seq", value: &e.Seq},
		{key: "retry_after_ms", value: &e.RetryAfterMs, limit: math.MaxInt32},
		{key: "server_id", value: &e.ServerID, limit: MaxNameBytes, optional: true},
		{key: "nonce", value: &e.Nonce, optional: true},
	}
}

func (e *Event) reset() { *e = Event{} }
