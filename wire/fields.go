package wire

import (
	"math"
	"slices"

	"github.com/tinylib/msgp/msgp"
)

// sessionMessage is a message about sessions, such as SessionOpen and Event. It is written and read by its list of
// fields. Observations and chunks have hand-written codecs instead, which may not allocate.
type sessionMessage interface {
	fields() []field
	reset() // gives each field the value that it has in a body without its key
}

// field is one key of a message about sessions: its name, the place of its value and its limits.
type field struct {
	key      string
	value    any  // a pointer into the message, or op
	limit    int  // most bytes of a text or of each text in a list, or the largest integer
	optional bool // sent only when it is set
}

// op is the value of a field that has the same text in every message.
type op string

// unset lists the encodings of zero values: 0, "", false, an empty list, an empty map and 0.0. An optional field with
// such a value is not sent.
var unset = []string{"\x00", "\xa0", "\xc2", "\x90", "\x80", "\xcb\x00\x00\x00\x00\x00\x00\x00\x00"}

func (f *field) skipped() bool { return f.optional && slices.Contains(unset, string(f.append(nil))) }

// Append appends the body of m.
func Append[M sessionMessage](dst []byte, m M) []byte {
	fields := slices.DeleteFunc(m.fields(), func(f field) bool { return f.skipped() })
	dst = msgp.AppendMapHeader(dst, uint32(len(fields)))
	for _, f := range fields {
		dst = f.append(msgp.AppendString(dst, f.key))
	}
	return dst
}

func (f *field) append(dst []byte) []byte {
	switch v := f.value.(type) {
	case op:
		return msgp.AppendString(dst, string(v))
	case *string:
		return msgp.AppendString(dst, *v)
	case *bool:
		return msgp.AppendBool(dst, *v)
	case *float64:
		return msgp.AppendFloat64(dst, *v)
	case *int:
		return appendInt(dst, int64(*v))
	case *int64:
		return appendInt(dst, *v)
	case *uint32:
		return appendInt(dst, int64(*v))
	case *uint64:
		return msgp.AppendUint64(dst, *v)
	case *[]string:
		return appendStrings(dst, *v)
	case *[]Tag:
		dst = msgp.AppendMapHeader(dst, uint32(len(*v)))
		for _, t := range *v {
			dst = msgp.AppendString(msgp.AppendString(dst, t.Key), t.Value)
		}
		return dst
	case *[]Feature:
		return appendFeatures(dst, *v)
	}
	shapes := *f.value.(*[]CameraShape)
	dst = msgp.AppendMapHeader(dst, uint32(len(shapes)))
	for _, s := range shapes {
		dst = msgp.AppendArrayHeader(msgp.AppendString(dst, s.Name), 3)
		dst = appendInt(appendInt(appendInt(dst, int64(s.H)), int64(s.W)), int64(s.C))
	}
	return dst
}

// Parse resets m and reads a body into it.
func Parse[M sessionMessage](m M, src []byte) error {
	m.reset()
	fields := m.fields()
	var r reader
	for range r.open(src) {
		key := string(r.next())
		if i := slices.IndexFunc(fields, func(f field) bool { return f.key == key }); i >= 0 {
			r.field(&fields[i])
		} else {
			r.skip(0)
		}
	}
	return r.close()
}

func (r *reader) field(f *field) {
	switch v := f.value.(type) {
	case op:
		if got := r.string(MaxNameBytes); got != string(v) && r.err == nil {
			r.badOp(got, string(v))
		}
	case *string:
		*v = r.string(f.limit)
	case *bool:
		*v = r.bool()
	case *float64:
		*v = r.float()
	case *int:
		*v = int(r.int(0, int64(f.limit)))
	case *int64:
		*v = r.int(math.MinInt64, math.MaxInt64)
	case *uint32:
		*v = r.uint32()
	case *uint64:
		*v = r.uint64()
	case *[]string:
		*v = r.strings(*v, f.limit)
	case *[]Tag:
		*v = r.tags(*v)
	case *[]CameraShape:
		*v = r.cameraShapes(*v)
	case *[]Feature:
		*v = r.features(*v)
	}
}

func (r *reader) tags(dst []Tag) []Tag {
	dst = dst[:0]
	if r.null() {
		return dst
	}
	for range r.mapHeader(MaxNames) {
		dst = append(dst, Tag{Key: string(r.key()), Value: r.string(MaxTextBytes)})
	}
	return dst
}

func (r *reader) cameraShapes(dst []CameraShape) []CameraShape {
	dst = dst[:0]
	if r.null() {
		return dst
	}
	for range r.mapHeader(MaxNames) {
		s := CameraShape{Name: string(r.key())}
		if r.arrayHeader(3) != 3 {
			r.shape("another number of values", "[H, W, C]")
			return dst[:0]
		}
		s.H = int(r.int(1, MaxImageSide))
		s.W = int(r.int(1, MaxImageSide))
		s.C = int(r.int(1, 4))
		dst = append(dst, s)
	}
	return dst
}
