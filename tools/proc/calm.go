package proc

import (
	"time"

	"edgert/bench"
)

// calmSteal is the share of one processor that the host may take from a machine
// that is called calm, calmFor how long it must take no more.
const (
	calmSteal = 0.03
	calmFor   = 4 * time.Second
)

// Calm waits until the host of this virtual machine leaves its processors alone
// for some seconds, or the limit has passed; it reports which. What judges real
// time has nothing to judge before. It keeps one processor busy meanwhile: a host
// takes nothing from a machine that wants nothing.
func Calm(limit time.Duration) bool {
	const step = time.Second
	end, calm := time.Now().Add(limit), time.Duration(0)
	for last := bench.ReadHost(); calm < calmFor; {
		began := time.Now()
		if began.After(end) {
			return false
		}
		for time.Since(began) < step {
		}
		now := bench.ReadHost()
		if calm += step; (now.Stolen - last.Stolen).Seconds() > calmSteal*step.Seconds() {
			calm = 0
		}
		last = now
	}
	return true
}
