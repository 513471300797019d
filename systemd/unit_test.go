package systemd

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

const (
	edgeUnit   = "edge-rt@.service"
	serverUnit = "lean-server.service"
)

// unit is a unit file: its settings by name, each with all its values.
type unit map[string][]string

func readUnit(t *testing.T, path string) unit {
	t.Helper()
	f := rttest.Must(os.Open(path))(t)
	defer f.Close()
	u, section := unit{}, ""
	for s, line := bufio.NewScanner(f), 1; s.Scan(); line++ {
		text := s.Text()
		key, value, assigns := strings.Cut(text, "=")
		switch {
		case text == "" || text[0] == '#':
		case text[0] == '[':
			section = text
		case !assigns || section == "" || strings.TrimSpace(text) != text:
			t.Errorf("%s:%d: %q is no setting", path, line, text)
		default:
			u[key] = append(u[key], value)
		}
	}
	return u
}

// one returns the value of a setting that must be there once.
func (u unit) one(t *testing.T, key string) string {
	t.Helper()
	if len(u[key]) != 1 {
		t.Fatalf("%s= is set %d times, want once", key, len(u[key]))
	}
	return u[key][0]
}

// seconds returns the value of a time in seconds.
func (u unit) seconds(t *testing.T, key string) time.Duration {
	t.Helper()
	n, err := strconv.Atoi(u.one(t, key))
	if err != nil {
		t.Fatalf("%s=%s, want a number of seconds", key, u.one(t, key))
	}
	return time.Duration(n) * time.Second
}

// inSource returns the text that a pattern's group matches in a file of this repository.
func inSource(t *testing.T, path, pattern string) string {
	t.Helper()
	text := rttest.ReadFile(t, filepath.Join("..", path))
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("%s has nothing like %s", path, pattern)
	}
	return m[1]
}

// The programs' table of exit codes, the units and docs/systemd.md agree.
func TestRestartPolicyIsTheTableOfExitCodes(t *testing.T) {
	var final []string
	for _, code := range exit.Final {
		final = append(final, strconv.Itoa(int(code)))
	}
	for _, name := range []string{edgeUnit, serverUnit} {
		u := readUnit(t, name)
		if got := strings.Fields(u.one(t, "RestartPreventExitStatus")); !slices.Equal(got, final) {
			t.Errorf("%s: RestartPreventExitStatus=%v, want exit.Final, %v", name, got, final)
		}
		if got := u.one(t, "Restart"); got != "on-failure" {
			t.Errorf("%s: Restart=%s, want on-failure: all codes but 0 and those above", name, got)
		}
		if !slices.Contains(u["Environment"], "GOTRACEBACK=crash") {
			t.Errorf("%s: a panic would exit with code 2, after which there is no restart; want GOTRACEBACK=crash",
				name)
		}
	}
	page := rttest.ReadFile(t, "../docs/systemd.md")
	rows := regexp.MustCompile(`(?m)^\| (\d) \| [^|]+ \| (\w+)`).FindAllStringSubmatch(page, -1)
	if len(rows) != int(exit.Fault)+1 {
		t.Fatalf("docs/systemd.md has %d exit codes, want %d", len(rows), exit.Fault+1)
	}
	for _, row := range rows {
		code, then := row[1], row[2]
		if (then == "stays") != (code == "0" || slices.Contains(final, code)) {
			t.Errorf("docs/systemd.md: after code %s a unit %s, and exit.Final is %v", code, then, final)
		}
	}
}

func TestSettingsThatTheProgramsRelyOn(t *testing.T) {
	tests := []struct{ unit, key, want, why string }{
		{edgeUnit, "Type", "notify", "the program says when the tick runs"},
		{edgeUnit, "NotifyAccess", "main", "nobody else may feed the watchdog"},
		{edgeUnit, "WatchdogSignal", "SIGKILL", "a hung process cannot park"},
		{edgeUnit, "LimitRTPRIO", "80", "the tick asks for SCHED_FIFO 80"},
		{edgeUnit, "LimitNICE", "-10", "the other threads ask for nice -10"},
		{edgeUnit, "LimitMEMLOCK", "infinity", "memory is locked"},
		{edgeUnit, "StateDirectory", "edge-rt", "the id and its lock are kept there"},
		{edgeUnit, "PrivateDevices", "no", "the bus and the cameras are devices"},
		{edgeUnit, "NoNewPrivileges", "yes", "it needs no more than it has"},
		{edgeUnit, "ProtectSystem", "strict", "it writes to its state directory alone"},
		{serverUnit, "Type", "notify", "the program says when robots get chunks"},
		{serverUnit, "NotifyAccess", "main", "nobody else may feed the watchdog"},
		{serverUnit, "LimitMEMLOCK", "infinity", "GPU drivers pin memory"},
		{serverUnit, "PrivateDevices", "no", "the GPU is a device"},
		{serverUnit, "StateDirectory", "lean-server", "captures go there"},
	}
	units := map[string]unit{edgeUnit: readUnit(t, edgeUnit), serverUnit: readUnit(t, serverUnit)}
	for _, tt := range tests {
		if got := units[tt.unit].one(t, tt.key); got != tt.want {
			t.Errorf("%s: %s=%s, want %s: %s", tt.unit, tt.key, got, tt.want, tt.why)
		}
	}
	for _, bad := range []struct{ key, why string }{
		{"CPUSchedulingPolicy", "every thread would be real-time, and starve the tty's workers"},
		{"ProcSubset", "/proc/stat has the steal time"},
		{"DynamicUser", "the user must be in dialout, and own its state between runs"},
	} {
		if v := units[edgeUnit][bad.key]; v != nil {
			t.Errorf("%s: %s=%v, want it unset: %s", edgeUnit, bad.key, v, bad.why)
		}
	}
	if v := units[edgeUnit]["RestrictRealtime"]; slices.Contains(v, "yes") {
		t.Errorf("%s: RestrictRealtime=yes refuses the tick its class", edgeUnit)
	}
}

