// Package stage runs the real programs for the demo, measurements, soaks, faults and tests. It starts
// edge-rt, lean-server and the official router as processes that end with this one (child.go,
// programs.go, edge.go, robot.go, server.go, router.go), and keeps their logs (log.go), in which a
// caller can await a line. Beside them run a simulated arm with its referee (arm.go), a server
// without a policy (fakeserver.go) and a robot without an arm (fakerobot.go). The faults of a Trial are data
// (trial.go). The package reads the programs' metrics
// (metrics.go) and the files that they leave, and counts checks (checks.go). It can wait until the
// host of a virtual machine leaves the machine's processors alone (host.go, calm.go).
package stage
