package policy

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// needRuntime skips a test on a machine without ONNX Runtime.
func needRuntime(tb testing.TB) {
	tb.Helper()
	if err := OpenRuntime(""); errors.Is(err, ErrNoRuntime) {
		tb.Skipf("needs ONNX Runtime: %v", err)
	} else if err != nil {
		tb.Fatal(err)
	}
}

// openModel opens the bundle in dir; the test closes it.
func openModel(tb testing.TB, dir string, opt Options) *Model {
	tb.Helper()
	needRuntime(tb)
	b, err := LoadBundle(dir)
	if err != nil {
		tb.Fatal(err)
	}
	m, err := b.Open(opt)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := m.Close(); err != nil {
			tb.Error(err)
		}
	})
	return m
}

// fillRow gives row i of the demo policy a plausible request that depends on seed.
func fillRow(m *Model, i int, seed uint64) {
	pic := m.Image(i, 0)
	for k := range pic {
		pic[k] = byte(uint64(k)*(seed+7)>>3) | 128
	}
	copy(m.State(i), []float32{35 + float32(seed), -30, 90, 9, -35, 10})
	FillNoise(m.Noise(i), NoiseKey(seed), 1)
}

func TestStillModelAnswersThePresentPosition(t *testing.T) {
	m := openModel(t, stillDir, Options{MaxBatch: 3})
	for i := range 3 {
		for j := range m.State(i) {
			m.State(i)[j] = float32(10*i + j)
		}
		m.SetControls(i, Controls{})
	}
	if err := m.Run(3); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		for k, v := range m.ChunkRobot(i) {
			if want := float32(10*i + k%6); v != want {
				t.Fatalf("ChunkRobot(%d)[%d] = %v, want %v", i, k, v, want)
			}
		}
	}
}

// A committed prefix comes back row for row; the rows behind it do not.
func TestStillModelKeepsTheCommittedPrefix(t *testing.T) {
	m := openModel(t, stillDir, Options{})
	for k := range m.Prefix(0) {
		m.Prefix(0)[k] = 5
	}
	clear(m.State(0))
	m.SetControls(0, m.Bundle().Condition(30, 8, 0))
	if err := m.Run(1); err != nil {
		t.Fatal(err)
	}
	for k, v := range m.ChunkRobot(0) {
		want := float32(0)
		if k < 8*6 {
			want = 5
		}
		if v != want {
			t.Fatalf("ChunkRobot(0)[%d] = %v, want %v", k, v, want)
		}
	}
}

func TestBatchLeavesOtherRowsAlone(t *testing.T) {
	m := openModel(t, stillDir, Options{MaxBatch: 2, Buffers: 2})
	for i := range 4 {
		m.State(i)[0] = float32(i + 1)
		m.SetControls(i, Controls{})
	}
	if err := m.Run(2); err != nil {
		t.Fatal(err)
	}
	m.State(0)[0] = 100
	if err := m.RunBuffer(1, 1); err != nil {
		t.Fatal(err)
	}
	for i, want := range []float32{1, 2, 3} {
		if got := m.ChunkRobot(i)[0]; got != want {
			t.Errorf("ChunkRobot(%d)[0] = %v, want %v", i, got, want)
		}
	}
	if got := m.ChunkRobot(3)[0]; got == 4 {
		t.Errorf("ChunkRobot(3)[0] = 4, but row 3 did not run")
	}
}

// The same request gives the same chunk wherever its row lies.
func TestDemoModelReadsTheRowsOfItsBuffer(t *testing.T) {
	m := openModel(t, demoDir, Options{MaxBatch: 2, Buffers: 2})
	for i, seed := range []uint64{1, 2, 3, 1} {
		fillRow(m, i, seed)
		m.SetControls(i, Controls{Beta: 10})
	}
	if err := errors.Join(m.Run(2), m.RunBuffer(1, 2)); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(m.ChunkRobot(0), m.ChunkRobot(3)) {
		t.Error("the same request gives another chunk in the second buffer")
	}
	if slices.Equal(m.ChunkRobot(0), m.ChunkRobot(2)) {
		t.Error("another request gives the same chunk in the second buffer")
	}
}

func TestDemoModelIsBatchInvariant(t *testing.T) {
	m := openModel(t, demoDir, Options{MaxBatch: 4})
	if !m.Bundle().Meta.BatchInvariant {
		t.Skip("the bundle does not claim it")
	}
	if !m.BatchInvariant() {
		t.Errorf("BatchInvariant() = false on %s, but the bundle claims it", runtime.GOARCH)
	}
}

