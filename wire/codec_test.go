package wire

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/tinylib/msgp/msgp"
)

// TestAppendIntIsShortest compares the forms with those of Python's msgpack at every boundary.
func TestAppendIntIsShortest(t *testing.T) {
	for _, tt := range []struct {
		v    int64
		want string
	}{
		{0, "00"}, {127, "7f"}, {128, "cc80"}, {255, "ccff"}, {256, "cd0100"}, {65535, "cdffff"},
		{65536, "ce00010000"}, {math.MaxUint32, "ceffffffff"}, {math.MaxUint32 + 1, "cf0000000100000000"},
		{math.MaxInt64, "cf7fffffffffffffff"}, {-1, "ff"}, {-32, "e0"}, {-33, "d0df"}, {-128, "d080"},
		{-129, "d1ff7f"}, {-32768, "d18000"}, {-32769, "d2ffff7fff"}, {math.MinInt32, "d280000000"},
		{math.MinInt32 - 1, "d3ffffffff7fffffff"}, {math.MinInt64, "d38000000000000000"},
	} {
		if got := appendInt(nil, tt.v); !bytes.Equal(got, unhex(tt.want)) {
			t.Errorf("appendInt(%d) = %x, want %s", tt.v, got, tt.want)
		}
	}
}

// body returns a map with one key and the given value bytes.
func body(key string, value ...byte) []byte {
	return append(msgp.AppendString([]byte{0x81}, key), value...)
}

func tensorBytes(dtype string, shape []int64, n int) []byte {
	return tensorOf(dtype, shape, make([]byte, n))
}

func tensorOf(dtype string, shape []int64, data []byte) []byte {
	b := appendTextKey([]byte{0x83}, "dtype", dtype)
	b = msgp.AppendArrayHeader(msgp.AppendString(b, "shape"), uint32(len(shape)))
	for _, d := range shape {
		b = appendInt(b, d)
	}
	return msgp.AppendBytes(msgp.AppendString(b, "data"), data)
}

// TestLimits checks both sides of each limit: the last accepted and the first refused value.
func TestLimits(t *testing.T) {
	observation := func(src []byte) error { return ParseObservation(new(Observation), src) }
	chunk := func(src []byte) error { return ParseActionChunk(new(ActionChunk), src) }
	openBody := func(src []byte) error { return Parse(new(SessionOpen), src) }
	reset := func(src []byte) error { return Parse(new(Reset), src) }
	text := func(n int) []byte { return msgp.AppendString(nil, strings.Repeat("x", n)) }
	images := func(n int) []byte {
		b := msgp.AppendMapHeader(nil, uint32(n))
		for i := range n {
			b = appendImage(b, &Image{Name: string(rune('a' + i)), Data: []byte{1}})
		}
		return b
	}
	raw := func(h, w int64) []byte {
		b := appendTextKey([]byte{0x83}, "codec", "raw")
		b = appendInt(appendInt(appendInt(append(msgp.AppendString(b, "shape"), 0x93), h), w), 3)
		b = msgp.AppendBytes(msgp.AppendString(b, "data"), make([]byte, h*w*3))
		return append([]byte{0x81, 0xa1, 'x'}, b...)
	}
	jpeg := func(n int) []byte { return appendImage([]byte{0x81}, &Image{Name: "x", Data: make([]byte, n)}) }
	spans := func(n int) []byte {
		return append(msgp.AppendArrayHeader(nil, uint32(n)), bytes.Repeat([]byte{0x93, 1, 0, 1}, n)...)
	}
	names := func(n int) []byte {
		return append(msgp.AppendArrayHeader(nil, uint32(n)), bytes.Repeat([]byte{0xa1, 'x'}, n)...)
	}
	for _, tt := range []struct {
		name  string
		parse func([]byte) error
		key   string
		value func(n int) []byte
		limit int
	}{
		{"pictures", observation, "images", images, MaxImages},
		{"bytes of a picture", observation, "images", jpeg, MaxImageBytes},
		{"side of a raw picture", observation, "images", func(n int) []byte { return raw(int64(n), 1) }, MaxImageSide},
		{"length of a state", observation, "state", func(n int) []byte {
			return tensorBytes("<f4", []int64{int64(n)}, 4*n)
		}, MaxDOF},
		{"rows of a prefix", observation, "prefix_robot", func(n int) []byte {
			return tensorBytes("<f4", []int64{int64(n), 1}, 4*n)
		}, MaxRows},
		{"columns of a chunk", chunk, "chunk_robot", func(n int) []byte {
			return tensorBytes("<f4", []int64{1, int64(n)}, 4*n)
		}, MaxDOF},
		{"bytes of a task", observation, "task", text, MaxTextBytes},
		{"bytes of a name", chunk, "server_id", text, MaxNameBytes},
		{"bytes of a uuid", openBody, "client_uuid", text, MaxUUIDBytes},
		{"entries of spans", observation, "spans", spans, MaxSpans},
		{"names", openBody, "action_names", names, MaxNames},
		{"nesting of an unknown key", reset, "x", func(n int) []byte {
			return append(bytes.Repeat([]byte{0x91}, n), 0xc0)
		}, MaxDepth},
		{"delay", observation, "inference_delay_steps", func(n int) []byte {
			return appendInt(nil, int64(n))
		}, MaxRows},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rttest.Do(t, tt.parse(body(tt.key, tt.value(tt.limit)...)))
			rttest.Fails(t, tt.parse(body(tt.key, tt.value(tt.limit+1)...)))
		})
	}
	many := func(n int) []byte {
		return append(msgp.AppendMapHeader(nil, uint32(n)), bytes.Repeat([]byte{0xa1, 'x', 0xc0}, n)...)
	}
	rttest.Do(t, observation(many(MaxMapKeys)))
	rttest.FailsAs(t, observation(many(MaxMapKeys+1)), ErrTooLarge)
}