// A class of devices is in /proc/devices only after its driver's module is loaded, and DeviceAllow=
// ignores a class that is not there when the unit starts.
//
// Source: systemd.resource-control(5), DeviceAllow=; the kernel's register_chrdev.
func TestDriversAreLoadedBeforeTheyAreAllowed(t *testing.T) {
	modules := map[string]string{"ttyACM": "cdc_acm", "ttyUSB": "usbserial", "video4linux": "videodev"}
	builtIn := []string{"ttyAMA", "ttyS"}
	u := readUnit(t, edgeUnit)
	wants, after := strings.Fields(strings.Join(u["Wants"], " ")), strings.Fields(strings.Join(u["After"], " "))
	var used []string
	for _, line := range u["DeviceAllow"] {
		class, ok := strings.CutPrefix(strings.Fields(line)[0], "char-")
		if !ok || slices.Contains(builtIn, class) {
			continue
		}
		loader := "modprobe@" + modules[class] + ".service"
		if modules[class] == "" || !slices.Contains(wants, loader) || !slices.Contains(after, loader) {
			t.Errorf("DeviceAllow=%s: Wants=%v and After=%v lack %s: plugged in after the start, it would be refused",
				line, wants, after, loader)
		}
		used = append(used, class)
	}
	if len(used) != len(modules) {
		t.Errorf("DeviceAllow= has the classes %v, want all of %v", used, modules)
	}
}

func TestTheBusIsReleasedAfterEveryEnd(t *testing.T) {
	u := readUnit(t, edgeUnit)
	program, flags, _ := strings.Cut(u.one(t, "ExecStart"), " ")
	posts := u["ExecStopPost"]
	if want := "-" + program + " torque off " + flags; len(posts) == 0 || posts[0] != want {
		t.Errorf("ExecStopPost=%q, want first %q: the same bus, and a failure must not skip the next", posts, want)
	}
}

// The time limits of the units and of the programs fit together.
func TestDurationsFitTogether(t *testing.T) {
	u := readUnit(t, edgeUnit)
	offline := rttest.Must(time.ParseDuration(inSource(t, "edge/uplink/profile.go",
		`MaxOffline: +(\d+) \* time.Second`) + "s"))(t)
	if got := u.seconds(t, "TimeoutStartSec"); got < 2*offline+30*time.Second {
		t.Errorf("TimeoutStartSec is %v, want 30 s more than twice --max-offline, %v: for bus and server", got, offline)
	}
	seconds := func(path, pattern string) time.Duration {
		return rttest.Must(time.ParseDuration(inSource(t, path, pattern) + "s"))(t)
	}
	way := seconds("edge/follow/drive.go", `const ParkLimit = (\d+) \* time.Second`) + seconds("edge/drive/drive.go",
		`leaveLimit += follow.ParkLimit \+ (\d+)\*time.Second`) +
		seconds("edge/hotplug/hotplug.go", `torqueOffFor += (\d+) \* time.Second`)
	slow := seconds(edgePath, `exec sleep (\d+)`)
	if got := u.seconds(t, "TimeoutStopSec"); got < way+3*time.Second || got <= slow {
		t.Errorf("TimeoutStopSec is %v, want more than parking, leaving and letting go (%v) and 3 s, and than the "+
			"slow restart's sleep (%v)", got, way, slow)
	}
	burst := rttest.Must(strconv.Atoi(u.one(t, "StartLimitBurst")))(t)
	if every := slow + u.seconds(t, "RestartSec"); time.Duration(burst)*every <= u.seconds(t, "StartLimitIntervalSec") {
		t.Errorf("%d restarts after code 4, one in %v, hit the start limit of %v: an absent device must not stop the "+
			"service for good", burst, every, u.seconds(t, "StartLimitIntervalSec"))
	}
	server := readUnit(t, serverUnit)
	if hung := seconds("server/engine.go",
		`stuckAfter = (\d+) \* time.Second`); server.seconds(t, "WatchdogSec") < 2*hung {
		t.Errorf("lean-server's WatchdogSec is %v, want at least twice the longest request, %v",
			server.seconds(t, "WatchdogSec"), hung)
	}
}

