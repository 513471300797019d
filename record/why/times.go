package why

import (
	"cmp"
	"slices"

	"github.com/edge-rt/edge-rt/rt"
)

// A record of days may have 100,000 findings and a million messages of each kind. So each finding looks up only its own
// stretch of time, by binary search in lists that are in order of time.

// timed is an element of such a list.
type timed interface{ when() rt.Instant }

func (s span) when() rt.Instant         { return s.to }
func (s skip) when() rt.Instant         { return s.to }
func (r *request) when() rt.Instant     { return r.At }
func (h happened) when() rt.Instant     { return h.At }
func (c cut) when() rt.Instant          { return c.at }
func (o opened) when() rt.Instant       { return o.at }
func (c count) when() rt.Instant        { return c.at }
func (o overrun) when() rt.Instant      { return o.at }
func (c jointsChange) when() rt.Instant { return c.at }

// since returns the elements from an instant on.
func since[T timed](all []T, at rt.Instant) []T {
	i, _ := slices.BinarySearchFunc(all, at, func(v T, at rt.Instant) int { return cmp.Compare(v.when(), at) })
	return all[i:]
}

// stretches is a list of stretches of time, in the order of their beginnings.
type stretches struct {
	from []rt.Instant
	to   []rt.Instant // for each stretch, the latest end so far
}

func (s *stretches) add(from, to rt.Instant) {
	i, _ := slices.BinarySearch(s.from, from+1)
	if i > 0 {
		to = max(to, s.to[i-1])
	}
	s.from = slices.Insert(s.from, i, from)
	s.to = slices.Insert(s.to, i, to)
	for i++; i < len(s.to) && s.to[i] < to; i++ {
		s.to[i] = to
	}
}

// overlap reports whether one of the stretches overlaps the stretch of time from..to.
func (s *stretches) overlap(from, to rt.Instant) bool {
	i, _ := slices.BinarySearch(s.from, to+1)
	return i > 0 && s.to[i-1] >= from
}

// times holds, by cause, the stretches of time of the findings.
type times map[Cause]*stretches

func timesOf(all []Finding) times {
	t := times{}
	for _, f := range all {
		t.add(f)
	}
	return t
}

func (t times) add(f Finding) {
	if t[f.Cause] == nil {
		t[f.Cause] = &stretches{}
	}
	t[f.Cause].add(f.From, f.To)
}

// overlap reports whether a finding with one of the causes overlaps a stretch of time.
func (t times) overlap(from, to rt.Instant, causes ...Cause) bool {
	return slices.ContainsFunc(causes, func(c Cause) bool { return t[c] != nil && t[c].overlap(from, to) })
}
