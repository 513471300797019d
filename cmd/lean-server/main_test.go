package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server"
	"github.com/edge-rt/edge-rt/server/audit"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/stage"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

const (
	demo      = "../../testdata/demo"
	stopLimit = 2 * time.Second  // from SIGTERM to the end of the process
	patience  = 30 * time.Second // only a broken test waits so long
)

var built string

// TestMain builds the program once: these tests run it as a user would.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "lean-server-test-")
	if err != nil {
		panic(err)
	}
	bin, err := rttest.Programs(dir, "lean-server")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	built = filepath.Join(bin, "lean-server")
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func needRuntime(t *testing.T) {
	t.Helper()
	if err := policy.OpenRuntime("", "cpu"); err != nil {
		t.Skipf("no ONNX Runtime here: %.80s", err)
	}
}

// leanServer runs the program to its end and returns exit code and outputs.
func leanServer(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(built, args...)
	cmd.Env = append(os.Environ(), env...)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	overdue := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer overdue.Stop()
	err := cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), log.String()
}

// writeManifest writes a manifest and returns its path.
func writeManifest(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "server.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// brokenBundle copies the demo bundle, lets change alter the files, corrects the digests of the
// changed files, and returns a manifest that serves it.
func brokenBundle(t *testing.T, change func(files map[string][]byte, meta map[string]any)) string {
	t.Helper()
	from, dir := filepath.Join(demo, "bundle"), t.TempDir()
	files := map[string][]byte{}
	err := filepath.WalkDir(from, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, _ := filepath.Rel(from, path)
		files[name], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	meta := map[string]any{}
	if err := json.Unmarshal(files["bundle.json"], &meta); err != nil {
		t.Fatal(err)
	}
	change(files, meta)
	for name := range meta["files"].(map[string]any) {
		sum := sha256.Sum256(files[name])
		meta["files"].(map[string]any)[name] = hex.EncodeToString(sum[:])
	}
	if files["bundle.json"], err = json.Marshal(meta); err != nil {
		t.Fatal(err)
	}
	for name, data := range files {
		path := filepath.Join(dir, "bundle", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "server.yaml")
	if err := os.WriteFile(path, []byte("model: {repo_or_path: bundle}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// falsify changes the first value of a tensor of a golden set, so that a correct graph does not
// reproduce it.
func falsify(t *testing.T, file []byte, tensor string) {
	t.Helper()
	size := binary.LittleEndian.Uint64(file)
	var header map[string]struct {
		Offsets [2]int `json:"data_offsets"`
	}
	if err := json.Unmarshal(file[8:8+size], &header); err != nil || header[tensor].Offsets[1] == 0 {
		t.Fatalf("no %s in %v, %v", tensor, header, err)
	}
	at := file[8+int(size)+header[tensor].Offsets[0]:]
	binary.LittleEndian.PutUint32(at, math.Float32bits(math.Float32frombits(binary.LittleEndian.Uint32(at))+1))
}

// Bad input ends the program with one clear line and a code.
func TestBadInput(t *testing.T) {
	good := filepath.Join(demo, "server.yaml")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port, free := fmt.Sprint(taken.Addr().(*net.TCPAddr).Port), freePort(t)
	tests := []struct {
		name    string
		args    []string
		runtime bool // needs ONNX Runtime to get that far
		code    int
		says    []string
	}{
		{"no manifest", nil, false, 2, []string{"--manifest", "server.yaml"}},
		{"unknown flag", []string{"--manifst", good}, false, 2, []string{"--manifst", "--help"}},
		{"unknown command", []string{"serf"}, false, 2, []string{"serf"}},
		{"health port that is no number", []string{"--health-port", "x", "--manifest", good}, false, 2,
			[]string{"health-port"}},
		{"health port that is none", []string{"--health-port", "65536", "--manifest", good}, false, 2,
			[]string{"--health-port is 65536", "65535"}},
		{"missing manifest", []string{"--manifest", "none.yaml"}, false, 3, []string{"none.yaml", "--manifest"}},
		{"unknown manifest key", []string{"--manifest", writeManifest(t, "model: {repo_or_path: b}\nmax_session: 3\n")},
			false, 3,
			[]string{"server.yaml:2:", `"max_session"`, `"max_sessions"`}},
		{"wrong type in the manifest", []string{"--manifest", writeManifest(t, "max_sessions: four\n")}, false, 3,
			[]string{"server.yaml:1:", "max_sessions", "whole number", "four"}},
		{"not YAML", []string{"--manifest", writeManifest(t, "a: [\n")}, false, 3, []string{"server.yaml:1:", "YAML"}},
		{"missing bundle", []string{"--manifest", writeManifest(t, "\nmodel: {repo_or_path: nothing-here}\n")}, false,
			3,
			[]string{"server.yaml:2:", "nothing-here", "bundle"}},
		{"endpoint that is none", []string{"--manifest", good, "--listen", "localhost:7447"}, false, 2,
			[]string{"--listen", "localhost:7447", "tcp/"}},
		{"another transport", []string{"--manifest", good, "--connect", "quic/router:7447"}, false, 2,
			[]string{"--connect", "quic/router:7447", "tls/"}},
		{"encryption without a certificate", []string{"--manifest", good, "--listen", "tls/127.0.0.1:" + free}, false,
			3, []string{"tls/", "certificate to show"}},
		{"certificate that is not there", []string{"--manifest",
			writeManifest(t, "model: {repo_or_path: b}\nzenoh:\n  listen_endpoints: [\"tls/127.0.0.1:"+free+
				"\"]\n  tls: {listen_certificate: none.pem, listen_private_key: none.key}\n")}, false, 3,
			[]string{"server.yaml:4:", "none.pem", "no such file"}},
		{"no ONNX Runtime", []string{"--manifest", good, "--ort", "/nowhere/libonnxruntime.so"}, false, 3,
			[]string{"ONNX Runtime", "/nowhere", "pip download"}},
		{"corrupt ONNX", []string{"--manifest", brokenBundle(t, func(files map[string][]byte, _ map[string]any) {
			files["policy.onnx"] = files["policy.onnx"][:1000]
		})}, true, 3, []string{"policy.onnx"}},
		{"golden set fails", []string{"--manifest", brokenBundle(t, func(files map[string][]byte, _ map[string]any) {
			falsify(t, files["golden/b1_mode0.safetensors"], "out/chunk_robot")
		})}, true, 3, []string{"golden", "b1_mode0", "chunk_robot"}},
		{"no chunk output", []string{"--manifest", brokenBundle(t, func(files map[string][]byte, _ map[string]any) {
			files["policy.onnx"] = bytes.ReplaceAll(files["policy.onnx"], []byte("chunk_robot"), []byte("other_robot"))
		})}, true, 3, []string{"chunk_robot"}},
		{"health port busy", []string{"--manifest", good, "--health-port", port}, false, 1,
			[]string{"health_port", port, "in use"}},
		// Also without ONNX Runtime: the port is checked before the policy is loaded.
		{"listen port busy", []string{"--manifest", good, "--health-port", "0", "--listen", "tcp/127.0.0.1:" + port,
			"--ort", "/nowhere"}, false, 1,
			[]string{"listen_endpoints", port, "in use", "--listen"}},
		{"capture ring without end", []string{"--manifest",
			writeManifest(t, "model: {repo_or_path: b}\ndebug: {capture_max: 5000}\n")}, false, 3,
			[]string{"server.yaml:2:", "debug.capture_max", "5000", "4096"}},
		{"captures into a file", []string{"--manifest",
			writeManifest(t, "model: {repo_or_path: b}\nhealth_port: 0\nzenoh: {listen_endpoints: [\"tcp/127.0.0.1:"+
				free+"\"]}\ndebug: {capture_dir: server.yaml}\n")}, false, 3,
			[]string{"server.yaml:4:", "debug.capture_dir"}},
		{"audit into a folder that is not there", []string{"--manifest", good, "--health-port", "0", "--listen",
			"tcp/127.0.0.1:" + free, "--audit", "/nowhere/audit.jsonl"}, false, 2,
			[]string{"--audit", "/nowhere/audit.jsonl"}},
		{"summary into a folder", []string{"--manifest", good, "--json", t.TempDir(), "--ort", "/nowhere"}, false, 2,
			[]string{"--json", "is a directory"}},
		{"access control without robots", []string{"acl", "--manifest",
			writeManifest(t, "model: {repo_or_path: b, id: m}\nrouters: [boss]\n")}, false, 3,
			[]string{"clients is empty", "common name"}},
		{"access control without a server", []string{"acl", "--manifest",
			writeManifest(t, "model: {repo_or_path: b, id: m}\nclients: [arm-a]\n")}, false, 3,
			[]string{"zenoh.tls.connect_certificate", "routers"}},
		{"access control for a robot that is also a router",
			[]string{"acl", "--manifest", writeManifest(t,
				"model: {repo_or_path: b, id: m}\nrouters: [arm-a]\nclients: [arm-a]\n")}, false, 3,
			[]string{"server.yaml:3:", `"arm-a" is named twice`}},
		{"access control of a model that is not there",
			[]string{"acl", "--manifest", writeManifest(t,
				"model: {repo_or_path: b}\nrouters: [boss]\nclients: [arm-a]\n")}, false, 3,
			[]string{"server.yaml:1:", "not a bundle directory"}},
		{"access control into a folder", []string{"acl", "-o", t.TempDir(), "--manifest",
			writeManifest(t, "model: {repo_or_path: b, id: m}\nrouters: [boss]\nclients: [arm-a]\n")}, false, 2,
			[]string{"--output", "is a directory"}},
		{"replay of nothing", []string{"replay", "--manifest", good}, false, 2,
			[]string{"replay DIR", "debug.capture_dir"}},
		{"replay of an empty folder", []string{"replay", t.TempDir(), "--manifest", good}, false, 2,
			[]string{"no captured requests", "debug.capture_dir"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.runtime {
				needRuntime(t)
			}
			code, stdout, stderr := leanServer(t, nil, append([]string{"--quiet"}, tt.args...)...)
			if code != tt.code {
				t.Errorf("exit code %d, want %d; it said: %s", code, tt.code, stderr)
			}
			// The instructions for getting ONNX Runtime are several lines after the first one.
			if lines := strings.Count(stderr, "\n"); stdout != "" || lines != 1 &&
				!strings.Contains(stderr, "pip download") {
				t.Errorf("%d lines on stderr and %q on stdout, want one line:\n%s", lines, stdout, stderr)
			}
			for _, word := range tt.says {
				if !strings.Contains(stderr, word) {
					t.Errorf("message lacks %q: %s", word, stderr)
				}
			}
		})
	}
}

// An ONNX Runtime of another version, or a library that only claims the right one, is refused
// before it runs anything.
func TestWrongRuntime(t *testing.T) {
	const source = `struct base { const void *(*get_api)(unsigned); const char *(*get_version)(void); };
static const void *get_api(unsigned v) { return 0; }
static const char *get_version(void) { return VERSION; }
static const struct base base = { get_api, get_version };
const struct base *OrtGetApiBase(void) { return BASE; }
`
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ort.c"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, version, base, want string }{
		{"older", `"1.20.0"`, "&base", "is version 1.20.0, want 1.24 or a newer 1.x"},
		{"another major", `"2.0.0"`, "&base", "is version 2.0.0, want 1.24"},
		{"right number without the API", `"1.24.9"`, "&base", "API"},
		{"no version", "0", "&base", "not ONNX Runtime"},
		{"no base", `"1.24.3"`, "0", "not ONNX Runtime"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lib := filepath.Join(t.TempDir(), "libonnxruntime.so.1.24.3")
			if out, err := exec.Command(cc, "-shared", "-fPIC", "-DVERSION="+tt.version, "-DBASE="+tt.base, "-o", lib,
				filepath.Join(dir, "ort.c")).CombinedOutput(); err != nil {
				t.Skipf("%v: %s", err, out)
			}
			code, stdout, stderr := leanServer(t, nil, "--quiet", "--manifest", filepath.Join(demo, "server.yaml"),
				"--health-port", "0",
				"--listen", "tcp/127.0.0.1:"+freePort(t), "--ort", lib)
			first, _, _ := strings.Cut(stderr, "\n")
			if code != 3 || stdout != "" || !strings.Contains(first, lib) || !strings.Contains(first, tt.want) ||
				!strings.Contains(first, "ONNX Runtime") {
				t.Errorf("exit code %d, %q, want 3 and a line with the library and %q", code, stderr, tt.want)
			}
		})
	}
}

// The program's exit codes are those of the page and of --help.
func TestExitCodesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/server.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "## Exit codes")
	_, help, _ := strings.Cut(description, "Exit codes: ")
	codes := map[exit.Code]bool{}
	for _, err := range []error{
		nil, errors.New("broke"), audit.ErrNoCaptures, exit.Errorf(exit.Usage, "flag"), manifest.ErrInvalid,
		policy.ErrBundle,
		policy.ErrGolden, policy.ErrNoRuntime, policy.ErrNoProvider, policy.ErrNoDevice, server.ErrAbsent,
		server.ErrDevice,
	} {
		code := codeOf(err)
		codes[code] = true
		if row, word := fmt.Sprintf("| %d | ", code), fmt.Sprintf("%d ", code); !strings.Contains(table, row) ||
			!strings.Contains(help, word) {
			t.Errorf("%v ends with %d, which docs/server.md or --help does not explain", err, code)
		}
	}
	if rows := strings.Count(table, "\n| ") - 1; rows != len(codes) {
		t.Errorf("docs/server.md explains %d exit codes, the program has %d", rows, len(codes))
	}
}

// A file that does not match its digest is refused before ONNX Runtime is searched for.
func TestChangedFileIsFoundByItsDigest(t *testing.T) {
	path := brokenBundle(t, func(map[string][]byte, map[string]any) {})
	graph := filepath.Join(filepath.Dir(path), "bundle", "policy.onnx")
	if err := os.Truncate(graph, 1000); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := leanServer(t, nil, "check", "--manifest", path)
	if code != 3 || !strings.Contains(stderr, "policy.onnx") || !strings.Contains(stderr, "sha256") ||
		strings.Count(stderr, "\n") != 1 {
		t.Errorf("exit code %d, %q, want 3 and one line about the digest of policy.onnx", code, stderr)
	}
}

func TestVersionAndHelp(t *testing.T) {
	if code, stdout, stderr := leanServer(t, nil, "version"); code != 0 || !strings.HasPrefix(stdout, "lean-server ") ||
		stderr != "" {
		t.Errorf("version = %d, %q, %q", code, stdout, stderr)
	}
	code, stdout, stderr := leanServer(t, nil, "--help-all")
	if code != 0 || stderr != "" {
		t.Errorf("--help-all = %d, stderr %q", code, stderr)
	}
	for _, word := range []string{"Examples:", "testdata/demo/server.yaml", "LEAN_SERVER_MANIFEST", "Exit codes"} {
		if !strings.Contains(stdout, word) {
			t.Errorf("--help-all lacks %q", word)
		}
	}
}

func TestCheckSaysWhatWouldBeServed(t *testing.T) {
	needRuntime(t)
	code, stdout, stderr := leanServer(t, []string{"LEAN_SERVER_MANIFEST=" + filepath.Join(demo, "server.yaml")},
		"check", "--json", "-")
	var r server.Report
	if err := json.Unmarshal([]byte(stdout), &r); code != 0 || err != nil {
		t.Fatalf("check = %d, %v, %s%s", code, err, stdout, stderr)
	}
	if r.Prefix != "@lerobot/demo-around-the-post/main/demo" || r.Model != "demo/around-the-post" || r.FPS != 60 ||
		r.ChunkSize != 50 || len(r.ActionNames) != 6 || r.MaxSessions != 5 ||
		len(r.Listen) != 1 || r.Listen[0] != manifest.DefaultListen || r.InferenceMs <= 0 ||
		r.Cameras[0] != "observation.images.top 120x160" {
		t.Errorf("report = %+v", r)
	}
	// picture; state, noise, prefix, both chunks, beta and sigma_d; prefix_len, delay, prefix_end,
	// rtc_mode, schedule
	const row = 120*160*3 + 4*(6+50*6+50*6+2*50*6+2) + 8*5
	var text strings.Builder
	if err := r.Print(&text); err != nil || r.TensorBytes < row || r.TensorBytes%row != 0 ||
		!strings.Contains(text.String(), fmt.Sprintf("tensors    %.1f MiB of inputs and outputs\n",
			float64(r.TensorBytes)/(1<<20))) {
		t.Errorf("%d bytes of tensors, want rows of %d: %v, %s", r.TensorBytes, row, err, text.String())
	}
}

// A name on the hub is no folder of this machine: the server fetches nothing, and its error
// explains how to make a bundle of it.
func TestANameOnTheHubPointsToTheExport(t *testing.T) {
	const export = "edgert-export pick pick-bundle --dataset-info meta/info.json"
	for _, tt := range []struct {
		given string
		hub   bool
	}{
		{"me/pick", true},
		{"hf://me/pick", true},
		{"https://huggingface.co/me/pick", true},
		{"https://huggingface.co/me/pick/", true},
		{"bundles", false},
		{"/srv/me/pick", false},
		{"./me/pick/it", false},
	} {
		code, _, stderr := leanServer(t, nil, "check", "--manifest",
			writeManifest(t, fmt.Sprintf("model: {repo_or_path: %q}\n", tt.given)))
		hub := strings.Contains(stderr, "`hf download me/pick --local-dir pick`") && strings.Contains(stderr, export)
		if code != 3 || strings.Count(stderr, "\n") != 1 || hub != tt.hub ||
			!strings.Contains(stderr, "server.yaml:1: ") {
			t.Errorf("%s: exit code %d, %q, want 3 and, %v, the commands for the hub", tt.given, code, stderr, tt.hub)
		}
	}
	code, _, stderr := leanServer(t, nil, "check", "--manifest", writeManifest(t, "service: pick\n"))
	if code != 3 || !strings.Contains(stderr, "model.repo_or_path is required") ||
		strings.Contains(stderr, "--model.repo_or_path") {
		t.Errorf("exit code %d, %q, want 3 and no flag that is none", code, stderr)
	}
}

// Files that are not part of the bundle change neither its digest nor its content: check names them
// once.
func TestCheckNamesTheFilesThatAreNotTheBundles(t *testing.T) {
	needRuntime(t)
	examine := func(path string) (r server.Report, text string) {
		t.Helper()
		code, stdout, stderr := leanServer(t, nil, "check", "--manifest", path, "--json", "-")
		if err := json.Unmarshal([]byte(stdout), &r); code != 0 || err != nil {
			t.Fatalf("check = %d, %v, %s%s", code, err, stdout, stderr)
		}
		var b strings.Builder
		if err := r.Print(&b); err != nil {
			t.Fatal(err)
		}
		return r, b.String()
	}
	path := brokenBundle(t, func(map[string][]byte, map[string]any) {})
	clean, text := examine(path)
	if clean.Unlisted != nil || strings.Contains(text, "beside it") {
		t.Errorf("a clean bundle's report names %q: %s", clean.Unlisted, text)
	}
	for _, name := range []string{".cache/huggingface/download/policy.onnx.metadata", "golden/._b1.safetensors",
		".DS_Store", "an\x1b[2J"} {
		file := filepath.Join(filepath.Dir(path), "bundle", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755),
			os.WriteFile(file, []byte("x"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	r, text := examine(path)
	const line = "\n  beside it  .DS_Store, .cache/, \"an\\x1b[2J\", golden/._b1.safetensors: not listed in " +
		"bundle.json, so not read and not in the digest\n"
	if r.SHA256 != clean.SHA256 || r.UnlistedAll != 4 || strings.Count(text, line) != 1 {
		t.Errorf("digest %.12s, want %.12s; %d unlisted, want 4; report %s, want %q", r.SHA256, clean.SHA256,
			r.UnlistedAll, text, line)
	}
}

// check reports that robots with a real arm refuse a bundle.
func TestCheckNamesABundleForSimulation(t *testing.T) {
	needRuntime(t)
	for _, only := range []bool{true, false} {
		path := brokenBundle(t, func(_ map[string][]byte, meta map[string]any) {
			if !only {
				delete(meta, "simulation_only")
			}
		})
		code, stdout, stderr := leanServer(t, nil, "check", "--manifest", path)
		if said := strings.Contains(stdout, "simulation_only: robots with a real arm refuse it\n"); code != 0 ||
			said != only {
			t.Errorf("check of simulation_only %v = %d, %s%s", only, code, stdout, stderr)
		}
		var r server.Report
		if _, stdout, _ = leanServer(t, nil, "check", "--manifest", path, "--json",
			"-"); json.Unmarshal([]byte(stdout), &r) != nil || r.Simulation != only {
			t.Errorf("check --json of simulation_only %v: %s", only, stdout)
		}
	}
}

// The variables of a server that is being set up name its audit file, too: only serving creates it.
func TestOnlyServingCreatesTheAuditFile(t *testing.T) {
	needRuntime(t)
	dir := t.TempDir()
	for _, args := range [][]string{{"check"}, {"replay", dir}, {"replay", "nowhere"}} {
		file := filepath.Join(t.TempDir(), "audit.jsonl")
		leanServer(t, []string{"LEAN_SERVER_MANIFEST=" + filepath.Join(demo, "server.yaml"),
			"LEAN_SERVER_AUDIT=" + file}, args...)
		if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s has created the audit file: %v", args, err)
		}
	}
	code, _, stderr := leanServer(t, []string{"LEAN_SERVER_MANIFEST=" + filepath.Join(demo, "server.yaml"),
		"LEAN_SERVER_AUDIT=/nowhere/audit.jsonl"}, "check")
	if code != 0 {
		t.Errorf("check = %d because of an audit file that it does not write: %s", code, stderr)
	}
}

// running is the program while it serves.
type running struct {
	t        *testing.T
	cmd      *exec.Cmd
	log      bytes.Buffer // complete after stop
	endpoint string
	health   string
	json     string
}

// start runs the program with the demo's manifest; args may name another one.
func start(t *testing.T, args ...string) *running {
	t.Helper()
	needRuntime(t)
	r := &running{t: t, endpoint: "tcp/127.0.0.1:" + freePort(t), json: filepath.Join(t.TempDir(), "summary.json")}
	port := freePort(t)
	r.health = "http://127.0.0.1:" + port
	if !slices.Contains(args, "--manifest") {
		args = append(args, "--manifest", filepath.Join(demo, "server.yaml"))
	}
	r.cmd = exec.Command(built, append([]string{"--listen", r.endpoint, "--health-port", port, "--json", r.json},
		args...)...)
	r.cmd.Stdout, r.cmd.Stderr = &r.log, &r.log
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.cmd.Process.Kill() }) // fails when it has ended, as it should
	return r
}

// awaitReady waits for /readyz to become 200; until then it must return 503.
func (r *running) awaitReady() {
	r.t.Helper()
	seen := map[int]bool{}
	rttest.Eventually(r.t, "ready", func() bool {
		code := r.get("/readyz")
		seen[code] = true
		return code == http.StatusOK
	})
	if !seen[http.StatusServiceUnavailable] {
		r.t.Error("/readyz was never 503 while the policy was loaded")
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	endpoint, err := stage.FreeEndpoint()
	if err != nil {
		t.Fatal(err)
	}
	return endpoint[strings.LastIndexByte(endpoint, ':')+1:]
}

// get returns the HTTP status of a page, 0 without an answer.
func (r *running) get(page string) int {
	response, err := http.Get(r.health + page)
	if err != nil {
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}

// end sends sig and expects a clean end without a listening socket left. It returns how long that
// took.
func (r *running) end(sig os.Signal) (took time.Duration) {
	r.t.Helper()
	began := time.Now()
	if err := r.cmd.Process.Signal(sig); err != nil {
		r.t.Fatal(err)
	}
	overdue := time.AfterFunc(patience, func() { _ = r.cmd.Process.Kill() })
	defer overdue.Stop()
	err := r.cmd.Wait()
	if took = time.Since(began); err != nil {
		r.t.Errorf("ended after %v with %v, want a clean end:\n%s", took, err, r.log.String())
	}
	for _, address := range []string{strings.TrimPrefix(r.endpoint, "tcp/"), strings.TrimPrefix(r.health, "http://")} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			r.t.Errorf("something still listens: %v", err)
			continue
		}
		l.Close()
	}
	return took
}

// stop is end, and returns the summary.
func (r *running) stop(sig os.Signal) server.Summary {
	r.t.Helper()
	r.end(sig)
	return r.summary()
}

func (r *running) summary() (s server.Summary) {
	r.t.Helper()
	text, err := os.ReadFile(r.json)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		r.t.Fatal(err)
	}
	return s
}

func TestIdleServerStopsOnEitherSignal(t *testing.T) {
	rttest.RealTime(t)
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			r := start(t)
			r.awaitReady()
			for _, page := range []string{"/healthz", "/metrics"} {
				if code := r.get(page); code != http.StatusOK {
					t.Errorf("%s = %d, want 200", page, code)
				}
			}
			if took := r.end(sig); took > stopLimit {
				t.Errorf("ended after %v, want %v at most", took, stopLimit)
			}
			if s := r.summary(); s.Requests != 0 || s.Exit.Code != 0 || s.Exit.Reason != "stopped" {
				t.Errorf("summary = %+v", s)
			}
		})
	}
}

