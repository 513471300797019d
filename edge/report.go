package edge

import (
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/recording"
)

// report logs and records an event.
func (e *Edge) report(ev event.Event) {
	if ev.Code == event.FirstRunOver {
		e.drive.Go(e.noteRun)
	}
	e.reporter.Bundle = e.model.Load().SHA256
	e.reporter.Report(ev)
}

// prepareReports prepares the log and the record of events.
func (e *Edge) prepareReports() {
	e.reporter = recording.Reporter{
		Log:       e.log,
		Recording: e.recording,
		Follower:  e.arms,
		Next:      "the next chunk arms it at its present pose",
		Resume:    e.resume,
		Mode:      func(m int64) string { return mode(m).String() },
	}
	e.reporter.Names(e.robot)
}
