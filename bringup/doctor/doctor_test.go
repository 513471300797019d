package doctor

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint/endpointtest"
)

// pi has the files that doctor reads, as they are on a Raspberry Pi 5 without defects.
var pi = map[string]string{
	"proc/version": "Linux version 6.12.20+rpt-rpi-2712 (x) #1 " +
		"SMP PREEMPT_RT",
	"proc/self/limits": "Max realtime priority     80   80\nMax " +
		"locked memory unlimited unlimited bytes",
	"proc/sys/kernel/sched_rt_runtime_us": "950000",
	"proc/sys/kernel/sched_rt_period_us":  "1000000",
	"proc/interrupts": "      CPU0 CPU1 CPU2 CPU3\n 106:  1 2 3 4  rp1_irq_chip  31 Edge  " +
		"xhci-hcd:usb1",
	"proc/irq/106/effective_affinity_list":                            "0",
	"proc/1/comm":                                                     "systemd",
	"sys/devices/system/cpu/isolated":                                 "3",
	"sys/devices/system/cpu/nohz_full":                                "3",
	"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor":            "performance",
	"sys/devices/system/cpu/cpu1/cpufreq/scaling_governor":            "performance",
	"sys/devices/system/cpu/cpu2/x":                                   "",
	"sys/devices/system/cpu/cpu3/x":                                   "",
	"sys/devices/system/cpu/cpu0/cpuidle/state1/latency":              "20",
	"sys/devices/system/cpu/cpu0/cpuidle/state1/disable":              "0",
	"sys/devices/platform/soc/soc:firmware/get_throttled":             "0",
	"sys/class/thermal/thermal_zone0/temp":                            "51200",
	"sys/bus/usb-serial/devices/ttyUSB0/latency_timer":                "1",
	"sys/devices/usb1/1-1/ttyUSB0/x":                                  "",
	"sys/devices/usb3/3-1/video0/x":                                   "",
	"dev/ttyUSB0":                                                     "",
	"sys/devices/system/clocksource/clocksource0/current_clocksource": "arch_sys_counter",
}

// machineOf returns a root folder with the files of pi, after changes. A text that begins with -> makes a link to the
// rest of the text.
func machineOf(t *testing.T, changes map[string]string) string {
	t.Helper()
	root := t.TempDir()
	put := func(name, text string) {
		path := filepath.Join(root, name)
		rttest.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		os.Remove(path)
		target, link := strings.CutPrefix(text, "->")
		err := error(nil)
		if link {
			err = os.Symlink(filepath.Join(root, target), path)
		} else {
			err = os.WriteFile(path, []byte(text), 0o644)
		}
		rttest.Do(t, err)
	}
	for name, text := range pi {
		put(name, text)
	}
	put("sys/class/tty/ttyUSB0/device", "->sys/devices/usb1/1-1/ttyUSB0")
	put("sys/class/video4linux/video0/device", "->sys/devices/usb3/3-1/video0")
	for name, text := range changes {
		put(name, text)
	}
	return root
}

// examine returns the findings of the machine at root, by check, and the exit code.
func examine(t *testing.T, root string) (map[string]Finding, exit.Code) {
	t.Helper()
	var text, report bytes.Buffer
	err := Run(t.Context(), Config{
		Places:  nil,
		Folders: []string{root},
		In:      strings.NewReader(""),
		Out:     &text,
		JSON:    &report,
		Root:    root,
	})
	var r Report
	rttest.Do(t, json.Unmarshal(report.Bytes(), &r))
	found := map[string]Finding{}
	for _, f := range r.Findings {
		if found[f.Check].Check == "" || f.Level != OK {
			found[f.Check] = f
		}
		if f.Level == OK && f.Command != "" || f.Safe && f.Command == "" {
			t.Errorf("a command without a need, or a need without a command: %+v", f)
		}
		rttest.Contains(t, text.String(), f.Found)
	}
	return found, exit.Of(err)
}

// Doctor finds neither advice nor a problem on a machine without defects, whatever the clock of this machine is.
func TestAGoodMachine(t *testing.T) {
	found, code := examine(t, machineOf(t, nil))
	for name, f := range found {
		if f.Level != OK && name != "time of day" && name != "disk" {
			t.Errorf("%+v", f)
		}
	}
	if code != exit.Clean && found["disk"].Level != Problem {
		t.Errorf("code %d", code)
	}
}

// edgeRT returns the files of an edge-rt that has the port open.
func edgeRT(line string) map[string]string {
	return map[string]string{"proc/77/comm": "edge-rt", "proc/77/fd/5": "->dev/ttyUSB0", "proc/77/cmdline": line}
}

