package packet

import "bytes"

// Dynamixel2 is the frame of Dynamixel protocol 2.0:
//
//	FF FF FD 00 | ID | LEN (2) | INST | parameters ... | CRC (2)
//
// LEN counts INST, parameters and CRC; a status has INST 55 and the error byte before its data.
// From INST to the parameters' end, the sender inserts an FD after every FF FF FD, so that no
// header can occur inside. LEN and CRC include the inserted bytes.
type Dynamixel2 struct{}

var dxlStart = []byte{0xFF, 0xFF, 0xFD, 0}

const (
	dxlHeader   = 7  // bytes of a frame up to and including LEN
	dxlOverhead = 11 // all bytes of a status except its parameters
	dxlMaxLen   = 1024
	dxlAlert    = 0x80
)

func (Dynamixel2) Overhead() int         { return dxlOverhead }
func (Dynamixel2) Refused(err byte) bool { return err&^dxlAlert != 0 }

//rt:noalloc
func dxlBegin(dst []byte, id byte, inst Instruction) []byte {
	return append(dst, 0xFF, 0xFF, 0xFD, 0x00, id, 0, 0, byte(inst))
}

// dxlEnd stuffs the bytes after the header of the frame at start, fills in LEN and appends the CRC.
//
//rt:noalloc
func dxlEnd(dst []byte, start int) []byte {
	body := start + dxlHeader
	for i := body + 3; i <= len(dst); i++ {
		if dst[i-3] == 0xFF && dst[i-2] == 0xFF && dst[i-1] == 0xFD {
			dst = append(dst, 0)
			copy(dst[i+1:], dst[i:])
			dst[i] = 0xFD
			i++ // the FD is no part of the next match
		}
	}
	n := len(dst) - body + 2
	if n > dxlMaxLen {
		panic("packet: frame too long")
	}
	dst[start+5], dst[start+6] = byte(n), byte(n>>8)
	c := crc(0, dst[start:])
	return append(dst, byte(c), byte(c>>8))
}

//rt:noalloc
func (Dynamixel2) Append(dst []byte, id byte, inst Instruction, params ...byte) []byte {
	start := len(dst)
	dst = dxlBegin(dst, id, inst)
	return dxlEnd(append(dst, params...), start)
}

//rt:noalloc
func (Dynamixel2) AppendRead(dst []byte, id byte, addr, n int) []byte {
	start := len(dst)
	dst = dxlBegin(dst, id, Read)
	return dxlEnd(append(dst, byte(addr), byte(addr>>8), byte(n), byte(n>>8)), start)
}

//rt:noalloc
func (Dynamixel2) AppendWrite(dst []byte, id byte, addr int, data []byte) []byte {
	start := len(dst)
	dst = append(dxlBegin(dst, id, Write), byte(addr), byte(addr>>8))
	return dxlEnd(append(dst, data...), start)
}

//rt:noalloc
func (Dynamixel2) AppendSyncRead(dst []byte, addr, n int, ids []byte) []byte {
	return appendSync(dst, SyncRead, addr, n, ids)
}

// AppendFastSyncRead appends a request for the same data as that of AppendSyncRead. All servos
// answer in one frame, which Fast parses.
//
//rt:noalloc
func (Dynamixel2) AppendFastSyncRead(dst []byte, addr, n int, ids []byte) []byte {
	return appendSync(dst, FastSyncRead, addr, n, ids)
}

//rt:noalloc
func appendSync(dst []byte, inst Instruction, addr, n int, ids []byte) []byte {
	start := len(dst)
	dst = append(dxlBegin(dst, Broadcast, inst), byte(addr), byte(addr>>8), byte(n), byte(n>>8))
	return dxlEnd(append(dst, ids...), start)
}

