package pipe

import (
	"bytes"
	"encoding/binary"
)

// Markers of a JPEG.
//
// Source: ITU-T T.81 (1992), table B.1.
const (
	mark0   = 0xff
	markTEM = 0x01
	markRST = 0xd0 // first of the restart markers, which end at 0xd7
	markSOI = 0xd8
	markEOI = 0xd9
	markSOF = 0xc0 // the first marker whose segment has a length
)

var startOfImage = []byte{mark0, markSOI, mark0}

// splitter cuts a stream into JPEG pictures by their markers, without decoding. It reads each byte
// once, and skips bytes between pictures, such as the headers of multipart/x-mixed-replace.
type splitter struct {
	inside bool // the bytes begin with a picture
	at     int  // offset of the next byte to look at
}

// cut is the splitter's result.
type cut struct {
	drop    int  // bytes at the beginning that belong to no picture
	picture int  // bytes of the next picture, which follow drop; 0: the picture is not complete
	torn    bool // drop has the beginning of a picture that did not end
}

// next looks for the end of the first picture in b. The caller then removes the dropped bytes and the picture from b,
// may append newer bytes, and calls next again.
//
//rt:noalloc
func (s *splitter) next(b []byte) (c cut) {
	if !s.inside {
		if c.drop = bytes.Index(b, startOfImage); c.drop < 0 {
			c.drop = max(0, len(b)-len(startOfImage)+1)
			return c
		}
		s.inside, s.at = true, c.drop+2
	}
	for s.at < len(b) {
		i := bytes.IndexByte(b[s.at:], mark0)
		if i < 0 {
			s.at = len(b)
			break
		}
		if s.at += i; s.at+1 >= len(b) {
			break
		}
		switch mark := b[s.at+1]; {
		case mark == markEOI:
			c.picture = s.at + 2 - c.drop
			s.inside, s.at = false, 0
			return c
		case mark == markSOI:
			c.torn, c.drop = true, s.at
			s.at = 2
			return c
		case mark == mark0:
			s.at++
		case mark <= markTEM || mark >= markRST && mark < markSOI || mark < markSOF:
			s.at += 2
		case s.at+4 > len(b):
			s.at -= c.drop
			return c // the segment's length has not arrived yet
		default:
			s.at += 2 + int(binary.BigEndian.Uint16(b[s.at+2:]))
		}
	}
	s.at -= c.drop
	return c
}

// restart forgets a picture whose end has not arrived.
func (s *splitter) restart() { *s = splitter{} }
