package ndarray

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// golden is an array with its encodings by openpi-client 0.1.2 (msgpack_numpy.packb) and in GR00T's form (msgpack with
// numpy.save), made with NumPy 1.26 and msgpack 1.2.
type golden struct {
	Name, DType   string
	Shape         []int
	Fortran       bool
	Data          string
	Values        []any
	OpenPI, Groot string
}

func goldens(t testing.TB) (all []golden) {
	t.Helper()
	rttest.ReadJSON(t, "testdata/arrays.json", &all)
	if len(all) == 0 {
		t.Fatal("no arrays")
	}
	return all
}

func fromHex(t testing.TB, text string) []byte {
	t.Helper()
	return rttest.Must(hex.DecodeString(text))(t)
}

func TestArraysAsPythonWritesThem(t *testing.T) {
	for _, g := range goldens(t) {
		t.Run(g.Name, func(t *testing.T) {
			data := fromHex(t, g.Data)
			for style, text := range map[Style]string{OpenPI: g.OpenPI, GR00T: g.Groot} {
				packed := fromHex(t, text)
				v, err := Parse(packed)
				a, ok := v.(*Array)
				if err != nil || !ok {
					t.Fatalf("Parse = %v, %v, want an array", v, err)
				}
				if a.DType != g.DType || !a.Is(g.Shape...) || !bytes.Equal(a.Data, data) {
					t.Errorf("style %d: %s % x, want %s %v % x", style, a, a.Data, g.DType, g.Shape, data)
				}
				if again := style.AppendArray(nil, g.DType, g.Shape, data); !g.Fortran && !bytes.Equal(again, packed) {
					t.Errorf("AppendArray, style %d:\n%q, want\n%q", style, again, packed)
				}
				compareValues(t, a, g.Values)
			}
		})
	}
}

func compareValues(t *testing.T, a *Array, want []any) {
	t.Helper()
	got := make([]float32, a.Len())
	a.Floats(got)
	if len(got) != len(want) {
		t.Fatalf("%d values, want %d", len(got), len(want))
	}
	for i, v := range want {
		n, ok := v.(float64)
		if !ok {
			n, _ = strconv.ParseFloat(v.(string), 64)
		}
		rttest.Want(t, got[i], float32(n), "value %d", i)
	}
}

func TestHalfNotANumber(t *testing.T) {
	if v := Half(0x7E00); !math.IsNaN(v) {
		t.Errorf("Half(0x7E00) = %v, want NaN", v)
	}
}

// packed returns an array in openpi's form, as a MessagePack map.
func packed(dtype, shape, data string) []byte {
	b := append([]byte{0x84}, appendBytes(nil, openpiArray)...)
	b = append(append(b, 0xC3), appendBytes(nil, "data")...)
	b = append(appendBytes(b, data), appendBytes(nil, "dtype")...)
	b = append(b, byte(0xA0+len(dtype)))
	b = append(append(b, dtype...), appendBytes(nil, "shape")...)
	return append(b, shape...)
}

func npy(dict, data string) []byte {
	return []byte(npyMagic + "\x01\x00" + string([]byte{byte(len(dict)), byte(len(dict) >> 8)}) + dict + data)
}

