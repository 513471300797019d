package device

import "golang.org/x/sys/unix"

// The kernel's major numbers of the slave ends of pseudo-terminals.
const (
	firstPTS = 136
	lastPTS  = 143
)

// PseudoTerminal reports whether a port, or the target of a link, is a pseudo-terminal: the other
// end is a program, not an adapter.
func PseudoTerminal(port string) bool {
	var at unix.Stat_t
	if unix.Stat(port, &at) != nil || at.Mode&unix.S_IFMT != unix.S_IFCHR {
		return false
	}
	major := unix.Major(uint64(at.Rdev))
	return major >= firstPTS && major <= lastPTS
}
