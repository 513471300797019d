package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server"
	"github.com/edge-rt/edge-rt/server/audit"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/stage"
	"github.com/edge-rt/edge-rt/stage/stagetest"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

const (
	demo      = "../../testdata/demo"
	stopLimit = 2 * time.Second  // longest time from SIGTERM to the end of the process
	patience  = 30 * time.Second // only a failing test waits so long
)

var built string

// TestMain builds the program once: these tests run it as a user would.
func TestMain(m *testing.M) {
	dir := rttest.OrPanic(os.MkdirTemp("", "lean-server-test-"))
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

// leanServer runs the program to its end and returns exit code and outputs.
func leanServer(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	p := stagetest.Command(t, built, args...)
	p.Env = append(p.Env, env...)
	return p.Run()
}

// refusal is a command line that lean-server refuses with one line on standard error.
type refusal stagetest.Refusal

func (r refusal) check(t *testing.T, before ...string) {
	t.Helper()
	stagetest.Refusal(r).Check(t, func(t *testing.T, args ...string) (int, string, string) {
		t.Helper()
		return leanServer(t, nil, args...)
	}, before...)
}

// checked runs lean-server check on a manifest and returns its report, as a value and as text.
func checked(t *testing.T, manifest string, args ...string) (r server.Report, text string) {
	t.Helper()
	code, stdout, stderr := leanServer(t, nil, append([]string{"check", "--manifest", manifest, "--json", "-"},
		args...)...)
	if err := json.Unmarshal([]byte(stdout), &r); code != 0 || err != nil {
		t.Fatalf("check = %d, %v, %s%s", code, err, stdout, stderr)
	}
	var b strings.Builder
	rttest.Do(t, r.Print(&b))
	return r, b.String()
}

const demoManifest = demo + "/server.yaml"

// writeManifest writes a manifest and returns its path.
func writeManifest(t *testing.T, text string) string {
	t.Helper()
	return rttest.WriteFile(t, t.TempDir(), "server.yaml", text)
}

// demoBundle returns the line of a manifest that names the demo's bundle.
func demoBundle(t *testing.T) string {
	t.Helper()
	bundle := rttest.Must(filepath.Abs(demo + "/bundle"))(t)
	return fmt.Sprintf("model: {repo_or_path: %q}\n", bundle)
}

// copiedBundle copies the demo's bundle into a folder, beside a manifest that serves it.
func copiedBundle(t *testing.T) (manifest, bundle string) {
	t.Helper()
	dir := t.TempDir()
	bundle = filepath.Join(dir, "bundle")
	rttest.Do(t, os.CopyFS(bundle, os.DirFS(demo+"/bundle")))
	return rttest.WriteFile(t, dir, "server.yaml", "model: {repo_or_path: bundle}\n"), bundle
}

// brokenBundle copies the demo bundle, changes the description and one file with change, and corrects that file's
// digest. It returns a manifest that serves the copy.
func brokenBundle(t *testing.T, file string, change func(data []byte, meta map[string]any) []byte) string {
	t.Helper()
	manifest, bundle := copiedBundle(t)
	data := rttest.Must(os.ReadFile(filepath.Join(bundle, file)))(t)
	meta := map[string]any{}
	rttest.ReadJSON(t, bundle+"/bundle.json", &meta)
	data = change(data, meta)
	sum := sha256.Sum256(data)
	meta["files"].(map[string]any)[file] = hex.EncodeToString(sum[:])
	text := rttest.Must(json.Marshal(meta))(t)
	rttest.WriteFile(t, bundle, file, data)
	rttest.WriteFile(t, bundle, "bundle.json", text)
	return manifest
}

// falsified changes the first value of a tensor of a golden set, so that a correct graph does not
// reproduce it.
func falsified(t *testing.T, file []byte, tensor string) []byte {
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
	return file
}

// A program that was copied out of its installation has no demo.
func TestDemoOutsideAnInstallation(t *testing.T) {
	copied := rttest.WriteFile(t, t.TempDir(), "lean-server", rttest.ReadFile(t, built))
	if code, stdout, stderr := stagetest.Command(t, copied, "--demo").Run(); code != 3 || stdout != "" ||
		!strings.Contains(stderr, "share/edge-rt/demo, which an installation has") {
		t.Errorf("exit code %d, %q on standard output, %s", code, stdout, stderr)
	}
}

// With --demo and no manifest, the configuration is the demo's, for each robot that has a demo.
func TestDemoHasItsOwnManifest(t *testing.T) {
	t.Chdir("../..")
	for robot, suffix := range map[string]string{"": "", "so101": "", "bi_so101": "-bi_so101", "lekiwi": "-lekiwi"} {
		f := flags{Demo: true, Robot: robot}
		cfg, err := f.config()
		if err != nil || cfg.Service != "demo" || cfg.Model.ID != "demo/around-the-post"+suffix {
			t.Errorf("%s: config = %+v, %v, want the demo's", robot, cfg, err)
		}
	}
}

// The server warns of a manifest key that flags set to two values, as of any other flag that is given twice.
func TestAKeyIsGivenTwice(t *testing.T) {
	var said strings.Builder
	_, overrides, err :=
		manifest.Overrides(strings.Fields("--model.device cpu --threads 2 --model.device=cuda --threads 2"),
			func(string) bool { return false })
	if repeated(overrides, &said); err != nil ||
		said.String() != "lean-server: --model.device is given more than once (cpu, cuda): the last one counts\n" {
		t.Errorf("%v, said %q", err, &said)
	}
	said.Reset()
	repeated([]manifest.Override{{Key: "model.api_key", Value: "3141"}, {Key: "model.api_key", Value: "2718"}}, &said)
	repeated([]manifest.Override{{Key: "model.url", Value: "ws://314@b"}, {Key: "model.url", Value: "ws://b"}}, &said)
	if !strings.Contains(said.String(), "((hidden), (hidden))") ||
		!strings.Contains(said.String(), "(ws://xxxxx@b, ws") {
		t.Errorf("said %q, want no secret", &said)
	}
}

func TestBadInput(t *testing.T) {
	taken := rttest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer taken.Close()
	port, free := fmt.Sprint(taken.Addr().(*net.TCPAddr).Port), freePort(t)
	good := "--manifest " + demoManifest + " "
	text := func(text string) string { return "--manifest " + writeManifest(t, text) + " " }
	for _, tt := range []refusal{
		{good + "--traces host:4318", 2, `--traces: "host:4318" is no address`},
		{"", 2, "--manifest|server.yaml"},
		{good + "--demo", 2, "--demo|--manifest"},
		{"--manifst x", 2, "--manifst|--help"},
		{"serf", 2, "serf"},
		{good + "--robot bi_so101", 2, "--robot bi_so101|--demo"},
		{"--demo --robot koch", 2, `"koch"|bi_so101`},
		{good + "--health-port x", 2, "health-port"},
		{good + "--health-port 65536", 2, "--health-port is 65536|65535"},
		{"--manifest none.yaml", 3, "none.yaml|--manifest"},
		{text("model: {repo_or_path: b}\nmax_session: 3\n"), 3, `server.yaml:2:|"max_session"|"max_sessions"`},
		{text("max_sessions: four\n"), 3, "server.yaml:1:|max_sessions|whole number|four"},
		{text("a: [\n"), 3, "server.yaml:1:|YAML"},
		{text("\nmodel: {repo_or_path: nothing-here}\n"), 3, "server.yaml:2:|nothing-here|bundle"},
		{good + "--listen localhost:7447", 2, "--listen|localhost:7447|tcp/"},
		{good + "--connect quic/router:7447", 2, "--connect|quic/router:7447|tls/"},
		{good + "--listen tls/127.0.0.1:" + free, 3, "tls/|certificate to show"},
		{text("model: {repo_or_path: b}\nzenoh:\n  listen_endpoints: [\"tls/127.0.0.1:" + free +
			"\"]\n  tls: {listen_certificate: none.pem, listen_private_key: none.key}\n"), 3,
			"server.yaml:4:|none.pem|no such file"},
		{good + "--health-port " + port, 1, "health_port|" + port + "|in use"},
		// The server checks the port before it loads the policy, so it reports the port even without ONNX Runtime.
		{good + "--health-port 0 --ort /nowhere --listen tcp/127.0.0.1:" + port, 1,
			"listen_endpoints|" + port + "|in use|--listen"},
		{text("model: {repo_or_path: b}\ndebug: {capture_max: 5000}\n"), 3,
			"server.yaml:2:|debug.capture_max|5000|4096"},
		{text("model: {repo_or_path: b}\nhealth_port: 0\nzenoh: {listen_endpoints: [\"tcp/127.0.0.1:" + free +
			"\"]}\ndebug: {capture_dir: server.yaml}\n"), 3, "server.yaml:4:|debug.capture_dir"},
		{good + "--health-port 0 --audit /nowhere/audit.jsonl --listen tcp/127.0.0.1:" + free, 2,
			"--audit|/nowhere/audit.jsonl"},
		{good + "--ort /nowhere --json " + t.TempDir(), 2, "--json|is a directory"},
		{"acl " + text("model: {repo_or_path: b, id: m}\nrouters: [boss]\n"), 3, "clients is empty|common name"},
		{"acl " + text("model: {repo_or_path: b, id: m}\nclients: [arm-a]\n"), 3,
			"zenoh.tls.connect_certificate|routers"},
		{"acl " + text("model: {repo_or_path: b, id: m}\nrouters: [arm-a]\nclients: [arm-a]\n"), 3,
			`server.yaml:3:|"arm-a" is named twice`},
		{"acl " + text("model: {repo_or_path: b}\nrouters: [boss]\nclients: [arm-a]\n"), 3,
			"server.yaml:1:|not a bundle directory"},
		{"acl " + text("model: {repo_or_path: b, id: m}\nrouters: [boss]\nclients: [arm-a]\n") + "-o " + t.TempDir(), 2,
			"--output|is a directory"},
		{"replay " + good, 2, "replay DIR|debug.capture_dir"},
		{"replay " + t.TempDir() + " " + good, 2, "no captured requests|debug.capture_dir"},
	} {
		tt.check(t, "--quiet")
	}
	// The instructions for getting ONNX Runtime are several lines, after the line of the error.
	code, _, stderr := leanServer(t, nil, "--quiet", "--manifest", demoManifest, "--ort", "/nowhere/libonnxruntime.so")
	rttest.Want(t, code, 3, "no ONNX Runtime: code")
	stagetest.CheckSays(t, stderr, "ONNX Runtime|/nowhere|pip download")
}

func TestBrokenBundles(t *testing.T) {
	stagetest.NeedsRuntime(t)
	for _, tt := range []struct {
		file   string
		change func(data []byte, _ map[string]any) []byte
		says   string
	}{
		{"policy.onnx", func(data []byte, _ map[string]any) []byte { return data[:1000] }, "policy.onnx"},
		{"golden/b1_mode0.safetensors", func(data []byte, _ map[string]any) []byte {
			return falsified(t, data, "out/chunk_robot")
		}, "golden|b1_mode0|chunk_robot"},
		{"policy.onnx", func(data []byte, _ map[string]any) []byte {
			return bytes.ReplaceAll(data, []byte("chunk_robot"), []byte("other_robot"))
		}, "chunk_robot"},
	} {
		refusal{"--manifest " + brokenBundle(t, tt.file, tt.change), 3, tt.says}.check(t, "--quiet")
	}
	// The server refuses a file that does not match its digest before it searches for ONNX Runtime.
	manifest, bundle := copiedBundle(t)
	rttest.Do(t, os.Truncate(bundle+"/policy.onnx", 1000))
	refusal{"check --ort /nowhere --manifest " + manifest, 3, "policy.onnx|sha256"}.check(t)
}

// The server refuses an ONNX Runtime of another version, or a library that falsely reports the right version, before it
// runs any function of the library.
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
	rttest.WriteFile(t, dir, "ort.c", source)
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
			code, stdout, stderr := leanServer(t, nil, "--quiet", "--manifest", demoManifest, "--health-port", "0",
				"--listen", "tcp/127.0.0.1:"+freePort(t), "--ort", lib)
			first, _, _ := strings.Cut(stderr, "\n")
			if code != 3 || stdout != "" {
				t.Errorf("exit code %d, %q, want 3", code, stdout)
			}
			stagetest.CheckSays(t, first, "ONNX Runtime|"+lib+"|"+tt.want)
		})
	}
}

