package codec

import "unicode/utf8"

// DeclareKind is the kind of object that a Declare declares or undeclares.
type DeclareKind uint8

// The kinds of declarations. An odd number withdraws a declaration of the kind with the next lower number.
const (
	DeclareExpr         DeclareKind = 0x00
	UndeclareExpr       DeclareKind = 0x01
	DeclareSubscriber   DeclareKind = 0x02
	UndeclareSubscriber DeclareKind = 0x03
	DeclareQueryable    DeclareKind = 0x04
	UndeclareQueryable  DeclareKind = 0x05
	DeclareToken        DeclareKind = 0x06
	UndeclareToken      DeclareKind = 0x07
	DeclareFinal        DeclareKind = 0x1a // all current declarations of an Interest were sent
)

// Declare announces one object, or its end.
type Declare struct {
	Envelope
	Answers  bool   // the declared object existed when Interest asked for it
	Interest uint32 // number of the Interest that the declaration answers
	Kind     DeclareKind
	ID       uint32 // chosen by the sender, per kind; 0 is a valid id
	Expr     Expr   // optional in a withdrawal
	Complete bool   // for a queryable: it has all data on its key
	Distance uint16 // for a queryable: number of hops to it
}

const (
	flagAnswers  = 0x20
	extInfo      = 0x01 | extNum           // queryable
	extUndeclare = 0x0f | extMust | extBuf // key of the undeclared object
)

func (c *Cursor) declare(h byte, m *Declare) {
	*m = Declare{Envelope: Envelope{QoS: DefaultQoS}}
	if h&flagAnswers != 0 {
		m.Answers, m.Interest = true, c.u32()
	}
	c.envelope(h, &m.Envelope)
	b := c.byte()
	m.Kind = DeclareKind(ID(b))
	switch m.Kind {
	case DeclareFinal:
	case DeclareExpr:
		m.ID = uint32(c.u16())
		m.Expr = c.expr(b&flagN != 0, false)
	case UndeclareExpr:
		m.ID = uint32(c.u16())
	case DeclareSubscriber, DeclareQueryable, DeclareToken:
		m.ID = c.u32()
		m.Expr = c.expr(b&flagN != 0, b&flagM != 0)
	case UndeclareSubscriber, UndeclareQueryable, UndeclareToken:
		m.ID = c.u32()
	default:
		c.fail(ErrHeader)
	}
	for x := c.extensions(b); x.next(); {
		switch {
		case m.Kind == DeclareQueryable && x.id == extInfo:
			m.Complete, m.Distance = x.num&1 != 0, uint16(x.num>>8)
		case x.id == extUndeclare && m.undeclares():
			m.Expr = c.undeclared(x.buf)
		default:
			x.skip()
		}
	}
}

func (m *Declare) undeclares() bool {
	return m.Kind == UndeclareSubscriber || m.Kind == UndeclareQueryable || m.Kind == UndeclareToken
}

// undeclared reads the key of an undeclared object: flags, scope, and the suffix without a length.
func (c *Cursor) undeclared(b []byte) Expr {
	k := NewCursor(b)
	flags := k.byte()
	e := Expr{Scope: k.u16(), Sender: flags&2 != 0}
	if flags&1 != 0 {
		e.Suffix = k.Rest()
	}
	c.check(&k)
	switch {
	case len(e.Suffix) > maxKey:
		c.fail(ErrRange)
	case !utf8.Valid(e.Suffix):
		c.fail(ErrText)
	}
	return e
}

func appendDeclare(dst []byte, m *Declare) []byte {
	head := len(dst)
	dst = append(dst, byte(KindDeclare))
	if m.Answers {
		dst[head] |= flagAnswers
		dst = appendVLE(dst, uint64(m.Interest))
	}
	l := list{dst, head}
	l.addEnvelope(&m.Envelope)
	l.addNode(&m.Envelope)
	body := len(l.dst)
	dst = append(l.dst, byte(m.Kind))
	if m.Kind == DeclareFinal {
		return dst
	}
	dst = appendVLE(dst, uint64(m.ID))
	switch m.Kind {
	case DeclareExpr:
		return appendExpr(dst, Expr{Scope: m.Expr.Scope, Suffix: m.Expr.Suffix}, body, flagN, flagM)
	case DeclareSubscriber, DeclareToken:
		return appendExpr(dst, m.Expr, body, flagN, flagM)
	case DeclareQueryable:
		l = list{appendExpr(dst, m.Expr, body, flagN, flagM), body}
		if info := uint64(m.Distance)<<8 | bit(m.Complete); info != 0 {
			l.addNum(extInfo, info)
		}
		return l.dst
	case UndeclareSubscriber:
		if m.Expr.Scope == 0 && len(m.Expr.Suffix) == 0 && !m.Expr.Sender {
			return dst
		}
	case UndeclareExpr:
		return dst
	}
	l = list{dst, body}
	l.addUndeclared(m.Expr)
	return l.dst
}

func (l *list) addUndeclared(e Expr) {
	body := l.begin(extUndeclare)
	flags := byte(bit(e.Sender)) << 1
	if len(e.Suffix) > 0 {
		flags |= 1
	}
	l.dst = appendVLE(append(l.dst, flags), uint64(e.Scope))
	l.dst = append(l.dst, e.Suffix...)
	l.end(body)
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// Mode selects the declarations that an Interest requests: the present ones, future ones or both.
type Mode uint8

// The modes: bit 0 requests the present declarations, bit 1 future changes.
const (
	InterestFinal         Mode = 0 // withdraws the interest
	InterestCurrent       Mode = 1
	InterestFuture        Mode = 2
	InterestCurrentFuture Mode = 3
)

// The subjects of an Interest.
const (
	aboutExprs       = 0x01 // the answers may use numbers for keys
	AboutSubscribers = 0x02
	AboutQueryables  = 0x04
	AboutTokens      = 0x08
	aboutRestricted  = 0x10
	aboutSuffix      = 0x20
	aboutSender      = 0x40
	AboutAggregate   = 0x80 // one answer for all matches
)

// Interest requests the other side's declarations.
type Interest struct {
	Envelope
	ID         uint32
	Mode       Mode
	About      uint8 // the requested kinds, without the bits about Expr
	Restricted bool  // the interest is restricted to objects that intersect Expr
	Expr       Expr
}

func (c *Cursor) interest(h byte, m *Interest) {
	*m = Interest{Envelope: Envelope{QoS: DefaultQoS}, ID: c.u32(), Mode: Mode(h >> 5 & 3)}
	if m.Mode != InterestFinal {
		o := c.byte()
		m.About = o &^ (aboutRestricted | aboutSuffix | aboutSender)
		if m.Restricted = o&aboutRestricted != 0; m.Restricted {
			m.Expr = c.expr(o&aboutSuffix != 0, o&aboutSender != 0)
		}
	}
	c.envelope(h, &m.Envelope)
}

func appendInterest(dst []byte, m *Interest) []byte {
	head := len(dst)
	dst = appendVLE(append(dst, byte(KindInterest)|byte(m.Mode)<<5), uint64(m.ID))
	if m.Mode != InterestFinal {
		options := len(dst)
		dst = append(dst, m.About)
		if m.Restricted {
			dst[options] |= aboutRestricted
			dst = appendExpr(dst, m.Expr, options, aboutSuffix, aboutSender)
		}
	}
	l := list{dst, head}
	l.addEnvelope(&m.Envelope)
	l.addNode(&m.Envelope)
	return l.dst
}
