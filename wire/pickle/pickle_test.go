package pickle

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// read returns a pickle that LeRobot 0.6.1 wrote (testdata/write.py).
func read(t testing.TB, name string) []byte {
	t.Helper()
	return rttest.Must(os.ReadFile(filepath.Join("testdata", name+".pkl")))(t)
}

func attributes(t *testing.T, v Value, class string) *Dict {
	t.Helper()
	o, ok := v.(*Object)
	if !ok || o.Class != class || o.State == nil {
		t.Fatalf("%#v, want a %s", v, class)
	}
	return o.State
}

func TestConfig(t *testing.T) {
	c := attributes(t, rttest.Must(Decode(read(t, "config")))(t), "RemotePolicyConfig")
	features := c.Get("lerobot_features").(*Dict)
	state := features.Get("observation.state").(*Dict)
	top := features.Get("observation.images.top").(*Dict)
	if c.Get("policy_type") != "act" || c.Get("actions_per_chunk") != int64(50) ||
		!reflect.DeepEqual(state.Get("names").(*List).Items, []Value{"a.pos", "b.pos"}) ||
		!reflect.DeepEqual(top.Get("shape").(*Tuple).Items, []Value{int64(16), int64(24), int64(3)}) {
		t.Errorf("config = %+v", c)
	}
	c = attributes(t, rttest.Must(Decode(read(t, "config2")))(t), "RemotePolicyConfig")
	feature := attributes(t, c.Get("lerobot_features").(*Dict).Get("observation.state"), "PolicyFeature")
	if kind := feature.Get("type").(*Object); kind.Class != "FeatureType" || kind.Args[0] != Value("STATE") {
		t.Errorf("type = %+v", kind)
	}
}

func TestObservation(t *testing.T) {
	for _, name := range []string{"obs", "obs5"} {
		o := attributes(t, rttest.Must(Decode(read(t, name)))(t), "TimedObservation")
		raw := o.Get("observation").(*Dict)
		top := raw.Get("top").(*Array)
		if o.Get("timestamp") != 1.5 || o.Get("timestep") != int64(3) || o.Get("must_go") != true ||
			raw.Get("a.pos") != 1.25 || raw.Get("b.pos") != 2.5 || raw.Get("task") != "pick" ||
			top.Type != "u1" || !reflect.DeepEqual(top.Shape, []int{2, 3, 3}) || len(top.Data) != 18 {
			t.Errorf("%s = %+v, %+v, %+v", name, o, raw, top)
		}
	}
}

// TestActions compares the pickle of LeRobot's server with ours. Both have the same values; ours has a single storage.
func TestActions(t *testing.T) {
	ours := AppendActions(nil, &Actions{
		Timestamp: 1,
		Interval:  1 / 30.0,
		Cols:      2,
		Data:      []float32{0, 1, 2, 3, 4, 5},
	})
	for name, src := range map[string][]byte{"theirs": read(t, "actions"), "ours": ours} {
		list := rttest.Must(Decode(src))(t).(*List)
		if len(list.Items) != 3 {
			t.Fatalf("%s: %d actions", name, len(list.Items))
		}
		for i, item := range list.Items {
			a := attributes(t, item, "TimedAction")
			action := a.Get("action").(*Array)
			values, ok := action.Floats(nil)
			if a.Get("timestep") != int64(i) || a.Get("timestamp") != 1+float64(i)*(1/30.0) || !ok ||
				!reflect.DeepEqual(values, []float32{float32(2 * i), float32(2*i + 1)}) {
				t.Errorf("%s: action %d = %+v, %v", name, i, a, values)
			}
		}
	}
}

func TestAppendRoundTrip(t *testing.T) {
	raw := &Dict{}
	raw.Set("a.pos", 1.25)
	raw.Set("n", int64(-1<<40))
	raw.Set("names", &List{Items: []Value{"x", nil, true, false}})
	raw.Set("shape", &Tuple{Items: []Value{int64(3), int64(-4)}})
	raw.Set("top", &Array{Type: "u1", Shape: []int{1, 2, 3}, Data: []byte{1, 2, 3, 4, 5, 6}})
	raw.Set("f", &Array{Type: "f4", Shape: []int{1}, Data: []byte{0, 0, 128, 63}})
	raw.Set("b", []byte("\x00\xff"))
	src := Append(nil, &Object{Class: "TimedObservation", State: raw})
	got := attributes(t, rttest.Must(Decode(src))(t), "TimedObservation")
	for i, key := range raw.Keys {
		if v := got.Values[i]; got.Keys[i] != key || !reflect.DeepEqual(v, raw.Values[i]) {
			t.Errorf("%s = %#v, want %#v", key, v, raw.Values[i])
		}
	}
}

