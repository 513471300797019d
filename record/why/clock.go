package why

import (
	"time"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/internal/exit"
)

// clock is the value of --at: a time of day, optionally with a date, and the precision in which the
// user gave it.
type clock struct {
	t     time.Time
	dated bool
	zoned bool
	slack time.Duration // tolerance before and after the time, in addition to the unit
	unit  time.Duration
}

// clockForms are the accepted forms of --at.
var clockForms = []struct {
	layout       string
	dated, zoned bool
	unit         time.Duration
}{
	{"15:04", false, false, time.Minute},
	{"15:04:05", false, false, time.Second},
	{"2006-01-02T15:04", true, false, time.Minute},
	{"2006-01-02 15:04", true, false, time.Minute},
	{"2006-01-02T15:04:05", true, false, time.Second},
	{"2006-01-02 15:04:05", true, false, time.Second},
	{time.RFC3339, true, true, time.Second},
}

// clockSlack is the precision with which people remember a time.
const clockSlack = 2 * time.Second

func parseClock(text string) (c clock, err error) {
	if text == "" {
		return c, nil
	}
	for _, f := range clockForms {
		if t, err := time.Parse(f.layout, text); err == nil { // this also accepts fractions of a second
			return clock{t, f.dated, f.zoned, clockSlack, f.unit}, nil
		}
	}
	return c, exit.Errorf(exit.Usage,
		"--at is %q, want a time of day such as 14:03:20, or with its date 2026-11-24T14:03:20", text)
}

// in returns the stretch of time that --at selects in a record; ok is false if the record does not cover this
// stretch. A time without a date is a time on any day of the record.
func (c clock) in(f File, where *time.Location) (from, to time.Time, ok bool) {
	if c.zoned {
		return c.stretch(c.t, f)
	}
	day := f.From.In(where)
	for ; !day.After(f.To.Add(24 * time.Hour)); day = day.AddDate(0, 0, 1) {
		y, m, d := day.Date()
		if c.dated {
			y, m, d = c.t.Date()
		}
		t := time.Date(y, m, d, c.t.Hour(), c.t.Minute(), c.t.Second(), c.t.Nanosecond(), where)
		if from, to, ok = c.stretch(t, f); ok || c.dated {
			return from, to, ok
		}
	}
	return from, to, false
}

func (c clock) stretch(t time.Time, f File) (from, to time.Time, ok bool) {
	from, to = t, t.Add(c.unit)
	ok = !to.Before(f.From) && !from.After(f.To)
	return from.Add(-c.slack), to.Add(c.slack), ok
}

// ended returns the text of the event at the end of the run; "": the end is not on record.
func (l *Log) ended() (text string) {
	for _, e := range l.events {
		if e.code == event.Ended {
			text = e.Text
		}
	}
	return text
}
