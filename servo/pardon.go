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