// The trained prefix is returned to the last bit that its normalisation allows;
// guidance brings a chunk nearer to its prefix than no conditioning does.
func TestDemoModelFollowsItsPrefix(t *testing.T) {
	m := openModel(t, demoDir, Options{MaxBatch: 3})
	for i := range 3 {
		fillRow(m, i, 1)
		for k := range m.Prefix(i) {
			m.Prefix(i)[k] = m.State(i)[k%6]
		}
	}
	const rows, delay, end = 30, 8, 24
	for i, mode := range []Mode{ModeFree, ModeGuided, ModeTrained} {
		m.SetControls(i, Controls{rows, delay, end, mode, 10})
	}
	if err := m.Run(3); err != nil {
		t.Fatal(err)
	}
	distance := func(i, first, last int) (worst float64) {
		for k := first * 6; k < last*6; k++ {
			worst = max(worst, math.Abs(float64(m.ChunkRobot(i)[k]-m.Prefix(i)[k])))
		}
		return worst
	}
	free, guided, trained := distance(0, 0, delay), distance(1, 0, delay), distance(2, 0, delay)
	if trained > 1e-3 {
		t.Errorf("trained prefix is off by %v degrees, want at most 0.001", trained)
	}
	if guided > free/2 {
		t.Errorf("guided rows are %v degrees from the prefix, free ones %v: want less than half", guided, free)
	}
	for i := range 3 {
		if !m.Finite(i) {
			t.Errorf("Finite(%d) = false, want true", i)
		}
	}
}

// Beta beyond the number of Euler steps overshoots; the model must not pass it on.
func TestSetControlsClampsBeta(t *testing.T) {
	m := openModel(t, demoDir, Options{})
	for _, tt := range []struct{ beta, want float32 }{{100, 10}, {10, 10}, {2.5, 2.5}, {-1, 0}} {
		m.SetControls(0, Controls{Beta: tt.beta})
		if m.beta[0] != tt.want {
			t.Errorf("SetControls with beta %v passes %v to a graph of 10 steps, want %v", tt.beta, m.beta[0], tt.want)
		}
	}
}

func TestSameRequestGivesTheSameBytes(t *testing.T) {
	m := openModel(t, demoDir, Options{MaxBatch: 2})
	fillRow(m, 0, 1)
	m.SetControls(0, Controls{Beta: 10})
	if err := m.Run(1); err != nil {
		t.Fatal(err)
	}
	first := slices.Clone(m.ChunkRobot(0))
	fillRow(m, 0, 2)
	if err := m.Run(2); err != nil {
		t.Fatal(err)
	}
	if slices.Equal(first, m.ChunkRobot(0)) {
		t.Error("another request gives the same chunk")
	}
	fillRow(m, 0, 1)
	if err := m.Run(1); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(first, m.ChunkRobot(0)) {
		t.Error("the same request gives another chunk")
	}
}

func TestRowsEndWhereTheNextBegins(t *testing.T) {
	m := openModel(t, stillDir, Options{MaxBatch: 2})
	for name, r := range map[string][]float32{"State": m.State(0), "Noise": m.Noise(0), "Prefix": m.Prefix(0), "ChunkRobot": m.ChunkRobot(0)} {
		if len(r) != cap(r) {
			t.Errorf("cap(%s(0)) = %d, want its length %d: an append would overwrite row 1", name, cap(r), len(r))
		}
	}
	if pic := m.Image(0, 0); len(pic) != 120*160*3 || cap(pic) != len(pic) {
		t.Errorf("Image(0, 0) has length %d and capacity %d, want 57600", len(pic), cap(pic))
	}
}

func TestFiniteSeesNaNAndInfinity(t *testing.T) {
	m := openModel(t, stillDir, Options{})
	m.SetControls(0, Controls{})
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		m.State(0)[5] = float32(v)
		if err := m.Run(1); err != nil {
			t.Fatal(err)
		}
		if m.Finite(0) {
			t.Errorf("Finite(0) = true with %v in the chunk", v)
		}
	}
}

// The claim is about the process, not about this goroutine: count all of it.
func TestRunNoAlloc(t *testing.T) {
	m := openModel(t, demoDir, Options{MaxBatch: 2, Buffers: 2})
	request := func() {
		for i := range 4 {
			fillRow(m, i, uint64(i))
			m.SetControls(i, m.Bundle().Condition(0, 8, 0))
		}
		if err := m.Run(2); err != nil {
			t.Fatal(err)
		}
		if err := m.RunBuffer(1, 1); err != nil || !m.Finite(0) || m.ChunkModel(0)[0] == m.ChunkRobot(0)[0] {
			t.Fatal("no chunk:", err)
		}
	}
	if n := testing.AllocsPerRun(20, request); n != 0 {
		t.Errorf("a request allocates %v times, want 0", n)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 50 {
		request()
	}
	runtime.ReadMemStats(&after)
	if n := after.Mallocs - before.Mallocs; n > 2 { // ReadMemStats itself may
		t.Errorf("50 requests allocate %d objects in the process, want 0", n)
	}
}

func TestOpenRefusesGraphsThatDoNotFit(t *testing.T) {
	needRuntime(t)
	graph, err := os.ReadFile(filepath.Join(stillDir, graphName))
	if err != nil {
		t.Fatal(err)
	}
	rename := func(old, new string) []byte {
		if len(old) != len(new) || !bytes.Contains(graph, []byte(old)) {
			t.Fatalf("cannot rename %s to %s in the graph", old, new)
		}
		return bytes.ReplaceAll(graph, []byte(old), []byte(new))
	}
	tests := []struct {
		name  string
		graph []byte
		want  string
	}{
		{"no chunk output", rename("chunk_robot", "chunk_rabot"), "the graph has no output chunk_robot"},
		{"no state input", rename("state", "stata"), "the graph has no input state"},
		{"another camera", rename("image.top", "image.tip"), "the graph has no input image.top"},
		{"an input too many", rename("image.top", "image.tip"), "the graph has an input image.tip"},
		{"batch of one only", bytes.ReplaceAll(graph, []byte{10, 3, 18, 1, 'B'}, []byte{10, 3, 8, 0x81, 0}), "has a batch of 1"},
		{"torn", graph[:len(graph)/2], graphName},
		{"empty", nil, graphName},
		{"text", []byte("this is not a graph"), graphName},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := copyBundle(t, stillDir, nil)
			replaceFile(t, dir, graphName, tt.graph)
			b, err := LoadBundle(dir)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.Open(Options{}); !errors.Is(err, ErrBundle) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Open = %v, want ErrBundle with %q", err, tt.want)
			}
		})
	}
}

