// Package manifest holds the settings of one lean-server: its policy, its robots and its endpoints.
// manifest.go has the keys and their checks, decode.go reads YAML, network.go configures the
// transport.
package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/plain"
	"github.com/edge-rt/edge-rt/internal/userfile"
	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/server/queue"
	"github.com/edge-rt/edge-rt/wire"
)

// ErrInvalid marks every error that the operator can correct by editing the manifest (or the flags
// that override it).
var ErrInvalid = errors.New("manifest")

const (
	maxSessionsMax = 10_000 // more sessions than one process can serve; each takes a mailbox
	captureMaxMax  = 4096   // each capture keeps a file open
	warmupMax      = 1_000
	windowMaxMS    = 1_000
	decodersMax    = 16

	// MaxBatch is the largest max_batch.
	MaxBatch = 16
)

// Config is the manifest. The YAML keys are the field tags; an absent key has the default that its field's comment
// gives.
type Config struct {
	Model       ModelConfig `yaml:"model"`
	Service     string      `yaml:"service"`      // last segment of the key prefix; default: default_task, else "default"
	DefaultTask string      `yaml:"default_task"` // task of a session whose open names no task
	PinTask     bool        `yaml:"pin_task"`     // refuse sessions with another task

	ServingMode      string   `yaml:"serving_mode"`      // auto, shared or exclusive (one session); default auto
	MaxSessions      Capacity `yaml:"max_sessions"`      // 1..10000, default 5; auto: as many as the server can feed
	SessionsPerLink  int      `yaml:"sessions_per_link"` // 1..10000, default 8: sessions of one robot's process or certificate
	SessionsPerHost  int      `yaml:"sessions_per_host"` // 1..10000, default 64: sessions of all processes of another machine
	RatePerRobot     float64  `yaml:"rate_per_robot"`    // inferences a second of one robot id, 0.1..1000; default 0: no limit
	SharePerRobot    float64  `yaml:"share_per_robot"`   // share of the device's time per robot id, 0.01..1; 0: no limit
	Memory           string   `yaml:"memory"`            // limit of the memory that robots can take, such as 512MiB, the default
	WarmupInferences int      `yaml:"warmup_inferences"` // inferences before the server announces itself; default 2
	StrictFPS        bool     `yaml:"strict_fps"`        // refuse a client with another fps instead of warning
	Clients          []string `yaml:"clients"`           // the robot ids that may open a session; empty: all
	Routers          []string `yaml:"routers"`           // certificate names with all rights: routers, other servers, an operator's tools
	Scheduler        string   `yaml:"scheduler"`         // one of queue.Schedulers, default runway
	MaxBatch         int      `yaml:"max_batch"`         // most robots per inference, 1..16; default 0: one on the CPU, several on a GPU
	BatchWindowMS    float64  `yaml:"batch_window_ms"`   // how long a batch may wait to fill, 0..1000; default 0: a waiting robot is served at once
	DecodeThreads    int      `yaml:"decode_threads"`    // threads that decode pictures beside the inference, 1..16; default 0: as many as cores are left
	Threads          int      `yaml:"threads"`           // threads of one inference, 1..256; default 1

	Conditioning Conditioning `yaml:"conditioning"`
	Zenoh        Zenoh        `yaml:"zenoh"`
	Fronts       Fronts       `yaml:"fronts"`
	HealthPort   int          `yaml:"health_port"` // HTTP /healthz /readyz /metrics; default 9100, 0 disables
	Debug        Debug        `yaml:"debug"`
	Rollout      Rollout      `yaml:"rollout"`

	Runtime string `yaml:"-"` // ONNX Runtime library or its folder; "": the server searches. A property of the machine, not of the service

	Traces  string `yaml:"-"` // address of an OpenTelemetry collector; "": no traces
	Audit   string `yaml:"-"` // file of the audit lines, "-" for standard output; "": no audit
	Version string `yaml:"-"` // version of the program, for /metrics

	named string         // model.repo_or_path as written
	block string         // rollout.model.repo_or_path as written
	file  string         // path of the manifest, for errors
	lines map[string]int // key path -> line

	flags     map[string]string // key path -> flag that has set it
	overrides []Override        // of the command line

	info os.FileInfo // description of the manifest's file, from before the file was read
	read []Setting   // the settings as the file and overrides have them
}

