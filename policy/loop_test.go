package policy

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// splitDir is the policy of pi05Dir as two graphs (tools/export/tests/toy.py).
const splitDir = "../testdata/pi05-split"

// fillToy fills row i of the toy Pi0.5 with a request that depends on seed. Every third request has
// a prefix.
func fillToy(m *Model, i int, seed uint64) {
	for k, pic := 0, m.Image(i, 0); k < len(pic); k++ {
		pic[k] = byte(uint64(k) * (seed + 7) >> 3)
	}
	for j := range m.State(i) {
		m.State(i)[j] = float32(seed) + float32(j)
	}
	for k := range m.Tokens(i) {
		m.Tokens(i)[k], m.TokenMask(i)[k] = int64(k+int(seed))%500, k < 20
	}
	FillNoise(m.Noise(i), NoiseKey(seed), 1)
	for k := range m.Prefix(i) {
		m.Prefix(i)[k] = float32(k % 6)
	}
	m.SetControls(i, m.Bundle().Condition(&Conditioning{}, 8*int(seed%3/2), 3, 0))
}

// askToys computes six requests in two buffers.
func askToys(t *testing.T, m *Model) (chunks [][]float32) {
	t.Helper()
	for i := range 6 {
		fillToy(m, i, uint64(i))
	}
	rttest.Do(t, errors.Join(m.RunBuffer(0, 3), m.RunBuffer(1, 2)))
	for i := range 5 {
		chunks = append(chunks, slices.Clone(m.ChunkRobot(i)), slices.Clone(m.ChunkModel(i)))
	}
	return chunks
}

func checkSameChunks(t *testing.T, got, want [][]float32) {
	t.Helper()
	for i := range want {
		if !slices.Equal(got[i], want[i]) {
			t.Errorf("chunk %d of two graphs is not that of one", i)
		}
	}
	if slices.Equal(want[0], want[2]) || slices.Equal(want[0], want[1]) {
		t.Error("other requests and other units have the same chunk")
	}
}

// A policy in two graphs gives the same bytes as in one graph, in every batch and buffer. It computes a request without
// an allocation.
func TestTwoGraphsComputeWhatOneDoes(t *testing.T) {
	opt := Options{MaxBatch: 3, Buffers: 2}
	one, two := openModel(t, pi05Dir, opt), openModel(t, splitDir, opt)
	checkSameChunks(t, askToys(t, two), askToys(t, one))
	rttest.NoAllocs(t, "a request allocates %v times, want 0", 5, func() {
		fillToy(two, 0, 1)
		rttest.Do(t, two.Run(1))
	})
	// Keys and values of 3 layers, x twice and the inputs of RTC are allocated once, for the
	// largest batch, and not for each buffer.
	const row = 4 * (3*2*216*16 + 2*12*32 + 12*32 + 12 + 10 + 12*228 + 2*12*16)
	const mask = 12
	more := two.TensorBytes() - one.TensorBytes()
	rttest.Want(t, more, int64(opt.MaxBatch*(row+mask)), "bytes of two graphs more than of one")
}

// Terminate ends a run in a step as well as in the prefix.
func TestTerminateEndsTheStepsOfTwoGraphs(t *testing.T) {
	m := openModel(t, splitDir, Options{})
	rttest.Do(t, m.Terminate())
	r := &m.runs[0]
	for _, p := range append([]pass{r.head}, r.steps...) {
		rttest.Fails(t, p.run(), "terminate") // the run after Terminate
	}
}

func TestOpenRefusesTwoGraphsThatDoNotFit(t *testing.T) {
	needRuntime(t)
	read := func(name string) []byte {
		return rttest.Must(os.ReadFile(filepath.Join(splitDir, name)))(t)
	}
	prefix, step := read(prefixName), read(stepName)
	rename := func(graph []byte, old, new string) []byte {
		if !bytes.Contains(graph, []byte(old)) {
			t.Fatalf("the graph has no %s", old)
		}
		return bytes.ReplaceAll(graph, []byte(old), []byte(new))
	}
	for _, tt := range []struct {
		name, file string
		graph      []byte
		want       string
	}{
		{"a step for the prefix", prefixName, step, "prefix.onnx: the graph has no input image.top"},
		{"a prefix for the step", stepName, prefix, "step.onnx: the graph has no input k int64 []"},
		{"torn step", stepName, step[:len(step)/2], stepName},
		{"a cache that the prefix does not give", stepName, rename(step, "value.1", "volue.1"),
			"the graph has no input value.1"},
		{"a cache that the step does not take", prefixName, rename(prefix, "value.1", "volue.1"),
			"the graph has no input volue.1"},
		{"no next x", stepName, rename(step, "x_next", "x_text"), "the graph has no output x_next"},
		{"no control", prefixName, rename(prefix, "sigma_d", "sigma_e"), "the graph has no input sigma_d"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := copyBundle(t, splitDir, nil)
			replaceFile(t, dir, tt.file, tt.graph)
			b := rttest.Must(LoadBundle(dir))(t)
			rttest.FailsAs(t, rttest.Err(b.Open(Options{})), ErrBundle, tt.want)
		})
	}
	changed := copyBundle(t, splitDir, nil)
	rttest.WriteFile(t, changed, stepName, step[1:])
	// LoadBundle with a changed step.onnx
	rttest.FailsAs(t, rttest.Err(LoadBundle(changed)), ErrBundle, "step.onnx is not the file that was exported")
}

func BenchmarkForms(b *testing.B) {
	for _, dir := range []string{pi05Dir, splitDir} {
		m := openModel(b, dir, Options{MaxBatch: 4})
		for i := range 4 {
			fillToy(m, i, uint64(i))
		}
		for _, batch := range []int{1, 4} {
			b.Run(filepath.Base(dir)+"/batch="+strconv.Itoa(batch), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					rttest.Do(b, m.Run(batch))
				}
			})
		}
	}
}

// Goal: Open refuses a policy in two graphs if the prefix passes too much memory to the steps, even if the size
// does not fit into an int.
func TestCarriedSizesAreBounded(t *testing.T) {
	x := port{carriedX, float32s, []int64{1}}
	for _, shape := range [][]int64{{-1, 1<<30 + 1}, {-1, 1 << 30, 1 << 32}, {-1, 1 << 30, 1 << 31}} {
		_, err := carriedPorts(x, []ort.InputOutputInfo{{
			Name:         "kv",
			OrtValueType: ort.ONNXTypeTensor,
			DataType:     ort.TensorElementDataTypeFloat,
			Dimensions:   shape,
		}})
		rttest.Fails(t, err, "more than 4294967296 bytes")
	}
}
