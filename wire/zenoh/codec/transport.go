package codec

import "encoding/binary"

// Ids of transport messages, in the low five bits of a header.
const (
	IDTransportOAM = 0x00
	IDInit         = 0x01
	IDOpen         = 0x02
	IDClose        = 0x03
	IDKeepAlive    = 0x04
	IDFrame        = 0x05
	IDFragment     = 0x06
)

// ID returns the message id in a header byte.
func ID(header byte) byte { return header & idMask }

// Role is the role of a node in its network.
type Role uint8

// Roles as Init carries them.
const (
	Router Role = 0
	Peer   Role = 1
	Client Role = 2
)

func (r Role) String() string {
	switch r {
	case Router:
		return "router"
	case Peer:
		return "peer"
	case Client:
		return "client"
	}
	return "no role"
}

// Resolution is the number of bits of sequence numbers (bits 0-1) and of request ids (bits 2-3): 0,
// 1, 2, 3 for 8, 16, 32, 64.
type Resolution uint8

// DefaultResolution has 32 bits for sequence numbers and for request ids.
const DefaultResolution Resolution = 0x0a

// Min returns the smaller value of each field. An acceptor answers an Init with this result.
func (r Resolution) Min(o Resolution) Resolution {
	return min(r&3, o&3) | min(r&0xc, o&0xc)
}

// Mask returns the largest sequence number. A resolution of 32 bits has only 28 usable bits, because each of the four
// bytes on the wire carries seven.
func (r Resolution) Mask() uint32 {
	return [4]uint32{0x7f, 0x3fff, 0x0fffffff, 0xffffffff}[r&3]
}

// DefaultBatch is the batch size when Init does not carry one.
const DefaultBatch = 65535

// Init opens a handshake (Ack is false) or answers the opening.
type Init struct {
	Ack        bool
	Role       Role
	ZID        []byte // 1 to 16 bytes, little-endian
	Resolution Resolution
	Batch      uint16 // bytes, including the two of the length prefix
	Cookie     []byte // only with Ack
	QoS        bool   // one lane per priority
	Patch      uint64 // 1: fragments carry first and drop marks
}

const (
	flagA         = 0x20 // acknowledges
	flagS         = 0x40 // Init: sizes present
	flagT         = 0x40 // Open: lease in seconds
	extInitQoS    = 0x01 | extUnit
	extInitPatch  = 0x07 | extNum
	extFrameQoS   = 0x01 | extMust | extNum
	extFragFirst  = 0x02 | extUnit
	extFragDrop   = 0x03 | extUnit
	flagReliable  = 0x20
	flagMore      = 0x40
	flagCloseBoth = 0x20
)

// ParseInit reads an Init, including its header.
func ParseInit(c *Cursor) (Init, error) {
	h := c.byte()
	m := Init{Ack: h&flagA != 0, Resolution: DefaultResolution, Batch: DefaultBatch}
	if v := c.byte(); c.err == 0 && v != version {
		c.fail(ErrVersion)
	}
	b := c.byte()
	m.Role = Role(b & 3)
	if m.Role > Client {
		c.fail(ErrRange)
	}
	m.ZID = trimZID(c.take(int(b>>4) + 1))
	if c.err == 0 && len(m.ZID) == 0 {
		c.fail(ErrZID)
	}
	if h&flagS != 0 {
		m.Resolution = Resolution(c.byte() & 0xf)
		if b := c.take(2); b != nil {
			m.Batch = binary.LittleEndian.Uint16(b)
		}
	}
	if m.Ack {
		m.Cookie = c.slice(maxCookie)
	}
	for x := c.extensions(h); x.next(); {
		switch x.id {
		case extInitQoS:
			m.QoS = true
		case extInitPatch:
			m.Patch = x.num
		default:
			x.skip()
		}
	}
	return m, c.Err()
}

// AppendInit appends m.
func AppendInit(dst []byte, m *Init) []byte {
	head := len(dst)
	dst = append(dst, IDInit, version, byte(len(m.ZID)-1)<<4|byte(m.Role))
	dst = append(dst, m.ZID...)
	if m.Resolution != DefaultResolution || m.Batch != DefaultBatch {
		dst[head] |= flagS
		dst = append(dst, byte(m.Resolution))
		dst = binary.LittleEndian.AppendUint16(dst, m.Batch)
	}
	if m.Ack {
		dst[head] |= flagA
		dst = appendSlice(dst, m.Cookie)
	}
	l := list{dst, head}
	if m.QoS {
		l.add(extInitQoS)
	}
	if m.Patch != 0 {
		l.addNum(extInitPatch, m.Patch)
	}
	return l.dst
}

// trimZID drops the zero bytes at the end, which are the most significant: 11 22 33 00 names the same node as 11 22 33.
func trimZID(zid []byte) []byte {
	for len(zid) > 0 && zid[len(zid)-1] == 0 {
		zid = zid[:len(zid)-1]
	}
	return zid
}

// Open ends a handshake with the acceptor's cookie (Ack is false), or confirms the end (Ack is true).
type Open struct {
	Ack     bool
	LeaseMS uint64 // after this time of silence, the receiver treats the sender as dead
	SN      uint32 // first sequence number of the sender's lanes
	Cookie  []byte // only without Ack
}