// lean-server | head: the reader of the log has left, and no reader takes the table at the end. The
// server served to the end.
func TestServerOutlivesItsReader(t *testing.T) {
	needRuntime(t)
	pipe, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	r := &running{t: t, endpoint: "tcp/127.0.0.1:" + freePort(t), health: "http://127.0.0.1:" + port}
	r.cmd = exec.Command(built, "--manifest", filepath.Join(demo, "server.yaml"), "--listen", r.endpoint,
		"--health-port", port)
	r.cmd.Stdout, r.cmd.Stderr = out, out
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.cmd.Process.Kill() })
	out.Close()
	if _, err := pipe.Read(make([]byte, 1)); err != nil {
		t.Errorf("the first byte: %v", err)
	}
	pipe.Close()
	r.awaitReady()
	r.end(syscall.SIGTERM)
}

// A server that receives a signal while it loads its policy does not finish loading first.
func TestStopsWhileLoading(t *testing.T) {
	rttest.RealTime(t)
	r := start(t)
	rttest.Eventually(t, "the health page", func() bool { return r.get("/healthz") == http.StatusOK })
	if took := r.end(syscall.SIGTERM); took > stopLimit {
		t.Errorf("ended after %v, want %v at most", took, stopLimit)
	}
}

// dial joins the server's network and finds its service.
func (r *running) dial() (network wire.Session, prefix string) {
	r.t.Helper()
	network, err := zenoh.Open(r.t.Context(), zenoh.Config{Connect: []string{r.endpoint}})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = network.Close() }) // a test may have closed it
	keys, err := network.Tokens(r.t.Context(), wire.ServerAliveAny, time.Second)
	if err != nil || len(keys) != 1 {
		r.t.Fatalf("servers alive: %v, %v, want one", keys, err)
	}
	service, err := wire.ServiceOf(keys[0])
	if err != nil {
		r.t.Fatal(err)
	}
	return network, service.Prefix()
}

