package wire

import (
	"fmt"
	"math"

	"github.com/tinylib/msgp/msgp"
)

// Operations of a session query.
const (
	OpOpen  = "open"
	OpClose = "close"
)

// Tag is one free-form label of a robot. Tags are telemetry: nothing decides
// by them.
type Tag struct{ Key, Value string }

// SessionOpen asks for a session.
type SessionOpen struct {
	ClientUUID    string
	RobotType     string
	PolicyType    string // expected; empty: any
	FPS           float64
	ActionNames   []string // in the order of the columns of an action
	CameraNames   []string
	StateDim      int
	SchemaVersion int
	RTCEnabled    bool
	Task          string
	Tags          []Tag

	// Optional keys.
	ServerID     string // the only server that may answer; empty: any
	SessionEpoch uint32 // of the presence token; 0 does not travel
	CameraShapes []CameraShape
	ActionUnits  []string // one for each action name
	StateUnits   []string // one for each value of the state
	Instance     string   // random for each process: a second owner of the id is told by it
	Host         string   // for people: where the robot's process runs
}

// CameraShape is the size of a camera's pictures.
type CameraShape struct {
	Name    string
	H, W, C int
}

// AppendSessionOpen appends the body of o.
func AppendSessionOpen(dst []byte, o *SessionOpen) []byte {
	dst = msgp.AppendMapHeader(dst, 12+count(o.ServerID != "", o.SessionEpoch != 0,
		len(o.CameraShapes) > 0, len(o.ActionUnits) > 0, len(o.StateUnits) > 0, o.Instance != "", o.Host != ""))
	dst = appendTextKey(dst, "op", OpOpen)
	dst = appendTextKey(dst, "client_uuid", o.ClientUUID)
	dst = appendTextKey(dst, "robot_type", o.RobotType)
	dst = appendTextKey(dst, "policy_type", o.PolicyType)
	dst = appendFloatKey(dst, "fps", o.FPS)
	dst = appendStringsKey(dst, "action_names", o.ActionNames)
	dst = appendStringsKey(dst, "camera_names", o.CameraNames)
	dst = appendIntKey(dst, "state_dim", int64(o.StateDim))
	dst = appendIntKey(dst, "schema_version", int64(o.SchemaVersion))
	dst = appendBoolKey(dst, "rtc_enabled", o.RTCEnabled)
	dst = appendTextKey(dst, "task", o.Task)
	dst = msgp.AppendString(dst, "tags")
	dst = msgp.AppendMapHeader(dst, uint32(len(o.Tags)))
	for _, t := range o.Tags {
		dst = appendTextKey(dst, t.Key, t.Value)
	}
	if o.ServerID != "" {
		dst = appendTextKey(dst, "server_id", o.ServerID)
	}
	if o.SessionEpoch != 0 {
		dst = appendIntKey(dst, "session_epoch", int64(o.SessionEpoch))
	}
	dst = appendShapesAndUnits(dst, o.CameraShapes, o.ActionUnits, o.StateUnits)
	if o.Instance != "" {
		dst = appendTextKey(dst, "instance", o.Instance)
	}
	if o.Host != "" {
		dst = appendTextKey(dst, "host", o.Host)
	}
	return dst
}

// ParseSessionOpen reads a body into a fresh *o. A missing op means open; any
// other than open is refused.
func ParseSessionOpen(o *SessionOpen, src []byte) error {
	*o = SessionOpen{SchemaVersion: SchemaVersion}
	var r reader
	for range r.open(src) {
		o.field(&r, string(r.key()))
	}
	return r.close()
}

func (o *SessionOpen) field(r *reader, key string) {
	switch key {
	case "op":
		r.op(OpOpen)
	case "client_uuid":
		o.ClientUUID = r.string(key, MaxUUIDBytes)
	case "robot_type":
		o.RobotType = r.string(key, MaxNameBytes)
	case "policy_type":
		o.PolicyType = r.string(key, MaxNameBytes)
	case "fps":
		o.FPS = r.float(key)
	case "action_names":
		o.ActionNames = r.strings(o.ActionNames, key, MaxNameBytes)
	case "camera_names":
		o.CameraNames = r.strings(o.CameraNames, key, MaxNameBytes)
	case "state_dim":
		o.StateDim = int(r.int(key, 0, MaxDOF))
	case "schema_version":
		o.SchemaVersion = int(r.int(key, 0, math.MaxInt32))
	case "rtc_enabled":
		o.RTCEnabled = r.bool(key)
	case "task":
		o.Task = r.string(key, MaxTextBytes)
	case "tags":
		o.Tags = r.tags(o.Tags)
	case "server_id":
		o.ServerID = r.string(key, MaxNameBytes)
	case "session_epoch":
		o.SessionEpoch = r.uint32(key)
	case "camera_shapes":
		o.CameraShapes = r.cameraShapes(o.CameraShapes)
	case "action_units":
		o.ActionUnits = r.strings(o.ActionUnits, key, MaxNameBytes)
	case "state_units":
		o.StateUnits = r.strings(o.StateUnits, key, MaxNameBytes)
	case "instance":
		o.Instance = r.string(key, MaxNameBytes)
	case "host":
		o.Host = r.string(key, MaxNameBytes)
	default:
		r.skip(0)
	}
}

