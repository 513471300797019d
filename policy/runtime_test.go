package policy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestCheckVersion(t *testing.T) {
	for _, tt := range []struct {
		version string
		ok      bool
	}{
		{"1.24.3", true}, {"1.24.0", true}, {"1.30.0", true}, {"1.23.2", false}, {"1.9.0", false},
		{"2.0.0", false}, {"0.25.0", false}, {"", false}, {"1", false}, {"x.y", false},
	} {
		err := checkVersion("lib.so", tt.version)
		rttest.Want(t, err == nil, tt.ok, "whether checkVersion(%q) takes it (%v)", tt.version, err)
		if err != nil {
			rttest.FailsAs(t, err, ErrNoRuntime, "want 1.24")
		}
	}
}

// findRuntime never takes another library in place of a named library that is not usable. Its error explains how to get
// a usable library.
func TestFindRuntimeRefusesWhatWasNamed(t *testing.T) {
	folder := t.TempDir()
	text := rttest.WriteFile(t, folder, "libonnxruntime.so.1.24.3", "not a library")
	for _, tt := range []struct{ name, path, want string }{
		{"absent file", filepath.Join(folder, "absent.so"), "pip download --no-deps"},
		{"folder without a library", t.TempDir(), "no libonnxruntime.so*"},
		{"file that is no library", text, "cannot load " + text},
		{"folder with a file that is no library", folder, "cannot load " + text},
		{"library that is not ONNX Runtime", "/lib/x86_64-linux-gnu/libm.so.6", "not ONNX Runtime"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := os.Stat(tt.path); err != nil && strings.HasPrefix(tt.path, "/lib") {
				t.Skip(err)
			}
			_, _, err := findRuntime(tt.path, "cpu")
			rttest.FailsAs(t, err, ErrNoRuntime, tt.want)
			t.Setenv(runtimeEnv, tt.path)
			_, _, err = findRuntime("", "cpu")
			rttest.FailsAs(t, err, ErrNoRuntime, tt.want)
		})
	}
}

func TestFindRuntimeSearchesTheParents(t *testing.T) {
	t.Setenv(runtimeEnv, "")
	root := t.TempDir()
	lib := filepath.Join(root, ".cache", "onnxruntime", "lib", "libonnxruntime.so.1.24.3")
	deep := filepath.Join(root, "a", "b")
	for _, dir := range []string{filepath.Dir(lib), deep} {
		rttest.Do(t, os.MkdirAll(dir, 0o755))
	}
	rttest.Do(t, os.WriteFile(lib, []byte("not a library"), 0o644))
	t.Chdir(deep)
	// findRuntime refuses the library that it finds, with its path, and takes no other library instead.
	_, _, err := findRuntime("", "cpu")
	rttest.Fails(t, err, lib)
}

// For the CPU the library of make install comes first. For a GPU, the library of a GPU build comes before it.
func TestFindRuntimeOfTheInstallation(t *testing.T) {
	t.Setenv(runtimeEnv, "")
	exe := rttest.Must(os.Executable())(t)
	lib := filepath.Join(filepath.Dir(exe), "..", "lib", "edge-rt", "libonnxruntime.so.1.24.3")
	gpu := filepath.Join(t.TempDir(),
		".venv-gpu/lib/python3.11/site-packages/onnxruntime/capi/libonnxruntime.so.1.24.3")
	for _, file := range []string{lib, gpu} {
		rttest.WriteFile(t, "", file, "not a library")
	}
	t.Cleanup(func() { os.RemoveAll(filepath.Dir(filepath.Dir(lib))) })
	t.Chdir(strings.TrimSuffix(gpu,
		"/.venv-gpu/lib/python3.11/site-packages/onnxruntime/capi/libonnxruntime.so.1.24.3"))
	for device, want := range map[string]string{"cpu": lib, "cuda:0": gpu} {
		_, _, err := findRuntime("", device)
		rttest.Fails(t, err, filepath.Clean(want))
	}
}

// In a Python environment with the program's wheel, the program takes the environment's onnxruntime. Without that
// wheel, an onnxruntime below the same prefix is another program's.
func TestLibraryOfAPythonEnvironment(t *testing.T) {
	prefix := t.TempDir()
	packages := filepath.Join(prefix, "lib/python3.12/site-packages")
	lib := rttest.WriteFile(t, packages, "onnxruntime/capi/libonnxruntime.so.1.24.3", "")
	if got := environmentLibrary(prefix); got != "" {
		t.Errorf("without the wheel: %s, want none", got)
	}
	rttest.Do(t, os.Mkdir(filepath.Join(packages, "edge_rt-1.0.dist-info"), 0o755))
	if got := environmentLibrary(prefix); got != lib {
		t.Errorf("with the wheel: %q, want %s", got, lib)
	}
}

// Of several libraries the newest counts, by the numbers of its version.
func TestTheNewestLibrary(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"libonnxruntime.so", "libonnxruntime.so.1", "libonnxruntime.so.1.9.0",
		"libonnxruntime.so.1.24.3"} {
		rttest.WriteFile(t, dir, name, "")
		rttest.Want(t, filepath.Base(libraryIn(dir)), name, "library that libraryIn finds")
	}
}

func TestOpenRuntimeOnceIsEnough(t *testing.T) {
	needRuntime(t)
	if err := OpenRuntime("/absent", "cpu"); err != nil {
		t.Errorf("second OpenRuntime = %v, want nil", err)
	}
	if version, path := RuntimeVersion(); version == "" || path == "" {
		t.Errorf("RuntimeVersion() = %q, %q, want both", version, path)
	}
}

// If the program is in the working directory or in one of its parents, findRuntime searches each folder once, and the
// error names each folder once.
func TestFoldersAreLookedIntoOnce(t *testing.T) {
	exe := rttest.Must(os.Executable())(t)
	t.Chdir(filepath.Dir(exe))
	roots := searchRoots()
	if slices.Sort(roots); len(roots) < 2 || len(slices.Compact(slices.Clone(roots))) != len(roots) {
		t.Errorf("folders %q, want each once", roots)
	}
}