// The real program over real TCP with the real policy: every observation gets its chunk, the
// trained prefix is honoured to the bit that matters, the robot gets an event when the server
// leaves, and the whole process allocates next to nothing per request.
func TestServesTheDemoPolicy(t *testing.T) {
	serveDemo(t, start(t))
}

// The same with audit and captures: one audit line for each request, the newest requests captured,
// and each capture answered byte for byte again.
func TestServesOnTheRecord(t *testing.T) {
	const captures = 12
	dir := t.TempDir()
	bundle, err := filepath.Abs(filepath.Join(demo, "bundle"))
	if err != nil {
		t.Fatal(err)
	}
	path := writeManifest(t, fmt.Sprintf("model: {repo_or_path: %q}\ndebug: {capture_dir: %q, capture_max: %d}\n",
		bundle, filepath.Join(dir, "captures"), captures))
	audit := filepath.Join(dir, "audit.jsonl")
	serveDemo(t, start(t, "--manifest", path, "--audit", audit))

	text, err := os.ReadFile(audit)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	for i, line := range lines {
		var a struct {
			Client  string  `json:"client_uuid"`
			Seq     uint64  `json:"seq_id"`
			Outcome string  `json:"outcome"`
			Mode    string  `json:"conditioning"`
			Ms      float64 `json:"inference_ms"`
		}
		if err := json.Unmarshal(line, &a); err != nil || a.Client != "test-arm" || a.Seq != uint64(i+1) ||
			a.Outcome != "ok" || a.Mode != "trained" || a.Ms <= 0 {
			t.Fatalf("audit line %d = %s, %v", i, line, err)
		}
	}
	if len(lines) != demoRequests {
		t.Errorf("%d audit lines for %d requests", len(lines), demoRequests)
	}
	replay := func() (code int, stdout, stderr string) { return leanServer(t, nil, "replay", "--manifest", path) }
	if code, stdout, stderr := replay(); code != 0 ||
		stdout != fmt.Sprintf("%d captured requests: %[1]d answered byte for byte as then, 0 not, 0 unreadable\n",
			captures) {
		t.Errorf("replay = %d, %s%s", code, stdout, stderr)
	}
	other := writeManifest(t, fmt.Sprintf("model: {repo_or_path: %q}\n", filepath.Join(filepath.Dir(bundle), "still")))
	if code, stdout, stderr := leanServer(t, nil, "replay", filepath.Join(dir, "captures"), "--manifest",
		other); code != 2 || stdout != "" || strings.Count(stderr, "\n") != 1 ||
		!strings.Contains(stderr, fmt.Sprintf("%d with bundle", captures)) ||
		!strings.Contains(stderr, "give the manifest of the bundle that answered") {
		t.Errorf("replay with another bundle = %d, %s%s, want 2 and one line", code, stdout, stderr)
	}
	torn := filepath.Join(dir, "captures", "request-00003.safetensors")
	if err := os.Truncate(torn, 1000); err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr := replay(); code != 1 || !strings.Contains(stdout, torn) ||
		strings.Count(stderr, "\n") != 1 {
		t.Errorf("replay with a torn file = %d, %s%s, want 1 and its name", code, stdout, stderr)
	}
}

