// Package zenohtest provides the surroundings of a Zenoh transport under test: the official implementation in a
// separate process (Node), whose Session the contract suite uses like ours, and a network that cuts, delays and stalls
// connections (Proxy).
package zenohtest
