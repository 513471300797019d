package ndarray

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"
)

// Bounds of a message's structure.
const (
	maxDepth = 16
	maxItems = 1 << 14 // items of all maps and lists of a message together
	maxKey   = 256     // bytes of a key, which errors may repeat
)

// The marks of arrays and of NumPy's scalars in a map. openpi writes its keys as bytes, GR00T as text.
//
// Source: openpi_client/msgpack_numpy.py, and gr00t/policy/server_client.py of Isaac-GR00T.
const (
	openpiArray  = "__ndarray__"
	openpiScalar = "__npgeneric__"
	groot        = "__ndarray_class__"
	grootNPY     = "as_npy"
)

// Map is a MessagePack map. A value is nil, bool, int64, uint64, float64, string, []byte, []any, Map
// or *Array.
type Map map[string]any

// Parse reads one MessagePack value, in which maps with the marks of openpi or GR00T are arrays. Byte strings and the
// data of arrays are parts of b. Extensions, keys that are no text, and bytes after the value are refused. Errors wrap
// ErrFormat and name the place in the message.
func Parse(b []byte) (any, error) {
	r := reader{b: b}
	v, err := r.value(0)
	if err == nil && len(r.b) > 0 {
		err = fmt.Errorf("%d bytes are left after the value", len(r.b))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s%w", ErrFormat, r.place(), err)
	}
	return v, nil
}

// ParseMap is Parse for a message that has to be a map.
func ParseMap(b []byte) (Map, error) {
	v, err := Parse(b)
	if err != nil {
		return nil, err
	}
	m, ok := v.(Map)
	if !ok {
		return nil, fmt.Errorf("%w: the message is %s, want a map", ErrFormat, Kind(v))
	}
	return m, nil
}

// reader reads values of one message.
type reader struct {
	b     []byte
	items int
	path  []string // keys that lead to the value that is being read
}

func (r *reader) place() string {
	if len(r.path) == 0 {
		return ""
	}
	return fmt.Sprintf("key %.80q: ", strings.Join(r.path, "/"))
}

func (r *reader) value(depth int) (v any, err error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("more than %d values within each other", maxDepth)
	}
	switch kind := msgp.NextType(r.b); kind {
	case msgp.MapType:
		return r.mapping(depth)
	case msgp.ArrayType:
		return r.list(depth)
	case msgp.BinType:
		v, r.b, err = msgp.ReadBytesZC(r.b)
	case msgp.StrType:
		var text string
		if text, r.b, err = msgp.ReadStringBytes(r.b); !utf8.ValidString(text) {
			err = errors.New("a text is not UTF-8")
		}
		v = text
	case msgp.BoolType:
		v, r.b, err = msgp.ReadBoolBytes(r.b)
	case msgp.IntType:
		v, r.b, err = msgp.ReadInt64Bytes(r.b)
	case msgp.UintType:
		v, r.b, err = msgp.ReadUint64Bytes(r.b)
	case msgp.Float32Type, msgp.Float64Type:
		v, r.b, err = msgp.ReadFloat64Bytes(r.b)
	case msgp.NilType:
		r.b, err = msgp.ReadNilBytes(r.b)
	default:
		err = fmt.Errorf("a value of the type %s, which is not read", kind)
	}
	return v, err
}

// take counts n announced items. It refuses them if the message then has more than maxItems items.
func (r *reader) take(n uint32) error {
	if r.items += int(n); r.items > maxItems {
		return fmt.Errorf("more than %d items", maxItems)
	}
	return nil
}