func TestOrdersAndNumbers(t *testing.T) {
	fortran := &decoder{budget: &budget{copied: 6}}
	a := &Array{}
	rttest.Do(t, fortran.set(a, "u1", &Tuple{Items: []Value{int64(2), int64(3)}}, []byte{1, 4, 2, 5, 3, 6}, true))
	if !bytes.Equal(a.Data, []byte{1, 2, 3, 4, 5, 6}) {
		t.Errorf("Fortran's order: %v", a.Data)
	}
	rttest.FailsAs(t, fortran.set(&Array{}, "u1", &Tuple{Items: []Value{int64(2), int64(3)}}, []byte{1, 4, 2, 5, 3, 6},
		true), ErrTooLarge)
	for _, tt := range []struct {
		dtype string
		data  []byte
		want  Value
	}{
		{"f2", []byte{0, 0x3c}, 1.0},
		{"f2", []byte{1, 0}, 0x1p-24},
		{"f2", []byte{0, 0xc0}, -2.0},
		{"f8", []byte{0, 0, 0, 0, 0, 0, 0xf8, 0x3f}, 1.5},
		{"i2", []byte{0xfe, 0xff}, int64(-2)},
		{"u1", []byte{200}, int64(200)},
		{"u4", []byte{0, 0, 0, 0x80}, int64(1 << 31)},
		{"b1", []byte{1}, true},
	} {
		got, err := scalar([]Value{&dtype{code: tt.dtype, built: true}, tt.data})
		if err != nil || got != tt.want {
			t.Errorf("%s % x = %v, %v, want %v", tt.dtype, tt.data, got, err, tt.want)
		}
	}
}

const proto = "\x80\x04"

