package doctor

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/edge-rt/edge-rt/rt"
)

// maxFile is the number of bytes that doctor reads of a file in /proc or /sys, and maxShown the number of these bytes
// that a finding quotes.
const (
	maxFile  = 1 << 20
	maxShown = 40
)

const (
	wantPriority  = 80      // real-time priority of the tick, see docs/real-time.md
	maxIdleExitUS = 100     // longest acceptable time to leave an idle state
	deepestIdleUS = 1 << 20 // us, longer than any processor needs to leave an idle state
	fewCores      = 4       // with so many cores or more, one core can be isolated for the tick
	wantMemlock   = 64 << 20
)

type doctor struct {
	Config
	link   *Link
	busP99 time.Duration // 99th percentile of the slowest bus; 0: no bus was measured
}

// read returns the text of a file below the root, without space at its beginning and end. ok is false if the file
// cannot be opened.
func (d *doctor) read(parts ...string) (text string, ok bool) {
	f, err := os.Open(filepath.Join(append([]string{d.Root}, parts...)...))
	if err != nil {
		return "", false
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
	return strings.TrimSpace(string(b[:n])), true
}

// text returns the text of a file; "" if the file is empty or absent.
func (d *doctor) text(parts ...string) string {
	text, _ := d.read(parts...)
	return text
}

// number returns the whole number in a file. If the file has no number between least and most, inclusive, bad is the
// reason; otherwise it is empty.
func (d *doctor) number(least, most int64, parts ...string) (n int64, bad string) {
	text, ok := d.read(parts...)
	if !ok {
		return 0, unreadable(parts...)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, implausible(text, fmt.Sprintf("a number from %d to %d", least, most), parts...)
	}
	return n, ""
}

func unreadable(parts ...string) string { return "/" + filepath.Join(parts...) + " cannot be read" }

func implausible(text, want string, parts ...string) string {
	if len(text) > maxShown {
		text = text[:maxShown]
	}
	return fmt.Sprintf("/%s has %q, want %s", filepath.Join(parts...), text, want)
}

// cpuList reads a list of processors.
func (d *doctor) cpuList(parts ...string) (list unix.CPUSet, text, bad string) {
	text, ok := d.read(parts...)
	if !ok {
		return list, "", unreadable(parts...)
	}
	list, ok = rt.ParseCPUs(text)
	present := 0
	for i := range len(list) * 64 {
		if list.IsSet(i) && len(d.glob("sys/devices/system/cpu/cpu"+strconv.Itoa(i))) > 0 {
			present++
		}
	}
	if !ok || present < list.Count() || text != "" && present == 0 {
		return list, "", implausible(text, "a list of this machine's processors", parts...)
	}
	return list, text, ""
}

func (d *doctor) glob(pattern string) []string {
	found, _ := filepath.Glob(filepath.Join(d.Root, pattern))
	return found
}

// below returns the part below the root of a path that glob has found.
func (d *doctor) below(path string) string { return strings.TrimPrefix(path, d.Root) }

// machine examines the kernel and the processors.
func (d *doctor) machine() []Finding {
	return []Finding{
		d.kernel(), d.isolation(), d.governor(), d.idle(), d.priority(), d.memlock(), d.throttling(),
		d.clockSource(), d.interrupts(),
	}
}

func (d *doctor) kernel() Finding {
	version, ok := d.read("proc/version")
	rest, linux := strings.CutPrefix(version, "Linux version ")
	release, _, _ := strings.Cut(rest, " ")
	f := Finding{Check: "kernel", Level: OK, Found: release + ", PREEMPT_RT"}
	switch {
	case !ok:
		f.unknown(unreadable("proc/version"))
	case !linux:
		f.unknown(implausible(version, "Linux version …", "proc/version"))
	case strings.Contains(version, "PREEMPT_RT") || d.text("sys/kernel/realtime") == "1":
	case strings.Contains(version, "PREEMPT_DYNAMIC"):
		d.preemption(&f, release)
	case strings.Contains(version, "PREEMPT"):
		f.Found = release + ", preemptible"
	default:
		f.Level, f.Found = Advice, release+", not preemptible"
		f.Better, f.Command = "a kernel with PREEMPT_RT", "sudo apt install linux-image-rt-"+runtime.GOARCH
	}
	return f
}

// preemption judges the preemption model of a kernel with PREEMPT_DYNAMIC. The model is on the kernel's command line;
// otherwise it is in parentheses in a file that only root may read.
func (d *doctor) preemption(f *Finding, release string) {
	const file = "sys/kernel/debug/sched/preempt"
	mode := ""
	for _, word := range strings.Fields(d.text("proc/cmdline")) {
		if value, ok := strings.CutPrefix(word, "preempt="); ok {
			mode = value
		}
	}
	if _, rest, ok := strings.Cut(d.text(file), "("); ok {
		mode, _, _ = strings.Cut(rest, ")")
	}
	f.Found = fmt.Sprintf("%s, preemptible (%s)", release, mode)
	switch mode {
	case "full", "lazy":
	case "none", "voluntary":
		f.offer(Advice, f.Found, "preempt=full in the kernel's command line; until the next start the command sets it",
			"echo full | sudo tee /"+file)
	default:
		f.unknown(release + ", PREEMPT_DYNAMIC; its model: " + unreadable(file))
		if os.Geteuid() != 0 {
			f.Command = "sudo edge-rt doctor"
		}
	}
}

func (d *doctor) isolation() Finding {
	f := Finding{Check: "isolated CPU", Level: Unknown}
	cores := len(d.glob("sys/devices/system/cpu/cpu[0-9]*"))
	if cores == 0 {
		f.Found = unreadable("sys/devices/system/cpu")
		return f
	}
	isolated, text, bad := d.cpuList("sys/devices/system/cpu/isolated")
	switch {
	case bad != "":
		f.Found = bad
		return f
	case cores < fewCores:
		f.Level, f.Found = OK, fmt.Sprintf("none, and with %d cores none is needed", cores)
		return f
	case isolated.Count() >= cores:
		f.Found = implausible(text, fmt.Sprintf("fewer than all %d processors", cores),
			"sys/devices/system/cpu/isolated")
		return f
	}
	full, nohz := d.read("sys/devices/system/cpu/nohz_full")
	f.Level, f.Found = OK, fmt.Sprintf("isolcpus=%s nohz_full=%s", text, full)
	switch {
	case text == "":
		option := fmt.Sprintf("isolcpus=%d nohz_full=%[1]d", cores-1)
		f.set(Advice, fmt.Sprintf("none of %d", cores), option+
			" in the kernel's command line, then a restart: the tick gets a core of its own")
		f.Command = d.bootOption(option)
	case !nohz:
		f.Found = "isolcpus=" + text + "; this kernel has no nohz_full"
	case full != text:
		option := "nohz_full=" + text
		f.set(Advice, f.Found, option+
			" in the kernel's command line, then a restart: no timer tick on an isolated core")
		f.Command = d.bootOption(option)
	}
	return f
}

// bootOption returns the command that adds options to the kernel's command line.
func (d *doctor) bootOption(options string) string {
	if len(d.glob("boot/firmware/cmdline.txt")) > 0 {
		return fmt.Sprintf(`sudo sed -i '1s/$/ %s/' /boot/firmware/cmdline.txt`, options)
	}
	return fmt.Sprintf(`sudo sed -i 's/^GRUB_CMDLINE_LINUX="/&%s /' /etc/default/grub && sudo update-grub`, options)
}

func (d *doctor) governor() Finding {
	f := Finding{Check: "governor", Level: OK, Found: "performance"}
	all := map[string]bool{}
	for _, file := range d.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor") {
		name := d.text(d.below(file))
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") != "" || name == "" {
			f.unknown(implausible(name, "the name of a governor", d.below(file)))
			return f
		}
		all[name] = true
	}
	switch {
	case len(all) == 0:
		f.unknown("the processor's clock is not this system's")
	case len(all) > 1 || !all["performance"]:
		f.offer(Advice, strings.Join(keys(all), ", "), "performance: a slow clock delays the tick",
			"echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor")
	}
	return f
}

