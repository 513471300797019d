package policy

import (
	"fmt"
	"slices"

	ort "github.com/yalue/onnxruntime_go"
)

// memory is the tensor of one input or output: one of the four slices, and how
// many elements a row has.
type memory struct {
	name   string
	row    int
	bytes  *[]byte
	bools  *[]bool
	ints   *[]int64
	floats *[]float32
}

// memories lists the tensors, those of inputs that the graph does not take too.
func (m *Model) memories() []memory {
	meta := &m.bundle.Meta
	if m.images == nil {
		m.images = make([][]byte, len(meta.Cameras))
	}
	list := []memory{
		{name: inputState, row: meta.Steps() * len(meta.StateNames), floats: &m.state},
		{name: inputNoise, row: meta.noiseRows() * meta.NoiseDim, floats: &m.noise},
		{name: inputTokens, row: meta.promptLen(), ints: &m.tokens},
		{name: inputTokenMask, row: meta.promptLen(), bools: &m.tokenMask},
		{name: inputPrefix, row: meta.ChunkSize * meta.ActionDim, floats: &m.prefix},
		{name: inputPrefixLen, row: 1, ints: &m.prefixLen},
		{name: inputDelay, row: 1, ints: &m.delay},
		{name: inputPrefixEnd, row: 1, ints: &m.prefixEnd},
		{name: inputMode, row: 1, ints: &m.mode},
		{name: inputBeta, row: 1, floats: &m.beta},
		{name: inputSchedule, row: 1, ints: &m.schedule},
		{name: inputSigmaD, row: 1, floats: &m.sigmaD},
		{name: outputModel, row: meta.ChunkSize * meta.ActionDim, floats: &m.chunkModel},
		{name: outputRobot, row: meta.ChunkSize * meta.ActionDim, floats: &m.chunkRobot},
	}
	for i, c := range meta.Cameras {
		list = append(list, memory{name: imagePrefix + c.Name, row: meta.Steps() * c.Bytes(), bytes: &m.images[i]})
	}
	return list
}

// allocate reserves the tensors of all rows.
func (m *Model) allocate() {
	rows := m.opt.Buffers * m.opt.MaxBatch
	for _, t := range m.memories() {
		switch {
		case t.bytes != nil:
			*t.bytes = newArray[byte](rows * t.row)
		case t.bools != nil:
			*t.bools = newArray[bool](rows * t.row)
		case t.ints != nil:
			*t.ints = newArray[int64](rows * t.row)
		default:
			*t.floats = newArray[float32](rows * t.row)
		}
	}
}

// free returns what allocate reserved; it may be called before.
func (m *Model) free() {
	for _, t := range m.memories() {
		switch {
		case t.bytes != nil:
			freeArray(*t.bytes)
		case t.bools != nil:
			freeArray(*t.bools)
		case t.ints != nil:
			freeArray(*t.ints)
		default:
			freeArray(*t.floats)
		}
	}
}

// bind makes one binding per buffer and batch size; those of a buffer share its
// memory. A run with a prepared binding allocates nothing.
func (m *Model) bind() error {
	for first := 0; first < m.opt.Buffers*m.opt.MaxBatch; first += m.opt.MaxBatch {
		for batch := 1; batch <= m.opt.MaxBatch; batch++ {
			binding, err := m.session.CreateIoBinding()
			if err != nil {
				return err
			}
			m.bindings = append(m.bindings, binding)
			for _, p := range m.bundle.inputs() {
				if err := m.bindPort(binding.BindInput, p, first, batch); err != nil {
					return err
				}
			}
			for _, p := range m.bundle.outputs() {
				if err := m.bindPort(binding.BindOutput, p, first, batch); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (m *Model) bindPort(bind func(string, ort.Value) error, p port, first, batch int) error {
	value, err := m.value(p, first, batch)
	if err != nil {
		return fmt.Errorf("tensor %s, batch %d: %w", p, batch, err)
	}
	m.values = append(m.values, value)
	if err := bind(p.name, value); err != nil {
		return fmt.Errorf("bind %s, batch %d: %w", p, batch, err)
	}
	return nil
}

// value wraps rows first to first+batch-1 of a port's memory as a tensor of the
// library.
func (m *Model) value(p port, first, batch int) (ort.Value, error) {
	shape := ort.NewShape(append([]int64{int64(batch)}, p.shape...)...)
	t := m.memory(p.name)
	switch first *= t.row; {
	case t.bytes != nil:
		return ort.NewTensor(shape, (*t.bytes)[first:])
	case t.bools != nil:
		return ort.NewTensor(shape, (*t.bools)[first:])
	case t.ints != nil:
		return ort.NewTensor(shape, (*t.ints)[first:])
	}
	return ort.NewTensor(shape, (*t.floats)[first:])
}

// memory finds the tensor of an input or output.
func (m *Model) memory(name string) memory {
	list := m.memories()
	return list[slices.IndexFunc(list, func(t memory) bool { return t.name == name })]
}

// row lends row i of size elements; the capacity ends with the row.
func row[T any](a []T, i, size int) []T { return a[i*size : (i+1)*size : (i+1)*size] }