func TestOpenRefusesAGraphOfOtherSizes(t *testing.T) {
	needRuntime(t)
	for _, tt := range []struct {
		name string
		edit func(map[string]any)
		want string
	}{
		{"camera size", func(m map[string]any) { m["cameras"] = []Camera{{"top", 60, 80}} }, "want image.top"},
		{"rows", func(m map[string]any) { m["chunk_size"], m["n_action_steps"] = 49, 49 }, "want chunk_robot"},
		{"noise", func(m map[string]any) { m["noise_dim"] = 32 }, "want noise"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, err := LoadBundle(copyBundle(t, stillDir, tt.edit))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.Open(Options{}); !errors.Is(err, ErrBundle) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Open = %v, want ErrBundle with %q", err, tt.want)
			}
		})
	}
}

// A server that is asked again and again to open a broken bundle must not grow.
func TestRefusedBundlesLeaveNothingBehind(t *testing.T) {
	needQuietMemory(t)
	dir := copyBundle(t, demoDir, nil)
	graph, err := os.ReadFile(filepath.Join(dir, graphName))
	if err != nil {
		t.Fatal(err)
	}
	replaceFile(t, dir, graphName, graph[:len(graph)-1000])
	b, err := LoadBundle(dir)
	if err != nil {
		t.Fatal(err)
	}
	refuse := func(times int) {
		for range times {
			if m, err := b.Open(Options{MaxBatch: 8}); err == nil {
				m.Close()
				t.Fatal("Open accepts a torn graph")
			}
		}
	}
	refuse(20)
	before := residentKB(t)
	refuse(100)
	// 100 leaked graphs would be 84 MB, 100 leaked tensor sets 50 MB.
	if grown := residentKB(t) - before; grown > 16*1024 {
		t.Errorf("100 refused bundles grow the process by %d kB, want less than 16 MB", grown)
	}
}

// Every tensor and thread of a closed model is gone.
func TestCloseReturnsMemoryAndThreads(t *testing.T) {
	needQuietMemory(t)
	b, err := LoadBundle(stillDir)
	if err != nil {
		t.Fatal(err)
	}
	cycle := func(times int) {
		for range times {
			m, err := b.Open(Options{MaxBatch: 16, IntraThreads: 3})
			if err == nil {
				err = m.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	cycle(5)
	memory, threads := residentKB(t), threadCount(t)
	cycle(40)
	// 40 leaked tensor sets would be 41 MB, 40 leaked sessions 80 threads.
	if grown := residentKB(t) - memory; grown > 16*1024 {
		t.Errorf("40 models grow the process by %d kB, want less than 16 MB", grown)
	}
	if grown := threadCount(t) - threads; grown > 20 { // the Go runtime may start some
		t.Errorf("40 models leave %d threads, want none", grown)
	}
}

// needQuietMemory skips tests of what the process holds where that is not its own
// doing: the race detector keeps shadow memory.
func needQuietMemory(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("measures the whole process: not with -short")
	}
	needRuntime(t)
}

func threadCount(t *testing.T) int {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Skipf("no /proc here: %v", err)
	}
	return len(tasks)
}

func residentKB(t *testing.T) int {
	t.Helper()
	runtime.GC()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skipf("no /proc here: %v", err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	kb, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kb
}

func TestOpenRefusesWishesBeyondTheBounds(t *testing.T) {
	needRuntime(t)
	b, err := LoadBundle(stillDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, opt := range []Options{{MaxBatch: MaxBatchLimit + 1}, {Buffers: MaxBuffersLimit + 1}} {
		if m, err := b.Open(opt); err == nil {
			m.Close()
			t.Errorf("Open(%+v) succeeds, want an error", opt)
		}
	}
}

func BenchmarkRun(b *testing.B) {
	m := openModel(b, demoDir, Options{MaxBatch: 8})
	for i := range 8 {
		fillRow(m, i, uint64(i))
		m.SetControls(i, Controls{Beta: 10})
	}
	for _, batch := range []int{1, 2, 4, 8} {
		b.Run("batch="+strconv.Itoa(batch), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := m.Run(batch); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
