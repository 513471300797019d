package lerobot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/server/remote"
)

const (
	// loadLimit is how long a worker may take to load: large checkpoints from a slow disk, and
	// torch.compile.
	loadLimit = 30 * time.Minute
	// loadNews is how long a loading worker may report nothing. Then start reports that loading
	// continues.
	loadNews = 5 * time.Second
	// The time limit of a batch is batchTimes the longest successful batch, at least batchLeast;
	// before the first success it is batchFirst.
	batchLeast, batchFirst = 10 * time.Second, 60 * time.Second
	batchTimes             = 10
	// The default of model.memory_limit is leakTimes the memory of the loaded policy plus
	// leakSlack.
	leakTimes, leakSlack = 2, 4 << 30
	// memoryEvery is the time between two checks of the worker's memory.
	memoryEvery = time.Second
	// restartLeast and restartMost bound the wait before the worker is started again. Each failure doubles the wait,
	// until a worker has answered a batch.
	restartLeast, restartMost = 200 * time.Millisecond, 30 * time.Second
)

// worker runs a LeRobot policy in a separate process, which it starts again when the process ends.
type worker struct {
	// Constant after open.
	patience struct{ first, least time.Duration } // time limits of a batch
	most     int64                                // bytes of main memory that the worker may occupy
	python   string
	settings string // JSON
	log      *slog.Logger
	file     *os.File // the memory of the rows; each new process of the worker maps it again
	hello    []byte   // the description, the same for all runs of the worker
	folder   string   // folder of the checkpoint
	sha256   string   // digest of folder and hello
	meta     *policy.Meta
	shared   *shared // nil before Allocate was called
	slots    map[*remote.Row]int
	ctx      context.Context // ends when Close is called
	stop     context.CancelFunc
	ended    chan struct{} // closed when no process is started any more

	// Owner: the thread that calls Batch.
	frame    []byte
	answer   []byte
	sequence uint64
	longest  time.Duration // longest successful batch

	once               sync.Once
	failures, restarts atomic.Uint64
	timeouts, errors   atomic.Uint64
	memory             atomic.Int64
	answered           atomic.Bool // the worker has answered a batch since its start

	mu      sync.Mutex // guards the rest
	process *process   // nil: no process runs
	ready   bool       // process answers batches
	state   string
	why     string // reason of the last failure
	killing string // the reason why this server is killing process; empty: it is not
}

// loaded describes a policy. The worker sends it in its first frame. It has the keys of policy.Meta and keys about the
// worker. The key rtc is a boolean here, unlike in policy.Meta.
type loaded struct {
	policy.Meta
	LeRobot          string `json:"lerobot"`
	Torch            string `json:"torch"`
	Python           string `json:"python"`
	Folder           string `json:"folder"`
	Device           string `json:"device"`
	RTC              bool   `json:"rtc"`
	ExecutionHorizon int    `json:"execution_horizon"`
	State            string `json:"state"`
	MaxBatch         int    `json:"max_batch"`
	ReadsTask        bool   `json:"reads_task"`
}

// errManifest marks a policy that does not load because of a fault in the manifest, which the worker reported.
// errPython marks an interpreter that ended before the worker's program had sent a frame.
var (
	errManifest = errors.New("the policy does not load")
	errPython   = errors.New("the interpreter does not run the worker")
)

