package wire

import "github.com/tinylib/msgp/msgp"

// ActionChunk is the answer to one Observation: the next actions. Row i of both
// matrices is action step n+1+i, where n is the step at which the observation
// was taken.
type ActionChunk struct {
	// The values of the request's header, repeated. The header of the answer repeats them, too, and takes precedence.
	SeqIDEcho        uint64
	ClientMonoNsEcho int64
	EpisodeIDEcho    uint32

	ChunkModel     Matrix  // [H, A], the model's output
	ChunkRobot     Matrix  // [H, A'] in the robot's units
	QueueWaitMs    float64 // time from arrival to the start of work
	InferenceMs    float64 // duration of all work on the request, except encoding the answer
	SupersededSeqs uint64  // observations that a newer one replaced before any work on them, since the last answer
	ServerLoad     float64 // sessions / max_sessions

	// Optional keys.
	HasT     bool
	T        int64 // echo of the observation's t
	HasN     bool
	N        int64  // echo of the observation's n
	ServerID string // sent when not empty
	Nonce    int64  // the session's nonce; 0 is not sent

	names *interned
}

// clear empties c and keeps its memory.
//
//rt:noalloc
func (c *ActionChunk) clear() {
	model := c.ChunkModel
	robot := c.ChunkRobot
	names := c.names
	model.clear()
	robot.clear()
	*c = ActionChunk{ChunkModel: model, ChunkRobot: robot, names: names}
}

// AppendActionChunk appends the body of c.
//
//rt:noalloc
func AppendActionChunk(dst []byte, c *ActionChunk) []byte {
	dst = msgp.AppendMapHeader(dst, 9+count(c.HasT, c.HasN, c.ServerID != "", c.Nonce != 0))
	dst = msgp.AppendString(dst, "seq_id_echo")
	dst = msgp.AppendUint64(dst, c.SeqIDEcho)
	dst = appendIntKey(dst, "client_mono_ns_echo", c.ClientMonoNsEcho)
	dst = appendIntKey(dst, "episode_id_echo", int64(c.EpisodeIDEcho))
	dst = msgp.AppendString(dst, "chunk_model")
	dst = appendMatrix(dst, &c.ChunkModel)
	dst = msgp.AppendString(dst, "chunk_robot")
	dst = appendMatrix(dst, &c.ChunkRobot)
	dst = appendFloatKey(dst, "queue_wait_ms", c.QueueWaitMs)
	dst = appendFloatKey(dst, "inference_ms", c.InferenceMs)
	dst = msgp.AppendString(dst, "superseded_seqs")
	dst = msgp.AppendUint64(dst, c.SupersededSeqs)
	dst = appendFloatKey(dst, "server_load", c.ServerLoad)
	if c.HasT {
		dst = appendIntKey(dst, "t", c.T)
	}
	if c.HasN {
		dst = appendIntKey(dst, "n", c.N)
	}
	if c.ServerID != "" {
		dst = appendTextKey(dst, "server_id", c.ServerID)
	}
	if c.Nonce != 0 {
		dst = appendIntKey(dst, "nonce", c.Nonce)
	}
	return dst
}

// ParseActionChunk reads a body into c, copying the actions into c's memory,
// which is reused. A chunk with a NaN or an infinity is refused. After an error
// c is empty.
//
//rt:noalloc
func ParseActionChunk(c *ActionChunk, src []byte) error {
	c.clear()
	if c.names == nil {
		c.names = newInterned()
	}
	var r reader
	for range r.open(src) {
		c.field(&r, r.next())
	}
	err := r.close()
	if err != nil {
		c.clear()
	}
	return err
}

//rt:noalloc
func (c *ActionChunk) field(r *reader, key []byte) {
	switch string(key) {
	case "seq_id_echo":
		c.SeqIDEcho = r.uint64()
	case "client_mono_ns_echo":
		_, c.ClientMonoNsEcho = r.optionalInt()
	case "episode_id_echo":
		c.EpisodeIDEcho = r.uint32()
	case "chunk_model":
		r.matrix(&c.ChunkModel)
	case "chunk_robot":
		r.matrix(&c.ChunkRobot)
	case "queue_wait_ms":
		c.QueueWaitMs = r.float()
	case "inference_ms":
		c.InferenceMs = r.float()
	case "superseded_seqs":
		c.SupersededSeqs = r.uint64()
	case "server_load":
		c.ServerLoad = r.float()
	case "t":
		c.HasT, c.T = r.optionalInt()
	case "n":
		c.HasN, c.N = r.optionalInt()
	case "server_id":
		c.ServerID = c.names.text(r.text(MaxNameBytes))
	case "nonce":
		_, c.Nonce = r.optionalInt()
	default:
		r.skip(0)
	}
}