// The documentation and --help list exactly the program's exit codes.
func TestExitCodesAreDocumented(t *testing.T) {
	page := rttest.ReadFile(t, "../../docs/server.md")
	_, table, _ := strings.Cut(page, "## Exit codes")
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
	rttest.Want(t, strings.Count(table, "\n| ")-1, len(codes), "exit codes in docs/server.md")
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
	stagetest.CheckSays(t, stdout, "Examples:|testdata/demo/server.yaml|LEAN_SERVER_MANIFEST|Exit codes")
}

func TestCheckSaysWhatWouldBeServed(t *testing.T) {
	stagetest.NeedsRuntime(t)
	r, text := checked(t, demoManifest)
	if r.Prefix != "@lerobot/demo-around-the-post/main/demo" || r.Model != "demo/around-the-post" || r.FPS != 60 ||
		r.ChunkSize != 50 || len(r.ActionNames) != 6 || r.MaxSessions != 5 ||
		len(r.Listen) != 1 || r.Listen[0] != manifest.DefaultListen || r.InferenceMs <= 0 ||
		r.Cameras[0] != "observation.images.top 120x160" {
		t.Errorf("report = %+v", r)
	}
	// row is the number of bytes for a robot: a picture of one byte per value; state, noise, prefix, both
	// chunks, beta and sigma_d of four bytes each; prefix_len, delay, prefix_end, rtc_mode and schedule of
	// eight bytes each.
	const row = 120*160*3 + 4*(6+50*6+50*6+2*50*6+2) + 8*5
	if r.TensorBytes < row || r.TensorBytes%row != 0 {
		t.Errorf("%d bytes of tensors, want rows of %d", r.TensorBytes, row)
	}
	stagetest.CheckSays(t, text, fmt.Sprintf("tensors    %.1f MiB of inputs and outputs\n",
		float64(r.TensorBytes)/(1<<20)))
}

