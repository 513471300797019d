package stage

import (
	"time"
)

// A machine is calm when, for the time calmFor, its host takes at most the share calmSteal of one
// processor.
const (
	calmSteal = 0.03
	calmFor   = 4 * time.Second
)

// Calm waits until the host of this virtual machine has left its processors alone for some seconds, and returns true.
// After the time limit it returns false. Meanwhile it keeps one processor busy, since a host takes nothing from an idle
// machine.
func Calm(limit time.Duration) bool {
	const step = time.Second
	end, calm := time.Now().Add(limit), time.Duration(0)
	for last := ReadHost(); calm < calmFor; {
		began := time.Now()
		if began.After(end) {
			return false
		}
		for time.Since(began) < step {
		}
		now := ReadHost()
		if calm += step; (now.Stolen - last.Stolen).Seconds() > calmSteal*step.Seconds() {
			calm = 0
		}
		last = now
	}
	return true
}