// Goal: doctor names each defect with its remedy, and nothing else.
func TestDefects(t *testing.T) {
	cpu := "sys/devices/system/cpu/"
	for _, tt := range []struct {
		check   string
		level   Level
		changes map[string]string
		says    string
	}{
		{"kernel", Advice, map[string]string{"proc/version": "Linux version 6.1 (x) #1 SMP"}, "linux-image-rt"},
		{"isolated CPU", Advice, map[string]string{cpu + "isolated": "", cpu + "nohz_full": ""}, "isolcpus=3"},
		{"isolated CPU", Advice, map[string]string{cpu + "nohz_full": "(null)"}, "nohz_full=3"},
		{"kernel", Advice, map[string]string{"proc/version": "Linux version 6.1 (x) #1 SMP PREEMPT_DYNAMIC",
			"sys/kernel/debug/sched/preempt": "none (voluntary) full"}, "preempt=full"},
		{"interrupts", Advice, map[string]string{cpu + "isolated": "2-3", cpu + "nohz_full": "2-3",
			"proc/irq/106/effective_affinity_list": "3"}, "/proc/irq/106/"},
		{"isolated CPU", Advice, map[string]string{cpu + "isolated": "", "boot/firmware/cmdline.txt": "root=x"},
			"/boot/firmware/cmdline.txt"},
		{"governor", Advice, map[string]string{cpu + "cpu1/cpufreq/scaling_governor": "ondemand"}, "tee"},
		{"idle states", Advice, map[string]string{cpu + "cpu0/cpuidle/state1/latency": "900"}, "disable"},
		{"rtprio", Problem,
			map[string]string{
				"proc/self/limits": "Max realtime priority   0   0\nMax locked memory unlimited unlimited"},
			"limits.d"},
		{"memlock", Advice, map[string]string{"proc/self/limits": "Max realtime priority 99 99\n" +
			"Max locked memory  8388608 8388608 bytes"}, "limits.d"},
		{"RT throttling", Problem, map[string]string{"proc/sys/kernel/sched_rt_runtime_us": "10000"}, "sysctl"},
		{"clock source", Advice, map[string]string{
			"sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet",
		}, "available_clocksource"},
		{"interrupts", Advice, map[string]string{"proc/irq/106/effective_affinity_list": "3"}, "/proc/irq/106/"},
		{"latency timer", Advice, map[string]string{"sys/bus/usb-serial/devices/ttyUSB0/latency_timer": "16"},
			"latency_timer"},
		{"port is free", Problem, map[string]string{"proc/77/comm": "lerobot-record", "proc/77/fd/5": "->dev/ttyUSB0"},
			"kill 77"},
		{"port is free", Advice, edgeRT("edge-rt\x00--bus\x00/dev/ttyUSB0\x00"), "edge-rt ctl status"},
		{"port is free", Advice, edgeRT("edge-rt\x00"), "edge-rt ctl status"},
		{"port is free", Problem, edgeRT("edge-rt\x00monitor\x00"), "kill 77"},
		{"port is free", OK, edgeRT("edge-rt\x00sim-bus\x00"), ""},
		{"port daemons", Problem, map[string]string{"proc/78/comm": "ModemManager", "proc/79/comm": "brltty"},
			"mask --now ModemManager brltty-udev brltty"},
		{"port is free", Problem, map[string]string{"dev/ttyXRUSB0": "", "proc/77/fd/5": "->dev/ttyXRUSB0",
			"sys/class/tty/ttyXRUSB0/device": "->sys/devices/usb1/1-1/ttyUSB0"}, "kill 77"},
		{"USB tree", Advice, map[string]string{"sys/class/video4linux/video0/device": "->sys/devices/usb1/1-2/video0",
			"sys/devices/usb1/1-2/video0/x": ""}, "lsusb -t"},
		{"power", Problem, map[string]string{"sys/devices/platform/soc/soc:firmware/get_throttled": "50005"}, "27 W"},
		{"power", Advice, map[string]string{"sys/devices/platform/soc/soc:firmware/get_throttled": "0x10000"}, "27 W"},
		{"power", Problem, map[string]string{"sys/class/hwmon/hwmon2/name": "rpi_volt",
			"sys/class/hwmon/hwmon2/in0_lcrit_alarm": "1"}, "27 W"},
		{"power", Problem, map[string]string{"sys/devices/platform/soc@1/soc@1:firmware/get_throttled": "1"},
			"27 W"},
		{"heat", Problem, map[string]string{"sys/class/thermal/thermal_zone0/temp": "85000"}, "cooler"},
	} {
		found, code := examine(t, machineOf(t, tt.changes))
		f := found[tt.check]
		if f.Level != tt.level || !strings.Contains(f.Better+f.Command, tt.says) ||
			(tt.level == Problem) && code != exit.Config {
			t.Errorf("%s: %+v (code %d), want %s and %q", tt.check, f, code, tt.level, tt.says)
		}
		for name, other := range found {
			if name != tt.check && name != "time of day" && name != "disk" && other.Level != OK {
				t.Errorf("%s: besides, %+v", tt.check, other)
			}
		}
	}
}

