package policy

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/edge-rt/edge-rt/policy/safetensors"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

const goldenFile = goldenDir + "/b4_modes0123.safetensors"

// editTensor applies edit to the bytes of one tensor of a golden file and returns
// the whole file.
func editTensor(t *testing.T, dir, tensor string, edit func(data []byte)) []byte {
	t.Helper()
	file := rttest.Must(os.ReadFile(filepath.Join(dir, goldenFile)))(t)
	_, tensors, err := safetensors.Parse(file)
	rttest.Do(t, err)
	edit(tensors[tensor].Data) // Data is a part of file, so edit changes file
	return file
}

// Goal: a bundle whose outputs differ from the recorded ones is refused, and the error names the place of the value.
// Method: change the recording.
func TestGoldenSetThatIsNotReproduced(t *testing.T) {
	needRuntime(t)
	at := func(row, step, joint int) int { return 4 * ((row*50+step)*6 + joint) }
	add := func(offset int, delta float64) func([]byte) {
		return func(data []byte) {
			v := math.Float32frombits(binary.LittleEndian.Uint32(data[offset:]))
			binary.LittleEndian.PutUint32(data[offset:], math.Float32bits(float32(float64(v)+delta)))
		}
	}
	for _, tt := range []struct {
		name, tensor string
		edit         func([]byte)
		want         string // a part of the error's text; "" if the bundle opens
	}{
		{"recorded robot row differs", "out/chunk_robot", add(at(2, 17, 3), 0.5),
			"chunk_robot[2, 17, 3] (wrist_flex.pos)"},
		{"recorded model row differs", "out/chunk_model", add(at(0, 49, 5), -0.5),
			"chunk_model[0, 49, 5] (gripper.pos)"},
		{"recorded row is not a number", "out/chunk_robot", add(at(3, 0, 0), math.NaN()), "chunk_robot[3, 0, 0]"},
		{"input differs", "in/state", add(4*(6*1+2), 3), "chunk_model[1, "},
		{"difference within tolerance", "out/chunk_robot", add(at(2, 17, 3), 0.0005), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := copyBundle(t, stillDir, nil)
			replaceFile(t, dir, goldenFile, editTensor(t, dir, tt.tensor, tt.edit))
			b := rttest.Must(LoadBundle(dir))(t)
			m, err := b.Open(Options{MaxBatch: 4})
			if tt.want == "" {
				if err != nil {
					t.Fatalf("Open = %v, want success", err)
				}
				m.Close()
				return
			}
			rttest.FailsAs(t, err, ErrGolden, tt.want, goldenFile)
		})
	}
}

func TestGoldenSetThatDoesNotFit(t *testing.T) {
	needRuntime(t)
	for _, tt := range []struct {
		name string
		file []byte
		want string
	}{
		{"no tensors", tensorFile("{}", 0), "no tensor in/image.top"},
		{"another type", tensorFile(`{"in/image.top":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4),
			"in/image.top is F32 [1], want U8 [1 120 160 3]"},
		{"no rows", tensorFile(`{"in/image.top":{"dtype":"U8","shape":[0,120,160,3],"data_offsets":[0,0]}}`, 0),
			"in/image.top is U8 [0 120 160 3]"},
		{"torn", []byte("{}"), "not a safetensors file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := copyBundle(t, stillDir, nil)
			replaceFile(t, dir, goldenFile, tt.file)
			b := rttest.Must(LoadBundle(dir))(t)
			rttest.FailsAs(t, rttest.Err(b.Open(Options{})), ErrBundle, tt.want)
		})
	}
}

// tensorFile returns a safetensors file with the header and data zeros.
func tensorFile(header string, data int) []byte {
	file := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(file, header...), make([]byte, data)...)
}