// start starts the worker. It returns the process and its description as soon as the worker has
// loaded the policy and sent the description.
func (w *worker) start(ctx context.Context, show func(text string)) (*process, []byte, error) {
	p, err := startProcess(w.python, w.settings, w.file, w.log)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", w.python, err)
	}
	defer context.AfterFunc(ctx, p.kill)()
	text, begun := atomic.Pointer[string]{}, time.Now()
	started := "starting " + w.python
	text.Store(&started)
	news := time.NewTicker(loadNews)
	defer news.Stop()
	over := make(chan struct{})
	defer close(over)
	go func() {
		for {
			select {
			case <-news.C:
				show(fmt.Sprintf("%s (%.0f s so far)", *text.Load(), time.Since(begun).Seconds()))
			case <-over:
				return
			}
		}
	}()
	if err := p.control.SetReadDeadline(begun.Add(loadLimit)); err != nil {
		return nil, nil, errors.Join(err, p.end())
	}
	buf := make([]byte, 64<<10)
	for {
		h, payload, larger, err := readFrame(p.control, buf)
		buf = larger
		switch {
		case err != nil && text.Load() == &started:
			return nil, nil, fmt.Errorf("%w: %w", errPython, w.loadError(ctx, p, err))
		case err != nil:
			return nil, nil, w.loadError(ctx, p, err)
		case h.kind == kindProgress:
			line := string(payload)
			text.Store(&line)
			show(line)
		case h.kind == kindFailed:
			err := fmt.Errorf("%w: %s", errManifest, payload)
			if h.count == statusMemory {
				err = fmt.Errorf("%w: %s", policy.ErrMemory, payload)
			}
			return nil, nil, errors.Join(err, p.end())
		case h.kind == kindHello:
			return p, payload, nil
		default:
			return nil, nil, errors.Join(fmt.Errorf("the worker sends frame %d while it loads", h.kind), p.end())
		}
	}
}

// loadError returns the error for a worker that ended while it was loading.
func (w *worker) loadError(ctx context.Context, p *process, err error) error {
	if ctx.Err() != nil {
		return errors.Join(ctx.Err(), p.end())
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.Join(fmt.Errorf("the policy has not loaded within %v", loadLimit), p.end())
	}
	select {
	case <-p.done:
	case <-time.After(killedWithin):
	}
	if failed := p.end(); failed != nil {
		return errors.Join(err, failed)
	}
	if p.shot() {
		return fmt.Errorf("%w: while the policy loaded, %s", policy.ErrMemory, p.why)
	}
	return fmt.Errorf("while the policy loaded, %s", p.why)
}

// mapRows makes the worker map the rows.
func (w *worker) mapRows(p *process) error {
	if err := p.control.SetDeadline(time.Now().Add(batchFirst)); err != nil {
		return err
	}
	_, err := p.control.Write(appendHeader(nil, header{kind: kindMap, count: len(w.shared.rows)}))
	if err != nil {
		return err
	}
	h, _, _, err := readFrame(p.control, make([]byte, headerSize))
	if err == nil && h.kind != kindReady {
		err = fmt.Errorf("the worker answers with frame %d, want %d", h.kind, kindReady)
	}
	return err
}

// Allocate makes the rows and makes the worker map them.
func (w *worker) Allocate(rows int) (list []*remote.Row, err error) {
	if w.shared, err = newShared(w.file, w.meta, rows); err != nil {
		return nil, err
	}
	for i, r := range w.shared.rows {
		w.slots[r] = i
	}
	if err := w.mapRows(w.process); err != nil {
		close(w.ended) // otherwise Close would wait for supervise, which does not run
		return nil, fmt.Errorf("%w: the worker maps its rows: %w", policy.ErrRun, err)
	}
	w.mu.Lock()
	w.ready, w.state = true, "serving"
	w.mu.Unlock()
	go w.supervise()
	return w.shared.rows, nil
}

// supervise starts the worker again whenever it has ended, until Close.
func (w *worker) supervise() {
	defer close(w.ended)
	p := w.process
	wait := restartLeast
	memory := time.NewTicker(memoryEvery)
	defer memory.Stop()
	for {
		if p != nil {
			select {
			case <-memory.C:
				if bytes := p.memory(); bytes > w.most {
					w.kill(fmt.Sprintf("the worker occupies %d MiB of main memory, more than model.memory_limit "+
						"(%d MiB): the policy's code loses memory, or the limit is too low", bytes>>20, w.most>>20))
				} else {
					w.memory.Store(bytes)
				}
				continue
			case <-p.done:
				w.lost(p)
			case <-w.ctx.Done():
				return
			}
			if w.answered.Swap(false) {
				wait = restartLeast
			}
		}
		w.set(fmt.Sprintf("the worker starts again in %v", wait))
		select {
		case <-time.After(wait):
		case <-w.ctx.Done():
			return
		}
		wait = min(2*wait, restartMost)
		p = w.again()
	}
}

