// Package zenohtest provides the surroundings of a Zenoh transport under test: the official implementation in a
// separate process (Node), whose Session the contract suite uses like ours, hostile nodes that dial a listener
// (Attack), and a hostile router that sessions dial (HostileRouter).
package zenohtest
