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
)

// manager listens as a service manager does and puts the socket's name into
// the environment.
func manager(t *testing.T, name string) *net.UnixConn {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("service managers that notify are Linux's")
	}
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	t.Setenv(socketVariable, name)
	t.Setenv(periodVariable, "")
	t.Setenv(processVariable, "")
	return l
}

func next(t *testing.T, l *net.UnixConn) string {
	t.Helper()
	l.SetReadDeadline(time.Now().Add(5 * time.Second))
	buf := make([]byte, 4096)
	n, err := l.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n])
}

func TestMessages(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	for _, name := range []string{path, "@edgert-notify-test-" + strconv.Itoa(os.Getpid())} {
		l := manager(t, name)
		s, err := Open()
		if err != nil {
			t.Fatalf("Open at %s: %v", name, err)
		}
		tests := []struct {
			name string
			send func() bool
			want string
		}{
			{"ready", s.Ready, "READY=1"},
			{"alive", s.Watchdog, "WATCHDOG=1"},
			{"leaving", s.Stopping, "STOPPING=1"},
			{"status", func() bool { return s.Status("STREAMING") }, "STATUS=STREAMING"},
			{"shorter status after a longer one", func() bool { return s.Status("DEAD") }, "STATUS=DEAD"},
			{"a second line could be another key", func() bool { return s.Status("ok\nREADY=1") }, "STATUS=ok"},
			{"endless status", func() bool { return s.Status(strings.Repeat("x", 10*statusMax)) }, "STATUS=" + strings.Repeat("x", statusMax)},
			{"a longer start", func() bool { return s.Extend(90 * time.Second) }, "EXTEND_TIMEOUT_USEC=90000000"},
			{"empty status", func() bool { return s.Status("") }, "STATUS="},
		}
		for _, tt := range tests {
			sent := tt.send()
			if got := next(t, l); got != tt.want || !sent {
				t.Errorf("%s at %s: sent %v, %q, want %q", tt.name, name, sent, got, tt.want)
			}
		}
		if !s.Listening() {
			t.Errorf("Listening at %s = false", name)
		}
		s.Close()
		if s.Listening() || !s.Ready() {
			t.Error("a closed socket is not mute")
		}
	}
}

func TestWithoutAManagerEverythingIsSaidToNobody(t *testing.T) {
	t.Setenv(socketVariable, "")
	t.Setenv(periodVariable, "3000000")
	s, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	if !s.Ready() || !s.Watchdog() || !s.Status("x") || !s.Stopping() || s.Listening() || s.Interval() != 0 {
		t.Errorf("mute socket: listening %v, interval %v; want every message to count as sent", s.Listening(), s.Interval())
	}
	s.Close()
}

func TestAManagerThatIsGoneLeavesAMuteSocket(t *testing.T) {
	for _, name := range []string{filepath.Join(t.TempDir(), "nobody"), "relative/path", "@edgert-nobody-listens-here"} {
		t.Setenv(socketVariable, name)
		s, err := Open()
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("Open with %s: error %v, want one that names it", name, err)
		}
		if s.Listening() || !s.Ready() {
			t.Errorf("Open with %s: the socket is not mute", name)
		}
	}
}

// A manager that dies later, or does not read, must neither block nor end us.
func TestWhatCannotBeSentIsReported(t *testing.T) {
	l := manager(t, filepath.Join(t.TempDir(), "notify"))
	s, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	full := false
	for range 100_000 {
		if full = !s.Watchdog(); full {
			break
		}
	}
	if !full {
		t.Error("nobody reads, and every message counts as sent")
	}
	if next(t, l); !s.Ready() {
		t.Error("there is room again, and Ready is not sent")
	}
	l.Close()
	if s.Ready() {
		t.Error("the manager is gone, and Ready counts as sent")
	}
}

func TestInterval(t *testing.T) {
	tests := []struct {
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
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := interval(tt.usec, tt.pid, 42)
			if got != tt.want || (err != nil) != tt.fails {
				t.Errorf("interval(%q, %q, 42) = %v, %v, want %v, error %v", tt.usec, tt.pid, got, err, tt.want, tt.fails)
			}
		})
	}
}

func TestOpenReadsTheWatchdogsVariables(t *testing.T) {
	manager(t, filepath.Join(t.TempDir(), "notify"))
	t.Setenv(periodVariable, "1500000")
	t.Setenv(processVariable, strconv.Itoa(os.Getpid()))
	s, err := Open()
	if err != nil || s.Interval() != 500*time.Millisecond {
		t.Errorf("interval %v, %v, want 500ms", s.Interval(), err)
	}
	s.Close()
	t.Setenv(periodVariable, "soon")
	s, err = Open()
	if err == nil || s.Interval() != 0 || !s.Ready() || !s.Listening() {
		t.Errorf("with WATCHDOG_USEC=soon: interval %v, error %v, want 0, an error, and a socket that works", s.Interval(), err)
	}
	s.Close()
}

func TestSocketNoAlloc(t *testing.T) {
	l := manager(t, filepath.Join(t.TempDir(), "notify"))
	s, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	drain := make([]byte, 4096)
	text := strings.Repeat("STREAMING ", 30)
	n := testing.AllocsPerRun(100, func() {
		if !s.Watchdog() || !s.Status(text) || !s.Ready() || !s.Stopping() {
			t.Error("not sent")
		}
		for range 4 {
			if _, err := l.Read(drain); err != nil {
				t.Error(err)
			}
		}
	})
	if n != 0 {
		t.Errorf("%v allocations per round, want 0", n)
	}
	l.Close()
	if n := testing.AllocsPerRun(100, func() { s.Watchdog() }); n != 0 {
		t.Errorf("%v allocations per message to nobody, want 0", n)
	}
}

// A program that a service's process starts has its environment, and no manager;
// nor has one in a container, to which podman gives a socket.
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
		if got := managed(func(name string) string { return env[name] }, self, tt.parent); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
	}
	t.Setenv(socketVariable, "/run/x")
	t.Setenv("SYSTEMD_EXEC_PID", strconv.Itoa(os.Getpid()))
	if !Managed() {
		t.Error("with systemd's variables for this process: not managed, want so")
	}
}
