// Package safetensors reads the files of golden sets and captured requests.
package safetensors

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

// Bounds of a file.
const (
	maxHeaderBytes = 1 << 20
	maxRank        = 8
)

// errFormat marks bytes that are not a safetensors file.
var errFormat = errors.New("not a safetensors file")

// Tensor is one array of a file. Data borrows from the file's bytes,
// little-endian.
type Tensor struct {
	DType string // U8, BOOL, I64, F32, F64
	Shape []int64
	Data  []byte
}

// metadataKey is the key of the only header entry that is not a tensor. Its value is a map of texts.
const metadataKey = "__metadata__"

var dtypeSize = map[string]int64{"U8": 1, "BOOL": 1, "I64": 8, "F32": 4, "F64": 8}

// Parse reads a file: 8 bytes of header length, a JSON header, then the data. Tensors must lie
// within the data without overlap and have exactly the bytes of their shape. Its errors wrap
// errFormat.
//
// Source: https://huggingface.co/docs/safetensors, section Format.
func Parse(file []byte) (metadata map[string]string, tensors map[string]Tensor, err error) {
	if len(file) < 8 {
		return nil, nil, fmt.Errorf("%w: %d bytes", errFormat, len(file))
	}
	size := binary.LittleEndian.Uint64(file)
	if size > maxHeaderBytes || size > uint64(len(file)-8) {
		return nil, nil, fmt.Errorf("%w: header of %d bytes in a file of %d, want at most %d", errFormat, size,
			len(file), maxHeaderBytes)
	}
	header, body := file[8:8+size], file[8+size:]
	var entries map[string]json.RawMessage
	if err := json.Unmarshal(header, &entries); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errFormat, err)
	}
	if raw, ok := entries[metadataKey]; ok {
		if err := json.Unmarshal(raw, &metadata); err != nil {
			return nil, nil, fmt.Errorf("%w: %s: %w", errFormat, metadataKey, err)
		}
		delete(entries, metadataKey)
	}
	tensors = make(map[string]Tensor, len(entries))
	spans := make([][2]int64, 0, len(entries))
	for name, raw := range entries {
		t, span, err := parseTensor(raw, body)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %q: %w", errFormat, name, err)
		}
		tensors[name] = t
		spans = append(spans, span)
	}
	return metadata, tensors, checkSpans(spans, int64(len(body)))
}

// checkSpans checks that the tensors' bytes follow each other from 0 to size.
func checkSpans(spans [][2]int64, size int64) error {
	slices.SortFunc(spans, func(a, b [2]int64) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	at := int64(0)
	for _, s := range spans {
		if s[0] != at {
			return fmt.Errorf("%w: data at %d..%d after a tensor that ends at %d", errFormat, s[0], s[1], at)
		}
		at = s[1]
	}
	if at != size {
		return fmt.Errorf("%w: tensors hold %d bytes of %d", errFormat, at, size)
	}
	return nil
}

func parseTensor(raw json.RawMessage, body []byte) (t Tensor, span [2]int64, err error) {
	var entry struct {
		DType   string   `json:"dtype"`
		Shape   []int64  `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&entry); err != nil {
		return Tensor{}, span, err
	}
	size, known := dtypeSize[entry.DType]
	if !known || len(entry.Shape) > maxRank {
		return Tensor{}, span, fmt.Errorf("dtype %q of rank %d, want U8, BOOL, I64, F32 or F64 of rank %d at most",
			entry.DType, len(entry.Shape), maxRank)
	}
	for _, dim := range entry.Shape {
		if dim < 0 || (dim > 0 && size > math.MaxInt64/dim) {
			return Tensor{}, span, fmt.Errorf("shape %v", entry.Shape)
		}
		size *= dim
	}
	begin, end := entry.Offsets[0], entry.Offsets[1]
	if begin < 0 || end < begin || end > int64(len(body)) || end-begin != size {
		return Tensor{}, span, fmt.Errorf("data at %d..%d of %d, want %d bytes", begin, end, len(body), size)
	}
	return Tensor{entry.DType, entry.Shape, body[begin:end]}, entry.Offsets, nil
}

// Values decodes a tensor of T's type: F32, I64 or BOOL.
func Values[T float32 | int64 | bool](t Tensor) []T {
	values := make([]T, len(t.Data)/binary.Size(*new(T)))
	_, _ = binary.Decode(t.Data, binary.LittleEndian, values) // the tensor has exactly the bytes of values
	return values
}
