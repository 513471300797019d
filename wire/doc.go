// Package wire is the contract between a robot and an inference server: the
// nouns that cross the network, their bytes, their keys, and the transport they
// travel on.
//
// A robot sends an Observation: joint state, pictures, task text, and the
// actions it has already committed to (the prefix). The server answers with an
// ActionChunk: the next Rows actions, as the model made them and as the robot
// executes them. Both travel as a MessagePack map (the payload) beside a
// 27-byte Header (the attachment), which says whose request it is and which
// answer belongs to it. Before that the robot asks for a Status, opens a
// session (SessionOpen, SessionAck) and starts an episode (Reset, ResetAck).
//
// This is schema 1 of LeRobot's remote inference draft, byte for byte. What we
// add are optional keys behind the schema's own, which an older peer ignores;
// when none is set the bytes are exactly the old ones.
//
// Append functions write into the caller's slice. Parse functions trust
// nothing: lengths are checked against the bytes that are there, sizes against
// the limits below, and nothing is allocated from a number that a peer claims.
// Pictures are borrowed from the source; numbers are copied into slices that
// the next Parse reuses.
//
// docs/wire.md is the normative text; a test holds its tables against the
// constants here. Subpackages implement Session, the transport.
package wire

import "errors"

// SchemaVersion is the only schema there is; peers agree on a range at open.
const (
	SchemaVersion    = 1
	MinSchemaVersion = 1
)

// ExtensionLevel is what a peer that knows the optional keys of this package
// announces under the key `t` of its SessionAck and Status. Old peers have no
// such key, which reads as 0.
const ExtensionLevel = 1

// Limits of what a Parse accepts. Whatever exceeds one is refused with
// ErrTooLarge; the caller counts refusals.
const (
	MaxMessageBytes = 64 << 20 // one body; 16 raw pictures of 1280x720 fit
	MaxCarriedBytes = 16 << 20 // what our transport carries as one message, unless it is told otherwise
	MaxImages       = 16       // pictures in an observation
	MaxImageBytes   = 16 << 20 // one picture, coded or raw
	MaxImageSide    = 8192     // height or width of a raw picture
	MaxDims         = 4        // axes of a tensor
	MaxRows         = 4096     // actions in a chunk or prefix
	MaxDOF          = 256      // values in a state or an action
	MaxTextBytes    = 4096     // a task, an error text
	MaxNameBytes    = 256      // a name, a dtype, a map key
	MaxNames        = 256      // entries of a list or map of names
	MaxSpans        = 1024     // entries of spans
	MaxSteps        = 16       // observations that travel together, the newest among them
	MaxMapKeys      = 256      // keys of one message map, known or not
	MaxDepth        = 16       // nesting below an unknown key
	MaxSkipped      = 8192     // values below all unknown keys of a message: walking over them takes time
)

// What can be wrong with a message. The text says which field, got and wanted.
var (
	ErrMalformed = errors.New("wire: malformed message") // not what the schema says
	ErrTooLarge  = errors.New("wire: limit exceeded")    // a Max constant
	ErrNotFinite = errors.New("wire: not finite")        // NaN or infinity where a number moves a motor
	ErrShape     = errors.New("wire: shape mismatch")    // tensors or pictures of the wrong size
)
