package edge

// state is where the robot's run stands; the summary counts seconds in each.
type state uint8

// The states. The zero value is safe for a pair that is not in the table.
const (
	stateDead         state = iota // gives up: the run ends
	stateConnecting                // no chunk of this session yet
	stateStreaming                 // actions run, chunks arrive
	stateDegraded                  // actions run, chunks have stopped
	stateStalled                   // nothing fit to run, or the bus is silent: hold
	stateReconnecting              // the session is lost; what is left still runs
	numStates
)

var stateNames = [numStates]string{"DEAD", "CONNECTING", "STREAMING", "DEGRADED", "STALLED", "RECONNECTING"}

func (s state) String() string { return stateNames[s] }

type cause uint8

// The causes, in the order in which one tick reports them.
const (
	causeOpened    cause = iota // a session was opened
	causeMerged                 // a chunk was merged
	causeQuiet                  // no chunk for degraded_after
	causeStarved                // an action was due and none was fit to run
	causeBusSilent              // the bus rules say hold; reported on every such tick
	causeLinkLost               // the session or the server's token is gone
	causeOffline                // no chunk for max_offline
	causeRefused                // the server refuses the contract for good
	numCauses
)

// transitions has a row for each state. Only a merge leads to Streaming.
var transitions = [numStates][numCauses]state{
	stateDead:         {},
	stateConnecting:   {causeOpened: stateConnecting, causeMerged: stateStreaming, causeQuiet: stateConnecting, causeStarved: stateConnecting, causeBusSilent: stateStalled, causeLinkLost: stateReconnecting, causeOffline: stateDead, causeRefused: stateDead},
	stateStreaming:    {causeOpened: stateStreaming, causeMerged: stateStreaming, causeQuiet: stateDegraded, causeStarved: stateStalled, causeBusSilent: stateStalled, causeLinkLost: stateReconnecting, causeOffline: stateDead, causeRefused: stateDead},
	stateDegraded:     {causeOpened: stateDegraded, causeMerged: stateStreaming, causeQuiet: stateDegraded, causeStarved: stateStalled, causeBusSilent: stateStalled, causeLinkLost: stateReconnecting, causeOffline: stateDead, causeRefused: stateDead},
	stateStalled:      {causeOpened: stateStalled, causeMerged: stateStreaming, causeQuiet: stateStalled, causeStarved: stateStalled, causeBusSilent: stateStalled, causeLinkLost: stateReconnecting, causeOffline: stateDead, causeRefused: stateDead},
	stateReconnecting: {causeOpened: stateConnecting, causeMerged: stateStreaming, causeQuiet: stateReconnecting, causeStarved: stateReconnecting, causeBusSilent: stateReconnecting, causeLinkLost: stateReconnecting, causeOffline: stateDead, causeRefused: stateDead},
}

//rt:noalloc
func (s state) after(c cause) state { return transitions[s][c] }
