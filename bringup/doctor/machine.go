package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// maxFile bounds a file of /proc or /sys that is read.
const maxFile = 1 << 20

const (
	wantPriority  = 80  // of the tick, see docs/real-time.md
	maxIdleExitUS = 100 // longest acceptable time to leave an idle state
	fewCores      = 4   // from this number on, a core can be isolated for the tick
)

type doctor struct {
	Config
	link   *Link
	busP99 time.Duration // of the slowest bus; 0: none was measured
}

// read returns the text of a file below the root without surrounding space, "" if it cannot be read.
func (d *doctor) read(parts ...string) string {
	f, err := os.Open(filepath.Join(append([]string{d.Root}, parts...)...))
	if err != nil {
		return ""
	}
	defer f.Close()
	b := make([]byte, maxFile)
	n := 0
	for n < len(b) {
		k, err := f.Read(b[n:])
		if n += k; err != nil {
			break
		}
	}
	return strings.TrimSpace(string(b[:n]))
}

func (d *doctor) glob(pattern string) []string {
	found, _ := filepath.Glob(filepath.Join(d.Root, pattern))
	return found
}

// machine examines the kernel and the processors.
func (d *doctor) machine() []Finding {
	return []Finding{
		d.kernel(), d.isolation(), d.governor(), d.idle(), d.priority(), d.memlock(), d.throttling(),
		d.clockSource(), d.interrupts(),
	}
}

func (d *doctor) kernel() Finding {
	version := d.read("proc/version")
	release, _, _ := strings.Cut(strings.TrimPrefix(version, "Linux version "), " ")
	f := Finding{Check: "kernel", Level: OK, Found: release + ", PREEMPT_RT"}
	switch {
	case version == "":
		f.Level, f.Found = Unknown, "/proc/version cannot be read"
	case strings.Contains(version, "PREEMPT_RT") || d.read("sys/kernel/realtime") == "1":
	case strings.Contains(version, "PREEMPT"):
		f.Level, f.Found = OK, release+", preemptible"
	default:
		f.Level, f.Found = Advice, release+", not preemptible"
		f.Better, f.Command = "a kernel with PREEMPT_RT", "sudo apt install linux-image-rt-"+runtime.GOARCH
	}
	return f
}

func (d *doctor) isolation() Finding {
	isolated := d.read("sys/devices/system/cpu/isolated")
	nohz := d.read("sys/devices/system/cpu/nohz_full")
	cores := len(d.glob("sys/devices/system/cpu/cpu[0-9]*"))
	f := Finding{Check: "isolated CPU", Level: OK, Found: fmt.Sprintf("isolcpus=%s nohz_full=%s", isolated, nohz)}
	switch {
	case cores < fewCores:
		f.Found = fmt.Sprintf("none, and with %d cores none is needed", cores)
	case isolated == "":
		last := cores - 1
		f.Level = Advice
		f.Found = fmt.Sprintf("none of %d", cores)
		f.Better = fmt.Sprintf("isolcpus=%d nohz_full=%[1]d in the kernel's command line, then a restart: the tick "+
			"gets a "+
			"core of its own", last)
		f.Command = fmt.Sprintf(`sudo sed -i '1s/$/ isolcpus=%d nohz_full=%[1]d/' /boot/firmware/cmdline.txt`, last)
		if len(d.glob("boot/firmware/cmdline.txt")) == 0 {
			f.Command = fmt.Sprintf(`sudo sed -i 's/^GRUB_CMDLINE_LINUX="/&isolcpus=%d nohz_full=%[1]d /' `+
				`/etc/default/grub && sudo update-grub`, last)
		}
	}
	return f
}

func (d *doctor) governor() Finding {
	all := map[string]bool{}
	for _, file := range d.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor") {
		all[d.read(strings.TrimPrefix(file, d.Root))] = true
	}
	f := Finding{Check: "governor", Level: OK, Found: "performance"}
	switch {
	case len(all) == 0:
		f.Level, f.Found = Unknown, "the processor's clock is not this system's"
	case len(all) > 1 || !all["performance"]:
		f.Level = Advice
		f.Found = strings.Join(keys(all), ", ")
		f.Safe = true
		f.Better = "performance: a slow clock delays the tick"
		f.Command = "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
	}
	return f
}

func (d *doctor) idle() Finding {
	f := Finding{Check: "idle states", Level: OK, Found: fmt.Sprintf("left within %d us", maxIdleExitUS)}
	slow := ""
	for _, file := range d.glob("sys/devices/system/cpu/cpu0/cpuidle/state*/latency") {
		dir := strings.TrimPrefix(filepath.Dir(file), d.Root)
		us, err := strconv.Atoi(d.read(dir, "latency"))
		if err == nil && us > maxIdleExitUS && d.read(dir, "disable") == "0" {
			slow = fmt.Sprintf("%s takes %d us to leave", d.read(dir, "name"), us)
		}
	}
	if slow != "" {
		f.Level = Advice
		f.Found = slow
		f.Safe = true
		f.Better = fmt.Sprintf("no state of more than %d us", maxIdleExitUS)
		f.Command = fmt.Sprintf(
			`for s in /sys/devices/system/cpu/cpu*/cpuidle/state*; do [ "$(cat $s/latency)" -le %d ] `+
				`|| echo 1 | sudo tee $s/disable; done`, maxIdleExitUS)
	}
	return f
}