// If the manifest has the name of a model on the hub instead of a folder, the server fetches nothing. The error
// explains how to make a bundle from the model.
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
	refusal{"check --manifest " + writeManifest(t, demoBundle(t)+"conditioning: {beta: 900}\n"), 3,
		":2: policy: beta is 900"}.check(t)
	refusal{"check --manifest " + writeManifest(t, "service: pick\n"), 3, ": model.repo_or_path is required"}.check(t)
}

// check shows where clients of foreign protocols connect.
func TestCheckShowsTheFronts(t *testing.T) {
	stagetest.NeedsRuntime(t)
	r, text := checked(t, writeManifest(t, demoBundle(t)+
		`fronts: {lerobot: {listen: "127.0.0.1:8080"}, openpi: {listen: "127.0.0.1:8000"}}`+"\n"))
	stagetest.CheckSays(t, text, "  lerobot    127.0.0.1:8080\n  openpi     127.0.0.1:8000\n  health")
	if len(r.Fronts) != 2 || r.Fronts["openpi"] != "127.0.0.1:8000" {
		t.Errorf("fronts are %v", r.Fronts)
	}
}

// Files in a bundle's folder that are not part of the bundle do not change the bundle's digest, and check names
// each of them once.
func TestCheckNamesTheFilesThatAreNotTheBundles(t *testing.T) {
	stagetest.NeedsRuntime(t)
	manifest, bundle := copiedBundle(t)
	clean, text := checked(t, manifest)
	if clean.Unlisted != nil || strings.Contains(text, "beside it") {
		t.Errorf("a clean bundle's report names %q: %s", clean.Unlisted, text)
	}
	for _, name := range []string{".cache/huggingface/download/policy.onnx.metadata", "golden/._b1.safetensors",
		".DS_Store", "an\x1b[2J"} {
		rttest.WriteFile(t, bundle, name, "x")
	}
	r, text := checked(t, manifest)
	const line = "\n  beside it  .DS_Store, .cache/, \"an\\x1b[2J\", golden/._b1.safetensors: not listed in " +
		"bundle.json, so not read and not in the digest\n"
	if r.SHA256 != clean.SHA256 || r.UnlistedAll != 4 || strings.Count(text, line) != 1 {
		t.Errorf("digest %.12s, want %.12s; %d unlisted, want 4; report %s, want %q", r.SHA256, clean.SHA256,
			r.UnlistedAll, text, line)
	}
}

