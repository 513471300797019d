package wire

import (
	"bytes"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// policyMessages returns an observation and a chunk of the size that an arm with six joints and two cameras exchanges:
// two JPEGs of 20 kB, a prefix, and 50 actions.
func policyMessages() (*Observation, *ActionChunk) {
	o, c := demoObservation(), demoChunk()
	o.State = make([]float32, 6)
	o.Images = []Image{
		{Name: "observation.images.top", Data: make([]byte, 20_000)},
		{Name: "observation.images.wrist", Data: make([]byte, 20_000)},
	}
	o.PrefixModel = Matrix{50, 6, make([]float32, 300)}
	o.PrefixRobot = Matrix{50, 6, make([]float32, 300)}
	c.ChunkModel, c.ChunkRobot = o.PrefixModel, o.PrefixRobot
	return o, c
}

// TestHotPathNoAlloc: after the first message, writing, reading and checking an observation or a chunk allocates
// nothing, also when the messages of two robots are parsed in turn into one Observation.
func TestHotPathNoAlloc(t *testing.T) {
	for name, path := range hotPaths() {
		rttest.Want(t, testing.AllocsPerRun(200, path), 0, "allocations of %s", name)
	}
}

func BenchmarkHotPath(b *testing.B) {
	for name, path := range hotPaths() {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				path()
			}
		})
	}
}

func hotPaths() map[string]func() {
	o, c := policyMessages()
	other := *o
	other.Task, other.Images = "sort the screws", []Image{{
		Name:  "observation.images.side",
		Codec: Raw,
		H:     2,
		W:     2,
		C:     3,
		Data:  make([]byte, 12),
	}}
	look := *o
	look.PastStates = Matrix{1, 6, make([]float32, 6)}
	look.PastImages = []Image{{Name: "observation.images.top", Codec: Raw, H: 1, W: 2, C: 3, Data: make([]byte, 6)}}
	shapes := Shapes{
		StateDim:  6,
		ActionDim: 6,
		Horizon:   50,
		Cameras:   []CameraShape{{Name: "observation.images.top"}},
	}
	lookBytes, back := AppendObservation(nil, &look), shapes
	back.Past = 1
	header := Header{SchemaVersion: SchemaVersion, MsgType: MsgObservation, SeqID: 1}

	buf := make([]byte, 0, 64<<10)
	obsBytes := AppendObservation(nil, o)
	otherBytes := AppendObservation(nil, &other)
	chunkBytes := AppendActionChunk(nil, c)
	headerBytes := AppendHeader(nil, header)
	var po Observation
	var pc ActionChunk
	var tensor Tensor
	tensorBytes := appendVector(nil, o.State)
	return map[string]func(){
		"AppendHeader":      func() { buf = AppendHeader(buf[:0], header) },
		"AppendObservation": func() { buf = AppendObservation(buf[:0], o) },
		"AppendActionChunk": func() { buf = AppendActionChunk(buf[:0], c) },
		"ParseHeader": func() {
			rttest.PanicOn(rttest.OrPanic(ParseHeader(headerBytes)).Check(MsgObservation))
		},
		"ParseObservation": func() {
			rttest.PanicOn(ParseObservation(&po, obsBytes))
			rttest.PanicOn(shapes.CheckObservation(&po))
		},
		"ParseObservation of two robots": func() {
			rttest.PanicOn(ParseObservation(&po, obsBytes))
			rttest.PanicOn(ParseObservation(&po, otherBytes))
		},
		"an observation with a history": func() {
			buf = AppendObservation(buf[:0], &look)
			rttest.PanicOn(ParseObservation(&po, lookBytes))
			rttest.PanicOn(back.CheckObservation(&po))
		},
		"ParseActionChunk": func() { rttest.PanicOn(ParseActionChunk(&pc, chunkBytes)) },
		"ParseTensor": func() {
			rttest.OrPanic(ParseTensor(&tensor, tensorBytes))
		},
		"ClientUUID": func() {
			rttest.OrPanic(ClientUUID("@lerobot/m/main/s/robot-07/obs"))
		},
	}
}

// TestParseBorrowsPicturesAndCopiesNumbers: pictures share the source's bytes, everything else is
// copied.
func TestParseBorrowsPicturesAndCopiesNumbers(t *testing.T) {
	src := AppendObservation(nil, demoObservation())
	var o Observation
	rttest.Do(t, ParseObservation(&o, src))
	at := bytes.Index(src, []byte{1, 2, 3, 4, 5, 6})
	if &o.Images[0].Data[0] != &src[at] {
		t.Error("the picture is a copy, want the source's bytes")
	}
	rttest.Want(t, cap(o.Images[0].Data), 6, "cap of the picture")
	clear(src)
	if o.State[1] != -2 || o.Task != "around the post" || o.Images[0].Name != "top" || o.PrefixRobot.Data[3] != 4 {
		t.Errorf("after the source is gone: %v %q %q %v", o.State, o.Task, o.Images[0].Name, o.PrefixRobot)
	}
}
