package record

import (
	"fmt"
	"math"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/edge-rt/edge-rt/internal/plain"
	"github.com/edge-rt/edge-rt/rt"
)

// Modes of a coder. They determine the use of each field that a message names.
const (
	encoding   = iota // appends the fields to out, without zero values
	decoding          // takes the fields from coder.in
	describing        // appends the fields' descriptors to out
)

// maxFields bounds the fields of one message.
const maxFields = 64

// Types and labels of google/protobuf/descriptor.proto.
const (
	typeFloat   = 2
	typeInt64   = 3
	typeUint64  = 4
	typeInt32   = 5
	typeFixed32 = 7
	typeBool    = 8
	typeString  = 9
	typeMessage = 11
	typeBytes   = 12
	typeUint32  = 13
	typeEnum    = 14

	labelOptional = 1
	labelRepeated = 3
)

// coder converts a message to protobuf and back. Each message lists its fields once, in the order
// of their numbers. The encoder, the decoder and the schema in the file all use this list.
type coder struct {
	mode int
	num  protowire.Number // number of the field named last
	at   rt.Instant       // instant of the message
	out  []byte
	wall int64 // Unix time of instant 0, in ns
	in   [maxFields]wireValue
	err  error
}

// wireValue is the undecoded value of a field.
type wireValue struct {
	varint uint64
	bytes  []byte
}

// parse splits a message into its fields. It ignores unknown fields.
func (c *coder) parse(b []byte) error {
	*c = coder{mode: decoding}
	for len(b) > 0 {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		var v wireValue
		switch kind {
		case protowire.VarintType:
			v.varint, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			v.bytes, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, kind, b)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if num < maxFields {
			c.in[num] = v
		}
	}
	return nil
}

//rt:noalloc
func (c *coder) next() *wireValue {
	c.num++
	return &c.in[c.num]
}

// describe appends the FieldDescriptorProto of the field named last.
func (c *coder) describe(name string, kind, label uint64, typeName string) {
	var b []byte
	b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), name)
	b = protowire.AppendVarint(protowire.AppendTag(b, 3, protowire.VarintType), uint64(c.num))
	b = protowire.AppendVarint(protowire.AppendTag(b, 4, protowire.VarintType), label)
	b = protowire.AppendVarint(protowire.AppendTag(b, 5, protowire.VarintType), kind)
	if typeName != "" {
		b = protowire.AppendString(protowire.AppendTag(b, 6, protowire.BytesType), typeName)
	}
	c.out = protowire.AppendBytes(protowire.AppendTag(c.out, 2, protowire.BytesType), b)
}

//rt:noalloc
func (c *coder) appendVarint(v uint64) {
	if v != 0 {
		c.out = protowire.AppendVarint(protowire.AppendTag(c.out, c.num, protowire.VarintType), v)
	}
}

// number codes a field that is encoded as a varint. Negative numbers take ten bytes, as in protobuf's int64.
//
//rt:noalloc
func number[T ~int64 | int32 | uint64 | uint32](c *coder, name string, kind uint64, typeName string, v *T) {
	switch f := c.next(); c.mode {
	case encoding:
		c.appendVarint(uint64(*v))
	case decoding:
		*v = T(f.varint)
	case describing:
		c.describe(name, kind, labelOptional, typeName)
	}
}

//rt:noalloc
func (c *coder) int(name string, v *int64) { number(c, name, typeInt64, "", v) }

//rt:noalloc
func (c *coder) instant(name string, v *rt.Instant) { number(c, name, typeInt64, "", v) }

// begin codes the instant of a message, which is the message's first field.
//
//rt:noalloc
func (c *coder) begin(v *rt.Instant) {
	c.instant("t_ns", v)
	c.at = *v
}

//rt:noalloc
func (c *coder) int32(name string, v *int32) { number(c, name, typeInt32, "", v) }

//rt:noalloc
func (c *coder) uint64(name string, v *uint64) { number(c, name, typeUint64, "", v) }

//rt:noalloc
func (c *coder) uint32(name string, v *uint32) { number(c, name, typeUint32, "", v) }

// enum codes a value of an enum type, whose names are in its schema.
//
//rt:noalloc
func (c *coder) enum(name, typeName string, v *uint32) { number(c, name, typeEnum, typeName, v) }

//rt:noalloc
func (c *coder) bool(name string, v *bool) {
	switch f := c.next(); c.mode {
	case encoding:
		if *v {
			c.appendVarint(1)
		}
	case decoding:
		*v = f.varint != 0
	case describing:
		c.describe(name, typeBool, labelOptional, "")
	}
}

//rt:noalloc
func (c *coder) string(name string, v *string) {
	switch f := c.next(); c.mode {
	case encoding:
		if *v != "" {
			c.out = protowire.AppendString(protowire.AppendTag(c.out, c.num, protowire.BytesType), *v)
		}
	case decoding:
		*v = plain.Text(string(f.bytes)) //rt:allow reading a file is no path of a robot
	case describing:
		c.describe(name, typeString, labelOptional, "")
	}
}

