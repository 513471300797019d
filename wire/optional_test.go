package wire

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/tinylib/msgp/msgp"
)

// TestOptionalKeysRoundTrip: what is set arrives.
func TestOptionalKeysRoundTrip(t *testing.T) {
	var o Observation
	check(t, ParseObservation(&o, AppendObservation(nil, demoObservation())))
	o.names = nil
	o.Images[1].Data = o.Images[1].Data[:2:2]
	if want := demoObservation(); !reflect.DeepEqual(&o, want) {
		t.Errorf("observation = %+v, want %+v", &o, want)
	}
	var c ActionChunk
	check(t, ParseActionChunk(&c, AppendActionChunk(nil, demoChunk())))
	c.names = nil
	if want := demoChunk(); !reflect.DeepEqual(&c, want) {
		t.Errorf("chunk = %+v, want %+v", &c, want)
	}

	caps := Capabilities{T: 1, ModelSHA256: "ab12", CameraShapes: []CameraShape{{"top", 120, 160, 3}, {"wrist", 1, 2, 3}},
		ActionNames: []string{"a.pos"}, ActionUnits: []string{"deg"}, StateUnits: []string{"rad"}}
	roundTrip(t, AppendSessionOpen, ParseSessionOpen, SessionOpen{SchemaVersion: 1, ClientUUID: "r", Tags: []Tag{{"site", "lab"}},
		ServerID: "gpu-1", SessionEpoch: 3, CameraShapes: caps.CameraShapes, ActionUnits: caps.ActionUnits, StateUnits: caps.StateUnits, Instance: "0f", Host: "left-pi"})
	roundTrip(t, AppendSessionAck, ParseSessionAck, SessionAck{Accepted: true, Capabilities: caps, SchemaVersion: 1, ServerID: "gpu-1", Draining: true, RetryAfterMs: 250, Nonce: 1 << 62, HeldBy: "left-pi"})
	roundTrip(t, AppendStatus, parseStatus, Status{Capabilities: caps, MinSchemaVersion: 1, MaxSchemaVersion: 1, ServerID: "gpu-1", ServerLoad: 0.5, Draining: true, Device: "cuda:1"})
	roundTrip(t, AppendEvent, ParseEvent, Event{Code: EventDraining, Text: "bye", Seq: 1 << 63, RetryAfterMs: 100, ServerID: "gpu-1", Nonce: 1 << 62})
}

func roundTrip[M any](t *testing.T, write func([]byte, *M) []byte, read func(*M, []byte) error, m M) {
	t.Helper()
	var got M
	check(t, read(&got, write(nil, &m)))
	// Lists that were not given come back empty; the test compares the bytes
	// they make and the fields that have a value.
	if !bytes.Equal(write(nil, &got), write(nil, &m)) {
		t.Errorf("got %+v, want %+v", got, m)
	}
	g, w := reflect.ValueOf(got), reflect.ValueOf(m)
	for i := range w.NumField() {
		if f := w.Field(i); f.Kind() != reflect.Slice && f.Kind() != reflect.Struct && f.Interface() != g.Field(i).Interface() {
			t.Errorf("%s = %v, want %v", w.Type().Field(i).Name, g.Field(i), f)
		}
	}
}

// TestZeroIsNotAbsent: t 0, n 0 and a runway of 0 ms mean something.
func TestZeroIsNotAbsent(t *testing.T) {
	o := Observation{HasT: true, HasN: true, HasOverlapEnd: true, HasRunway: true, HasFrameAge: true}
	var got Observation
	check(t, ParseObservation(&got, AppendObservation(nil, &o)))
	if !got.HasT || !got.HasN || !got.HasOverlapEnd || !got.HasRunway || !got.HasFrameAge {
		t.Errorf("got %+v, want every Has", got)
	}
	src := append(msgp.AppendString([]byte{0x81}, "t"), 0xc0)
	if check(t, ParseObservation(&got, src)); got.HasT {
		t.Error("a null t reads as set, want absent")
	}
}

// TestOptionalKeysStandBehindTheSchema: the body with optional keys is the body
// without them, but for the number of keys, and more behind it. An old peer
// that reads in order meets what it knows first.
func TestOptionalKeysStandBehindTheSchema(t *testing.T) {
	full, bare := demoObservation(), demoObservation()
	bare.HasT, bare.HasN, bare.HasOverlapEnd, bare.HasRunway, bare.HasFrameAge, bare.Spans, bare.StaleCameras = false, false, false, false, false, nil, nil
	f, b := AppendObservation(nil, full), AppendObservation(nil, bare)
	if f[0] != 0x8e || b[0] != 0x87 || !bytes.HasPrefix(f[1:], b[1:]) {
		t.Errorf("with optional keys % x, want 0x8e and the rest of % x first", f, b)
	}
}

// TestParseStartsAfresh: nothing of the last message is left, after success and
// after failure.
func TestParseStartsAfresh(t *testing.T) {
	full := AppendObservation(nil, demoObservation())
	for name, src := range map[string][]byte{"an empty map": {0x80}, "half a message": full[:len(full)/2]} {
		o := demoObservation()
		err := ParseObservation(o, src)
		if (err != nil) != (name != "an empty map") {
			t.Errorf("ParseObservation of %s = %v", name, err)
		}
		if got, want := AppendObservation(nil, o), AppendObservation(nil, &Observation{}); !bytes.Equal(got, want) {
			t.Errorf("after %s the observation is % x, want % x", name, got, want)
		}
	}
	c := demoChunk()
	chunk := AppendActionChunk(nil, c)
	if err := ParseActionChunk(c, chunk[:len(chunk)-1]); err == nil || c.ChunkRobot.Rows != 0 || c.HasT {
		t.Errorf("after half a chunk: %v, %+v, want an error and an empty chunk", err, c)
	}
}
