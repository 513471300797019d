package codec

const (
	bodyPut   = 0x01
	bodyDel   = 0x02
	bodyQuery = 0x03
	bodyReply = 0x04
	bodyErr   = 0x05

	flagTimestamp     = 0x20 // Put, Del
	flagEncoding      = 0x40 // Put, Err
	flagConsolidation = 0x20 // Query, Reply
	flagParameters    = 0x40 // Query

	extSource          = 0x01 | extBuf
	extPutAttachment   = 0x03 | extBuf
	extDelAttachment   = 0x02 | extBuf
	extQueryBody       = 0x03 | extBuf
	extQueryAttachment = 0x05 | extBuf

	maxPayload = maxU32
)

// Data is a value put on a key, or the fact that the value was deleted.
type Data struct {
	Delete     bool
	Timestamp  Timestamp
	Encoding   Encoding
	Source     Source
	Attachment []byte // nil: absent
	Payload    []byte
}

func (c *Cursor) data(m *Data) {
	*m = Data{}
	h := c.byte()
	attachment := byte(extPutAttachment)
	switch ID(h) {
	case bodyPut:
	case bodyDel:
		m.Delete, attachment = true, extDelAttachment
	default:
		c.fail(ErrHeader)
	}
	if h&flagTimestamp != 0 {
		m.Timestamp = c.timestamp()
	}
	if !m.Delete && h&flagEncoding != 0 {
		m.Encoding = c.encoding()
	}
	for x := c.extensions(h); x.next(); {
		switch x.id {
		case extSource:
			m.Source = c.source(x.buf)
		case attachment:
			m.Attachment = x.buf
		default:
			x.skip()
		}
	}
	if !m.Delete {
		m.Payload = c.slice(maxPayload)
	}
}

func appendData(dst []byte, m *Data) []byte {
	head := len(dst)
	id, attachment := byte(bodyPut), byte(extPutAttachment)
	if m.Delete {
		id, attachment = bodyDel, extDelAttachment
	}
	dst = append(dst, id)
	if len(m.Timestamp.ID) > 0 {
		dst[head] |= flagTimestamp
		dst = appendTimestamp(dst, m.Timestamp)
	}
	if !m.Delete && !m.Encoding.zero() {
		dst[head] |= flagEncoding
		dst = appendEncoding(dst, m.Encoding)
	}
	l := list{dst, head}
	l.addSource(m.Source)
	if m.Attachment != nil {
		l.addBuf(attachment, m.Attachment)
	}
	if m.Delete {
		return l.dst
	}
	return appendSlice(l.dst, m.Payload)
}

// ConsolidateNone is the Consolidation of a querier that requests every reply.
const ConsolidateNone = 1

// Query is the question in a Request.
type Query struct {
	Consolidation uint64 // 0: absent
	Parameters    []byte
	Source        Source
	Attachment    []byte // nil: absent
	HasBody       bool
	Encoding      Encoding // encoding of the body
	Payload       []byte   // the body
}

func (c *Cursor) query(m *Query) {
	*m = Query{}
	h := c.byte()
	if ID(h) != bodyQuery {
		c.fail(ErrHeader)
	}
	if h&flagConsolidation != 0 {
		m.Consolidation = c.vle()
	}
	if h&flagParameters != 0 {
		m.Parameters = c.text(maxParameters)
	}
	for x := c.extensions(h); x.next(); {
		switch x.id {
		case extSource:
			m.Source = c.source(x.buf)
		case extQueryBody:
			in := NewCursor(x.buf)
			m.HasBody, m.Encoding = true, in.encoding()
			m.Payload = in.Rest()
			c.check(&in)
		case extQueryAttachment:
			m.Attachment = x.buf
		default:
			x.skip()
		}
	}
}

func appendQuery(dst []byte, m *Query) []byte {
	head := len(dst)
	dst = append(dst, bodyQuery)
	if m.Consolidation != 0 {
		dst[head] |= flagConsolidation
		dst = appendVLE(dst, m.Consolidation)
	}
	if len(m.Parameters) > 0 {
		dst[head] |= flagParameters
		dst = appendSlice(dst, m.Parameters)
	}
	l := list{dst, head}
	l.addSource(m.Source)
	if m.HasBody {
		body := l.begin(extQueryBody)
		l.dst = append(appendEncoding(l.dst, m.Encoding), m.Payload...)
		l.end(body)
	}
	if m.Attachment != nil {
		l.addBuf(extQueryAttachment, m.Attachment)
	}
	return l.dst
}

// answer reads a Response's body: a Reply around a Put or Del, or an Err.
func (c *Cursor) answer(m *Response) {
	h := c.byte()
	switch ID(h) {
	case bodyReply:
		if h&flagConsolidation != 0 {
			m.Consolidation = c.vle()
		}
		c.skipAll(h)
		c.data(&m.Data)
	case bodyErr:
		m.Err = true
		if h&flagEncoding != 0 {
			m.Data.Encoding = c.encoding()
		}
		for x := c.extensions(h); x.next(); {
			if x.id == extSource {
				m.Data.Source = c.source(x.buf)
			} else {
				x.skip()
			}
		}
		m.Data.Payload = c.slice(maxPayload)
	default:
		c.fail(ErrHeader)
	}
}

func appendAnswer(dst []byte, m *Response) []byte {
	head := len(dst)
	if m.Err {
		dst = append(dst, bodyErr)
		if !m.Data.Encoding.zero() {
			dst[head] |= flagEncoding
			dst = appendEncoding(dst, m.Data.Encoding)
		}
		l := list{dst, head}
		l.addSource(m.Data.Source)
		return appendSlice(l.dst, m.Data.Payload)
	}
	dst = append(dst, bodyReply)
	if m.Consolidation != 0 {
		dst[head] |= flagConsolidation
		dst = appendVLE(dst, m.Consolidation)
	}
	return appendData(dst, &m.Data)
}