//rt:noalloc
func (c *coder) text(name string, v *Text) {
	if in, decoded := c.chars(name, v.b[:v.n]); decoded {
		v.Set(in)
	}
}

//rt:noalloc
func (c *coder) task(name string, v *Task) {
	f := &c.in[c.num+1]
	cut := c.mode == decoding && len(f.bytes) == oldTask
	if cut {
		f.bytes = wholeCharacters(f.bytes)
	}
	if in, decoded := c.chars(name, v.b[:v.n]); decoded {
		v.Set(in)
		v.cut = cut
	}
}

// wholeCharacters removes an incomplete character at the end of a text.
//
//rt:noalloc
func wholeCharacters(text []byte) []byte {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if last := text[len(text)-n:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				return text[:len(text)-n]
			}
			break
		}
	}
	return text
}

// chars codes a text. Decoded text is safe for a terminal, since the file may come from any source.
//
//rt:noalloc
func (c *coder) chars(name string, out []byte) (in string, decoded bool) {
	switch f := c.next(); c.mode {
	case encoding:
		if len(out) > 0 {
			c.out = protowire.AppendBytes(protowire.AppendTag(c.out, c.num, protowire.BytesType), out)
		}
	case decoding:
		return plain.Text(string(f.bytes)), true //rt:allow reading a file is no path of a robot
	case describing:
		c.describe(name, typeString, labelOptional, "")
	}
	return "", false
}

// row codes packed floats.
//
//rt:noalloc
func (c *coder) row(name string, v *Row) {
	switch f := c.next(); c.mode {
	case encoding:
		if v.N > 0 {
			c.out = protowire.AppendVarint(protowire.AppendTag(c.out, c.num, protowire.BytesType), uint64(4*v.N))
			for _, x := range v.V[:v.N] {
				c.out = protowire.AppendFixed32(c.out, math.Float32bits(x))
			}
		}
	case decoding:
		v.N = 0
		for b := f.bytes; len(b) >= 4 && v.N < MaxJoints; b = b[4:] {
			bits, _ := protowire.ConsumeFixed32(b)
			v.V[v.N] = math.Float32frombits(bits)
			v.N++
		}
		if len(f.bytes) != 4*v.N {
			c.err = fmt.Errorf("%s has %d bytes, want up to %d numbers", //rt:allow only readers
				name, len(f.bytes), MaxJoints) //rt:allow only readers
		}
	case describing:
		c.describe(name, typeFloat, labelRepeated, "")
	}
}

// stamp codes an instant as google.protobuf.Timestamp.
//
//rt:noalloc
func (c *coder) stamp(name string, at *rt.Instant) {
	switch f := c.next(); c.mode {
	case encoding:
		c.out = appendStamp(c.out, c.num, int64(*at)+c.wall)
	case decoding:
		var inner coder
		if c.err = inner.parse(f.bytes); c.err == nil {
			*at = rt.Instant(int64(inner.in[1].varint*1_000_000_000+inner.in[2].varint) - c.wall)
		}
	case describing:
		c.describe(name, typeMessage, labelOptional, ".google.protobuf.Timestamp")
	}
}

// appendStamp appends a field with a time of day in ns.
//
//rt:noalloc
func appendStamp(b []byte, num protowire.Number, time int64) []byte {
	const second = 1_000_000_000
	ns := uint64(time)
	size := 2 + protowire.SizeVarint(ns/second) + protowire.SizeVarint(ns%second)
	b = protowire.AppendVarint(protowire.AppendTag(b, num, protowire.BytesType), uint64(size))
	b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.VarintType), ns/second)
	return protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), ns%second)
}

// restamp appends a message whose first field is a time of day, and replaces this field by time.
func restamp(b, message []byte, time int64) []byte {
	num, kind, n := protowire.ConsumeTag(message)
	if n < 0 || kind != protowire.BytesType {
		return append(b, message...)
	}
	size := protowire.ConsumeFieldValue(num, kind, message[n:])
	if size < 0 {
		return append(b, message...)
	}
	return append(appendStamp(b, num, time), message[n+size:]...)
}

// bytes codes data that may consist of up to three parts. Decoded data have one part.
//
//rt:noalloc
func (c *coder) bytes(name string, v *Bytes) {
	switch f := c.next(); c.mode {
	case encoding:
		c.out = protowire.AppendVarint(protowire.AppendTag(c.out, c.num, protowire.BytesType),
			uint64(len(v.A)+len(v.B)+len(v.C)))
		c.out = append(append(append(c.out, v.A...), v.B...), v.C...)
	case decoding:
		*v = Bytes{A: f.bytes}
	case describing:
		c.describe(name, typeBytes, labelOptional, "")
	}
}
