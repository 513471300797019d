package metric

import (
	"io"
	"os"
	"runtime"
	"runtime/metrics"
	"time"

	"golang.org/x/sys/unix"

	"github.com/edge-rt/edge-rt/rt"
)

// runtimeMetrics are metrics of Go's runtime with client_golang's names for them. client_golang's
// collector also reads quantiles of all garbage collections, which allocates 20 kB a scrape.
var runtimeMetrics = []struct {
	name, help, source string
	counter            bool
}{
	{"go_goroutines", "Number of goroutines that currently exist.", "/sched/goroutines:goroutines", false},
	{"go_sched_gomaxprocs_threads", "The current GOMAXPROCS.", "/sched/gomaxprocs:threads", false},
	{"go_gc_cycles_total_gc_cycles_total", "Completed collections.", "/gc/cycles/total:gc-cycles", true},
	{"go_gc_cycles_forced_gc_cycles_total", "Completed collections that the program asked for.",
		"/gc/cycles/forced:gc-cycles", true},
	{"go_memstats_alloc_bytes_total", "Bytes allocated on the heap, freed ones included.", "/gc/heap/allocs:bytes",
		true},
	{"go_memstats_mallocs_total", "Heap objects allocated, freed ones included.", "/gc/heap/allocs:objects", true},
	{"go_memstats_heap_alloc_bytes", "Bytes of heap objects that are in use or not collected yet.",
		"/memory/classes/heap/objects:bytes", false},
	{"go_memstats_sys_bytes", "Bytes obtained from the system.", "/memory/classes/total:bytes", false},
}

// Process adds the metrics of any process: Go's runtime, memory, processor and files.
// client_golang's collector parses three files of /proc for them, which allocates 70 kB a scrape.
func (s *Set) Process() {
	samples := make([]metrics.Sample, len(runtimeMetrics))
	for i, m := range runtimeMetrics {
		samples[i].Name = m.source
	}
	s.update = append(s.update, func() { metrics.Read(samples) }) // runs before the functions that use the samples
	for i, m := range runtimeMetrics {
		add := s.Gauge
		if m.counter {
			add = s.Counter
		}
		add(m.name, m.help, nil, func() float64 {
			if samples[i].Value.Kind() != metrics.KindUint64 {
				return 0
			}
			return float64(samples[i].Value.Uint64())
		})
	}
	s.Info("go_info", "1, with the version of Go.", func() []Label { return []Label{{"version", runtime.Version()}} })
	s.Counter("process_cpu_seconds_total", "User and system time.", nil, func() float64 {
		var u unix.Rusage
		if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
			return 0
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
	})
	s.Gauge("process_resident_memory_bytes", "Resident memory.", nil, func() float64 {
		return float64(rt.ResidentSize())
	})
	s.Gauge("process_open_fds", "Open files, sockets included.", nil, openFiles)
	s.Gauge("process_max_fds", "How many files may be open.", nil, func() float64 {
		var l unix.Rlimit
		if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
			return 0
		}
		return float64(l.Cur)
	})
	s.Gauge("process_start_time_seconds", "When the process began, since 1970.", nil, func() float64 { return started })
}

// started is the time of the process's start, or a moment later.
var started = float64(time.Now().UnixMilli()) / 1e3

func openFiles() float64 {
	d, err := os.Open("/proc/self/fd")
	if err != nil {
		return 0
	}
	defer d.Close()
	n := -1 // -1 for the open folder that is being read
	for {
		names, err := d.Readdirnames(1024)
		if n += len(names); err == io.EOF || err != nil || len(names) == 0 {
			return float64(n)
		}
	}
}
