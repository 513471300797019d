package policy

// Request identifies the request in a row, for a policy that is computed elsewhere: a graph needs
// nothing but its inputs.
type Request struct {
	Session string // of the robot, new at every open; empty: a run of the server's own
	Episode int64  // of the robot; another number than before: the session was reset
	Task    string // the robot's instruction; empty: none
	Seed    uint64 // of the noise: a function of policy, robot and request
}
