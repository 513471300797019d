package wire

import (
	"math"
	"strconv"
)

// Operations of a session query.
const (
	OpOpen  = "open"
	OpClose = "close"
)

// Tag is one free-form label of a robot. Tags are only shown and logged; no decision depends on them.
type Tag struct{ Key, Value string }

// SessionOpen asks for a session. A body without the key op is an open; any op other than OpOpen is refused.
type SessionOpen struct {
	ClientUUID    string
	RobotType     string
	PolicyType    string // expected; empty: any
	FPS           float64
	ActionNames   []string // names in the order of the columns of an action
	CameraNames   []string
	StateDim      int
	SchemaVersion int
	RTCEnabled    bool
	Task          string
	Tags          []Tag

	// Optional keys.
	ServerID     string // the only server that may answer; empty: any
	SessionEpoch uint32 // the epoch in the robot's liveliness token; 0 is not sent
	CameraShapes []CameraShape
	ActionUnits  []string // one for each action name
	StateUnits   []string // units of the state's values, one for each
	Instance     string   // random for each process, so that a server detects a second process with the same uuid
	Host         string   // for people: the machine of the robot's process
	Steps        int      // most observations that the robot can send together; 0: one
	RawImages    []string // cameras whose pictures are sent raw; empty: no camera, or an old robot
	ModelSHA256  string   // digest of the only policy that the robot accepts, or its first digits; empty: any
}

// CameraShape is the size of a camera's pictures.
type CameraShape struct {
	Name    string
	H, W, C int
}

func (o *SessionOpen) fields() []field {
	return []field{
		{key: "op", value: op(OpOpen)},
		{key: "client_uuid", value: &o.ClientUUID, limit: MaxUUIDBytes},
		{key: "robot_type", value: &o.RobotType, limit: MaxNameBytes},
		{key: "policy_type", value: &o.PolicyType, limit: MaxNameBytes},
		{key: "fps", value: &o.FPS},
		{key: "action_names", value: &o.ActionNames, limit: MaxNameBytes},
		{key: "camera_names", value: &o.CameraNames, limit: MaxNameBytes},
		{key: "state_dim", value: &o.StateDim, limit: MaxDOF},
		{key: "schema_version", value: &o.SchemaVersion, limit: math.MaxInt32},
		{key: "rtc_enabled", value: &o.RTCEnabled},
		{key: "task", value: &o.Task, limit: MaxTextBytes},
		{key: "tags", value: &o.Tags},
		{key: "server_id", value: &o.ServerID, limit: MaxNameBytes, optional: true},
		{key: "session_epoch", value: &o.SessionEpoch, optional: true},
		{key: "camera_shapes", value: &o.CameraShapes, optional: true},
		{key: "action_units", value: &o.ActionUnits, limit: MaxNameBytes, optional: true},
		{key: "state_units", value: &o.StateUnits, limit: MaxNameBytes, optional: true},
		{key: "instance", value: &o.Instance, limit: MaxNameBytes, optional: true},
		{key: "host", value: &o.Host, limit: MaxNameBytes, optional: true},
		{key: "observation_steps", value: &o.Steps, limit: MaxSteps, optional: true},
		{key: "raw_images", value: &o.RawImages, limit: MaxNameBytes, optional: true},
		{key: "model_sha256", value: &o.ModelSHA256, limit: MaxNameBytes, optional: true},
	}
}

func (o *SessionOpen) reset() { *o = SessionOpen{SchemaVersion: SchemaVersion} }

// SessionClose ends a session. An empty SessionID closes the open session; a stale SessionID is
// ignored. The answer is a ResetAck.
type SessionClose struct {
	ClientUUID string
	SessionID  string
}

func (c *SessionClose) fields() []field {
	return []field{
		{key: "op", value: op(OpClose)},
		{key: "client_uuid", value: &c.ClientUUID, limit: MaxUUIDBytes},
		{key: "session_id", value: &c.SessionID, limit: MaxNameBytes},
	}
}

func (c *SessionClose) reset() { *c = SessionClose{} }

// ParseOp returns the operation of a session query, OpOpen or OpClose. A query without an operation is an open. Any
// other operation is refused, whereas the draft treats it as an open.
func ParseOp(src []byte) (string, error) {
	op := OpOpen
	var r reader
	for range r.open(src) {
		if string(r.next()) != "op" {
			r.skip(0)
			continue
		}
		if op = r.string(MaxNameBytes); op != OpOpen && op != OpClose {
			r.badOp(op, "open or close")
		}
	}
	return op, r.close()
}

func (r *reader) badOp(got, want string) {
	r.refuse(strconv.Quote(got), want, ErrMalformed)
}

// Reset starts an episode.
type Reset struct {
	ClientUUID string
	EpisodeID  uint32

	// Optional key: the task of the next observations. A server whose policy cannot read the task refuses the reset and
	// changes nothing.
	Task string
}

func (m *Reset) fields() []field {
	return []field{
		{key: "client_uuid", value: &m.ClientUUID, limit: MaxUUIDBytes},
		{key: "episode_id", value: &m.EpisodeID},
		{key: "task", value: &m.Task, limit: MaxTextBytes, optional: true},
	}
}

func (m *Reset) reset() { *m = Reset{} }

// ResetAck answers a Reset and a SessionClose. In a body without the key `ok`, OK is true.
type ResetAck struct {
	OK    bool
	Error string
}

func (m *ResetAck) fields() []field {
	return []field{
		{key: "ok", value: &m.OK},
		{key: "error", value: &m.Error, limit: MaxTextBytes},
	}
}

func (m *ResetAck) reset() { *m = ResetAck{OK: true} }
