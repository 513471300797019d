package backoff

import "time"

// maxReasons bounds the errors that a Longest tells apart.
const maxReasons = 16

// Longest finds, of the errors of one attempt after the other, the one that lasted longest:
// the last is only what was wrong at the end.
type Longest struct {
	reasons []reason
	last    error
}

type reason struct {
	err    error
	lasted time.Duration
}

// Add takes an attempt's error, and the time since the attempt before ended.
func (l *Longest) Add(err error, since time.Duration) {
	l.last = err
	for i := range l.reasons {
		if r := &l.reasons[i]; r.err.Error() == err.Error() {
			r.err, r.lasted = err, r.lasted+since
			return
		}
	}
	if len(l.reasons) < maxReasons {
		l.reasons = append(l.reasons, reason{err, since})
	}
}

// Err returns the error that lasted longest; nil: there was none.
func (l *Longest) Err() error {
	var longest reason
	for _, r := range l.reasons {
		if r.err != nil && r.lasted >= longest.lasted {
			longest = r
		}
	}
	return longest.err
}

// Last returns the newest error; nil: there was none.
func (l *Longest) Last() error { return l.last }
