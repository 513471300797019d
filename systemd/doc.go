// Package systemd has no code. Its folder contains the units, udev rules and users of both
// programs, and tests that compare these files with the programs.
package systemd
