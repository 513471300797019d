package policy

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	ort "github.com/yalue/onnxruntime_go"
)

// The ports that only prefix and step, the two graphs of a split policy, have. Each step passes x to the next; k, a
// scalar, is the step's number. Every other output of the prefix, such as the key-value cache, is the step's input of
// that name.
const (
	carriedX = "x"
	nextX    = "x_next"
	stepK    = "k"
)

// maxCarriedBytes bounds the outputs that the prefix of one row may pass to the steps.
const maxCarriedBytes = 1 << 32

// loop runs a policy's steps. All buffers share the memory of the prefix's outputs. There are two
// copies of x. Each step reads one copy and writes the other, because a graph may write an output
// before it has read all of an input.
//
// Owner: the goroutine that runs the model.
type loop struct {
	session *session
	x       [2]place
	carried []place
	numbers []ort.Value // k of each step
}

// loadLoop opens step.onnx and checks that its inputs fit the outputs of prefix.onnx.
func (m *Model) loadLoop(given []ort.InputOutputInfo) (*loop, error) {
	meta := &m.bundle.Meta
	x := port{carriedX, float32s, []int64{int64(meta.noiseRows()), int64(meta.NoiseDim)}}
	carried, err := carriedPorts(x, given)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrBundle, filepath.Join(m.bundle.Dir, prefixName), err)
	}
	if m.session, err = m.openGraph(prefixName, meta.inputs(), append([]port{x}, carried...)); err != nil {
		return nil, err
	}
	inputs := append([]port{x, {inputState, float32s, meta.observed(int64(len(meta.StateNames)))}}, carried...)
	next := x
	next.name = nextX
	outputs := append([]port{next}, meta.outputs()...)
	if _, err := m.checkGraph(stepName, inputs, outputs, stepK); err != nil {
		return nil, err
	}
	session, err := m.openGraph(stepName, inputs, outputs, stepK)
	if err != nil {
		return nil, err
	}
	l := &loop{session: session, x: [2]place{{port: x, shared: true}, {port: x, shared: true}}}
	for _, p := range carried {
		l.carried = append(l.carried, place{port: p, shared: true})
	}
	return l, nil
}

// carriedPorts returns the prefix's outputs other than x.
func carriedPorts(x port, given []ort.InputOutputInfo) (carried []port, err error) {
	var errs []error
	found, total := false, 0
	for _, g := range given {
		p := port{name: g.Name, kind: elementType(g.DataType)}
		shape := g.Dimensions
		bytes := elements[p.kind].bytes
		if !isTensor(g) || len(shape) == 0 || shape[0] != anyBatch ||
			slices.ContainsFunc(shape[1:], func(d int64) bool {
				return d < 1 || d > maxCarriedBytes
			}) || bytes == 0 {
			errs = append(errs, fmt.Errorf("output %s is %s %v, want a tensor whose first dimension alone is dynamic",
				g.Name, p.kind, []int64(shape)))
			continue
		}
		p.shape = shape[1:]
		for _, d := range p.shape {
			if bytes > maxCarriedBytes/int(d) { // the product may not fit into an int
				bytes = maxCarriedBytes + 1
				break
			}
			bytes *= int(d)
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

// takeScalars checks that each of the names is an input of type int64 without dimensions, and returns the other inputs.
func takeScalars(inputs []ort.InputOutputInfo, names []string) ([]ort.InputOutputInfo, error) {
	for _, name := range names {
		i := slices.IndexFunc(inputs, func(p ort.InputOutputInfo) bool { return p.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("the graph has no input %s int64 []", name)
		}
		if p := inputs[i]; !isTensor(p) || elementType(p.DataType) != int64s || len(p.Dimensions) != 0 {
			return nil, fmt.Errorf("input %s is %s %v, want int64 []", name, elementType(p.DataType),
				[]int64(p.Dimensions))
		}
		inputs = slices.Delete(inputs, i, i+1)
	}
	return inputs, nil
}

// allocate reserves the memory of the tensors between the graphs, for the largest batch.
func (l *loop) allocate(m *Model) (err error) {
	all := []*place{&l.x[0], &l.x[1]}
	for i := range l.carried {
		all = append(all, &l.carried[i])
	}
	for _, at := range all {
		if at.memory, err = m.reserve(m.opt.MaxBatch * at.rowBytes()); err != nil {
			return err
		}
	}
	// onnxruntime_go's Scalar.Set puts the value into new Go memory, while the library keeps reading the old memory.
	// So each step has its own scalar, whose value never changes.
	for k := range m.bundle.NumSteps {
		number, err := ort.NewScalar(int64(k))
		if err != nil {
			return fmt.Errorf("tensor %s: %w", stepK, err)
		}
		m.tensors, l.numbers = append(m.tensors, number), append(l.numbers, number)
	}
	return nil
}

// bind adds the steps to the run r, which computes the rows first to first+batch-1.
func (l *loop) bind(m *Model, r *run, inputs, outputs []place, first, batch int) error {
	state := inputs[slices.IndexFunc(inputs, func(p place) bool { return p.name == inputState })]
	var from, to [2][]ort.Value // tensors of the steps: each step reads one copy of x and writes the other
	for i := range from {
		next := l.x[1-i]
		next.name = nextX
		var err error
		if from[i], err = m.tie(append([]place{l.x[i], state}, l.carried...), first, batch); err != nil {
			return err
		}
		if to[i], err = m.tie(append([]place{next}, outputs...), first, batch); err != nil {
			return err
		}
	}
	for k, number := range l.numbers {
		r.steps = append(r.steps,
			l.session.pass(append(slices.Clone(from[k%2]), number), to[k%2], m.stepOptions))
	}
	return nil
}
