package stage

import (
	"time"
)

// calmSteal is the share of one processor that the host may take from a calm machine, calmFor the
// time for which it must take no more.
const (
	calmSteal = 0.03
	calmFor   = 4 * time.Second
)

// Calm waits until the host leaves this machine's processors alone for some seconds; it returns
// false at the limit. It keeps one processor busy: a host takes nothing from an idle machine.
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
