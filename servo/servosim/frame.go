package servosim

// A frame of Feetech and of Dynamixel protocol 1.0, in both directions:
//
//	FF FF | id | length | instruction or error | parameters ... | checksum
//
// length counts what follows it. The checksum is the complement of the sum of
// everything between the two FF and itself. Nothing is stuffed, so FF FF may
// occur inside a frame, and a receiver that lost its place drops one byte and
// looks again.
//
// Source: Feetech communication protocol manual, section 1; ROBOTIS e-manual,
// protocol 1.0.
const (
	broadcast     = 0xFE
	frameOverhead = 6 // of a frame without parameters
	lengthMax     = 250
	dataMax       = lengthMax - 2 // of a reply
)

// cut finds the first intact request in buf and returns how many bytes it used
// up, garbage before it included. ok is false when used bytes were garbage or,
// with used == 0, when the frame has not come to its end yet. bad says that the
// garbage began like a frame whose checksum was wrong; r.id is whom it named.
// params are borrowed.
//
//rt:noalloc
func cut(buf []byte) (r frame, used int, ok, bad bool) {
	for used < len(buf) {
		f := buf[used:]
		switch {
		case f[0] != 0xFF, len(f) > 1 && f[1] != 0xFF, len(f) > 2 && f[2] == 0xFF, len(f) > 3 && (f[3] < 2 || f[3] > lengthMax):
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

// appendStatus appends a servo's reply.
//
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
