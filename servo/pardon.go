package servo

import (
	"time"

	"edgert/rt"
)

// pardons is how many attempts off the tick the host may have spoilt, one after
// the other, until somebody answers: with the doubled patience three seconds.
const pardons = 12

// pardon tells silence from a host that took this machine's processors away: a
// reply that comes within the wait is of no use to a thread that does not run, and
// a simulated motor does not answer while its own does not. On a machine that is
// not virtual it grants nothing.
type pardon struct {
	steal  func() time.Duration // nil: nothing is ever stolen
	stolen time.Duration        // before the first attempt
	left   int
}

// newPardon looks at the host of those who live on the kernel's clock.
func newPardon(clock rt.Clock) pardon {
	p := pardon{left: pardons}
	if clock == rt.KernelClock() {
		p.steal = rt.StealTime
	}
	return p
}

// begin is before the first attempt.
func (p *pardon) begin() {
	if p.steal != nil {
		p.stolen = p.steal()
	}
}

// heard says that somebody answers, or is to be asked anew.
func (p *pardon) heard() { p.left = pardons }

// granted reports whether the host took processor time since the first attempt
// began, which may excuse that this one failed; the next is to have more patience
// then. The kernel counts what was taken at a processor's next timer interrupt: ask
// some time after the attempt.
func (p *pardon) granted(patience *time.Duration) bool {
	if p.left == 0 || p.steal == nil || p.steal() <= p.stolen {
		return false
	}
	p.left--
	*patience = min(2**patience, patienceMax)
	return true
}

// makeRoom is until when a window may be read. Where the reads leave no tick the
// time for it, as at high rates or with a slow adapter, one in healthEvery runs over
// its deadline: a motor that is never compared would be held for ever.
//
//rt:noalloc
func (a *Arm) makeRoom(w *window, deadline rt.Instant) (end rt.Instant, ok bool) {
	h, now := a.health, a.clock.Now()
	if a.fits(w, 0, deadline) {
		h.cramped = 0
		return deadline, true
	}
	if h.cramped == 0 {
		h.cramped = now
	}
	if now.Sub(h.cramped) < healthEvery {
		return deadline, false
	}
	h.cramped = 0
	return now.Add(w.group.wire + a.bus.settle + healthLoss), true
}
