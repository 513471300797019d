package lerobot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"google.golang.org/grpc/mem"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire/pickle"
)

func read(t testing.TB, name string) []byte {
	t.Helper()
	return rttest.Must(os.ReadFile(filepath.Join("..", "pickle", "testdata", name+".pkl")))(t)
}

func TestMessagesOfTheReleasedClient(t *testing.T) {
	p := rttest.Must(ParsePolicy(read(t, "config")))(t)
	want := &Policy{Type: "act", Path: "user/model", ActionsPerChunk: 50, Device: "cpu", Rename: map[string]string{},
		Features: []Feature{
			{Name: "observation.state", Kind: "float32", Shape: []int{2}, Names: []string{"a.pos", "b.pos"}},
			{
				Name:  "observation.images.top",
				Kind:  "image",
				Shape: []int{16, 24, 3},
				Names: []string{"height", "width", "channels"},
			},
		}}
	if !reflect.DeepEqual(p, want) {
		t.Errorf("policy = %+v, want %+v", p, want)
	}
	if again := rttest.Must(ParsePolicy(p.Encode()))(t); !reflect.DeepEqual(again, want) {
		t.Errorf("our own policy = %+v", again)
	}
	if p := rttest.Must(ParsePolicy(read(t, "config2")))(t); p.Rename["a"] != "b" || p.Features[0].Shape[0] != 2 {
		t.Errorf("policy = %+v", p)
	}
	o := rttest.Must(ParseObservation(read(t, "obs")))(t)
	a, ok1 := o.Number("a.pos")
	b, ok2 := o.Number("b.pos")
	if _, text := o.Number("task"); a != 1.25 || b != 2.5 || !ok1 || !ok2 || text || o.Timestep != 3 || !o.MustGo {
		t.Errorf("observation = %+v", o)
	}
	first, rows, err := ParseActions(read(t, "actions"))
	if err != nil || first != 0 || !reflect.DeepEqual(rows, [][]float32{{0, 1}, {2, 3}, {4, 5}}) {
		t.Errorf("actions from %d = %v, %v", first, rows, err)
	}
	rttest.FailsAs(t, rttest.Err(ParsePolicy(read(t, "obs"))), ErrMessage)
	rttest.FailsAs(t, rttest.Err(ParseObservation(read(t, "config"))), ErrMessage)
	rttest.FailsAs(t, rttest.Err(ParseObservation(read(t, "actions"))), ErrMessage)
}

func TestPieces(t *testing.T) {
	for _, size := range []int{1, piece, piece + 1, 3*piece + 5} {
		whole := bytes.Repeat([]byte{7}, size)
		var sent []*Message
		rttest.Do(t, Pieces(whole, func(m *Message) error {
			sent = append(sent, m)
			return nil
		}))
		if sent[len(sent)-1].State != end || len(sent) > 1 && sent[0].State != begin ||
			len(sent) != (size+piece-1)/piece {
			t.Errorf("%d bytes travel in %d pieces", size, len(sent))
		}
		next := func(sent ...*Message) Next {
			var call bytes.Buffer
			for _, m := range sent {
				b := rttest.Must(Codec{}.Marshal(m))(t)
				call.Write(binary.BigEndian.AppendUint32([]byte{0}, uint32(b.Len())))
				call.Write(b.Materialize())
			}
			return func(into []byte) (Message, error) { return receive(&call, into) }
		}
		const head = 10 // bytes of a message in addition to its data
		if got := rttest.Must(Gather(next(sent...), size+head))(t); !bytes.Equal(got, whole) {
			t.Errorf("%d of %d bytes arrived", len(got), size)
		}
		rttest.FailsAs(t, rttest.Err(Gather(next(sent...), size-1)), ErrTooLarge)
		if data, err := Gather(next(sent[:len(sent)-1]...), size+head); data != nil || err != nil {
			t.Errorf("a call without its end = %v, %v", data, err)
		}
		rttest.FailsAs(t, rttest.Err(Gather(next(&Message{State: 9}), 9)), ErrMessage) // state 9
	}
}

func TestCodec(t *testing.T) {
	for _, m := range []Message{{}, {Data: []byte("x")}, {State: end, Data: []byte("yy")}, {State: begin}} {
		var got Message
		rttest.Do(t, Codec{}.Unmarshal(rttest.Must(Codec{}.Marshal(&m))(t), &got))
		if got.State != m.State || !bytes.Equal(got.Data, m.Data) {
			t.Errorf("%+v became %+v", m, got)
		}
	}
	torn := mem.BufferSlice{mem.SliceBuffer("\x0a\xff")}
	rttest.FailsAs(t, (Codec{}).Unmarshal(torn, new(Message)), errMessage)
}

// Property: on any bytes the readers return without a panic. A policy or observation that was read can be written and
// read again.
func FuzzMessages(f *testing.F) {
	for _, name := range []string{"config", "config2", "obs", "obs5", "actions"} {
		f.Add(read(f, name))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		_ = new(Message).parse(src)
		if p, err := ParsePolicy(src); err == nil {
			rttest.Must(ParsePolicy(p.Encode()))(t)
		}
		if o, err := ParseObservation(src); err == nil && !recursive(o.Values, 0) {
			rttest.Must(ParseObservation(o.Encode()))(t)
		}
		if _, rows, err := ParseActions(src); err == nil && len(rows) == 0 {
			t.Error("no rows")
		}
	})
}

// recursive reports whether a value contains itself, is too deep or too large to walk through, or contains an object or
// an array that the test does not write.
func recursive(v pickle.Value, depth int) bool {
	var all []pickle.Value
	switch v := v.(type) {
	case *pickle.Dict:
		all = v.Values
	case *pickle.List:
		all = v.Items
	case *pickle.Tuple:
		all = v.Items
	case *pickle.Object:
		return true
	case *pickle.Array:
		return v.Type == "" || v.Type == "bf16"
	}
	if depth > 40 || len(all) > 1000 {
		return true
	}
	for _, one := range all {
		if recursive(one, depth+1) {
			return true
		}
	}
	return false
}

func TestAFeatureOfManyAxes(t *testing.T) {
	for _, side := range []pickle.Value{make([]byte, 1<<20), int64(-1)} {
		shape := &pickle.Tuple{Items: []pickle.Value{side}}
		_, err := feature("top", dict("dtype", "image", "shape", shape, "names", nil))
		if !errors.Is(err, ErrMessage) || len(err.Error()) > 200 {
			t.Errorf("%.300v", err)
		}
	}
	rttest.Fails(t, rttest.Err(feature("top", dict("shape", &pickle.Tuple{Items: make([]pickle.Value, 9)}))))
}

// A pickle that uses one large array in many actions is refused before the reader copies the array for each action.
func TestOneArrayForAllActions(t *testing.T) {
	whole := func(v pickle.Value) []byte { // the pickle without its protocol and its STOP
		b := pickle.Append(nil, v)
		return b[2 : len(b)-1]
	}
	src := []byte("\x80\x04](")
	for i := range 100 {
		action := []byte("h\x00") // memo 0: the array of the first action
		if i == 0 {
			action = append(whole(&pickle.Array{Type: "f4", Shape: []int{1 << 20}, Data: make([]byte, 4<<20)}), 0x94)
		}
		one := whole(&pickle.Object{Class: "TimedAction", State: dict("timestep", int64(i), "action", "HERE")})
		src = append(src, bytes.Replace(one, whole("HERE"), action, 1)...)
	}
	if _, rows, err := ParseActions(append(src, "e."...)); !errors.Is(err, ErrMessage) {
		t.Errorf("%d actions, %v, want a refusal", len(rows), err)
	}
}
