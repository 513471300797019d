package wire

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/tinylib/msgp/msgp"
)

// TestOptionalKeysRoundTrip: every key that is set arrives.
func TestOptionalKeysRoundTrip(t *testing.T) {
	var o Observation
	rttest.Do(t, ParseObservation(&o, AppendObservation(nil, demoObservation())))
	o.names = nil
	o.Images[1].Data, o.PastImages[3].Data = o.Images[1].Data[:2:2], o.PastImages[3].Data[:3:3]
	if want := demoObservation(); !reflect.DeepEqual(&o, want) {
		t.Errorf("observation = %+v, want %+v", &o, want)
	}
	var c ActionChunk
	rttest.Do(t, ParseActionChunk(&c, AppendActionChunk(nil, demoChunk())))
	c.names = nil
	if want := demoChunk(); !reflect.DeepEqual(&c, want) {
		t.Errorf("chunk = %+v, want %+v", &c, want)
	}

	roundTrip(t, demoOpen)
	roundTrip(t, demoAck)
	roundTrip(t, demoStatus)
	roundTrip(t, demoEvent)
}

// The messages about sessions with every optional key.
var (
	demoCapabilities = Capabilities{
		T:              ExtensionLevel,
		ModelSHA256:    "ab12",
		CameraShapes:   []CameraShape{{"top", 120, 160, 3}, {"wrist", 1, 2, 3}},
		ActionNames:    []string{"a.pos"},
		ActionUnits:    []string{"deg"},
		StateUnits:     []string{"rad"},
		Steps:          2,
		InferenceMsMin: 7900.5,
		InferenceMsP99: 8100,
		QueueWaitMs:    1600,
	}
	demoOpen = SessionOpen{
		SchemaVersion: 1,
		ClientUUID:    "r",
		Tags:          []Tag{{"site", "lab"}},
		ServerID:      "gpu-1",
		SessionEpoch:  3,
		CameraShapes:  demoCapabilities.CameraShapes,
		ActionUnits:   demoCapabilities.ActionUnits,
		StateUnits:    demoCapabilities.StateUnits,
		Instance:      "0f",
		Host:          "left-pi",
		Steps:         16,
		RawImages:     []string{"top"},
		ModelSHA256:   "ab12",
	}
	demoAck = SessionAck{
		Accepted:      true,
		Capabilities:  demoCapabilities,
		SchemaVersion: 1,
		ServerID:      "gpu-1",
		Draining:      true,
		RetryAfterMs:  250,
		Nonce:         1 << 62,
		MaxSessions:   5,
		HeldBy:        "left-pi",
		Simulation:    true,
		Statistics:    "{}",
	}
	demoStatus = Status{
		Capabilities:     demoCapabilities,
		MinSchemaVersion: 1,
		MaxSchemaVersion: 1,
		ServerID:         "gpu-1",
		ServerLoad:       0.5,
		Draining:         true,
		Device:           "cuda:1",
		Inputs: []Feature{
			{Name: "observation.images.top", Type: "VISUAL", Shape: []int{3, 120, 160}, DType: "uint8"},
			{Name: "task", Type: "LANGUAGE", Shape: []int{1}, DType: "str", Names: []string{"task"}},
		},
		Outputs: []Feature{{Name: "action"}},
	}
	demoEvent = Event{
		Code:         EventDraining,
		Text:         "bye",
		Seq:          1 << 63,
		RetryAfterMs: 100,
		ServerID:     "gpu-1",
		Nonce:        1 << 62,
	}
)

func roundTrip[M any, P interface {
	*M
	sessionMessage
}](t *testing.T, m M) {
	t.Helper()
	var got M
	rttest.Do(t, Parse(P(&got), Append(nil, P(&m))))
	// A nil list is read as an empty list, so the test compares the encoded bytes, and the fields that have a value.
	if !bytes.Equal(Append(nil, P(&got)), Append(nil, P(&m))) {
		t.Errorf("got %+v, want %+v", got, m)
	}
	g, w := reflect.ValueOf(got), reflect.ValueOf(m)
	for i := range w.NumField() {
		if f := w.Field(i); f.Kind() != reflect.Slice && f.Kind() != reflect.Struct &&
			f.Interface() != g.Field(i).Interface() {
			t.Errorf("%s = %v, want %v", w.Type().Field(i).Name, g.Field(i), f)
		}
	}
}

