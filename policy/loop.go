package policy

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"unsafe"

	"github.com/edge-rt/edge-rt/internal/ort"
)

// The ports that only the two graphs of a split policy have: x is passed from step to step, k [] is
// the step's number. Every other output of the prefix, such as the key-value cache, is an input of
// the step under its name.
const (
	carriedX = "x"
	nextX    = "x_next"
	stepK    = "k"
)

// maxCarriedBytes bounds the outputs that the prefix of one row may pass to the steps.
const maxCarriedBytes = 1 << 32

// loop runs a policy's steps. The prefix's outputs for the steps stay on the session's device, are
// bound once, and are shared by all buffers. There are two copies of x; each step reads one and
// writes the other, because a graph may write an output before it has read all of an input.
//
// Owner: the goroutine that runs the model.
type loop struct {
	session *ort.Session
	steps   int
	x       [2]place
	carried []place

	number  *ort.Tensor    // k, of all bindings
	k       *int64         // the memory of number, nil on a GPU
	cell    unsafe.Pointer // the memory of number on the GPU
	numbers unsafe.Pointer // 0 to steps-1 in pinned memory, copied to cell one by one
}

// loadLoop opens step.onnx, which must fit the outputs of prefix.onnx.
func (m *Model) loadLoop(given []ort.Port) (*loop, error) {
	meta := &m.bundle.Meta
	x := port{carriedX, ort.Float32, []int64{int64(meta.noiseRows()), int64(meta.NoiseDim)}}
	carried, err := carriedPorts(x, given)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrBundle, filepath.Join(m.bundle.Dir, prefixName), err)
	}
	inputs := append([]port{x, {inputState, ort.Float32, meta.observed(int64(len(meta.StateNames)))}}, carried...)
	next := x
	next.name = nextX
	session, _, err := m.loadGraph(stepName, inputs, append([]port{next}, meta.outputs()...), stepK)
	if err != nil {
		return nil, err
	}
	l := &loop{session: session, steps: meta.NumSteps, x: [2]place{{port: x, shared: true}, {port: x, shared: true}}}
	for _, p := range carried {
		l.carried = append(l.carried, place{port: p, shared: true})
	}
	return l, nil
}

// carriedPorts returns the outputs of the prefix beside x.
func carriedPorts(x port, given []ort.Port) (carried []port, err error) {
	var errs []error
	found, total := false, 0
	for _, g := range given {
		p := port{name: g.Name, kind: g.Type}
		if !g.Tensor || len(g.Shape) == 0 || g.Shape[0] != anyBatch ||
			slices.ContainsFunc(g.Shape[1:], func(d int64) bool {
				return d < 1 || d > maxCarriedBytes
			}) || p.kind.Size() == 0 {
			errs = append(errs, fmt.Errorf("output %s is %s %v, want a tensor whose first dimension alone is dynamic",
				g.Name, g.Type, g.Shape))
			continue
		}
		p.shape = g.Shape[1:]
		bytes := p.kind.Size()
		for _, d := range p.shape {
			if bytes *= int(d); bytes > maxCarriedBytes {
				break
			}
		}
		if total += bytes; bytes > maxCarriedBytes || total > maxCarriedBytes {
			return nil, fmt.Errorf("output %s and those before it have more than %d bytes for one row", g.Name,
				maxCarriedBytes)
		}
		if p.name == x.name {
			found = true
			if err := comparePort(x, g); err != nil {
				errs = append(errs, fmt.Errorf("output %w", err))
			}
			continue
		}
		if slices.Contains([]string{inputState, stepK, nextX}, p.name) {
			errs = append(errs, fmt.Errorf("output %s has a name that the step uses for something else", p.name))
			continue
		}
		carried = append(carried, p)
	}
	if !found {
		errs = append(errs, fmt.Errorf("the graph has no output %s", x))
	}
	return carried, errors.Join(errs...)
}

// takeScalars returns the inputs without those names, each of which must be an int64 without
// dimensions.
func takeScalars(inputs []ort.Port, names []string) ([]ort.Port, error) {
	for _, name := range names {
		i := slices.IndexFunc(inputs, func(p ort.Port) bool { return p.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("the graph has no input %s int64 []", name)
		}
		if p := inputs[i]; !p.Tensor || p.Type != ort.Int64 || len(p.Shape) != 0 {
			return nil, fmt.Errorf("input %s is %s %v, want int64 []", name, p.Type, p.Shape)
		}
		inputs = slices.Delete(inputs, i, i+1)
	}
	return inputs, nil
}

// allocate reserves the memory between the graphs, for the largest batch.
func (l *loop) allocate(m *Model, where *ort.Memory) (err error) {
	all := []*place{&l.x[0], &l.x[1]}
	for i := range l.carried {
		all = append(all, &l.carried[i])
	}
	for _, at := range all {
		if at.base, err = m.reserve(m.opt.MaxBatch * at.rowBytes()); err != nil {
			return err
		}
	}
	const size = 8
	cell, err := m.reserve(size)
	if err != nil {
		return err
	}
	if m.gpu == nil {
		l.k = (*int64)(cell)
	} else {
		l.cell = cell
		if l.numbers, err = m.gpu.pinned(l.steps * size); err != nil {
			return err
		}
		for k, numbers := 0, unsafe.Slice((*int64)(l.numbers), l.steps); k < l.steps; k++ {
			numbers[k] = int64(k)
		}
	}
	l.number, err = ort.NewTensor(where, cell, size, ort.Int64)
	return err
}

// reserve returns memory on the session's device, counted and freed by Close.
func (m *Model) reserve(bytes int) (unsafe.Pointer, error) {
	if m.gpu != nil {
		return m.gpu.malloc(bytes)
	}
	return m.hostMemory(bytes)
}

// bind adds the steps of a run of rows first to first+batch-1.
func (l *loop) bind(m *Model, r *run, where *ort.Memory, inputs, outputs []place, first, batch int) (err error) {
	state := inputs[slices.IndexFunc(inputs, func(p place) bool { return p.name == inputState })]
	for i := range r.steps {
		next := l.x[1-i]
		next.name = nextX
		from, to := append([]place{l.x[i], state}, l.carried...), append([]place{next}, outputs...)
		if r.steps[i], err = m.bindPass(l.session, where, from, to, first, batch); err != nil {
			return err
		}
		if err := r.steps[i].binding.Input(stepK, l.number); err != nil {
			return fmt.Errorf("bind %s, batch %d: %w", stepK, batch, err)
		}
	}
	return nil
}

// run runs all steps; each writes the chunk, and the last one's remains.
//
//rt:noalloc
func (l *loop) run(r *run, g *gpu) error {
	for k := range l.steps {
		if g == nil {
			*l.k = int64(k)
		} else if err := g.compute.Upload(l.cell, unsafe.Add(l.numbers, 8*k), 8); err != nil {
			return err
		}
		if err := r.steps[k%2].run(); err != nil {
			return err
		}
	}
	return nil
}

func (l *loop) close() {
	if l.number != nil {
		l.number.Close()
	}
	l.session.Close()
}
