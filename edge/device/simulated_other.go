//go:build !linux

package device

// PseudoTerminal cannot tell a pseudo-terminal from an adapter here.
func PseudoTerminal(string) bool { return false }
