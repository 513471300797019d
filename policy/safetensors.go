package policy

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Bounds of a golden file.
const (
	maxGoldenBytes = 1 << 30
	maxHeaderBytes = 1 << 20
	maxTensorRank  = 8
)

// errTensors is the sentinel of a file that is not a safetensors file.
var errTensors = errors.New("not a safetensors file")

// tensor is one array of a safetensors file. Data borrows from the file's bytes,
// little-endian.
type tensor struct {
	dtype string // U8, I64, F32, F64
	shape []int64
	data  []byte
}

var dtypeSize = map[string]int64{"U8": 1, "I64": 8, "F32": 4, "F64": 8}

// parseTensors reads a safetensors file: 8 bytes of header length, a JSON header,
// then the data. Tensors must lie within the data without overlap and hold exactly
// as many bytes as their shape says.
//
// Source: https://huggingface.co/docs/safetensors, section Format.
func parseTensors(file []byte) (map[string]tensor, error) {
	if len(file) < 8 {
		return nil, fmt.Errorf("%w: %d bytes", errTensors, len(file))
	}
	size := binary.LittleEndian.Uint64(file)
	if size > maxHeaderBytes || size > uint64(len(file)-8) {
		return nil, fmt.Errorf("%w: header of %d bytes in a file of %d, want at most %d", errTensors, size, len(file), maxHeaderBytes)
	}
	header, body := file[8:8+size], file[8+size:]
	var entries map[string]json.RawMessage
	if err := json.Unmarshal(header, &entries); err != nil {
		return nil, fmt.Errorf("%w: %w", errTensors, err)
	}
	delete(entries, "__metadata__")
	tensors := make(map[string]tensor, len(entries))
	spans := make([][2]int64, 0, len(entries))
	for name, raw := range entries {
		t, span, err := parseTensor(raw, body)
		if err != nil {
			return nil, fmt.Errorf("%w: %q: %w", errTensors, name, err)
		}
		tensors[name] = t
		spans = append(spans, span)
	}
	return tensors, checkSpans(spans, int64(len(body)))
}

// checkSpans wants the tensors' bytes to follow each other from 0 to size.
func checkSpans(spans [][2]int64, size int64) error {
	slices.SortFunc(spans, func(a, b [2]int64) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	at := int64(0)
	for _, s := range spans {
		if s[0] != at {
			return fmt.Errorf("%w: data at %d..%d after a tensor that ends at %d", errTensors, s[0], s[1], at)
		}
		at = s[1]
	}
	if at != size {
		return fmt.Errorf("%w: tensors hold %d bytes of %d", errTensors, at, size)
	}
	return nil
}

func parseTensor(raw json.RawMessage, body []byte) (t tensor, span [2]int64, err error) {
	var entry struct {
		DType   string   `json:"dtype"`
		Shape   []int64  `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&entry); err != nil {
		return tensor{}, span, err
	}
	size, known := dtypeSize[entry.DType]
	if !known || len(entry.Shape) > maxTensorRank {
		return tensor{}, span, fmt.Errorf("dtype %q of rank %d, want U8, I64, F32 or F64 of rank %d at most", entry.DType, len(entry.Shape), maxTensorRank)
	}
	for _, dim := range entry.Shape {
		if dim < 0 || (dim > 0 && size > math.MaxInt64/dim) {
			return tensor{}, span, fmt.Errorf("shape %v", entry.Shape)
		}
		size *= dim
	}
	begin, end := entry.Offsets[0], entry.Offsets[1]
	if begin < 0 || end < begin || end > int64(len(body)) || end-begin != size {
		return tensor{}, span, fmt.Errorf("data at %d..%d of %d, want %d bytes", begin, end, len(body), size)
	}
	return tensor{entry.DType, entry.Shape, body[begin:end]}, entry.Offsets, nil
}

// float32s decodes an F32 tensor.
func (t tensor) float32s() []float32 {
	values := make([]float32, len(t.data)/4)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(t.data[4*i:]))
	}
	return values
}

// int64s decodes an I64 tensor.
func (t tensor) int64s() []int64 {
	values := make([]int64, len(t.data)/8)
	for i := range values {
		values[i] = int64(binary.LittleEndian.Uint64(t.data[8*i:]))
	}
	return values
}
