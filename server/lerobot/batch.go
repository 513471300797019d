package lerobot

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/server/remote"
)

// endsWithin is how long worker.failed waits for the process to end by itself. Then it kills the process.
const endsWithin = 100 * time.Millisecond

// The values of header.count in the frames "done" and "failed".
const (
	statusOK = iota
	statusError
	statusMemory
)

// Batch computes the chunks of rows that Allocate has returned.
func (w *worker) Batch(rows []*remote.Row) error {
	w.mu.Lock()
	p := w.process
	ready := w.ready
	why := remote.Condition{State: w.state, Why: w.why}
	w.mu.Unlock()
	if !ready {
		return fmt.Errorf("%w: %w: %s", policy.ErrRun, policy.ErrAway, why.Text())
	}
	w.sequence++
	w.frame = append(w.frame[:0], make([]byte, headerSize)...)
	for _, r := range rows {
		w.frame = appendRequest(w.frame, w.slots[r], r)
	}
	h := header{
		kind:     kindRun,
		count:    len(rows),
		length:   len(w.frame) - headerSize,
		sequence: w.sequence,
	}
	appendHeader(w.frame[:0], h)
	if h.length > maxPayload {
		return fmt.Errorf("%w: the requests of a batch have %d bytes, want at most %d: shorter tasks", policy.ErrRun,
			h.length, maxPayload)
	}
	begun, limit := time.Now(), w.limit()
	status, text, err := w.exchange(p, begun.Add(limit))
	if err != nil {
		return w.failed(p, err, limit)
	}
	switch status {
	case statusOK:
	case statusMemory:
		w.refused("its memory or the GPU's is short: " + string(text))
		return fmt.Errorf("%w: %w: %s", policy.ErrRun, policy.ErrMemory, text)
	default:
		w.refused("the policy's code fails: " + string(text))
		return fmt.Errorf("%w: %s", policy.ErrRun, text)
	}
	for _, r := range rows {
		w.shared.take(w.slots[r])
	}
	w.answered.Store(true)
	w.longest = max(w.longest, time.Since(begun))
	return nil
}

// refused stores the error of a batch.
func (w *worker) refused(why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.why = why
	w.errors.Add(1)
}

// limit returns the time limit of a batch.
func (w *worker) limit() time.Duration {
	if w.longest == 0 {
		return w.patience.first
	}
	return max(w.patience.least, batchTimes*w.longest)
}

// exchange sends the frame and waits for its answer.
func (w *worker) exchange(p *process, until time.Time) (status int, text []byte, err error) {
	if err := p.control.SetDeadline(until); err != nil {
		return 0, nil, err
	}
	if _, err := p.control.Write(w.frame); err != nil {
		return 0, nil, err
	}
	h, payload, answer, err := readFrame(p.control, w.answer)
	w.answer = answer
	if err == nil && (h.kind != kindDone || h.sequence != w.sequence) {
		err = fmt.Errorf("the worker answers with frame %d of run %d, want %d of %d", h.kind, h.sequence, kindDone,
			w.sequence)
	}
	return h.count, payload, err
}

// failed ends a worker that did not answer, and returns the error of its batch.
func (w *worker) failed(p *process, err error, limit time.Duration) error {
	w.mu.Lock()
	if w.process == p {
		w.ready = false // not ready until supervise has started another worker
	}
	w.mu.Unlock()
	why := fmt.Sprintf("a frame of the worker cannot be read: %v", err)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		w.timeouts.Add(1)
		why = fmt.Sprintf("a chunk took longer than %v, so the worker was killed", limit)
	}
	select {
	case <-p.done: // the worker has ended by itself
		why = p.why
	case <-time.After(endsWithin):
		w.kill(why)
		select {
		case <-p.done:
		case <-time.After(killedWithin):
		}
	}
	return fmt.Errorf("%w: %w: %s", policy.ErrRun, policy.ErrAway, why)
}
