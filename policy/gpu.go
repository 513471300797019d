package policy

import (
	"errors"
	"fmt"
	"strconv"
	"unsafe"

	"github.com/edge-rt/edge-rt/internal/cuda"
	"github.com/edge-rt/edge-rt/internal/ort"
)

// gpu is the device's side of a model's tensors. The rows that callers fill and read are in pinned
// memory of the host; the session uses a twin of each tensor on the device. A run is copy, compute,
// copy back on one stream, with one wait at the end; staged rows have been copied on a second
// stream before.
type gpu struct {
	device           int
	compute, copying cuda.Stream
	ready            []cuda.Event // per buffer: its staged rows are on the device
	stagedRows       []int        // per buffer; 0: no rows are staged
	inputs, outputs  []lane
	pins, twins      []unsafe.Pointer
	bytes            int64 // of all twins
}

// lane is a tensor and its twin.
type lane struct {
	host, device unsafe.Pointer
	row          int // bytes
}

// newGPU makes streams and events on the device. openGPU must have succeeded.
func newGPU(device, buffers int) (g *gpu, err error) {
	g = &gpu{device: device, stagedRows: make([]int, buffers)}
	if err := cuda.SetDevice(device); err != nil {
		return g, noDevice(err)
	}
	if g.compute, err = cuda.NewStream(); err != nil {
		return g, noDevice(err)
	}
	if g.copying, err = cuda.NewStream(); err != nil {
		return g, noDevice(err)
	}
	for range buffers {
		e, err := cuda.NewEvent()
		if err != nil {
			return g, noDevice(err)
		}
		g.ready = append(g.ready, e)
	}
	return g, nil
}

func noDevice(err error) error { return fmt.Errorf("%w: %w", ErrNoDevice, err) }

func (g *gpu) pinned(bytes int) (unsafe.Pointer, error) {
	p, err := cuda.Pinned(max(bytes, 1))
	if err != nil {
		return nil, noDevice(err)
	}
	g.pins = append(g.pins, p)
	return p, nil
}

// malloc reserves memory of the device, until close.
func (g *gpu) malloc(bytes int) (unsafe.Pointer, error) {
	p, err := cuda.Malloc(max(bytes, 1))
	if err != nil {
		return nil, noDevice(err)
	}
	g.twins, g.bytes = append(g.twins, p), g.bytes+int64(bytes)
	return p, nil
}

// lane gives a tensor of so many rows its twin.
func (g *gpu) lane(t *memory, input bool, rows int) (twin unsafe.Pointer, err error) {
	if twin, err = g.malloc(rows * t.rowBytes()); err != nil {
		return nil, err
	}
	if l := (lane{t.pointer(), twin, t.rowBytes()}); input {
		g.inputs = append(g.inputs, l)
	} else {
		g.outputs = append(g.outputs, l)
	}
	return twin, nil
}

// stage begins to copy rows first to first+batch-1, the rows of buffer k.
//
//rt:noalloc
func (g *gpu) stage(k, first, batch int) error {
	if err := g.upload(g.copying, first, batch); err != nil {
		return err
	}
	if err := g.copying.Record(g.ready[k]); err != nil {
		return err
	}
	g.stagedRows[k] = batch
	return nil
}

// before copies the inputs of buffer k to the device, in the order of the stream.
//
//rt:noalloc
func (g *gpu) before(k, first, batch int) error {
	staged := g.stagedRows[k]
	g.stagedRows[k] = 0
	if staged != 0 { // also of another size: its copies must not come after ours
		if err := g.compute.Wait(g.ready[k]); err != nil || staged == batch {
			return err
		}
	}
	return g.upload(g.compute, first, batch)
}

//rt:noalloc
func (g *gpu) upload(s cuda.Stream, first, batch int) error {
	if err := cuda.SetDevice(g.device); err != nil { // for this thread
		return err
	}
	for i := range g.inputs {
		l := &g.inputs[i]
		if err := s.Upload(unsafe.Add(l.device, first*l.row), unsafe.Add(l.host, first*l.row), batch*l.row); err != nil {
			return err
		}
	}
	return nil
}

// after copies the outputs back and waits for them.
//
//rt:noalloc
func (g *gpu) after(first, batch int) error {
	for i := range g.outputs {
		l := &g.outputs[i]
		if err := g.compute.Download(unsafe.Add(l.host, first*l.row), unsafe.Add(l.device, first*l.row), batch*l.row); err != nil {
			return err
		}
	}
	return g.compute.Synchronize()
}

func (g *gpu) close() {
	for _, p := range g.pins {
		cuda.FreePinned(p)
	}
	for _, p := range g.twins {
		cuda.Free(p)
	}
	for _, e := range g.ready {
		e.Close()
	}
	for _, s := range []cuda.Stream{g.compute, g.copying} {
		if s.Pointer() != nil {
			s.Close()
		}
	}
}

// run holds the passes of one buffer and batch size: the policy, or the prefix and the steps of a
// policy in two graphs.
type run struct {
	head  pass
	steps [2]pass // from x to its twin, and back
}

// pass is one run of a graph.
type pass struct {
	session *ort.Session
	binding *ort.Binding
	options *ort.RunOptions
}

//rt:noalloc
func (p *pass) run() error { return p.session.Run(p.binding, p.options) }

// newPass adds a pass, whose binding is still empty.
func (m *Model) newPass(session *ort.Session) (p pass, err error) {
	p.session = session
	if p.binding, err = session.NewBinding(); err != nil {
		return p, err
	}
	if p.options, err = ort.NewRunOptions(); err != nil {
		p.binding.Close()
		return p, err
	}
	id := len(m.passes)
	m.passes = append(m.passes, p)
	if m.gpu == nil {
		return p, nil
	}
	// We wait ourselves, after the copies back. A captured CUDA graph belongs to its addresses,
	// which differ for each pass.
	return p, errors.Join(
		p.options.Set("disable_synchronize_execution_providers", "1"),
		p.options.Set("gpu_graph_id", strconv.Itoa(id)),
	)
}

// where returns the memory of the session's tensors.
func (m *Model) where() (*ort.Memory, error) {
	if m.gpu != nil {
		return ort.NewMemory(ort.CUDAMemory, m.gpu.device)
	}
	return ort.NewMemory(ort.HostMemory, 0)
}