const demoRequests = 400

// serveDemo requests chunks of the demo policy and stops the server, which must have allocated at
// most one object for two requests meanwhile.
func serveDemo(t *testing.T, r *running) {
	t.Helper()
	r.awaitReady()
	network, prefix := r.dial()
	arm := newArm(t, network, prefix)
	sent := arm.prefix()
	for seq := uint64(1); seq <= demoRequests; seq++ {
		chunk := arm.ask(seq)
		for i, want := range sent.Data {
			if got := chunk.ChunkRobot.Data[i]; got-want > 1e-3 || want-got > 1e-3 {
				t.Fatalf("request %d: value %d of the hard prefix = %v, want %v", seq, i, got, want)
			}
		}
	}
	s := r.stop(syscall.SIGTERM)
	select {
	case e := <-arm.events:
		if e.Code != wire.EventDraining || e.RetryAfterMs <= 0 || e.Text == "" {
			t.Errorf("the robot got %+v, want a draining event", e)
		}
	case <-time.After(patience):
		t.Error("the robot was not told that the server left")
	}
	if s.Requests != demoRequests || s.Errors != 0 || s.Conditioning["trained"] != demoRequests ||
		s.Sessions.Opened != 1 || s.InferenceMs.P50 <= 0 {
		t.Errorf("summary = %+v, want %d requests, all with the trained prefix", s, demoRequests)
	}
	// Opening the session and the links allocates, and so do buffers while they grow and the
	// runtime when it starts a thread; rt.ReadHeap counts whole spans. A request must not allocate.
	if s.PathMallocs > demoRequests/2 {
		t.Errorf("the process allocated %d objects for %d requests, want at most %d", s.PathMallocs, demoRequests,
			demoRequests/2)
	}
	if s.GCCycles != s.GCForced {
		t.Errorf("%d collections, %d of them by hand, want no others", s.GCCycles, s.GCForced)
	}
	t.Logf("%d requests, %d objects, %d collections, inference p50 %.2f ms, service p99 %.2f ms", s.Requests,
		s.PathMallocs, s.GCCycles, s.InferenceMs.P50, s.ServiceMs.P99)
}

