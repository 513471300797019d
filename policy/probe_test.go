package policy

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	ort "github.com/yalue/onnxruntime_go"
	"google.golang.org/protobuf/encoding/protowire"
)

// The fields of ONNX's protocol buffers that are read and written here.
//
// Source: onnx.proto of ONNX 1.17.
const (
	modelGraph  = 7
	graphNode   = 1
	graphOutput = 12
	nodeInput   = 1
	nodeOutput  = 2
	nodeOp      = 4
	portName    = 1
)

// probe is an exported policy that also gives the values in its middle. What a
// tensor is called there is found by what is computed from it, since names
// change with every export.
type probe struct {
	meta  *Meta
	model []byte

	weight, prefix string // guidance weight, [B, H, 1]; prefix in the model's units, [B, H, D]
	steps          []probeStep
}

// probeStep is one Euler step: from x along v to next, pulled by beta times the
// weight.
type probeStep struct{ x, v, beta, next string }

// graphPart is one node of a graph.
type graphPart struct {
	op      string
	inputs  []string
	outputs []string
}

// openProbe reads the bundle's policy and finds what RTC computes in it.
func openProbe(t *testing.T, dir string) *probe {
	t.Helper()
	needRuntime(t)
	b, err := LoadBundle(dir)
	if err != nil {
		t.Fatal(err)
	}
	model, err := os.ReadFile(filepath.Join(dir, graphName))
	if err != nil {
		t.Fatal(err)
	}
	p := &probe{meta: &b.Meta, model: model}
	p.find(t, nodesOf(t, model))
	return p
}

// field appends one field of bytes.
func field(dst []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(dst, number, protowire.BytesType), value)
}

// fields calls f with every field of a message: with its tag, and its value where
// that is bytes.
func fields(t *testing.T, message []byte, f func(number protowire.Number, raw, value []byte)) {
	t.Helper()
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		length := protowire.ConsumeFieldValue(number, kind, message[n:])
		if length < 0 {
			t.Fatal(protowire.ParseError(length))
		}
		var value []byte
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(message[n:])
		}
		f(number, message[:n+length], value)
		message = message[n+length:]
	}
}

func nodesOf(t *testing.T, model []byte) (nodes []*graphPart) {
	t.Helper()
	fields(t, model, func(number protowire.Number, _, graph []byte) {
		if number != modelGraph {
			return
		}
		fields(t, graph, func(number protowire.Number, _, node []byte) {
			if number != graphNode {
				return
			}
			n := &graphPart{}
			fields(t, node, func(number protowire.Number, _, value []byte) {
				switch number {
				case nodeInput:
					n.inputs = append(n.inputs, string(value))
				case nodeOutput:
					n.outputs = append(n.outputs, string(value))
				case nodeOp:
					n.op = string(value)
				}
			})
			nodes = append(nodes, n)
		})
	})
	return nodes
}

// find follows the nodes around each Min(beta, limit): from there on one step is
// Unsqueeze, Mul with the weighted error, Sub from the velocity, Mul with the
// size, Sub from x, and Where for the rows that are held.
func (p *probe) find(t *testing.T, nodes []*graphPart) {
	t.Helper()
	maker, user := map[string]*graphPart{}, map[string]*graphPart{}
	for _, n := range nodes {
		for _, name := range n.outputs {
			maker[name] = n
		}
		for _, name := range n.inputs {
			user[name] = n // the only one, where it is asked for
		}
	}
	want := func(n *graphPart, op string) *graphPart {
		if n == nil || n.op != op {
			t.Fatalf("the graph has %+v where a step has its %s: the exporter writes steps differently now", n, op)
		}
		return n
	}
	next := func(n *graphPart, op string) *graphPart { return want(user[n.outputs[0]], op) }
	for _, n := range nodes {
		if n.op != "Min" || n.inputs[0] != inputBeta {
			continue
		}
		pull := next(next(n, "Unsqueeze"), "Mul")
		failure := want(maker[pull.inputs[1]], "Mul") // the weighted error
		clean := want(maker[want(maker[failure.inputs[0]], "Sub").inputs[1]], "Sub")
		pulled := next(pull, "Sub")
		moved := next(next(pulled, "Mul"), "Sub")
		s := probeStep{x: clean.inputs[0], v: pulled.inputs[0], beta: n.outputs[0], next: next(moved, "Where").outputs[0]}
		if moved.inputs[0] != s.x || want(maker[clean.inputs[1]], "Mul").inputs[0] != s.v || len(p.steps) > 0 && p.steps[len(p.steps)-1].next != s.x {
			t.Fatalf("step %d does not hang together: %+v", len(p.steps), s)
		}
		p.weight, p.prefix = failure.inputs[1], maker[failure.inputs[0]].inputs[0]
		p.steps = append(p.steps, s)
	}
	if len(p.steps) != p.meta.NumSteps {
		t.Fatalf("%d steps in the graph, want the bundle's %d", len(p.steps), p.meta.NumSteps)
	}
}

