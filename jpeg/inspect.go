package jpeg

import (
	"bytes"
	"encoding/binary"
)

// Picture is the information in the markers of a JPEG.
type Picture struct {
	W, H        int
	Chroma      Chroma
	Progressive bool
	// Tables reports that every Huffman table that the scan uses is in the file. The pictures of many webcams have no
	// tables and use the standard tables.
	Tables bool
	// Insert is the offset at which StandardTables are inserted if they are missing: before all but
	// the first segments, so that a table in the file takes precedence.
	Insert int
	// Scan is the offset of the first scan, after the segments that describe the coding.
	Scan int
	// End is the offset after the EOI; the driver's padding follows. After an error it is the
	// offset of the first invalid byte.
	End int
}

// The markers that are evaluated.
//
// Source: ITU-T T.81 (1992), table B.1.
const (
	markSOF0 = 0xc0 // baseline
	markSOF1 = 0xc1 // extended sequential: baseline with more tables
	markSOF2 = 0xc2 // progressive
	markDHT  = 0xc4
	markRST0 = 0xd0
	markRST7 = 0xd7
	markSOI  = 0xd8
	markEOI  = 0xd9
	markSOS  = 0xda
	markDQT  = 0xdb
	markDRI  = 0xdd
	markAPP0 = 0xe0
	markCOM  = 0xfe
)

// Inspect reads the markers of src without decoding, in a few microseconds. It is safe with hostile bytes, and skips a
// few stray bytes between segments, as decoders do.
//
// Errors: ErrCorrupt when markers are missing, cut or out of order; ErrTooLarge above MaxPixels or
// for more scans than components; errFormat unless the picture has 1 or 3 components of 8 bits,
// Huffman coded. A progressive picture is no error here.
//
//rt:noalloc
func Inspect(src []byte) (p Picture, err error) {
	if len(src) < 4 || src[0] != 0xff || src[1] != markSOI {
		return p, ErrCorrupt
	}
	s := scanner{src: src, at: 2}
	for !s.done {
		if err := s.segment(); err != nil {
			s.End = s.at
			return s.Picture, err
		}
	}
	s.End = s.at
	s.Tables = s.used&^s.tables == 0
	if s.used&^s.tables&^standardSet != 0 {
		return s.Picture, ErrCorrupt
	}
	return s.Picture, nil
}

// scanner walks the segments of one picture.
type scanner struct {
	Picture
	src          []byte
	at           int
	components   int
	scans        int
	quantized    bool  // a DQT was seen
	tables, used uint8 // Huffman tables: DC in bits 0 to 3, AC in 4 to 7
	done         bool
}

// segment reads the marker at s.at and its segment.
//
//rt:noalloc
func (s *scanner) segment() error {
	if !s.marker() {
		return ErrCorrupt
	}
	mark := s.src[s.at+1]
	if mark == markEOI {
		if s.scans == 0 {
			return ErrCorrupt
		}
		s.at, s.done = s.at+2, true
		return nil
	}
	if mark < markSOF0 || mark >= markRST0 && mark <= markSOI || s.at+4 > len(s.src) {
		return ErrCorrupt
	}
	size := int(binary.BigEndian.Uint16(s.src[s.at+2:]))
	if size < 2 || s.at+2+size > len(s.src) {
		return ErrCorrupt
	}
	body := s.src[s.at+4 : s.at+2+size]
	if s.Insert == 0 && (mark < markAPP0 || mark == markCOM) {
		s.Insert = s.at
	}
	var err error
	switch {
	case mark == markSOS:
		if s.Scan == 0 {
			s.Scan = s.at
		}
		err = s.scan(body)
	case mark == markDHT:
		err = s.huffman(body)
	case mark == markDQT:
		s.quantized = true
	case mark == markDRI && len(body) != 2:
		return ErrCorrupt
	case mark == markSOF0, mark == markSOF1, mark == markSOF2:
		s.Progressive = mark == markSOF2
		err = s.frame(body)
	case mark < markRST0: // other codings, and DAC
		err = errFormat
	}
	if err != nil {
		return err
	}
	s.at += 2 + size
	if mark == markSOS {
		s.entropy()
	}
	return nil
}

//rt:noalloc
func (s *scanner) marker() bool {
	for stray := 0; s.at+1 < len(s.src) && stray <= maxStray; {
		switch {
		case s.src[s.at] != 0xff:
			s.at++
			stray++
		case s.src[s.at+1] == 0xff:
			s.at++
		case s.src[s.at+1] == 0:
			s.at += 2
			stray += 2
		default:
			return true
		}
	}
	return false
}

//rt:noalloc
func (s *scanner) frame(body []byte) error {
	if s.components != 0 || len(body) < 6 || len(body) != 6+3*int(body[5]) {
		return ErrCorrupt
	}
	s.H, s.W = int(binary.BigEndian.Uint16(body[1:])), int(binary.BigEndian.Uint16(body[3:]))
	s.components = int(body[5])
	switch {
	case body[0] != 8 || s.components != 1 && s.components != 3:
		return errFormat
	case s.W == 0 || s.H == 0: // only image scanners send the height later, in a DNL segment
		return ErrCorrupt
	case s.W*s.H > MaxPixels:
		return ErrTooLarge
	}
	s.Chroma = ChromaGray
	if s.components == 3 {
		s.Chroma = chromaOf(body[7], body[10], body[13])
	}
	return nil
}

//rt:noalloc
func chromaOf(y, cb, cr byte) Chroma {
	if cb != 0x11 || cr != 0x11 {
		return ChromaOther
	}
	switch y {
	case 0x22:
		return Chroma420
	case 0x21:
		return Chroma422
	case 0x11:
		return Chroma444
	}
	return ChromaOther
}

//rt:noalloc
func (s *scanner) huffman(body []byte) error {
	for len(body) > 0 {
		if len(body) < 17 || body[0]&^0x13 != 0 {
			return ErrCorrupt
		}
		values := 0
		for _, n := range body[1:17] {
			values += int(n)
		}
		if values > 256 || 17+values > len(body) {
			return ErrCorrupt
		}
		s.tables |= 1 << (body[0]&3 + body[0]>>4*4)
		body = body[17+values:]
	}
	return nil
}

//rt:noalloc
func (s *scanner) scan(body []byte) error {
	if s.components == 0 || !s.quantized || len(body) < 1 || len(body) != 4+2*int(body[0]) ||
		int(body[0]) > s.components || body[0] == 0 {
		return ErrCorrupt
	}
	s.scans++
	if !s.Progressive && s.scans > maxScans {
		return ErrTooLarge
	}
	for i := range int(body[0]) {
		selector := body[2+2*i]
		if selector&^0x33 != 0 {
			return ErrCorrupt
		}
		s.used |= 1<<(selector>>4) | 1<<(selector&3+4)
	}
	return nil
}

// entropy skips coded data and restart markers, up to the next other marker.
//
//rt:noalloc
func (s *scanner) entropy() {
	for {
		i := bytes.IndexByte(s.src[s.at:], 0xff)
		if i < 0 || s.at+i+1 >= len(s.src) {
			s.at = len(s.src)
			return
		}
		s.at += i
		next := s.src[s.at+1]
		if next != 0 && next != 0xff && (next < markRST0 || next > markRST7) {
			return
		}
		if next == 0xff {
			s.at++
		} else {
			s.at += 2
		}
	}
}
