// Package packet encodes and decodes the frames of servo buses: the frame of Feetech and of
// Dynamixel protocol 1.0 (plain.go) and that of Dynamixel protocol 2.0 (dynamixel.go). It is
// independent of registers and keeps no state.
//
// Appending never fails: data that do not fit a frame are a mistake of the program, and panic.
// Cutting accepts any bytes, never panics, and drops one byte at a time, because a damaged frame
// may hide the start of the next one.
//
// Sources: Feetech STS protocol manual; ROBOTIS e-manual, protocols 1.0 and 2.0.
package packet

// Broadcast is the id that every servo obeys; a servo answers it only after a ping.
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

// maxIDInReply is the highest id in a reply; protocol 2.0 reserves it.
const maxIDInReply = 0xFD

// Reply is one intact status frame. Params is borrowed from the input of Cut, in which Dynamixel
// 2.0 unstuffs in place.
type Reply struct {
	ID     byte
	Err    byte // as on the line: bits, or a code and the alert bit
	Params []byte
}

// Format writes requests and finds replies.
type Format interface {
	// Append appends any instruction with its parameters.
	Append(dst []byte, id byte, inst Instruction, params ...byte) []byte
	// AppendRead requests n bytes from addr of id.
	AppendRead(dst []byte, id byte, addr, n int) []byte
	// AppendWrite sets the bytes from addr of id.
	AppendWrite(dst []byte, id byte, addr int, data []byte) []byte
	// AppendSyncRead requests n bytes from addr of all ids; each servo answers with its own frame.
	AppendSyncRead(dst []byte, addr, n int, ids []byte) []byte
	// AppendSyncWrite sets n bytes from addr of all ids; data holds n bytes for each id. No servo
	// answers.
	AppendSyncWrite(dst []byte, addr, n int, ids, data []byte) []byte
	// Cut returns the first intact status frame in in that has params bytes of parameters, or none
	// and an error byte that explains why; params < 0 accepts any number. ok is false without a
	// frame; rest is then the start of a possible frame. skipped counts the bytes before the frame
	// or rest that belong to neither.
	Cut(in []byte, params int) (r Reply, skipped int, rest []byte, ok bool)
	// Overhead is the size of a status frame without parameters.
	Overhead() int
	// Refused reports whether the error byte means that the request was not carried out.
	Refused(err byte) bool
}