// TestHostileBytes: three kinds of messages are refused with the matching error: a message that announces more bytes
// than it has, a value of a wrong type, and a wrong size.
func TestHostileBytes(t *testing.T) {
	for _, tt := range []struct {
		name string
		src  []byte
		want error
	}{
		{"a picture of 4 GB claimed", body("images", append(msgp.AppendString([]byte{0x81, 0xa1, 'x', 0x81}, "data"),
			0xc6, 0xff, 0xff, 0xff, 0xff)...), ErrTooLarge},
		{"a picture of 1 MB claimed", body("images", append(msgp.AppendString([]byte{0x81, 0xa1, 'x', 0x81}, "data"),
			0xc6, 0, 0x10, 0, 0)...), ErrMalformed},
		{"a task of 4 GB claimed", body("task", 0xdb, 0xff, 0xff, 0xff, 0xff), ErrTooLarge},
		{"a length cut off", body("task", 0xda, 0x01), ErrMalformed},
		{"an unknown list of 4 G entries", body("zz", 0xdd, 0xff, 0xff, 0xff, 0xff, 0xc0), ErrMalformed},
		{"an unknown map of 4 G entries", body("zz", 0xdf, 0xff, 0xff, 0xff, 0xff, 0xc0), ErrMalformed},
		{"an unknown reserved byte", body("zz", 0xc1), ErrMalformed},
		{"no value for a key", body("t"), ErrMalformed},
		{"a number for a bool", body("episode_start", 1), ErrMalformed},
		{"a float for an integer", body("t", 0xcb, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0), ErrMalformed},
		{"text for a number", body("runway_ms", 0xa1, '1'), ErrMalformed},
		{"NaN for a number", body("runway_ms", 0xcb, 0x7f, 0xf8, 0, 0, 0, 0, 0, 0), ErrNotFinite},
		{"infinity as float32", body("runway_ms", 0xca, 0x7f, 0x80, 0, 0), ErrNotFinite},
		{"t beyond 63 bits", body("t", 0xcf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), ErrMalformed},
		{"state of two axes", body("state", tensorBytes("<f4", []int64{1, 2}, 8)...), ErrShape},
		{"prefix of one axis", body("prefix_model", tensorBytes("<f4", []int64{2}, 8)...), ErrShape},
		{"state of integers", body("state", tensorBytes("<i4", []int64{2}, 8)...), ErrShape},
		{"five axes", body("state", tensorBytes("<f4", []int64{1, 1, 1, 1, 2}, 8)...), ErrTooLarge},
		{"grey raw picture", body("images", append(msgp.AppendString([]byte{0x81, 0xa1, 'x', 0x83}, "codec"),
			append(msgp.AppendString(nil, "raw"), tensorOf("", []int64{1, 1, 1}, []byte{7})[8:]...)...)...), ErrShape},
		{"data longer than the shape", body("state", tensorBytes("<f4", []int64{2}, 12)...), ErrShape},
		{"float64 beyond float32", body("state", tensorOf("<f8", []int64{1}, []byte{0, 0, 0, 0, 0, 0, 0xf0, 0x7e})...),
			ErrNotFinite},
		{"span of two values", body("spans", 0x91, 0x92, 1, 2), ErrShape},
		{"span that ends before it starts", body("spans", 0x91, 0x93, 1, 5, 4), ErrMalformed},
		{"span without an end", body("spans", 0x91, 0x93, 1, 5, 0xc0), ErrMalformed},
		{"images null", body("images", 0xc0), ErrMalformed},
		{"trailing byte", append(body("t", 1), 0xc0), ErrMalformed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := ParseObservation(new(Observation), tt.src)
			rttest.FailsAs(t, err, tt.want, "got", "want")
			if strings.Contains(tt.name, "picture") {
				rttest.Fails(t, err, "image x")
			}
		})
	}
}