func (d *doctor) idle() Finding {
	f := Finding{Check: "idle states", Level: OK, Found: fmt.Sprintf("left within %d us", maxIdleExitUS)}
	states := d.glob("sys/devices/system/cpu/cpu0/cpuidle/state*/latency")
	if len(states) == 0 {
		f.unknown("this kernel names no idle states; a host may have its own")
		return f
	}
	slow := ""
	for _, file := range states {
		dir := filepath.Dir(d.below(file))
		us, bad := d.number(0, deepestIdleUS, dir, "latency")
		off, offBad := d.number(0, 3, dir, "disable") // bit 0: disabled by the user; bit 1: by the driver
		if bad+offBad != "" {
			f.unknown(cmp.Or(bad, offBad))
			return f
		}
		if us > maxIdleExitUS && off == 0 {
			slow = fmt.Sprintf("%s takes %d us to leave", d.text(dir, "name"), us)
		}
	}
	if slow != "" {
		f.offer(Advice, slow, fmt.Sprintf("no state of more than %d us", maxIdleExitUS), fmt.Sprintf(
			`for s in /sys/devices/system/cpu/cpu*/cpuidle/state*; do [ "$(cat $s/latency)" -le %d ] `+
				`|| echo 1 | sudo tee $s/disable; done`, maxIdleExitUS))
	}
	return f
}

