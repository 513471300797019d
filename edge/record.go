package edge

import (
	"context"
	"fmt"
	"time"

	"edgert/record"
)

// recordEvery is how often the log of actions is written out.
const recordEvery = 50 * time.Millisecond

func (e *Edge) openRecord(context.Context) (err error) {
	if e.cfg.Record == nil {
		return nil
	}
	e.record, err = record.NewLog(e.cfg.Record, record.Header{
		ID: e.identity.ID, Robot: e.cfg.Robot, Schedule: e.cfg.Schedule.Schedule, FPS: e.cfg.FPS, Names: e.robot.ActionNames(),
	})
	if err != nil {
		return fmt.Errorf("--record: %w; make room there, name another file, or leave --record out", err)
	}
	// Of a start that fails later: its head is a line all the same.
	e.onClose(func() { _ = e.record.Begin(e.cfg.FPS) })
	return nil
}

// writeRecord writes the actions that ran. A failing file stops the record, not the
// robot; the end of the run reports it.
func (e *Edge) writeRecord() error {
	for ended := false; !ended; {
		ended = e.ending.Load() // the tick has ended then: once more
		if err := e.record.Drain(); err != nil {
			e.recorded = fmt.Errorf("--record stopped after %d actions, the arm went on: %w; make room there, or name another file", e.record.Written(), err)
			e.log.Warn("--record stops here, the arm goes on", "actions", e.record.Written(), "why", err)
		}
		e.clock.SleepUntil(e.clock.Now().Add(recordEvery))
	}
	return nil
}