const edgePath = "systemd/" + edgeUnit

// The unit's shell line sleeps only after exit code 4.
func TestOnlyAbsenceRestartsSlowly(t *testing.T) {
	posts := readUnit(t, edgeUnit)["ExecStopPost"]
	line, ok := strings.CutPrefix(posts[len(posts)-1], "/bin/sh -c '")
	if !ok {
		t.Fatalf("ExecStopPost=%s is no shell line", posts[len(posts)-1])
	}
	line = strings.ReplaceAll(strings.TrimSuffix(line, "'"), "$$", "$") // systemd replaces $$, too
	bin := t.TempDir()
	rttest.WriteFile(t, bin, "sleep", "#!/bin/sh\necho slept $1\n")
	for _, status := range []string{"0", "1", "2", "3", "4", "5", "6", "KILL", "ABRT"} {
		cmd := exec.Command("/bin/sh", "-c", line)
		cmd.Env = []string{"PATH=" + bin, "EXIT_STATUS=" + status}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("after %s: %v\n%s", status, err, out)
		}
		if slept := strings.HasPrefix(string(out), "slept"); slept != (status == strconv.Itoa(int(exit.Absent))) {
			t.Errorf("after %s it said %q", status, out)
		}
	}
}

// systemd-analyze verify accepts the units, with paths of existing programs.
func TestUnitsVerify(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze here (Debian: apt install systemd)")
	}
	dir := t.TempDir()
	verify := func(change func(string) string) (string, error) {
		var files []string
		for _, name := range []string{edgeUnit, serverUnit} {
			path := filepath.Join(dir, name)
			text := change(strings.ReplaceAll(rttest.ReadFile(t, name), "/usr/bin/", dir+"/"))
			rttest.Do(t, os.WriteFile(path, []byte(text), 0o600))
			files = append(files, path)
		}
		cmd := exec.Command(analyze, append([]string{"verify", "--man=no"}, files...)...)
		cmd.Env = append(os.Environ(), "SYSTEMD_LOG_LEVEL=warning")
		out, err := cmd.CombinedOutput()
		// systemd-analyze also reports on other units of this machine.
		var ours []string
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "edge-rt") || strings.Contains(line, "lean-server") ||
				strings.Contains(line, dir) {
				ours = append(ours, line)
			}
		}
		return strings.Join(ours, ""), err
	}
	for _, program := range []string{"edge-rt", "lean-server"} {
		rttest.WriteFile(t, dir, program, "#!/bin/sh\n")
	}
	out, err := verify(func(text string) string { return text })
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	rttest.Want(t, out, "", "systemd-analyze verify says (%v):", err)
	out, _ = verify(func(text string) string { return strings.Replace(text, "WatchdogSec=", "WatchdogSecs=", 1) })
	rttest.Contains(t, out, "WatchdogSecs")
}

func TestSysusers(t *testing.T) {
	text := rttest.Must(os.ReadFile("edge-rt.sysusers"))(t)
	for name, groups := range map[string][]string{edgeUnit: {"dialout", "video"}, serverUnit: nil} {
		u := readUnit(t, name)
		user := u.one(t, "User")
		if !regexp.MustCompile(`(?m)^u ` + user + ` `).Match(text) {
			t.Errorf("%s runs as %s, whom edge-rt.sysusers does not make", name, user)
		}
		for _, g := range strings.Fields(u.one(t, "SupplementaryGroups")) {
			if !regexp.MustCompile(`(?m)^(g ` + g + ` |m [a-z-]+ ` + g + `$)`).Match(text) {
				t.Errorf("%s wants the group %s, which edge-rt.sysusers does not make where udev is absent", name, g)
			}
		}
		for _, g := range groups {
			if !strings.Contains(string(text), fmt.Sprintf("m %s %s\n", user, g)) ||
				!slices.Contains(strings.Fields(u.one(t, "SupplementaryGroups")), g) {
				t.Errorf("%s is not in group %s in both places", user, g)
			}
		}
	}
}

// An attacker who controls a service can do little: the test limits the exposure that systemd-analyze
// security computes, from 0 to 10.
func TestExposure(t *testing.T) {
	for _, name := range []string{edgeUnit, serverUnit} {
		out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=25",
			name).CombinedOutput()
		if errors.Is(err, exec.ErrNotFound) || strings.Contains(string(out), "nrecognized option") {
			t.Skip(err)
		}
		if lines := strings.Split(strings.TrimSpace(string(out)), "\n"); err != nil {
			t.Errorf("%s: %v: %s, want 2.5 at most", name, err, lines[len(lines)-1])
		}
	}
}
