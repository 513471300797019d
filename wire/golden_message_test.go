package wire

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// message is any body of schema 1. The judges of vectors compare its fields with Python's.
type message interface {
	parse(src []byte) error
	append() []byte
	fields() map[string]any // the fields as in Python's dataclass
}

// form is one kind of body with its functions.
type form[M any] struct {
	body  *M
	read  func(*M, []byte) error
	write func([]byte, *M) []byte
	named func(*M) map[string]any
}

func (f form[M]) parse(src []byte) error { return f.read(f.body, src) }
func (f form[M]) append() []byte         { return f.write(nil, f.body) }
func (f form[M]) fields() map[string]any { return f.named(f.body) }

// kind returns a function that makes empty bodies.
func kind[M any](read func(*M, []byte) error, write func([]byte, *M) []byte,
	named func(*M) map[string]any) func() message {
	return func() message { return form[M]{new(M), read, write, named} }
}

var (
	observationKind = kind(ParseObservation, AppendObservation, observationFields)
	chunkKind       = kind(ParseActionChunk, AppendActionChunk, chunkFields)
	openKind        = kind(Parse, Append, openFields)
	ackKind         = kind(Parse, Append, ackFields)
	statusKind      = kind(Parse, Append, statusFields)
	resetKind       = kind(Parse, Append, func(m *Reset) map[string]any {
		return map[string]any{"client_uuid": m.ClientUUID, "episode_id": m.EpisodeID}
	})
	resetAckKind = kind(Parse, Append, func(m *ResetAck) map[string]any {
		return map[string]any{"ok": m.OK, "error": m.Error}
	})
	closeKind = kind(Parse, Append, func(m *SessionClose) map[string]any {
		return map[string]any{"op": OpClose, "client_uuid": m.ClientUUID, "session_id": m.SessionID}
	})

	// kinds maps the names of kinds in the vectors to functions that make empty bodies.
	kinds = map[string]func() message{
		"ObservationMsg": observationKind, "decode_observation": observationKind,
		"ActionChunkMsg": chunkKind, "decode_action_chunk": chunkKind,
		"SessionOpenMsg": openKind, "decode_session_open": openKind,
		"SessionAckMsg": ackKind, "decode_session_ack": ackKind,
		"ResetMsg": resetKind, "decode_reset": resetKind,
		"StatusMsg": statusKind, "ResetAckMsg": resetAckKind, "SessionCloseMsg": closeKind,
	}
)

func judgeMessage(raw json.RawMessage) error {
	var v struct {
		Type, Hex string
		Decoded   json.RawMessage
	}
	rttest.PanicOn(json.Unmarshal(raw, &v))
	fresh := kinds[v.Type]
	if fresh == nil {
		return fmt.Errorf("the judge does not know %s", v.Type)
	}
	m := fresh()
	if err := m.parse(unhex(v.Hex)); err != nil {
		return fmt.Errorf("parse(%s) = %v", v.Hex, err)
	}
	if err := sameFields(m.fields(), v.Decoded); err != nil {
		return err
	}
	if got := hex.EncodeToString(m.append()); got != v.Hex {
		return fmt.Errorf("append = %s, want %s", got, v.Hex)
	}
	return nil
}

func judgeTolerant(raw json.RawMessage) error {
	var v struct {
		Decoder, Hex, Error string
		Decoded             json.RawMessage
	}
	rttest.PanicOn(json.Unmarshal(raw, &v))
	fresh := kinds[v.Decoder]
	if fresh == nil {
		return fmt.Errorf("the judge does not know %s", v.Decoder)
	}
	m := fresh()
	err := m.parse(unhex(v.Hex))
	if (err != nil) != (v.Error != "") {
		return fmt.Errorf("parse(%s) = %v, want error %q", v.Hex, err, v.Error)
	}
	if err != nil {
		return nil
	}
	return sameFields(m.fields(), v.Decoded)
}

// asBytes matches a text that Python did not decode.
var asBytes = regexp.MustCompile(`\{\s*"bytes_hex":\s*"([0-9a-f]*)"\s*\}`)

