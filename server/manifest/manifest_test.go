package manifest

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint/endpointtest"
)

func load(t *testing.T, text string) (Config, error) {
	t.Helper()
	return Load(write(t, text))
}

func TestPathsAreExpanded(t *testing.T) {
	t.Setenv("HOME", "/u")
	cfg, err := load(t, "model: {repo_or_path: ~/bundle}\ndebug: {capture_dir: $HOME/captures}\n")
	if err != nil || cfg.Model.RepoOrPath != "/u/bundle" || cfg.Debug.CaptureDir != "/u/captures" {
		t.Errorf("Load = %q and %q (%v), want /u/bundle and /u/captures", cfg.Model.RepoOrPath, cfg.Debug.CaptureDir,
			err)
	}
}

// An interpreter beside the manifest is not sought in $PATH, even if the manifest is in the working directory.
func TestAnInterpreterBesideTheManifest(t *testing.T) {
	file := write(t, "model: {runtime: lerobot, repo_or_path: a, python: ./python}\n")
	folder := filepath.Dir(file)
	t.Chdir(folder)
	for flag, want := range map[string]string{"": folder + "/python", "venv/python": folder + "/venv/python",
		"python3": "python3"} {
		var given []Override
		if flag != "" {
			given = append(given, Override{"model.python", flag})
		}
		cfg := rttest.Must(Load(filepath.Base(file), given...))(t)
		rttest.Want(t, cfg.Model.Python, want, "model.python %s", flag)
	}
}

func TestARevisionOnTheHub(t *testing.T) {
	cfg := rttest.Must(load(t, "model: {repo_or_path: me/pick@v1.0}\n"))(t)
	rttest.Fails(t, cfg.BundleError(errors.New("no folder")), "`hf download me/pick --revision v1.0 --local-dir pick`")
	rttest.Want(t, cfg.HubName(), "", "HubName()")
}

// A manifest with every key.
const fullManifest = `
model:
  {
    runtime: onnx,
    repo_or_path: bundle,
    id: lerobot/pi0_towels,
    revision: main,
    dtype: null,
    device: cpu,
  }
service: demo
default_task: "fold the towel"
pin_task: true
serving_mode: shared
max_sessions: 7
warmup_inferences: 3
strict_fps: true
clients: [arm-1, "arm-2"]
scheduler: round_robin
max_batch: 4
batch_window_ms: 2.5
decode_threads: 2
threads: 3
conditioning: { mode: trained_guided, schedule: exp, sigma_d: 0.2, beta: 5 }
zenoh:
  connect_endpoints: ["tls/router.gpu-cluster.internal:7447"]
  listen_endpoints:
    - tcp/0.0.0.0:7447
  tls:
    root_ca_certificate: ca.pem
    connect_certificate: /etc/edge/cert.pem
    connect_private_key: key.pem
    listen_certificate: cert.pem
    listen_private_key: key.pem
    enable_mtls: true
    verify_name_on_connect: false
health_port: 0
debug: { capture_dir: null, capture_max: 16 }
`

func TestLoadReadsEveryKey(t *testing.T) {
	cfg := rttest.Must(load(t, fullManifest))(t)
	dir := filepath.Dir(cfg.file)
	want := Default()
	want.Model.RepoOrPath, want.Model.ID = filepath.Join(dir, "bundle"), "lerobot/pi0_towels"
	want.Service, want.DefaultTask = "demo", "fold the towel"
	want.PinTask, want.StrictFPS = true, true
	want.ServingMode, want.MaxSessions = "shared", 7
	want.WarmupInferences, want.Clients = 3, []string{"arm-1", "arm-2"}
	want.Scheduler, want.MaxBatch = "round_robin", 4
	want.BatchWindowMS, want.DecodeThreads = 2.5, 2
	want.Threads, want.HealthPort = 3, 0
	want.Conditioning = Conditioning{Mode: "trained_guided", Schedule: "exp", SigmaD: 0.2, Beta: 5}
	want.Zenoh = Zenoh{
		ConnectEndpoints: []string{"tls/router.gpu-cluster.internal:7447"},
		ListenEndpoints:  []string{"tcp/0.0.0.0:7447"},
		TLS: TLS{
			RootCACertificate: filepath.Join(dir, "ca.pem"), ConnectCertificate: "/etc/edge/cert.pem",
			ConnectPrivateKey: filepath.Join(dir, "key.pem"), ListenCertificate: filepath.Join(dir, "cert.pem"),
			ListenPrivateKey: filepath.Join(dir, "key.pem"), EnableMTLS: true,
		},
	}
	want.Debug.CaptureMax = 16
	wantValues(t, &cfg, &want)
}

