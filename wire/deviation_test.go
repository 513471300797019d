package wire

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/tinylib/msgp/msgp"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire/wiretest"
)

// demoShapes are the sizes of a two-joint arm with one camera.
var demoShapes = Shapes{StateDim: 2, ActionDim: 2, Horizon: 4, Cameras: []CameraShape{{"top", 1, 2, 3}}, Past: 2}

// demoObservation fits demoShapes and sets every optional key.
func demoObservation() *Observation {
	return &Observation{
		State: []float32{1, -2},
		Images: []Image{{
			Name:  "top",
			Codec: Raw,
			H:     1,
			W:     2,
			C:     3,
			Data:  []byte{1, 2, 3, 4, 5, 6},
		}, {Name: "wrist", Data: []byte{0xff, 0xd8}}},
		Task:                "around the post",
		InferenceDelaySteps: 3,
		PrefixModel:         Matrix{2, 3, []float32{1, 2, 3, 4, 5, 6}},
		PrefixRobot:         Matrix{2, 2, []float32{1, 2, 3, 4}},
		EpisodeStart:        true,
		HasT:                true,
		T:                   7,
		HasN:                true,
		N:                   -1,
		HasOverlapEnd:       true,
		OverlapEnd:          2,
		HasRunway:           true,
		RunwayMs:            12.5,
		HasFrameAge:         true,
		StaleCameras:        []string{"observation.images.top"},
		FrameAgeMs:          3.25,
		Spans:               []Span{{10, 1, 2}, {12, 0, 6}},
		PastStates:          Matrix{2, 2, []float32{-1, 2, 0.5, 1}},
		PastImages: []Image{
			{Name: "top", Codec: Raw, H: 1, W: 2, C: 3, Data: []byte{6, 5, 4, 3, 2, 1}}, {Name: "top"},
			{Name: "wrist"}, {Name: "wrist", Data: []byte{0xff, 0xd8, 1}},
		},
	}
}

func demoChunk() *ActionChunk {
	return &ActionChunk{
		SeqIDEcho: 9, ClientMonoNsEcho: -5, EpisodeIDEcho: 2,
		ChunkModel: Matrix{2, 3, []float32{1, 2, 3, 4, 5, 6}}, ChunkRobot: Matrix{2, 2, []float32{1, 2, 3, 4}},
		QueueWaitMs: 1.5, InferenceMs: 2.25, SupersededSeqs: 1, ServerLoad: 0.5,
		HasT: true, T: 7, HasN: true, N: -1, ServerID: "gpu-1", Nonce: 1 << 62,
	}
}

// live holds messages that the draft's running programs accept and this package refuses, each with
// the required error.
var live = map[string]struct {
	got  func() error
	want error
}{
	"nan_state": {func() error {
		return sendObservation(func(o *Observation) { o.State[1] = float32(math.NaN()) })
	}, ErrNotFinite},
	"nan_prefix": {func() error {
		return sendObservation(func(o *Observation) { o.PrefixRobot.Data[3] = float32(math.Inf(-1)) })
	}, ErrNotFinite},
	"nan_chunk": {func() error {
		c := demoChunk()
		c.ChunkRobot.Data[2] = float32(math.Inf(1))
		return ParseActionChunk(new(ActionChunk), AppendActionChunk(nil, c))
	}, ErrNotFinite},
	"state_one_short": {func() error {
		return sendObservation(func(o *Observation) { o.State = o.State[:1] })
	}, ErrShape},
	"missing_camera": {func() error {
		return sendObservation(func(o *Observation) { o.Images = o.Images[1:] })
	}, ErrShape},
	"wrong_prefix_width": {func() error {
		return sendObservation(func(o *Observation) { o.PrefixRobot = Matrix{2, 3, make([]float32, 6)} })
	}, ErrShape},
	"unequal_prefixes": {func() error {
		return sendObservation(func(o *Observation) { o.PrefixRobot = Matrix{1, 2, make([]float32, 2)} })
	}, ErrShape},
	"uuid_with_space": {func() error { return CheckUUID("a b") }, ErrKey},
	"unknown_op": {func() error {
		_, err := ParseOp(appendTextKey([]byte{0x81}, "op", "clsoe"))
		return err
	}, ErrMalformed},
	"msg_type_ignored": {func() error {
		return Header{SchemaVersion: SchemaVersion, MsgType: MsgEvent}.Check(MsgActionChunk)
	}, ErrMalformed},
	"huge_message": {func() error { return Parse(new(Reset), make([]byte, MaxMessageBytes+1)) }, ErrTooLarge},
	"many_pictures": {func() error {
		return sendObservation(func(o *Observation) {
			for i := range MaxImages {
				o.Images = append(o.Images, Image{Name: fmt.Sprint(i), Data: []byte{1}})
			}
		})
	}, ErrTooLarge},
	"deep_nesting": {func() error {
		src := append(msgp.AppendString([]byte{0x81}, "x"), bytes.Repeat([]byte{0x91}, MaxDepth+1)...)
		return Parse(new(Reset), append(src, 0xc0))
	}, ErrTooLarge},
}

// sendObservation changes a valid observation, encodes it, and checks it as a server does.
func sendObservation(change func(*Observation)) error {
	o := demoObservation()
	change(o)
	var got Observation
	if err := ParseObservation(&got, AppendObservation(nil, o)); err != nil {
		return err
	}
	return demoShapes.CheckObservation(&got)
}

func TestLiveDeviations(t *testing.T) {
	rttest.Do(t, sendObservation(func(*Observation) {}))
	named := wiretest.Deviations(t, "live")
	for name, d := range live {
		if _, ok := named[name]; !ok {
			t.Errorf("%s is not in deviations.json", name)
		}
		delete(named, name)
		err := d.got()
		rttest.FailsAs(t, err, d.want, "got")
	}
	for name := range named {
		t.Errorf("deviations.json names live/%s, which no test holds", name)
	}
}
