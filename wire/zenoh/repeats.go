package zenoh

import (
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/rt/backoff"
)

const (
	repeatFirst = 10 * time.Second
	repeatLast  = 10 * time.Minute
	maxTexts    = 16
)

// repeats limits the log lines about an endpoint that does not answer for a long time. A new text is logged at once, a
// repeated text at growing intervals.
type repeats map[string]*repeat

type repeat struct {
	wait backoff.Backoff
	next time.Time
}

// due reports whether to log an error of an endpoint now. Texts that differ only in digits count as the same text,
// because the digits may be a port or a time.
func (r repeats) due(at string, err error, now time.Time) bool {
	text := at + strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' {
			return -1
		}
		return c
	}, err.Error())
	if r[text] == nil && len(r) >= maxTexts {
		text = "" // the text itself is not kept, because a peer may send any number of texts
	}
	if r[text] == nil {
		r[text] = &repeat{wait: backoff.Backoff{First: repeatFirst, Max: repeatLast}}
	}
	if now.Before(r[text].next) {
		return false
	}
	r[text].next = now.Add(r[text].wait.Next())
	return true
}
