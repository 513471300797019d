// Package terminal writes log lines and a status line to a terminal, a pipe or a file without ever
// waiting for it. It is the log of all programs that must not stop because nothing reads their output
// (terminal.go, stall.go).
//
// A line has the time of day, the level, the message, and attributes as key=value (lines.go). A line with
// plain attributes allocates nothing if it is logged through slog.Logger.LogAttrs. A client can make a
// program write a line, for example by a session that is refused or a link that is lost, and a thousand
// such lines a second could fill a disk. So limiter.go bounds how often a line is repeated.
package terminal
