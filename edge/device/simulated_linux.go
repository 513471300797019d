package device

import "golang.org/x/sys/unix"

// The kernel's major numbers of pseudo-terminals, the ends that programs open by name.
const (
	firstPTS = 136
	lastPTS  = 143
)

// PseudoTerminal reports whether a port, or the port that a link names, is a pseudo-terminal:
// another program is at its other end, and no adapter.
func PseudoTerminal(port string) bool {
	var at unix.Stat_t
	if unix.Stat(port, &at) != nil || at.Mode&unix.S_IFMT != unix.S_IFCHR {
		return false
	}
	major := unix.Major(uint64(at.Rdev))
	return major >= firstPTS && major <= lastPTS
}