// Conditioning sets how chunks are conditioned on the actions that a robot runs before they arrive.
type Conditioning struct {
	Mode     string  `yaml:"mode"`     // one of policy.ConditioningModes, default auto
	Schedule string  `yaml:"schedule"` // one of policy.ScheduleNames, default linear
	SigmaD   float64 `yaml:"sigma_d"`  // default 1
	Beta     float64 `yaml:"beta"`     // default 0: the policy's number of Euler steps
}

// Policy returns the same settings as package policy defines them.
func (c *Conditioning) Policy() policy.Conditioning {
	return policy.Conditioning{
		Mode:     c.Mode,
		Schedule: policy.Schedule(slices.Index(policy.ScheduleNames, c.Schedule)),
		SigmaD:   float32(c.SigmaD),
		Beta:     float32(c.Beta),
	}
}

// Zenoh lists the endpoints by which the server and its robots connect.
type Zenoh struct {
	ConnectEndpoints []string `yaml:"connect_endpoints"` // routers to dial
	ListenEndpoints  []string `yaml:"listen_endpoints"`  // endpoints for robots and routers that dial this server
	TLS              TLS      `yaml:"tls"`
}

// Fronts let programs that speak a foreign protocol use the server. A front without an address is off.
type Fronts struct {
	LeRobot Front       `yaml:"lerobot"` // LeRobot's released robot_client (gRPC)
	OpenPI  OpenPIFront `yaml:"openpi"`  // openpi-client (WebSocket)
}

// Front is the address of one foreign protocol.
type Front struct {
	Listen string `yaml:"listen"` // HOST:PORT for its clients, such as 127.0.0.1:8080; default: off
}

// OpenPIFront is the address for openpi-client, and the keys of its observations. For a part of an observation without
// a key, openpi's and LeRobot's published keys are tried.
type OpenPIFront struct {
	Listen    string      `yaml:"listen"`     // HOST:PORT for its clients, such as 127.0.0.1:8000; default: off
	APIKey    Secret      `yaml:"api_key"`    // key that its clients have to show; default: none
	Cameras   []CameraKey `yaml:"cameras"`    // the keys of pictures
	StateKeys []string    `yaml:"state_keys"` // keys of the arrays that together are the state
	PromptKey string      `yaml:"prompt_key"` // key of the task
}

// CameraKey sets the key under which the client sends a camera's picture.
type CameraKey struct {
	Name string `yaml:"name"` // as the policy names it
	Key  string `yaml:"key"`
}

// Secret is a text that no report shows.
type Secret string

// String reports whether the secret is set, and does not show it.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "(hidden)"
}

// MarshalText returns String's text.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// URL is the address of a server. Reports show it without its password.
type URL string

func (u URL) String() string { return plain.Address(string(u)) }

// MarshalText returns String's text.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// TLS names the PEM files of the tls/ endpoints, relative to the manifest's
// folder.
type TLS struct {
	RootCACertificate   string `yaml:"root_ca_certificate"`
	ConnectCertificate  string `yaml:"connect_certificate"`
	ConnectPrivateKey   string `yaml:"connect_private_key"`
	ListenCertificate   string `yaml:"listen_certificate"`
	ListenPrivateKey    string `yaml:"listen_private_key"`
	EnableMTLS          bool   `yaml:"enable_mtls"`
	VerifyNameOnConnect bool   `yaml:"verify_name_on_connect"` // default true
}

// Debug configures the capture ring for byte-exact replay.
type Debug struct {
	CaptureDir string `yaml:"capture_dir"` // folder of the newest requests and answers; default: they are not kept
	CaptureMax int    `yaml:"capture_max"` // number of kept requests, 1..4096, default 256
}

// Default returns a manifest without settings.
func Default() Config {
	return Config{
		Model:            defaultModel,
		ServingMode:      "auto",
		MaxSessions:      5,
		SessionsPerLink:  8,
		SessionsPerHost:  64,
		Memory:           "512MiB",
		WarmupInferences: 2,
		Scheduler:        queue.Schedulers[0],
		Threads:          1,
		Conditioning:     Conditioning{Mode: policy.ConditioningModes[0], Schedule: policy.ScheduleNames[0], SigmaD: 1},
		Zenoh:            Zenoh{TLS: TLS{VerifyNameOnConnect: true}},
		HealthPort:       9100,
		Debug:            Debug{CaptureMax: 256},
	}
}