// TestTensorProductDoesNotWrap: a shape of 2^107 bytes is refused. In 64 bits the product would wrap to 0, which is the
// size of the tensor's empty data.
func TestTensorProductDoesNotWrap(t *testing.T) {
	src := tensorBytes("<f8", []int64{1 << 26, 1 << 26, 1 << 26, 1 << 26}, 0)
	rttest.FailsAs(t, rttest.Err(ParseTensor(new(Tensor), src)), ErrShape)
}

// TestEveryCutIsRefused: no proper prefix of a message is accepted.
func TestEveryCutIsRefused(t *testing.T) {
	src := AppendObservation(nil, demoObservation())
	var o Observation
	for n := range src {
		if err := ParseObservation(&o, src[:n]); err == nil {
			t.Errorf("the first %d of %d bytes are accepted", n, len(src))
		}
	}
}

// TestTolerance: a reader accepts forms that a writer does not produce.
func TestTolerance(t *testing.T) {
	var o Observation
	twice := append([]byte{0x82}, append(body("t", 1)[1:], body("t", 2)[1:]...)...)
	rttest.Do(t, ParseObservation(&o, twice))
	rttest.Want(t, o.T, 2, "the one of two equal keys t that counts")
	rttest.Do(t, ParseObservation(&o, body("state", tensorOf("<f8", []int64{1},
		[]byte{0, 0, 0, 0, 0, 0, 0xf8, 0x3f})...)))
	if len(o.State) != 1 || o.State[0] != 1.5 {
		t.Errorf("state of <f8 = %v, want [1.5]", o.State)
	}
	rttest.Do(t, ParseObservation(&o, body("runway_ms", 0xd1, 0xff, 0x00)))
	rttest.Want(t, o.RunwayMs, -256, "runway_ms of int16 -256")
	src := []byte{0x81, 0xc4, 1, 't', 0xd3, 0, 0, 0, 0, 0, 0, 0, 5}
	if rttest.Do(t, ParseObservation(&o, src)); o.T != 5 {
		t.Errorf("t after a bin key in a long form = %d, want 5", o.T)
	}
	two := append([]byte{0x82}, appendImage(appendImage(nil, &Image{Name: "x", Data: []byte{1}}),
		&Image{Name: "x", Data: []byte{2}})...)
	if rttest.Do(t, ParseObservation(&o, body("images", two...))); len(o.Images) != 1 || o.Images[0].Data[0] != 2 {
		t.Errorf("of two pictures with one name %v, want only the last", o.Images)
	}
	var ack ResetAck
	if rttest.Do(t, Parse(&ack, []byte{0x80})); !ack.OK {
		t.Error("a ResetAck without ok reads as a failure, want true")
	}
	var s SessionOpen
	if rttest.Do(t, Parse(&s, body("fps", 30))); s.FPS != 30 {
		t.Errorf("fps of an integer = %v, want 30", s.FPS)
	}
}
