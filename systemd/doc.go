// Package systemd holds no code: the units, the udev rules and the users of
// both programs lie here, and tests that hold them against the programs.
package systemd