func (r *reader) list(depth int) (any, error) {
	n, rest, err := msgp.ReadArrayHeaderBytes(r.b)
	if err == nil {
		err = r.take(n)
	}
	if err != nil {
		return nil, err
	}
	r.b = rest
	list := make([]any, n)
	for i := range list {
		if list[i], err = r.value(depth + 1); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (r *reader) mapping(depth int) (any, error) {
	n, rest, err := msgp.ReadMapHeaderBytes(r.b)
	if err == nil {
		err = r.take(n)
	}
	if err != nil {
		return nil, err
	}
	r.b = rest
	m := make(Map, n)
	for range n {
		key, err := r.key()
		if err != nil {
			return nil, err
		}
		if _, twice := m[key]; twice {
			return nil, fmt.Errorf("key %.80q occurs twice", key)
		}
		r.path = append(r.path, key)
		if m[key], err = r.value(depth + 1); err != nil {
			return nil, err
		}
		r.path = r.path[:len(r.path)-1]
	}
	return m.special()
}

func (r *reader) key() (string, error) {
	switch kind := msgp.NextType(r.b); kind {
	case msgp.StrType, msgp.BinType:
		read := msgp.ReadStringZC
		if kind == msgp.BinType {
			read = msgp.ReadBytesZC
		}
		key, rest, err := read(r.b)
		if len(key) > maxKey {
			err = fmt.Errorf("a key of %d bytes, want at most %d", len(key), maxKey)
		}
		r.b = rest
		return string(key), err
	default:
		return "", fmt.Errorf("a key of the type %s, want text", kind)
	}
}

// special returns the array or number that m encodes. A map without the marks of arrays and numbers is returned as it
// is.
func (m Map) special() (any, error) {
	if _, ok := m[openpiArray]; ok {
		return m.openpi()
	}
	if _, ok := m[openpiScalar]; ok {
		return m["data"], nil
	}
	if _, ok := m[groot]; !ok {
		return m, nil
	}
	file, ok := m[grootNPY].([]byte)
	if !ok {
		return nil, fmt.Errorf("%s is %s, want bytes", grootNPY, Kind(m[grootNPY]))
	}
	a, err := parseNPY(file)
	if err != nil {
		return nil, err
	}
	return &a, nil
}

func (m Map) openpi() (any, error) {
	data, ok := m["data"].([]byte)
	if !ok {
		return nil, fmt.Errorf("the data of an array is %s, want bytes", Kind(m["data"]))
	}
	dtype, ok := m["dtype"].(string)
	if !ok {
		return nil, fmt.Errorf("the dtype of an array is %s, want text", Kind(m["dtype"]))
	}
	sides, ok := m["shape"].([]any)
	if !ok || len(sides) > maxDims {
		return nil, fmt.Errorf("the shape of an array is %s, want a list of at most %d", Kind(m["shape"]), maxDims)
	}
	a := &Array{DType: dtype, Data: data, Shape: make([]int, len(sides))}
	for i, side := range sides {
		n, ok := Number(side)
		if !ok || n < 0 || n > maxElements || n != math.Trunc(n) {
			return nil, fmt.Errorf("a side of an array is %.40s, want a whole number to %d", fmt.Sprint(side),
				maxElements)
		}
		a.Shape[i] = int(n)
	}
	if err := a.check(); err != nil {
		return nil, err
	}
	return a, nil
}

// Number returns v as a number.
func Number(v any) (n float64, ok bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case uint64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

// Kind returns a description of v's type, for the text of an error.
func Kind(v any) string {
	switch v := v.(type) {
	case nil:
		return "missing or nil"
	case bool:
		return "a bool"
	case int64, uint64, float64:
		return "a number"
	case string:
		return "text"
	case []byte:
		return "bytes"
	case []any:
		return fmt.Sprintf("a list of %d", len(v))
	case Map:
		return fmt.Sprintf("a map of %d", len(v))
	case *Array:
		return "an array " + v.String()
	}
	return fmt.Sprintf("%T", v)
}

// At returns the value of a key, or nil when it is missing. When m has no key "images.top", At("images.top") returns
// the entry "top" of the map "images" in m.
func (m Map) At(key string) any {
	if v, ok := m[key]; ok {
		return v
	}
	outer, rest, _ := strings.Cut(key, ".")
	inner, _ := m[outer].(Map)
	return inner[rest]
}

// Style is the form of the arrays in a message: openpi's or GR00T's.
type Style int

// The styles.
const (
	OpenPI Style = iota // a map of data, dtype and shape
	GR00T               // a map of an .npy file
)

// AppendArray appends an array in the form of the style. The length of data must be that of shape and dtype.
func (s Style) AppendArray(dst []byte, dtype string, shape []int, data []byte) []byte {
	if s == GR00T {
		prefix := npyPrefix(dtype, shape)
		dst = msgp.AppendMapHeader(dst, 2)
		dst = msgp.AppendBool(msgp.AppendString(dst, groot), true)
		dst = msgp.AppendString(dst, grootNPY)
		dst = msgp.AppendBytesHeader(dst, uint32(len(prefix)+len(data)))
		return append(append(dst, prefix...), data...)
	}
	dst = msgp.AppendMapHeader(dst, 4)
	dst = msgp.AppendBool(appendBytes(dst, openpiArray), true)
	dst = append(msgp.AppendBytesHeader(appendBytes(dst, "data"), uint32(len(data))), data...)
	dst = msgp.AppendString(appendBytes(dst, "dtype"), dtype)
	dst = msgp.AppendArrayHeader(appendBytes(dst, "shape"), uint32(len(shape)))
	for _, side := range shape {
		dst = msgp.AppendInt(dst, side)
	}
	return dst
}

func appendBytes(dst []byte, text string) []byte {
	return append(msgp.AppendBytesHeader(dst, uint32(len(text))), text...)
}
