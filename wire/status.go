package wire

import (
	"math"
	"strings"

	"github.com/tinylib/msgp/msgp"
)

// Capabilities is what a server serves. Status and SessionAck both carry it.
type Capabilities struct {
	ModelRepo           string
	ModelRevision       string
	PolicyType          string
	ActionNames         []string // in the order of the columns; old servers may send none
	ExpectedCameras     []string
	StateDim            int // 0: not checked
	ChunkSize           int // the horizon H
	TrainedFPS          float64
	SupportsRTC         bool
	RTCExecutionHorizon int    // rows of a prefix that are used: prefix_end
	ServingMode         string // shared or exclusive
	WarmedUp            bool

	// Optional keys.
	T            int    // ExtensionLevel of the server; 0 from an old one
	ModelSHA256  string // of the policy bundle, hex
	CameraShapes []CameraShape
	ActionUnits  []string
	StateUnits   []string
}

// Extended reports whether the server knows the optional keys. An old one gets
// both prefixes, of equal length, and no key it might trip over.
func (c *Capabilities) Extended() bool { return c.T > 0 }

func (c *Capabilities) append(dst []byte) []byte {
	dst = appendTextKey(dst, "model_repo", c.ModelRepo)
	dst = appendTextKey(dst, "model_revision", c.ModelRevision)
	dst = appendTextKey(dst, "policy_type", c.PolicyType)
	dst = appendStringsKey(dst, "action_names", c.ActionNames)
	dst = appendStringsKey(dst, "expected_cameras", c.ExpectedCameras)
	dst = appendIntKey(dst, "state_dim", int64(c.StateDim))
	dst = appendIntKey(dst, "chunk_size", int64(c.ChunkSize))
	dst = appendFloatKey(dst, "trained_fps", c.TrainedFPS)
	dst = appendBoolKey(dst, "supports_rtc", c.SupportsRTC)
	dst = appendIntKey(dst, "rtc_execution_horizon", int64(c.RTCExecutionHorizon))
	dst = appendTextKey(dst, "serving_mode", c.ServingMode)
	return appendBoolKey(dst, "warmed_up", c.WarmedUp)
}

func (c *Capabilities) optional() uint32 {
	return count(c.T != 0, c.ModelSHA256 != "", len(c.CameraShapes) > 0, len(c.ActionUnits) > 0, len(c.StateUnits) > 0)
}

func (c *Capabilities) appendOptional(dst []byte) []byte {
	if c.T != 0 {
		dst = appendIntKey(dst, "t", int64(c.T))
	}
	if c.ModelSHA256 != "" {
		dst = appendTextKey(dst, "model_sha256", c.ModelSHA256)
	}
	return appendShapesAndUnits(dst, c.CameraShapes, c.ActionUnits, c.StateUnits)
}

// field reads one of the shared keys, or skips an unknown one.
func (c *Capabilities) field(r *reader, key string) {
	switch key {
	case "model_repo":
		c.ModelRepo = r.string(key, MaxTextBytes)
	case "model_revision":
		c.ModelRevision = r.string(key, MaxNameBytes)
	case "policy_type":
		c.PolicyType = r.string(key, MaxNameBytes)
	case "action_names":
		c.ActionNames = r.strings(c.ActionNames, key, MaxNameBytes)
	case "expected_cameras":
		c.ExpectedCameras = r.strings(c.ExpectedCameras, key, MaxNameBytes)
	case "state_dim":
		c.StateDim = int(r.int(key, 0, MaxDOF))
	case "chunk_size":
		c.ChunkSize = int(r.int(key, 0, MaxRows))
	case "trained_fps":
		c.TrainedFPS = r.float(key)
	case "supports_rtc":
		c.SupportsRTC = r.bool(key)
	case "rtc_execution_horizon":
		c.RTCExecutionHorizon = int(r.int(key, 0, MaxRows))
	case "serving_mode":
		c.ServingMode = r.string(key, MaxNameBytes)
	case "warmed_up":
		c.WarmedUp = r.bool(key)
	case "t":
		c.T = int(r.int(key, 0, math.MaxInt32))
	case "model_sha256":
		c.ModelSHA256 = r.string(key, MaxNameBytes)
	case "camera_shapes":
		c.CameraShapes = r.cameraShapes(c.CameraShapes)
	case "action_units":
		c.ActionUnits = r.strings(c.ActionUnits, key, MaxNameBytes)
	case "state_units":
		c.StateUnits = r.strings(c.StateUnits, key, MaxNameBytes)
	default:
		r.skip(0)
	}
}

// SessionAck answers a SessionOpen. A refusal carries Error and ServerLoad and
// leaves the Capabilities empty.
type SessionAck struct {
	Accepted  bool
	Error     string
	Warnings  []string
	SessionID string
	Capabilities
	SchemaVersion int
	ServerLoad    float64 // sessions / max_sessions

	// Optional keys.
	ServerID     string
	Draining     bool
	RetryAfterMs int    // a refusal that passes: try again or elsewhere; 0 does not travel
	Nonce        int64  // of the session: its chunks repeat it; 0 does not travel
	HeldBy       string // a refusal because another process owns the id: its host, or HostUnknown
}

// HostUnknown stands for the host of a robot that does not name its own.
const HostUnknown = "?"

