package wire

import (
	"encoding/binary"
	"fmt"
)

// HeaderSize is the length of the attachment of every data sample.
const HeaderSize = 27

// MsgType is the type of a data sample.
type MsgType uint8

// The message types. The draft reserves Event without sending it; our server sends it.
const (
	MsgObservation MsgType = 1
	MsgActionChunk MsgType = 2
	MsgEvent       MsgType = 3
)

// String returns the type's name in docs/wire.md.
func (t MsgType) String() string {
	switch t {
	case MsgObservation:
		return "OBS"
	case MsgActionChunk:
		return "CHUNK"
	case MsgEvent:
		return "EVENT"
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// Header identifies a request. A server copies it into the answer and changes
// only MsgType.
type Header struct {
	SchemaVersion uint16
	MsgType       MsgType
	SeqID         uint64 // the robot's request counter; it begins at 1 and is never reset while the robot runs
	EpisodeID     uint32 // +1 at each reset
	ClientMonoNs  int64  // the robot's own clock at sending; opaque to the server
	SessionEpoch  uint32 // +1 at each attempt to reconnect
}

// AppendHeader appends the 27 bytes of h, little-endian and packed:
//
//	 0      2   3              11      15             23      27
//	+------+---+--------------+-------+--------------+-------+
//	|schema|typ|    seq_id    |episode|client_mono_ns| epoch |
//	+------+---+--------------+-------+--------------+-------+
//
//rt:noalloc
func AppendHeader(dst []byte, h Header) []byte {
	dst = binary.LittleEndian.AppendUint16(dst, h.SchemaVersion)
	dst = append(dst, byte(h.MsgType))
	dst = binary.LittleEndian.AppendUint64(dst, h.SeqID)
	dst = binary.LittleEndian.AppendUint32(dst, h.EpisodeID)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.ClientMonoNs))
	return binary.LittleEndian.AppendUint32(dst, h.SessionEpoch)
}

// ParseHeader reads an attachment. It accepts every schema version and message type, so that a receiver can count these
// two errors separately; Check refuses wrong ones. For a length other than HeaderSize it returns ErrMalformed.
//
//rt:noalloc
func ParseHeader(src []byte) (Header, error) {
	if len(src) != HeaderSize {
		return Header{}, errHeaderLength(len(src))
	}
	return Header{
		SchemaVersion: binary.LittleEndian.Uint16(src[0:]),
		MsgType:       MsgType(src[2]),
		SeqID:         binary.LittleEndian.Uint64(src[3:]),
		EpisodeID:     binary.LittleEndian.Uint32(src[11:]),
		ClientMonoNs:  int64(binary.LittleEndian.Uint64(src[15:])),
		SessionEpoch:  binary.LittleEndian.Uint32(src[23:]),
	}, nil
}

// Check refuses a header of another schema, or of another type than the parameter want.
//
//rt:noalloc
func (h Header) Check(want MsgType) error {
	if h.SchemaVersion != SchemaVersion || h.MsgType != want {
		return errHeader(h, want)
	}
	return nil
}

// Reply returns the header of an answer to h.
//
//rt:noalloc
func (h Header) Reply(t MsgType) Header {
	h.SchemaVersion, h.MsgType = SchemaVersion, t
	return h
}

//go:noinline
func errHeaderLength(n int) error {
	return fmt.Errorf("wire: header: got %d bytes, want %d: %w", n, HeaderSize, ErrMalformed)
}

//go:noinline
func errHeader(h Header, want MsgType) error {
	return fmt.Errorf("wire: header: got schema %d %v, want schema %d %v: %w",
		h.SchemaVersion, h.MsgType, SchemaVersion, want, ErrMalformed)
}
