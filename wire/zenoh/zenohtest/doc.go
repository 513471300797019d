// Package zenohtest provides the surroundings of a Zenoh transport under test: the official
// implementation in a process of its own (Node), whose Session the contract suite takes like ours,
// and a network that cuts, delays and stalls (Proxy).
package zenohtest