// unlimited is the kernel's text for a limit that is not set.
const unlimited = "unlimited"

// limit returns the soft limit in a row of /proc/self/limits, as text and, unless that is "unlimited", as the number n.
// If the file has no such limit, bad is the reason; otherwise it is empty.
func (d *doctor) limit(row string) (text string, n int64, bad string) {
	const file = "proc/self/limits"
	all, ok := d.read(file)
	if !ok {
		return "", 0, unreadable(file)
	}
	for line := range strings.SplitSeq(all, "\n") {
		fields := strings.Fields(strings.TrimPrefix(line, row))
		if !strings.HasPrefix(line, row) || len(fields) == 0 {
			continue
		}
		n, err := strconv.ParseInt(fields[0], 10, 64)
		if fields[0] != unlimited && (err != nil || n < 0) {
			return "", 0, implausible(fields[0], "a limit in "+row, file)
		}
		return fields[0], n, ""
	}
	return "", 0, implausible(all, "a row "+row, file)
}

// capable reports whether this process has the capability with the number bit.
func (d *doctor) capable(bit int) bool {
	for line := range strings.SplitSeq(d.text("proc/self/status"), "\n") {
		if mask, ok := strings.CutPrefix(line, "CapEff:"); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			return err == nil && n>>bit&1 == 1
		}
	}
	return false
}

// limits is the command that grants a user the limits of the systemd unit, see docs/real-time.md.
const limits = `printf '%s - rtprio 80\n%s - nice -10\n%s - memlock unlimited\n' "$USER" "$USER" "$USER" | ` +
	`sudo tee /etc/security/limits.d/edge-rt.conf`

func (d *doctor) priority() Finding {
	text, n, bad := d.limit("Max realtime priority")
	f := Finding{Check: "rtprio", Level: OK, Found: text}
	switch {
	case d.capable(unix.CAP_SYS_NICE):
		f.Found = "every priority (CAP_SYS_NICE)"
	case bad != "":
		f.unknown(bad)
	case text != unlimited && n < wantPriority:
		f.offer(Problem, fmt.Sprintf("real-time priorities up to %d", n),
			fmt.Sprintf("%d, then log in again; the systemd unit has it", wantPriority), limits)
	}
	return f
}

func (d *doctor) memlock() Finding {
	text, n, bad := d.limit("Max locked memory")
	f := Finding{Check: "memlock", Level: OK, Found: text}
	switch {
	case d.capable(unix.CAP_IPC_LOCK):
		f.Found = "no limit (CAP_IPC_LOCK)"
	case bad != "":
		f.unknown(bad)
	case text != unlimited && n < wantMemlock:
		f.offer(Advice, fmt.Sprintf("%d KiB may be locked in memory", n>>10),
			"unlimited, then log in again; the systemd unit has it", limits)
	}
	return f
}

