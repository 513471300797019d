package systemd

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

const rulesFile = "99-edge-rt.rules"

// term is one comparison or assignment of a udev rule.
var term = regexp.MustCompile(`^[A-Z_]+(\{[^}]+\})?(==|!=|=|\+=|:=)"[^"]*"$`)

// udevadm verify came with systemd 254. Without it the test checks the syntax itself: terms, commas, and that each
// jump has its label.
func TestRulesAreWellFormed(t *testing.T) {
	text := rttest.ReadFile(t, rulesFile)
	labels, jumps := map[string]bool{}, map[string]int{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		for _, part := range strings.Split(line, ", ") {
			if !term.MatchString(part) {
				t.Errorf("line %d: %q is neither comparison nor assignment", n, part)
			}
			value := strings.Trim(part[strings.Index(part, "=")+1:], `"=`)
			switch {
			case strings.HasPrefix(part, "LABEL="):
				labels[value] = true
			case strings.HasPrefix(part, "GOTO="):
				jumps[value] = n
			}
		}
	}
	for label, line := range jumps {
		if !labels[label] {
			t.Errorf("line %d jumps to %s, which is nowhere", line, label)
		}
	}
	if len(jumps) != len(labels) {
		t.Errorf("%d labels, %d of them used", len(labels), len(jumps))
	}
	if out, err := exec.Command("udevadm", "verify", rulesFile).CombinedOutput(); err != nil &&
		!strings.Contains(string(out), "nknown command") && !rttest.Says(err, "not found") {
		t.Errorf("udevadm verify: %v\n%s", err, out)
	}
}

// The file has a line for each purpose of the rules.
func TestRulesDoWhatTheyAreFor(t *testing.T) {
	text := rttest.Must(os.ReadFile(rulesFile))(t)
	for what, line := range map[string]string{
		"FTDI latency of 1 ms":      `SUBSYSTEM=="usb-serial", DRIVER=="ftdi_sio", ATTR{latency_timer}="1"`,
		"Dynamixel U2D2":            `(?m)idVendor}=="0403".*6014`,
		"Feetech and Waveshare":     `(?m)idVendor}=="1a86".*7523.*55d3`,
		"group of the bus":          `GROUP="dialout", MODE="0660"`,
		"group of the cameras":      `GROUP="video", MODE="0660"`,
		"ModemManager keeps off":    `ENV{ID_MM_DEVICE_IGNORE}="1"`,
		"brltty keeps off a CH340":  `(?m)^SUBSYSTEM=="usb", ENV{DEVTYPE}=="usb_device", ENV{PRODUCT}=="1a86/7523/\*", ENV{BRLTTY_BRAILLE_DRIVER}=="\?\*", ENV{SYSTEMD_WANTS}=""`,
		"name by serial number":     `SYMLINK\+="edge-rt/bus-\$env{ID_SERIAL_SHORT}"`,
		"name by socket":            `SYMLINK\+="edge-rt/bus-\$env{ID_PATH_TAG}"`,
		"camera by serial number":   `SYMLINK\+="edge-rt/camera-\$env{ID_SERIAL_SHORT}"`,
		"only nodes with a picture": `ATTR{index}!="0", GOTO=`,
	} {
		if !regexp.MustCompile(line).Match(text) {
			t.Errorf("%s: nothing like %s", what, line)
		}
	}
}

// The rules use a serial number in a name only when no other USB device has the same number.
func TestRulesNameBySerialNumberOnlyWhatIsUnique(t *testing.T) {
	text := rttest.ReadFile(t, rulesFile)
	programs := regexp.MustCompile(`PROGRAM=="/bin/sh -c '([^']+)'"`).FindAllStringSubmatch(text, -1)
	if len(programs) != 2 {
		t.Fatalf("%d programs, want one for adapters and one for cameras", len(programs))
	}
	devices := t.TempDir()
	for name, serial := range map[string]string{"1-1": "SN0001", "1-2": "SN0001", "1-3": "58FA0834",
		"1-4": "58FA08341"} {
		rttest.WriteFile(t, devices, name+"/serial", serial+"\n")
	}
	for _, p := range programs {
		script := strings.ReplaceAll(strings.ReplaceAll(p[1], "$$", "$"), "/sys/bus/usb/devices", devices)
		for serial, unique := range map[string]bool{"SN0001": false, "58FA0834": true, "none-of-them": false} {
			cmd := exec.Command("/bin/sh", "-c", script)
			cmd.Env = append(os.Environ(), "ID_SERIAL_SHORT="+serial)
			if err := cmd.Run(); (err == nil) != unique {
				t.Errorf("%s: the rule's program ends with %v, want unique %t", serial, err, unique)
			}
		}
	}
	for _, kind := range []string{"bus", "camera"} {
		if line := `ENV{EDGE_RT_UNIQUE}=="1", SYMLINK+="edge-rt/` + kind +
			`-$env{ID_SERIAL_SHORT}"`; !strings.Contains(text, line) {
			t.Errorf("want the name by serial number of a %s for a unique one only: %s", kind, line)
		}
	}
}

