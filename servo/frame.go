package servo

// A frame on the line, in both directions:
//
//	FF FF | ID | LEN | INST or ERR | parameters ... | CHK
//
// LEN counts the parameters plus two. CHK is the inverted low byte of the sum
// of everything after FF FF. Nothing is escaped: FF FF may also occur inside.
//
// Source: Feetech STS protocol manual; FTServo SDK packet handler.
const (
	frameOverhead = 6   // all bytes that are not parameters
	maxLen        = 250 // the vendor's limit on LEN
	maxReplyID    = 0xFD
	maxReplyErr   = 0x7F
)

const (
	instPing      = 0x01
	instRead      = 0x02
	instWrite     = 0x03
	instSyncRead  = 0x82
	instSyncWrite = 0x83
)

// maxSyncMotors keeps a sync write of two-byte values below maxLen.
const maxSyncMotors = 32

const _ = uint(maxLen - (4 + 3*maxSyncMotors))

// AppendPing appends the frame that asks id whether it is there.
func AppendPing(dst []byte, id ID) []byte {
	start := len(dst)
	dst = append(dst, 0xFF, 0xFF, byte(id), 2, instPing)
	return append(dst, checksum(dst[start+2:]))
}

// AppendRead appends the frame that asks id for one register.
func AppendRead(dst []byte, id ID, r Register) []byte {
	start := len(dst)
	dst = append(dst, 0xFF, 0xFF, byte(id), 4, instRead, r.Addr(), byte(r.Width()))
	return append(dst, checksum(dst[start+2:]))
}

// AppendWrite appends the frame that sets one register of id to a raw word.
func AppendWrite(dst []byte, id ID, r Register, word uint16) []byte {
	start := len(dst)
	dst = append(dst, 0xFF, 0xFF, byte(id), byte(3+r.Width()), instWrite, r.Addr())
	dst = appendWord(dst, word, r.Width())
	return append(dst, checksum(dst[start+2:]))
}

// AppendSyncRead appends the frame that asks all ids for count bytes from addr;
// each answers with its own status frame, by custom in the order of ids.
func AppendSyncRead(dst []byte, addr byte, count int, ids []ID) []byte {
	if len(ids) == 0 || len(ids) > maxSyncMotors || count < 1 || count > maxLen-2 {
		panic("servo: sync read wants 1 to 32 ids and 1 to 248 bytes")
	}
	start := len(dst)
	dst = append(dst, 0xFF, 0xFF, byte(Broadcast), byte(4+len(ids)), instSyncRead, addr, byte(count))
	for _, id := range ids {
		dst = append(dst, byte(id))
	}
	return append(dst, checksum(dst[start+2:]))
}

// AppendSyncWrite appends the frame that sets one register of every id to its
// own raw word; nobody answers.
//
//rt:noalloc
func AppendSyncWrite(dst []byte, r Register, ids []ID, words []uint16) []byte {
	if len(ids) == 0 || len(words) != len(ids) || len(ids) > maxSyncMotors {
		panic("servo: sync write wants one word per id, 1 to 32 ids")
	}
	start := len(dst)
	width := r.Width()
	dst = append(dst, 0xFF, 0xFF, byte(Broadcast), byte(4+(1+width)*len(ids)), instSyncWrite, r.Addr(), byte(width))
	for i, id := range ids {
		dst = append(dst, byte(id))
		dst = appendWord(dst, words[i], width)
	}
	return append(dst, checksum(dst[start+2:]))
}

// Frame is one intact status frame, borrowed from the bytes it was cut from.
type Frame []byte

func (f Frame) ID() ID         { return ID(f[2]) }
func (f Frame) Fault() Fault   { return Fault(f[4]) }
func (f Frame) Params() []byte { return f[5 : len(f)-1] }

// Cut finds the first intact status frame in in that carries params parameter
// bytes; params < 0 takes any number. It returns the frame and the bytes behind
// it, both borrowed. With no frame it returns nil and the tail that may still
// become one.
//
// Bytes that fit no frame are dropped one at a time and scanned again, because
// a damaged frame may hide the start of the next one; FF FF FF before an id is
// such a case. Knowing params beforehand keeps a damaged LEN from swallowing
// the replies behind it.
//
//rt:noalloc
func Cut(in []byte, params int) (frame Frame, rest []byte) {
	for i := range in {
		switch size := frameSize(in[i:], params); {
		case size > 0:
			return Frame(in[i : i+size]), in[i+size:]
		case size == 0:
			return nil, in[i:]
		}
	}
	return nil, in[len(in):]
}

// frameSize returns the size of the intact frame that b begins with, 0 when b
// ends too early to tell, and -1 when no frame begins here.
func frameSize(b []byte, params int) int {
	const id, length, fault = 2, 3, 4
	switch {
	case b[0] != 0xFF || len(b) > 1 && b[1] != 0xFF:
		return -1
	case len(b) > id && b[id] > maxReplyID:
		return -1
	case len(b) > length && (b[length] < 2 || b[length] > maxLen || params >= 0 && int(b[length]) != params+2):
		return -1
	case len(b) > fault && b[fault] > maxReplyErr:
		return -1
	case len(b) <= length || len(b) < int(b[length])+4:
		return 0
	}
	size := int(b[length]) + 4
	if checksum(b[2:size-1]) != b[size-1] {
		return -1
	}
	return size
}

func checksum(b []byte) byte {
	sum := byte(0)
	for _, v := range b {
		sum += v
	}
	return ^sum
}

// appendWord appends the low width bytes of a word, little endian as all STS
// registers are.
func appendWord(dst []byte, word uint16, width int) []byte {
	if width == 1 {
		return append(dst, byte(word))
	}
	return append(dst, byte(word), byte(word>>8))
}

func parseWord(b []byte) uint16 {
	if len(b) == 1 {
		return uint16(b[0])
	}
	return uint16(b[0]) | uint16(b[1])<<8
}
