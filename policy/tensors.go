package policy

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/edge-rt/edge-rt/internal/ort"
)

// memory is the tensor of one input or output: one of the four slices, and the number of elements
// of a row.
type memory struct {
	name   string
	row    int
	bytes  *[]byte
	bools  *[]bool
	ints   *[]int64
	floats *[]float32
}

// memories lists the tensors, including those of inputs that the graph does not have.
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

// rowBytes returns the size of a row.
func (t *memory) rowBytes() int {
	switch {
	case t.ints != nil:
		return 8 * t.row
	case t.floats != nil:
		return 4 * t.row
	}
	return t.row
}

// lie places the tensor, of so many rows, at p.
func (t *memory) lie(p unsafe.Pointer, rows int) {
	switch n := rows * t.row; {
	case t.bytes != nil:
		*t.bytes = unsafe.Slice((*byte)(p), n)
	case t.bools != nil:
		*t.bools = unsafe.Slice((*bool)(p), n)
	case t.ints != nil:
		*t.ints = unsafe.Slice((*int64)(p), n)
	default:
		*t.floats = unsafe.Slice((*float32)(p), n)
	}
}

// pointer returns the address of the tensor's first row.
func (t *memory) pointer() unsafe.Pointer {
	switch {
	case t.bytes != nil:
		return unsafe.Pointer(unsafe.SliceData(*t.bytes))
	case t.bools != nil:
		return unsafe.Pointer(unsafe.SliceData(*t.bools))
	case t.ints != nil:
		return unsafe.Pointer(unsafe.SliceData(*t.ints))
	}
	return unsafe.Pointer(unsafe.SliceData(*t.floats))
}

// memory finds the tensor of an input or output.
func (m *Model) memory(name string) memory {
	list := m.memories()
	return list[slices.IndexFunc(list, func(t memory) bool { return t.name == name })]
}

// maxTensorBytes bounds the tensors of all rows: 32 rows of 16 observations of four
// cameras of 1080p take 12 GiB.
const maxTensorBytes = 16 << 30

// allocate reserves the tensors of all rows, outside the Go heap: ONNX Runtime
// keeps their addresses.
func (m *Model) allocate() error {
	rows, total := m.opt.Buffers*m.opt.MaxBatch, int64(0)
	for _, t := range m.memories() {
		total += int64(rows) * int64(t.rowBytes())
	}
	if total > maxTensorBytes {
		return fmt.Errorf("%w: %s: inputs and outputs of %d rows take %.1f GiB, want at most %d: lower max_batch, or "+
			"export the policy for smaller pictures",
			ErrBundle, m.bundle.Dir, rows, float64(total)/(1<<30), maxTensorBytes>>30)
	}
	for _, t := range m.memories() {
		p, err := m.hostMemory(rows * t.rowBytes())
		if err != nil {
			return err
		}
		t.lie(p, rows)
	}
	return nil
}

// hostMemory returns memory of the host, pinned where a GPU copies from it, counted and freed by
// Close.
func (m *Model) hostMemory(bytes int) (unsafe.Pointer, error) {
	m.hostBytes += int64(bytes)
	if m.gpu != nil {
		return m.gpu.pinned(bytes)
	}
	p := ort.Alloc(bytes)
	m.host = append(m.host, p)
	return p, nil
}

// place is the session's memory for the rows of an input or output.
type place struct {
	port
	base   unsafe.Pointer
	shared bool // among all buffers, of which one runs at a time
}

// places returns the places of the policy's own inputs and outputs, on a GPU those of their twins.
func (m *Model) places() (inputs, outputs []place, err error) {
	find := func(p port, input bool) (place, error) {
		t := m.memory(p.name)
		if m.gpu == nil {
			return place{port: p, base: t.pointer()}, nil
		}
		twin, err := m.gpu.lane(&t, input, m.opt.Buffers*m.opt.MaxBatch)
		return place{port: p, base: twin}, err
	}
	for _, p := range m.bundle.inputs() {
		at, err := find(p, true)
		if err != nil {
			return nil, nil, err
		}
		inputs = append(inputs, at)
	}
	for _, p := range m.bundle.outputs() {
		at, err := find(p, false)
		if err != nil {
			return nil, nil, err
		}
		outputs = append(outputs, at)
	}
	return inputs, outputs, nil
}

// bind makes the bindings of each buffer and batch size; those of a buffer share its memory. A run
// with a prepared binding allocates nothing.
func (m *Model) bind() error {
	where, err := m.where()
	if err != nil {
		return err
	}
	defer where.Close()
	inputs, outputs, err := m.places()
	if err != nil {
		return err
	}
	if m.loop != nil {
		if err := m.loop.allocate(m, where); err != nil {
			return err
		}
	}
	for first := 0; first < m.opt.Buffers*m.opt.MaxBatch; first += m.opt.MaxBatch {
		for batch := 1; batch <= m.opt.MaxBatch; batch++ {
			if err := m.bindRun(where, inputs, outputs, first, batch); err != nil {
				return err
			}
		}
	}
	return nil
}

// bindRun adds the run of rows first to first+batch-1.
func (m *Model) bindRun(where *ort.Memory, inputs, outputs []place, first, batch int) (err error) {
	var r run
	given := outputs
	if m.loop != nil {
		given = append([]place{m.loop.x[0]}, m.loop.carried...)
	}
	if r.head, err = m.bindPass(m.session, where, inputs, given, first, batch); err != nil {
		return err
	}
	if err := m.returnMemory(r.head.options); err != nil {
		return err
	}
	if m.loop != nil {
		if err := m.loop.bind(m, &r, where, inputs, outputs, first, batch); err != nil {
			return err
		}
	}
	m.runs = append(m.runs, r)
	return nil
}

func (m *Model) bindPass(session *ort.Session, where *ort.Memory, inputs, outputs []place, first, batch int) (pass,
	error) {
	p, err := m.newPass(session)
	if err != nil {
		return p, err
	}
	for _, at := range inputs {
		if err := m.tie(p.binding.Input, where, at, first, batch); err != nil {
			return p, err
		}
	}
	for _, at := range outputs {
		if err := m.tie(p.binding.Output, where, at, first, batch); err != nil {
			return p, err
		}
	}
	return p, nil
}

// tie binds rows first to first+batch-1 of an input or output.
func (m *Model) tie(bind func(string, *ort.Tensor) error, where *ort.Memory, at place, first, batch int) error {
	size := at.rowBytes()
	if at.shared {
		first = 0
	}
	tensor, err := ort.NewTensor(where, unsafe.Add(at.base, first*size), batch*size, at.kind,
		append([]int64{int64(batch)}, at.shape...)...)
	if err != nil {
		return fmt.Errorf("tensor %s, batch %d: %w", at, batch, err)
	}
	m.tensors = append(m.tensors, tensor)
	if err := bind(at.name, tensor); err != nil {
		return fmt.Errorf("bind %s, batch %d: %w", at, batch, err)
	}
	return nil
}

// row lends row i of size elements; its capacity ends with the row.
func row[T any](a []T, i, size int) []T { return a[i*size : (i+1)*size : (i+1)*size] }
