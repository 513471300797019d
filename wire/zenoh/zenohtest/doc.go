// Package zenohtest holds what tests of a Zenoh transport need around it: the
// official implementation in a process of its own (Node), whose Session is one that
// the contract suite takes like ours, and a network that cuts, delays and stalls
// (Proxy).
package zenohtest
