package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	ort "github.com/yalue/onnxruntime_go"
)

// anyBatch is the size that ONNX Runtime reports for a symbolic dimension.
const anyBatch = -1

// The names of the graph's inputs and outputs. A picture is "image." and the camera's name.
const (
	imagePrefix    = "image."
	inputState     = "state"
	inputNoise     = "noise"
	inputPrefix    = "prefix"
	inputPrefixLen = "prefix_len"
	inputDelay     = "delay"
	inputPrefixEnd = "prefix_end"
	inputMode      = "rtc_mode"
	inputBeta      = "beta"
	inputSchedule  = "schedule"
	inputSigmaD    = "sigma_d"
	inputTokens    = "tokens"
	inputTokenMask = "token_mask"

	outputModel = "chunk_model"
	outputRobot = "chunk_robot"
)

// graphs returns the files of the policy's graphs. The first graph takes the request.
func (m *Meta) graphs() []string {
	if m.Form == formSplit {
		return []string{prefixName, stepName}
	}
	return []string{graphName}
}

// DTypes are the types in which a graph may compute. The first is the default of bundle.json.
var DTypes = []string{"float32", "float16", "bfloat16"}

// dtype returns the type in which the graph computes. The types of its inputs and outputs do not depend on this type.
func (m *Meta) dtype() string { return cmp.Or(m.DType, DTypes[0]) }

// port is one input or output of a graph: its element type and its shape without
// the batch dimension.
type port struct {
	name  string
	kind  elementType
	shape []int64
}

// elementType is the type of a tensor's elements.
type elementType ort.TensorElementDataType

// The types of inputs and outputs. Tensors between two graphs may also have the last two types.
const (
	float32s  elementType = ort.TensorElementDataTypeFloat
	uint8s    elementType = ort.TensorElementDataTypeUint8
	int64s    elementType = ort.TensorElementDataTypeInt64
	bools     elementType = ort.TensorElementDataTypeBool
	float16s  elementType = ort.TensorElementDataTypeFloat16
	bfloat16s elementType = ort.TensorElementDataTypeBFloat16
)

// elements gives each type its name, its size in bytes, and its name in a golden set's file.
var elements = map[elementType]struct {
	name  string
	bytes int
	file  string
}{
	float32s:  {"float32", 4, "F32"},
	uint8s:    {"uint8", 1, "U8"},
	int64s:    {"int64", 8, "I64"},
	bools:     {"bool", 1, "BOOL"},
	float16s:  {"float16", 2, "F16"},
	bfloat16s: {"bfloat16", 2, "BF16"},
}

func (t elementType) String() string {
	return cmp.Or(elements[t].name, fmt.Sprintf("element type %d", int(t)))
}

func (p port) String() string {
	return fmt.Sprintf("%s %s %v", p.name, p.kind, append([]int64{anyBatch}, p.shape...))
}

// rowBytes returns the size of a row.
func (p port) rowBytes() int {
	bytes := elements[p.kind].bytes
	for _, d := range p.shape {
		bytes *= int(d)
	}
	return bytes
}

// inputs returns the inputs that the graph must have, in a fixed order.
func (m *Meta) inputs() []port {
	var ports []port
	for _, c := range m.Cameras {
		ports = append(ports, port{imagePrefix + c.Name, uint8s, m.observed(int64(c.H), int64(c.W), 3)})
	}
	rows := int64(m.ChunkSize)
	ports = append(ports, port{inputState, float32s, m.observed(int64(len(m.StateNames)))})
	if m.Tokenizer != nil {
		length := []int64{int64(m.Tokenizer.MaxLen)}
		ports = append(ports, port{inputTokens, int64s, length}, port{inputTokenMask, bools, length})
	}
	if m.NoiseDim > 0 {
		ports = append(ports, port{inputNoise, float32s, []int64{int64(m.noiseRows()), int64(m.NoiseDim)}})
	}
	if m.RTC != "none" {
		ports = append(ports, port{inputPrefix, float32s, []int64{rows, int64(m.ActionDim)}})
		for _, name := range []string{inputPrefixLen, inputDelay, inputPrefixEnd, inputMode} {
			ports = append(ports, port{name, int64s, nil})
		}
		ports = append(ports, port{inputBeta, float32s, nil})
	}
	if m.scheduled() {
		ports = append(ports, port{inputSchedule, int64s, nil}, port{inputSigmaD, float32s, nil})
	}
	return ports
}

// observed returns the shape of a graph's input whose values have the given shape in each observation. A policy with
// a history takes the values of Steps observations, the oldest first.
func (m *Meta) observed(shape ...int64) []int64 {
	if m.Steps() > 1 {
		return append([]int64{int64(m.Steps())}, shape...)
	}
	return shape
}

func (m *Meta) outputs() []port {
	shape := []int64{int64(m.ChunkSize), int64(m.ActionDim)}
	return []port{
		{outputModel, float32s, shape},
		{outputRobot, float32s, shape},
	}
}

func comparePorts(side string, want []port, have []ort.InputOutputInfo) error {
	var errs []error
	for _, p := range want {
		i := slices.IndexFunc(have, func(info ort.InputOutputInfo) bool { return info.Name == p.name })
		if i < 0 {
			errs = append(errs, fmt.Errorf("the graph has no %s %s", side, p))
		} else if err := comparePort(p, have[i]); err != nil {
			errs = append(errs, fmt.Errorf("%s %w", side, err))
		}
	}
	for _, info := range have {
		if !slices.ContainsFunc(want, func(p port) bool { return p.name == info.Name }) {
			errs = append(errs, fmt.Errorf("the graph has an %s %s that %s does not imply", side, info.Name,
				manifestName))
		}
	}
	return errors.Join(errs...)
}

func comparePort(want port, have ort.InputOutputInfo) error {
	got := port{have.Name, elementType(have.DataType), nil}
	if !isTensor(have) || len(have.Dimensions) == 0 {
		return fmt.Errorf("%s is not a tensor with a batch dimension, want %s", have.Name, want)
	}
	got.shape = have.Dimensions[1:]
	if got.kind != want.kind || !slices.Equal(got.shape, want.shape) {
		return fmt.Errorf("%s: want %s", got, want)
	}
	if have.Dimensions[0] != anyBatch {
		return fmt.Errorf("%s has a batch of %d, want a dynamic one", have.Name, have.Dimensions[0])
	}
	return nil
}

func isTensor(info ort.InputOutputInfo) bool { return info.OrtValueType == ort.ONNXTypeTensor }

func (p port) dtype() string { return elements[p.kind].file }

func portNames(ports []port) (names []string) {
	for _, p := range ports {
		names = append(names, p.name)
	}
	return names
}