// Every reason for which a server refuses a session, over TCP from the real program.
func TestSessionRefusals(t *testing.T) {
	bundle, err := filepath.Abs(filepath.Join(demo, "bundle"))
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, "--manifest", writeManifest(t, fmt.Sprintf(`model: {repo_or_path: %q}
default_task: "around the post"
pin_task: true
strict_fps: true
max_sessions: 1
clients: [arm-1, arm-2]
`, bundle)))
	r.awaitReady()
	network, prefix := r.dial()
	tests := []struct {
		name      string
		change    func(o *wire.SessionOpen)
		want      string
		temporary bool
	}{
		{"schema", func(o *wire.SessionOpen) {
			o.SchemaVersion = 2
		}, "schema_version 2 outside supported range [1, 1]", false},
		{"client not on the list", func(o *wire.SessionOpen) {
			o.ClientUUID = "arm-3"
		}, "client 'arm-3' is not on this server's list", false},
		{"client that is no key segment", func(o *wire.SessionOpen) { o.ClientUUID = "arm 1" }, "client_uuid", false},
		{"action order", func(o *wire.SessionOpen) {
			o.ActionNames = append([]string{o.ActionNames[1], o.ActionNames[0]}, o.ActionNames[2:]...)
		}, "refusing to map chunk columns to motors", false},
		{"action count", func(o *wire.SessionOpen) {
			o.ActionNames = o.ActionNames[:5]
		}, "refusing to map chunk columns to motors", false},
		{"action units", func(o *wire.SessionOpen) {
			o.ActionUnits = slices.Repeat([]string{"radians"}, 6)
		}, "action_units", false},
		{"state dim", func(o *wire.SessionOpen) { o.StateDim = 7 }, "state dim mismatch: server=6, client=7", false},
		{"state units", func(o *wire.SessionOpen) {
			o.StateUnits = slices.Repeat([]string{"radians"}, 6)
		}, "state_units", false},
		{"camera", func(o *wire.SessionOpen) {
			o.CameraNames = []string{"observation.images.wrist"}
		}, "missing camera features ['observation.images.top']", false},
		{"camera size", func(o *wire.SessionOpen) {
			o.CameraShapes = []wire.CameraShape{{Name: "observation.images.top", H: 8192, W: 8192, C: 3}}
		}, "8192x8192", false},
		{"pinned task", func(o *wire.SessionOpen) {
			o.Task = "fold the towel"
		}, "task is pinned to 'around the post' on this server, got 'fold the towel'", false},
		{"fps", func(o *wire.SessionOpen) { o.FPS = 30 }, "client fps=30 != trained fps=60 (strict_fps=true)", false},
		{"nothing wrong", func(*wire.SessionOpen) {}, "", false},
		{"the same robot again", func(*wire.SessionOpen) {}, "", false},
		{"full", func(o *wire.SessionOpen) { o.ClientUUID = "arm-2" }, "server full: 1/1 sessions active", true},
		{"wrong while full: final all the same", func(o *wire.SessionOpen) {
			o.SchemaVersion = 2
		}, "schema_version", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := demoOpen(t, "arm-1")
			tt.change(&o)
			ack := openSession(t, network, prefix, o)
			if ack.Accepted != (tt.want == "") || !strings.Contains(ack.Error, tt.want) ||
				ack.Temporary() != tt.temporary ||
				tt.temporary && (ack.ServerLoad != 1 || ack.RetryAfterMs <= 0) {
				t.Errorf("ack = %+v, want accepted %v, an error with %q, temporary %v", ack, tt.want == "", tt.want,
					tt.temporary)
			}
		})
	}
	if s := r.stop(syscall.SIGTERM); s.Sessions.Opened != 2 || s.Sessions.Refused != uint64(len(tests)-2) {
		t.Errorf("sessions = %+v, want 2 opened and %d refused", s.Sessions, len(tests)-2)
	}
}