// sameFields compares the fields of two messages by value: 30 equals 30.0, and a text that Python did not decode is
// compared by its bytes.
func sameFields(got map[string]any, want json.RawMessage) error {
	want = asBytes.ReplaceAllFunc(want, func(found []byte) []byte {
		return rttest.OrPanic(json.Marshal(string(unhex(string(asBytes.FindSubmatch(found)[1])))))
	})
	var g, w map[string]any
	rttest.PanicOn(json.Unmarshal(rttest.OrPanic(json.Marshal(got)), &g))
	rttest.PanicOn(json.Unmarshal(want, &w))
	delete(w, "jpeg_quality") // a setting of the sender, which is not sent
	if !reflect.DeepEqual(g, w) {
		return fmt.Errorf("fields %v, want %v", g, w)
	}
	return nil
}

func ndarray(dtype string, shape []int, values any) any {
	return map[string]any{"dtype": dtype, "shape": shape, "values": values}
}

func vectorField(v []float32) any {
	if len(v) == 0 {
		return nil
	}
	return ndarray("<f4", []int{len(v)}, wide(v))
}

func matrixField(m *Matrix) any {
	if m.Rows == 0 && m.Cols == 0 {
		return nil
	}
	return ndarray("<f4", []int{m.Rows, m.Cols}, wide(m.Data))
}

func wide(v []float32) []float64 {
	w := make([]float64, len(v))
	for i := range v {
		w[i] = float64(v[i])
	}
	return w
}

func list(v []string) []string { return append([]string{}, v...) }

func observationFields(m *Observation) map[string]any {
	images := map[string]any{}
	for _, i := range m.Images {
		values := make([]int, len(i.Data))
		for k, b := range i.Data {
			values[k] = int(b)
		}
		images[i.Name] = ndarray("|u1", []int{i.H, i.W, i.C}, values)
	}
	return map[string]any{"state": vectorField(m.State), "images": images, "task": m.Task,
		"inference_delay_steps": m.InferenceDelaySteps, "prefix_model": matrixField(&m.PrefixModel),
		"prefix_robot": matrixField(&m.PrefixRobot), "episode_start": m.EpisodeStart}
}

func chunkFields(m *ActionChunk) map[string]any {
	return map[string]any{"seq_id_echo": m.SeqIDEcho, "client_mono_ns_echo": m.ClientMonoNsEcho,
		"episode_id_echo": m.EpisodeIDEcho, "chunk_model": matrixField(&m.ChunkModel),
		"chunk_robot": matrixField(&m.ChunkRobot), "queue_wait_ms": m.QueueWaitMs,
		"inference_ms": m.InferenceMs, "superseded_seqs": m.SupersededSeqs, "server_load": m.ServerLoad}
}

func openFields(m *SessionOpen) map[string]any {
	tags := map[string]string{}
	for _, t := range m.Tags {
		tags[t.Key] = t.Value
	}
	return map[string]any{"op": OpOpen, "client_uuid": m.ClientUUID, "robot_type": m.RobotType,
		"policy_type": m.PolicyType, "fps": m.FPS, "action_names": list(m.ActionNames),
		"camera_names": list(m.CameraNames), "state_dim": m.StateDim, "schema_version": m.SchemaVersion,
		"rtc_enabled": m.RTCEnabled, "task": m.Task, "tags": tags}
}

func (c *Capabilities) fieldMap() map[string]any {
	return map[string]any{"model_repo": c.ModelRepo, "model_revision": c.ModelRevision,
		"policy_type": c.PolicyType, "action_names": list(c.ActionNames),
		"expected_cameras": list(c.ExpectedCameras), "state_dim": c.StateDim, "chunk_size": c.ChunkSize,
		"trained_fps": c.TrainedFPS, "supports_rtc": c.SupportsRTC,
		"rtc_execution_horizon": c.RTCExecutionHorizon, "serving_mode": c.ServingMode, "warmed_up": c.WarmedUp}
}

func ackFields(m *SessionAck) map[string]any {
	f := m.fieldMap()
	f["accepted"] = m.Accepted
	f["error"] = m.Error
	f["warnings"] = list(m.Warnings)
	f["session_id"] = m.SessionID
	f["schema_version"] = m.SchemaVersion
	f["server_load"] = m.ServerLoad
	return f
}

func statusFields(m *Status) map[string]any {
	f := m.fieldMap()
	f["min_schema_version"], f["max_schema_version"] = m.MinSchemaVersion, m.MaxSchemaVersion
	f["active_sessions"], f["max_sessions"] = m.ActiveSessions, m.MaxSessions
	return f
}
