package pickle

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf8"
)

// opcode is one byte of a pickle's program.
type opcode byte

// The opcodes that are read.
const (
	opMark       opcode = '('
	opStop       opcode = '.'
	opBinInt     opcode = 'J'
	opBinInt1    opcode = 'K'
	opBinInt2    opcode = 'M'
	opNone       opcode = 'N'
	opBinPersID  opcode = 'Q' // used in torch's archives only
	opReduce     opcode = 'R'
	opBinUnicode opcode = 'X'
	opAppend     opcode = 'a'
	opBuild      opcode = 'b'
	opGlobal     opcode = 'c'
	opEmptyDict  opcode = '}'
	opAppends    opcode = 'e'
	opBinGet     opcode = 'h'
	opLongGet    opcode = 'j'
	opEmptyList  opcode = ']'
	opBinPut     opcode = 'q'
	opLongPut    opcode = 'r'
	opSetItem    opcode = 's'
	opTuple      opcode = 't'
	opEmptyTuple opcode = ')'
	opSetItems   opcode = 'u'
	opBinFloat   opcode = 'G'
	opBinBytes   opcode = 'B'
	opShortBytes opcode = 'C'
	opProto      opcode = 0x80
	opNewObj     opcode = 0x81
	opTuple1     opcode = 0x85
	opTuple2     opcode = 0x86
	opTuple3     opcode = 0x87
	opNewTrue    opcode = 0x88
	opNewFalse   opcode = 0x89
	opLong1      opcode = 0x8a
	opShortText  opcode = 0x8c
	opText8      opcode = 0x8d
	opBytes8     opcode = 0x8e
	opStackGlob  opcode = 0x93
	opMemoize    opcode = 0x94
	opFrame      opcode = 0x95
	opByteArray8 opcode = 0x96
)

// refused has the names of opcodes that this reader does not support, for the text of an error.
var refused = map[opcode]string{
	'0': "POP", '1': "POP_MARK", '2': "DUP", 'F': "FLOAT", 'I': "INT", 'L': "LONG", 'P': "PERSID", 'S': "STRING",
	'T': "BINSTRING", 'U': "SHORT_BINSTRING", 'V': "UNICODE", 'd': "DICT", 'g': "GET", 'i': "INST", 'l': "LIST",
	'o': "OBJ", 'p': "PUT", 'Q': "BINPERSID", 0x82: "EXT1", 0x83: "EXT2", 0x84: "EXT4", 0x8b: "LONG4",
	0x8f: "EMPTY_SET", 0x90: "ADDITEMS", 0x91: "FROZENSET", 0x92: "NEWOBJ_EX", 0x97: "NEXT_BUFFER",
	0x98: "READONLY_BUFFER",
}

// budget bounds the work of decoding a pickle, including the archives in it.
type budget struct {
	ops    int
	copied int // bytes of arrays that the decoder may still copy into another order
}

// spend takes n bytes for a copy from the budget. All copies together may be as large as the message, which is enough
// to copy each array once. Without this bound, a hostile pickle could make the decoder copy one array many times.
func (b *budget) spend(n int) error {
	if b.copied -= n; b.copied < 0 {
		return tooLarge("bytes too many of copied arrays", -b.copied, 0)
	}
	return nil
}

// decoder is the state of the pickle's program: a stack of values, marks at positions of the stack, and the memo.
type decoder struct {
	*budget
	src   []byte
	at    int
	torch bool // the pickle is in a torch archive, which has persistent ids
	stack []Value
	marks []int
	memo  []Value
}

// Decode reads the pickle at the beginning of src.
func Decode(src []byte) (Value, error) {
	if len(src) > maxBytes {
		return nil, tooLarge("bytes", len(src), maxBytes)
	}
	d := &decoder{src: src, budget: &budget{copied: len(src)}}
	v, err := d.run()
	switch v.(type) {
	case global, *dtype, *storage:
		return nil, malformed("its value is a part of another one")
	}
	return v, err
}

// run reads opcodes up to STOP.
func (d *decoder) run() (Value, error) {
	for {
		if d.ops++; d.ops > maxOps {
			return nil, tooLarge("opcodes", d.ops, maxOps)
		}
		b, err := d.take(1)
		if err != nil {
			return nil, err
		}
		op := opcode(b[0])
		if op == opStop {
			if len(d.stack) != 1 || len(d.marks) != 0 {
				return nil, malformed("STOP with %d values and %d marks, want one value", len(d.stack), len(d.marks))
			}
			return d.stack[0], nil
		}
		if err := d.step(op); err != nil {
			return nil, err
		}
	}
}

func (d *decoder) take(n int) ([]byte, error) {
	if n > len(d.src)-d.at {
		return nil, malformed("it ends at byte %d, where %d more are announced", len(d.src), n)
	}
	b := d.src[d.at : d.at+n : d.at+n]
	d.at += n
	return b, nil
}