// check reports that robots with a real arm refuse a bundle.
func TestCheckNamesABundleForSimulation(t *testing.T) {
	stagetest.NeedsRuntime(t)
	for _, only := range []bool{true, false} {
		r, text := checked(t, brokenBundle(t, "policy.onnx", func(data []byte, meta map[string]any) []byte {
			if !only {
				delete(meta, "simulation_only")
			}
			return data
		}))
		if said := strings.Contains(text, "simulation_only: robots with a real arm refuse it\n"); said != only ||
			r.Simulation != only {
			t.Errorf("check of simulation_only %v: %v, %s", only, r.Simulation, text)
		}
	}
}

// Only serve creates the audit file. Other commands do not, although the same variables name the file.
func TestOnlyServingCreatesTheAuditFile(t *testing.T) {
	stagetest.NeedsRuntime(t)
	dir := t.TempDir()
	for _, args := range [][]string{{"check"}, {"replay", dir}, {"replay", "nowhere"}} {
		file := filepath.Join(t.TempDir(), "audit.jsonl")
		leanServer(t, []string{"LEAN_SERVER_MANIFEST=" + demoManifest,
			"LEAN_SERVER_AUDIT=" + file}, args...)
		rttest.FailsAs(t, rttest.Err(os.Stat(file)), os.ErrNotExist)
	}
	code, _, stderr := leanServer(t, []string{"LEAN_SERVER_MANIFEST=" + demoManifest,
		"LEAN_SERVER_AUDIT=/nowhere/audit.jsonl"}, "check")
	rttest.Want(t, code, 0, "check with an audit file that it does not write (%s)", stderr)
}

