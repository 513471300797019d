package cuda

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/edge-rt/edge-rt/internal/cuda/cudatest"
)

func TestOpenNamesWhatIsMissing(t *testing.T) {
	for _, tt := range []struct {
		name   string
		flags  []string
		damage func(t *testing.T, s cudatest.Site)
		want   []string
	}{
		{"a library that is a text", nil, func(t *testing.T, s cudatest.Site) {
			replace(t, s.CUDA("libcublasLt.so.12"), "not a library")
		}, []string{"libcublasLt.so.12", "file too short"}},
		{"a library that is absent", nil, func(t *testing.T, s cudatest.Site) {
			remove(t, s.CUDA("libcudnn.so.9"))
		}, []string{"libcudnn.so.9", "cannot open shared object file"}},
		{"a runtime without a function", []string{"-DWITHOUT_COPY"}, nil,
			[]string{"libcudart.so.12", "no cudaMemcpyAsync"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := cudatest.Install(t, "", tt.flags...)
			if tt.damage != nil {
				tt.damage(t, s)
			}
			err := Open(s.Folder)
			for _, want := range append(tt.want, ErrNotInstalled.Error()) {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("Open = %v, want %q", err, want)
				}
			}
		})
	}
}

func TestOpenTensorRTTakesTheWheelWhereThereIsOne(t *testing.T) {
	site := t.TempDir()
	if err := OpenTensorRT(site); err != nil {
		t.Errorf("without a wheel: %v, want nil: the system may have it", err)
	}
	library := filepath.Join(site, "tensorrt_libs", "libnvinfer.so.10")
	if err := errors.Join(os.Mkdir(filepath.Dir(library), 0o755),
		os.WriteFile(library, []byte("not a library"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := OpenTensorRT(site); !errors.Is(err, ErrNotInstalled) || !strings.Contains(err.Error(), library) {
		t.Errorf("with a broken one: %v, want an error about %s", err, library)
	}
}

func replace(t *testing.T, path, text string) {
	t.Helper()
	remove(t, path) // one file with several names
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// A round of copies as in a run: to the device, several at once, and back.
func TestCopiesReachTheirEndAndAllocateNothing(t *testing.T) {
	if err := Open(cudatest.Install(t, "").Folder); err != nil {
		t.Fatal(err)
	}
	if n, err := Devices(); n != 1 || err != nil {
		t.Fatalf("Devices() = %d, %v, want 1", n, err)
	}
	if text, err := Describe(0); text != "cuda12.8-sm90" || err != nil {
		t.Errorf("Describe(0) = %q, %v, want cuda12.8-sm90", text, err)
	}
	const bytes = 1000
	host, err := Pinned(bytes)
	if err != nil {
		t.Fatal(err)
	}
	defer FreePinned(host)
	device, err := Malloc(bytes)
	if err != nil {
		t.Fatal(err)
	}
	defer Free(device)
	compute, err := NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer compute.Close()
	arrived, err := NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	defer arrived.Close()
	view := unsafe.Slice((*byte)(host), bytes)
	round := func() {
		view[3], view[bytes-1] = 7, 9
		for _, err := range []error{
			SetDevice(0), compute.Upload(device, host, bytes), compute.Record(arrived), compute.Wait(arrived),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		clear(view)
		if err := compute.Download(unsafe.Add(host, 1), unsafe.Add(device, 1), bytes-1); err != nil {
			t.Fatal(err)
		}
		if err := compute.Synchronize(); err != nil || view[3] != 7 || view[bytes-1] != 9 {
			t.Fatalf("back come %d and %d, %v; want 7 and 9", view[3], view[bytes-1], err)
		}
	}
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("a round allocates %v times, want 0", n)
	}
	t.Setenv("FAKE_GPU_MALLOC_ERROR", "2")
	if _, err := Malloc(8); err == nil || err.Error() != "reserve 8 bytes of the device: CUDA error 2: out of memory" {
		t.Errorf("Malloc = %v, want CUDA's own words", err)
	}
	if err := SetDevice(1); err == nil || !strings.Contains(err.Error(), "invalid device ordinal") {
		t.Errorf("SetDevice(1) = %v, want an error", err)
	}
}
