package packet

// plain is the frame of Feetech's servos and of Dynamixel protocol 1.0, in both directions:
//
//	FF FF | ID | LEN | INST or ERR | parameters ... | CHK
//
// LEN counts the parameters plus two. CHK is the inverted low byte of the sum of everything after
// FF FF. Nothing is escaped: FF FF may also occur inside.
//
// refusals has the error bits with which a servo refuses a request. It is 0 for Feetech, whose
// error bits are all alerts.
type plain struct{ refusals byte }

// The two protocols with this frame. A Dynamixel refuses a goal beyond its angle limits, a value out of range, a wrong
// checksum and an unknown instruction: error bits 1, 3, 4 and 6.
var (
	Feetech    = plain{}
	Dynamixel1 = plain{refusals: 1<<1 | 1<<3 | 1<<4 | 1<<6}
)

const (
	plainOverhead = 6   // all bytes that are not parameters
	plainMaxLen   = 250 // the vendor's limit on LEN
	plainMaxErr   = 0x7F
)

func (plain) Overhead() int           { return plainOverhead }
func (p plain) Refused(err byte) bool { return err&p.refusals != 0 }

//rt:noalloc
func (p plain) Append(dst []byte, id byte, inst Instruction, params ...byte) []byte {
	start := len(dst)
	dst = append(dst, 0xFF, 0xFF, id, 0, byte(inst))
	dst = append(dst, params...)
	return plainEnd(dst, start)
}

//rt:noalloc
func plainEnd(dst []byte, start int) []byte {
	n := len(dst) - start - 3
	if n > plainMaxLen {
		panic("packet: frame too long")
	}
	dst[start+3] = byte(n)
	return append(dst, checksum(dst[start+2:]))
}

//rt:noalloc
func (p plain) AppendRead(dst []byte, id byte, addr, n int) []byte {
	start := len(dst)
	return plainEnd(append(dst, 0xFF, 0xFF, id, 0, byte(Read), byte(addr), byte(n)), start)
}

//rt:noalloc
func (p plain) AppendWrite(dst []byte, id byte, addr int, data []byte) []byte {
	start := len(dst)
	dst = append(dst, 0xFF, 0xFF, id, 0, byte(Write), byte(addr))
	return plainEnd(append(dst, data...), start)
}

//rt:noalloc
func (p plain) AppendSyncRead(dst []byte, addr, n int, ids []byte) []byte {
	start := len(dst)
	dst = append(dst, 0xFF, 0xFF, Broadcast, 0, byte(SyncRead), byte(addr), byte(n))
	return plainEnd(append(dst, ids...), start)
}

//rt:noalloc
func (p plain) AppendSyncWrite(dst []byte, addr, n int, ids, data []byte) []byte {
	if len(data) != n*len(ids) {
		panic("packet: sync write wants the same number of bytes for each id")
	}
	start := len(dst)
	dst = append(dst, 0xFF, 0xFF, Broadcast, 0, byte(SyncWrite), byte(addr), byte(n))
	for i, id := range ids {
		dst = append(dst, id)
		dst = append(dst, data[i*n:(i+1)*n]...)
	}
	return plainEnd(dst, start)
}

// Cut compares LEN with the parameter params, because a frame with a damaged LEN would otherwise swallow the next
// replies. Cut skips an intact frame of another length as a whole: since no bytes are escaped, the parameters of that
// frame may look like a frame.
//
//rt:noalloc
func (p plain) Cut(in []byte, params int) (r Reply, skipped int, rest []byte, ok bool) {
	for i := 0; i < len(in); i++ {
		switch size := p.frameSize(in[i:], params); {
		case size > 0:
			f := in[i : i+size]
			return Reply{f[2], f[4], f[5 : size-1]}, i, in[i+size:], true
		case size == 0:
			return Reply{}, i, in[i:], false
		case params >= 0:
			if other := p.frameSize(in[i:], -1); other > 0 {
				i += other - 1
			}
		}
	}
	return Reply{}, len(in), in[len(in):], false
}

// frameSize returns the size of the intact frame that b begins with, 0 when b ends too early to
// decide, and -1 when no frame begins here.
//
//rt:noalloc
func (p plain) frameSize(b []byte, params int) int {
	const id, length, fault = 2, 3, 4
	switch {
	case b[0] != 0xFF || len(b) > 1 && b[1] != 0xFF:
		return -1
	case len(b) > id && b[id] > maxIDInReply:
		return -1
	case len(b) > length && (b[length] < 2 || b[length] > plainMaxLen):
		return -1
	case len(b) > fault && b[fault] > plainMaxErr:
		return -1
	case len(b) > length && params >= 0 && int(b[length]) != params+2:
		// A shorter answer is a refusal, with an error bit set.
		if p.refusals == 0 || b[length] != 2 || len(b) > fault && !p.Refused(b[fault]) {
			return -1
		}
	}
	if len(b) <= length || len(b) < int(b[length])+4 {
		return 0
	}
	size := int(b[length]) + 4
	if checksum(b[2:size-1]) != b[size-1] {
		return -1
	}
	return size
}

//rt:noalloc
func checksum(b []byte) byte {
	sum := byte(0)
	for _, v := range b {
		sum += v
	}
	return ^sum
}
