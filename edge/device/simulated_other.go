//go:build !linux

package device

// PseudoTerminal returns false: this system does not distinguish a pseudo-terminal from an adapter.
func PseudoTerminal(string) bool { return false }
