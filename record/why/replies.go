package why

import (
	"fmt"
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

// replies warns of one kind of failed replies if it is frequent.
func (x *explainer) replies(cause Cause, others []Finding, of func(*count) uint32, what string) (all []Finding) {
	known := append(slices.Clip(silences), RepliesSpoilt)
	from := rt.Instant(0)
	to := rt.Instant(0)
	n := uint32(0)
	ticks := 0
	end := func() {
		if n >= repliesLeast && ticks >= repliesTicks {
			f := Finding{
				Kind:  Warning,
				Cause: cause,
				From:  from,
				To:    to,
				Ticks: ticks,
			}
			f.Evidence = []Evidence{{from, fmt.Sprintf("%d %s, on %d ticks in %s", n, what, ticks,
				seconds(time.Duration(to-from)))}}
			all = append(all, f)
		}
		n, ticks = 0, 0
	}
	for i := range x.log.counts {
		c := &x.log.counts[i]
		k := of(c)
		if k == 0 || x.disturbed(c.at) || overlaps(others, c.at-second, c.at+second, known...) {
			continue
		}
		if ticks > 0 && c.at-to > repliesSpan/2 {
			end()
		}
		if ticks == 0 {
			from = c.at
		}
		to = c.at
		n = n + k
		ticks = ticks + 1
	}
	end()
	return all
}

// mainReplies removes findings of lost replies that spoilt bytes explain.
func mainReplies(all []Finding) []Finding {
	return slices.DeleteFunc(slices.Clone(all), func(f Finding) bool {
		return f.Cause == RepliesLost && overlaps(all, f.From, f.To, RepliesSpoilt)
	})
}

// spoiltReplies changes the cause of lost replies to spoilt bytes if most of them left stray bytes.
// It covers stray bytes that are too few for a warning of their own.
func (x *explainer) spoiltReplies(all []Finding) {
	for i := range all {
		f, ticks := &all[i], 0
		if f.Cause != RepliesLost {
			continue
		}
		for _, c := range x.log.counts {
			if c.at >= f.From && c.at <= f.To && c.retried+c.lost > 0 && c.spoilt > 0 {
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
