package proc

import (
	"time"

	"edgert/rt"
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
	const look = time.Second
	end, quiet := time.Now().Add(limit), time.Duration(0)
	for last := rt.StealTime(); quiet < calmFor; {
		began := time.Now()
		if began.After(end) {
			return false
		}
		for time.Since(began) < look {
		}
		now := rt.StealTime()
		if quiet += look; (now - last).Seconds() > calmSteal*look.Seconds() {
			quiet = 0
		}
		last = now
	}
	return true
}
