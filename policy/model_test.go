package policy

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// needRuntime skips a test on a machine without ONNX Runtime.
func needRuntime(tb testing.TB) {
	tb.Helper()
	if err := OpenRuntime("", "cpu"); errors.Is(err, ErrNoRuntime) {
		tb.Skipf("needs ONNX Runtime: %v", err)
	} else if err != nil {
		tb.Fatal(err)
	}
}

// openModel opens the bundle in dir and closes it when the test ends.
func openModel(tb testing.TB, dir string, opt Options) *Model {
	tb.Helper()
	needRuntime(tb)
	b := rttest.Must(LoadBundle(dir))(tb)
	m := rttest.Must(b.Open(opt))(tb)
	tb.Cleanup(func() {
		if err := m.Close(); err != nil {
			tb.Error(err)
		}
	})
	return m
}

// fillRow fills row i of the demo policy with a plausible request that depends on seed.
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
	rttest.Do(t, m.Run(3))
	for i := range 3 {
		for k, v := range m.ChunkRobot(i) {
			if want := float32(10*i + k%6); v != want {
				t.Fatalf("ChunkRobot(%d)[%d] = %v, want %v", i, k, v, want)
			}
		}
	}
}

// The chunk begins with the rows of the committed prefix. The rows after the prefix differ.
func TestStillModelKeepsTheCommittedPrefix(t *testing.T) {
	m := openModel(t, stillDir, Options{})
	for k := range m.Prefix(0) {
		m.Prefix(0)[k] = 5
	}
	clear(m.State(0))
	m.SetControls(0, m.Bundle().Condition(&Conditioning{}, 30, 8, 0))
	rttest.Do(t, m.Run(1))
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

// If each batch size has its own session, a batch between two sizes still gives the same chunks.
func TestSessionPerBatchSize(t *testing.T) {
	sized := openModel(t, demoDir, Options{MaxBatch: 5, perSize: true})
	one := openModel(t, demoDir, Options{MaxBatch: 5})
	for _, m := range []*Model{sized, one} {
		for i := range 5 {
			fillRow(m, i, uint64(i))
			m.SetControls(i, Controls{})
		}
	}
	for batch, want := range map[int]int{1: 1, 2: 2, 3: 4, 4: 4, 5: 5} {
		if s, rows := sized.sessionOf(batch); rows != want || s != sized.sized[want] || s == nil {
			t.Errorf("a batch of %d runs in the session of %d, want %d", batch, rows, want)
		}
		rttest.Do(t, errors.Join(sized.Run(batch), one.Run(batch)))
		for i := range batch {
			if !slices.Equal(sized.ChunkRobot(i), one.ChunkRobot(i)) {
				t.Errorf("row %d of a batch of %d differs", i, batch)
			}
		}
	}
}

func TestBatchLeavesOtherRowsAlone(t *testing.T) {
	m := openModel(t, stillDir, Options{MaxBatch: 2, Buffers: 2})
	for i := range 4 {
		m.State(i)[0] = float32(i + 1)
		m.SetControls(i, Controls{})
	}
	rttest.Do(t, m.Run(2))
	m.State(0)[0] = 100
	rttest.Do(t, m.RunBuffer(1, 1))
	for i, want := range []float32{1, 2, 3} {
		rttest.Want(t, m.ChunkRobot(i)[0], want, "ChunkRobot(%d)[0]", i)
	}
	if got := m.ChunkRobot(3)[0]; got == 4 {
		t.Errorf("ChunkRobot(3)[0] = 4, but row 3 did not run")
	}
}

// The same request gives the same chunk in each row.
func TestDemoModelReadsTheRowsOfItsBuffer(t *testing.T) {
	m := openModel(t, demoDir, Options{MaxBatch: 2, Buffers: 2})
	for i, seed := range []uint64{1, 2, 3, 1} {
		fillRow(m, i, seed)
		m.SetControls(i, Controls{Beta: 10})
	}
	rttest.Do(t, errors.Join(m.Run(2), m.RunBuffer(1, 2)))
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
	if !m.batchInvariant {
		t.Errorf("BatchInvariant() = false on %s, but the bundle claims it", runtime.GOARCH)
	}
}

// With a trained prefix the chunk repeats the prefix as exactly as float32 normalisation allows. With guidance a chunk
// is nearer to its prefix than without conditioning.
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
		m.SetControls(i, Controls{PrefixLen: rows, Delay: delay, PrefixEnd: end, Mode: mode, Beta: 10})
	}
	rttest.Do(t, m.Run(3))
	distance := func(i, first, last int) (worst float64) {
		for k := first * 6; k < last*6; k++ {
			worst = max(worst, math.Abs(float64(m.ChunkRobot(i)[k]-m.Prefix(i)[k])))
		}
		return worst
	}
	free := distance(0, 0, delay)
	guided := distance(1, 0, delay)
	trained := distance(2, 0, delay)
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

