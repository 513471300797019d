package policy

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/edge-rt/edge-rt/internal/userfile"
)

// The oldest ONNX Runtime that has the C API for which this program is built. Newer versions keep the old C APIs.
const (
	minRuntimeMajor = 1
	minRuntimeMinor = 24

	runtimeWheel = "onnxruntime==1.24.3"
)

// runtimeEnv is the environment variable that names the library.
const runtimeEnv = "EDGERT_ORT"

var (
	runtimeMu      sync.Mutex // guards the two variables below
	runtimePath    string
	runtimeVersion string
)

// OpenRuntime loads ONNX Runtime, once per process, from the first of these places that exists:
//
//	path                                         from the caller (--ort); a library or a folder
//	$EDGERT_ORT                                  also a library or a folder
//	lib/edge-rt                                  of the program's installation (its folder's parent); only for the CPU
//	lib/python3.*/…-packages/onnxruntime/capi    of the installation, beside the edge-rt wheel
//	.venv-gpu/lib/python3.*/site-packages/onnxruntime/capi   like .venv below; not for the CPU
//	.cache/onnxruntime/lib                       below the working directory, the program's folder or a parent
//	.venv/lib/python3.*/site-packages/onnxruntime/capi   likewise
//	.venv-gpu/…                                  as above, for the CPU
//	lib/edge-rt                                  as above, for other devices
//	libonnxruntime.so.1                          by the system's loader
//
// The library with the providers for a GPU is larger, and also computes on the CPU. ParseDevice must accept the device.
//
// A named library that does not load or is too old is an error, never skipped. All errors wrap
// ErrNoRuntime.
func OpenRuntime(path, device string) error {
	runtimeMu.Lock()
	defer runtimeMu.Unlock()
	if runtimePath != "" {
		return nil
	}
	found, version, err := findRuntime(path, device)
	if err != nil {
		return err
	}
	ort.SetSharedLibraryPath(found)
	// ONNX Runtime returns its errors to this program, and its own log would print them a second time.
	if err := ort.InitializeEnvironment(ort.WithLogLevelFatal()); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrNoRuntime, found, err)
	}
	runtimePath, runtimeVersion = found, version
	return nil
}

// RuntimeVersion returns the loaded library's version and path; both are empty before OpenRuntime.
func RuntimeVersion() (version, path string) {
	runtimeMu.Lock()
	defer runtimeMu.Unlock()
	return runtimeVersion, runtimePath
}

func findRuntime(path, device string) (found, version string, err error) {
	if path == "" {
		path = userfile.Expand(os.Getenv(runtimeEnv))
	}
	if path != "" {
		return loadNamed(path)
	}
	installed := "" // by a package, a wheel or make install
	if prefix, err := userfile.Prefix(); err == nil {
		if installed = libraryIn(filepath.Join(prefix, "lib", "edge-rt")); installed != "" && deviceIsCPU(device) {
			return loadNamed(installed)
		}
		if lib := environmentLibrary(prefix); lib != "" {
			return loadNamed(lib)
		}
	}
	roots := searchRoots()
	for _, places := range searchPlaces(device) {
		for _, root := range roots {
			for _, place := range places {
				dirs, _ := filepath.Glob(filepath.Join(root, place)) // fails only for a malformed pattern
				for _, dir := range dirs {
					if lib := libraryIn(dir); lib != "" {
						return loadNamed(lib)
					}
				}
			}
		}
	}
	if installed != "" {
		return loadNamed(installed)
	}
	const system = "libonnxruntime.so.1"
	if version, err = runtimeVersionOf(system); err == nil {
		return system, version, checkVersion(system, version)
	}
	return "", "", fmt.Errorf("%w %d.%d or newer found. Looked for libonnxruntime.so* in %s of each of the folders "+
		"%s; and for %s in the system's library folders.\n%s", ErrNoRuntime,
		minRuntimeMajor, minRuntimeMinor, strings.Join(slices.Concat(searchPlaces(device)...), ", "),
		strings.Join(roots, ", "), system, howToGet())
}

// environmentLibrary returns the library of onnxruntime or onnxruntime-gpu in the Python environment into which the
// program's wheel was installed, or "" if there is none. An onnxruntime without that wheel beside it, such as below
// /usr, belongs to another program and may have any version.
func environmentLibrary(prefix string) string {
	// Glob fails only for a malformed pattern.
	wheels, _ := filepath.Glob(filepath.Join(prefix, "lib", "python3.*", "*-packages", "edge_rt-*.dist-info"))
	for _, wheel := range wheels {
		if lib := libraryIn(filepath.Join(filepath.Dir(wheel), "onnxruntime", "capi")); lib != "" {
			return lib
		}
	}
	return ""
}