// TestZeroIsNotAbsent: t 0, n 0 and a runway of 0 ms are values.
func TestZeroIsNotAbsent(t *testing.T) {
	o := Observation{HasT: true, HasN: true, HasOverlapEnd: true, HasRunway: true, HasFrameAge: true}
	var got Observation
	rttest.Do(t, ParseObservation(&got, AppendObservation(nil, &o)))
	if !got.HasT || !got.HasN || !got.HasOverlapEnd || !got.HasRunway || !got.HasFrameAge {
		t.Errorf("got %+v, want every Has", got)
	}
	src := append(msgp.AppendString([]byte{0x81}, "t"), 0xc0)
	if rttest.Do(t, ParseObservation(&got, src)); got.HasT {
		t.Error("a null t reads as set, want absent")
	}
}

// TestOptionalKeysFollowTheSchema: a body with optional keys is the body without them, except for the number of
// keys, followed by the optional keys. So an old peer that reads in order reads the keys of the schema first.
func TestOptionalKeysFollowTheSchema(t *testing.T) {
	full, bare := demoObservation(), demoObservation()
	bare.HasT = false
	bare.HasN = false
	bare.HasOverlapEnd = false
	bare.HasRunway = false
	bare.HasFrameAge = false
	bare.Spans = nil
	bare.StaleCameras = nil
	bare.PastStates, bare.PastImages = Matrix{}, nil
	f, b := AppendObservation(nil, full), AppendObservation(nil, bare)
	if !bytes.HasPrefix(f, []byte{0xde, 0, 16}) || b[0] != 0x87 || !bytes.HasPrefix(f[3:], b[1:]) {
		t.Errorf("with optional keys % x, want de 00 10 and the rest of % x first", f, b)
	}
}

// TestParseStartsAfresh: no content of the last message is left, after success and after failure.
func TestParseStartsAfresh(t *testing.T) {
	full := AppendObservation(nil, demoObservation())
	for name, src := range map[string][]byte{"an empty map": {0x80}, "half a message": full[:len(full)/2]} {
		o := demoObservation()
		err := ParseObservation(o, src)
		rttest.Want(t, err != nil, name != "an empty map", "whether ParseObservation refuses %s (%v)", name, err)
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

// TestPastImagesReadAsADict: of two lists of one camera's pictures the last is kept. A step that repeats a picture has
// no data.
func TestPastImagesReadAsADict(t *testing.T) {
	picture := func(b byte) []byte {
		return msgp.AppendBytes(msgp.AppendString([]byte{0x81}, "data"), []byte{b})
	}
	src := msgp.AppendMapHeader(msgp.AppendString([]byte{0x81}, "past_images"), 3)
	for i, name := range []string{"top", "side", "top"} {
		src = msgp.AppendArrayHeader(msgp.AppendString(src, name), 2)
		src = msgp.AppendNil(append(src, picture(byte(i))...))
	}
	var o Observation
	rttest.Do(t, ParseObservation(&o, src))
	if top := o.Past("top"); len(o.PastImages) != 4 || len(top) != 2 || top[0].Data[0] != 2 || top[1].Data != nil ||
		len(o.Past("side")) != 2 || o.Past("roof") != nil {
		t.Errorf("past images = %+v", o.PastImages)
	}
}

// TestHostileHistories: each malformed history is refused with a reason.
func TestHostileHistories(t *testing.T) {
	for name, tt := range map[string]struct {
		value []byte
		want  error
	}{
		"more steps than travel": {append(append([]byte{0x81, 0xa1, 'a'}, 0xdc, 0, MaxSteps),
			bytes.Repeat([]byte{0xc0}, MaxSteps)...), ErrTooLarge},
		"more cameras":              {[]byte{0xde, 0, MaxImages + 1}, ErrTooLarge},
		"steps that are not a list": {[]byte{0x81, 0xa1, 'a', 0x80}, ErrMalformed},
		"a picture without data":    {[]byte{0x81, 0xa1, 'a', 0x91, 0x80}, ErrShape},
		"a step that is a number":   {[]byte{0x81, 0xa1, 'a', 0x91, 1}, ErrMalformed},
		"half a list":               {[]byte{0x81, 0xa1, 'a', 0x92, 0xc0}, ErrMalformed},
	} {
		var o Observation
		err := ParseObservation(&o, append(msgp.AppendString([]byte{0x81}, "past_images"), tt.value...))
		rttest.FailsAs(t, err, tt.want)
		rttest.Want(t, len(o.PastImages), 0, "pictures after %s", name)
	}
}