// make install puts all files where systemd looks for them, under PREFIX, and installs ONNX Runtime
// if the checkout has it.
func TestInstall(t *testing.T) {
	if testing.Short() {
		t.Skip("builds both programs")
	}
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("no make here")
	}
	root := t.TempDir()
	out, err := exec.Command("make", "-C", "..", "--no-print-directory", "install", "DESTDIR="+root,
		"PREFIX=/opt/robot").CombinedOutput()
	if err != nil {
		t.Fatalf("make install: %v\n%s", err, out)
	}
	for _, next := range []string{"sudo systemd-sysusers", "sudo systemctl daemon-reload", "sudo udevadm trigger"} {
		if !strings.Contains(string(out), next) {
			t.Errorf("it does not say that %q comes next:\n%s", next, out)
		}
	}
	for path, mode := range map[string]os.FileMode{
		"opt/robot/bin/edge-rt":                            0o755,
		"opt/robot/bin/lean-server":                        0o755,
		"opt/robot/lib/systemd/system/edge-rt@.service":    0o644,
		"opt/robot/lib/systemd/system/lean-server.service": 0o644,
		"opt/robot/lib/udev/rules.d/99-edge-rt.rules":      0o644,
		"opt/robot/lib/sysusers.d/edge-rt.conf":            0o644,
		"opt/robot/bin/bench":                              0o755,
		"opt/robot/share/doc/edge-rt/systemd.md":           0o644,
		"opt/robot/share/doc/edge-rt/examples/server.yaml": 0o644,
		"opt/robot/share/edge-rt/demo/server.yaml":         0o644,
		"opt/robot/share/edge-rt/demo/bundle/bundle.json":  0o644,
		"etc/edge-rt":     0o755 | os.ModeDir,
		"etc/lean-server": 0o755 | os.ModeDir,
	} {
		st, err := os.Stat(filepath.Join(root, path))
		if err != nil {
			t.Error(err)
		} else if st.Mode() != mode {
			t.Errorf("%s: mode %v, want %v", path, st.Mode(), mode)
		}
	}
	const library = "lib/python3.*/site-packages/onnxruntime/capi/libonnxruntime.so.*"
	if libs, _ := filepath.Glob(filepath.Join("../.venv", library)); len(libs) > 0 {
		if _, err := os.Stat(filepath.Join(root, "opt/robot/lib/edge-rt", filepath.Base(libs[0]))); err != nil {
			t.Error(err)
		}
		checkInstalled(t, filepath.Join(root, "opt/robot"))
	} else if !strings.Contains(string(out), "make setup-server") {
		t.Errorf("without ONNX Runtime it does not say what to do:\n%s", out)
	}
	for _, name := range []string{edgeUnit, serverUnit} {
		u := readUnit(t, filepath.Join(root, "opt/robot/lib/systemd/system", name))
		for _, line := range append(u["ExecStart"], u["ExecStopPost"]...) {
			if program, _, _ := strings.Cut(strings.TrimPrefix(line, "-"), " "); program != "/bin/sh" &&
				!strings.HasPrefix(program, "/opt/robot/bin/") {
				t.Errorf("%s starts %s, which is not installed", name, program)
			}
		}
	}
}

// checkInstalled runs the first commands of the installed programs outside the checkout.
func checkInstalled(t *testing.T, prefix string) {
	t.Helper()
	for _, line := range []string{
		"bin/lean-server check --manifest share/edge-rt/demo/server.yaml",
		"bin/bench jitter --duration 2s --slice 1s --subject edge --quiet",
	} {
		args := strings.Fields(line)
		cmd := exec.Command(filepath.Join(prefix, args[0]), args[1:]...)
		cmd.Dir = prefix
		for _, v := range os.Environ() {
			if !strings.HasPrefix(v, "EDGERT_ORT=") && !strings.HasPrefix(v, "LEAN_SERVER_ORT=") {
				cmd.Env = append(cmd.Env, v)
			}
		}
		out, err := cmd.CombinedOutput()
		var failed *exec.ExitError
		if errors.As(err, &failed) && failed.ExitCode() == int(exit.RealTime) {
			continue // bench has measured, although the kernel refuses a real-time priority
		}
		if err != nil {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
	}
}