// wantValues expects that two manifests have the same values.
func wantValues(t *testing.T, got, want *Config) {
	t.Helper()
	wants := want.Settings()
	for i, s := range got.Settings() {
		if !reflect.DeepEqual(s.Value, wants[i].Value) {
			t.Errorf("%s is %v, want %v", s.Key, s.Value, wants[i].Value)
		}
	}
}

func TestLoadDefaults(t *testing.T) {
	cfg := rttest.Must(load(t, "model: {repo_or_path: /b}\n"))(t)
	want := Default()
	want.Model.RepoOrPath = "/b"
	wantValues(t, &cfg, &want)
	rttest.Equal(t, cfg.Listen(), []string{DefaultListen}, "Listen()")
}

// Every refusal is one line that names the manifest's line, the found value and the value to write
// instead.
func TestLoadRefuses(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"unknown key, one letter off", "model: {repo_or_path: b}\nmax_session: 3\n",
			`:2: unknown key "max_session", did you mean "max_sessions"?`},
		{"unknown key in a section", "model:\n  repo_or_path: b\n  revison: x\n",
			`:3: unknown key "model.revison", did you mean "model.revision"?`},
		{"known key in the wrong section", "model: {repo_or_path: b}\nconnect_endpoints: [tcp/a:1]\n",
			`:2: unknown key "connect_endpoints", did you mean "zenoh.connect_endpoints"?`},
		{"slip of a key of another section", "conect_endpoints: [tcp/a:1]\n",
			`:1: unknown key "conect_endpoints", did you mean "zenoh.connect_endpoints"?`},
		{"key nothing resembles", "model:\n  weights: 7\n",
			`:2: unknown key "model.weights", known to this version: runtime, repo_or_path, policy_type, id, ` +
				`revision, dtype, device, fallback, cuda_graph, cache_dir, python, dataset_info, url, api_key, inputs, compile, memory_limit`},
		{"key of a camera", "model: {inputs: {cameras: [{shape: [3, 480, 640]}]}}\n",
			`:1: unknown key "model.inputs.cameras[0].shape", known to this version: name, key, height`},
		{"slip in a camera", "model: {inputs: {cameras: [{hight: 480}]}}\n", `did you mean "model.inputs.cameras[0].height"?`},
		{"one letter", "x: 1\n", `unknown key "x", known to this version: model, service`},
		{"anchor", "service: &a b\n", `:1: service must be a string (in quotes), got an anchor, want the value itself`},
		{"tab", "model:\n\trepo_or_path: b\n", `:2: not valid YAML: found character 'tab (want spaces)'`},
		{"Latin-1", "service: a\ndefault_task: W\xfcrfel\n", `:2: line 2 is no UTF-8`},
		{"key of the draft manifest", "service_name: demo\n", `:1: unknown key "service_name": here it is service`},
		{"section of the draft manifest", "rtc:\n  enabled: true\n", `:1: unknown key "rtc": the bundle knows it`},
		{"draft key in a section", "zenoh:\n  mode: peer\n", `:2: unknown key "zenoh.mode": it follows from`},
		{"word for a number", "max_sessions: four\n",
			`:1: max_sessions must be a whole number or auto, got the string "four"`},
		{"fraction for a whole number", "max_sessions: 1.5\n",
			`:1: max_sessions must be a whole number or auto, got the number 1.5`},
		{"string for a switch", "model: {repo_or_path: b}\npin_task: \"yes\"\n",
			`:2: pin_task must be true or false, got the string "yes"`},
		{"number for a string", "model: {repo_or_path: b, revision: 1.0}\n",
			`:1: model.revision must be a string (in quotes), got the number 1.0`},
		{"string for a section", "\nmodel: bundle\n", `:2: model must be a mapping of keys, got the string "bundle"`},
		{"string for a list", "zenoh:\n  connect_endpoints: tcp/a:1\n",
			`:2: zenoh.connect_endpoints must be a list, such as [A, B], got the string "tcp/a:1"`},
		{"number in a list", "clients: [a, 7]\n", `:1: clients[1] must be a string (in quotes), got the number 7`},
		{"no such conditioning", "model: {repo_or_path: b}\nconditioning: {mode: soft}\n",
			`:2: conditioning.mode must be one of auto|off|guided|trained|trained_guided, got 'soft'`},
		{"no such schedule", "model: {repo_or_path: b}\nconditioning: {schedule: cosine}\n",
			`:2: conditioning.schedule must be one of linear|zeros|ones|exp, got 'cosine'`},
		{"a deviation of nothing", "model: {repo_or_path: b}\nconditioning: {sigma_d: 0.0}\n",
			`:2: conditioning.sigma_d must be above 0`},
		{"a negative weight", "model: {repo_or_path: b}\nconditioning: {beta: -1.0}\n",
			`:2: conditioning.beta must be 0`},
		{"list for the whole file", "- a\n- b\n", `:1: the manifest must be a mapping of keys, got a list`},
		{"key twice", "model: {repo_or_path: b}\nservice: a\nservice: b\n", `:3: `},
		{"second document", "model: {repo_or_path: b}\n---\nservice: a\n", `:2: a second document begins here`},
		{"tab and colon soup", "model: {repo_or_path: b\n", `not valid YAML`},
		{"nothing", "", `model.repo_or_path is required`},
		{"no bundle", "service: demo\n", `model.repo_or_path is required`},
		{"serving mode", "model: {repo_or_path: b}\nserving_mode: multiplexed\n",
			`:2: serving_mode must be one of auto|shared|exclusive, got 'multiplexed'`},
		{"a number beside exclusive", "model: {repo_or_path: b}\nserving_mode: exclusive\nmax_sessions: 4\n",
			`:3: max_sessions must be 1 or absent beside serving_mode exclusive, which is one session, got 4`},
		{"auto beside exclusive", "model: {repo_or_path: b}\nmax_sessions: auto\nserving_mode: exclusive\n",
			`:2: max_sessions must be 1 or absent beside serving_mode exclusive, which is one session, got auto`},
		{"memory without a unit", "model: {repo_or_path: b}\nmemory: 1\n",
			`:2: memory must be a size with a unit, such as 512MiB, got the number 1`},
		{"quoted memory without a unit", "model: {repo_or_path: b}\nmemory: \"1\"\n",
			`:2: memory is no size: got '1', want a number and a unit`},
		{"no sessions", "model: {repo_or_path: b}\n\nmax_sessions: 0\n", `:3: max_sessions must be >= 1, got 0`},
		{"too many sessions", "model: {repo_or_path: b}\nmax_sessions: 10001\n",
			`max_sessions must be <= 10000, got 10001`},
		{"number beyond int", "model: {repo_or_path: b}\nmax_sessions: 99999999999999999999\n", `:2: `},
		{"no revision", "model: {repo_or_path: b, revision: \"\"}\n", `:1: model.revision is empty`},
		{"captures in a file", "model: {repo_or_path: b}\ndebug: {capture_dir: /dev/null}\n",
			`:2: debug.capture_dir must be a folder, got the file /dev/null`},
		{"captures without end", "model: {repo_or_path: b}\ndebug: {capture_max: 5000}\n",
			`:2: debug.capture_max must be 1..4096, got 5000`},
		{"gpu", "model: {repo_or_path: b, device: gpu}\n",
			`model.device is "gpu", want auto, cpu, cuda, cuda:N, tensorrt, tensorrt:N or openvino`},
		{"number of a gpu", "model: {repo_or_path: b, device: \"cuda:x\"}\n",
			`:1: model.device is "cuda:x", want a number of 0 to 63`},
		{"dtype", "model: {repo_or_path: b, dtype: int8}\n", `model.dtype must be one of float32|float16|bfloat16`},
		{"fallback", "model: {repo_or_path: b, device: cuda, fallback: gpu}\n",
			`model.fallback must be none or cpu, got 'gpu'`},
		{"fallback of the cpu", "model: {repo_or_path: b, fallback: cpu}\n",
			`model.fallback is cpu beside model.device 'cpu'`},
		{"fallback of auto", "model: {repo_or_path: b, device: auto, fallback: cpu}\n",
			`model.fallback is cpu beside model.device 'auto'`},
		{"graph", "model: {repo_or_path: b, device: cuda, cuda_graph: true}\n",
			`model.cuda_graph is true, want false`},
		{"warmup", "model: {repo_or_path: b}\nwarmup_inferences: -1\n", `warmup_inferences must be 0..1000, got -1`},
		{"pin without task", "model: {repo_or_path: b}\npin_task: true\n",
			`:2: pin_task is true but default_task is empty`},
		{"scheduler", "model: {repo_or_path: b}\nscheduler: lottery\n",
			`scheduler must be one of runway|round_robin, got 'lottery'`},
		{"batch", "model: {repo_or_path: b}\nmax_batch: 17\n",
			`max_batch must be 1..16, or 0 for what suits the device, got 17`},
		{"batch window", "model: {repo_or_path: b}\nmax_batch: 1\nbatch_window_ms: 2.5\n",
			`batch_window_ms must be 0 while max_batch is 1, got 2.5`},
		{"long batch window", "model: {repo_or_path: b}\nbatch_window_ms: 2500\n",
			`batch_window_ms must be 0..1000, got 2500`},
		{"decode threads", "model: {repo_or_path: b}\ndecode_threads: -1\n",
			`decode_threads must be 1..16, or 0 for as many as cores are left, got -1`},
		{"no thread", "model: {repo_or_path: b}\nthreads: 0\n",
			`:2: threads must be 1..256, one for each core that an inference may take, got 0`},
		{"threads without end", "model: {repo_or_path: b}\nthreads: 257\n", `:2: threads must be 1..256`},
		{"health port", "model: {repo_or_path: b}\nhealth_port: 70000\n",
			`health_port must be 0 (off) or 1..65535, got 70000`},
		{"endpoint without protocol", "model: {repo_or_path: b}\nzenoh: {connect_endpoints: [\"localhost:7447\"]}\n",
			`'localhost:7447' of zenoh.connect_endpoints: wire/zenoh: endpoint "localhost:7447": want tcp/host:port`},
		{"endpoint without port", "model: {repo_or_path: b}\nzenoh:\n  listen_endpoints: [tcp/0.0.0.0]\n",
			`:3: 'tcp/0.0.0.0' of zenoh.listen_endpoints: wire/zenoh: endpoint "tcp/0.0.0.0": want tcp/host:port`},
		{"endpoint with port 0", "model: {repo_or_path: b}\nzenoh: {listen_endpoints: [\"tcp/0.0.0.0:0\"]}\n",
			`port 0 is no port`},
		{"endpoint of another transport",
			"model: {repo_or_path: b}\nzenoh: {listen_endpoints: [\"quic/0.0.0.0:7447\"]}\n",
			`want tcp/host:port, tls/host:port or unixsock-stream/path`},
		{"long task", "model: {repo_or_path: b}\ndefault_task: \"" + strings.Repeat("a", 5000) + "\"\n",
			`:2: default_task has 5000 bytes, want at most 4096`},
		{"a task of two lines", "model: {repo_or_path: b}\ndefault_task: |\n  pick\n  place\n", `has a line break`},
		{"a robot without a name", "model: {repo_or_path: b}\nclients: [\"\"]\n", `:2: clients names no robot`},
		{"a router without a name", "model: {repo_or_path: b}\nrouters: [\"\"]\n", `:2: routers has an empty name`},
		{"octal number", "model: {repo_or_path: b}\nthreads: 010\n", `:2: [2:10] got "010", want digits`},
		{"a secret of digits", "model: {runtime: openpi, url: \"ws://a\", api_key: 314159}\n",
			`:1: model.api_key must be a string (in quotes), got a value of another kind`},
		{"no memory of a worker", "model: {runtime: lerobot, repo_or_path: a, python: b, memory_limit: 0GiB}\n",
			`:1: model.memory_limit must be above 0, got 0GiB`},
		{"negative rate", "model: {runtime: openpi, url: \"ws://a\", inputs: {fps: -1}}\n",
			`model.inputs.fps must be above 0 and at most 10000 Hz, got -1`},
		{"rate that is no number", "model: {runtime: lerobot, repo_or_path: a, python: b, inputs: {fps: .nan}}\n",
			`model.inputs.fps must be a number, got .nan`},
		{"negative chunk", "model: {runtime: gr00t, url: \"tcp://a:1\", inputs: {chunk_size: -1}}\n",
			`model.inputs.chunk_size must be 1..10000, got -1`},
		{"too few units", "model: {runtime: openpi, url: \"ws://a\", inputs: {action_names: [a, b], action_units: " +
			"[degrees]}}\n", `model.inputs.action_units has 1 units, want one for each of the 2 action_names`},
		{"a joint twice", "model: {runtime: openpi, url: \"ws://a\", inputs: {state_names: [a, a]}}\n",
			`model.inputs.state_names has "a", want names that are not empty and differ`},
		{"a camera twice", "model: {runtime: openpi, url: \"ws://a\", inputs: {cameras: [{name: a}, {name: a}]}}\n",
			`model.inputs.cameras has the name "a", want names that are not empty and differ`},
		{"a camera of one side", "model: {runtime: openpi, url: \"ws://a\", inputs: {cameras: [{name: a, " +
			"height: 224}]}}\n",
			`has height 224 and width 0 for "a", want both`},
		{"a preset beside LeRobot", "model: {runtime: lerobot, repo_or_path: a, python: b, inputs: {preset: so100}}\n",
			`model.inputs.preset is not read beside model.runtime lerobot, only beside openpi, gr00t: remove it`},
		{"a checkpoint beside openpi", "model: {runtime: openpi, url: \"ws://a\", repo_or_path: b}\n",
			`model.repo_or_path is not read beside model.runtime openpi`},
		{"a device of ONNX Runtime at a policy_server",
			"model: {runtime: lerobot-async, url: \"a:1\", device: tensorrt}\n",
			`model.device must be cpu, cuda, cuda:N, mps or xpu`},
		{"padding beside a policy_server", "model: {runtime: lerobot-async, url: \"a:1\", inputs: {cameras: " +
			"[{name: a, resize_with_pad: [1, 1]}]}}\n", `which model.runtime lerobot-async does not read`},
		{"certificate without key", "model: {repo_or_path: b}\nzenoh: {tls: {connect_certificate: c.pem}}\n",
			`zenoh.tls.connect_certificate and zenoh.tls.connect_private_key go together`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(t, tt.text)
			if err == nil {
				t.Fatalf("Load(%q) = nil, want an error with %q", tt.text, tt.want)
			}
			rttest.FailsAs(t, err, ErrInvalid)
			if got := err.Error(); !strings.Contains(got, tt.want) || strings.Contains(got, "\n") {
				t.Errorf("Load(%q) = %q, want one line with %q", tt.text, got, tt.want)
			}
		})
	}
}