// Temporary reports whether a refusal passes, for want of room or because the id
// is taken, so that another replica or a later attempt may accept. Any other
// refusal is about the contract and final.
func (a *SessionAck) Temporary() bool {
	return !a.Accepted && (a.Draining || a.RetryAfterMs > 0 || strings.HasPrefix(a.Error, "server full: "))
}

// AppendSessionAck appends the body of a.
func AppendSessionAck(dst []byte, a *SessionAck) []byte {
	dst = msgp.AppendMapHeader(dst, 18+a.optional()+count(a.ServerID != "", a.Draining, a.RetryAfterMs != 0, a.Nonce != 0, a.HeldBy != ""))
	dst = appendBoolKey(dst, "accepted", a.Accepted)
	dst = appendTextKey(dst, "error", a.Error)
	dst = appendStringsKey(dst, "warnings", a.Warnings)
	dst = appendTextKey(dst, "session_id", a.SessionID)
	dst = a.Capabilities.append(dst)
	dst = appendIntKey(dst, "schema_version", int64(a.SchemaVersion))
	dst = appendFloatKey(dst, "server_load", a.ServerLoad)
	dst = a.appendOptional(dst)
	if a.ServerID != "" {
		dst = appendTextKey(dst, "server_id", a.ServerID)
	}
	if a.Draining {
		dst = appendBoolKey(dst, "draining", true)
	}
	if a.RetryAfterMs != 0 {
		dst = appendIntKey(dst, "retry_after_ms", int64(a.RetryAfterMs))
	}
	if a.Nonce != 0 {
		dst = appendIntKey(dst, "nonce", a.Nonce)
	}
	if a.HeldBy != "" {
		dst = appendTextKey(dst, "held_by", a.HeldBy)
	}
	return dst
}

// ParseSessionAck reads a body into a fresh *a.
func ParseSessionAck(a *SessionAck, src []byte) error {
	*a = SessionAck{SchemaVersion: SchemaVersion}
	var r reader
	for range r.open(src) {
		switch key := string(r.key()); key {
		case "accepted":
			a.Accepted = r.bool(key)
		case "error":
			a.Error = r.string(key, MaxTextBytes)
		case "warnings":
			a.Warnings = r.strings(a.Warnings, key, MaxTextBytes)
		case "session_id":
			a.SessionID = r.string(key, MaxNameBytes)
		case "schema_version":
			a.SchemaVersion = int(r.int(key, 0, math.MaxInt32))
		case "server_load":
			a.ServerLoad = r.float(key)
		case "server_id":
			a.ServerID = r.string(key, MaxNameBytes)
		case "draining":
			a.Draining = r.bool(key)
		case "retry_after_ms":
			a.RetryAfterMs = int(r.int(key, 0, math.MaxInt32))
		case "nonce":
			_, a.Nonce = r.optionalInt(key)
		case "held_by":
			a.HeldBy = r.string(key, MaxNameBytes)
		default:
			a.Capabilities.field(&r, key)
		}
	}
	return r.close()
}

// Status describes a server to whoever asks; the query has an empty body.
type Status struct {
	Capabilities
	MinSchemaVersion int
	MaxSchemaVersion int
	ActiveSessions   int
	MaxSessions      int

	// Optional keys.
	ServerID   string
	ServerLoad float64 // sessions / max_sessions; 0 does not travel
	Draining   bool    // finishes its sessions and accepts no more
}

// AppendStatus appends the body of s.
func AppendStatus(dst []byte, s *Status) []byte {
	dst = msgp.AppendMapHeader(dst, 16+s.optional()+count(s.ServerID != "", s.ServerLoad != 0, s.Draining))
	dst = s.Capabilities.append(dst)
	dst = appendIntKey(dst, "min_schema_version", int64(s.MinSchemaVersion))
	dst = appendIntKey(dst, "max_schema_version", int64(s.MaxSchemaVersion))
	dst = appendIntKey(dst, "active_sessions", int64(s.ActiveSessions))
	dst = appendIntKey(dst, "max_sessions", int64(s.MaxSessions))
	dst = s.appendOptional(dst)
	if s.ServerID != "" {
		dst = appendTextKey(dst, "server_id", s.ServerID)
	}
	if s.ServerLoad != 0 {
		dst = appendFloatKey(dst, "server_load", s.ServerLoad)
	}
	if s.Draining {
		dst = appendBoolKey(dst, "draining", true)
	}
	return dst
}

// ParseStatus reads a body into a fresh *s.
func ParseStatus(s *Status, src []byte) error {
	*s = Status{MinSchemaVersion: MinSchemaVersion, MaxSchemaVersion: SchemaVersion}
	var r reader
	for range r.open(src) {
		switch key := string(r.key()); key {
		case "min_schema_version":
			s.MinSchemaVersion = int(r.int(key, 0, math.MaxInt32))
		case "max_schema_version":
			s.MaxSchemaVersion = int(r.int(key, 0, math.MaxInt32))
		case "active_sessions":
			s.ActiveSessions = int(r.int(key, 0, math.MaxInt32))
		case "max_sessions":
			s.MaxSessions = int(r.int(key, 0, math.MaxInt32))
		case "server_id":
			s.ServerID = r.string(key, MaxNameBytes)
		case "server_load":
			s.ServerLoad = r.float(key)
		case "draining":
			s.Draining = r.bool(key)
		default:
			s.Capabilities.field(&r, key)
		}
	}
	return r.close()
}
