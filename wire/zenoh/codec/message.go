package codec

// Kind is a network message's id.
type Kind uint8

// The network messages. Their ids are KindInterest or higher. Transport messages have lower ids, so a lower id ends the
// messages of a Frame.
const (
	KindInterest Kind = 0x19
	KindFinal    Kind = 0x1a
	KindResponse Kind = 0x1b
	KindRequest  Kind = 0x1c
	KindPush     Kind = 0x1d
	KindDeclare  Kind = 0x1e
	KindOAM      Kind = 0x1f
)

// Message is one network message: Kind names the field that is set. A reader
// keeps one Message and parses into it again and again.
type Message struct {
	Kind     Kind
	Reliable bool // sent on the reliable lane, according to the frame's header
	Push     Push
	Request  Request
	Response Response
	Final    Final
	Declare  Declare
	Interest Interest
}

// Part is the content of a Message: a Push, Request, Response, Final, Declare or Interest.
type Part interface{ Message() *Message }

func (m Push) Message() *Message     { return &Message{Kind: KindPush, Push: m} }
func (m Request) Message() *Message  { return &Message{Kind: KindRequest, Request: m} }
func (m Response) Message() *Message { return &Message{Kind: KindResponse, Response: m} }
func (m Final) Message() *Message    { return &Message{Kind: KindFinal, Final: m} }

// Message returns a message with the declaration and ControlQoS.
func (m Declare) Message() *Message {
	m.QoS = ControlQoS
	return &Message{Kind: KindDeclare, Declare: m}
}

// Message returns a message with the interest and ControlQoS.
func (m Interest) Message() *Message {
	m.QoS = ControlQoS
	return &Message{Kind: KindInterest, Interest: m}
}

const (
	flagN = 0x20 // the Expr has a suffix
	flagM = 0x40 // the Expr's scope is one of the sender's numbers
)

// IsNetwork reports whether a header byte begins a network message.
func IsNetwork(header byte) bool { return Kind(ID(header)) >= KindInterest }

// ParseMessage reads one network message into m. In m only Kind and the field that Kind names are new; the other fields
// are stale. Slices are parts of the cursor's bytes.
//
//rt:noalloc
func ParseMessage(c *Cursor, m *Message) error {
	h := c.byte()
	m.Kind = Kind(ID(h))
	switch m.Kind {
	case KindPush:
		c.push(h, &m.Push)
	case KindRequest:
		c.request(h, &m.Request)
	case KindResponse:
		c.response(h, &m.Response)
	case KindFinal:
		c.final(h, &m.Final)
	case KindDeclare:
		c.declare(h, &m.Declare)
	case KindInterest:
		c.interest(h, &m.Interest)
	case KindOAM:
		c.u16()
		c.skipAll(h)
		skipBody(c, h)
	default:
		c.fail(ErrHeader)
	}
	return c.Err() //rt:allow a one-byte value becomes an error
}

// AppendMessage appends the message that m.Kind names.
func AppendMessage(dst []byte, m *Message) []byte {
	switch m.Kind {
	case KindPush:
		return AppendPush(dst, &m.Push)
	case KindRequest:
		return appendRequest(dst, &m.Request)
	case KindResponse:
		return appendResponse(dst, &m.Response)
	case KindFinal:
		return appendFinal(dst, &m.Final)
	case KindDeclare:
		return appendDeclare(dst, &m.Declare)
	case KindInterest:
		return appendInterest(dst, &m.Interest)
	}
	panic("codec: no such message kind")
}

// Push carries one sample.
type Push struct {
	Envelope
	Expr Expr
	Data Data
}

func (c *Cursor) push(h byte, m *Push) {
	*m = Push{Envelope: Envelope{QoS: DefaultQoS}}
	m.Expr = c.expr(h&flagN != 0, h&flagM != 0)
	c.envelope(h, &m.Envelope)
	c.data(&m.Data)
}

// AppendPush appends m.
//
//rt:noalloc
func AppendPush(dst []byte, m *Push) []byte {
	head := len(dst)
	dst = appendExpr(append(dst, byte(KindPush)), m.Expr, head, flagN, flagM)
	l := list{dst, head}
	l.addEnvelope(&m.Envelope)
	l.addNode(&m.Envelope)
	return appendData(l.dst, &m.Data)
}