func TestLoadOfMissingFileSaysSo(t *testing.T) {
	err := rttest.Err(Load(filepath.Join(t.TempDir(), "none.yaml")))
	rttest.FailsAs(t, err, ErrInvalid, "none.yaml")
	rttest.FailsAs(t, err, os.ErrNotExist)
}

func TestHealthAddressReachesAsFarAsTheDataPlane(t *testing.T) {
	for _, tt := range []struct {
		name            string
		listen, connect []string
		port            int
		want            string
	}{
		{"off", nil, nil, 0, ""},
		{"default listens on this machine", nil, nil, 9100, "127.0.0.1:9100"},
		{"listens on localhost by name", []string{"tcp/localhost:7447"}, nil, 9100, "127.0.0.1:9100"},
		{"listens on IPv6 loopback", []string{"tcp/[::1]:7447"}, nil, 9100, "127.0.0.1:9100"},
		{"listens on all of IPv4", []string{"tcp/0.0.0.0:7447"}, nil, 9100, "0.0.0.0:9100"},
		{"one endpoint of two is open", []string{"tcp/127.0.0.1:7447", "tcp/10.0.0.1:7447"}, nil, 9100, "0.0.0.0:9100"},
		{"with certificates", []string{"tls/0.0.0.0:7447#enable_mtls=true"}, nil, 9100, "0.0.0.0:9100"},
		{"listens on IPv6, too", []string{"tcp/0.0.0.0:7447", "tcp/[::]:7447"}, nil, 9100, ":9100"},
		{"IPv6 first", []string{"tcp/[fd00::1]:7447", "tcp/0.0.0.0:7447"}, nil, 9100, ":9100"},
		{"a name may be of either", []string{"tcp/gpu-box:7447"}, nil, 9100, ":9100"},
		{"IPv4 and a router", []string{"tcp/0.0.0.0:7447"}, []string{"tcp/router:7447"}, 9100, ":9100"},
		{"dials a router", nil, []string{"tcp/router:7447"}, 9100, ":9100"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := Config{HealthPort: tt.port, Zenoh: Zenoh{ListenEndpoints: tt.listen, ConnectEndpoints: tt.connect}}
			rttest.Want(t, c.HealthAddress(), tt.want, "HealthAddress()")
		})
	}
}