// fixed reads a number of width bytes.
func (d *decoder) fixed(width int) (uint64, error) {
	b, err := d.take(width)
	return unsigned(b), err
}

// counted reads a length of width bytes, and then as many bytes as this length.
func (d *decoder) counted(width int) ([]byte, error) {
	n, err := d.fixed(width)
	if err != nil {
		return nil, err
	}
	if n > uint64(len(d.src)-d.at) {
		return nil, malformed("%d bytes are announced at byte %d, %d follow", n, d.at, len(d.src)-d.at)
	}
	return d.take(int(n))
}

func (d *decoder) step(op opcode) error {
	switch op {
	case opMark, opProto, opFrame, opMemoize, opBinPut, opLongPut, opBinGet, opLongGet:
		return d.control(op)
	case opAppend, opAppends, opSetItem, opSetItems, opBuild:
		return d.fill(op)
	}
	v, err := d.value(op)
	if err == nil {
		d.stack = append(d.stack, v)
	}
	return err
}

// control runs an opcode that makes no value.
func (d *decoder) control(op opcode) error {
	switch op {
	case opMark:
		if len(d.marks) >= maxMarks {
			return tooLarge("nested marks", len(d.marks)+1, maxMarks)
		}
		d.marks = append(d.marks, len(d.stack))
		return nil
	case opProto:
		n, err := d.fixed(1)
		if err == nil && (n < 2 || n > 5) {
			err = malformed("protocol %d, want 2 to 5", n)
		}
		return err
	case opFrame:
		n, err := d.fixed(8)
		if err == nil && n > uint64(len(d.src)-d.at) {
			err = malformed("a frame of %d bytes, %d follow", n, len(d.src)-d.at)
		}
		return err
	case opMemoize:
		return d.put(uint64(len(d.memo)))
	}
	width := 4
	if op == opBinPut || op == opBinGet {
		width = 1
	}
	i, err := d.fixed(width)
	switch {
	case err != nil:
		return err
	case op == opBinPut || op == opLongPut:
		return d.put(i)
	case i >= uint64(len(d.memo)):
		return malformed("memo %d of %d", i, len(d.memo))
	}
	d.stack = append(d.stack, d.memo[i])
	return nil
}

// put stores the newest value as memo i. It refuses a number that leaves a gap, because writers number their memos
// without gaps.
func (d *decoder) put(i uint64) error {
	v, err := d.top()
	switch n := uint64(len(d.memo)); {
	case err != nil:
		return err
	case i > n:
		return malformed("memo %d after %d", i, n)
	case i == n:
		d.memo = append(d.memo, v)
	default:
		d.memo[i] = v
	}
	return nil
}

// floor is the number of values below the innermost mark.
func (d *decoder) floor() int {
	if len(d.marks) == 0 {
		return 0
	}
	return d.marks[len(d.marks)-1]
}

func (d *decoder) top() (Value, error) {
	if len(d.stack) <= d.floor() {
		return nil, malformed("no value on the stack at byte %d", d.at)
	}
	return d.stack[len(d.stack)-1], nil
}

// pop removes the top n values from the stack and returns them. The caller copies them, because the stack reuses their
// place.
func (d *decoder) pop(n int) ([]Value, error) {
	if len(d.stack)-d.floor() < n {
		return nil, malformed("%d values are wanted at byte %d, the stack has %d", n, d.at, len(d.stack)-d.floor())
	}
	at := len(d.stack) - n
	values := d.stack[at:]
	d.stack = d.stack[:at]
	return values, nil
}

// popMark removes the innermost mark and the values above it, and returns the values.
func (d *decoder) popMark() ([]Value, error) {
	if len(d.marks) == 0 {
		return nil, malformed("no mark at byte %d", d.at)
	}
	values := d.stack[d.floor():]
	d.stack = d.stack[:d.floor()]
	d.marks = d.marks[:len(d.marks)-1]
	return values, nil
}

// value runs an opcode that makes one value.
func (d *decoder) value(op opcode) (Value, error) {
	switch op {
	case opNone:
		return nil, nil
	case opNewTrue:
		return true, nil
	case opNewFalse:
		return false, nil
	case opBinInt, opBinInt1, opBinInt2, opLong1, opBinFloat:
		return d.number(op)
	case opShortText, opBinUnicode, opText8, opShortBytes, opBinBytes, opBytes8, opByteArray8:
		return d.bytes(op)
	case opEmptyList:
		return &List{}, nil
	case opEmptyDict:
		return &Dict{}, nil
	case opEmptyTuple:
		return &Tuple{}, nil
	case opTuple1, opTuple2, opTuple3:
		return newTuple(d.pop(int(op-opTuple1) + 1))
	case opTuple:
		return newTuple(d.popMark())
	case opGlobal, opStackGlob, opReduce, opNewObj:
		return d.named(op)
	case opBinPersID:
		if d.torch {
			return d.persistent()
		}
	}
	name, known := refused[op]
	if !known {
		return nil, malformed("byte %#02x at %d is no opcode", byte(op), d.at-1)
	}
	return nil, fmt.Errorf("%w: %s at byte %d", ErrOpcode, name, d.at-1)
}