// The schedule and the deviation are inputs of each sample. In one batch, "zeros" leaves the tail free, "ones" holds
// all of it, and a smaller deviation holds the tail closer.
func TestDemoModelTakesASchedulePerSample(t *testing.T) {
	const rows, delay, end = 30, 4, 24
	c := Controls{PrefixLen: rows, Delay: delay, PrefixEnd: end, Mode: ModeGuided, Beta: 10}
	controls := []Controls{c, c, c, c, c}
	controls[1].Schedule = scheduleZeros
	controls[2].Schedule = scheduleOnes
	controls[3].Schedule = scheduleExp
	controls[4].SigmaD = 0.2
	m := openModel(t, demoDir, Options{MaxBatch: len(controls)})
	if !m.Bundle().scheduled() {
		t.Fatal("the demo bundle takes no schedule")
	}
	for i, c := range controls {
		fillRow(m, i, 1)
		for k := range m.Prefix(i) {
			m.Prefix(i)[k] = m.State(i)[k%6]
		}
		m.SetControls(i, c)
	}
	rttest.Do(t, m.Run(len(controls)))
	tail := func(i int) (sum float64) { // mean distance of the rows that only the schedule holds near the prefix
		for k := (delay + 1) * 6; k < end*6; k++ {
			sum += math.Abs(float64(m.ChunkRobot(i)[k] - m.Prefix(i)[k]))
		}
		return sum / float64((end-delay-1)*6)
	}
	linear := tail(0)
	zeros := tail(1)
	ones := tail(2)
	exp := tail(3)
	close := tail(4)
	if !(ones < linear && linear < exp && exp < zeros && close < linear) {
		t.Errorf("distance of the tail: ones %.3f, linear %.3f, exp %.3f, zeros %.3f, linear with sigma 0.2 %.3f; "+
			"want them in this order, the last below linear",
			ones, linear, exp, zeros, close)
	}
}

// A beta beyond the number of Euler steps overshoots; the model must clamp it.
func TestSetControlsClampsBeta(t *testing.T) {
	m := openModel(t, demoDir, Options{})
	for _, tt := range []struct{ beta, want float32 }{{100, 10}, {10, 10}, {2.5, 2.5}, {-1, 0}} {
		m.SetControls(0, Controls{Beta: tt.beta})
		rttest.Want(t, m.beta[0], tt.want, "beta %v in a graph of 10 steps", tt.beta)
	}
}

func TestSameRequestGivesTheSameBytes(t *testing.T) {
	m := openModel(t, demoDir, Options{MaxBatch: 2})
	fillRow(m, 0, 1)
	m.SetControls(0, Controls{Beta: 10})
	rttest.Do(t, m.Run(1))
	first := slices.Clone(m.ChunkRobot(0))
	fillRow(m, 0, 2)
	rttest.Do(t, m.Run(2))
	if slices.Equal(first, m.ChunkRobot(0)) {
		t.Error("another request gives the same chunk")
	}
	fillRow(m, 0, 1)
	rttest.Do(t, m.Run(1))
	if !slices.Equal(first, m.ChunkRobot(0)) {
		t.Error("the same request gives another chunk")
	}
}

func TestRowsEndWhereTheNextBegins(t *testing.T) {
	m := openModel(t, stillDir, Options{MaxBatch: 2})
	for name, r := range map[string][]float32{"State": m.State(0), "Noise": m.Noise(0), "Prefix": m.Prefix(0),
		"ChunkRobot": m.ChunkRobot(0)} {
		rttest.Want(t, len(r), cap(r), "cap(%s(0))", name)
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
		rttest.Do(t, m.Run(1))
		if m.Finite(0) {
			t.Errorf("Finite(0) = true with %v in the chunk", v)
		}
	}
}

