package chunk

// Span is a run of consecutive actions of one request's chunk: its rows
// [Start, End).
type Span struct {
	Key        int64
	Start, End int
}

// NewCompatSchedule returns a schedule with the arithmetic of the DRTC program:
// a chunk starts at max(n, 0), so that its first row is always one that ran
// already, an older chunk still fills the steps that a newer one lacks, and Pop
// jumps over gaps. It is there to compare with that program.
//
// Source: drtc robot_client_drtc.py at d20888c.
func NewCompatSchedule(horizon, dof int) *Schedule {
	s := NewSchedule(horizon, dof)
	s.compat = true
	return s
}

// lowest returns the smallest occupied step above n, or noStep.
//
//rt:noalloc
func (s *Schedule) lowest() int64 {
	for step := s.n + 1; step <= s.n+int64(len(s.slots)); step++ {
		if s.holds(step) {
			return step
		}
	}
	return noStep
}

// AppendSpans describes the next actions, at most maxRows, by the chunks they
// came from, for a server that keeps its raw chunks: up to the first gap, or, in
// the program's arithmetic, passing over gaps.
//
//rt:noalloc
func (s *Schedule) AppendSpans(dst []Span, maxRows int) []Span {
	first := len(dst)
	for step := s.n + 1; step <= s.n+int64(len(s.slots)) && maxRows > 0; step++ {
		if !s.holds(step) {
			if s.compat {
				continue
			}
			break
		}
		maxRows--
		c := &s.slots[step&s.mask]
		index := int(step - c.start)
		if k := len(dst) - 1; k >= first && dst[k].Key == c.key && dst[k].End == index {
			dst[k].End++
			continue
		}
		dst = append(dst, Span{Key: c.key, Start: index, End: index + 1})
	}
	return dst
}
