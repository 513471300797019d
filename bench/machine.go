package bench

import (
	"encoding/binary"
	"io/fs"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// Machine holds the facts that affect a lateness. Facts that the kernel does not report are empty.
type Machine struct {
	Kernel      string `json:"kernel"`              // release
	Preempt     string `json:"preempt"`             // PREEMPT_RT, PREEMPT_DYNAMIC (none), ...
	CPU         string `json:"cpu"`                 // model
	Cores       int    `json:"cores"`               // number of cores
	Virtual     string `json:"virtual"`             // the sign that the machine is virtual, else no
	Clocksource string `json:"clocksource"`         // clock of the kernel
	Governor    string `json:"governor"`            // governor of the CPU's frequency
	Idle        string `json:"idle"`                // the kernel's driver of idle states
	Isolation   string `json:"isolation"`           // isolation options on the kernel's command line
	RTRuntime   string `json:"sched_rt_runtime_us"` // us, share of a period that real-time threads may use
	RTPeriod    string `json:"sched_rt_period_us"`  // us, that period
	FairServer  string `json:"fair_server_ns"`      // ns, share of a second that the kernel keeps for other threads
	DMALatency  string `json:"cpu_dma_latency_us"`  // us, the longest wake-up that other programs accept
	Temperature string `json:"temperature_c"`       // °C, before the first slice
	Load        string `json:"loadavg"`             // load averages before the first slice
	Go          string `json:"go"`                  // Go's version
	GOMAXPROCS  int    `json:"gomaxprocs"`          // GOMAXPROCS of the subjects
	GC          string `json:"gc"`                  // Go's collector in the subjects
}

// ReadMachine reads the root file system's /proc, /sys and /dev.
func ReadMachine(root fs.FS) Machine {
	line := func(name string) string {
		b, _ := fs.ReadFile(root, name)
		text, _, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
		return text
	}
	cpuinfo, _ := fs.ReadFile(root, "proc/cpuinfo")
	return Machine{
		Kernel: line("proc/sys/kernel/osrelease"),
		Preempt: preemptOf(line("proc/sys/kernel/version"), line("sys/kernel/realtime"),
			line("sys/kernel/debug/sched/preempt")),
		CPU:   cpuOf(string(cpuinfo), line("proc/device-tree/model")),
		Cores: runtime.NumCPU(),
		Virtual: virtualOf(string(cpuinfo), line("sys/hypervisor/type"),
			line("sys/class/dmi/id/sys_vendor")+" "+line("sys/class/dmi/id/product_name")),
		Clocksource: line("sys/devices/system/clocksource/clocksource0/current_clocksource"),
		Governor:    line("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
		Idle:        line("sys/devices/system/cpu/cpuidle/current_driver"),
		Isolation:   isolationOf(line("proc/cmdline")),
		RTRuntime:   line("proc/sys/kernel/sched_rt_runtime_us"),
		RTPeriod:    line("proc/sys/kernel/sched_rt_period_us"),
		FairServer:  line("sys/kernel/debug/sched/fair_server/cpu0/runtime"),
		DMALatency:  dmaLatency(root),
		Temperature: celsius(line("sys/class/thermal/thermal_zone0/temp")),
		Load:        line("proc/loadavg"),
		Go:          runtime.Version(),
		GOMAXPROCS:  runtime.NumCPU() + 2,
		GC:          "off while they tick",
	}
}

// preemptOf returns the preemption model in `uname -v`, and for a dynamic kernel the model in
// parentheses in its debug file.
func preemptOf(version, realtime, dynamic string) string {
	model := "none named"
	for _, word := range strings.Fields(version) {
		if strings.HasPrefix(word, "PREEMPT") {
			model = word
		}
	}
	if realtime == "1" && model != "PREEMPT_RT" {
		model += " (real time)"
	}
	if _, rest, ok := strings.Cut(dynamic, "("); ok {
		chosen, _, _ := strings.Cut(rest, ")")
		model += " (" + chosen + ")"
	}
	return model
}

// cpuOf returns the processor's name, or on an ARM board the name of the board.
func cpuOf(cpuinfo, board string) string {
	if board = strings.Trim(board, "\x00"); board != "" {
		return board
	}
	return cpuinfoField(cpuinfo, "model name")
}

func cpuinfoField(cpuinfo, key string) string {
	for l := range strings.Lines(cpuinfo) {
		if name, value, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// virtualOf returns the sign by which a machine is known to be virtual, otherwise "no".
func virtualOf(cpuinfo, hypervisor, dmi string) string {
	for _, maker := range []string{"QEMU", "KVM", "VMware", "VirtualBox", "Xen", "Amazon EC2", "Google Compute",
		"Virtual Machine"} {
		if strings.Contains(dmi, maker) {
			return "yes: " + strings.TrimSpace(dmi)
		}
	}
	switch {
	case hypervisor != "":
		return "yes: " + hypervisor
	case strings.Contains(" "+cpuinfoField(cpuinfo, "flags")+" ", " hypervisor "):
		return "yes: the CPU's hypervisor flag"
	}
	return "no"
}

// isolationOf returns the words of the kernel's command line about isolated CPUs.
func isolationOf(cmdline string) string {
	var kept []string
	for _, word := range strings.Fields(cmdline) {
		key, _, _ := strings.Cut(word, "=")
		switch key {
		case "isolcpus", "nohz_full", "rcu_nocbs", "irqaffinity", "preempt", "idle", "intel_idle.max_cstate",
			"processor.max_cstate":
			kept = append(kept, word)
		}
	}
	if kept == nil {
		return "none"
	}
	return strings.Join(kept, " ")
}

// noDMALimit is the kernel's value for no limit.
const noDMALimit = 2_000_000_000

// dmaLatency returns the longest time, in microseconds, that idle CPUs may take to wake, as
// requested by some process.
func dmaLatency(root fs.FS) string {
	f, err := root.Open("dev/cpu_dma_latency")
	if err != nil {
		return ""
	}
	defer f.Close()
	var b [4]byte
	if n, _ := f.Read(b[:]); n < len(b) {
		return ""
	}
	us := int32(binary.NativeEndian.Uint32(b[:]))
	if us == noDMALimit {
		return "not held"
	}
	return strconv.Itoa(int(us))
}

func celsius(milli string) string {
	n, err := strconv.Atoi(milli)
	if err != nil {
		return ""
	}
	return strconv.FormatFloat(float64(n)/1000, 'f', 1, 64)
}

// throttling returns which share of a period real-time threads may use.
func throttling(runtime, period string) string {
	switch runtime {
	case "":
		return ""
	case "-1":
		return "off"
	}
	return runtime + " of " + period + " us"
}

// Rows returns the machine's facts for people, without empty ones.
func (m Machine) Rows() [][]string {
	all := [][]string{
		{"kernel", strings.TrimPrefix(m.Kernel+", "+m.Preempt, ", ")},
		{"machine", strconv.Itoa(m.Cores) + " cores, " + m.CPU},
		{"virtual", m.Virtual},
		{"clocksource", m.Clocksource},
		{"governor", m.Governor},
		{"idle driver", m.Idle},
		{"isolation", m.Isolation},
		{"RT throttling", throttling(m.RTRuntime, m.RTPeriod)},
		{"fair server", m.FairServer},
		{"cpu_dma_latency", m.DMALatency},
		{"temperature", m.Temperature},
		{"load average", m.Load},
		{"Go", m.Go + ", GOMAXPROCS " + strconv.Itoa(m.GOMAXPROCS) + ", collector " + m.GC},
	}
	return slices.DeleteFunc(all, func(row []string) bool { return row[1] == "" })
}
