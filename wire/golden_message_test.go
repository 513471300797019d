package wire

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
)

// message is any body of schema 1, for the judges.
type message interface {
	parse(src []byte) error
	append() []byte
	fields() map[string]any // as in Python's dataclass
}

func newMessage(kind string) message {
	switch kind {
	case "ObservationMsg", "decode_observation":
		return &observationMsg{}
	case "ActionChunkMsg", "decode_action_chunk":
		return &chunkMsg{}
	case "SessionOpenMsg", "decode_session_open":
		return &openMsg{}
	case "SessionAckMsg", "decode_session_ack":
		return &ackMsg{}
	case "StatusMsg":
		return &statusMsg{}
	case "ResetMsg", "decode_reset":
		return &resetMsg{}
	case "ResetAckMsg":
		return &resetAckMsg{}
	case "SessionCloseMsg":
		return &closeMsg{}
	}
	return nil
}

func judgeMessage(raw json.RawMessage) error {
	var v struct {
		Type, Hex string
		Decoded   json.RawMessage
	}
	must(json.Unmarshal(raw, &v))
	m := newMessage(v.Type)
	if m == nil {
		return fmt.Errorf("the judge does not know %s", v.Type)
	}
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
	must(json.Unmarshal(raw, &v))
	m := newMessage(v.Decoder)
	if m == nil {
		return fmt.Errorf("the judge does not know %s", v.Decoder)
	}
	err := m.parse(unhex(v.Hex))
	if (err != nil) != (v.Error != "") {
		return fmt.Errorf("parse(%s) = %v, want error %q", v.Hex, err, v.Error)
	}
	if err != nil {
		return nil
	}
	return sameFields(m.fields(), v.Decoded)
}

// sameFields compares by value: 30 and 30.0 are equal, and a text that Python left as bytes is
// compared by its bytes.
func sameFields(got map[string]any, want json.RawMessage) error {
	text, err := json.Marshal(got)
	must(err)
	g, w := decodeJSON(text).(map[string]any), decodeJSON(want).(map[string]any)
	delete(w, "jpeg_quality") // a sender's setting that is never sent
	for key := range w {
		if !sameValue(g[key], w[key]) {
			return fmt.Errorf("%s = %v, want %v", key, g[key], w[key])
		}
	}
	if len(g) != len(w) {
		return fmt.Errorf("%d fields, want %d", len(g), len(w))
	}
	return nil
}

func decodeJSON(text []byte) (v any) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	must(d.Decode(&v))
	return v
}

func sameValue(g, w any) bool {
	switch w := w.(type) {
	case json.Number:
		g, ok := g.(json.Number)
		if !ok {
			return false
		}
		a, errA := strconv.ParseFloat(g.String(), 64)
		b, errB := strconv.ParseFloat(w.String(), 64)
		exact := len(w.String()) < 16 || g == w || bytes.ContainsRune([]byte(w), '.')
		return errA == nil && errB == nil && a == b && exact
	case []any:
		g, ok := g.([]any)
		if !ok || len(g) != len(w) {
			return false
		}
		for i := range w {
			if !sameValue(g[i], w[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		if text, ok := w["bytes_hex"]; ok {
			return g == string(unhex(text.(string)))
		}
		g, ok := g.(map[string]any)
		if !ok || len(g) != len(w) {
			return false
		}
		for k := range w {
			if !sameValue(g[k], w[k]) {
				return false
			}
		}
		return true
	}
	return g == w
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

type observationMsg struct{ Observation }

func (m *observationMsg) parse(src []byte) error { return ParseObservation(&m.Observation, src) }
func (m *observationMsg) append() []byte         { return AppendObservation(nil, &m.Observation) }
func (m *observationMsg) fields() map[string]any {
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

type chunkMsg struct{ ActionChunk }

func (m *chunkMsg) parse(src []byte) error { return ParseActionChunk(&m.ActionChunk, src) }
func (m *chunkMsg) append() []byte         { return AppendActionChunk(nil, &m.ActionChunk) }
func (m *chunkMsg) fields() map[string]any {
	return map[string]any{"seq_id_echo": m.SeqIDEcho, "client_mono_ns_echo": m.ClientMonoNsEcho,
		"episode_id_echo": m.EpisodeIDEcho, "chunk_model": matrixField(&m.ChunkModel),
		"chunk_robot": matrixField(&m.ChunkRobot), "queue_wait_ms": m.QueueWaitMs,
		"inference_ms": m.InferenceMs, "superseded_seqs": m.SupersededSeqs, "server_load": m.ServerLoad}
}

type openMsg struct{ SessionOpen }

func (m *openMsg) parse(src []byte) error { return ParseSessionOpen(&m.SessionOpen, src) }
func (m *openMsg) append() []byte         { return AppendSessionOpen(nil, &m.SessionOpen) }
func (m *openMsg) fields() map[string]any {
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

type ackMsg struct{ SessionAck }

func (m *ackMsg) parse(src []byte) error { return ParseSessionAck(&m.SessionAck, src) }
func (m *ackMsg) append() []byte         { return AppendSessionAck(nil, &m.SessionAck) }
func (m *ackMsg) fields() map[string]any {
	f := m.fieldMap()
	f["accepted"] = m.Accepted
	f["error"] = m.Error
	f["warnings"] = list(m.Warnings)
	f["session_id"] = m.SessionID
	f["schema_version"] = m.SchemaVersion
	f["server_load"] = m.ServerLoad
	return f
}

type statusMsg struct{ Status }

func (m *statusMsg) parse(src []byte) error { return ParseStatus(&m.Status, src) }
func (m *statusMsg) append() []byte         { return AppendStatus(nil, &m.Status) }
func (m *statusMsg) fields() map[string]any {
	f := m.fieldMap()
	f["min_schema_version"], f["max_schema_version"] = m.MinSchemaVersion, m.MaxSchemaVersion
	f["active_sessions"], f["max_sessions"] = m.ActiveSessions, m.MaxSessions
	return f
}

type resetMsg struct{ Reset }

func (m *resetMsg) parse(src []byte) error { return ParseReset(&m.Reset, src) }
func (m *resetMsg) append() []byte         { return AppendReset(nil, &m.Reset) }
func (m *resetMsg) fields() map[string]any {
	return map[string]any{"client_uuid": m.ClientUUID, "episode_id": m.EpisodeID}
}

type resetAckMsg struct{ ResetAck }

func (m *resetAckMsg) parse(src []byte) error { return ParseResetAck(&m.ResetAck, src) }
func (m *resetAckMsg) append() []byte         { return AppendResetAck(nil, &m.ResetAck) }
func (m *resetAckMsg) fields() map[string]any { return map[string]any{"ok": m.OK, "error": m.Error} }

type closeMsg struct{ SessionClose }

func (m *closeMsg) parse(src []byte) error { return ParseSessionClose(&m.SessionClose, src) }
func (m *closeMsg) append() []byte         { return AppendSessionClose(nil, &m.SessionClose) }
func (m *closeMsg) fields() map[string]any {
	return map[string]any{"op": OpClose, "client_uuid": m.ClientUUID, "session_id": m.SessionID}
}