// No goroutine of the process may allocate during a run, so the test counts the allocations of the whole process.
func TestRunNoAlloc(t *testing.T) {
	m := openModel(t, demoDir, Options{MaxBatch: 2, Buffers: 2})
	request := func() {
		for i := range 4 {
			fillRow(m, i, uint64(i))
			m.SetControls(i, m.Bundle().Condition(&Conditioning{}, 0, 8, 0))
		}
		rttest.Do(t, m.Run(2))
		if err := m.RunBuffer(1, 1); err != nil || !m.Finite(0) || m.ChunkModel(0)[0] == m.ChunkRobot(0)[0] {
			t.Fatal("no chunk:", err)
		}
	}
	rttest.NoAllocs(t, "a request allocates %v times, want 0", 20, request)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 50 {
		request()
	}
	runtime.ReadMemStats(&after)
	// ReadMemStats itself may allocate, and so may the Go runtime when it starts a thread.
	if n := after.Mallocs - before.Mallocs; n > 25 {
		t.Errorf("50 requests allocate %d objects in the process, want 0", n)
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
				rttest.Do(b, m.Run(batch))
			}
		})
	}
}

// pipelined computes requests 0 to n-1 with two buffers. A goroutine fills one buffer while the other runs, and reads a
// buffer's chunks before it fills the buffer again.
func pipelined(t *testing.T, m *Model, n int) (chunks [][]float32) {
	t.Helper()
	filled, ran := make(chan int, 1), make(chan int, 1)
	failed := make(chan error, 1)
	go func() {
		defer close(ran)
		for k := range filled {
			if err := m.RunBuffer(k, m.MaxBatch()); err != nil {
				failed <- err
				return
			}
			ran <- k
		}
	}()
	read := func(k int) {
		for i := range m.MaxBatch() {
			chunks = append(chunks, slices.Clone(m.ChunkRobot(k*m.MaxBatch()+i)))
		}
	}
	for request := range n {
		k := request % 2
		for i := range m.MaxBatch() {
			fillRow(m, k*m.MaxBatch()+i, uint64(request*m.MaxBatch()+i))
			m.SetControls(k*m.MaxBatch()+i, Controls{Beta: 10})
		}
		if request > 0 { // read the other buffer, which ran while this one was filled
			done, ok := <-ran
			if !ok {
				t.Fatal(<-failed)
			}
			filled <- k
			read(done)
			continue
		}
		filled <- k
	}
	done, ok := <-ran
	if !ok {
		t.Fatal(<-failed)
	}
	close(filled)
	read(done)
	return chunks
}

// A goroutine fills one of two buffers while the other runs. Every chunk equals the chunk that its request gets alone.
func TestOneBufferIsFilledWhileTheOtherRuns(t *testing.T) {
	const requests, batch = 12, 2
	chunks := pipelined(t, openModel(t, demoDir, Options{MaxBatch: batch, Buffers: 2}), requests)
	checkAlone(t, chunks, requests*batch)
}

// checkAlone compares the chunks that pipelined returned with the chunks of a model that runs one request at a time.
func checkAlone(t *testing.T, chunks [][]float32, want int) {
	t.Helper()
	if len(chunks) != want {
		t.Fatalf("%d chunks, want %d", len(chunks), want)
	}
	alone := openModel(t, demoDir, Options{})
	for i, chunk := range chunks {
		fillRow(alone, 0, uint64(i))
		alone.SetControls(0, Controls{Beta: 10})
		rttest.Do(t, alone.Run(1))
		if !slices.Equal(chunk, alone.ChunkRobot(0)) {
			t.Errorf("request %d has another chunk than it gets alone", i)
		}
	}
}

// Two buffers take twice the memory of one buffer, and TensorBytes counts all of it.
func TestTensorBytes(t *testing.T) {
	// The values are state, noise, prefix, both chunks, beta and sigma_d.
	const picture, numbers = 120 * 160 * 3, 4 * (6 + 50*6 + 50*6 + 2*50*6 + 2)
	const counts = 8 * 5 // prefix_len, delay, prefix_end, rtc_mode, schedule
	for _, buffers := range []int{1, 2} {
		m := openModel(t, demoDir, Options{MaxBatch: 3, Buffers: buffers})
		want := int64(3 * buffers * (picture + numbers + counts))
		if got := m.TensorBytes(); got != want || m.Buffers() != buffers {
			t.Errorf("TensorBytes() of %d buffers = %d, want %d", m.Buffers(), got, want)
		}
	}
}