// Size returns an upper bound of the number of bytes that AppendPush writes. The bound is at most pushOverhead bytes
// too large.
func (m *Push) Size() int {
	return pushOverhead + len(m.Expr.Suffix) + len(m.Data.Payload) + len(m.Data.Attachment) +
		len(m.Data.Encoding.Schema)
}

const pushOverhead = 160

// Request is a query to the queryables of a key.
type Request struct {
	Envelope
	ID        uint32
	Expr      Expr
	Target    Target
	Budget    uint64
	TimeoutMS uint64 // 0: absent
	Query     Query
}

// Target selects the queryables that a Request is for.
type Target uint64

// The targets.
const (
	BestMatching Target = 0
	All          Target = 1
	AllComplete  Target = 2
)

const (
	extTarget    = 0x04 | extMust | extNum
	extBudget    = 0x05 | extNum
	extTimeout   = 0x06 | extNum
	extResponder = 0x03 | extBuf
)

func (c *Cursor) request(h byte, m *Request) {
	*m = Request{Envelope: Envelope{QoS: DefaultQoS}, ID: c.u32()}
	m.Expr = c.expr(h&flagN != 0, h&flagM != 0)
	for x := c.extensions(h); x.next(); {
		switch x.id {
		case extTarget:
			if m.Target = Target(x.num); m.Target > AllComplete {
				c.fail(ErrRange)
			}
		case extBudget:
			m.Budget = x.num
		case extTimeout:
			m.TimeoutMS = x.num
		default:
			if !m.take(&x) {
				x.skip()
			}
		}
	}
	c.query(&m.Query)
}

func appendRequest(dst []byte, m *Request) []byte {
	head := len(dst)
	dst = appendVLE(append(dst, byte(KindRequest)), uint64(m.ID))
	dst = appendExpr(dst, m.Expr, head, flagN, flagM)
	l := list{dst, head}
	l.addEnvelope(&m.Envelope)
	if m.Target != BestMatching {
		l.addNum(extTarget, uint64(m.Target))
	}
	if m.Budget != 0 {
		l.addNum(extBudget, m.Budget)
	}
	if m.TimeoutMS != 0 {
		l.addNum(extTimeout, m.TimeoutMS)
	}
	l.addNode(&m.Envelope)
	return appendQuery(l.dst, &m.Query)
}

// Response is one answer to the Request of the same ID.
type Response struct {
	Envelope
	ID            uint32
	Expr          Expr // empty in an error that a router makes
	Responder     Entity
	Err           bool   // Data is the encoding and payload of an error
	Consolidation uint64 // 0: absent
	Data          Data
}

func (c *Cursor) response(h byte, m *Response) {
	*m = Response{Envelope: Envelope{QoS: DefaultQoS}, ID: c.u32()}
	m.Expr = c.expr(h&flagN != 0, h&flagM != 0)
	for x := c.extensions(h); x.next(); {
		if x.id == extResponder {
			in := NewCursor(x.buf)
			m.Responder = in.entity()
			c.check(&in)
		} else if !m.take(&x) {
			x.skip()
		}
	}
	c.answer(m)
}

func appendResponse(dst []byte, m *Response) []byte {
	head := len(dst)
	dst = appendVLE(append(dst, byte(KindResponse)), uint64(m.ID))
	dst = appendExpr(dst, m.Expr, head, flagN, flagM)
	l := list{dst, head}
	l.addEnvelope(&m.Envelope)
	if len(m.Responder.ZID) > 0 {
		body := l.begin(extResponder)
		l.dst = appendEntity(l.dst, m.Responder)
		l.end(body)
	}
	return appendAnswer(l.dst, m)
}

// Final ends the responses to a Request.
type Final struct {
	Envelope
	ID uint32
}

func (c *Cursor) final(h byte, m *Final) {
	*m = Final{Envelope: Envelope{QoS: DefaultQoS}, ID: c.u32()}
	c.envelope(h, &m.Envelope)
}

func appendFinal(dst []byte, m *Final) []byte {
	head := len(dst)
	l := list{appendVLE(append(dst, byte(KindFinal)), uint64(m.ID)), head}
	l.addEnvelope(&m.Envelope)
	return l.dst
}