// demoOpen returns an open that fits the demo policy.
func demoOpen(t *testing.T, uuid string) wire.SessionOpen {
	t.Helper()
	bundle, err := policy.LoadBundle(filepath.Join(demo, "bundle"))
	if err != nil {
		t.Fatal(err)
	}
	return wire.SessionOpen{
		ClientUUID:    uuid,
		RobotType:     "so101",
		FPS:           60,
		ActionNames:   bundle.ActionNames,
		CameraNames:   []string{"observation.images.top"},
		StateDim:      len(bundle.StateNames),
		SchemaVersion: wire.SchemaVersion,
		RTCEnabled:    true,
	}
}

func openSession(t *testing.T, network wire.Session, prefix string, o wire.SessionOpen) (ack wire.SessionAck) {
	t.Helper()
	replies, err := network.Get(t.Context(), wire.SessionKey(prefix), wire.AppendSessionOpen(nil, &o), patience)
	if err != nil || len(replies) != 1 {
		t.Fatalf("open: %v, %v, want one reply", replies, err)
	}
	if err := wire.ParseSessionAck(&ack, replies[0].Payload); err != nil {
		t.Fatal(err)
	}
	return ack
}

// arm is a robot that sends a request and waits for the chunk.
type arm struct {
	t       *testing.T
	actions chan wire.ActionChunk
	events  chan wire.Event
	obs     wire.Publisher
	body    wire.Observation
	episode uint32
}