func (d *doctor) throttling() Finding {
	const maxUS = 1 << 31
	n, bad := d.number(-1, maxUS, "proc/sys/kernel/sched_rt_runtime_us")
	period, periodBad := d.number(1, maxUS, "proc/sys/kernel/sched_rt_period_us")
	f := Finding{Check: "RT throttling", Level: OK}
	switch {
	case bad == "" && n == -1:
		f.Found = "off"
		return f
	case bad+periodBad != "":
		f.unknown(cmp.Or(bad, periodBad))
		return f
	case n > period:
		f.unknown(implausible(strconv.FormatInt(n, 10),
			fmt.Sprintf("at most the period of %d us", period),
			"proc/sys/kernel/sched_rt_runtime_us"))
		return f
	}
	f.Found = fmt.Sprintf("%d of each %d us for real-time threads", n, period)
	if 2*n < period {
		f.offer(Problem, f.Found, "95 of 100: else the tick loses its priority for the rest of each period",
			fmt.Sprintf("sudo sysctl -w kernel.sched_rt_runtime_us=%d", period/100*95))
	}
	return f
}

// Clock sources, in groups by the time that a reading takes.
var (
	fastClocks = []string{"tsc", "arch_sys_counter", "kvm-clock", "hyperv_clocksource_tsc_page", "riscv_clocksource"}
	slowClocks = []string{"hpet", "acpi_pm", "jiffies", "refined-jiffies", "xen", "pit"}
)

func (d *doctor) clockSource() Finding {
	const folder = "sys/devices/system/clocksource/clocksource0"
	text, ok := d.read(folder, "current_clocksource")
	f := Finding{Check: "clock source", Level: OK, Found: text}
	switch {
	case !ok:
		f.unknown(unreadable(folder, "current_clocksource"))
	case slices.Contains(slowClocks, text):
		f.Level, f.Better = Advice, "tsc or arch_sys_counter: each reading of this clock takes microseconds"
		f.Command = "cat /" + folder + "/available_clocksource"
	case !slices.Contains(fastClocks, text):
		f.unknown(implausible(text, "a known clock", folder, "current_clocksource"))
	}
	return f
}

// interrupts examines whether interrupts of USB reach the isolated core.
func (d *doctor) interrupts() Finding {
	f := Finding{Check: "interrupts", Level: OK, Found: "none of USB on an isolated CPU"}
	isolated, text, bad := d.cpuList("sys/devices/system/cpu/isolated")
	all, ok := d.read("proc/interrupts")
	switch {
	case bad != "":
		f.unknown(bad)
		return f
	case text == "":
		f.Found = "no CPU is isolated from them"
		return f
	case !ok || !strings.HasPrefix(all, "CPU"):
		f.unknown(implausible(all, "a table of interrupts", "proc/interrupts"))
		return f
	}
	for line := range strings.SplitSeq(all, "\n") {
		if !strings.Contains(line, "xhci") && !strings.Contains(line, "dwc") {
			continue
		}
		irq, _, _ := strings.Cut(strings.TrimSpace(line), ":")
		on, list, bad := d.cpuList("proc/irq", irq, "effective_affinity_list")
		if bad != "" || list == "" {
			f.unknown(cmp.Or(bad,
				implausible(list, "a list of processors", "proc/irq", irq, "effective_affinity_list")))
			return f
		}
		if overlap(on, isolated) {
			f.offer(Advice, fmt.Sprintf("interrupt %s of USB is on the isolated CPU %s", irq, list), "another CPU",
				fmt.Sprintf("echo 0 | sudo tee /proc/irq/%s/smp_affinity_list", irq))
		}
	}
	return f
}

// overlap reports whether two lists share a processor.
func overlap(a, b unix.CPUSet) bool {
	for i := range a {
		if a[i]&b[i] != 0 {
			return true
		}
	}
	return false
}
