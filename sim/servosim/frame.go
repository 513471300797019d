package servosim

import "bytes"

// A frame of Feetech and of Dynamixel protocol 1.0, in both directions:
//
//	FF FF | id | length | instruction or error | parameters ... | checksum
//
// length counts the bytes after it. The checksum is the complement of the sum of the bytes between
// FF FF and itself. No bytes are stuffed, so FF FF may occur inside a frame. A receiver that finds
// no intact frame drops one byte and tries again.
//
// Source: Feetech communication protocol manual, section 1; ROBOTIS e-manual, protocol 1.0.
const (
	broadcast     = 0xFE
	frameOverhead = 6 // bytes of a frame without parameters
	lengthMax     = 250
	dataMax       = lengthMax - 2 // most data bytes in a reply
)

// cut finds the first intact request in buf. used is the number of bytes it consumes, including garbage before the
// request. ok is false when cut consumed only garbage, or nothing because the frame is not complete yet. bad is true
// when cut stopped at a frame for the servo r.id with a wrong checksum; cut then consumed that frame's first byte. The
// parameters of r are a part of buf.
//
//rt:noalloc
func cut(buf []byte) (r frame, used int, ok, bad bool) {
	for used < len(buf) {
		f := buf[used:]
		switch {
		case f[0] != 0xFF, len(f) > 1 && f[1] != 0xFF, len(f) > 2 && f[2] == 0xFF, len(f) > 3 &&
			(f[3] < 2 || f[3] > lengthMax):
			used++
			continue
		case len(f) < 4 || len(f) < int(f[3])+4:
			return frame{}, used, false, false
		}
		end := int(f[3]) + 4
		if checksum(f[2:end-1]) != f[end-1] {
			return frame{id: f[2]}, used + 1, false, true
		}
		return frame{id: f[2], inst: f[4], params: f[5 : end-1]}, used + end, true, false
	}
	return frame{}, used, false, false
}

// frame is one intact frame, or a packet of protocol 2.0 without its stuffing.
type frame struct {
	id, inst uint8
	params   []byte
}

//rt:noalloc
func appendStatus(dst []byte, id, fault uint8, data []byte) []byte {
	start := len(dst)
	dst = append(dst, 0xFF, 0xFF, id, byte(len(data)+2), fault)
	dst = append(dst, data...)
	return append(dst, checksum(dst[start+2:]))
}

//rt:noalloc
func checksum(b []byte) byte {
	var sum byte
	for _, v := range b {
		sum += v
	}
	return ^sum
}

// A packet of Dynamixel protocol 2.0, in both directions:
//
//	FF FF FD 00 | id | length (2) | instruction | parameters ... | CRC (2)
//
// length counts the bytes after it. Between length and CRC an FD is stuffed in after every FF FF
// FD, so that a header cannot occur inside. A receiver that finds no intact packet continues at the
// next header. length and CRC include the stuffed bytes. The merged status of a fast read is not
// stuffed.
//
// Source: ROBOTIS e-manual, protocol 2.0.
const (
	packetOverhead = 10 // bytes of a packet without parameters
	packetHead     = 7
	packetMin      = 3    // smallest value of length
	packetMax      = 3000 // largest length that a servo here accepts
	statusInst     = 0x55
)

var crcTable = func() (t [256]uint16) {
	for i := range t {
		c := uint16(i) << 8
		for range 8 {
			if c&0x8000 != 0 {
				c = c<<1 ^ 0x8005
			} else {
				c <<= 1
			}
		}
		t[i] = c
	}
	return t
}()

//rt:noalloc
func crc(b []byte) (c uint16) {
	for _, v := range b {
		c = c<<8 ^ crcTable[byte(c>>8)^v]
	}
	return c
}

// isHeader reports whether b is the beginning of a packet, or of its header when b is shorter.
//
//rt:noalloc
func isHeader(b []byte) bool { return bytes.HasPrefix(header, b[:min(len(b), len(header))]) }

var header = []byte{0xFF, 0xFF, 0xFD, 0}

// cutPacket does the same as cut for packets of protocol 2.0. It writes the parameters, without
// their stuffing, into room. A packet is bad when its body has an FF FF FD without stuffing.
//
//rt:noalloc
func cutPacket(buf, room []byte) (r frame, used int, ok, bad bool) {
	for used < len(buf) {
		p := buf[used:]
		if !isHeader(p) || len(p) > 4 && p[4] > broadcast {
			used++
			continue
		}
		if len(p) < packetHead {
			return frame{}, used, false, false
		}
		length := int(p[5]) | int(p[6])<<8
		if length < packetMin || length > packetMax {
			used++
			continue
		}
		end := packetHead + length
		if next := bytes.Index(p[4:min(end, len(p))], header); next > 0 {
			return frame{}, used + 4 + next, false, true
		}
		if len(p) < end {
			return frame{}, used, false, false
		}
		if crc(p[:end-2]) != uint16(p[end-2])|uint16(p[end-1])<<8 {
			return frame{id: p[4]}, used + 1, false, true
		}
		body, clean := unstuff(room[:0], p[packetHead:end-2])
		if !clean || len(body) == 0 {
			return frame{}, used + end, false, true
		}
		return frame{id: p[4], inst: body[0], params: body[1:]}, used + end, true, false
	}
	return frame{}, used, false, false
}

// unstuff appends to dst the bytes of src without the FD that is stuffed after every FF FF FD.
// clean is false when a stuffed FD is missing. A stuffed FD does not count as part of a following
// FF FF FD.
//
//rt:noalloc
func unstuff(dst, src []byte) (out []byte, clean bool) {
	clean = true
	for i := 0; i < len(src); i++ {
		dst = append(dst, src[i])
		if i < 2 || src[i] != 0xFD || src[i-1] != 0xFF || src[i-2] != 0xFF {
			continue
		}
		if i+1 < len(src) && src[i+1] == 0xFD {
			i++
		} else {
			clean = false
		}
	}
	return dst, clean
}

//rt:noalloc
func appendPacket(dst []byte, id, fault uint8, data []byte) []byte {
	start := len(dst)
	dst = append(dst, 0xFF, 0xFF, 0xFD, 0, id, 0, 0, statusInst, fault)
	for _, v := range data {
		dst = append(dst, v)
		if n := len(dst); v == 0xFD && dst[n-2] == 0xFF && dst[n-3] == 0xFF {
			dst = append(dst, 0xFD)
		}
	}
	length := len(dst) - start - packetHead + 2
	dst[start+5], dst[start+6] = byte(length), byte(length>>8)
	return appendCRC(dst, crc(dst[start:]))
}

//rt:noalloc
func appendCRC(dst []byte, c uint16) []byte { return append(dst, byte(c), byte(c>>8)) }
