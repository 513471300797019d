package rt

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// pulseMin is the shortest time without a tick that counts as a hang, as the
// unit's watchdog has it; pulsePeriods, that of a slow loop.
const (
	pulseMin     = 2 * time.Second
	pulsePeriods = 3
)

// pulseMagic is what a page of another kind does not begin with.
const pulseMagic = 0x70756C7365_01

// ErrNoPulse means that what was opened is not a Pulse.
var ErrNoPulse = errors.New("rt: not a pulse")

// Pulse is a page of memory that two processes share: one counts its ticks in it,
// the other sees when they stop. Beating costs an addition, and needs neither a
// system call nor another thread that could hang as well.
type Pulse struct {
	page *pulsePage
	end  func()
}

// pulsePage is the page itself: words that both processes change one by one.
type pulsePage struct {
	magic    atomic.Uint64
	process  atomic.Int64 // whose ticks they are
	beats    atomic.Uint64
	patience atomic.Int64 // ns for which ticks may stay away; 0: none are expected
}

// Begin says that ticks follow, one a period. A Loop does it, and the next two, by
// itself.
//
//rt:noalloc
func (p *Pulse) Begin(period time.Duration) {
	p.page.patience.Store(int64(max(pulseMin, pulsePeriods*period)))
}

// Beat says that a tick has ended.
//
//rt:noalloc
func (p *Pulse) Beat() { p.page.beats.Add(1) }

// Rest says that no more ticks follow.
//
//rt:noalloc
func (p *Pulse) Rest() { p.page.patience.Store(0) }

// Process returns the id of the process that ticks.
func (p *Pulse) Process() int { return int(p.page.process.Load()) }

// Beats returns how many ticks have ended.
func (p *Pulse) Beats() uint64 { return p.page.beats.Load() }

// Patience returns for how long ticks may stay away; 0: none are expected, since
// they have not begun or are over.
func (p *Pulse) Patience() time.Duration { return time.Duration(p.page.patience.Load()) }

// Close gives the page back.
func (p *Pulse) Close() {
	if p.end != nil {
		p.end()
	}
}

// ownPulse is the process's. A Loop on the kernel's clock beats it.
var ownPulse struct {
	once  sync.Once
	pulse atomic.Pointer[Pulse]
	file  *os.File // Constant after once.
	err   error    // Constant after once.
}

// OwnPulse makes this process's Pulse, at the first call, and returns it as a file
// for a process that shall watch it, see OpenPulse. Loops beat it that run from
// then on.
func OwnPulse() (*os.File, error) {
	own := &ownPulse
	own.once.Do(func() {
		var made *Pulse
		if made, own.file, own.err = newPulse(); own.err == nil {
			made.page.process.Store(int64(os.Getpid()))
			made.page.magic.Store(pulseMagic)
			own.pulse.Store(made)
		}
	})
	return own.file, own.err
}

// TickPulse is what ticks on a clock beat: the process's pulse, or one that nobody
// sees. It is for whoever ticks without a Loop.
func TickPulse(clock Clock) *Pulse {
	if p := ownPulse.pulse.Load(); p != nil && clock == KernelClock() {
		return p
	}
	return &Pulse{page: new(pulsePage)}
}

// Stall finds a process whose ticks have stopped. It counts looks instead of
// time: where the machine was away, or suspended, so was who looks, and the process
// gets as many looks to tick again.
//
// Owner: whoever watches.
type Stall struct {
	pulse *Pulse
	every time.Duration // between looks
	beats uint64
	looks time.Duration
}

// NewStall watches a pulse by one look at least every so often.
func NewStall(p *Pulse, every time.Duration) *Stall { return &Stall{pulse: p, every: every} }

// Look reports whether the ticks have been away for as many looks as the pulse's
// patience has.
func (s *Stall) Look() bool {
	beats, patience := s.pulse.Beats(), s.pulse.Patience()
	if beats != s.beats || patience == 0 {
		s.beats, s.looks = beats, 0
		return false
	}
	s.looks += s.every
	return s.looks >= patience
}

// Forget begins anew, as after something that explains why no tick has ended.
func (s *Stall) Forget() { s.looks = 0 }
