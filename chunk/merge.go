package chunk

// Merge joins a chunk into the schedule: for every step above n the row of the
// newer request stays. Only a request newer than all merged before is taken, so
// that what conditioned a chunk is always the schedule it is merged into. The
// chunk is copied.
//
// A chunk of the wrong shape, with rows that are not finite, or about steps
// outside the ring changes nothing and is counted.
//
//rt:noalloc
func (s *Schedule) Merge(c *Chunk) MergeResult {
	r := MergeResult{Outcome: s.check(c)}
	if r.Outcome == Joined && !s.compat {
		r.Outcome = s.admit(c.Key)
	}
	if r.Outcome == Joined {
		r = s.join(c)
	}
	s.counts[r.Outcome]++
	return r
}

// refuse counts an answer that does not reach Merge.
//
//rt:noalloc
func (s *Schedule) refuse(o Outcome) MergeResult {
	s.counts[o]++
	return MergeResult{Outcome: o}
}

// admit lets a request pass that is newer than every one before.
//
//rt:noalloc
func (s *Schedule) admit(key int64) Outcome {
	switch {
	case s.newest.Accept(key):
		return Joined
	case key == s.newest.Last():
		return Duplicate
	default:
		return Older
	}
}

// check refuses a chunk that could not have been asked for.
//
//rt:noalloc
func (s *Schedule) check(c *Chunk) Outcome {
	if o := checkShape(c, s.horizon, s.dof); o != Joined {
		return o
	}
	// All rows must fit above n; a chunk behind n is late, not wrong.
	if c.Step < 0 || c.Step > s.n+int64(len(s.slots)-c.Rows)+1 {
		return Ahead
	}
	return Joined
}

// checkShape refuses a chunk whose rows are not what was agreed on.
//
//rt:noalloc
func checkShape(c *Chunk, horizon, dof int) Outcome {
	if c.Rows < 1 || c.Rows > horizon || c.DOF != dof || len(c.Robot) != c.Rows*c.DOF {
		return BadShape
	}
	if len(c.Model) != 0 && len(c.Model) != len(c.Robot) {
		return BadShape
	}
	if !finite(c.Robot) || !finite(c.Model) {
		return NotFinite
	}
	return Joined
}

// join is the pointwise join for the steps above n: commutative, associative and
// idempotent in the chunks, ties keep the incumbent.
//
//rt:noalloc
func (s *Schedule) join(c *Chunk) MergeResult {
	r := MergeResult{Outcome: Late}
	r.Delay = int(min(max(s.n+1-c.Step, 0), int64(c.Rows)))
	var sum float64
	for row := r.Delay; row < c.Rows; row++ {
		step := c.Step + int64(row)
		held := s.holds(step)
		if held {
			d := distance(s.robot[int(step&s.mask)*s.dof:][:s.dof], c.Robot[row*s.dof:(row+1)*s.dof])
			sum += d
			r.MaxL2 = max(r.MaxL2, d)
			r.Overlap++
		}
		if held && c.Key <= s.slots[step&s.mask].key {
			continue
		}
		if !held {
			s.live++
		}
		s.store(step, row, r.Delay, c)
		r.Stored++
	}
	if r.Overlap > 0 {
		r.MeanL2 = sum / float64(r.Overlap)
	}
	if r.Stored > 0 {
		r.Outcome = Joined
		s.extend()
	}
	return r
}

//rt:noalloc
func (s *Schedule) store(step int64, row, delay int, c *Chunk) {
	i := int(step & s.mask)
	cell := &s.slots[i]
	cell.step, cell.key, cell.start, cell.source = step, c.Key, c.Step, c.Source
	cell.prov = c.Prov
	cell.prov.Index, cell.prov.Delay = int32(row), int32(delay)
	cell.hasModel = len(c.Model) != 0
	copy(s.robot[i*s.dof:(i+1)*s.dof], c.Robot[row*s.dof:])
	if cell.hasModel {
		copy(s.model[i*s.dof:(i+1)*s.dof], c.Model[row*s.dof:])
	}
}

//rt:noalloc
func finite(v []float32) bool {
	for _, x := range v {
		if x-x != 0 { // only NaN and the infinities
			return false
		}
	}
	return true
}
