package rt

import (
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func setOf(t *testing.T, list string) unix.CPUSet {
	t.Helper()
	set, ok := ParseCPUs(list)
	if !ok {
		t.Fatalf("%q is no list", list)
	}
	return set
}

func TestParseCPUs(t *testing.T) {
	for list, want := range map[string]string{"": "", "\n": "", "0\n": "0", "0-3\n": "0-3", "0-1,3": "0-1,3",
		"0,2,4-6": "0,2,4-6", "1,2,3": "1-3", "1023": "1023"} {
		if set, ok := ParseCPUs(list); !ok || formatCPUs(set) != want {
			t.Errorf("ParseCPUs(%q) = %q, %t, want %q", list, formatCPUs(set), ok, want)
		}
	}
	for _, list := range []string{"a", "3-1", "-1", "1-", "1,,2", "0-99999999", "(null)"} {
		if set, ok := ParseCPUs(list); ok {
			t.Errorf("ParseCPUs(%q) = %q, want a refusal", list, formatCPUs(set))
		}
	}
}

// The test simulates Linux: an isolated CPU is not in the affinity that processes begin with, but a thread can be bound
// to it; a thread cannot be bound to a CPU outside its cpuset.
func TestPinKnowsIsolatedCPUs(t *testing.T) {
	for _, tt := range []struct {
		name                      string
		present, online, isolated string
		cpuset                    string // the control group's CPUs
		allowed                   string // the affinity the process was given
		cpu, want                 int
		bound                     string // the thread's affinity afterwards
		says                      []string
	}{
		{"an isolated one that was asked for", "0-3", "0-3", "3", "0-3", "0-2", 3, 3, "3", nil},
		{"another one beside it", "0-3", "0-3", "3", "0-3", "0-2", 1, 1, "1", nil},
		{"one that taskset left out", "0-3", "0-3", "", "0-3", "0-2", 3, 3, "3", nil},
		{"the isolated one is chosen", "0-3", "0-3", "3", "0-3", "0-2", -1, 3, "3", nil},
		{"the last isolated one is chosen", "0-7", "0-7", "2-3", "0-7", "0-1,4-7", -1, 3, "3", nil},
		{"also on a machine of two", "0-1", "0-1", "1", "0-1", "0", -1, 1, "1", nil},
		{"not an isolated one that is offline", "0-7", "0-2,4-7", "3", "0-7", "0-2,4-7", -1, 7, "7", nil},
		{"not one of somebody else's cpuset", "0-7", "0-7", "7", "0-3", "0-3", -1, 3, "3", nil},
		{"not where taskset wants others", "0-7", "0-7", "7", "0-7", "0-3", -1, 3, "3", nil},
		{"taskset wants the isolated ones", "0-7", "0-7", "6-7", "0-7", "6-7", -1, 7, "7", nil},
		{"too few after taskset: free, and on those", "0-7", "0-7", "7", "0-7", "0-1", -1, -1, "0-1", nil},
		{"none isolated, four", "0-3", "0-3", "", "0-3", "0-3", -1, 3, "3", nil},
		{"none isolated, three", "0-2", "0-2", "", "0-2", "0-2", -1, -1, "0-2", nil},
		{"none isolated, a container's two of eight", "0-7", "0-7", "", "4-5", "4-5", -1, -1, "4-5", nil},
		{"offline", "0-3", "0-2", "", "0-3", "0-2", 3, -1, "0-2",
			[]string{"CPU 3 is offline", "online are 0-2", "cpu3/online"}},
		{"not there", "0-3", "0-3", "", "0-3", "0-3", 4, -1, "0-3", []string{"no CPU 4", "0-3", "-1"}},
		{"beyond any machine", "0-3", "0-3", "", "0-3", "0-3", 1 << 20, -1, "0-3", []string{"no CPU 1048576"}},
		{"no number of a CPU", "0-3", "0-3", "", "0-3", "0-3", -2, -1, "0-3", []string{"no CPU -2"}},
		{"outside the cpuset", "0-3", "0-3", "", "0-1", "0-1", 3, -1, "0-1",
			[]string{"CPU 3", "cpuset", "AllowedCPUs=", "0-1"}},
		{"isolated and outside the cpuset", "0-3", "0-3", "3", "0-1", "0-1", 3, -1, "0-1", []string{"CPU 3", "cpuset"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bound, cpuset := setOf(t, tt.allowed), setOf(t, tt.cpuset)
			online := setOf(t, tt.online)
			c := cpus{allowed: bound, present: setOf(t, tt.present), online: online, isolated: setOf(t, tt.isolated)}
			c.bind = func(set *unix.CPUSet) error {
				var granted unix.CPUSet
				for i := range granted {
					granted[i] = set[i] & cpuset[i] & online[i]
				}
				if granted.Count() == 0 {
					return unix.EINVAL
				}
				bound = granted
				return nil
			}
			got, err := c.pin(tt.cpu)
			if got != tt.want || (err == nil) != (tt.says == nil) || formatCPUs(bound) != tt.bound {
				t.Errorf("pin(%d) = %d, %v, and the thread is bound to %s, want %d, %q, %s", tt.cpu, got, err,
					formatCPUs(bound), tt.want, tt.says, tt.bound)
			}
			for _, words := range tt.says {
				if err != nil && !strings.Contains(err.Error(), words) {
					t.Errorf("%v lacks %q", err, words)
				}
			}
		})
	}
}

// The real kernel grants a CPU that taskset has left out, and CheckCPU does not move the calling thread.
func TestCheckCPULeavesTheCallerWhereItIs(t *testing.T) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		alone(t)
	}()
	<-done
}

// alone is the body of TestCheckCPULeavesTheCallerWhereItIs. It locks its goroutine to a thread, which ends with the
// goroutine.
func alone(t *testing.T) {
	runtime.LockOSThread()
	all, err := readCPUs()
	if err != nil {
		t.Error(err)
		return
	}
	last := lastCPU(&all.allowed)
	if err := all.bindTo(0); err != nil {
		t.Logf("not limited to CPU 0, so less is shown: %v", err)
	}
	before, err := readCPUs()
	if err != nil {
		t.Error(err)
		return
	}
	for _, tt := range []struct {
		cpu  int
		want bool
	}{{UnpinnedCPU, true}, {last, true}, {lastCPU(&before.present) + 1, false}, {-2, false}} {
		if err := CheckCPU(tt.cpu); (err == nil) != tt.want {
			t.Errorf("CheckCPU(%d) = %v, want one of those: %t", tt.cpu, err, tt.want)
		}
	}
	var after unix.CPUSet
	if err := unix.SchedGetaffinity(0, &after); err != nil || after != before.allowed {
		t.Errorf("afterwards the thread is bound to %s, %v, want %s", formatCPUs(after), err,
			formatCPUs(before.allowed))
	}
}