// A file that is missing, empty, or without a plausible value never makes a check good. A file with CRLF at the line
// ends is as good as with LF.
func TestImplausible(t *testing.T) {
	cpu := "sys/devices/system/cpu/"
	for file, check := range map[string]string{
		"proc/version":                        "kernel",
		"proc/self/limits":                    "rtprio",
		"proc/sys/kernel/sched_rt_runtime_us": "RT throttling",
		"proc/sys/kernel/sched_rt_period_us":  "RT throttling",
		"proc/interrupts":                     "interrupts",
		"proc/1/comm":                         "port daemons",
		cpu + "isolated":                      "isolated CPU",
		cpu + "cpu1/cpufreq/scaling_governor": "governor",
		cpu + "cpu0/cpuidle/state1/latency":   "idle states",
		cpu + "cpu0/cpuidle/state1/disable":   "idle states",

		"proc/irq/106/effective_affinity_list":                            "interrupts",
		"sys/devices/platform/soc/soc:firmware/get_throttled":             "power",
		"sys/class/thermal/thermal_zone0/temp":                            "heat",
		"sys/bus/usb-serial/devices/ttyUSB0/latency_timer":                "latency timer",
		"sys/class/tty/ttyUSB0/device":                                    "USB tree",
		"sys/class/video4linux/video0/device":                             "USB tree",
		"sys/devices/system/clocksource/clocksource0/current_clocksource": "clock source",
	} {
		for _, text := range []string{"", "->none", "99999999999999999999", "7777777", "\x00\xff", "-99999",
			"garbage: 1"} {
			if check == "port daemons" && text != "" && text != "->none" || check == "USB tree" && text != "->none" {
				continue // a program may have any name, and the USB tree has only links
			}
			found, _ := examine(t, machineOf(t, map[string]string{file: text}))
			if f := found[check]; f.Level == OK || f.Level == "" {
				t.Errorf("%s with %q: %+v", file, text, f)
			}
		}
		if strings.HasPrefix(pi[file], "->") || pi[file] == "" {
			continue
		}
		found, _ := examine(t, machineOf(t, map[string]string{file: strings.ReplaceAll(pi[file], "\n", "\r\n") +
			"\r\n"}))
		if f := found[check]; f.Level != OK {
			t.Errorf("%s with CRLF: %+v", file, f)
		}
	}
}

// --fix runs a safe command only after a yes, and a failed command leaves the problem.
func TestFix(t *testing.T) {
	for _, tt := range []struct {
		answer, command string
		runs, fixed     bool
	}{
		{"y\n", "touch $MARK", true, true}, {"\n", "touch $MARK", false, false}, {"", "touch $MARK", false, false},
		{"y\n", "touch $MARK; false", true, false}, {"y\n", "sudo touch $MARK", true, true},
	} {
		if strings.HasPrefix(tt.command, "sudo") && os.Geteuid() != 0 {
			continue // for root, fix leaves out sudo; another user would need a password
		}
		mark := filepath.Join(t.TempDir(), "mark")
		t.Setenv("MARK", mark)
		fixed := fix(t.Context(), &bytes.Buffer{}, bufio.NewScanner(strings.NewReader(tt.answer)), tt.command)
		_, err := os.Stat(mark)
		if (err == nil) != tt.runs || fixed != tt.fixed {
			t.Errorf("%q after %q: ran %v, fixed %v", tt.command, tt.answer, err == nil, fixed)
		}
	}
}

// Doctor examines the disk of each folder of records: this user's and a service's.
func TestDisks(t *testing.T) {
	root := t.TempDir()
	d := &doctor{Config: Config{Root: root, Folders: []string{root, "/proc"}}}
	f := d.board()[3]
	if f.Check != "disk" || f.Level != Problem || !strings.HasSuffix(f.Found, "0 GiB free at /proc") {
		t.Errorf("got %+v, want a problem of a disk without room", f)
	}
}

