package safetensors

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// tensorFile puts a header in front of data.
func tensorFile(header string, data int) []byte {
	file := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(file, header...), make([]byte, data)...)
}

func TestParse(t *testing.T) {
	file := tensorFile(
		`{"__metadata__":{"a":"b"},"x":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},"y":{"dtype":"I64","shape":[1],"data_offsets":[8,16]},"z":{"dtype":"BOOL","shape":[2],"data_offsets":[16,18]}}`, 18)
	file[len(file)-1] = 1
	binary.LittleEndian.PutUint32(file[len(file)-14:], 0x3fc00000) // the value 1.5
	binary.LittleEndian.PutUint64(file[len(file)-10:], 1<<64-2)
	metadata, tensors, err := Parse(file)
	if err != nil || metadata["a"] != "b" {
		t.Fatalf("metadata %v, %v", metadata, err)
	}
	if x := Values[float32](tensors["x"]); len(tensors) != 3 || x[0] != 0 || x[1] != 1.5 {
		t.Errorf("%d tensors with x = %v, want 3 with [0 1.5]", len(tensors), x)
	}
	if y := Values[int64](tensors["y"]); len(y) != 1 || y[0] != -2 {
		t.Errorf("y = %v, want [-2]", y)
	}
	if z := Values[bool](tensors["z"]); len(z) != 2 || z[0] || !z[1] {
		t.Errorf("z = %v, want [false true]", z)
	}
}

func TestParseRefuses(t *testing.T) {
	entry := func(dtype, shape, offsets string) string {
		return `{"x":{"dtype":"` + dtype + `","shape":` + shape + `,"data_offsets":` + offsets + `}}`
	}
	for _, tt := range []struct {
		name string
		file []byte
		want string
	}{
		{"nothing", nil, "0 bytes"},
		{"header beyond the file", tensorFile("", 0)[:8:8], ""},
		{"header length beyond the file", append(binary.LittleEndian.AppendUint64(nil, 100), '{', '}'),
			"header of 100 bytes"},
		{"header length that overflows", binary.LittleEndian.AppendUint64(nil, 1<<63), "header of 9223372036854775808"},
		{"no JSON", tensorFile("hello", 0), "invalid character"},
		{"metadata that is no text", tensorFile(`{"__metadata__":{"a":1}}`, 0), "__metadata__"},
		{"unknown type", tensorFile(entry("BF16", "[1]", "[0,2]"), 2), `dtype "BF16"`},
		{"unknown key", tensorFile(`{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"q":1}}`, 1), "unknown field"},
		{"rank beyond the bound", tensorFile(entry("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1), "of rank 9"},
		{"negative side", tensorFile(entry("U8", "[-1]", "[0,1]"), 1), "shape [-1]"},
		{"shape that overflows", tensorFile(entry("F32", "[4611686018427387904,4]", "[0,0]"), 0),
			"shape [4611686018427387904 4]"},
		{"fewer bytes than the shape", tensorFile(entry("F32", "[2]", "[0,4]"), 4), "want 8 bytes"},
		{"data beyond the file", tensorFile(entry("F32", "[2]", "[0,8]"), 4), "data at 0..8 of 4"},
		{"data before the file", tensorFile(entry("U8", "[2]", "[-1,1]"), 4), "data at -1..1"},
		{"bytes that belong to nobody", tensorFile(entry("U8", "[2]", "[0,2]"), 4), "hold 2 bytes of 4"},
		{"overlap", tensorFile(
			`{"x":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"y":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}}`,
			4), "data at 2..4 after a tensor that ends at 3"},
		{"overlap and a gap that even out",
			tensorFile(`{"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"y":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, 4), "data at 0..2 after"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, _, err := Parse(tt.file); !errors.Is(err, errFormat) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Parse = %v, want errFormat with %q", err, tt.want)
			}
		})
	}
}

// Property: no bytes crash the reader, and the tensors of an accepted file have exactly the file's
// data.
func FuzzParse(f *testing.F) {
	golden := rttest.Must(os.ReadFile(filepath.Join("..", "..",
		"testdata", "demo", "still", "golden", "b1_mode0.safetensors")))(f)
	f.Add(golden)
	f.Add(tensorFile(`{"x":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}}`, 8))
	f.Fuzz(func(t *testing.T, file []byte) {
		_, tensors, err := Parse(file)
		if err != nil {
			return
		}
		total := 0
		for name, tensor := range tensors {
			size := int(dtypeSize[tensor.DType])
			for _, dim := range tensor.Shape {
				size *= int(dim)
			}
			if size != len(tensor.Data) {
				t.Fatalf("%q holds %d bytes, want %d", name, len(tensor.Data), size)
			}
			total += size
		}
		if header := int(binary.LittleEndian.Uint64(file)); total != len(file)-8-header {
			t.Fatalf("tensors hold %d bytes of %d", total, len(file)-8-header)
		}
	})
}
