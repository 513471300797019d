package pickle

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/edge-rt/edge-rt/wire/ndarray"
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
func (b *budget) spend(n int) {
	if b.copied -= n; b.copied < 0 {
		tooLarge("bytes too many of copied arrays", -b.copied, 0)
	}
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
func Decode(src []byte) (_ Value, err error) {
	defer ndarray.Catch(&err)
	if len(src) > maxBytes {
		tooLarge("bytes", len(src), maxBytes)
	}
	d := &decoder{src: src, budget: &budget{copied: len(src)}}
	v := d.run()
	switch v.(type) {
	case global, *dtype, *storage:
		malformed("its value is a part of another one")
	}
	return v, nil
}

// run reads opcodes up to STOP.
func (d *decoder) run() Value {
	for {
		if d.ops++; d.ops > maxOps {
			tooLarge("opcodes", d.ops, maxOps)
		}
		op := opcode(d.fixed(1))
		if op == opStop {
			if len(d.stack) != 1 || len(d.marks) != 0 {
				malformed("STOP with %d values and %d marks, want one value", len(d.stack), len(d.marks))
			}
			return d.stack[0]
		}
		d.step(op)
	}
}

func (d *decoder) take(n int) []byte {
	if n > len(d.src)-d.at {
		malformed("it ends at byte %d, where %d more are announced", len(d.src), n)
	}
	b := d.src[d.at : d.at+n : d.at+n]
	d.at += n
	return b
}

// fixed reads a number of width bytes.
func (d *decoder) fixed(width int) uint64 { return unsigned(d.take(width)) }

// counted reads a length of width bytes, and then as many bytes as this length.
func (d *decoder) counted(width int) []byte {
	n := d.fixed(width)
	if n > uint64(len(d.src)-d.at) {
		malformed("%d bytes are announced at byte %d, %d follow", n, d.at, len(d.src)-d.at)
	}
	return d.take(int(n))
}

func (d *decoder) step(op opcode) {
	switch op {
	case opMark, opProto, opFrame, opMemoize, opBinPut, opLongPut, opBinGet, opLongGet:
		d.control(op)
	case opAppend, opAppends, opSetItem, opSetItems, opBuild:
		d.fill(op)
	default:
		d.stack = append(d.stack, d.value(op))
	}
}

// control runs an opcode that makes no value.
func (d *decoder) control(op opcode) {
	switch op {
	case opMark:
		if len(d.marks) >= maxMarks {
			tooLarge("nested marks", len(d.marks)+1, maxMarks)
		}
		d.marks = append(d.marks, len(d.stack))
	case opProto:
		if n := d.fixed(1); n < 2 || n > 5 {
			malformed("protocol %d, want 2 to 5", n)
		}
	case opFrame:
		if n := d.fixed(8); n > uint64(len(d.src)-d.at) {
			malformed("a frame of %d bytes, %d follow", n, len(d.src)-d.at)
		}
	case opMemoize:
		d.put(uint64(len(d.memo)))
	case opBinPut:
		d.put(d.fixed(1))
	case opLongPut:
		d.put(d.fixed(4))
	case opBinGet:
		d.get(d.fixed(1))
	case opLongGet:
		d.get(d.fixed(4))
	}
}

// get pushes memo i.
func (d *decoder) get(i uint64) {
	if i >= uint64(len(d.memo)) {
		malformed("memo %d of %d", i, len(d.memo))
	}
	d.stack = append(d.stack, d.memo[i])
}

// put stores the newest value as memo i. It refuses a number that leaves a gap, because writers number their memos
// without gaps.
func (d *decoder) put(i uint64) {
	v := d.top()
	switch n := uint64(len(d.memo)); {
	case i > n:
		malformed("memo %d after %d", i, n)
	case i == n:
		d.memo = append(d.memo, v)
	default:
		d.memo[i] = v
	}
}

// floor is the number of values below the innermost mark.
func (d *decoder) floor() int {
	if len(d.marks) == 0 {
		return 0
	}
	return d.marks[len(d.marks)-1]
}

func (d *decoder) top() Value {
	if len(d.stack) <= d.floor() {
		malformed("no value on the stack at byte %d", d.at)
	}
	return d.stack[len(d.stack)-1]
}

// pop removes the top n values from the stack and returns them. The caller copies them, because the stack reuses their
// place.
func (d *decoder) pop(n int) []Value {
	if len(d.stack)-d.floor() < n {
		malformed("%d values are wanted at byte %d, the stack has %d", n, d.at, len(d.stack)-d.floor())
	}
	at := len(d.stack) - n
	values := d.stack[at:]
	d.stack = d.stack[:at]
	return values
}

// popMark removes the innermost mark and the values above it, and returns the values.
func (d *decoder) popMark() []Value {
	if len(d.marks) == 0 {
		malformed("no mark at byte %d", d.at)
	}
	values := d.stack[d.floor():]
	d.stack = d.stack[:d.floor()]
	d.marks = d.marks[:len(d.marks)-1]
	return values
}

// value runs an opcode that makes one value.
func (d *decoder) value(op opcode) Value {
	switch op {
	case opNone:
		return nil
	case opNewTrue:
		return true
	case opNewFalse:
		return false
	case opBinInt, opBinInt1, opBinInt2, opLong1, opBinFloat:
		return d.number(op)
	case opShortText, opBinUnicode, opText8, opShortBytes, opBinBytes, opBytes8, opByteArray8:
		return d.bytes(op)
	case opEmptyList:
		return &List{}
	case opEmptyDict:
		return &Dict{}
	case opEmptyTuple:
		return &Tuple{}
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
		malformed("byte %#02x at %d is no opcode", byte(op), d.at-1)
	}
	ndarray.Fail(fmt.Errorf("%w: %s at byte %d", ErrOpcode, name, d.at-1))
	return nil
}

func (d *decoder) number(op opcode) Value {
	var b []byte
	switch op {
	case opBinInt1:
		b = d.take(1)
	case opBinInt2:
		b = d.take(2)
	case opBinInt:
		b = d.take(4)
	case opBinFloat:
		b = d.take(8)
	default:
		b = d.counted(1)
	}
	switch {
	case len(b) > 8:
		tooLarge("bytes of an integer", len(b), 8)
	case op == opBinFloat:
		return math.Float64frombits(binary.BigEndian.Uint64(b))
	case op == opBinInt || op == opLong1:
		return signed(b)
	}
	return int64(unsigned(b))
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

func (d *decoder) bytes(op opcode) Value {
	width := 8
	switch op {
	case opShortText, opShortBytes:
		width = 1
	case opBinUnicode, opBinBytes:
		width = 4
	}
	b := d.counted(width)
	switch op {
	case opShortText, opBinUnicode, opText8:
		return text(b)
	}
	return b
}

func text(b []byte) Value {
	if len(b) > maxText {
		tooLarge("bytes of a text", len(b), maxText)
	}
	if !utf8.Valid(b) {
		malformed("a text is not UTF-8")
	}
	return string(b)
}

// named runs an opcode that creates a value from a name of the table.
func (d *decoder) named(op opcode) Value {
	if op == opGlobal {
		var lines [2]string
		for i := range lines {
			end := bytes.IndexByte(d.src[d.at:min(len(d.src), d.at+maxText)], '\n')
			if end < 0 {
				malformed("a name without its end at byte %d", d.at)
			}
			lines[i] = string(d.src[d.at : d.at+end])
			d.at += end + 1
		}
		return d.lookup(lines[0], lines[1])
	}
	two := d.pop(2)
	if op == opStackGlob {
		module, ok1 := two[0].(string)
		name, ok2 := two[1].(string)
		if !ok1 || !ok2 {
			malformed("STACK_GLOBAL of %T and %T, want two texts", two[0], two[1])
		}
		return d.lookup(module, name)
	}
	g, ok1 := two[0].(global)
	args, ok2 := two[1].(*Tuple)
	switch {
	case !ok1 || !ok2:
		malformed("%T applied to %T, want a name of the table and a tuple", two[0], two[1])
	case op == opNewObj:
		return g.instance(args.Items)
	}
	return d.reduce(g, args.Items)
}

// fill runs an opcode that adds the top values of the stack to the container below them.
func (d *decoder) fill(op opcode) {
	var values []Value
	switch op {
	case opAppend, opBuild:
		values = d.pop(1)
	case opSetItem:
		values = d.pop(2)
	default:
		values = d.popMark()
	}
	into := d.top()
	switch op {
	case opBuild:
		d.build(into, values[0])
		return
	case opAppend, opAppends:
		list, ok := into.(*List)
		if !ok {
			malformed("items for a %T, want a list", into)
		}
		list.Items = append(list.Items, values...)
		nest(&list.depth, values)
		return
	}
	dict, ok := into.(*Dict)
	if !ok || len(values)%2 != 0 {
		malformed("%d keys and values for a %T, want pairs for a dict", len(values), into)
	}
	for i := 0; i < len(values); i += 2 {
		key, ok := values[i].(string)
		if !ok {
			malformed("a key is a %T, want a text", values[i])
		}
		dict.Set(key, values[i+1])
	}
	nest(&dict.depth, values)
}

func newTuple(items []Value) Value {
	t := &Tuple{Items: append([]Value(nil), items...)}
	nest(&t.depth, t.Items)
	return t
}

// nest updates the depth of a container to which values were added, and refuses a depth above maxDepth.
func nest(depth *int, values []Value) {
	for _, v := range values {
		*depth = max(*depth, 1+depthOf(v))
	}
	if *depth > maxDepth {
		tooLarge("nested containers", *depth, maxDepth)
	}
}

func depthOf(v Value) int {
	switch v := v.(type) {
	case *List:
		return v.depth
	case *Tuple:
		return v.depth
	case *Dict:
		return v.depth
	case *Object:
		return v.depth
	}
	return 0
}
