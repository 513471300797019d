package policy

import (
	"fmt"
	"unsafe"

	ort "github.com/yalue/onnxruntime_go"
)

// memory is the tensor of one input or output: its name, the bytes of a row, and a function that makes the tensor's
// slice refer to the given memory.
type memory struct {
	name string
	row  int
	lie  func(memory []byte)
}

// tensor returns the tensor of a slice whose rows have the given number of elements.
func tensor[T any](name string, row int, slice *[]T) memory {
	size := int(unsafe.Sizeof(*new(T)))
	return memory{name, size * row, func(memory []byte) {
		*slice = unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(memory))), len(memory)/size)
	}}
}

// memories lists the tensors, including those of inputs that the graph does not have.
func (m *Model) memories() []memory {
	meta := &m.bundle.Meta
	if m.images == nil {
		m.images = make([][]byte, len(meta.Cameras))
	}
	list := []memory{
		tensor(inputState, meta.Steps()*len(meta.StateNames), &m.state),
		tensor(inputNoise, meta.noiseRows()*meta.NoiseDim, &m.noise),
		tensor(inputTokens, meta.promptLen(), &m.tokens),
		tensor(inputTokenMask, meta.promptLen(), &m.tokenMask),
		tensor(inputPrefix, meta.ChunkSize*meta.ActionDim, &m.prefix),
		tensor(inputPrefixLen, 1, &m.prefixLen),
		tensor(inputDelay, 1, &m.delay),
		tensor(inputPrefixEnd, 1, &m.prefixEnd),
		tensor(inputMode, 1, &m.mode),
		tensor(inputBeta, 1, &m.beta),
		tensor(inputSchedule, 1, &m.schedule),
		tensor(inputSigmaD, 1, &m.sigmaD),
		tensor(outputModel, meta.ChunkSize*meta.ActionDim, &m.chunkModel),
		tensor(outputRobot, meta.ChunkSize*meta.ActionDim, &m.chunkRobot),
	}
	for i, c := range meta.Cameras {
		list = append(list, tensor(imagePrefix+c.Name, meta.Steps()*c.Bytes(), &m.images[i]))
	}
	return list
}

// maxTensorBytes bounds the tensors of all rows: 32 rows of 16 observations of four
// cameras of 1080p take 12 GiB.
const maxTensorBytes = 16 << 30

// allocate reserves the tensors of all rows, outside the Go heap, because ONNX Runtime keeps their addresses.
func (m *Model) allocate() error {
	rows, total := m.opt.Buffers*m.opt.MaxBatch, int64(0)
	for _, t := range m.memories() {
		total += int64(rows) * int64(t.row)
	}
	if total > maxTensorBytes {
		return fmt.Errorf("%w: %s: inputs and outputs of %d rows take %.1f GiB, want at most %d: lower max_batch, or "+
			"export the policy for smaller pictures",
			ErrBundle, m.bundle.Dir, rows, float64(total)/(1<<30), maxTensorBytes>>30)
	}
	for _, t := range m.memories() {
		memory, err := m.reserve(rows * t.row)
		if err != nil {
			return err
		}
		t.lie(memory[:rows*t.row])
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
