package wire

import (
	"math"
	"slices"
	"strings"
)

// Capabilities describe a server's policy. Status and SessionAck both carry them.
type Capabilities struct {
	ModelRepo           string
	ModelRevision       string
	PolicyType          string
	ActionNames         []string // in the order of the columns; an old server may send an empty list
	ExpectedCameras     []string
	StateDim            int // 0: not checked
	ChunkSize           int // the horizon H
	TrainedFPS          float64
	SupportsRTC         bool
	RTCExecutionHorizon int    // number of rows of a prefix that condition the chunk: prefix_end
	ServingMode         string // shared or exclusive
	WarmedUp            bool

	// Optional keys.
	T            int    // ExtensionLevel of the server; 0 from an old server
	ModelSHA256  string // digest of the policy bundle, in hexadecimal
	CameraShapes []CameraShape
	ActionUnits  []string
	StateUnits   []string
	Steps        int // observations, one control step apart, that the policy takes together; 0: one

	// Optional keys for the time that a chunk takes; 0: not known, or an old server.
	InferenceMsMin float64 // the shortest inference, with its decoding
	InferenceMsP99 float64 // 99 of 100 inferences take no longer
	QueueWaitMs    float64 // the longest wait of a request when all sessions send a request at the same moment
}

// Extended reports whether the server reads the optional keys. A robot sends an old server both prefixes, of equal
// length, and no key that the server may refuse.
func (c *Capabilities) Extended() bool { return c.T > 0 }

func (c *Capabilities) required() []field {
	return []field{
		{key: "model_repo", value: &c.ModelRepo, limit: MaxTextBytes},
		{key: "model_revision", value: &c.ModelRevision, limit: MaxNameBytes},
		{key: "policy_type", value: &c.PolicyType, limit: MaxNameBytes},
		{key: "action_names", value: &c.ActionNames, limit: MaxNameBytes},
		{key: "expected_cameras", value: &c.ExpectedCameras, limit: MaxNameBytes},
		{key: "state_dim", value: &c.StateDim, limit: MaxDOF},
		{key: "chunk_size", value: &c.ChunkSize, limit: MaxRows},
		{key: "trained_fps", value: &c.TrainedFPS},
		{key: "supports_rtc", value: &c.SupportsRTC},
		{key: "rtc_execution_horizon", value: &c.RTCExecutionHorizon, limit: MaxRows},
		{key: "serving_mode", value: &c.ServingMode, limit: MaxNameBytes},
		{key: "warmed_up", value: &c.WarmedUp},
	}
}

func (c *Capabilities) optional() []field {
	return []field{
		{key: "t", value: &c.T, limit: math.MaxInt32, optional: true},
		{key: "model_sha256", value: &c.ModelSHA256, limit: MaxNameBytes, optional: true},
		{key: "camera_shapes", value: &c.CameraShapes, optional: true},
		{key: "action_units", value: &c.ActionUnits, limit: MaxNameBytes, optional: true},
		{key: "state_units", value: &c.StateUnits, limit: MaxNameBytes, optional: true},
		{key: "observation_steps", value: &c.Steps, limit: MaxSteps, optional: true},
		{key: "inference_ms_min", value: &c.InferenceMsMin, optional: true},
		{key: "inference_ms_p99", value: &c.InferenceMsP99, optional: true},
		{key: "queue_wait_ms", value: &c.QueueWaitMs, optional: true},
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
	RetryAfterMs int    // in a temporary refusal: the time to wait before another attempt; 0 is not sent
	Nonce        int64  // the session's nonce, which its chunks repeat; 0 is not sent
	MaxSessions  int    // from a server that measures how many sessions it can serve; 0 is not sent
	HeldBy       string // in a refusal because another process owns the id: that process's host, or HostUnknown
	Simulation   bool   // the policy is for a simulated arm only
	Statistics   string // the statistics of the training's observations, as JSON of package trained; empty: not known
}

// HostUnknown is the host of a robot that does not name its host.
const HostUnknown = "?"

// Temporary reports whether a refusal is temporary, because the server has no room or another process owns the id. Then
// another replica, or a later attempt, may succeed. Any other refusal concerns the contract and is final.
func (a *SessionAck) Temporary() bool {
	return !a.Accepted && (a.Draining || a.RetryAfterMs > 0 || strings.HasPrefix(a.Error, "server full: "))
}

func (a *SessionAck) fields() []field {
	return slices.Concat([]field{
		{key: "accepted", value: &a.Accepted},
		{key: "error", value: &a.Error, limit: MaxTextBytes},
		{key: "warnings", value: &a.Warnings, limit: MaxTextBytes},
		{key: "session_id", value: &a.SessionID, limit: MaxNameBytes},
	}, a.required(), []field{
		{key: "schema_version", value: &a.SchemaVersion, limit: math.MaxInt32},
		{key: "server_load", value: &a.ServerLoad},
	}, a.optional(), []field{
		{key: "server_id", value: &a.ServerID, limit: MaxNameBytes, optional: true},
		{key: "draining", value: &a.Draining, optional: true},
		{key: "retry_after_ms", value: &a.RetryAfterMs, limit: math.MaxInt32, optional: true},
		{key: "nonce", value: &a.Nonce, optional: true},
		{key: "held_by", value: &a.HeldBy, limit: MaxNameBytes, optional: true},
		{key: "max_sessions", value: &a.MaxSessions, limit: math.MaxInt32, optional: true},
		{key: "simulation_only", value: &a.Simulation, optional: true},
		{key: "statistics", value: &a.Statistics, limit: MaxStatisticsBytes, optional: true},
	})
}

func (a *SessionAck) reset() { *a = SessionAck{SchemaVersion: SchemaVersion} }

// Status describes a server; the query for it has an empty body.
type Status struct {
	Capabilities
	MinSchemaVersion int
	MaxSchemaVersion int
	ActiveSessions   int
	MaxSessions      int

	// Optional keys.
	ServerID   string
	ServerLoad float64 // sessions / max_sessions; 0 is not sent
	Draining   bool    // the server finishes its sessions and accepts no more
	Device     string  // the device that runs the policy, such as cuda:0
	Inputs     []Feature
	Outputs    []Feature
}

func (s *Status) fields() []field {
	return slices.Concat(s.required(), []field{
		{key: "min_schema_version", value: &s.MinSchemaVersion, limit: math.MaxInt32},
		{key: "max_schema_version", value: &s.MaxSchemaVersion, limit: math.MaxInt32},
		{key: "active_sessions", value: &s.ActiveSessions, limit: math.MaxInt32},
		{key: "max_sessions", value: &s.MaxSessions, limit: math.MaxInt32},
	}, s.optional(), []field{
		{key: "server_id", value: &s.ServerID, limit: MaxNameBytes, optional: true},
		{key: "server_load", value: &s.ServerLoad, optional: true},
		{key: "draining", value: &s.Draining, optional: true},
		{key: "device", value: &s.Device, limit: MaxNameBytes, optional: true},
		{key: "input_features", value: &s.Inputs, optional: true},
		{key: "output_features", value: &s.Outputs, optional: true},
	})
}

func (s *Status) reset() {
	*s = Status{MinSchemaVersion: MinSchemaVersion, MaxSchemaVersion: SchemaVersion}
}
