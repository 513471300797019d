//go:build !linux

package rt

import "errors"

type scheduling struct{}

func saveScheduling() scheduling { return scheduling{} }

func releaseRealTime(scheduling) {}

func acquireRealTime(int) Grant {
	return Grant{Why: "real-time scheduling is implemented for Linux only", CPU: UnpinnedCPU}
}

// CheckCPU knows no CPU to pin to: it is implemented for Linux only.
func CheckCPU(int) error { return nil }

// FineSleeps does nothing: it is implemented for Linux only.
func FineSleeps() (undo func()) { return func() {} }

// NiceProcess is implemented for Linux only.
func NiceProcess(int) error { return errors.ErrUnsupported }

// LockMemory is implemented for Linux only.
func LockMemory() error { return errors.ErrUnsupported }