// ParseOpen reads an Open, including its header.
func ParseOpen(c *Cursor) (Open, error) {
	h := c.byte()
	m := Open{Ack: h&flagA != 0, LeaseMS: c.bounded(maxU32)}
	if h&flagT != 0 {
		m.LeaseMS *= 1000
	}
	m.SN = c.u32()
	if !m.Ack {
		m.Cookie = c.slice(maxCookie)
	}
	c.skipAll(h)
	return m, c.Err()
}

// AppendOpen appends m. It writes the lease in seconds if it is a whole number of seconds, otherwise in milliseconds.
func AppendOpen(dst []byte, m *Open) []byte {
	head := len(dst)
	dst = append(dst, IDOpen)
	lease := m.LeaseMS
	if lease%1000 == 0 {
		dst[head] |= flagT
		lease /= 1000
	}
	dst = appendVLE(appendVLE(dst, lease), uint64(m.SN))
	if m.Ack {
		dst[head] |= flagA
		return dst
	}
	return appendSlice(dst, m.Cookie)
}

// Reason is a node's reason to close a link.
type Reason uint8

// The reasons. Source: the official transport crate.
const (
	CloseGeneric          Reason = 0
	CloseUnsupported      Reason = 1
	CloseInvalid          Reason = 2
	CloseMaxSessions      Reason = 3
	CloseMaxLinks         Reason = 4
	CloseExpired          Reason = 5
	CloseUnresponsive     Reason = 6
	CloseConnectionToSelf Reason = 7
)

func (r Reason) String() string {
	text := [...]string{"normal", "unsupported", "invalid", "too many sessions", "this node is already connected",
		"lease expired", "unresponsive", "connection to itself"}
	if int(r) < len(text) {
		return text[r]
	}
	return "unknown reason"
}

// ParseClose reads a Close, including its header.
func ParseClose(c *Cursor) (Reason, error) {
	h := c.byte()
	r := Reason(c.byte())
	c.skipAll(h)
	return r, c.Err()
}

// AppendClose appends a Close of this link.
func AppendClose(dst []byte, r Reason) []byte { return append(dst, IDClose, byte(r)) }

// AppendKeepAlive appends a KeepAlive.
func AppendKeepAlive(dst []byte) []byte { return append(dst, IDKeepAlive) }

// SkipTransport skips a KeepAlive or a transport OAM, including its header.
func SkipTransport(c *Cursor) error {
	h := c.byte()
	if ID(h) == IDTransportOAM {
		c.u16()
		c.skipAll(h)
		skipBody(c, h)
	} else {
		c.skipAll(h)
	}
	return c.Err()
}

func skipBody(c *Cursor, header byte) {
	switch header & extEnc {
	case extNum:
		c.vle()
	case extBuf:
		c.slice(maxU32)
	case extEnc:
		c.fail(ErrHeader)
	}
}

// Lane is the header of a Frame or of a Fragment. It names the lane whose sequence the message continues.
type Lane struct {
	Reliable bool
	SN       uint32
	Priority uint8 // 5 (Data) is not written

	// Only in fragments.
	More, First, Drop bool
}

const dataPriority = 5

// FrameHeader and FragmentHeader are the largest sizes, in bytes, of the headers of a Frame and a Fragment.
const (
	FrameHeader    = 1 + 5 + 2
	FragmentHeader = 1 + 5 + 2 + 1
)

// ParseLane reads the header of a Frame or Fragment. The network messages, or a piece of one,
// follow.
func ParseLane(c *Cursor) (Lane, error) {
	h := c.byte()
	m := Lane{Reliable: h&flagReliable != 0, SN: c.u32(), Priority: dataPriority}
	fragment := ID(h) == IDFragment
	m.More = fragment && h&flagMore != 0
	for x := c.extensions(h); x.next(); {
		switch {
		case x.id == extFrameQoS:
			m.Priority = uint8(x.num) & 7
		case fragment && x.id == extFragFirst:
			m.First = true
		case fragment && x.id == extFragDrop:
			m.Drop = true
		default:
			x.skip()
		}
	}
	return m, c.Err()
}

// AppendFrame appends a Frame's header.
//
//rt:noalloc
func AppendFrame(dst []byte, m Lane) []byte { return appendLane(dst, IDFrame, m) }

// AppendFragment appends a Fragment's header.
//
//rt:noalloc
func AppendFragment(dst []byte, m Lane) []byte { return appendLane(dst, IDFragment, m) }

func appendLane(dst []byte, id byte, m Lane) []byte {
	head := len(dst)
	if m.Reliable {
		id |= flagReliable
	}
	if m.More {
		id |= flagMore
	}
	dst = appendVLE(append(dst, id), uint64(m.SN))
	l := list{dst, head}
	if m.Priority != dataPriority {
		l.addNum(extFrameQoS, uint64(m.Priority))
	}
	if m.First {
		l.add(extFragFirst)
	}
	if m.Drop {
		l.add(extFragDrop)
	}
	return l.dst
}