// lost records the end of a worker.
func (w *worker) lost(p *process) {
	w.failures.Add(1)
	w.memory.Store(0)
	p.control.Close()
	w.mu.Lock()
	w.ready = false
	w.process = nil
	w.why = p.why
	if w.killing != "" {
		w.why, w.killing = w.killing, ""
	}
	why := w.why
	w.mu.Unlock()
	w.log.Error("THE WORKER ENDED: robots get no chunks until it is loaded again", "why", why)
}

func (w *worker) set(state string) {
	w.mu.Lock()
	w.state = state
	w.mu.Unlock()
}

// again starts the worker. It returns nil when the start failed.
func (w *worker) again() *process {
	begun := time.Now()
	p, hello, err := w.start(w.ctx, func(text string) {
		w.set("the worker loads: " + text)
		w.log.Info("worker", "loading", text)
	})
	if err == nil {
		if err = w.resume(p, hello); err != nil {
			err = errors.Join(err, p.end())
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.failures.Add(1)
		w.why = err.Error()
		if w.ctx.Err() == nil {
			w.log.Error("the worker did not start", "why", err)
		}
		return nil
	}
	w.restarts.Add(1)
	w.process = p
	w.ready = true
	w.state = "serving"
	w.log.Info("the worker serves again", "after", time.Since(begun).Round(time.Millisecond))
	return p
}

// resume lets a loaded worker serve the rows. It refuses a policy other than the first worker's,
// because the robots got that policy's sha256 when they opened their sessions.
func (w *worker) resume(p *process, hello []byte) error {
	sum := w.sha256
	same := sameDescription(hello, w.hello)
	if same {
		var err error
		if sum, err = digest(w.folder, w.hello); err != nil {
			return err
		}
	}
	if !same || sum != w.sha256 {
		return fmt.Errorf("the policy in %s is not the one that was served: start lean-server again", w.folder)
	}
	return w.mapRows(p)
}

// sameDescription reports whether a worker describes the same policy as before.
func sameDescription(a, b []byte) bool {
	var one, other map[string]any
	if json.Unmarshal(a, &one) != nil || json.Unmarshal(b, &other) != nil {
		return false
	}
	left, _ := json.Marshal(one)
	right, _ := json.Marshal(other)
	return string(left) == string(right)
}

// Condition returns the worker's state.
func (w *worker) Condition() remote.Condition {
	w.mu.Lock()
	defer w.mu.Unlock()
	return remote.Condition{
		Ready:    w.ready,
		State:    w.state,
		Why:      w.why,
		Failures: w.failures.Load(),
		Restarts: w.restarts.Load(),
		Timeouts: w.timeouts.Load(),
		Errors:   w.errors.Load(),
		Memory:   w.memory.Load(),
	}
}

// Interrupt kills the worker, which is then started again.
func (w *worker) Interrupt() {
	w.kill("it was interrupted, because a run took too long or the server leaves")
}

// Fail kills the worker, which is then started again.
func (w *worker) Fail(why error) { w.kill(why.Error()) }

func (w *worker) kill(why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.process != nil && w.killing == "" {
		w.killing = why
		w.process.kill()
	}
}

// Close ends the worker and all that it has started.
func (w *worker) Close() (err error) {
	w.once.Do(func() {
		w.stop()
		if w.shared != nil {
			<-w.ended
		}
		w.mu.Lock()
		p := w.process
		w.process = nil
		w.ready = false
		w.state = "ended"
		w.mu.Unlock()
		if p != nil {
			err = p.end()
		}
		err = errors.Join(err, w.shared.close(), w.file.Close())
	})
	return err
}
