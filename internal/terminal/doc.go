// Package terminal writes log lines and a status line to a terminal, a pipe or a file without ever
// waiting for it: the log of every program that must not stop because its output is not read
// (terminal.go, stall.go).
//
// A line has the time of day, the level, the message, and attributes as key=value (lines.go). A line
// of plain attributes makes no garbage if it is logged through slog.Logger.LogAttrs. A client that
// can make a program write a line, by opening a session that is refused or a link that is lost, can
// do so a thousand times a second and fill a disk: limiter.go bounds how often a line is repeated.
package terminal