// Load reads a YAML file, adds the defaults and the command line's overrides, and resolves the file's paths relative to
// the file's folder. Unknown keys, wrong types and impossible values are errors that name the file, the line, the found
// and the expected value, and wrap ErrInvalid. An override whose value its key cannot have is an error that names the
// flag.
func Load(file string, overrides ...Override) (Config, error) {
	info, _ := os.Stat(file) // reading the file reports the same error
	data, err := userfile.ReadYAML(file)
	if err != nil {
		return Config{}, fmt.Errorf("%w: %w (give the file with --manifest FILE)", ErrInvalid, err)
	}
	cfg, err := parse(file, data, overrides)
	cfg.info = info
	return cfg, err
}

// parse does the work of Load for data, the content of file.
func parse(file string, data []byte, overrides []Override) (_ Config, err error) {
	cfg := Default()
	cfg.file, cfg.overrides = file, overrides
	if cfg.lines, err = decodeStrict(data, &cfg); err != nil {
		return Config{}, fmt.Errorf("%w: %s:%w", ErrInvalid, file, err)
	}
	if err := cfg.override(overrides); err != nil {
		return Config{}, exit.With(exit.Usage, err)
	}
	if err := cfg.Check(); err != nil {
		return Config{}, err
	}
	cfg.named = cfg.Model.RepoOrPath
	cfg.block = cfg.Rollout.Model.RepoOrPath
	cfg.resolve(filepath.Dir(file))
	cfg.read = cfg.Settings()
	return cfg, nil
}

// resolve expands ~ and variables in every path, and joins relative paths of the file to the manifest's folder. Paths
// from flags stay relative to the working directory.
func (c *Config) resolve(folder string) {
	tls := &c.Zenoh.TLS
	// These paths are made absolute, because commands and workers that run in another folder use them, and because a
	// program is sought in $PATH when no slash is left in its path.
	whole := []*string{&c.Model.RepoOrPath, &c.Rollout.Model.RepoOrPath}
	if strings.Contains(c.Model.Python, "/") {
		whole = append(whole, &c.Model.Python)
	}
	for key, p := range map[string]*string{
		"model.repo_or_path":            &c.Model.RepoOrPath,
		"model.cache_dir":               &c.Model.CacheDir,
		"model.python":                  &c.Model.Python,
		"model.dataset_info":            &c.Model.DatasetInfo,
		"debug.capture_dir":             &c.Debug.CaptureDir,
		"rollout.model.repo_or_path":    &c.Rollout.Model.RepoOrPath,
		"zenoh.tls.root_ca_certificate": &tls.RootCACertificate,
		"zenoh.tls.connect_certificate": &tls.ConnectCertificate,
		"zenoh.tls.connect_private_key": &tls.ConnectPrivateKey,
		"zenoh.tls.listen_certificate":  &tls.ListenCertificate,
		"zenoh.tls.listen_private_key":  &tls.ListenPrivateKey,
	} {
		if key == "model.python" && !strings.Contains(*p, "/") {
			continue // the shell finds a command without a slash in $PATH
		}
		if *p = userfile.Expand(*p); *p != "" && !filepath.IsAbs(*p) && c.flags[key] == "" {
			*p = filepath.Join(folder, *p)
		}
	}
	for _, p := range whole {
		if abs, err := filepath.Abs(*p); err == nil && *p != "" {
			*p = abs
		}
	}
}

// checker returns a function that puts an error into err for a key below prefix, unless ok is true or err has an error
// already.
func (c *Config) checker(prefix string, err *error) func(ok bool, key, format string, args ...any) {
	return func(ok bool, key, format string, args ...any) {
		if *err == nil && !ok {
			*err = c.Errorf(prefix+key, prefix+key+" "+format, args...)
		}
	}
}

