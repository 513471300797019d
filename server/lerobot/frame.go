package lerobot

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/server/remote"
)

// kind is the kind of a frame.
type kind uint16

const (
	kindHello kind = 1 + iota
	kindMap
	kindReady
	kindRun
	kindDone
	kindProgress
	kindFailed
)

const (
	magic      = 0x4B574C45 // "ELWK"
	headerSize = 20
	maxPayload = 1 << 20
	sessionLen = 32
)

// header is the beginning of a frame.
type header struct {
	kind     kind
	count    int
	length   int
	sequence uint64
}

// appendHeader appends a frame's header.
func appendHeader(dst []byte, h header) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, magic)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(h.kind))
	dst = binary.LittleEndian.AppendUint16(dst, uint16(h.count))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(h.length))
	return binary.LittleEndian.AppendUint64(dst, h.sequence)
}

// parseHeader reads a frame's header.
func parseHeader(src []byte) (h header, err error) {
	if len(src) != headerSize {
		return h, fmt.Errorf("a header of %d bytes, want %d", len(src), headerSize)
	}
	h = header{
		kind:     kind(binary.LittleEndian.Uint16(src[4:])),
		count:    int(binary.LittleEndian.Uint16(src[6:])),
		length:   int(binary.LittleEndian.Uint32(src[8:])),
		sequence: binary.LittleEndian.Uint64(src[12:]),
	}
	if got := binary.LittleEndian.Uint32(src); got != magic {
		return h, fmt.Errorf("a frame begins with %#x, want %#x", got, magic)
	}
	if h.length > maxPayload {
		return h, fmt.Errorf("a frame of %d bytes, want at most %d", h.length, maxPayload)
	}
	return h, nil
}

// readFrame reads one frame into buf, or into a larger buffer where buf is too small. The result payload is a part of
// that buffer, and the result larger is the whole buffer, for the next call.
func readFrame(from io.Reader, buf []byte) (h header, payload, larger []byte, err error) {
	if _, err = io.ReadFull(from, buf[:headerSize]); err != nil {
		return h, nil, buf, err
	}
	if h, err = parseHeader(buf[:headerSize]); err != nil {
		return h, nil, buf, err
	}
	if len(buf) < h.length {
		buf = make([]byte, h.length)
	}
	_, err = io.ReadFull(from, buf[:h.length])
	return h, buf[:h.length], buf, err
}

// The flags of a request.
const (
	flagReset = 1 << iota
	flagConditioned
	flagOwn
)

// appendRequest appends the request of the row with the number slot. It cuts a session id that is longer than 32
// bytes, and fills up a shorter id with zeros.
func appendRequest(dst []byte, slot int, r *remote.Row) []byte {
	flags := uint32(0)
	if r.Reset {
		flags |= flagReset
	}
	if r.Mode != policy.ModeFree && r.PrefixLen > 0 {
		flags |= flagConditioned
	}
	if r.Session == "" {
		flags |= flagOwn
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(slot))
	dst = binary.LittleEndian.AppendUint32(dst, flags)
	at := len(dst)
	dst = append(dst, make([]byte, sessionLen)...)
	copy(dst[at:], r.Session)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(r.Episode))
	dst = binary.LittleEndian.AppendUint64(dst, r.Seed)
	for _, n := range []int{r.PrefixLen, r.Delay, r.PrefixEnd, len(r.Task)} {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(n))
	}
	return append(dst, r.Task...)
}