func newArm(t *testing.T, network wire.Session, prefix string) *arm {
	t.Helper()
	return newArmNamed(t, network, prefix, "test-arm")
}

func newArmNamed(t *testing.T, network wire.Session, prefix, uuid string) *arm {
	t.Helper()
	bundle, err := policy.LoadBundle(filepath.Join(demo, "bundle"))
	if err != nil {
		t.Fatal(err)
	}
	a := joinArm(t, network, prefix, demoOpen(t, uuid))
	encoder, err := jpeg.NewEncoder(90, jpeg.ChromaOfPicture)
	if err != nil {
		t.Skip(err)
	}
	defer encoder.Close()
	camera := bundle.Cameras[0]
	picture := make([]byte, jpeg.MaxSize(camera.W, camera.H, jpeg.Chroma420))
	n, err := encoder.EncodeRGB(picture, make([]byte, camera.Bytes()), camera.W, camera.H)
	if err != nil {
		t.Fatal(err)
	}
	a.body = wire.Observation{
		State:               []float32{40, -30, 90, 10, -40, 0},
		Images:              []wire.Image{{Name: "observation.images.top", Data: picture[:n]}},
		InferenceDelaySteps: 3, PrefixRobot: a.prefix(),
	}
	return a
}

// joinArm opens a session.
func joinArm(t *testing.T, network wire.Session, prefix string, open wire.SessionOpen) *arm {
	t.Helper()
	a := &arm{t: t, actions: make(chan wire.ActionChunk, 1), events: make(chan wire.Event, 8)}
	if ack := openSession(t, network, prefix, open); !ack.Accepted {
		t.Fatalf("ack = %+v", ack)
	}
	key, _ := wire.ActionKey(prefix, open.ClientUUID)
	if _, err := network.Subscribe(key, a.receive); err != nil {
		t.Fatal(err)
	}
	key, _ = wire.ObsKey(prefix, open.ClientUUID)
	var err error
	if a.obs, err = network.Publisher(key, wire.ObservationQoS); err != nil {
		t.Fatal(err)
	}
	return a
}

