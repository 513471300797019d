// Package notify tells the service manager how the process is: that it is
// ready, that it is alive, what it is doing, that it is about to leave.
//
// It is systemd's sd_notify protocol: one datagram of KEY=VALUE lines to the
// socket that $NOTIFY_SOCKET names. Without that variable nobody listens, and
// everything here does nothing. The feeding of the watchdog happens while a
// robot runs, so nothing allocates after Open; github.com/coreos/go-systemd/v22
// dials and formats at every call.
//
//	s, err := notify.Open() // on an error s is mute, and usable
//	s.Ready()
//	for alive() {
//		s.Watchdog() // about every s.Interval()
//	}
//	s.Stopping()
package notify

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

// The variables of the protocol.
const (
	socketVariable  = "NOTIFY_SOCKET"
	periodVariable  = "WATCHDOG_USEC"
	processVariable = "WATCHDOG_PID"
)

// feedsPerPeriod: two may be lost or late before the manager acts.
const feedsPerPeriod = 3

// statusMax bounds a status text, in bytes; the rest is cut off.
const statusMax = 256

var (
	ready    = []byte("READY=1")
	stopping = []byte("STOPPING=1")
	watchdog = []byte("WATCHDOG=1")
	status   = "STATUS="
	extend   = "EXTEND_TIMEOUT_USEC="
)

// Socket is the way to the service manager. Its methods report whether the
// message is under way, or nobody listens; false means that the manager's queue
// is full or that it is gone: try again later. They never block.
//
// Owner: one goroutine at a time.
type Socket struct {
	// Constant after Open.
	port     port
	interval time.Duration

	buf []byte // of Status
}

// Open connects to the manager that started this process, if one did. A socket
// that is named but does not answer is an error; the Socket returned with it is
// mute, since a run is worth more than what is said about it.
//
// Source: sd_notify(3), sd_watchdog_enabled(3).
func Open() (*Socket, error) {
	s := &Socket{port: mute, buf: append(make([]byte, 0, len(status)+statusMax), status...)}
	name := os.Getenv(socketVariable)
	if name == "" {
		return s, nil
	}
	p, err := dial(name)
	if err != nil {
		return s, fmt.Errorf("%s=%s: %w", socketVariable, name, err)
	}
	s.port = p
	s.interval, err = interval(os.Getenv(periodVariable), os.Getenv(processVariable), os.Getpid())
	return s, err
}

// Managed reports whether systemd started this process itself, as a service whose
// unit cleans up after it, and not something whose environment it has. A socket
// alone says little: podman gives its containers one too, and runs nothing after
// them.
//
// Source: systemd.exec(5), $SYSTEMD_EXEC_PID, since systemd 248; before that, 247
// for instance, it sets $INVOCATION_ID and is the parent, process 1.
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

// interval returns how often to feed the watchdog; 0 when nobody asked for it,
// or somebody asked another process.
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

// Interval is how often Watchdog wants to be called; 0: there is no watchdog.
func (s *Socket) Interval() time.Duration { return s.interval }

// Listening reports whether there is a manager to tell.
func (s *Socket) Listening() bool { return s.port != mute }

// Ready says that the process does what it is for.
//
//rt:noalloc
func (s *Socket) Ready() bool { return s.port.send(ready) }

// Stopping says that the process is about to leave.
//
//rt:noalloc
func (s *Socket) Stopping() bool { return s.port.send(stopping) }

// Watchdog says that the process is alive; without it for a watchdog's period
// the manager kills it.
//
//rt:noalloc
func (s *Socket) Watchdog() bool { return s.port.send(watchdog) }

// Status says in one line what the process is doing, for people. A line ends
// the message, so only the first is sent.
//
//rt:noalloc
func (s *Socket) Status(text string) bool {
	b := s.buf[:len(status)]
	for i := 0; i < len(text) && i < statusMax && text[i] != '\n'; i++ {
		b = append(b, text[i])
	}
	return s.port.send(b)
}

// Extend asks for so much time from now for what the process is at, its start or
// its end, where the manager would allow less. Not while it runs: the watchdog's
// patience would grow too.
func (s *Socket) Extend(d time.Duration) bool {
	return s.port.send(strconv.AppendInt([]byte(extend), d.Microseconds(), 10))
}

// Close gives the socket back; from then on it is mute.
func (s *Socket) Close() {
	s.port.close()
	s.port = mute
}
