package rt

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// A loop hangs if it has not ticked for heartbeatMin, the timeout of the systemd unit's watchdog, or for
// heartbeatPeriods of its periods if these are longer.
const (
	heartbeatMin     = 2 * time.Second
	heartbeatPeriods = 3
)

// heartbeatMagic distinguishes our page from any other memory.
const heartbeatMagic = 0x70756C7365_01

// errNoHeartbeat means that an opened file is not a Heartbeat.
var errNoHeartbeat = errors.New("rt: not a heartbeat")

// Heartbeat is a page of memory in which one process counts its ticks and another detects when they stop. Beat needs
// neither a system call nor another thread, which could itself hang.
type Heartbeat struct {
	page  *heartbeatPage
	unmap func()
}

// heartbeatPage is the shared memory, words that both processes access atomically.
type heartbeatPage struct {
	magic   atomic.Uint64
	process atomic.Int64 // id of the process that ticks
	beats   atomic.Uint64
	timeout atomic.Int64 // ns without a tick that count as a hang; 0: no ticks are expected
}

// Start announces ticks, one a period.
//
//rt:noalloc
func (h *Heartbeat) Start(period time.Duration) {
	h.page.timeout.Store(int64(max(heartbeatMin, heartbeatPeriods*period)))
}

// Beat marks the end of a tick.
//
//rt:noalloc
func (h *Heartbeat) Beat() { h.page.beats.Add(1) }

// Stop announces that no more ticks follow.
//
//rt:noalloc
func (h *Heartbeat) Stop() { h.page.timeout.Store(0) }

// PID returns the id of the process that ticks.
func (h *Heartbeat) PID() int { return int(h.page.process.Load()) }

// Timeout returns the time without a tick that counts as a hang; 0: no ticks are expected.
func (h *Heartbeat) Timeout() time.Duration { return time.Duration(h.page.timeout.Load()) }

// Close unmaps the page.
func (h *Heartbeat) Close() {
	if h.unmap != nil {
		h.unmap()
	}
}

// processHeartbeat is the Heartbeat in which every Loop on the kernel's clock counts its ticks; nil before
// ProcessHeartbeat.
var processHeartbeat atomic.Pointer[Heartbeat]

var makeProcessHeartbeat = sync.OnceValues(func() (*os.File, error) {
	h, f, err := newHeartbeat()
	if err == nil {
		h.page.process.Store(int64(os.Getpid()))
		h.page.magic.Store(heartbeatMagic)
		processHeartbeat.Store(h)
	}
	return f, err
})

// ProcessHeartbeat returns the file of this process's Heartbeat. Another process can watch it, see OpenHeartbeat. Loops
// whose Run begins afterwards count their ticks in it.
func ProcessHeartbeat() (*os.File, error) { return makeProcessHeartbeat() }

// LoopHeartbeat returns the process's Heartbeat, or on a simulated clock a private one.
func LoopHeartbeat(clock Clock) *Heartbeat {
	if h := processHeartbeat.Load(); h != nil && clock == KernelClock() {
		return h
	}
	return &Heartbeat{page: new(heartbeatPage)}
}

// HangDetector finds a process whose ticks have stopped. It counts its polls instead of reading a clock, so the time in
// which the machine was suspended does not count.
//
// Owner: the goroutine that polls.
type HangDetector struct {
	heartbeat *Heartbeat
	interval  time.Duration // time between two polls
	beats     uint64        // number of beats at the last poll
	silent    time.Duration // polled time without a new beat
}

// NewHangDetector returns a detector that is polled once per interval or less often.
func NewHangDetector(h *Heartbeat, interval time.Duration) *HangDetector {
	return &HangDetector{heartbeat: h, interval: interval}
}

// Poll reports whether no tick has come for the timeout, which it measures in intervals between polls.
func (d *HangDetector) Poll() bool {
	beats, timeout := d.heartbeat.page.beats.Load(), d.heartbeat.Timeout()
	if beats != d.beats || timeout == 0 {
		d.beats, d.silent = beats, 0
		return false
	}
	d.silent += d.interval
	return d.silent >= timeout
}

// Reset starts the timeout anew, when something else explains the missing ticks.
func (d *HangDetector) Reset() { d.silent = 0 }