func (r *reader) tags(dst []Tag) []Tag {
	dst = dst[:0]
	if r.null() {
		return dst
	}
	for range r.mapHeader("tags", MaxNames) {
		dst = append(dst, Tag{Key: string(r.key()), Value: r.string("tag", MaxTextBytes)})
	}
	return dst
}

// SessionClose ends a session. An empty SessionID means whichever is open; a
// stale one is ignored. The answer is a ResetAck.
type SessionClose struct {
	ClientUUID string
	SessionID  string
}

// AppendSessionClose appends the body of c.
func AppendSessionClose(dst []byte, c *SessionClose) []byte {
	dst = msgp.AppendMapHeader(dst, 3)
	dst = appendTextKey(dst, "op", OpClose)
	dst = appendTextKey(dst, "client_uuid", c.ClientUUID)
	return appendTextKey(dst, "session_id", c.SessionID)
}

// ParseSessionClose reads a body into a fresh *c.
func ParseSessionClose(c *SessionClose, src []byte) error {
	*c = SessionClose{}
	var r reader
	for range r.open(src) {
		switch key := string(r.key()); key {
		case "op":
			r.op(OpClose)
		case "client_uuid":
			c.ClientUUID = r.string(key, MaxUUIDBytes)
		case "session_id":
			c.SessionID = r.string(key, MaxNameBytes)
		default:
			r.skip(0)
		}
	}
	return r.close()
}

// ParseOp returns what a session query asks for: OpOpen, also when it does not
// say, or OpClose. Anything else is refused; the draft took it for an open.
func ParseOp(src []byte) (string, error) {
	op := OpOpen
	var r reader
	for range r.open(src) {
		if string(r.key()) != "op" {
			r.skip(0)
			continue
		}
		if op = r.string("op", MaxNameBytes); op != OpOpen && op != OpClose {
			r.badOp(op, "open or close")
		}
	}
	return op, r.close()
}

func (r *reader) op(want string) {
	if got := r.string("op", MaxNameBytes); got != want && r.err == nil {
		r.badOp(got, want)
	}
}

func (r *reader) badOp(got, want string) {
	r.fail(fmt.Errorf("wire: op: got %q, want %s: %w", got, want, ErrMalformed))
}

// Reset starts an episode.
type Reset struct {
	ClientUUID string
	EpisodeID  uint32
}

// AppendReset appends the body of m.
func AppendReset(dst []byte, m *Reset) []byte {
	dst = msgp.AppendMapHeader(dst, 2)
	dst = appendTextKey(dst, "client_uuid", m.ClientUUID)
	return appendIntKey(dst, "episode_id", int64(m.EpisodeID))
}

// ParseReset reads a body into a fresh *m.
func ParseReset(m *Reset, src []byte) error {
	*m = Reset{}
	var r reader
	for range r.open(src) {
		switch key := string(r.key()); key {
		case "client_uuid":
			m.ClientUUID = r.string(key, MaxUUIDBytes)
		case "episode_id":
			m.EpisodeID = r.uint32(key)
		default:
			r.skip(0)
		}
	}
	return r.close()
}

// ResetAck answers a Reset and a SessionClose.
type ResetAck struct {
	OK    bool
	Error string
}

// AppendResetAck appends the body of m.
func AppendResetAck(dst []byte, m *ResetAck) []byte {
	dst = msgp.AppendMapHeader(dst, 2)
	dst = appendBoolKey(dst, "ok", m.OK)
	return appendTextKey(dst, "error", m.Error)
}

// ParseResetAck reads a body into a fresh *m; a body without ok means true.
func ParseResetAck(m *ResetAck, src []byte) error {
	*m = ResetAck{OK: true}
	var r reader
	for range r.open(src) {
		switch key := string(r.key()); key {
		case "ok":
			m.OK = r.bool(key)
		case "error":
			m.Error = r.string(key, MaxTextBytes)
		default:
			r.skip(0)
		}
	}
	return r.close()
}

func count(has ...bool) (n uint32) {
	for _, h := range has {
		if h {
			n++
		}
	}
	return n
}

func appendShapesAndUnits(dst []byte, shapes []CameraShape, action, state []string) []byte {
	if len(shapes) > 0 {
		dst = msgp.AppendString(dst, "camera_shapes")
		dst = msgp.AppendMapHeader(dst, uint32(len(shapes)))
		for _, s := range shapes {
			dst = msgp.AppendString(dst, s.Name)
			dst = msgp.AppendArrayHeader(dst, 3)
			dst = appendInt(dst, int64(s.H))
			dst = appendInt(dst, int64(s.W))
			dst = appendInt(dst, int64(s.C))
		}
	}
	if len(action) > 0 {
		dst = appendStringsKey(dst, "action_units", action)
	}
	if len(state) > 0 {
		dst = appendStringsKey(dst, "state_units", state)
	}
	return dst
}

func (r *reader) cameraShapes(dst []CameraShape) []CameraShape {
	dst = dst[:0]
	if r.null() {
		return dst
	}
	for range r.mapHeader("camera_shapes", MaxNames) {
		s := CameraShape{Name: string(r.key())}
		if r.arrayHeader("camera_shapes", 3) != 3 {
			r.shape("camera_shapes", "another number of values", "[H, W, C]")
			return dst[:0]
		}
		s.H = int(r.int("camera_shapes", 1, MaxImageSide))
		s.W = int(r.int("camera_shapes", 1, MaxImageSide))
		s.C = int(r.int("camera_shapes", 1, 4))
		dst = append(dst, s)
	}
	return dst
}