// When robots and HTTP have the same port, the error names both keys and does not blame another
// program.
func TestThePortOfRobotsIsNotHTTPs(t *testing.T) {
	for _, tt := range []struct {
		listen  []string
		connect []string
		health  int
		refused string // endpoint in the refusal; empty: the port is accepted
	}{
		{[]string{"tcp/127.0.0.1:7447", "tcp/0.0.0.0:9100"}, nil, 9100, "tcp/0.0.0.0:9100"},
		{[]string{"tcp/[::1]:9100"}, nil, 9100, "tcp/[::1]:9100"},
		{nil, nil, 7447, DefaultListen},
		{[]string{"tcp/127.0.0.1:9100"}, nil, 0, ""},
		{[]string{"tcp/127.0.0.1:9100"}, nil, 9101, ""},
		{nil, []string{"tcp/router:9100"}, 9100, ""},
		{[]string{"unixsock-stream//tmp/x:9100"}, nil, 9100, ""},
	} {
		c := Default()
		c.HealthPort = tt.health
		c.Zenoh.ListenEndpoints = tt.listen
		c.Zenoh.ConnectEndpoints = tt.connect
		err := c.CheckTransport()
		if (err != nil) != (tt.refused != "") || err != nil &&
			!(rttest.Says(err, "'"+tt.refused+"'") && rttest.Says(err, "--health-port")) {
			t.Errorf("listen %q, connect %q, HTTP on %d: %v, want %q", tt.listen, tt.connect, tt.health, err,
				tt.refused)
		}
	}
}

