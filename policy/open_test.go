package policy

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestOpenRefusesGraphsThatDoNotFit(t *testing.T) {
	needRuntime(t)
	graph := rttest.Must(os.ReadFile(filepath.Join(stillDir, graphName)))(t)
	rename := func(old, new string) []byte {
		if len(old) != len(new) || !bytes.Contains(graph, []byte(old)) {
			t.Fatalf("cannot rename %s to %s in the graph", old, new)
		}
		return bytes.ReplaceAll(graph, []byte(old), []byte(new))
	}
	for _, tt := range []struct {
		name  string
		graph []byte
		want  string
	}{
		{"no chunk output", rename("chunk_robot", "chunk_rabot"), "the graph has no output chunk_robot"},
		{"no state input", rename("state", "stata"), "the graph has no input state"},
		{"another camera", rename("image.top", "image.tip"), "the graph has no input image.top"},
		{"an input too many", rename("image.top", "image.tip"), "the graph has an input image.tip"},
		{"batch of one only", bytes.ReplaceAll(graph, []byte{10, 3, 18, 1, 'B'}, []byte{10, 3, 8, 0x81, 0}),
			"has a batch of 1"},
		{"torn", graph[:len(graph)/2], graphName},
		{"empty", nil, graphName},
		{"text", []byte("this is not a graph"), graphName},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := copyBundle(t, stillDir, nil)
			replaceFile(t, dir, graphName, tt.graph)
			b := rttest.Must(LoadBundle(dir))(t)
			rttest.FailsAs(t, rttest.Err(b.Open(Options{})), ErrBundle, tt.want)
		})
	}
}

func TestOpenRefusesAGraphOfOtherSizes(t *testing.T) {
	needRuntime(t)
	for _, tt := range []struct {
		name string
		edit func(map[string]any)
		want string
	}{
		{"camera size", func(m map[string]any) {
			m["cameras"] = []Camera{{Name: "top", H: 60, W: 80}}
		}, "want image.top"},
		{"rows", func(m map[string]any) { m["chunk_size"], m["n_action_steps"] = 49, 49 }, "want chunk_robot"},
		{"noise", func(m map[string]any) { m["noise_dim"] = 32 }, "want noise"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := rttest.Must(LoadBundle(copyBundle(t, stillDir, tt.edit)))(t)
			rttest.FailsAs(t, rttest.Err(b.Open(Options{})), ErrBundle, tt.want)
		})
	}
}

// Goal: opening broken bundles again and again does not increase the process's memory.
func TestRefusedBundlesLeaveNothingBehind(t *testing.T) {
	needQuietMemory(t)
	dir := copyBundle(t, demoDir, nil)
	graph := rttest.Must(os.ReadFile(filepath.Join(dir, graphName)))(t)
	replaceFile(t, dir, graphName, graph[:len(graph)-1000])
	b := rttest.Must(LoadBundle(dir))(t)
	refuse := func(times int) {
		for range times {
			if m, err := b.Open(Options{MaxBatch: 8}); err == nil {
				m.Close()
				t.Fatal("Open accepts a torn graph")
			}
		}
	}
	refuse(20)
	before := residentKB(t)
	refuse(100)
	// 100 leaked graphs would be 84 MB, 100 leaked tensor sets 50 MB.
	if grown := residentKB(t) - before; grown > 16*1024 {
		t.Errorf("100 refused bundles grow the process by %d kB, want less than 16 MB", grown)
	}
}

// A closed model frees every tensor and thread.
func TestCloseReturnsMemoryAndThreads(t *testing.T) {
	needQuietMemory(t)
	b := rttest.Must(LoadBundle(stillDir))(t)
	cycle := func(times int) {
		for range times {
			m, err := b.Open(Options{MaxBatch: 16, IntraThreads: 3})
			if err == nil {
				err = m.Close()
			}
			rttest.Do(t, err)
		}
	}
	cycle(5)
	memory, threads := residentKB(t), threadCount(t)
	cycle(40)
	// 40 leaked tensor sets would be 41 MB, 40 leaked sessions 80 threads.
	if grown := residentKB(t) - memory; grown > 16*1024 {
		t.Errorf("40 models grow the process by %d kB, want less than 16 MB", grown)
	}
	if grown := threadCount(t) - threads; grown > 20 { // the Go runtime may have started some threads
		t.Errorf("40 models leave %d threads, want none", grown)
	}
}

// needQuietMemory skips tests of the process's memory with -short. make race sets -short, and the
// race detector keeps shadow memory.
func needQuietMemory(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("measures the whole process: not with -short")
	}
	needRuntime(t)
}

func threadCount(t *testing.T) int {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Skipf("no /proc here: %v", err)
	}
	return len(tasks)
}

func residentKB(t *testing.T) int {
	t.Helper()
	runtime.GC()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skipf("no /proc here: %v", err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	return rttest.Must(strconv.Atoi(strings.Fields(rest)[0]))(t)
}

func TestOpenRefusesWishesBeyondTheBounds(t *testing.T) {
	needRuntime(t)
	b := rttest.Must(LoadBundle(stillDir))(t)
	for _, opt := range []Options{{MaxBatch: maxBatchLimit + 1}, {Buffers: maxBuffersLimit + 1},
		{IntraThreads: MaxThreads + 1}} {
		if m, err := b.Open(opt); err == nil {
			m.Close()
			t.Errorf("Open(%+v) succeeds, want an error", opt)
		}
	}
}
