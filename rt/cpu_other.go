//go:build !linux

package rt

import "time"

// ThreadCPU is not known here; every overrun counts as the host's.
func ThreadCPU() time.Duration { return 0 }

// StealTime is not known here.
func StealTime() time.Duration { return 0 }

type stealReader struct{}

func (r *stealReader) read() time.Duration { return 0 }