// searchPlaces returns the places of the library below a root, in groups. findRuntime searches one group in all roots
// before the next group; the group that fits the device best comes first.
func searchPlaces(device string) [][]string {
	wheel := filepath.Join("lib", "python3.*", "site-packages", "onnxruntime", "capi")
	cpu := []string{filepath.Join(".cache", "onnxruntime", "lib"), filepath.Join(".venv", wheel)}
	gpu := []string{filepath.Join(".venv-gpu", wheel)}
	if !deviceIsCPU(device) {
		return [][]string{gpu, cpu}
	}
	return [][]string{cpu, gpu}
}

func deviceIsCPU(device string) bool {
	d, err := ParseDevice(device)
	return err != nil || d.Kind == deviceCPU
}

// howToGet returns commands that install the library.
func howToGet() string {
	return fmt.Sprintf(`To get it: "make setup" in a checkout; the package edge-rt-onnxruntime; or, by hand (about 17 MB, no root needed):
    pip download --no-deps --dest .cache/onnxruntime %s
    unzip -j -o .cache/onnxruntime/onnxruntime-*.whl 'onnxruntime/capi/libonnxruntime.so.*' -d .cache/onnxruntime/lib
or point --ort or %s at a libonnxruntime.so of version %d.%d or newer for %s/%s.`,
		runtimeWheel, runtimeEnv, minRuntimeMajor, minRuntimeMinor, runtime.GOOS, runtime.GOARCH)
}

func loadNamed(path string) (found, version string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", "", fmt.Errorf("%w: %w\n%s", ErrNoRuntime, err, howToGet())
	}
	if info.IsDir() {
		folder := path
		if path = libraryIn(folder); path == "" {
			return "", "", fmt.Errorf("%w: no libonnxruntime.so* in %s\n%s", ErrNoRuntime, folder, howToGet())
		}
	}
	// The path must be absolute, because the loader would search the system for a bare file name.
	if path, err = filepath.Abs(path); err != nil {
		return "", "", fmt.Errorf("%w: %w", ErrNoRuntime, err)
	}
	if version, err = runtimeVersionOf(path); err != nil {
		return "", "", fmt.Errorf("%w: cannot load %s: %w", ErrNoRuntime, path, err)
	}
	return path, version, checkVersion(path, version)
}

// libraryIn returns the library of a folder, or "" if it has none. Of several libraries it returns the one with the
// highest version in its name.
func libraryIn(dir string) string {
	libs, _ := filepath.Glob(filepath.Join(dir, "libonnxruntime.so*")) // fails only for a malformed pattern
	if len(libs) == 0 {
		return ""
	}
	return slices.MaxFunc(libs, func(a, b string) int { return slices.Compare(numbersIn(a), numbersIn(b)) })
}

// numbersIn returns the version in a library's name, such as 1, 24 and 3 for libonnxruntime.so.1.24.3.
func numbersIn(library string) (numbers []int) {
	_, version, _ := strings.Cut(filepath.Base(library), ".so.")
	for part := range strings.SplitSeq(version, ".") {
		n, _ := strconv.Atoi(part) // other text counts as 0
		numbers = append(numbers, n)
	}
	return numbers
}

// searchRoots returns the working directory, the program's folder and all their
// parents, nearest first, each once.
func searchRoots() []string {
	var roots []string
	add := func(dir string, err error) {
		for err == nil {
			if !slices.Contains(roots, dir) {
				roots = append(roots, dir)
			}
			parent := filepath.Dir(dir)
			if parent == dir {
				return
			}
			dir = parent
		}
	}
	add(os.Getwd())
	exe, err := os.Executable()
	add(filepath.Dir(exe), err)
	return roots
}

// checkVersion refuses a version older than the C API for which this program is built.
func checkVersion(path, version string) error {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err == nil && major == minRuntimeMajor &&
		minor >= minRuntimeMinor {
		return nil
	}
	return fmt.Errorf("%w: %s is version %s, want %d.%d or a newer %d.x\n%s",
		ErrNoRuntime, path, version, minRuntimeMajor, minRuntimeMinor, minRuntimeMajor, howToGet())
}
