package pickle

import (
	"encoding/binary"
	"math"
)

// Append appends the pickle of v, protocol 4. An Object is written as an instance of a class in LeRobot's module of
// messages. It panics on a value that the package's comment does not list.
func Append(dst []byte, v Value) []byte {
	dst = append(dst, byte(opProto), 4)
	return append(appendValue(dst, v), byte(opStop))
}

func appendValue(dst []byte, v Value) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, byte(opNone))
	case bool:
		if v {
			return append(dst, byte(opNewTrue))
		}
		return append(dst, byte(opNewFalse))
	case int64:
		return appendInt(dst, v)
	case float64:
		return appendFloat(dst, v)
	case string:
		return appendText(dst, v)
	case []byte:
		return appendBytes(dst, v)
	case *List:
		dst = append(dst, byte(opEmptyList), byte(opMark))
		return append(appendAll(dst, v.Items), byte(opAppends))
	case *Tuple:
		return append(appendAll(append(dst, byte(opMark)), v.Items), byte(opTuple))
	case *Dict:
		dst = append(dst, byte(opEmptyDict), byte(opMark))
		for i, key := range v.Keys {
			dst = appendValue(appendText(dst, key), v.Values[i])
		}
		return append(dst, byte(opSetItems))
	case *Object:
		dst = append(appendName(dst, helpers, v.Class), byte(opEmptyTuple), byte(opNewObj))
		return append(appendValue(dst, v.State), byte(opBuild))
	case *Array:
		return appendArray(dst, v)
	}
	panic("pickle: a value of an unknown type")
}

func appendAll(dst []byte, values []Value) []byte {
	for _, v := range values {
		dst = appendValue(dst, v)
	}
	return dst
}

// appendInt appends an integer. A number beyond 32 bits is written as LONG1.
func appendInt(dst []byte, n int64) []byte {
	if n == int64(int32(n)) {
		return binary.LittleEndian.AppendUint32(append(dst, byte(opBinInt)), uint32(n))
	}
	return binary.LittleEndian.AppendUint64(append(dst, byte(opLong1), 8), uint64(n))
}

func appendFloat(dst []byte, f float64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, byte(opBinFloat)), math.Float64bits(f))
}

func appendText(dst []byte, s string) []byte {
	dst = binary.LittleEndian.AppendUint32(append(dst, byte(opBinUnicode)), uint32(len(s)))
	return append(dst, s...)
}

func appendBytes(dst, b []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(append(dst, byte(opBinBytes)), uint32(len(b)))
	return append(dst, b...)
}

func appendName(dst []byte, module, name string) []byte {
	return append(appendText(appendText(dst, module), name), byte(opStackGlob))
}

// appendArray appends a NumPy array in a form that both NumPy 1 and NumPy 2 read.
func appendArray(dst []byte, a *Array) []byte {
	dst = appendName(dst, "numpy.core.multiarray", "_reconstruct")
	dst = appendInt(appendName(dst, "numpy", "ndarray"), 0)
	dst = appendBytes(append(dst, byte(opTuple1)), []byte("b"))
	dst = append(dst, byte(opTuple3), byte(opReduce), byte(opMark))
	dst = appendInt(dst, 1)
	dst = append(dst, byte(opMark))
	for _, n := range a.Shape {
		dst = appendInt(dst, int64(n))
	}
	dst = appendText(appendName(append(dst, byte(opTuple)), "numpy", "dtype"), a.Type)
	dst = append(dst, byte(opNewFalse), byte(opNewTrue), byte(opTuple3), byte(opReduce), byte(opMark))
	order := "<"
	if sizes[a.Type] == 1 {
		order = "|"
	}
	dst = appendText(appendInt(dst, 3), order)
	dst = append(dst, byte(opNone), byte(opNone), byte(opNone))
	dst = appendInt(appendInt(appendInt(dst, -1), -1), 0)
	dst = append(dst, byte(opTuple), byte(opBuild), byte(opNewFalse))
	return append(appendBytes(dst, a.Data), byte(opTuple), byte(opBuild))
}

// Actions is a chunk of actions for LeRobot's client, which executes row i at step First + i.
type Actions struct {
	Timestamp float64   // time of row 0, in s
	Interval  float64   // time between rows, in s
	First     int64     // step of row 0
	Cols      int       // values of an action
	Data      []float32 // rows of Cols values
}

// machine, storageHead and storageTail are parts of torch's archive. The number of elements is between the last two.
const (
	machine = "\x80\x02}(X\x10\x00\x00\x00protocol_versionM\xe9\x03X\r\x00\x00\x00little_endian\x88" +
		"X\n\x00\x00\x00type_sizes}(X\x05\x00\x00\x00shortK\x02X\x03\x00\x00\x00intK\x04X\x04\x00\x00\x00longK\x04uu."
	storageHead = "\x80\x02(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu"
	storageTail = "NtQ.\x80\x02]X\x01\x00\x00\x000a."
)

// AppendActions appends the pickle of a list of TimedAction with float32 tensors. All tensors are views of one storage,
// which the pickle contains once.
func AppendActions(dst []byte, a *Actions) []byte {
	dst = append(dst, byte(opProto), 4, byte(opEmptyList), byte(opMark))
	for i := range len(a.Data) / max(a.Cols, 1) {
		dst = a.appendRow(dst, i)
	}
	return append(dst, byte(opAppends), byte(opStop))
}

// appendRow appends a row. Row 0 makes memos of the values that all rows share: 0 the class, 1 the
// function that builds a tensor, 2 the tensor's storage, 3 the type of its hooks.
func (a *Actions) appendRow(dst []byte, i int) []byte {
	shared := func(memo byte, define func()) {
		if i > 0 {
			dst = append(dst, byte(opBinGet), memo)
			return
		}
		define()
		dst = append(dst, byte(opMemoize))
	}
	shared(0, func() { dst = appendName(dst, helpers, "TimedAction") })
	dst = append(dst, byte(opEmptyTuple), byte(opNewObj), byte(opEmptyDict), byte(opMark))
	dst = appendFloat(appendText(dst, "timestamp"), a.Timestamp+float64(i)*a.Interval)
	dst = appendInt(appendText(dst, "timestep"), a.First+int64(i))
	dst = appendText(dst, "action")
	shared(1, func() { dst = appendName(dst, "torch._utils", "_rebuild_tensor_v2") })
	dst = append(dst, byte(opMark))
	shared(2, func() {
		dst = appendBytes(appendName(dst, "torch.storage", "_load_from_bytes"), appendArchive(nil, a.Data))
		dst = append(dst, byte(opTuple1), byte(opReduce))
	})
	dst = append(appendInt(appendInt(dst, int64(i*a.Cols)), int64(a.Cols)), byte(opTuple1)) // offset, size
	dst = append(appendInt(dst, 1), byte(opTuple1), byte(opNewFalse))                       // stride, no gradient
	shared(3, func() { dst = appendName(dst, "collections", "OrderedDict") })
	dst = append(dst, byte(opEmptyTuple), byte(opReduce), byte(opTuple), byte(opReduce))
	return append(dst, byte(opSetItems), byte(opBuild))
}

// appendArchive appends a storage in torch's legacy archive format.
func appendArchive(dst []byte, data []float32) []byte {
	dst = append(append(dst, archiveHead...), machine...)
	dst = appendInt(append(dst, storageHead...), int64(len(data)))
	dst = append(dst, storageTail...)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(len(data)))
	for _, f := range data {
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(f))
	}
	return dst
}
