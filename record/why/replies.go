package why

import (
	"fmt"
	"slices"

	"github.com/edge-rt/edge-rt/rt"
)

// replies warns of one kind of failed replies if it is frequent.
func (x *explainer) replies(cause Cause, others times, of func(count) uint32, what string) (all []Finding) {
	known := append(slices.Clip(silences), RepliesSpoilt)
	var from, to rt.Instant
	var n uint32
	ticks := 0
	end := func() {
		if n >= repliesLeast && ticks >= repliesTicks {
			f := found(Warning, cause, from, to, Evidence{from, fmt.Sprintf("%d %s, on %d ticks in %s", n, what, ticks,
				seconds(to-from))})
			f.Ticks = ticks
			all = append(all, f)
		}
		n, ticks = 0, 0
	}
	for _, c := range x.log.counts {
		k := of(c)
		if k == 0 || x.disturbed(c.at) || others.overlap(c.at-second, c.at+second, known...) {
			continue
		}
		if ticks > 0 && c.at-to > repliesSpan/2 {
			end()
		}
		if ticks == 0 {
			from = c.at
		}
		to = c.at
		n += k
		ticks++
	}
	end()
	return all
}

// spoiltReplies changes the cause of a finding of lost replies to RepliesSpoilt if there were stray bytes on at least
// half of its ticks. The report thus also names stray bytes that are too few for a warning of their own.
func (x *explainer) spoiltReplies(all []Finding) {
	for i := range all {
		f, ticks := &all[i], 0
		for _, c := range since(x.log.counts, f.From) {
			if c.at > f.To {
				break
			}
			if c.retried+c.lost > 0 && c.spoilt > 0 {
				ticks++
			}
		}
		if 2*ticks >= f.Ticks {
			f.Cause = RepliesSpoilt
			f.Evidence = append(f.Evidence, Evidence{f.From,
				fmt.Sprintf("on %d of these there were bytes that were no frame", ticks)})
		}
	}
}