// sample is one row of a probe's batch; the state is 0 and the pictures black.
type sample struct {
	Controls
	noise, prefix []float32
}

// run computes these values of all samples, each [len(samples)*size].
func (p *probe) run(t *testing.T, samples []sample, outputs ...string) map[string][]float32 {
	t.Helper()
	session := p.session(t, outputs)
	defer session.Destroy()
	results := make([]ort.Value, len(outputs))
	if err := session.Run(p.inputs(t, samples), results); err != nil {
		t.Fatal(err)
	}
	values := map[string][]float32{}
	for i, v := range results {
		values[outputs[i]] = slices.Clone(v.(*ort.Tensor[float32]).GetData())
		v.Destroy()
	}
	return values
}

// session opens the policy with these outputs in place of its own, so that only
// what leads to them is computed. A message of a protocol buffer that is appended
// to another is merged into it.
func (p *probe) session(t *testing.T, outputs []string) *ort.DynamicAdvancedSession {
	t.Helper()
	var more []byte
	for _, name := range outputs {
		more = field(more, graphOutput, field(nil, portName, []byte(name)))
	}
	options, err := Options{IntraThreads: 1}.session()
	if err != nil {
		t.Fatal(err)
	}
	defer options.Destroy()
	var model []byte
	fields(t, p.model, func(number protowire.Number, raw, graph []byte) {
		if number != modelGraph {
			model = append(model, raw...)
			return
		}
		fields(t, graph, func(number protowire.Number, raw, _ []byte) {
			if number != graphOutput {
				more = append(more, raw...)
			}
		})
	})
	model = field(model, modelGraph, more)
	session, err := ort.NewDynamicAdvancedSessionWithONNXData(model, portNames(p.meta.inputs()), outputs, options)
	if err != nil {
		t.Fatal(err)
	}
	return session
}

// inputs are the policy's, of all samples.
func (p *probe) inputs(t *testing.T, samples []sample) []ort.Value {
	t.Helper()
	var inputs []ort.Value
	batch := int64(len(samples))
	floats := func(shape []int64, of func(s *sample) []float32) ort.Value {
		size := ort.NewShape(append([]int64{batch}, shape...)...)
		data := make([]float32, size.FlattenedSize())
		each := len(data) / len(samples)
		for i := range samples {
			copy(data[i*each:(i+1)*each], of(&samples[i]))
		}
		return inputTensor(t, size, data)
	}
	ints := func(of func(c *Controls) int) ort.Value {
		data := make([]int64, batch)
		for i := range samples {
			data[i] = int64(of(&samples[i].Controls))
		}
		return inputTensor(t, ort.NewShape(batch), data)
	}
	for _, in := range p.meta.inputs() {
		var v ort.Value
		switch in.name {
		case inputState:
			v = floats(in.shape, func(*sample) []float32 { return nil })
		case inputNoise:
			v = floats(in.shape, func(s *sample) []float32 { return s.noise })
		case inputPrefix:
			v = floats(in.shape, func(s *sample) []float32 { return s.prefix })
		case inputBeta:
			v = floats(nil, func(s *sample) []float32 { return []float32{s.Beta} })
		case inputSigmaD:
			v = floats(nil, func(s *sample) []float32 { return []float32{s.SigmaD} })
		case inputPrefixLen:
			v = ints(func(c *Controls) int { return c.PrefixLen })
		case inputDelay:
			v = ints(func(c *Controls) int { return c.Delay })
		case inputPrefixEnd:
			v = ints(func(c *Controls) int { return c.PrefixEnd })
		case inputMode:
			v = ints(func(c *Controls) int { return int(c.Mode) })
		case inputSchedule:
			v = ints(func(c *Controls) int { return int(c.Schedule) })
		default:
			size := ort.NewShape(append([]int64{batch}, in.shape...)...)
			v = inputTensor(t, size, make([]uint8, size.FlattenedSize()))
		}
		inputs = append(inputs, v)
	}
	return inputs
}

func inputTensor[T ort.TensorData](t *testing.T, shape ort.Shape, data []T) ort.Value {
	t.Helper()
	v, err := ort.NewTensor(shape, data)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { v.Destroy() })
	return v
}

func portNames(ports []port) (names []string) {
	for _, p := range ports {
		names = append(names, p.name)
	}
	return names
}