// running is the program while it serves.
type running struct {
	*stagetest.Program
	t        *testing.T
	endpoint string
	health   string
	json     string
}

// command returns the program with the demo's manifest, not yet started; args may name another one.
func command(t *testing.T, args ...string) *running {
	t.Helper()
	stagetest.NeedsRuntime(t)
	port := freePort(t)
	r := &running{
		t:        t,
		endpoint: "tcp/127.0.0.1:" + freePort(t),
		health:   "http://127.0.0.1:" + port,
		json:     filepath.Join(t.TempDir(), "summary.json"),
	}
	if !slices.Contains(args, "--manifest") {
		args = append(args, "--manifest", demoManifest)
	}
	r.Program = stagetest.Command(t, built, append([]string{"--listen", r.endpoint, "--health-port", port, "--json",
		r.json}, args...)...)
	return r
}

// start starts the program that command returns.
func start(t *testing.T, args ...string) *running {
	t.Helper()
	r := command(t, args...)
	r.Start()
	return r
}

// serve starts the program that command returns, and returns once it serves. The results are the program, a link to
// it, and its key prefix.
func serve(t *testing.T, args ...string) (r *running, network wire.Session, prefix string) {
	t.Helper()
	r = start(t, args...)
	r.awaitReady()
	network, prefix = r.dial()
	return r, network, prefix
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
	_, port := stagetest.FreeEndpoint(t)
	return port
}

// page returns the HTTP status of a page and the page's text; code is 0 if the server does not answer.
func (r *running) page(name string) (code int, text string) {
	response, err := http.Get(r.health + name)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(all)
}

// get returns the HTTP status of a page.
func (r *running) get(page string) int {
	code, _ := r.page(page)
	return code
}

// metrics reads /metrics; labels stay in the names.
func (r *running) metrics() map[string]float64 {
	r.t.Helper()
	code, text := r.page("/metrics")
	if code != http.StatusOK {
		r.t.Fatalf("/metrics: %d, %s", code, text)
	}
	return rttest.OrPanic(stage.ReadMetrics(strings.NewReader(text)))
}

