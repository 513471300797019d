// Package wire is the contract between a robot and an inference server: the nouns that cross the
// network, their bytes, their keys, and the transport that carries them.
//
// A robot sends an Observation: joint state, pictures, task text, and the actions it has already committed to (the
// prefix). The server answers with an ActionChunk: the next actions, as the model made them and as the robot executes
// them. Both are sent as a MessagePack map (the payload) beside a 27-byte Header (the attachment), which identifies the
// request and its answer. Before that the robot queries a Status, opens a session (SessionOpen, SessionAck) and starts
// an episode (Reset, ResetAck).
//
// This is schema 1 of LeRobot's remote inference draft, byte for byte. Our additions are optional
// keys after the schema's own, which an older peer ignores; without them the bytes are exactly the
// draft's.
//
// Append functions write into the caller's slice. Parse functions trust no input: lengths are checked against the bytes
// present, sizes against the limits below, and no peer can determine the size of an allocation. Pictures are borrowed
// from the source; numbers are copied into slices that the next Parse reuses.
//
// docs/wire.md is the normative text; a test compares its tables with the constants here.
// Subpackages implement Session, the transport.
package wire

import "errors"

// SchemaVersion is the only schema so far; peers agree on a range at open.
const (
	SchemaVersion    = 1
	MinSchemaVersion = 1
)

// ExtensionLevel is the level of the optional keys of this package. A peer that reads them announces the level under
// the key `t` of its SessionAck and Status. Old peers have no such key, which is read as 0.
const ExtensionLevel = 1

// Limits of a Parse. A message beyond any of them is refused with ErrTooLarge; the caller counts
// refusals.
const (
	MaxMessageBytes = 64 << 20 // one body; 16 raw pictures of 1280x720 fit
	MaxCarriedBytes = 16 << 20 // the largest message that our transport carries by default
	MaxImages       = 16       // pictures in an observation
	MaxImageBytes   = 16 << 20 // one picture, coded or raw
	MaxImageSide    = 8192     // height or width of a raw picture
	MaxDims         = 4        // axes of a tensor
	MaxRows         = 4096     // actions in a chunk or prefix
	MaxDOF          = 256      // values in a state or an action
	MaxTextBytes    = 4096     // a task, an error text

	MaxStatisticsBytes = 64 << 10 // statistics of a training, see package trained
	MaxNameBytes       = 256      // a name, a dtype, a map key
	MaxNames           = 256      // entries of a list or map of names
	MaxSpans           = 1024     // entries of spans
	MaxSteps           = 16       // observations that a robot sends together, including the newest
	MaxMapKeys         = 256      // keys of one message map, known or not
	MaxDepth           = 16       // nesting below an unknown key
	MaxSkipped         = 8192     // values below all unknown keys of a message, because skipping each value takes time
)

// Errors of a message. The text names the field, its value and the expected value.
var (
	ErrMalformed = errors.New("wire: malformed message") // violates the schema
	ErrTooLarge  = errors.New("wire: limit exceeded")    // a Max constant
	ErrNotFinite = errors.New("wire: not finite")        // NaN or infinity where a number moves a motor
	ErrShape     = errors.New("wire: shape mismatch")    // tensors or pictures of the wrong size
)