// Check reports the first impossible value. It checks the keys in the order of LeRobot's PolicyServerManifest and, for
// keys that both have, returns the same texts.
func (c *Config) Check() (err error) {
	want := c.checker("", &err)
	oneOf := func(key, value string, values ...string) {
		want(slices.Contains(values, value), key, "must be one of %s, got '%s'", strings.Join(values, "|"), value)
	}
	within := func(key string, value, low, high int) {
		want(value >= low && value <= high, key, "must be %d..%d, got %d", low, high, value)
	}
	if err := c.checkRuntime(); err != nil {
		return err
	}
	oneOf("serving_mode", c.ServingMode, "auto", "shared", "exclusive")
	want(c.MaxSessions >= 1 || c.MaxSessions == Auto, "max_sessions", "must be >= 1, got %d", int(c.MaxSessions))
	want(c.MaxSessions <= maxSessionsMax, "max_sessions", "must be <= %d, got %d", maxSessionsMax, int(c.MaxSessions))
	want(c.ServingMode != "exclusive" || c.lines["max_sessions"] == 0 || c.MaxSessions == 1,
		"max_sessions", "must be 1 or absent beside serving_mode exclusive, which is one session, got %s",
		c.MaxSessions)
	within("sessions_per_link", c.SessionsPerLink, 1, maxSessionsMax)
	within("sessions_per_host", c.SessionsPerHost, 1, maxSessionsMax)
	want(c.RatePerRobot == 0 || c.RatePerRobot >= 0.1 && c.RatePerRobot <= 1000, "rate_per_robot",
		"must be 0 (no limit) or 0.1..1000 inferences a second, got %g", c.RatePerRobot)
	want(c.SharePerRobot == 0 || c.SharePerRobot >= 0.01 && c.SharePerRobot <= 1, "share_per_robot",
		"must be 0 (no limit) or 0.01..1 of the device's time, got %g", c.SharePerRobot)
	size, failed := parseSize(c.Memory)
	want(failed == nil, "memory", "is no size: %w", failed)
	want(failed != nil || size >= memoryMin,
		"memory", "must be at least 64MiB: one message takes up to 16 MiB on its way in, got %s", c.Memory)
	if err = cmp.Or(err, c.checkDevice()); err != nil {
		return err
	}
	within("warmup_inferences", c.WarmupInferences, 0, warmupMax)
	fault := wire.TaskFault(c.DefaultTask)
	want(fault == "", "default_task", "%s", fault)
	wantRobots(want, "clients", c.Clients)
	want(!slices.Contains(c.Routers, ""), "routers", "has an empty name, want common names of certificates")
	want(!c.PinTask || c.DefaultTask != "", "pin_task", "is true but default_task is empty: name the task to pin")
	oneOf("scheduler", c.Scheduler, queue.Schedulers...)
	want(c.MaxBatch >= 0 && c.MaxBatch <= MaxBatch,
		"max_batch", "must be 1..%d, or 0 for what suits the device, got %d", MaxBatch, c.MaxBatch)
	want(c.BatchWindowMS >= 0 && c.BatchWindowMS <= windowMaxMS, "batch_window_ms", "must be 0..%d, got %g",
		windowMaxMS, c.BatchWindowMS)
	alone := c.MaxBatch == 1
	want(!alone || c.BatchWindowMS == 0, "batch_window_ms", "must be 0 while max_batch is 1, got %g", c.BatchWindowMS)
	want(c.DecodeThreads >= 0 && c.DecodeThreads <= decodersMax,
		"decode_threads", "must be 1..%d, or 0 for as many as cores are left, got %d", decodersMax, c.DecodeThreads)
	want(c.Threads >= 1 && c.Threads <= policy.MaxThreads,
		"threads", "must be 1..%d, one for each core that an inference may take, got %d", policy.MaxThreads, c.Threads)
	oneOf("conditioning.mode", c.Conditioning.Mode, policy.ConditioningModes...)
	oneOf("conditioning.schedule", c.Conditioning.Schedule, policy.ScheduleNames...)
	want(c.Conditioning.SigmaD > 0 && c.Conditioning.SigmaD <= 100, "conditioning.sigma_d",
		"must be above 0 and at most 100, got %g", c.Conditioning.SigmaD)
	want(c.Conditioning.Beta >= 0 && c.Conditioning.Beta <= 1000, "conditioning.beta",
		"must be 0 (as many as the policy's Euler steps) or up to them, got %g", c.Conditioning.Beta)
	want(c.HealthPort >= 0 && c.HealthPort <= 65535, "health_port", "must be 0 (off) or 1..65535, got %d", c.HealthPort)
	info, missing := os.Stat(c.Debug.CaptureDir)
	want(missing != nil || info.IsDir(), "debug.capture_dir", "must be a folder, got the file %s", c.Debug.CaptureDir)
	within("debug.capture_max", c.Debug.CaptureMax, 1, captureMaxMax)
	if err = cmp.Or(err, c.checkCertificates(), c.checkFronts(), c.checkRollout()); err != nil {
		return err
	}
	return errors.Join(c.checkEndpoints("zenoh.connect_endpoints", c.Zenoh.ConnectEndpoints),
		c.checkEndpoints("zenoh.listen_endpoints", c.Zenoh.ListenEndpoints))
}

