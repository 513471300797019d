// Package stage runs the real programs for every trial: demo, measurement, soak, fault or test. It
// starts edge-rt, lean-server and the official router as processes that end with this one (child.go,
// programs.go, edge.go, robot.go, server.go, router.go), and keeps their logs, whose lines a trial
// awaits within a bound (log.go). Beside them run a simulated arm with its referee (arm.go), a server
// without a policy (fakeserver.go), a robot without an arm (fakerobot.go) and a cable that can be cut
// (proxy.go). The faults of a Trial are data (trial.go). The package reads the programs' metrics
// (metrics.go) and the files that they leave, and counts checks (checks.go). It awaits the host of a
// virtual machine, which can take this machine's processors away (host.go, calm.go).
package stage