// prefix returns the arm's committed actions: three rows near its state.
func (a *arm) prefix() wire.Matrix {
	return wire.Matrix{Rows: 3, Cols: 6, Data: []float32{
		40.5, -30, 90.5, 10, -40.5, 0,
		41, -30, 91, 10, -41, 0,
		41.5, -30, 91.5, 10, -41.5, 0,
	}}
}

func (a *arm) receive(s wire.Sample) {
	h, err := wire.ParseHeader(s.Attachment)
	if err == nil && h.MsgType == wire.MsgEvent {
		var e wire.Event
		if err := wire.ParseEvent(&e, s.Payload); err != nil {
			a.t.Error(err)
		}
		a.events <- e
		return
	}
	var c wire.ActionChunk
	if err == nil && h.MsgType == wire.MsgActionChunk {
		err = wire.ParseActionChunk(&c, s.Payload)
	}
	if err != nil || h.MsgType != wire.MsgActionChunk || c.SeqIDEcho != h.SeqID {
		a.t.Errorf("the server sent %+v %q, %v, want a chunk", h, s.Payload, err)
	}
	a.actions <- c
}

func (a *arm) ask(seq uint64) wire.ActionChunk {
	a.t.Helper()
	a.send(seq)
	c := a.answer(seq)
	if c.ChunkRobot.Rows != 50 || c.ChunkModel.Rows != 50 {
		a.t.Fatalf("request %d got %dx%d", seq, c.ChunkRobot.Rows, c.ChunkRobot.Cols)
	}
	return c
}

func (a *arm) send(seq uint64) {
	a.t.Helper()
	h := wire.Header{SchemaVersion: wire.SchemaVersion, MsgType: wire.MsgObservation, SeqID: seq, EpisodeID: a.episode}
	if err := a.obs.Put(wire.AppendObservation(nil, &a.body), wire.AppendHeader(nil, h)); err != nil {
		a.t.Fatal(err)
	}
}

func (a *arm) answer(seq uint64) wire.ActionChunk {
	a.t.Helper()
	select {
	case c := <-a.actions:
		if c.SeqIDEcho != seq {
			a.t.Fatalf("request %d got the answer to %d", seq, c.SeqIDEcho)
		}
		return c
	case <-time.After(patience):
		a.t.Fatalf("request %d got no answer", seq)
		return wire.ActionChunk{}
	}
}
