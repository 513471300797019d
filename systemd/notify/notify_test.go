package notify

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// manager listens as a service manager does and puts the socket's name into the environment.
func manager(t *testing.T, name string) *net.UnixConn {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("service managers that notify are Linux's")
	}
	l := rttest.Must(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"}))(t)
	t.Cleanup(func() { l.Close() })
	t.Setenv(socketVariable, name)
	t.Setenv(periodVariable, "")
	t.Setenv(processVariable, "")
	return l
}

// sent returns the manager's input since the last call.
func sent(t *testing.T, l *net.UnixConn) string {
	t.Helper()
	return strings.Join(rttest.Datagrams(t, l), " ")
}

func open(t *testing.T) *Notifier {
	t.Helper()
	n := rttest.Must(Open())(t)
	t.Cleanup(n.Close)
	return n
}

func TestMessages(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	for _, name := range []string{path, "@edgert-notify-test-" + strconv.Itoa(os.Getpid())} {
		l := manager(t, name)
		n := open(t)
		for _, tt := range []struct {
			name string
			send func()
			want string
		}{
			{"status", func() { n.Status("STREAMING") }, "STATUS=STREAMING"},
			{"shorter status after a longer one", func() { n.Status("DEAD") }, "STATUS=DEAD"},
			{"a second line could be another key", func() { n.Status("ok\nREADY=1") }, "STATUS=ok"},
			{"endless status", func() {
				n.Status(strings.Repeat("x", 10*statusMax))
			}, "STATUS=" + strings.Repeat("x", statusMax)},
			{"a longer start", func() { n.Extend(90 * time.Second) }, "EXTEND_TIMEOUT_USEC=90000000"},
			{"empty status", func() { n.Status("") }, "STATUS="},
			{"closed", func() { n.Close(); n.Status("closed") }, ""},
		} {
			tt.send()
			rttest.Want(t, sent(t, l), tt.want, "%s at %s: sent", tt.name, name)
		}
	}
}

func TestUpdateSendsWhatIsNew(t *testing.T) {
	l := manager(t, filepath.Join(t.TempDir(), "notify"))
	t.Setenv(periodVariable, "3000000") // fed three times per period, every second
	n := open(t)
	const ms = rt.Instant(time.Millisecond)
	for _, tt := range []struct {
		name  string
		at    rt.Instant
		state State
		want  string
	}{
		{"nothing to say", 4000 * ms, State{}, ""},
		{"open, no progress yet: not ready", 5000 * ms, State{Status: "CONNECTING"}, "STATUS=CONNECTING"},
		{"still none", 5020 * ms, State{Status: "CONNECTING"}, ""},
		{"the first progress", 5040 * ms, State{Ready: true, Status: "CONNECTING", Progress: 1}, "READY=1 WATCHDOG=1"},
		{"ready is sent once, the watchdog is not due", 5060 * ms,
			State{Ready: true, Status: "CONNECTING", Progress: 2}, ""},
		{"another status", 5080 * ms, State{Ready: true, Status: "STREAMING", Progress: 3}, "STATUS=STREAMING"},
		{"no status: as before", 5100 * ms, State{Ready: true, Progress: 3}, ""},
		{"a moment before the watchdog is due", 6039 * ms, State{Ready: true, Status: "STREAMING", Progress: 60}, ""},
		{"the watchdog is due", 6040 * ms, State{Ready: true, Status: "STREAMING", Progress: 61}, "WATCHDOG=1"},
		{"no progress", 7040 * ms, State{Ready: true, Status: "STREAMING", Progress: 61}, ""},
		{"none for long: the manager acts", 60_000 * ms, State{Ready: true, Status: "STREAMING", Progress: 61}, ""},
		{"it goes on, late", 60_020 * ms, State{Ready: true, Status: "STALLED", Progress: 62},
			"STATUS=STALLED WATCHDOG=1"},
		{"leaving, with progress", 61_020 * ms, State{
			Ready:    true,
			Stopping: true,
			Status:   "STALLED",
			Progress: 130,
		}, "STOPPING=1 WATCHDOG=1"},
		{"leaving is sent once", 61_040 * ms, State{Ready: true, Stopping: true, Status: "STALLED", Progress: 131}, ""},
	} {
		n.Update(tt.at, tt.state)
		rttest.Want(t, sent(t, l), tt.want, "%s: Update(%d ms, %+v) sent", tt.name, tt.at/ms, tt.state)
	}
}

func TestWithoutAManagerNothingIsSent(t *testing.T) {
	t.Setenv(socketVariable, "")
	t.Setenv(periodVariable, "3000000")
	n := open(t)
	n.Update(1, State{Ready: true, Stopping: true, Status: "x", Progress: 1})
	if n.socket != closed || n.interval != 0 || !n.ready || !n.stopping || n.status != "x" {
		t.Errorf("notifier without a manager: %+v, want no watchdog and every message counted as sent", n)
	}
}

func TestAManagerThatIsGoneLeavesAUsableNotifier(t *testing.T) {
	for _, name := range []string{filepath.Join(t.TempDir(), "nobody"), "relative/path",
		"@edgert-nobody-listens-here"} {
		t.Setenv(socketVariable, name)
		n, err := Open()
		rttest.Fails(t, err, name)
		if n.socket != closed || !n.socket.send(ready) {
			t.Errorf("Open with %s: the notifier is not closed", name)
		}
	}
}

