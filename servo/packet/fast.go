package packet

// Fast is the progress in parsing a merged status frame. The frame is not stuffed; each servo's
// block ends with the CRC of everything before it, so that the blocks before a missing servo are
// valid.
type Fast struct {
	Start int    // index of the frame's first byte
	Done  int    // number of parsed blocks
	crc   uint16 // CRC of everything up to the next block
	size  int    // bytes up to the next block
}

const (
	fastHeader = 8 // bytes of a frame up to and including INST
	fastBlock  = 4 // ERR, ID and CRC of one servo
)

// FastSize returns the size of a merged status of count servos with params bytes each.
func FastSize(count, params int) int { return fastHeader + count*(params+fastBlock) }

// Next returns the next block of a merged status of count servos with params bytes each. ok is
// false while the block is incomplete; broken is true when the frame is damaged from there on.
//
//rt:noalloc
func (f *Fast) Next(in []byte, count, params int) (r Reply, ok, broken bool) {
	if f.size == 0 {
		n := FastSize(count, params) - dxlHeader
		header := [fastHeader]byte{0xFF, 0xFF, 0xFD, 0, Broadcast, byte(n), byte(n >> 8), byte(status)}
		for f.Start < len(in) && !beginsWith(in[f.Start:], header[:]) {
			f.Start++
		}
		if len(in)-f.Start < fastHeader {
			return Reply{}, false, false
		}
		f.size, f.crc = fastHeader, crc(0, in[f.Start:f.Start+fastHeader])
	}
	b := in[f.Start:]
	end := f.size + params + fastBlock
	if len(b) < end {
		return Reply{}, false, false
	}
	block := b[f.size:end]
	c := crc(f.crc, block[:params+2])
	if c != uint16(block[params+2])|uint16(block[params+3])<<8 {
		return Reply{}, false, true
	}
	f.crc, f.size = crc(c, block[params+2:]), end
	f.Done++
	return Reply{ID: block[1], Err: block[0], Params: block[2 : params+2]}, true, false
}
