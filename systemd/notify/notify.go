// Package notify reports the process's state to the service manager: ready, alive, its activity,
// about to end.
//
// It is systemd's sd_notify protocol: one datagram of KEY=VALUE lines to the socket that
// $NOTIFY_SOCKET names. Without that variable nothing is sent. The watchdog is fed while a robot
// runs, so nothing allocates after Open; github.com/coreos/go-systemd/v22 dials and formats at
// every call.
//
//	n, err := notify.Open() // on an error n sends nothing, and is usable
//	n.Status("loading")
//	for running() {
//		n.Update(clock.Now(), notify.State{Ready: true, Status: "serving", Progress: served})
//	}
//	n.Close()
package notify

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/edge-rt/edge-rt/rt"
)

// The variables of the protocol.
const (
	socketVariable  = "NOTIFY_SOCKET"
	periodVariable  = "WATCHDOG_USEC"
	processVariable = "WATCHDOG_PID"
)

// feedsPerPeriod is the number of feeds in a watchdog period: two may be lost or late before the
// manager acts.
const feedsPerPeriod = 3

// statusMax is the largest size of a status text, in bytes. A longer text is cut off there.
const statusMax = 256

var (
	ready    = []byte("READY=1")
	stopping = []byte("STOPPING=1")
	watchdog = []byte("WATCHDOG=1")
	status   = "STATUS="
	extend   = "EXTEND_TIMEOUT_USEC="
)

// State is the present state of the process.
type State struct {
	Ready    bool   // the process now does its work
	Stopping bool   // the process is about to end
	Status   string // one line for people; empty: unchanged
	Progress uint64 // a number that changes when the work that the watchdog guards makes progress
}

// Notifier passes the process's state on to the service manager. No call blocks. A message for
// which the socket has no room is sent again at the next Update.
//
// Owner: one goroutine at a time.
type Notifier struct {
	// Constant after Open.
	socket   port
	interval time.Duration // time between two feeds of the watchdog; 0: no watchdog

	buf []byte // reused by Status

	// The state that was sent to the manager.
	ready, stopping bool
	status          string
	progress        uint64
	fed             rt.Instant
}

// Open connects to the manager that started this process, if any. On an error the Notifier sends
// nothing: a run is more important than messages about it.
//
// Source: sd_notify(3), sd_watchdog_enabled(3).
func Open() (*Notifier, error) {
	n := &Notifier{socket: closed, buf: append(make([]byte, 0, len(status)+statusMax), status...)}
	name := os.Getenv(socketVariable)
	if name == "" {
		return n, nil
	}
	p, err := dial(name)
	if err != nil {
		return n, fmt.Errorf("%s=%s: %w", socketVariable, name, err)
	}
	n.socket = p
	n.interval, err = interval(os.Getenv(periodVariable), os.Getenv(processVariable), os.Getpid())
	return n, err
}

// Managed reports whether systemd started this process itself, as a service whose unit cleans up
// after it. A socket is not enough: podman gives its containers one too.
//
// Source: systemd.exec(5), $SYSTEMD_EXEC_PID, since systemd 248. An older systemd, such as 247,
// sets $INVOCATION_ID and is the parent, process 1.
func Managed() bool { return managed(os.Getenv, os.Getpid(), os.Getppid()) }

func managed(env func(string) string, self, parent int) bool {
	if env(socketVariable) == "" {
		return false
	}
	if pid := env("SYSTEMD_EXEC_PID"); pid != "" {
		return pid == strconv.Itoa(self)
	}
	return env("INVOCATION_ID") != "" && parent == 1
}

// interval returns how often to feed the watchdog; 0 when there is no
// watchdog, or another process feeds it.
func interval(usec, pid string, self int) (time.Duration, error) {
	if usec == "" || pid != "" && pid != strconv.Itoa(self) {
		return 0, nil
	}
	period, err := strconv.ParseInt(usec, 10, 64)
	if err != nil || period <= 0 || period > int64(1<<63-1)/int64(time.Microsecond) {
		return 0, fmt.Errorf("%s is %q, want microseconds above 0: the watchdog will not be fed", periodVariable, usec)
	}
	return time.Duration(period) * time.Microsecond / feedsPerPeriod, nil
}

// Update sends the changes in s. It feeds the watchdog when the watchdog is due and Progress has
// changed. So the manager kills a process whose work hangs.
//
//rt:noalloc
func (n *Notifier) Update(now rt.Instant, s State) {
	if s.Ready && !n.ready {
		n.ready = n.socket.send(ready)
	}
	if s.Status != "" && s.Status != n.status {
		n.Status(s.Status)
	}
	if s.Stopping && !n.stopping {
		n.stopping = n.socket.send(stopping)
	}
	if n.interval > 0 && s.Progress != n.progress && now.Sub(n.fed) >= n.interval && n.socket.send(watchdog) {
		n.progress, n.fed = s.Progress, now
	}
}

// Status sends the process's activity in one line; only the first line is sent.
//
//rt:noalloc
func (n *Notifier) Status(text string) {
	b := n.buf[:len(status)]
	for i := 0; i < len(text) && i < statusMax && text[i] != '\n'; i++ {
		b = append(b, text[i])
	}
	if n.socket.send(b) {
		n.status = text
	}
}

// Extend asks the manager for the time d, from now, in which the process may start or end. Do not call it while
// running: it would increase the watchdog's timeout too.
func (n *Notifier) Extend(d time.Duration) {
	n.socket.send(strconv.AppendInt([]byte(extend), d.Microseconds(), 10))
}

// Close closes the socket; from then on nothing is sent.
func (n *Notifier) Close() {
	n.socket.close()
	n.socket = closed
}
