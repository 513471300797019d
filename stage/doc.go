// Package stage runs the real programs for every trial: demo, measurement, soak, fault or test. It
// starts edge-rt and lean-server as processes that end with this one (child.go, programs.go, edge.go,
// server.go), and beside them a server without a policy (fakeserver.go) and a cable that can be cut
// (proxy.go). It reads the files that they leave and counts checks (checks.go), and it awaits the
// host of a virtual machine, which can take this machine's processors away (host.go, calm.go).
package stage