func TestHostileBytes(t *testing.T) {
	deep := bytes.Repeat([]byte{0x91}, 64)
	file := func(b []byte) []byte {
		m := append([]byte{0x82}, 0xB1)
		m = append(append(m, groot...), 0xC3, 0xA6)
		return append(append(m, grootNPY...), appendBytes(nil, string(b))...)
	}
	for _, tt := range []struct {
		name string
		b    []byte
		want string
	}{
		{"nothing", nil, "not read"},
		{"bytes after the value", []byte{1, 2}, "left after"},
		{"too deep", deep, "within each other"},
		{"list of four billion", []byte{0xDD, 0xFF, 0xFF, 0xFF, 0xFF}, "items"},
		{"map of four billion", []byte{0xDF, 0xFF, 0xFF, 0xFF, 0xFF}, "items"},
		{"bytes longer than the message", []byte{0xC6, 0xFF, 0xFF, 0xFF, 0xFF, 1}, "too few"},
		{"extension", []byte{0xD4, 1, 0}, "not read"},
		{"key is a number", []byte{0x81, 1, 1}, "key of the type"},
		{"key of 257 bytes", append([]byte{0x81, 0xDA, 1, 1}, make([]byte, 257)...), "257 bytes"},
		{"text is not UTF-8", []byte("\x81\xA6prompt\xA1\xFF"), "key \"prompt\": a text is not UTF-8"},
		{"key in a map", append([]byte("\x81\xA6images\x81\xA3top"), packed("|O", "\x90", "")...), `key "images/top"`},
		{"key twice", []byte{0x82, 0xA1, 'a', 1, 0xA1, 'a', 2}, "twice"},
		{"objects", packed("|O", "\x91\x01", "12345678"), "dtype"},
		{"big-endian", packed(">f4", "\x91\x01", "1234"), "dtype"},
		{"fewer bytes than the shape", packed("<f4", "\x91\x02", "1234"), "has 4 bytes, want 8"},
		{"shape overflows", packed("<f4", "\x92\xCE\x7F\xFF\xFF\xFF\xCE\x7F\xFF\xFF\xFF", ""), "side"},
		{"product overflows", packed("<f4", "\x94\xCE\x01\x00\x00\x00\xCE\x01\x00\x00\x00\xCE\x01\x00\x00\x00\x10", ""),
			"elements"},
		{"negative side", packed("<f4", "\x91\xFF", ""), "side"},
		{"fractional side", packed("<f4", "\x91\xCA\x3F\x80\x00\x01", ""), "side"},
		{"side is a long text", packed("<f4", "\x91\xDA\xFF\xFF"+strings.Repeat("x", 0xFFFF), ""), "array is xxx"},
		{"shape is text", packed("<f4", "\xA1x", ""), "shape"},
		{"nine dimensions", packed("<f4", "\x99"+strings.Repeat("\x01", 9), "1234"), "shape"},
		{"npy with objects", file(npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n", "\x80\x04.")),
			"dtype"},
		{"npy that calls", file(npy("{'descr': __import__('os'), 'fortran_order': False, 'shape': (), }\n", "")),
			"header"},
		{"npy longer header than file", file([]byte(npyMagic + "\x02\x00\xFF\xFF\xFF\xFF")), "longer than"},
		{"npy of version 9", file([]byte(npyMagic + "\x09\x00\x00\x00\x00\x00")), "version"},
		{"a pickle for an npy", file([]byte("\x80\x04\x95\x00")), "begins with"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse(tt.b)
			if rttest.FailsAs(t, err, ErrFormat, tt.want); len(err.Error()) > 400 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

func TestAt(t *testing.T) {
	m := Map{"observation/image": 1, "a.b": 2, "images": Map{"cam_high": 3, "x.y": 4}}
	for key, want := range map[string]any{
		"observation/image": 1,
		"a.b":               2,
		"images.cam_high":   3,
		"images.x.y":        4,
		"images.none":       nil,
		"none.none":         nil,
	} {
		rttest.Want(t, fmt.Sprint(m.At(key)), fmt.Sprint(want), "At(%q)", key)
	}
}

// Property: on any bytes Parse returns. Each array that it returns has as many bytes as its shape and dtype require.
// Written and read in either style, the array is the same.
func FuzzParse(f *testing.F) {
	for _, g := range goldens(f) {
		f.Add(fromHex(f, g.OpenPI))
		f.Add(fromHex(f, g.Groot))
	}
	f.Add([]byte{0x81, 0xA1, 'a', 0x92, 0xC0, 0xCB, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := Parse(b)
		if (err != nil) != errors.Is(err, ErrFormat) {
			t.Fatalf("error %v does not wrap ErrFormat", err)
		}
		a, ok := v.(*Array)
		if !ok {
			return
		}
		a.Floats(make([]float32, a.Len()))
		for _, style := range []Style{OpenPI, GR00T} {
			v, err := Parse(style.AppendArray(nil, a.DType, a.Shape, a.Data))
			again, ok := v.(*Array)
			if err != nil || !ok || again.DType != a.DType || !again.Is(a.Shape...) ||
				!bytes.Equal(again.Data, a.Data) {
				t.Fatalf("%s comes back as %v, %v", a, v, err)
			}
		}
	})
}

// Property: on any bytes parseNPY returns, and an array that it returns has as many bytes as its shape requires.
func FuzzParseNPY(f *testing.F) {
	f.Add(npy("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 2), }\n", "12345678"))
	f.Add(append(npyPrefix(Uint8, []int{2}), 1, 2))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parseNPY(b)
		if err == nil && a.check() != nil {
			t.Fatalf("%s: %v", &a, a.check())
		}
	})
}
