package rt

// Laps times the parts of a step that follow one another.
//
// Owner: the thread that takes the step; the histograms may be read by any.
type Laps struct {
	clock       Clock
	began, last Instant
	parts       []*Hist
	whole       *Hist
}

// NewLaps returns one for n parts.
func NewLaps(clock Clock, n int) *Laps {
	l := &Laps{clock: clock, whole: NewHist()}
	for range n {
		l.parts = append(l.parts, NewHist())
	}
	return l
}

// Begin starts a step at the instant at, at which its first part began.
//
//rt:noalloc
func (l *Laps) Begin(at Instant) { l.began, l.last = at, at }

// Mark ends part i: it took from the mark before, or the beginning, until now.
//
//rt:noalloc
func (l *Laps) Mark(i int) {
	now := l.clock.Now()
	l.parts[i].Record(now.Sub(l.last))
	l.last = now
}

// End ends the step with the last mark.
//
//rt:noalloc
func (l *Laps) End() { l.whole.Record(l.last.Sub(l.began)) }

// Part returns how long part i took in all steps.
func (l *Laps) Part(i int) *Hist { return l.parts[i] }

// Whole returns how long the steps took from Begin to their last mark.
func (l *Laps) Whole() *Hist { return l.whole }
