package timeline

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/wire/foxglove"
)

// timings are the values of a row before the joints, with their units.
var timings = [rowHead]string{"runway_ms", "action_age_ms", "round_trip_ms", "lateness_us", "starved_ticks", ""}

// ofJoint are the values of a joint in a row.
var ofJoint = []string{"present", "lowest", "highest", "goal"}

const (
	logSchema = `{"title": "foxglove.Log", "type": "object", "properties": {"timestamp": ` + timeSchema + `,
"level": {"type": "integer"}, "message": {"type": "string"}, "name": {"type": "string"}, "file": {"type": "string"},
"line": {"type": "integer"}}}`
	pictureSchema = `{"title": "foxglove.CompressedImage", "type": "object", "properties": {"timestamp": ` + timeSchema + `,
"frame_id": {"type": "string"}, "data": {"type": "string", "contentEncoding": "base64"},
"format": {"type": "string"}}}`
	timeSchema = `{"type": "object", "properties": {"sec": {"type": "integer"}, "nsec": {"type": "integer"}}}`
)

// cameraTopic begins the topic of a camera.
const cameraTopic = "/camera/"

// relayChannels returns the topics of a run, in the order of the channel numbers.
func relayChannels(joints, cameras []string) []foxglove.Channel {
	timing := map[string]any{}
	of := map[string]any{}
	each := map[string]any{}
	for _, name := range ofJoint {
		of[name] = map[string]any{"type": "number"}
	}
	for _, name := range joints {
		each[jointKey(name)] = map[string]any{"type": "object", "properties": of}
	}
	for _, name := range timings[:rowHead-1] {
		timing[name] = map[string]any{"type": "number"}
	}
	for _, name := range flagNames {
		timing[name] = map[string]any{"type": "boolean"}
	}
	object := func(title string, properties map[string]any) string {
		text, _ := json.Marshal(map[string]any{"title": title, "type": "object", "properties": properties})
		return string(text)
	}
	channels := []foxglove.Channel{
		{Topic: "/joints", SchemaName: "edgert.Joints", Schema: object("edgert.Joints", each)},
		{Topic: "/timing", SchemaName: "edgert.Timing", Schema: object("edgert.Timing", timing)},
		{Topic: "/status", SchemaName: "edgert.Status", Schema: object("edgert.Status", map[string]any{})},
		{Topic: "/log", SchemaName: "foxglove.Log", Schema: logSchema},
	}
	for _, name := range cameras {
		channels = append(channels, foxglove.Channel{
			Topic:      cameraTopic + name,
			SchemaName: "foxglove.CompressedImage",
			Schema:     pictureSchema,
		})
	}
	return channels
}

// jointKey returns a joint's name without a dot, which separates the parts of a path in a viewer.
func jointKey(name string) string {
	return strings.ReplaceAll(strings.TrimSuffix(name, ".pos"), ".", "_")
}

// flagNames are the names of a column's flags, by their bits.
var flagNames = []string{"paused", "intervention", "bus_silent"}

// timingMessage returns the message with the values of a row that are not of joints.
func timingMessage(row []*float64) []byte {
	m := map[string]any{}
	for i, name := range timings[:rowHead-1] {
		if row[i] != nil {
			m[name] = *row[i]
		}
	}
	if flags := row[rowHead-1]; flags != nil {
		for bit, name := range flagNames {
			m[name] = uint64(*flags)>>bit&1 != 0
		}
	}
	text, _ := json.Marshal(m) // numbers that came from JSON can be encoded
	return text
}

// jointsMessage returns the message with a row's values of the joints. It leaves out joints without a value.
func jointsMessage(joints []string, row []*float64) []byte {
	m := map[string]map[string]float64{}
	for j, name := range joints {
		of := map[string]float64{}
		for i, v := range row[rowHead+perJoint*j:][:perJoint] {
			if v != nil {
				of[ofJoint[i]] = *v
			}
		}
		m[jointKey(name)] = of
	}
	text, _ := json.Marshal(m)
	return text
}

func logMessage(m *answerMark) []byte {
	text, _ := json.Marshal(struct { // in the form of foxglove.Log
		Timestamp stamp  `json:"timestamp"`
		Level     uint32 `json:"level"`
		Message   string `json:"message"`
		Name      string `json:"name"`
		File      string `json:"file"`
		Line      uint32 `json:"line"`
	}{
		Timestamp: stampOf(time.UnixMilli(m.At)),
		Level:     m.Level,
		Message:   m.Text,
		Name:      m.Kind,
	})
	return text
}

// stamp is a time in the form of Foxglove's schemas.
type stamp struct {
	Sec  int64 `json:"sec"`
	Nsec int   `json:"nsec"`
}

func stampOf(t time.Time) stamp { return stamp{t.Unix(), t.Nanosecond()} }
