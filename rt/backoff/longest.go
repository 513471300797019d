package backoff

import "time"

// maxReasons bounds the number of different errors in a Longest.
const maxReasons = 16

// Longest finds which error lasted longest in a series of attempts. The last error shows only why the last attempt
// failed.
type Longest struct {
	reasons []reason
	last    error
}

type reason struct {
	err    error
	lasted time.Duration
}

// Add adds an attempt's error, with the time since the end of the previous attempt.
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

// Err returns the error that lasted longest; nil without an error.
func (l *Longest) Err() error {
	var longest reason
	for _, r := range l.reasons {
		if r.err != nil && r.lasted >= longest.lasted {
			longest = r
		}
	}
	return longest.err
}

// Last returns the newest error; nil without an error.
func (l *Longest) Last() error { return l.last }
