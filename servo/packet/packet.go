// Package packet encodes and decodes the frames of servo buses: the frame of Feetech and of
// Dynamixel protocol 1.0 (plain.go) and the frame of Dynamixel protocol 2.0 (dynamixel.go). The
// package is independent of registers and keeps no state.
//
// The Append methods never fail: they panic when data do not fit a frame, which is a mistake of the
// program. Cut accepts any bytes and never panics. Where no intact frame begins it skips one byte,
// because a damaged frame may hide the start of the next one.
//
// Sources: Feetech STS protocol manual; ROBOTIS e-manual, protocols 1.0 and 2.0.
package packet

// Broadcast is the id of all servos: every servo obeys a request to it, but answers only a ping.
const Broadcast = 0xFE

// Instruction is the command of a request.
type Instruction byte

// The instructions that the driver sends.
const (
	Ping         Instruction = 0x01
	Read         Instruction = 0x02
	Write        Instruction = 0x03
	Reboot       Instruction = 0x08
	status       Instruction = 0x55 // protocol 2.0
	SyncRead     Instruction = 0x82
	SyncWrite    Instruction = 0x83
	FastSyncRead Instruction = 0x8A // protocol 2.0
)

// maxIDInReply is the highest id that Cut accepts in a reply; protocol 2.0 reserves this id.
const maxIDInReply = 0xFD

// Reply is one intact status frame. Params is a part of the input of Cut; Dynamixel2.Cut has removed the stuffing from
// it.
type Reply struct {
	ID     byte
	Err    byte // error byte as on the line: bits, or a code and the alert bit
	Params []byte
}

// Format writes requests and finds replies.
type Format interface {
	// Append appends any instruction with its parameters.
	Append(dst []byte, id byte, inst Instruction, params ...byte) []byte
	// AppendRead requests n bytes of the servo id, beginning at addr.
	AppendRead(dst []byte, id byte, addr, n int) []byte
	// AppendWrite writes data into the servo id, beginning at addr.
	AppendWrite(dst []byte, id byte, addr int, data []byte) []byte
	// AppendSyncRead requests n bytes of each servo in ids, beginning at addr. Each servo answers with its own frame.
	AppendSyncRead(dst []byte, addr, n int, ids []byte) []byte
	// AppendSyncWrite sets n bytes of each servo in ids, beginning at addr; data holds n bytes for each servo. No servo
	// answers.
	AppendSyncWrite(dst []byte, addr, n int, ids, data []byte) []byte
	// Cut returns the first intact status frame of the input that has params bytes of parameters, or that has no
	// parameters and an error byte for a refusal; with params < 0 any number is accepted. rest is the input
	// after the frame. ok is false when there is no such frame; rest is then the start of a possible frame.
	// skipped counts the bytes before the frame, or before rest without a frame.
	Cut(in []byte, params int) (r Reply, skipped int, rest []byte, ok bool)
	// Overhead is the size of a status frame without parameters.
	Overhead() int
	// Refused reports whether the error byte means that the request was not carried out.
	Refused(err byte) bool
}