func (d *decoder) number(op opcode) (Value, error) {
	var b []byte
	var err error
	switch op {
	case opBinInt1:
		b, err = d.take(1)
	case opBinInt2:
		b, err = d.take(2)
	case opBinInt:
		b, err = d.take(4)
	case opBinFloat:
		b, err = d.take(8)
	default:
		b, err = d.counted(1)
	}
	switch {
	case err != nil:
		return nil, err
	case len(b) > 8:
		return nil, tooLarge("bytes of an integer", len(b), 8)
	case op == opBinFloat:
		return math.Float64frombits(binary.BigEndian.Uint64(b)), nil
	case op == opBinInt || op == opLong1:
		return signed(b), nil
	}
	return int64(unsigned(b)), nil
}

// unsigned reads a little-endian number of at most 8 bytes.
func unsigned(b []byte) (n uint64) {
	for i := range b {
		n |= uint64(b[i]) << (8 * i)
	}
	return n
}

// signed reads a little-endian two's complement of at most 8 bytes.
func signed(b []byte) int64 {
	shift := 64 - 8*len(b)
	return int64(unsigned(b)) << shift >> shift
}

func (d *decoder) bytes(op opcode) (Value, error) {
	width := 8
	switch op {
	case opShortText, opShortBytes:
		width = 1
	case opBinUnicode, opBinBytes:
		width = 4
	}
	b, err := d.counted(width)
	if err != nil {
		return nil, err
	}
	switch op {
	case opShortText, opBinUnicode, opText8:
		return text(b)
	}
	return b, nil
}

func text(b []byte) (Value, error) {
	if len(b) > maxText {
		return nil, tooLarge("bytes of a text", len(b), maxText)
	}
	if !utf8.Valid(b) {
		return nil, malformed("a text is not UTF-8")
	}
	return string(b), nil
}

// named runs an opcode that creates a value from a name of the table.
func (d *decoder) named(op opcode) (Value, error) {
	if op == opGlobal {
		var lines [2]string
		for i := range lines {
			end := bytes.IndexByte(d.src[d.at:min(len(d.src), d.at+maxText)], '\n')
			if end < 0 {
				return nil, malformed("a name without its end at byte %d", d.at)
			}
			lines[i] = string(d.src[d.at : d.at+end])
			d.at += end + 1
		}
		return d.lookup(lines[0], lines[1])
	}
	two, err := d.pop(2)
	if err != nil {
		return nil, err
	}
	if op == opStackGlob {
		module, ok1 := two[0].(string)
		name, ok2 := two[1].(string)
		if !ok1 || !ok2 {
			return nil, malformed("STACK_GLOBAL of %T and %T, want two texts", two[0], two[1])
		}
		return d.lookup(module, name)
	}
	g, ok1 := two[0].(global)
	args, ok2 := two[1].(*Tuple)
	switch {
	case !ok1 || !ok2:
		return nil, malformed("%T applied to %T, want a name of the table and a tuple", two[0], two[1])
	case op == opNewObj:
		return g.instance(args.Items)
	}
	return d.reduce(g, args.Items)
}

// fill runs an opcode that adds the top values of the stack to the container below them.
func (d *decoder) fill(op opcode) error {
	var values []Value
	var err error
	switch op {
	case opAppend, opBuild:
		values, err = d.pop(1)
	case opSetItem:
		values, err = d.pop(2)
	default:
		values, err = d.popMark()
	}
	if err != nil {
		return err
	}
	into, err := d.top()
	if err != nil {
		return err
	}
	switch op {
	case opBuild:
		return d.build(into, values[0])
	case opAppend, opAppends:
		list, ok := into.(*List)
		if !ok {
			return malformed("items for a %T, want a list", into)
		}
		list.Items = append(list.Items, values...)
		return nil
	}
	dict, ok := into.(*Dict)
	if !ok || len(values)%2 != 0 {
		return malformed("%d keys and values for a %T, want pairs for a dict", len(values), into)
	}
	for i := 0; i < len(values); i += 2 {
		key, ok := values[i].(string)
		if !ok {
			return malformed("a key is a %T, want a text", values[i])
		}
		dict.Set(key, values[i+1])
	}
	return nil
}

func newTuple(items []Value, err error) (Value, error) {
	return &Tuple{Items: append([]Value(nil), items...)}, err
}
