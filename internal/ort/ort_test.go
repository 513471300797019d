package ort

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

const still = "../../testdata/demo/still/policy.onnx"

// openLibrary opens the ONNX Runtime that `make setup` installs.
func openLibrary(t *testing.T) {
	t.Helper()
	found, _ := filepath.Glob("../../.venv/lib/python3.*/site-packages/onnxruntime/capi/libonnxruntime.so*")
	path := cmp.Or(append(found, os.Getenv("EDGERT_ORT"))...)
	if path == "" {
		t.Skip("needs ONNX Runtime: make setup, or EDGERT_ORT=FILE")
	}
	if err := Open(path); err != nil {
		t.Fatal(err)
	}
}

func options(t *testing.T) *Options {
	t.Helper()
	o, err := NewOptions(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	return o
}

func session(t *testing.T) *Session {
	t.Helper()
	openLibrary(t)
	s, err := NewSession(still, options(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func port(t *testing.T, list []Port, name string) Port {
	t.Helper()
	i := slices.IndexFunc(list, func(p Port) bool { return p.Name == name })
	if i < 0 {
		t.Fatalf("no %s among %v", name, list)
	}
	return list[i]
}

func TestSessionDescribesItsGraph(t *testing.T) {
	s := session(t)
	inputs, err := s.Inputs()
	if err != nil {
		t.Fatal(err)
	}
	outputs, err := s.Outputs()
	if err != nil {
		t.Fatal(err)
	}
	if p := port(t, inputs, "image.top"); p.Type != Uint8 || !p.Tensor ||
		!slices.Equal(p.Shape, []int64{-1, 120, 160, 3}) {
		t.Errorf("image.top is %+v, want uint8 [-1 120 160 3]", p)
	}
	if p := port(t, inputs, "delay"); p.Type != Int64 || !slices.Equal(p.Shape, []int64{-1}) {
		t.Errorf("delay is %+v, want int64 [-1]", p)
	}
	if p := port(t, outputs, "chunk_robot"); p.Type != Float32 || !slices.Equal(p.Shape, []int64{-1, 50, 6}) {
		t.Errorf("chunk_robot is %+v, want float32 [-1 50 6]", p)
	}
}

// bound returns a binding with memory for one row of all the session's inputs and outputs.
func bound(t *testing.T, s *Session) (b *Binding, memory map[string]unsafe.Pointer) {
	t.Helper()
	host, err := NewMemory(HostMemory, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(host.Close)
	if b, err = s.NewBinding(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	memory = map[string]unsafe.Pointer{}
	tie := func(p Port, bind func(string, *Tensor) error) {
		shape := append([]int64{1}, p.Shape[1:]...)
		bytes := map[Type]int{Uint8: 1, Bool: 1, Float32: 4, Int64: 8}[p.Type]
		for _, d := range shape {
			bytes *= int(d)
		}
		memory[p.Name] = Alloc(bytes)
		t.Cleanup(func() { Free(memory[p.Name]) })
		tensor, err := NewTensor(host, memory[p.Name], bytes, p.Type, shape...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(tensor.Close)
		if err := bind(p.Name, tensor); err != nil {
			t.Fatal(err)
		}
	}
	inputs, err := s.Inputs()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range inputs {
		tie(p, b.Input)
	}
	outputs, err := s.Outputs()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range outputs {
		tie(p, b.Output)
	}
	return b, memory
}

func TestRunReadsAndWritesTheBoundMemory(t *testing.T) {
	s := session(t)
	b, memory := bound(t, s)
	r, err := NewRunOptions()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	state, chunk := (*float32)(memory["state"]), (*float32)(memory["chunk_robot"])
	value := float32(0)
	run := func() {
		value++
		*state = value
		if err := s.Run(b, r); err != nil || *chunk != value { // the policy answers with the arm's position
			t.Fatalf("chunk_robot[0] = %v, %v, want the state, %v", *chunk, err, value)
		}
	}
	if n := testing.AllocsPerRun(50, run); n != 0 {
		t.Errorf("a run allocates %v times, want 0", n)
	}
	if err := r.Terminate(); err != nil {
		t.Fatal(err)
	}
	if err := s.Run(b, r); err == nil || !strings.Contains(err.Error(), "terminate") {
		t.Errorf("a terminated run = %v, want an error that says so", err)
	}
}

func TestBindRefusesNamesThatTheGraphDoesNotHave(t *testing.T) {
	s := session(t)
	host, err := NewMemory(HostMemory, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	memory := Alloc(4)
	defer Free(memory)
	tensor, err := NewTensor(host, memory, 4, Float32, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer tensor.Close()
	b, err := s.NewBinding()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.Input("absent", tensor); err == nil {
		t.Error("a name that the graph does not have is bound, want an error")
	}
	if _, err := NewTensor(host, memory, 3, Float32, 1); err == nil {
		t.Error("a tensor of 4 bytes is made of 3, want an error")
	}
}

func TestNewSessionTellsWhetherTheGraphIsAtFault(t *testing.T) {
	openLibrary(t)
	graph, err := os.ReadFile(still)
	if err != nil {
		t.Fatal(err)
	}
	torn := filepath.Join(t.TempDir(), "torn.onnx")
	if err := os.WriteFile(torn, graph[:len(graph)/2], 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{torn, filepath.Join(t.TempDir(), "absent.onnx")} {
		var refused *Error
		if _, err := NewSession(path, options(t)); !errors.As(err, &refused) || !refused.OfGraph() {
			t.Errorf("NewSession(%s) = %v, want an error of the graph", filepath.Base(path), err)
		}
	}
	s, err := NewSessionOf(graph, options(t))
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}

func TestAddRefusesProvidersThatAreNotThere(t *testing.T) {
	openLibrary(t)
	built, err := Providers()
	if err != nil || !slices.Contains(built, "CPUExecutionProvider") {
		t.Fatalf("Providers() = %v, %v, want the CPU's among them", built, err)
	}
	if slices.Contains(built, CUDA) {
		t.Skipf("this library has %s", CUDA)
	}
	var refused *Error
	for _, provider := range []string{CUDA, TensorRT} {
		if err := options(t).Add(provider, map[string]string{"device_id": "0"}, nil); !errors.As(err, &refused) ||
			refused.OfGraph() {
			t.Errorf("Add(%s) = %v, want an error that is not the graph's", provider, err)
		}
	}
	if err := options(t).Add("Abacus", nil, nil); err == nil || !strings.Contains(err.Error(), CUDA) {
		t.Errorf("Add(Abacus) = %v, want an error that names what is known", err)
	}
}

func TestOpenTwiceIsOnce(t *testing.T) {
	openLibrary(t)
	if err := Open("absent.so"); err != nil || !IsOpen() {
		t.Errorf("second Open = %v, want nil", err)
	}
	if _, err := Version("absent.so"); err == nil || !strings.Contains(err.Error(), "absent.so") {
		t.Errorf("Version(absent.so) = %v, want the loader's words", err)
	}
}