//rt:noalloc
func (Dynamixel2) AppendSyncWrite(dst []byte, addr, n int, ids, data []byte) []byte {
	if len(data) != n*len(ids) {
		panic("packet: sync write wants the same number of bytes for each id")
	}
	start := len(dst)
	dst = append(dxlBegin(dst, Broadcast, SyncWrite), byte(addr), byte(addr>>8), byte(n), byte(n>>8))
	for i, id := range ids {
		dst = append(dst, id)
		dst = append(dst, data[i*n:(i+1)*n]...)
	}
	return dxlEnd(dst, start)
}

//rt:noalloc
func (d Dynamixel2) Cut(in []byte, params int) (r Reply, skipped int, rest []byte, ok bool) {
	for i := range in {
		switch size := d.frameSize(in[i:], params); {
		case size > 0:
			f := in[i : i+size]
			body := f[dxlHeader : size-2]
			if n := unstuffedLen(body); params >= 0 && n != params+2 && !(n == 2 && d.Refused(body[1])) {
				continue // the length fits only because of stuffed bytes: the frame answers another request
			}
			data := unstuff(body)
			return Reply{f[4], data[1], data[2:]}, i, in[i+size:], true
		case size == 0:
			return Reply{}, i, in[i:], false
		}
	}
	return Reply{}, len(in), in[len(in):], false
}

// frameSize returns the size of the intact status frame that b begins with, 0 when b ends too early
// to decide, and -1 when no frame begins here.
//
//rt:noalloc
func (d Dynamixel2) frameSize(b []byte, params int) int {
	if !beginsWith(b, dxlStart) || len(b) > 4 && b[4] >= maxIDInReply {
		return -1
	}
	if len(b) < dxlHeader {
		return 0
	}
	n := int(b[5]) | int(b[6])<<8
	least, most := 4, dxlMaxLen
	if params >= 0 {
		least, most = params+4, params+4+(params+2)/3
	}
	if n > most || n < least && n != 4 || n < 4 {
		return -1
	}
	if len(b) > dxlHeader && b[dxlHeader] != byte(status) {
		return -1
	}
	size := dxlHeader + n
	if len(b) < size {
		return 0
	}
	if crc(0, b[:size-2]) != uint16(b[size-2])|uint16(b[size-1])<<8 {
		return -1
	}
	return size
}

// beginsWith reports whether b begins with a header, or with the start of one.
//
//rt:noalloc
func beginsWith(b, header []byte) bool {
	n := min(len(b), len(header))
	return bytes.Equal(b[:n], header[:n])
}

// stuffing finds the inserted bytes in a stuffed body. An inserted FD is not part of the next FF FF FD.
type stuffing int // number of bytes of FF FF FD that have matched

// drop takes the next byte of the body and reports whether it is an inserted FD.
//
//rt:noalloc
func (run *stuffing) drop(v byte) bool {
	switch {
	case *run == 3:
		*run = 0
		if v == 0xFD {
			return true
		}
		if v == 0xFF {
			*run = 1
		}
	case v == 0xFF:
		*run = min(2, *run+1)
	case v == 0xFD && *run == 2:
		*run = 3
	default:
		*run = 0
	}
	return false
}

//rt:noalloc
func unstuffedLen(b []byte) int {
	n, run := 0, stuffing(0)
	for _, v := range b {
		if !run.drop(v) {
			n++
		}
	}
	return n
}

// unstuff removes the FD after every FF FF FD from b, in place.
//
//rt:noalloc
func unstuff(b []byte) []byte {
	to, run := 0, stuffing(0)
	for _, v := range b {
		if !run.drop(v) {
			b[to] = v
			to++
		}
	}
	return b[:to]
}

// crcTable is the table of CRC-16 with polynomial 8005, without reflection.
var crcTable = func() (t [256]uint16) {
	for i := range t {
		c := uint16(i) << 8
		for range 8 {
			top := c&0x8000 != 0
			c <<= 1
			if top {
				c ^= 0x8005
			}
		}
		t[i] = c
	}
	return t
}()

//rt:noalloc
func crc(c uint16, b []byte) uint16 {
	for _, v := range b {
		c = c<<8 ^ crcTable[byte(c>>8)^v]
	}
	return c
}
