package bench

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestReadMachine(t *testing.T) {
	root := fstest.MapFS{}
	for name, text := range map[string]string{
		"proc/sys/kernel/osrelease": "6.12.1-rt\n",
		"proc/sys/kernel/version":   "#1 SMP PREEMPT_RT Debian\n",
		"sys/kernel/realtime":       "1\n",
		"proc/cpuinfo": "processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu " +
			"hypervisor sse\n",
		"proc/cmdline": "quiet isolcpus=3 nohz_full=3 " +
			"root=/dev/sda\n",
		"proc/sys/kernel/sched_rt_runtime_us":                             "950000\n",
		"proc/sys/kernel/sched_rt_period_us":                              "1000000\n",
		"sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
		"sys/class/thermal/thermal_zone0/temp":                            "48312\n",
		"dev/cpu_dma_latency":                                             "\x00\x94\x35\x77",
	} {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	m := ReadMachine(root)
	if m.Kernel != "6.12.1-rt" || m.Preempt != "PREEMPT_RT" || m.CPU != "AMD EPYC" ||
		m.Virtual != "yes: the CPU's hypervisor flag" ||
		m.Clocksource != "tsc" || m.Isolation != "isolcpus=3 nohz_full=3" || m.RTRuntime != "950000" ||
		m.Temperature != "48.3" || m.DMALatency != "not held" {
		t.Errorf("ReadMachine = %+v", m)
	}
	bare := ReadMachine(fstest.MapFS{})
	if bare.Virtual != "no" || bare.Isolation != "none" || bare.DMALatency != "" || bare.Temperature != "" ||
		bare.Cores < 1 {
		t.Errorf("ReadMachine of an empty file system = %+v", bare)
	}
	for _, row := range bare.Rows() {
		if row[1] == "" || strings.HasPrefix(row[1], ",") || strings.Contains(row[1], " of  us") {
			t.Errorf("row %q of an unknown machine says %q", row[0], row[1])
		}
	}
}

func TestPreemptOf(t *testing.T) {
	for _, tt := range []struct{ name, version, realtime, dynamic, want string }{
		{"real time", "#1 SMP PREEMPT_RT x", "1", "", "PREEMPT_RT"},
		{"real time by its file only", "#1 SMP PREEMPT x", "1", "", "PREEMPT (real time)"},
		{"dynamic, known", "#1 SMP PREEMPT_DYNAMIC x", "", "none (voluntary) full", "PREEMPT_DYNAMIC (voluntary)"},
		{"dynamic, not readable", "#1 SMP PREEMPT_DYNAMIC x", "", "", "PREEMPT_DYNAMIC"},
		{"none", "#1 SMP x", "", "", "none named"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rttest.Want(t, preemptOf(tt.version, tt.realtime, tt.dynamic), tt.want, "preemptOf")
		})
	}
}

func TestVirtualOf(t *testing.T) {
	for _, tt := range []struct{ name, cpuinfo, hypervisor, dmi, want string }{
		{"a real board", "model name : Cortex-A76\n", "", " ", "no"},
		{"named by the firmware", "", "", "QEMU Standard PC", "yes: QEMU Standard PC"},
		{"named by the kernel", "", "xen", " ", "yes: xen"},
		{"a flag that only looks like it", "flags : fpu hypervisorless\n", "", " ", "no"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rttest.Want(t, virtualOf(tt.cpuinfo, tt.hypervisor, tt.dmi), tt.want, "virtualOf")
		})
	}
}
