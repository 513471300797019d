// Package stage runs the real programs for every trial: demo, measurement, soak or fault. It starts
// edge-rt and lean-server as processes that end with this one (child.go, programs.go, server.go),
// reads the files that they leave, and counts checks (checks.go). It also measures and awaits the
// host of a virtual machine, which can take this machine's processors away (host.go, calm.go).
package stage
