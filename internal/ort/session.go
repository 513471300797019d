package ort

/*
#include "glue.h"
#cgo noescape ort_run
#cgo nocallback ort_run
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// maxRank bounds the dimensions of an input or output.
const maxRank = 16

// Session is a loaded graph. Runs of one session may overlap on the CPU; on a GPU only one thread
// may run.
type Session struct{ c *C.OrtSession }

// NewSession loads the graph at path, and the files beside it that the graph names.
func NewSession(path string, o *Options) (*Session, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	s := &Session{}
	if err := failure(C.ort_new_session(name, o.c, &s.c)); err != nil {
		return nil, err
	}
	return s, nil
}

// NewSessionOf loads a graph from bytes, which must not name other files.
func NewSessionOf(model []byte, o *Options) (*Session, error) {
	s := &Session{}
	if err := failure(C.ort_new_session_of(unsafe.Pointer(unsafe.SliceData(model)), C.size_t(len(model)), o.c, &s.c)); err != nil {
		return nil, err
	}
	return s, nil
}

// Port is an input or output of a graph. A dimension that is not fixed is -1;
// Tensor is false for sequences, maps and the like, which have no shape.
type Port struct {
	Name   string
	Type   Type
	Shape  []int64
	Tensor bool
}

// Inputs describes the graph's inputs.
func (s *Session) Inputs() ([]Port, error) {
	var n C.size_t
	if err := failure(C.ort_inputs(s.c, &n)); err != nil {
		return nil, err
	}
	return s.ports(0, int(n))
}

// Outputs describes the graph's outputs.
func (s *Session) Outputs() ([]Port, error) {
	var n C.size_t
	if err := failure(C.ort_outputs(s.c, &n)); err != nil {
		return nil, err
	}
	return s.ports(1, int(n))
}

func (s *Session) ports(output C.int, n int) ([]Port, error) {
	ports := make([]Port, n)
	for i := range ports {
		var (
			name       *C.char
			kind, rank C.int
			dims       [maxRank]C.int64_t
		)
		err := failure(C.ort_port(s.c, output, C.size_t(i), &name, &kind, &dims[0], maxRank, &rank))
		if name != nil {
			ports[i].Name = C.GoString(name)
			C.ort_free(name)
		}
		if err != nil {
			return nil, err
		}
		if rank > maxRank {
			return nil, fmt.Errorf("%s has %d dimensions, want at most %d", ports[i].Name, rank, maxRank)
		}
		ports[i].Type, ports[i].Tensor = Type(kind), rank >= 0
		for _, d := range dims[:max(rank, 0)] {
			ports[i].Shape = append(ports[i].Shape, int64(d))
		}
	}
	return ports, nil
}

// Close releases the session.
func (s *Session) Close() { C.ort_release_session(s.c) }

// Binding connects a session's inputs and outputs to tensors, which must live as long.
type Binding struct{ c *C.OrtIoBinding }

// NewBinding makes an empty binding.
func (s *Session) NewBinding() (*Binding, error) {
	b := &Binding{}
	if err := failure(C.ort_new_binding(s.c, &b.c)); err != nil {
		return nil, err
	}
	return b, nil
}

// Input binds an input. A tensor in the session's own kind of memory is read at each run; a tensor
// in another kind is copied once, now. After an error the binding must not be used.
func (b *Binding) Input(name string, t *Tensor) error {
	n := C.CString(name)
	defer C.free(unsafe.Pointer(n))
	return failure(C.ort_bind_input(b.c, n, t.c))
}

// Output binds an output, which each run writes.
func (b *Binding) Output(name string, t *Tensor) error {
	n := C.CString(name)
	defer C.free(unsafe.Pointer(n))
	return failure(C.ort_bind_output(b.c, n, t.c))
}

// Close releases the binding, not its tensors.
func (b *Binding) Close() { C.ort_release_binding(b.c) }

// RunOptions are the options of a run.
type RunOptions struct{ c *C.OrtRunOptions }

// NewRunOptions returns the default options.
func NewRunOptions() (*RunOptions, error) {
	r := &RunOptions{}
	if err := failure(C.ort_new_run(&r.c)); err != nil {
		return nil, err
	}
	return r, nil
}

// Set sets a run configuration entry, such as gpu_graph_id.
func (r *RunOptions) Set(key, value string) error {
	k, v := C.CString(key), C.CString(value)
	defer C.free(unsafe.Pointer(k))
	defer C.free(unsafe.Pointer(v))
	return failure(C.ort_set_run(r.c, k, v))
}

// Terminate ends the present run and all later ones with these options with an error, as soon as
// the present operator is done.
//
// Owner: any goroutine.
func (r *RunOptions) Terminate() error { return failure(C.ort_terminate(r.c)) }

// Close releases the options.
func (r *RunOptions) Close() { C.ort_release_run(r.c) }

// Run computes the bound outputs from the bound inputs.
//
//rt:noalloc
func (s *Session) Run(b *Binding, r *RunOptions) error {
	if status := C.ort_run(s.c, r.c, b.c); status != nil {
		return failure(status)
	}
	return nil
}
