package policy

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	ort "github.com/yalue/onnxruntime_go"
)

// looping returns a pass of testdata/loop.onnx, with its input n and its output y. The graph returns x after n turns of
// a loop.
func looping(t *testing.T) (p pass, n, y []byte) {
	t.Helper()
	needRuntime(t)
	options := rttest.Must(Options{IntraThreads: 1}.session())(t)
	defer options.Destroy()
	s := rttest.Must(newSession("testdata/loop.onnx", []string{"n", "x"}, []string{"y"}, options))(t)
	run := rttest.Must(ort.NewRunOptions())(t)
	tensor := func(bytes int, kind elementType) ([]byte, ort.Value) {
		memory := rttest.Must(reserve(bytes))(t)
		value := rttest.Must(ort.NewCustomDataTensor(ort.NewShape(1), memory, ort.TensorElementDataType(kind)))(t)
		t.Cleanup(func() { value.Destroy(); release(memory) })
		return memory, value
	}
	n, turns := tensor(8, int64s)
	x, from := tensor(4, float32s)
	y, to := tensor(4, float32s)
	binary.NativeEndian.PutUint32(x, math.Float32bits(2.5))
	t.Cleanup(func() { s.close(); run.Destroy() })
	return s.pass([]ort.Value{turns, from}, []ort.Value{to}, run), n, y
}

// A pass reads and writes the memory of its tensors and allocates nothing.
func TestRunAllocatesNothing(t *testing.T) {
	p, n, y := looping(t)
	binary.NativeEndian.PutUint64(n, 3)
	rttest.NoAllocs(t, "a run allocates %v times, want 0", 100, func() {
		rttest.Do(t, p.run())
	})
	rttest.Want(t, math.Float32frombits(binary.NativeEndian.Uint32(y)), 2.5, "the output")
}

// A run that would take years ends when another goroutine calls Terminate. All later runs end, too.
func TestTerminateEndsARun(t *testing.T) {
	p, n, _ := looping(t)
	binary.NativeEndian.PutUint64(n, math.MaxInt64)
	ended := make(chan error, 1)
	go func() { ended <- p.run() }()
	select {
	case err := <-ended:
		t.Fatalf("the run ends by itself: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	rttest.Do(t, p.options.Terminate())
	select {
	case err := <-ended:
		rttest.Fails(t, err, "terminate")
	case <-time.After(10 * time.Second):
		t.Fatal("the run does not end")
	}
	binary.NativeEndian.PutUint64(n, 1)
	rttest.Fails(t, p.run())
}

// The option that returns a run's memory reaches ONNX Runtime: a run with an unknown device in this option fails.
func TestSetRunReachesTheLibrary(t *testing.T) {
	const shrink = "memory.enable_memory_arena_shrinkage"
	p, n, _ := looping(t)
	binary.NativeEndian.PutUint64(n, 1)
	rttest.Do(t, setRun(p.options, shrink, "cpu:0"))
	if err := p.run(); err != nil {
		t.Errorf("a run that returns its memory = %v", err)
	}
	rttest.Do(t, setRun(p.options, shrink, "abacus:0"))
	rttest.Fails(t, p.run(), "abacus") // ONNX Runtime frees the memory of this unknown device after the run
	rttest.Fails(t, setRun(p.options, "", ""))
}

// Passes of one session share only the graph: a pass never reads or writes the tensors of another pass.
func TestPassesOfOneSession(t *testing.T) {
	m := openModel(t, stillDir, Options{MaxBatch: 2, Buffers: 2})
	for i := range 4 {
		m.State(i)[0] = float32(i + 1)
		m.SetControls(i, Controls{})
	}
	for _, k := range []int{1, 0} {
		rttest.Do(t, m.RunBuffer(k, 2))
	}
	got := []float32{m.ChunkRobot(0)[0], m.ChunkRobot(1)[0], m.ChunkRobot(2)[0], m.ChunkRobot(3)[0]}
	if !slices.Equal(got, []float32{1, 2, 3, 4}) {
		t.Errorf("rows answer %v, want their own states 1 to 4", got)
	}
}