// limit returns the soft limit of a row of /proc/self/limits.
func (d *doctor) limit(row string) string {
	for line := range strings.SplitSeq(d.read("proc/self/limits"), "\n") {
		if rest, ok := strings.CutPrefix(line, row); ok {
			if fields := strings.Fields(rest); len(fields) > 0 {
				return fields[0]
			}
		}
	}
	return ""
}

// limits is the command that grants a user the limits of the systemd unit, see docs/real-time.md.
const limits = `printf '%s - rtprio 80\n%s - nice -10\n%s - memlock unlimited\n' "$USER" "$USER" "$USER" | ` +
	`sudo tee /etc/security/limits.d/edge-rt.conf`

func (d *doctor) priority() Finding {
	text := d.limit("Max realtime priority")
	n, err := strconv.Atoi(text)
	f := Finding{Check: "rtprio", Level: OK, Found: text}
	switch {
	case d.Root == "/" && os.Geteuid() == 0:
		f.Found = "root has every priority"
	case text == "unlimited":
	case err != nil:
		f.Level, f.Found = Unknown, "/proc/self/limits cannot be read"
	case n < wantPriority:
		f.Level, f.Safe = Problem, true
		f.Found = fmt.Sprintf("real-time priorities up to %d", n)
		f.Better = fmt.Sprintf("%d, then log in again; the systemd unit has it", wantPriority)
		f.Command = limits
	}
	return f
}

func (d *doctor) memlock() Finding {
	text := d.limit("Max locked memory")
	n, err := strconv.ParseInt(text, 10, 64)
	f := Finding{Check: "memlock", Level: OK, Found: text}
	switch {
	case d.Root == "/" && os.Geteuid() == 0:
		f.Found = "root has no limit"
	case text == "unlimited":
	case err != nil:
		f.Level, f.Found = Unknown, "/proc/self/limits cannot be read"
	case n < 64<<20:
		f.Level, f.Safe = Advice, true
		f.Found = fmt.Sprintf("%d KiB may be locked in memory", n>>10)
		f.Better, f.Command = "unlimited, then log in again; the systemd unit has it", limits
	}
	return f
}

func (d *doctor) throttling() Finding {
	text := d.read("proc/sys/kernel/sched_rt_runtime_us")
	n, err := strconv.Atoi(text)
	f := Finding{Check: "RT throttling", Level: OK, Found: text + " us of each second for real-time threads"}
	switch {
	case err != nil:
		f.Level, f.Found = Unknown, "this kernel has no limit of real-time threads"
	case n == -1:
		f.Found = "off"
	case n < 500_000:
		f.Level = Problem
		f.Safe = true
		f.Better = "950000: the tick loses its priority for the rest of each second"
		f.Command = "sudo sysctl -w kernel.sched_rt_runtime_us=950000"
	}
	return f
}

func (d *doctor) clockSource() Finding {
	text := d.read("sys/devices/system/clocksource/clocksource0/current_clocksource")
	f := Finding{Check: "clock source", Level: OK, Found: text}
	switch text {
	case "":
		f.Level, f.Found = Unknown, "not named by this kernel"
	case "hpet", "acpi_pm", "jiffies", "refined-jiffies":
		f.Level, f.Better = Advice, "tsc or arch_sys_counter: each reading of this clock takes microseconds"
		f.Command = "cat /sys/devices/system/clocksource/clocksource0/available_clocksource"
	}
	return f
}

// interrupts examines whether interrupts of USB reach the isolated core.
func (d *doctor) interrupts() Finding {
	f := Finding{Check: "interrupts", Level: OK, Found: "none of USB on an isolated CPU"}
	isolated := d.read("sys/devices/system/cpu/isolated")
	if isolated == "" {
		f.Found = "no CPU is isolated from them"
		return f
	}
	for line := range strings.SplitSeq(d.read("proc/interrupts"), "\n") {
		if !strings.Contains(line, "xhci") && !strings.Contains(line, "dwc") {
			continue
		}
		irq, _, _ := strings.Cut(strings.TrimSpace(line), ":")
		if on := d.read("proc/irq", irq, "effective_affinity_list"); on == isolated {
			f.Level, f.Safe = Advice, true
			f.Found = fmt.Sprintf("interrupt %s of USB is on the isolated CPU %s", irq, on)
			f.Better = "another CPU"
			f.Command = fmt.Sprintf("echo 0 | sudo tee /proc/irq/%s/smp_affinity_list", irq)
		}
	}
	return f
}