// end sends sig, and checks that the program ends with code 0 and leaves no listening socket. It returns the time
// until the end.
func (r *running) end(sig os.Signal) (took time.Duration) {
	r.t.Helper()
	code, took := r.leave(sig)
	if code != 0 {
		r.t.Errorf("ended after %v with %d, want a clean end:\n%s", took, code, r.Log)
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

// leave sends sig, and returns the exit code and the time until the end.
func (r *running) leave(sig os.Signal) (code int, took time.Duration) {
	r.t.Helper()
	began := time.Now()
	code = r.End(sig)
	return code, time.Since(began)
}

// stop does the same as end, and returns the summary.
func (r *running) stop(sig os.Signal) server.Summary {
	r.t.Helper()
	r.end(sig)
	return r.summary()
}

func (r *running) summary() (s server.Summary) {
	r.t.Helper()
	rttest.ReadJSON(r.t, r.json, &s)
	return s
}

func TestIdleServerStopsOnEitherSignal(t *testing.T) {
	rttest.RealTime(t)
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			r := start(t)
			r.awaitReady()
			for _, page := range []string{"/healthz", "/metrics"} {
				rttest.Want(t, r.get(page), http.StatusOK, "status of %s", page)
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

// In lean-server | head, the reader ends before the server, so the log and the final table have no reader. The server
// still serves until a signal ends it, and ends without an error.
func TestServerOutlivesItsReader(t *testing.T) {
	pipe, out, err := os.Pipe()
	rttest.Do(t, err)
	r := command(t)
	r.Stdout, r.Stderr = out, out
	r.Start()
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
	network = rttest.OrPanic(zenoh.Open(r.t.Context(), zenoh.Config{Connect: []string{r.endpoint}}))
	r.t.Cleanup(func() { _ = network.Close() }) // an error only means that the test has closed the network
	keys, err := network.Tokens(r.t.Context(), wire.ServerAliveAny, time.Second)
	if err != nil || len(keys) != 1 {
		r.t.Fatalf("servers alive: %v, %v, want one", keys, err)
	}
	service := rttest.OrPanic(wire.ServiceOf(keys[0]))
	return network, service.Prefix()
}

// The real program serves the real policy over real TCP. Every observation gets its chunk, which begins with the
// trained prefix. The robot gets an event when the server ends. The process allocates almost nothing for a request.
func TestServesTheDemoPolicy(t *testing.T) {
	serveDemo(t)
}

// The real program serves the policy with audit and captures, too: there is one audit line for each request, and the
// server captures the newest requests. A replay of each capture gives the same answer byte for byte.
func TestServesOnTheRecord(t *testing.T) {
	const captures = 12
	dir := t.TempDir()
	path := writeManifest(t, demoBundle(t)+fmt.Sprintf("debug: {capture_dir: %q, capture_max: %d}\n",
		filepath.Join(dir, "captures"), captures))
	audit := filepath.Join(dir, "audit.jsonl")
	serveDemo(t, "--manifest", path, "--audit", audit)

	type line struct {
		Client  string  `json:"client_uuid"`
		Seq     uint64  `json:"seq_id"`
		Outcome string  `json:"outcome"`
		Mode    string  `json:"conditioning"`
		Ms      float64 `json:"inference_ms"`
	}
	lines := rttest.Must(stage.ReadAudit[line](audit, false))(t)
	for i, a := range lines {
		if a.Client != "test-arm" || a.Seq != uint64(i+1) || a.Outcome != "ok" || a.Mode != "trained" || a.Ms <= 0 {
			t.Fatalf("audit line %d = %+v", i, a)
		}
	}
	rttest.Want(t, len(lines), demoRequests, "audit lines")
	replay := func() (code int, stdout, stderr string) { return leanServer(t, nil, "replay", "--manifest", path) }
	if code, stdout, stderr := replay(); code != 0 ||
		stdout != fmt.Sprintf("%d captured requests: %[1]d answered byte for byte as then, 0 not, 0 unreadable\n",
			captures) {
		t.Errorf("replay = %d, %s%s", code, stdout, stderr)
	}
	other := writeManifest(t, strings.Replace(demoBundle(t), "/bundle", "/still", 1))
	refusal{"replay " + dir + "/captures --manifest " + other, 2,
		fmt.Sprintf("%d with bundle|give the manifest of the bundle that answered", captures)}.check(t)
	torn := filepath.Join(dir, "captures", "request-00003.safetensors")
	rttest.Do(t, os.Truncate(torn, 1000))
	if code, stdout, stderr := replay(); code != 1 || !strings.Contains(stdout, torn) ||
		strings.Count(stderr, "\n") != 1 {
		t.Errorf("replay with a torn file = %d, %s%s, want 1 and its name", code, stdout, stderr)
	}
}

const demoRequests = 400

// serveDemo requests chunks of the demo policy and stops the server. It checks that the server has allocated at most
// three objects for four requests.
func serveDemo(t *testing.T, args ...string) {
	t.Helper()
	r, network, _ := serve(t, args...)
	arm := newArm(t, network)
	for seq := 1; seq <= demoRequests; seq++ {
		chunk := arm.ask()
		for i, want := range committed.Data {
			if got := chunk.ChunkRobot.Data[i]; got-want > 1e-3 || want-got > 1e-3 {
				t.Fatalf("request %d: value %d of the hard prefix = %v, want %v", seq, i, got, want)
			}
		}
	}
	s := r.stop(syscall.SIGTERM)
	select {
	case e := <-arm.Events:
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
	// A request itself must not allocate. The rest does: opening the session and the links, buffers that grow, and
	// the runtime when it starts a thread, on a busy machine some 200 objects. rt.ReadHeap counts the objects of a
	// span all at once.
	if most := uint64(demoRequests * 3 / 4); s.PathMallocs > most {
		t.Errorf("the process allocated %d objects for %d requests, want at most %d", s.PathMallocs, demoRequests, most)
	}
	rttest.Want(t, s.GCCycles, s.GCForced, "collections")
	t.Logf("%d requests, %d objects, %d collections, inference p50 %.2f ms, service p99 %.2f ms", s.Requests,
		s.PathMallocs, s.GCCycles, s.InferenceMs.P50, s.ServiceMs.P99)
}

// demoOpen returns a request for a session that fits the demo policy.
func demoOpen(t *testing.T, uuid string) wire.SessionOpen {
	t.Helper()
	bundle := rttest.Must(policy.LoadBundle(filepath.Join(demo, "bundle")))(t)
	open := stage.OpenOf(&bundle.Meta, uuid)
	open.SessionEpoch = 0 // the robot declares no token
	return open
}

func openSession(t *testing.T, network wire.Session, prefix string, o wire.SessionOpen) (ack wire.SessionAck) {
	t.Helper()
	replies, err := network.Get(t.Context(), wire.SessionKey(prefix), wire.Append(nil, &o), patience)
	if err != nil || len(replies) != 1 {
		t.Fatalf("open: %v, %v, want one reply", replies, err)
	}
	rttest.Do(t, wire.Parse(&ack, replies[0].Payload))
	return ack
}

// arm is a robot that sends a request and waits for the chunk.
type arm struct {
	*stage.FakeRobot
	t *testing.T
}

func newArm(t *testing.T, network wire.Session) *arm {
	t.Helper()
	return newArmNamed(t, network, "test-arm")
}

func newArmNamed(t *testing.T, network wire.Session, uuid string) *arm {
	t.Helper()
	bundle, err := policy.LoadBundle(demo + "/bundle")
	rttest.Do(t, err)
	a := joinArm(t, network, stage.OpenOf(&bundle.Meta, uuid), bundle.ChunkSize)
	if a.Observation, err = stage.ObservationOf(&bundle.Meta, 3); err != nil {
		t.Skip(err)
	}
	a.Observation.State = []float32{40, -30, 90, 10, -40, 0}
	a.Observation.PrefixRobot = committed
	return a
}

// joinArm opens a session and returns an arm that receives chunks; rows is the number of rows of a chunk.
func joinArm(t *testing.T, network wire.Session, open wire.SessionOpen, rows int) *arm {
	t.Helper()
	r := rttest.Must(stage.OpenFakeRobot(t.Context(), network, open, rows))(t)
	return &arm{r, t}
}

// committed are an arm's committed actions: three rows near its state.
var committed = wire.Matrix{Rows: 3, Cols: 6, Data: []float32{
	40.5, -30, 90.5, 10, -40.5, 0,
	41, -30, 91, 10, -41, 0,
	41.5, -30, 91.5, 10, -41.5, 0,
}}

func (a *arm) ask() wire.ActionChunk {
	a.t.Helper()
	a.send()
	return a.answer()
}

func (a *arm) send() {
	a.t.Helper()
	rttest.PanicOn(a.Send())
}

func (a *arm) answer() wire.ActionChunk {
	a.t.Helper()
	if _, ok := a.Await(a.t.Context(), patience); !ok || a.Failures() > 0 {
		a.t.Fatalf("request %d: answered %v, %d failures", a.Header.SeqID, ok, a.Failures())
	}
	return a.Chunk
}

// A command that fails before it has a result writes JSON that describes its end.
func TestJSONOfAFailure(t *testing.T) {
	for _, command := range []string{"check", "plan", "replay captures", "serve"} {
		args := append(strings.Fields(command), "--manifest", filepath.Join(t.TempDir(), "none.yaml"), "--json", "-")
		code, stdout, stderr := leanServer(t, nil, args...)
		var end struct {
			Exit server.Ending `json:"exit"`
		}
		if err := json.Unmarshal([]byte(stdout), &end); err != nil || code != 3 || end.Exit.Code != 3 ||
			!strings.Contains(stderr, end.Exit.Reason) {
			t.Errorf("%s: code %d, %v, %q\n%s", command, code, err, stdout, stderr)
		}
	}
}
