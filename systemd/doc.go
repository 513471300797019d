// Package systemd has no code: it is the folder of both programs' units, udev
// rules and users, and of the tests that compare them with the programs.
package systemd