// Property: on any bytes, Load's decoder does not panic, and its error is at most one line.
func FuzzDecodeStrict(f *testing.F) {
	f.Add([]byte(fullManifest))
	f.Add([]byte("model: &a {repo_or_path: b}\nzenoh: *a\n<<: *a\n"))
	f.Add([]byte("? [a]\n: b\n"))
	f.Add([]byte("000000\n...0:"))
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg := Default()
		if _, err := decodeStrict(data, &cfg); err != nil && strings.ContainsAny(err.Error(), "\n\r") {
			t.Errorf("decodeStrict(%q) = %q, want one line", data, err)
		}
	})
}

// Goal: a TLS setting without effect, or whose files cannot be used, is refused with the manifest's line, the file and
// how to correct it. Good settings are accepted.
func TestTLSIsCheckedBeforeServing(t *testing.T) {
	ca := endpointtest.New(t)
	cert, key := ca.Issue("server", "127.0.0.1")
	tls := func(endpoints, keys string) string {
		return "model: {repo_or_path: b}\nzenoh:\n  " + endpoints + "\n  tls:\n    " + strings.ReplaceAll(keys, "; ",
			"\n    ") + "\n"
	}
	listen, dial := `listen_endpoints: ["tls/0.0.0.0:7447"]`, `connect_endpoints: ["tls/router:7447"]`
	plain := `listen_endpoints: ["tcp/0.0.0.0:7447"]`
	shown := "listen_certificate: " + cert + "; listen_private_key: " + key
	for _, tt := range []struct {
		name, text string
		want       []string // parts of the error; nil: the settings are accepted
	}{
		{"listening", tls(listen, shown), nil},
		{"mutual", tls(listen, shown+"; root_ca_certificate: "+ca.CA+"; enable_mtls: true"), nil},
		{"dialling", tls(dial, "connect_certificate: "+cert+"; connect_private_key: "+key+"; root_ca_certificate: "+
			ca.CA), nil},
		{"dialling any name", tls(dial, "verify_name_on_connect: false"), nil},
		{"no TLS", "model: {repo_or_path: b}\n", nil},
		{"a TLS endpoint without keys", "model: {repo_or_path: b}\nzenoh: {connect_endpoints: [\"tls/router:7447\"]}\n",
			nil},
		{"options of the endpoint itself",
			"model: {repo_or_path: b}\nzenoh: {listen_endpoints: [\"tls/0.0.0.0:7447#listen_certificate_file=" + cert +
				";listen_private_key_file=" + key + "\"]}\n", nil},
		{"listening in the clear", tls(plain, shown),
			[]string{":5:", "listen_certificate", "zenoh.listen_endpoints", "tls/"}},
		{"mutual in the clear", tls(plain, "enable_mtls: true"), []string{":4:", "zenoh.tls", "tls/"}},
		{"shown to no router", tls(listen, shown+"; connect_certificate: "+cert+"; connect_private_key: "+key),
			[]string{":7:", "connect_certificate", "zenoh.connect_endpoints"}},
		{"listening without a certificate", tls(listen, "root_ca_certificate: "+ca.CA),
			[]string{":4:", "certificate to show"}},
		{"mutual without authorities", tls(listen, shown+"; enable_mtls: true"), []string{"give the root CA"}},
		{"mutual dialling without a certificate", tls(dial, "enable_mtls: true"),
			[]string{"certificate to show when dialling"}},
		{"absent file", tls(listen, "listen_certificate: none.pem; listen_private_key: "+key),
			[]string{"none.pem", "no such file"}},
		{"a key that is none", tls(listen, "listen_certificate: "+cert+"; listen_private_key: "+cert),
			[]string{cert, "PEM"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg, err := load(t, tt.text)
			if err == nil {
				err = cfg.CheckTransport()
			}
			if len(tt.want) == 0 {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			rttest.FailsAs(t, err, ErrInvalid)
			for _, w := range tt.want {
				if !rttest.Says(err, w) || rttest.Says(err, "\n") {
					t.Errorf("%q, want one line with %q", err, w)
				}
			}
		})
	}
}
