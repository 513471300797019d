// Package pickle reads and writes the few pickles that LeRobot's released policy server and
// robot client exchange.
//
// A pickle is a program, and Python's reader runs it: it imports and calls any function that the sender names. This
// reader runs nothing. It has a closed table of opcodes (decode.go) and a closed table of names (table.go): LeRobot's
// dataclasses, numeric NumPy arrays and scalars, torch's CPU tensors. It builds their values itself. Any other opcode
// or name ends the reading with an error that names it. The memory that a pickle takes is bounded by its own length and
// by the constants below.
//
// A Value is one of nil, bool, int64, float64, string, []byte, *List, *Tuple, *Dict, *Object and
// *Array. Bytes and the data of arrays are parts of the source. A list or a dict may contain itself, so walk
// through values only to a bounded depth.
//
// Source: Python's Lib/pickletools.py and Lib/pickle.py; NumPy's __reduce__ of ndarray, dtype and
// scalars; torch's legacy serialization (torch/serialization.py, _legacy_save).
package pickle

import (
	"errors"
	"fmt"
	"strings"
)

// Value is a decoded value; the package's comment lists its types.
type Value any

// List is a Python list.
type List struct{ Items []Value }

// Tuple is a Python tuple.
type Tuple struct{ Items []Value }

// Dict is a Python dict with text keys, in the order of the first insertions.
type Dict struct {
	Keys   []string
	Values []Value
	index  map[string]int
}

// Get returns the value of key, or nil without such a key.
func (d *Dict) Get(key string) Value {
	if i, ok := d.index[key]; ok {
		return d.Values[i]
	}
	return nil
}

// Set replaces or adds the value of key.
func (d *Dict) Set(key string, v Value) {
	if i, known := d.index[key]; known {
		d.Values[i] = v
		return
	}
	if d.index == nil {
		d.index = make(map[string]int)
	}
	d.index[key] = len(d.Keys)
	d.Keys = append(d.Keys, key)
	d.Values = append(d.Values, v)
}

// Object is an instance of a class of the table, with its attributes, or a member of an enumeration, with its value in
// Args.
type Object struct {
	Class string // name of the class without its module
	State *Dict  // nil: it has no attributes
	Args  []Value
}

// Bounds of a pickle. A message of LeRobot with 100 joints and 4000 actions is within all of them.
const (
	maxBytes = 64 << 20 // bytes of the source
	maxOps   = 1 << 18  // opcodes, including those of archives; each opcode makes at most one value
	maxMarks = 64       // nested MARKs
	maxText  = 4096     // bytes of a text
)

// Errors of Decode.
var (
	ErrMalformed = errors.New("pickle: malformed")
	ErrTooLarge  = errors.New("pickle: too large")
	ErrOpcode    = errors.New("pickle: opcode outside the table")
	ErrGlobal    = errors.New("pickle: name outside the table")
)

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
}

// Brief describes a value for the text of an error: a number by its value, a text by its beginning,
// any other value by its type.
func Brief(v Value) string {
	switch v := v.(type) {
	case nil:
		return "missing or None"
	case bool, int64, float64:
		return fmt.Sprint(v)
	case string:
		return fmt.Sprintf("%.40q", v)
	case []byte:
		return "bytes"
	case *List:
		return fmt.Sprintf("a list of %d", len(v.Items))
	case *Array:
		return fmt.Sprintf("an array %s %v", v.Type, v.Shape)
	case *Object:
		return "a " + v.Class
	}
	return "a " + strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", v), "*pickle."))
}

func tooLarge(what string, got, most int) error {
	return fmt.Errorf("%w: got %d %s, want at most %d", ErrTooLarge, got, what, most)
}