// A finding is mended when doctor does not find it any more, not when its command has succeeded.
func TestMended(t *testing.T) {
	governor := "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor"
	root := machineOf(t, map[string]string{governor: "ondemand"})
	d := &doctor{Config: Config{Root: root, Folders: []string{root}}}
	f := d.governor()
	if d.mended(io.Discard, &f) {
		t.Error("a governor that is as it was is mended")
	}
	rttest.WriteFile(t, root, governor, "performance")
	if !d.mended(io.Discard, &f) {
		t.Error("a changed governor is not mended")
	}
}

// Doctor reports a certificate that cannot be read as a problem, and does not leave it out.
func TestCertificateThatIsNone(t *testing.T) {
	garbage := rttest.WriteFile(t, t.TempDir(), "ca.pem", "-----BEGIN CERTIFICATE-----\r\n")
	d := &doctor{}
	d.Connect.TLS = endpoint.Security{RootCA: garbage, ConnectCertificate: garbage + ".none"}
	found := d.certificates()
	if len(found) != 2 || found[0].Level != Problem || found[1].Level != Problem {
		t.Errorf("%+v, want two problems", found)
	}
	ended, _ := endpointtest.New(t).IssueUntil(time.Now().Add(-time.Hour), "arm-a")
	d.Connect.TLS = endpoint.Security{ConnectCertificate: ended}
	if found = d.certificates(); len(found) != 1 || found[0].Level != Problem {
		t.Errorf("%+v, want that it ended and no more", found)
	}
}

// Doctor reports an absent port as a separate problem.
func TestAPortThatIsAway(t *testing.T) {
	d := &doctor{Config: Config{Places: []device.Place{{Bus: "/dev/ttyNONE9"}}, Root: machineOf(t, nil)}}
	if f := d.ports()[0]; f.Level != Problem || f.Command != "edge-rt ports" {
		t.Errorf("%+v", f)
	}
}

// A shell can run the command for a port whose path has a space.
func TestTheCommandForAPortIsQuoted(t *testing.T) {
	rttest.Contains(t, new(doctor).permission("/dev/my arm").Command, "stat -c %G '/dev/my arm'")
}

// An arm without a calibration needs one, not a scan.
func TestAnArmWithoutCalibration(t *testing.T) {
	place := device.Place{Bus: "/dev/null", Robot: rttest.Must(device.Robot("so101"))(t), ID: "none"}
	d := &doctor{Config: Config{Places: []device.Place{place}}}
	rttest.Want(t, d.measureBus(0).Command, "edge-rt calibrate "+place.Command(), "without a file")
}

// Goal: the proposed flags follow the measurements.
func TestProposal(t *testing.T) {
	for _, tt := range []struct {
		link Link
		want string
	}{
		{Link{Queries: 100, P99: 8, InferenceMS: 20, ChunkSize: 50, FPS: 30}, "--profile wired"},
		{Link{Queries: 100, P99: 30, InferenceMS: 20, ChunkSize: 50, FPS: 30}, "--profile wifi"},
		{Link{Queries: 100, Lost: 1, P99: 8, InferenceMS: 20, ChunkSize: 50, FPS: 30}, "--profile wifi"},
		{Link{Queries: 100, P50: 60, P99: 90, InferenceMS: 20, ChunkSize: 50, FPS: 30}, "--profile wan"},
		{Link{Queries: 100, P99: 8, InferenceMS: 900, ChunkSize: 50, FPS: 30},
			"--profile wired --request-timeout 4s"},
		{Link{Queries: 100, P99: 300, InferenceMS: 800, ChunkSize: 50, FPS: 30},
			"--s-min 15 --profile wifi --jpeg-quality 80"},
		{Link{Queries: 100, P99: 10, InferenceMS: 2000, ChunkSize: 50, FPS: 30}, "--schedule async"},
		{Link{Queries: 100, Lost: 100, ChunkSize: 50, FPS: 30}, ""},
		{Link{Queries: 100, P99: 8, InferenceMS: 20, ChunkSize: 50, FPS: 1e9}, ""}, // implausible, like the next link
		{Link{Queries: 100, P99: 8, InferenceMS: -20, ChunkSize: 50, FPS: 30}, ""},
		{Link{Queries: 100, P99: 8, InferenceMS: math.NaN(), ChunkSize: 50, FPS: 30}, ""},
		{Link{Queries: 100, P99: 8, ChunkSize: 0, FPS: 30}, ""},
	} {
		d := &doctor{link: &tt.link}
		p, flags := d.propose()
		rttest.Want(t, strings.Join(flags, " "), tt.want, "%+v", tt.link)
		if (p == nil) != (tt.want == "") || p != nil &&
			(p.FPS != 30 || p.BufferMS <= tt.link.P99 || p.JPEGQuality < 80) {
			t.Errorf("%+v: profile %+v", tt.link, p)
		}
	}
}