// hostile holds pickles that would run code, exhaust memory or confuse a reader, each with the expected error.
var hostile = []struct {
	name, src string
	want      error
}{
	{"os.system by REDUCE", "cos\nsystem\n(X\x02\x00\x00\x00idtR.", ErrGlobal},
	{"posix.system, protocol 4", proto + "\x8c\x05posix\x8c\x06system\x93\x8c\x02id\x85R.", ErrGlobal},
	{"builtins.eval", proto + "\x8c\x08builtins\x8c\x04eval\x93\x8c\x031+1\x85R.", ErrGlobal},
	{"builtins.exec, protocol 2", "\x80\x02c__builtin__\nexec\nX\x01\x00\x00\x00x\x85R.", ErrGlobal},
	{"builtins.getattr", proto + "\x8c\x08builtins\x8c\x07getattr\x93.", ErrGlobal},
	{"torch.load", proto + "\x8c\x05torch\x8c\x04load\x93.", ErrGlobal},
	{"numpy.load", proto + "\x8c\x05numpy\x8c\x04load\x93.", ErrGlobal},
	{"a name's attribute", proto + "\x8c\x05numpy\x8c\x10dtype.__class__x\x93.", ErrGlobal},
	{"an attribute of a class", proto + "\x8c\x1flerobot.async_inference.helpers\x8c\x02os\x93.", ErrGlobal},
	{"a module below a known one", proto + "\x8c\x0anumpy.core\x8c\x05dtype\x93.", ErrGlobal},
	{"pickle in a list", proto + "](\x8c\x06pickle\x8c\x05loads\x93e.", ErrGlobal},
	{"nested in a dict's value", proto + "}(\x8c\x01a}(\x8c\x01b\x8c\x02os\x8c\x06system\x93uu.", ErrGlobal},
	{"INST", "(ios\nsystem\n.", ErrOpcode},
	{"OBJ", "(cos\nsystem\no.", ErrGlobal},
	{"OBJ of a known class", "(cnumpy\ndtype\no.", ErrOpcode},
	{"NEWOBJ_EX", proto + "\x8c\x05numpy\x8c\x05dtype\x93)}\x92.", ErrOpcode},
	{"EXT1", "\x80\x02\x82\x01.", ErrOpcode},
	{"PERSID", "Pevil\n.", ErrOpcode},
	{"BINPERSID", proto + "NQ.", ErrOpcode},
	{"NEXT_BUFFER", "\x80\x05\x97.", ErrOpcode},
	{"GET with text", "g0\n.", ErrOpcode},
	{"INT with text", "I1\n.", ErrOpcode},
	{"LONG4 of 2 GiB", proto + "\x8b\xff\xff\xff\x7f.", ErrOpcode},
	{"LONG1 of 255 bytes", proto + "\x8a\xff" + string(make([]byte, 255)) + ".", ErrTooLarge},
	{"DUP", "N2.", ErrOpcode},
	{"POP", "NN0.", ErrOpcode},
	{"a set", "\x80\x04\x8f.", ErrOpcode},
	{"no opcode", "\xff.", ErrMalformed},
	{"STACK_GLOBAL of bytes", proto + "C\x02osC\x06system\x93.", ErrMalformed},
	{"STACK_GLOBAL of one", proto + "\x8c\x02os\x93.", ErrMalformed},
	{"STACK_GLOBAL from memos", proto + "\x8c\x02os\x94\x8c\x06system\x94h\x00h\x01\x93.", ErrGlobal},
	{"STACK_GLOBAL below a mark", proto + "\x8c\x02os\x8c\x06system(\x93.", ErrMalformed},
	{"a name as the value", proto + "\x8c\x05numpy\x8c\x05dtype\x93.", ErrMalformed},
	{"REDUCE of a text", proto + "\x8c\x02os)R.", ErrMalformed},
	{"REDUCE of a class", proto + "\x8c\x1flerobot.async_inference.helpers\x8c\x10TimedObservation\x93)R.",
		ErrMalformed},
	{"NEWOBJ with arguments", proto + "\x8c\x1flerobot.async_inference.helpers\x8c\x10TimedObservation\x93N\x85\x81.",
		ErrMalformed},
	{"BUILD of a list", proto + "]}b.", ErrMalformed},
	{"an object dtype", proto + "\x8c\x05numpy\x8c\x05dtype\x93\x8c\x02O8\x89\x88\x87R.", ErrMalformed},
	{"a key that is no text", proto + "}K\x01Ns.", ErrMalformed},
	{"a frame of an exabyte", proto + "\x95\xff\xff\xff\xff\xff\xff\xff\x0fN.", ErrMalformed},
	{"bytes of an exabyte", proto + "\x8e\xff\xff\xff\xff\xff\xff\xff\x7fN.", ErrMalformed},
	{"bytes of -1", proto + "\x8e\xff\xff\xff\xff\xff\xff\xff\xff.", ErrMalformed},
	{"text of 4 GiB", proto + "X\xff\xff\xff\xff.", ErrMalformed},
	{"a memo that is not there", proto + "h\x00.", ErrMalformed},
	{"a memo far away", proto + "Nr\xff\xff\xff\xff.", ErrMalformed},
	{"protocol 255", "\x80\xffN.", ErrMalformed},
	{"no end", proto + "N", ErrMalformed},
	{"nothing", "", ErrMalformed},
	{"two values", proto + "NN.", ErrMalformed},
	{"an open mark", proto + "(N.", ErrMalformed},
	{"not UTF-8", proto + "\x8c\x01\xff.", ErrMalformed},
	{"an array of an exabyte",
		proto + "\x8c\x13numpy._core.numeric\x8c\x0b_frombuffer\x93(C\x00\x8c\x05numpy\x8c\x05dtype" +
			"\x93\x8c\x02u1\x89\x88\x87RJ\x00\x00\x00\x04J\x00\x00\x00\x04J\x00\x00\x00\x04\x87\x8c\x01CtR.",
		ErrTooLarge},
}

func TestHostile(t *testing.T) {
	for _, tt := range hostile {
		rttest.FailsAs(t, rttest.Err(Decode([]byte(tt.src))), tt.want)
	}
}

