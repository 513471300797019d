package policy

import (
	"fmt"
	"reflect"
	"unsafe"

	ort "github.com/yalue/onnxruntime_go"
	"golang.org/x/sys/unix"
)

// session is a loaded graph. A run takes and returns tensors in the order of newSession's names. Runs may overlap on
// the CPU; on a GPU only one thread may run.
type session struct{ dynamic *ort.DynamicAdvancedSession }

// newSession loads the graph at path, and the files beside it that the graph names.
func newSession(path string, inputs, outputs []string, o *ort.SessionOptions) (*session, error) {
	dynamic, err := ort.NewDynamicAdvancedSession(path, inputs, outputs, o)
	if err != nil {
		return nil, err
	}
	return &session{dynamic}, nil
}

// pass is one run of a session on fixed tensors, which allocates nothing. It is valid until the session or a tensor is
// closed.
//
// The module's DynamicAdvancedSession takes the tensors at each run, and each run allocates two slices and an object
// for each tensor. Its AdvancedSession allocates nothing in a run, but loads the graph again for each set of tensors.
// So a pass is an AdvancedSession that borrows the graph of the dynamic one. The borrowed fields are private to the
// module; TestRunAllocatesNothing fails when a new version changes them.
type pass struct {
	fixed   *ort.AdvancedSession
	options *ort.RunOptions
}

func (s *session) pass(inputs, outputs []ort.Value, options *ort.RunOptions) pass {
	fixed := **(**ort.AdvancedSession)(private(s.dynamic, "s"))
	*(*[]unsafe.Pointer)(private(&fixed, "inputs")) = addresses(inputs)
	*(*[]unsafe.Pointer)(private(&fixed, "outputs")) = addresses(outputs)
	return pass{&fixed, options}
}

// run computes the outputs from the inputs. Tensors are in the host's memory: a session on a GPU
// copies them itself.
//
//rt:noalloc
func (p *pass) run() error { return p.fixed.RunWithOptions(p.options) }

func (s *session) close() error { return s.dynamic.Destroy() }

// addresses returns the library's handles of tensors.
func addresses(values []ort.Value) []unsafe.Pointer {
	list := make([]unsafe.Pointer, len(values))
	for i, v := range values {
		list[i] = *(*unsafe.Pointer)(private(v.GetInternals(), "ortValue"))
	}
	return list
}

// private returns the address of a private field of an object of the module.
func private(object any, field string) unsafe.Pointer {
	f := reflect.ValueOf(object).Elem().FieldByName(field)
	if !f.IsValid() {
		panic(fmt.Sprintf("policy: %T of onnxruntime_go has no field %s: use v1.27.0", object, field))
	}
	return unsafe.Pointer(f.UnsafeAddr())
}

// reserve returns zeroed memory outside the Go heap, which lasts until release. All its pages are present. ONNX Runtime
// keeps its address, and cgo forbids C code to keep an address of Go memory.
func reserve(bytes int) ([]byte, error) {
	memory, err := unix.Mmap(-1, 0, max(bytes, 1), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("%w: %d bytes for inputs and outputs: %w", ErrMemory, bytes, err)
	}
	return memory, nil
}

func release(memory []byte) error { return unix.Munmap(memory) }
