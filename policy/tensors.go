package policy

import (
	"fmt"
	"slices"

	ort "github.com/yalue/onnxruntime_go"
)

// allocate reserves the tensors of all rows.
func (m *Model) allocate() {
	meta, n := &m.bundle.Meta, m.opt.Buffers*m.opt.MaxBatch
	for _, c := range meta.Cameras {
		m.images = append(m.images, newArray[byte](n*c.Bytes()))
		m.imageRow = append(m.imageRow, c.Bytes())
	}
	m.stateRow = len(meta.StateNames)
	m.noiseRow = meta.ChunkSize * meta.NoiseDim
	m.actionsRow = meta.ChunkSize * meta.ActionDim
	for _, a := range m.floats() {
		*a.memory = newArray[float32](n * a.row)
	}
	for _, a := range m.ints() {
		*a = newArray[int64](n)
	}
}

// free returns what allocate reserved; it may be called before.
func (m *Model) free() {
	for _, a := range m.images {
		freeArray(a)
	}
	for _, a := range m.floats() {
		freeArray(*a.memory)
	}
	for _, a := range m.ints() {
		freeArray(*a)
	}
}

// floatArray is a tensor's memory and the elements of one row.
type floatArray struct {
	memory *[]float32
	row    int
}

func (m *Model) floats() []floatArray {
	return []floatArray{
		{&m.state, m.stateRow}, {&m.noise, m.noiseRow}, {&m.prefix, m.actionsRow}, {&m.beta, 1}, {&m.sigmaD, 1},
		{&m.chunkModel, m.actionsRow}, {&m.chunkRobot, m.actionsRow},
	}
}

func (m *Model) ints() []*[]int64 {
	return []*[]int64{&m.prefixLen, &m.delay, &m.prefixEnd, &m.mode, &m.schedule}
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
	size := int(shape.FlattenedSize()) / batch
	switch a := m.array(p.name).(type) {
	case []byte:
		return ort.NewTensor(shape, a[first*size:])
	case []int64:
		return ort.NewTensor(shape, a[first*size:])
	case []float32:
		return ort.NewTensor(shape, a[first*size:])
	}
	panic("policy: no memory for " + p.name)
}

// array returns the memory of an input or output: []byte, []int64 or []float32.
func (m *Model) array(name string) any {
	switch name {
	case inputState:
		return m.state
	case inputNoise:
		return m.noise
	case inputPrefix:
		return m.prefix
	case inputPrefixLen:
		return m.prefixLen
	case inputDelay:
		return m.delay
	case inputPrefixEnd:
		return m.prefixEnd
	case inputMode:
		return m.mode
	case inputBeta:
		return m.beta
	case inputSchedule:
		return m.schedule
	case inputSigmaD:
		return m.sigmaD
	case outputModel:
		return m.chunkModel
	case outputRobot:
		return m.chunkRobot
	}
	cam := slices.IndexFunc(m.bundle.Cameras, func(c Camera) bool { return imagePrefix+c.Name == name })
	return m.images[cam]
}

// row lends row i of size elements; the capacity ends with the row.
func row[T any](a []T, i, size int) []T { return a[i*size : (i+1)*size : (i+1)*size] }