// Bombs are small pickles with very large values. Decoding ends with an error, or the values share memory.
func TestBombs(t *testing.T) {
	repeat := strings.Repeat
	laughs := proto + "]\x94"
	for i := range 30 { // each list contains the previous list ten times, so 30 lists have 10^30 items
		laughs += "](" + repeat("h"+string(rune(i)), 10) + "e\x94"
	}
	shared := proto + "C\xff" + repeat("x", 255) + "\x94(" + repeat("h\x00", 100_000) + "t\x85."
	for _, tt := range []struct {
		name, src string
		want      error
	}{
		{"deep tuples", proto + "N" + repeat("\x85", 100_000) + ".", nil},
		{"deep lists", proto + repeat("]", 100_000) + repeat("a", 99_999) + ".", nil},
		{"deep marks", proto + repeat("(", 100_000), ErrTooLarge},
		{"many opcodes", proto + repeat("N", 1<<20), ErrTooLarge},
		{"laughs", laughs, ErrMalformed}, // many values are left on the stack
		{"references", shared, ErrMalformed},
		{"a list in itself", proto + "]\x94h\x00a.", nil},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Decode([]byte(tt.src))
		runtime.ReadMemStats(&after)
		if !errors.Is(err, tt.want) || tt.want == nil && err != nil {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
			t.Errorf("%s: took %d MiB", tt.name, used>>20)
		}
	}
}

// TestTensorBombs: a pickle with many views of one storage, each in another order of elements, must not make the
// decoder copy every view.
func TestTensorBombs(t *testing.T) {
	const elements = 1 << 16
	src := append([]byte(proto), byte(opMark))
	src = appendBytes(appendName(src, "torch.storage", "_load_from_bytes"),
		appendArchive(nil, make([]float32, elements)))
	src = append(src, byte(opTuple1), byte(opReduce), byte(opMemoize))
	for range 1000 {
		src = append(appendName(src, "torch._utils", "_rebuild_tensor_v2"), byte(opMark), byte(opBinGet), 0)
		src = appendInt(appendInt(appendInt(src, 0), 256), 256)
		src = append(src, byte(opTuple2))
		src = append(appendInt(appendInt(src, 1), 256), byte(opTuple2), byte(opNewFalse), byte(opNone))
		src = append(src, byte(opTuple), byte(opReduce))
	}
	src = append(src, byte(opTuple), byte(opStop))
	rttest.FailsAs(t, rttest.Err(Decode(src)), ErrTooLarge)
}

// TestMutated changes real pickles at random: the reader ends, without a panic, in bounded memory.
func TestMutated(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var seeds [][]byte
	for _, name := range []string{"config", "config2", "obs", "obs5", "actions"} {
		seeds = append(seeds, read(t, name))
	}
	for _, h := range hostile {
		seeds = append(seeds, []byte(h.src))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	failed := 0
	const rounds = 20_000
	for range rounds {
		src := bytes.Clone(seeds[random.IntN(len(seeds))])
		for range 1 + random.IntN(8) {
			if len(src) > 0 {
				src[random.IntN(len(src))] = byte(random.IntN(256))
			}
		}
		if random.IntN(4) == 0 {
			src = src[:random.IntN(len(src)+1)]
		}
		if _, err := Decode(src); err != nil {
			failed++
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / rounds; each > 64<<10 || failed < rounds/2 {
		t.Errorf("%d of %d were refused, %d bytes each", failed, rounds, each)
	}
}

// Property: on any bytes Decode returns without a panic, and a value that it returns can be written and decoded again.
func FuzzDecode(f *testing.F) {
	for _, name := range []string{"config", "config2", "obs", "obs5", "actions"} {
		f.Add(read(f, name))
	}
	for _, h := range hostile {
		f.Add([]byte(h.src))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		v, err := Decode(src)
		if err != nil {
			return
		}
		if a, ok := v.(*Array); ok && a.Type != "" {
			rttest.Want(t, a.Len()*sizes[a.Type], len(a.Data), "bytes of %d elements of %s", a.Len(), a.Type)
		}
	})
}

// An error shows only the type of a hostile value, because the text goes to the log and back to the sender.
func TestErrorsAreShort(t *testing.T) {
	shape := &Tuple{Items: []Value{make([]byte, 1<<20)}}
	if _, err := dims(shape); err == nil || len(err.Error()) > 200 {
		t.Errorf("an error of %d bytes", len(err.Error()))
	}
}

// For an array with transposed axes, NumPy 2.3 and later write the order K and the order of the axes.
func TestTransposedArray(t *testing.T) {
	src := read(t, "obs5k")
	top := attributes(t, rttest.Must(Decode(src))(t), "TimedObservation").Get("observation").(*Dict).Get("top").(*Array)
	if !reflect.DeepEqual(top.Shape, []int{2, 3, 4}) || top.Data[0] != 0 || top.Data[1] != 6 || top.Data[4] != 1 {
		t.Errorf("top = %v %v", top.Shape, top.Data)
	}
}
