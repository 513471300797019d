package policy

import (
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/internal/userfile"
	"github.com/edge-rt/edge-rt/policy/safetensors"
	"github.com/edge-rt/edge-rt/rt"
)

// A golden set's tensors are named in/<input> and out/<output>.
const (
	goldenIn  = "in/"
	goldenOut = "out/"

	maxGoldenBytes = 1 << 30
)

// goldenSet is one recorded batch: inputs and outputs.
type goldenSet struct {
	name    string
	rows    int
	inputs  map[string][]byte // values of all rows, in the tensors' memory layout
	outputs map[string][]float32
}

// replayGolden runs every golden set, row by row and in the largest batch that fits,
// and compares the outputs with the recorded ones.
func (m *Model) replayGolden() error {
	m.batchInvariant = true
	for _, name := range m.bundle.golden {
		set, err := m.bundle.loadGolden(name)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrBundle, filepath.Join(m.bundle.Dir, name), err)
		}
		alone, err := m.replay(set, 1)
		if err != nil {
			return err
		}
		if batch := min(set.rows, m.opt.MaxBatch); batch > 1 {
			together, err := m.replay(set, batch)
			if err != nil {
				return err
			}
			m.batchInvariant = m.batchInvariant && slices.Equal(alone, together)
		}
	}
	return nil
}

// replay runs a set in pieces of at most batch rows, compares the outputs, and returns chunk_robot of all rows.
func (m *Model) replay(set *goldenSet, batch int) ([]float32, error) {
	var robot []float32
	for first := 0; first < set.rows; first += batch {
		n := min(batch, set.rows-first)
		for name, data := range set.inputs {
			size := len(data) / set.rows
			copy(m.rows[name], data[first*size:(first+n)*size])
		}
		err := m.timed(0, n)
		if err != nil && m.device.Kind != deviceCPU {
			return nil, m.device.failure(err)
		} else if err != nil {
			return nil, fmt.Errorf("%w: %s, rows %d to %d: %w", ErrGolden, set.name, first, first+n-1, err)
		}
		for i := range n {
			if err := m.compare(set, outputModel, first+i, m.ChunkModel(i), m.bundle.GoldenTol.ChunkModel); err != nil {
				return nil, err
			}
			if err := m.compare(set, outputRobot, first+i, m.ChunkRobot(i), m.bundle.GoldenTol.ChunkRobot); err != nil {
				return nil, err
			}
			robot = append(robot, m.ChunkRobot(i)...)
		}
	}
	return robot, nil
}

// Test is one inference of the self-test at load.
type Test struct {
	Rows int
	Took time.Duration
}

// timed calls RunBuffer and measures its duration. m.tests keeps the shortest duration for each number of rows, because
// a process's first run also loads the weights from the disk.
func (m *Model) timed(buffer, rows int) error {
	clock := rt.KernelClock()
	begun := clock.Now()
	err := m.RunBuffer(buffer, rows)
	took := clock.Now().Sub(begun)
	if m.opt.Progress != nil {
		m.opt.Progress(Test{rows, took})
	}
	i := slices.IndexFunc(m.tests, func(t Test) bool { return t.Rows == rows })
	if i < 0 {
		m.tests = append(m.tests, Test{rows, took})
		return err
	}
	m.tests[i].Took = min(m.tests[i].Took, took)
	return err
}

// Tests returns the shortest duration of an inference of the self-test, for each number of rows that it ran.
func (m *Model) Tests() []Test { return m.tests }

// compare returns an error for the value that differs most from its recorded value. NaN always differs.
func (m *Model) compare(set *goldenSet, output string, r int, got []float32, tolerance float64) error {
	want := row(set.outputs[output], r, len(got))
	worst, off := 0, 0.0
	for i := range got {
		if d := math.Abs(float64(got[i]) - float64(want[i])); d > off || math.IsNaN(d) {
			worst, off = i, d
		}
		if math.IsNaN(off) {
			break
		}
	}
	if off <= tolerance {
		return nil
	}
	dim := m.bundle.ActionDim
	version, _ := RuntimeVersion()
	return fmt.Errorf("%w: %s: %s[%d, %d, %d] (%s) = %v, want %v: off by %.3g, tolerance %.3g (ONNX Runtime %s on "+
		"%s/%s); another library version or machine computes too differently, or the graph is not the recorded one: "+
		"export the bundle again",
		ErrGolden, set.name, output, r, worst/dim, worst%dim, m.bundle.ActionNames[worst%dim], got[worst], want[worst],
		off, tolerance, version, runtime.GOOS, runtime.GOARCH)
}

// loadGolden reads a golden set and checks it against the bundle's ports.
func (b *Bundle) loadGolden(name string) (*goldenSet, error) {
	file, err := userfile.Read(filepath.Join(b.Dir, filepath.FromSlash(name)), maxGoldenBytes)
	if err != nil {
		return nil, err
	}
	_, tensors, err := safetensors.Parse(file)
	if err != nil {
		return nil, err
	}
	set := &goldenSet{name: name, inputs: map[string][]byte{}, outputs: map[string][]float32{}}
	for _, p := range b.inputs() {
		t, err := set.take(tensors, goldenIn, p)
		if err != nil {
			return nil, err
		}
		set.inputs[p.name] = t.Data
	}
	for _, p := range b.outputs() {
		t, err := set.take(tensors, goldenOut, p)
		if err != nil {
			return nil, err
		}
		set.outputs[p.name] = safetensors.Values[float32](t)
	}
	return set, nil
}

// take returns a port's tensor and checks that it has the port's type and shape, and as many rows as the set. The first
// tensor defines the set's number of rows.
func (s *goldenSet) take(tensors map[string]safetensors.Tensor, side string, p port) (safetensors.Tensor, error) {
	t, ok := tensors[side+p.name]
	if !ok {
		return safetensors.Tensor{}, fmt.Errorf("no tensor %s%s", side, p.name)
	}
	if len(t.Shape) > 0 && s.rows == 0 {
		s.rows = int(t.Shape[0])
	}
	want := append([]int64{int64(s.rows)}, p.shape...)
	if s.rows < 1 || t.DType != p.dtype() || !slices.Equal(t.Shape, want) {
		return safetensors.Tensor{}, fmt.Errorf("%s%s is %s %v, want %s %v", side, p.name, t.DType, t.Shape, p.dtype(),
			want)
	}
	return t, nil
}
