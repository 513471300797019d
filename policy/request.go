package policy

// Request identifies the request in a row of a batch, for a policy that another program computes. A graph does not
// use it.
type Request struct {
	Session string // the robot's session, new at every open; empty: the request is the server's own
	Episode int64  // the robot's episode; it changes when the session is reset
	Task    string // the robot's instruction; empty: none
	Seed    uint64 // the seed of the noise, computed from policy, robot and request
}