// A manager that dies later, or does not read, must neither block nor end this process. A datagram
// for which the manager's socket had no room is sent again.
func TestUpdateRepeatsWhatWasNotSent(t *testing.T) {
	l := manager(t, filepath.Join(t.TempDir(), "notify"))
	n := open(t)
	full := false
	for range 100_000 {
		if full = !n.socket.send([]byte("noise")); full {
			break
		}
	}
	if !full {
		t.Fatal("nobody reads, and every message counts as sent")
	}
	leaving := State{Ready: true, Stopping: true, Status: "STREAMING"}
	n.Update(1, leaving)
	sent(t, l)
	n.Update(2, leaving)
	if got, want := sent(t, l), "READY=1 STATUS=STREAMING STOPPING=1"; got != want {
		t.Errorf("after a full queue Update sent %q, want %q", got, want)
	}
	l.Close()
	if n.socket.send(ready) {
		t.Error("the manager is gone, and a message counts as sent")
	}
}

func TestInterval(t *testing.T) {
	for _, tt := range []struct {
		name, usec, pid string
		want            time.Duration
		fails           bool
	}{
		{"a third of the period", "3000000", "", time.Second, false},
		{"meant for this process", "3000000", "42", time.Second, false},
		{"meant for another process", "3000000", "43", 0, false},
		{"no watchdog", "", "42", 0, false},
		{"zero", "0", "", 0, true},
		{"negative", "-3", "", 0, true},
		{"no number", "3s", "", 0, true},
		{"longer than a duration", "9223372036854775807", "", 0, true},
		{"the longest", "9223372036854775", "", time.Duration(9223372036854775000) / 3, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := interval(tt.usec, tt.pid, 42)
			if got != tt.want || (err != nil) != tt.fails {
				t.Errorf("interval(%q, %q, 42) = %v, %v, want %v, error %v", tt.usec, tt.pid, got, err, tt.want,
					tt.fails)
			}
		})
	}
}

func TestOpenReadsTheWatchdogsVariables(t *testing.T) {
	manager(t, filepath.Join(t.TempDir(), "notify"))
	t.Setenv(periodVariable, "1500000")
	t.Setenv(processVariable, strconv.Itoa(os.Getpid()))
	if n := open(t); n.interval != 500*time.Millisecond {
		t.Errorf("interval %v, want 500ms", n.interval)
	}
	t.Setenv(periodVariable, "soon")
	n, err := Open()
	if err == nil || n.interval != 0 || n.socket == closed {
		t.Errorf("with WATCHDOG_USEC=soon: interval %v, error %v, want 0, an error, and a notifier that works",
			n.interval, err)
	}
	n.Close()
}

func TestUpdateNoAlloc(t *testing.T) {
	l := manager(t, filepath.Join(t.TempDir(), "notify"))
	t.Setenv(periodVariable, "3")
	n := open(t)
	texts := []string{strings.Repeat("STREAMING ", 30), "STALLED"}
	now, progress := rt.Instant(0), uint64(0)
	allocs := testing.AllocsPerRun(100, func() {
		now, progress = now.Add(time.Second), progress+1
		n.Update(now, State{Ready: true, Status: texts[progress%2], Stopping: true, Progress: progress})
	})
	rttest.Want(t, allocs, 0, "allocations per update")
	if got := strings.Count(sent(t, l), "="); got < 8 {
		t.Errorf("%d messages in 100 updates: the test measured nothing", got)
	}
	l.Close()
	rttest.NoAllocs(t, "%v allocations per message to nobody, want 0", 100, func() { n.Status("to nobody") })
}

// A program that a service's process starts has the service's environment, but no manager. A
// program in a container has no manager either, although podman gives it a socket.
func TestManaged(t *testing.T) {
	const self = 4711
	for _, tt := range []struct {
		name                    string
		socket, pid, invocation string
		parent                  int
		want                    bool
	}{
		{"by hand", "", "", "", 900, false},
		{"by hand, in a terminal that is a service's", "", "4000", "a1", 900, false},
		{"a service", "/run/x", "4711", "a1", 1, true},
		{"a service of the user's manager", "/run/x", "4711", "a1", 900, true},
		{"started by a service's process", "/run/x", "4000", "a1", 4000, false},
		{"a service that does not notify", "", "4711", "a1", 1, false},
		{"systemd 247", "/run/x", "", "a1", 1, true},
		{"systemd 247, started by a service's process", "/run/x", "", "a1", 4000, false},
		{"podman, process 1 of its container", "/run/notify/notify.sock", "", "", 0, false},
		{"podman with an init", "/run/notify/notify.sock", "", "", 1, false},
		{"podman --env-host, inside a service", "/run/notify/notify.sock", "4000", "a1", 0, false},
	} {
		env := map[string]string{socketVariable: tt.socket, "SYSTEMD_EXEC_PID": tt.pid, "INVOCATION_ID": tt.invocation}
		rttest.Want(t, managed(func(name string) string { return env[name] }, self, tt.parent), tt.want, "%s", tt.name)
	}
	t.Setenv(socketVariable, "/run/x")
	t.Setenv("SYSTEMD_EXEC_PID", strconv.Itoa(os.Getpid()))
	if !Managed() {
		t.Error("with systemd's variables for this process: not managed, want so")
	}
}
