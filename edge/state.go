package edge

// State is where the robot's run stands; the summary counts seconds in each.
type State uint8

// The states. Dead is the zero value, so that a pair that is not in the table
// fails safe.
const (
	Dead         State = iota // gives up: the run ends
	Connecting                // no chunk of this session yet
	Streaming                 // actions run, chunks arrive
	Degraded                  // actions run, chunks have stopped
	Stalled                   // nothing fit to run, or the bus is silent: hold
	Reconnecting              // the session is lost; what is left still runs
	numStates
)

var stateNames = [numStates]string{"DEAD", "CONNECTING", "STREAMING", "DEGRADED", "STALLED", "RECONNECTING"}

func (s State) String() string { return stateNames[s] }

// Cause is what moves the State.
type Cause uint8

// The causes, in the order in which one tick reports them.
const (
	Opened    Cause = iota // a session was opened
	Merged                 // a chunk was merged
	Quiet                  // no chunk for degraded_after
	Starved                // an action was due and none was fit to run
	BusSilent              // the bus rules say hold; reported on every such tick
	LinkLost               // the session or the server's token is gone
	Offline                // no chunk for max_offline
	Refused                // the server refuses the contract for good
	numCauses
)

// transitions is the whole state machine: rows are the current State. Only a
// merge leads to Streaming; a new session alone moves nothing.
var transitions = [numStates][numCauses]State{
	Dead:         {},
	Connecting:   {Opened: Connecting, Merged: Streaming, Quiet: Connecting, Starved: Connecting, BusSilent: Stalled, LinkLost: Reconnecting, Offline: Dead, Refused: Dead},
	Streaming:    {Opened: Streaming, Merged: Streaming, Quiet: Degraded, Starved: Stalled, BusSilent: Stalled, LinkLost: Reconnecting, Offline: Dead, Refused: Dead},
	Degraded:     {Opened: Degraded, Merged: Streaming, Quiet: Degraded, Starved: Stalled, BusSilent: Stalled, LinkLost: Reconnecting, Offline: Dead, Refused: Dead},
	Stalled:      {Opened: Stalled, Merged: Streaming, Quiet: Stalled, Starved: Stalled, BusSilent: Stalled, LinkLost: Reconnecting, Offline: Dead, Refused: Dead},
	Reconnecting: {Opened: Connecting, Merged: Streaming, Quiet: Reconnecting, Starved: Reconnecting, BusSilent: Reconnecting, LinkLost: Reconnecting, Offline: Dead, Refused: Dead},
}

// After returns the state that follows s when c happens.
//
//rt:noalloc
func (s State) After(c Cause) State { return transitions[s][c] }
