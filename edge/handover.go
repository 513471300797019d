package edge

import (
	"time"

	"edgert/rt"
	"edgert/wire"
)

// snapshot is one observation on its way to the sender: the state, what is
// being asked, and the actions that will run meanwhile.
type snapshot struct {
	key     int64
	epoch   uint32
	episode uint32
	start   bool // first observation of the episode
	at      rt.Instant
	step    int64 // of row 0 of the answer
	delay   int
	end     int // row at which conditioning ends
	runway  time.Duration
	state   []float32 // [dof]
	rows    int       // rows in the two prefixes
	robot   []float32 // [horizon*dof]
	model   []float32 // [horizon*dof]
}

// departure tells the tick how old the pictures of a request were.
type departure struct {
	key    int64
	source rt.Instant // older of the state and the oldest picture
}

// arrival is one chunk on its way from the receiver to the tick.
type arrival struct {
	epoch, episode uint32
	body           wire.ActionChunk
}