// checkCertificates refuses a certificate without its key, or a key without its certificate.
func (c *Config) checkCertificates() error {
	for _, files := range []struct{ side, certificate, key string }{
		{"connect", c.Zenoh.TLS.ConnectCertificate, c.Zenoh.TLS.ConnectPrivateKey},
		{"listen", c.Zenoh.TLS.ListenCertificate, c.Zenoh.TLS.ListenPrivateKey},
	} {
		if (files.certificate == "") != (files.key == "") {
			return c.Errorf("zenoh.tls", "zenoh.tls.%[1]s_certificate and zenoh.tls.%[1]s_private_key go together, "+
				"got only one of them", files.side)
		}
	}
	return nil
}

// Errorf returns an error about the value of key as one line for the operator, with the file and,
// when the file has the key, the line. It wraps ErrInvalid.
func (c *Config) Errorf(key, format string, args ...any) error {
	where := ""
	if c.file != "" {
		where = c.file + ": "
		for path := key; path != ""; path = cutLast(path) {
			flag := c.flags[path]
			if path == key {
				flag = cmp.Or(flag, c.flagIn(key))
			}
			if flag != "" {
				where = flag + ": "
				break
			}
			if line := c.lines[path]; line > 0 {
				where = fmt.Sprintf("%s:%d: ", c.file, line)
				break
			}
		}
	}
	return fmt.Errorf("%w: %s%w", ErrInvalid, where, fmt.Errorf(format, args...))
}

// flagIn returns the first flag that has set a key of a block; "" when no flag has.
func (c *Config) flagIn(block string) string {
	for _, key := range slices.Sorted(maps.Keys(c.flags)) {
		if strings.HasPrefix(key, block+".") {
			return c.flags[key]
		}
	}
	return ""
}

// cutLast returns the part of path before its last dot; "" when path has no dot.
func cutLast(path string) string {
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		return path[:i]
	}
	return ""
}

// Capacity is a number of sessions, or Auto.
type Capacity int

// With Auto, the server opens as many sessions as it can feed, but at most autoMost.
const (
	Auto     Capacity = -1 << 31
	autoMost          = 1000
)

func (c Capacity) String() string {
	if c == Auto {
		return "auto"
	}
	return strconv.Itoa(int(c))
}

// MarshalText returns String's text.
func (c Capacity) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalYAML reads a number or the word auto. The decoder has already checked that the value is a number or this
// word.
func (c *Capacity) UnmarshalYAML(read func(any) error) error {
	var text string
	if read(&text) == nil && text == Auto.String() {
		*c = Auto
		return nil
	}
	return read((*int)(c))
}

// Auto reports whether the server opens as many sessions as it can feed. It is false in exclusive
// mode, which has one session.
func (c *Config) Auto() bool { return c.MaxSessions == Auto && c.ServingMode != "exclusive" }

// Sessions returns the capacity, or its upper bound where it is Auto, and the serving mode. A
// bundle's graph is a pure function, so the mode auto means shared.
func (c *Config) Sessions() (limit int, mode string) {
	if c.ServingMode == "exclusive" {
		return 1, "exclusive"
	}
	if c.Auto() {
		return autoMost, "shared"
	}
	return int(c.MaxSessions), "shared"
}

// BatchWindow returns how long a batch waits to fill.
func (c *Config) BatchWindow() time.Duration {
	return time.Duration(c.BatchWindowMS * float64(time.Millisecond))
}

// Prefix returns the key prefix under which the model with this id is served.
func (c *Config) Prefix(model string) (string, error) {
	service := c.Service
	if service == "" {
		service = c.DefaultTask
	}
	prefix, err := wire.ServicePrefix(model, c.Model.Revision, service)
	if err != nil {
		return "", c.Errorf("service", "no key can be made of model '%s', revision '%s', service '%s': %w", model,
			c.Model.Revision, service, err)
	}
	return prefix, nil
}
