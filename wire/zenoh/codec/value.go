package codec

// Timestamp is the time at which a sample was made, as NTP64 since 1970, and the id of the node whose clock measured
// it. It is absent when ID is empty.
type Timestamp struct {
	Time uint64
	ID   []byte
}

func (c *Cursor) timestamp() Timestamp {
	t := Timestamp{Time: c.vle(), ID: c.slice(maxZID)}
	if len(t.ID) == 0 {
		c.fail(ErrZID)
	}
	return t
}

func appendTimestamp(dst []byte, t Timestamp) []byte {
	return appendSlice(appendVLE(dst, t.Time), t.ID)
}

// Encoding is a payload's type: an id of Zenoh's table and an optional schema.
// The zero value is plain bytes and is not written.
type Encoding struct {
	ID     uint32
	Schema []byte
}

func (e Encoding) zero() bool { return e.ID == 0 && len(e.Schema) == 0 }

func (c *Cursor) encoding() Encoding {
	v := c.u32()
	e := Encoding{ID: v >> 1}
	if v&1 != 0 {
		e.Schema = c.slice(maxSchema)
	}
	return e
}

func appendEncoding(dst []byte, e Encoding) []byte {
	if len(e.Schema) == 0 {
		return appendVLE(dst, uint64(e.ID)<<1)
	}
	return appendSlice(appendVLE(dst, uint64(e.ID)<<1|1), e.Schema)
}

// Entity identifies a publisher, querier or queryable by its node and its number at that node. It is absent when ZID is
// empty.
type Entity struct {
	ZID []byte
	ID  uint32
}

func (c *Cursor) entity() Entity {
	n := int(c.byte()>>4) + 1
	return Entity{ZID: c.take(n), ID: c.u32()}
}

func appendEntity(dst []byte, e Entity) []byte {
	dst = append(dst, byte(len(e.ZID)-1)<<4)
	return appendVLE(append(dst, e.ZID...), uint64(e.ID))
}

// Source identifies the entity that made a sample, and counts its samples.
type Source struct {
	Entity
	SN uint32
}

// source reads the Source in an extension's bytes.
func (c *Cursor) source(b []byte) Source {
	in := NewCursor(b)
	s := Source{Entity: in.entity(), SN: in.u32()}
	c.check(&in)
	return s
}

func (l *list) addSource(s Source) {
	if len(s.ZID) == 0 {
		return
	}
	body := l.begin(extSource)
	l.dst = appendVLE(appendEntity(l.dst, s.Entity), uint64(s.SN))
	l.end(body)
}

// Expr is a key expression on the wire: the number of a declared prefix (0: no prefix) and the text that follows the
// prefix. Sender selects the table of numbers: the table of the node that sent this message, or the receiver's.
type Expr struct {
	Scope  uint16
	Suffix []byte
	Sender bool
}

// Key returns an Expr with the whole key as text. All our messages carry keys in this form.
func Key[T string | []byte](key T) Expr { return Expr{Suffix: []byte(key), Sender: true} }

func (c *Cursor) expr(suffix, sender bool) Expr {
	e := Expr{Scope: c.u16(), Sender: sender}
	if suffix {
		e.Suffix = c.text(maxKey)
	}
	return e
}

// appendExpr appends e and sets its flag bits in the header dst[head].
//
//nolint:unparam // both flags are parameters, although flagN is the same in every header
func appendExpr(dst []byte, e Expr, head int, flagN, flagM byte) []byte {
	dst = appendVLE(dst, uint64(e.Scope))
	if len(e.Suffix) > 0 {
		dst[head] |= flagN
		dst = appendSlice(dst, e.Suffix)
	}
	if e.Sender {
		dst[head] |= flagM
	}
	return dst
}

// QoS is the byte that every network message carries: priority (bits 0-2), block instead of drop
// (0x08), express (0x10), block the first only (0x20).
type QoS byte

// The QoS of messages for which the caller does not choose one.
const (
	DefaultQoS QoS = 0x05 // Data, drop
	ControlQoS QoS = 0x08 // declarations and interests: Control, block
	RequestQoS QoS = 0x0d // Data, block

	Block   QoS = 0x08
	Express QoS = 0x10
)

// Priority is 0 (control, most urgent) to 7 (background).
func (q QoS) Priority() uint8 { return uint8(q) & 7 }

// Data returns q with the priority Data if q has the priority of declarations.
func (q QoS) Data() QoS {
	if q.Priority() == 0 {
		q |= DefaultQoS
	}
	return q
}

// Envelope holds the optional fields that all kinds of network messages have in common.
type Envelope struct {
	QoS       QoS
	Timestamp Timestamp
	Node      uint16 // routing context between routers; clients ignore it
}

// Extensions of the envelope.
const (
	extQoS       = 0x01 | extNum
	extTimestamp = 0x02 | extBuf
	extNode      = 0x03 | extMust | extNum
)

// take reports whether the extension belongs to the envelope, and if so stores its value.
func (e *Envelope) take(x *extensions) bool {
	switch x.id {
	case extQoS:
		e.QoS = QoS(x.num)
	case extTimestamp:
		in := NewCursor(x.buf)
		e.Timestamp = in.timestamp()
		x.c.check(&in)
	case extNode:
		if x.num > maxU16 {
			x.c.fail(ErrRange)
		}
		e.Node = uint16(x.num)
	default:
		return false
	}
	return true
}

// envelope reads the extensions of a message whose kind has no extensions except those of the envelope.
func (c *Cursor) envelope(header byte, e *Envelope) {
	for x := c.extensions(header); x.next(); {
		if !e.take(&x) {
			x.skip()
		}
	}
}

// addEnvelope appends the fields that differ from their defaults, except the node id, which a message writes after its
// other extensions.
func (l *list) addEnvelope(e *Envelope) {
	if e.QoS != DefaultQoS {
		l.addNum(extQoS, uint64(e.QoS))
	}
	if len(e.Timestamp.ID) > 0 {
		body := l.begin(extTimestamp)
		l.dst = appendTimestamp(l.dst, e.Timestamp)
		l.end(body)
	}
}

func (l *list) addNode(e *Envelope) {
	if e.Node != 0 {
		l.addNum(extNode, uint64(e.Node))
	}
}
