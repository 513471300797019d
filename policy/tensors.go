package policy

import (
	"fmt"
	"unsafe"

	ort "github.com/yalue/onnxruntime_go"
)

// memory is the tensor of one input or output: its name, the number of elements of a row, and the address of its
// slice. The slice's type determines which of the four fields has the address; the other three are nil.
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

// lie makes the tensor's slice refer to the given memory, which has room for the given number of rows.
func (t *memory) lie(memory []byte, rows int) {
	p := unsafe.Pointer(unsafe.SliceData(memory))
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

// maxTensorBytes bounds the tensors of all rows: 32 rows of 16 observations of four
// cameras of 1080p take 12 GiB.
const maxTensorBytes = 16 << 30

// allocate reserves the tensors of all rows, outside the Go heap, because ONNX Runtime keeps their addresses.
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
		memory, err := m.reserve(rows * t.rowBytes())
		if err != nil {
			return err
		}
		t.lie(memory, rows)
		if m.rows == nil {
			m.rows = map[string][]byte{}
		}
		m.rows[t.name] = memory
	}
	return nil
}

// reserve returns memory that TensorBytes counts and Close frees.
func (m *Model) reserve(bytes int) ([]byte, error) {
	memory, err := reserve(bytes)
	if err != nil {
		return nil, err
	}
	m.host, m.tensorBytes = append(m.host, memory), m.tensorBytes+int64(bytes)
	return memory, nil
}

// place is the memory for the rows of an input or output.
type place struct {
	port
	memory []byte
	shared bool // all buffers use the same rows, because only one buffer runs at a time
}

// places returns the memory of the policy's own inputs or outputs.
func (m *Model) places(ports []port) (places []place) {
	for _, p := range ports {
		places = append(places, place{port: p, memory: m.rows[p.name]})
	}
	return places
}

// run has the passes for one buffer and batch size: one pass of the policy, or the passes of the prefix and the steps
// of a policy in two graphs.
type run struct {
	head  pass
	steps []pass
}

// bind makes a run for each buffer and batch size. All runs of a buffer use its memory.
func (m *Model) bind() (err error) {
	if m.headOptions, err = ort.NewRunOptions(); err != nil {
		return err
	}
	if m.stepOptions, err = ort.NewRunOptions(); err != nil {
		return err
	}
	if err := m.returnMemory(m.headOptions); err != nil {
		return err
	}
	if m.loop != nil {
		if err := m.loop.allocate(m); err != nil {
			return err
		}
	}
	for first := 0; first < m.opt.Buffers*m.opt.MaxBatch; first += m.opt.MaxBatch {
		for batch := 1; batch <= m.opt.MaxBatch; batch++ {
			if err := m.bindRun(first, batch); err != nil {
				return fmt.Errorf("batch %d: %w", batch, err)
			}
		}
	}
	return nil
}

// bindRun adds the run for rows first to first+batch-1. If the session has a larger batch size, it also computes the
// rows that follow, from the inputs that they had last.
func (m *Model) bindRun(first, batch int) error {
	inputs, outputs := m.places(m.bundle.inputs()), m.places(m.bundle.outputs())
	given := outputs
	if m.loop != nil {
		given = append([]place{m.loop.x[0]}, m.loop.carried...)
	}
	head, rows := m.sessionOf(batch)
	from, err := m.tie(inputs, first, rows)
	if err != nil {
		return err
	}
	to, err := m.tie(given, first, rows)
	if err != nil {
		return err
	}
	r := run{head: head.pass(from, to, m.headOptions)}
	if m.loop != nil {
		if err := m.loop.bind(m, &r, inputs, outputs, first, batch); err != nil {
			return err
		}
	}
	m.runs = append(m.runs, r)
	return nil
}

// tie returns, for each place, a tensor of rows first to first+batch-1.
func (m *Model) tie(places []place, first, batch int) (values []ort.Value, err error) {
	for _, at := range places {
		from, size := first, at.rowBytes()
		if at.shared {
			from = 0
		}
		value, err := ort.NewCustomDataTensor(append([]int64{int64(batch)}, at.shape...),
			at.memory[from*size:(from+batch)*size], ort.TensorElementDataType(at.kind))
		if err != nil {
			return nil, fmt.Errorf("tensor %s: %w", at.port, err)
		}
		m.tensors, values = append(m.tensors, value), append(values, value)
	}
	return values, nil
}

// row returns row i of a, whose rows have size elements. The capacity of the returned slice ends with the row.
func row[T any](a []T, i, size int) []T { return a[i*size : (i+1)*size : (i+1)*size] }
