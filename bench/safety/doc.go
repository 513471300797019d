// Package safety puts the real edge-rt on a simulated arm, lets one thing go wrong
// at a time, and tells what the arm did: it holds every byte that the servos
// receive against the rules of servo/referee.
//
// A Fault is a row of data: what happens to the bus, the network, the server, the
// camera or the program, for how long, and when the arm counts as safe. Run takes
// each through the same life: the arm is armed and moves, the fault comes and goes,
// the arm goes on by itself or an operator is asked, and the run ends.
//
// The chunks come from lean-server and the demo policy where the server is what
// the fault is about. Everywhere else they come from sway, a server of this
// package's own that keeps all joints moving, so that a jump has somewhere to go.
package safety
