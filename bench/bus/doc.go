// Package bus measures the servo driver: how long a cycle of sync write and sync
// read takes beside the time that its bytes need on the wire, what it costs the
// host, and what a lost reply costs.
//
// A cycle's length by itself says nothing of the driver: most of it is the wire,
// and the rest the port's and the scheduler's. So a C program (echo/echo.c) that
// understands nothing writes the same bytes to the same port and counts the same
// replies, in slices that take turns with the driver's. The result is a ratio.
//
// Without a port the bus is edge-rt sim-bus, a process of its own. The lost
// replies are its doing: a second bus whose script drops some.
package bus
