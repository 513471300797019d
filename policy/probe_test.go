package policy

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	ort "github.com/yalue/onnxruntime_go"
	"google.golang.org/protobuf/encoding/protowire"
)

// Those fields of ONNX's messages that the tests use. Source: onnx.proto of ONNX 1.17.
const (
	modelGraph  = 7
	graphNode   = 1
	graphOutput = 12
	nodeInput   = 1
	nodeOutput  = 2
	nodeOp      = 4
	portName    = 1
)

// probe is an exported policy with its intermediate values as outputs. The names of these tensors change with every
// export, so find finds them by the operations that use them.
type probe struct {
	meta  *Meta
	model []byte

	weight, prefix string // guidance weight, [B, H, 1]; prefix in the model's units, [B, H, D]
	steps          []probeStep
}

// probeStep has the names of the tensors of one Euler step, which starts at x, moves along v and ends at next. beta
// times the weight pulls the step towards the prefix.
type probeStep struct{ x, v, beta, next string }

// graphPart is one node of a graph.
type graphPart struct {
	op      string
	inputs  []string
	outputs []string
}

// openProbe reads the bundle's policy and finds the tensors of RTC in it.
func openProbe(t *testing.T, dir string) *probe {
	t.Helper()
	needRuntime(t)
	b := rttest.Must(LoadBundle(dir))(t)
	model := rttest.Must(os.ReadFile(filepath.Join(dir, graphName)))(t)
	p := &probe{meta: &b.Meta, model: model}
	p.find(t, nodesOf(t, model))
	return p
}

// field appends one field of bytes.
func field(dst []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(dst, number, protowire.BytesType), value)
}

// fields calls f with every field of a message. raw is the whole field with its tag; value is its content if the field
// has the type bytes.
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

// find finds each step by its node Min(beta, limit). From this node on, the nodes of a step are: Unsqueeze, Mul with
// the weighted error, Sub from the velocity, Mul with the step's size, Sub from x, and Where for the rows that are
// held.
func (p *probe) find(t *testing.T, nodes []*graphPart) {
	t.Helper()
	maker, user := map[string]*graphPart{}, map[string]*graphPart{}
	for _, n := range nodes {
		for _, name := range n.outputs {
			maker[name] = n
		}
		for _, name := range n.inputs {
			// the node that uses a tensor; each tensor that is looked up below has only one such
			// node
			user[name] = n
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
		s := probeStep{
			x:    clean.inputs[0],
			v:    pulled.inputs[0],
			beta: n.outputs[0],
			next: next(moved, "Where").outputs[0],
		}
		if moved.inputs[0] != s.x || want(maker[clean.inputs[1]], "Mul").inputs[0] != s.v || len(p.steps) > 0 &&
			p.steps[len(p.steps)-1].next != s.x {
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

// run computes the outputs for all samples, and returns each output as [len(samples)*size].
func (p *probe) run(t *testing.T, samples []sample, outputs ...string) map[string][]float32 {
	t.Helper()
	model := p.graph(t, outputs)
	tensor := func(kind elementType, shape ort.Shape, data []byte) ort.Value {
		value := rttest.Must(ort.NewCustomDataTensor(shape, data, ort.TensorElementDataType(kind)))(t)
		t.Cleanup(func() { value.Destroy() })
		return value
	}
	var inputs, given []ort.Value
	for _, in := range p.meta.inputs() {
		data := p.input(t, in, samples)
		inputs = append(inputs, tensor(in.kind, append([]int64{int64(len(samples))}, in.shape...), data))
	}
	_, infos, err := ort.GetInputOutputInfoWithONNXData(model)
	rttest.Do(t, err)
	values, names := map[string][]float32{}, []string(nil)
	for _, out := range infos {
		for i, d := range out.Dimensions {
			if d < 0 {
				out.Dimensions[i] = int64(len(samples)) // only the batch dimension is open
			}
		}
		values[out.Name] = make([]float32, out.Dimensions.FlattenedSize())
		value := rttest.Must(ort.NewTensor(out.Dimensions, values[out.Name]))(t)
		t.Cleanup(func() { value.Destroy() })
		given, names = append(given, value), append(names, out.Name)
	}
	options := rttest.Must(Options{IntraThreads: 1}.session())(t)
	defer options.Destroy()
	session := rttest.Must(ort.NewAdvancedSessionWithONNXData(model, portNames(p.meta.inputs()), names, inputs, given,
		options))(t)
	defer session.Destroy()
	rttest.Do(t, session.Run())
	return values
}

// graph returns the policy's graph with the given outputs in place of its own, so that only the nodes that lead to
// these outputs run. Two protocol buffer messages merge when one is appended to the other.
func (p *probe) graph(t *testing.T, outputs []string) (model []byte) {
	t.Helper()
	var more []byte
	for _, name := range outputs {
		more = field(more, graphOutput, field(nil, portName, []byte(name)))
	}
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
	return field(model, modelGraph, more)
}

// input returns one input of the policy for all samples.
func (p *probe) input(t *testing.T, in port, samples []sample) (data []byte) {
	t.Helper()
	size := 1
	for _, d := range in.shape {
		size *= int(d)
	}
	for i := range samples {
		s := &samples[i]
		var value any
		switch in.name {
		case inputState:
			value = make([]float32, size)
		case inputNoise:
			value = append(slices.Clone(s.noise), make([]float32, size-len(s.noise))...)
		case inputPrefix:
			value = append(slices.Clone(s.prefix), make([]float32, size-len(s.prefix))...)
		case inputBeta:
			value = s.Beta
		case inputSigmaD:
			value = s.SigmaD
		case inputPrefixLen:
			value = int64(s.PrefixLen)
		case inputDelay:
			value = int64(s.Delay)
		case inputPrefixEnd:
			value = int64(s.PrefixEnd)
		case inputMode:
			value = int64(s.Mode)
		case inputSchedule:
			value = int64(s.Schedule)
		default:
			value = make([]uint8, size)
		}
		data = rttest.Must(binary.Append(data, binary.NativeEndian, value))(t)
	}
	return data
}
