package bench

import (
	"os"
	"testing"
	"time"
)

const fifoStat = `3847 (odd ) name) S 3709 3709 26161 0 -1 4194624 33 0 0 0 150 50 9 9 -81 0 2 0 363978 71442432 1036 18446744073709551615 94813519941632 94813519968605 140734671883872 0 0 0 8192 4 18946 1 0 0 -1 0 80 1 0 0 0 94813519989208 94813519992168 94814096732160 140734671886791 140734671886864 140734671886864 140734671888356 0`

func TestParseStat(t *testing.T) {
	tests := []struct {
		name, line string
		want       Thread
		ok         bool
	}{
		{"a FIFO thread with brackets in its name", fifoStat, Thread{3847, 1, 80, 0, 2 * time.Second}, true},
		{"cut short", fifoStat[:60], Thread{}, false},
		{"no name", "12 S 1 1", Thread{}, false},
		{"empty", "", Thread{}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, ok := parseStat([]byte(tt.line)); ok != tt.ok || ok && got != tt.want {
				t.Errorf("parseStat = %+v, %t, want %+v, %t", got, ok, tt.want, tt.ok)
			}
		})
	}
}

func TestClassesOf(t *testing.T) {
	threads := []Thread{{1, 0, 0, -10, 0}, {2, 1, 80, 0, 0}, {3, 0, 0, -10, 0}, {4, 0, 0, 0, 0}, {5, 9, 0, 0, 0}}
	if got, want := ClassesOf(threads), "1 FIFO 80, 1 OTHER, 2 OTHER nice -10, 1 policy 9"; got != want {
		t.Errorf("ClassesOf = %q, want %q", got, want)
	}
	if tid, ok := TickThread(threads, 80); tid != 2 || !ok {
		t.Errorf("TickThread = %d, %t, want 2", tid, ok)
	}
	if _, ok := TickThread([]Thread{{1, 1, 40, 0, 0}, {2, 2, 80, 0, 0}}, 80); ok {
		t.Error("TickThread takes a thread of another priority or policy")
	}
}

func TestClassOf(t *testing.T) {
	for stat, want := range map[string]string{fifoStat: "FIFO 80", "1 (x) S": "unknown"} {
		if got := ClassOf([]byte(stat)); got != want {
			t.Errorf("ClassOf = %q, want %q", got, want)
		}
	}
}

func TestParseSleeps(t *testing.T) {
	n, err := parseSleeps([]byte("Name:\tx\nvoluntary_ctxt_switches:\t39\nnonvoluntary_ctxt_switches:\t7\n"))
	if n != 39 || err != nil {
		t.Errorf("parseSleeps = %d, %v, want 39", n, err)
	}
	if _, err := parseSleeps([]byte("Name:\tx\nnonvoluntary_ctxt_switches:\t7\n")); err == nil {
		t.Error("parseSleeps takes the involuntary ones")
	}
}

func TestThreadsOfThisProcess(t *testing.T) {
	if _, err := os.Stat("/proc/self/task"); err != nil {
		t.Skipf("no /proc here: %v", err)
	}
	for _, th := range ThreadsOf(os.Getpid()) {
		if th.TID == os.Getpid() {
			return
		}
	}
	t.Errorf("ThreadsOf(%d) lacks the first thread", os.Getpid())
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte(fifoStat))
	f.Fuzz(func(t *testing.T, b []byte) { parseStat(b); parseSleeps(b) }) // must not panic
}
