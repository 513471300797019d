package manifest

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/edge-rt/edge-rt/policy"
)

// The values of model.runtime.
const (
	RuntimeONNX         = "onnx"          // a bundle, in this process
	RuntimeLeRobot      = "lerobot"       // a worker process in the user's Python
	RuntimeOpenPI       = "openpi"        // a running server of openpi
	RuntimeGR00T        = "gr00t"         // a running server of GR00T
	RuntimeLeRobotAsync = "lerobot-async" // a running policy_server of LeRobot
)

// runtimes lists the values of model.runtime, the default first.
var runtimes = []string{RuntimeONNX, RuntimeLeRobot, RuntimeOpenPI, RuntimeGR00T, RuntimeLeRobotAsync}

// ModelConfig names the policy and the program that computes it.
type ModelConfig struct {
	Runtime     string `yaml:"runtime"`      // one of runtimes; default onnx: RepoOrPath is a bundle
	RepoOrPath  string `yaml:"repo_or_path"` // bundle or checkpoint; relative to the manifest's folder
	PolicyType  string `yaml:"policy_type"`  // for the runtime lerobot-async: LeRobot's name of the policy's type
	ID          string `yaml:"id"`           // name that robots see, first segment of the key prefix; default: the bundle's source_repo
	Revision    string `yaml:"revision"`     // second segment of the key prefix; default main
	Dtype       string `yaml:"dtype"`        // required data type of the bundle: float32, float16 or bfloat16; default: any
	Device      string `yaml:"device"`       // auto, cpu (the default), cuda, cuda:N, tensorrt, tensorrt:N or openvino
	Fallback    string `yaml:"fallback"`     // cpu: serve on the CPU when the device does not work; default: do not serve
	CUDAGraph   bool   `yaml:"cuda_graph"`   // must be false: a CUDA graph needs tensors in the GPU's memory
	CacheDir    string `yaml:"cache_dir"`    // folder of TensorRT's engines; default: the service manager's, else the user's
	Python      string `yaml:"python"`       // for the runtime lerobot: the interpreter with LeRobot
	DatasetInfo string `yaml:"dataset_info"` // meta/info.json of the training's data set: joint names and rate
	URL         URL    `yaml:"url"`          // address of a server that runs already
	APIKey      Secret `yaml:"api_key"`      // key that the server at URL demands; default: none
	Inputs      Inputs `yaml:"inputs"`       // description of a policy that does not describe itself
	Compile     bool   `yaml:"compile"`      // for the runtime lerobot: use torch.compile; default false
	MemoryLimit string `yaml:"memory_limit"` // main memory that the worker may occupy, such as 8GiB; default: twice the loaded policy's plus 4GiB
}

// Named returns model.repo_or_path as the manifest has it, without the manifest's folder. The server of another program
// gets it in this form, because its files are elsewhere.
func (c *Config) Named() string { return cmp.Or(c.named, c.Model.RepoOrPath) }

// Inputs describes the inputs and outputs of a policy whose runtime does not describe them.
type Inputs struct {
	Preset      string        `yaml:"preset"`       // a published configuration, whose entries the other keys replace
	FPS         float64       `yaml:"fps"`          // Hz, rate that the policy was trained at
	ChunkSize   int           `yaml:"chunk_size"`   // actions in a chunk
	StateNames  []string      `yaml:"state_names"`  // in vector order
	StateUnits  []string      `yaml:"state_units"`  // LeRobot's words, one for each name
	ActionNames []string      `yaml:"action_names"` // in vector order
	ActionUnits []string      `yaml:"action_units"` // LeRobot's words, one for each name
	Cameras     []CameraInput `yaml:"cameras"`

	// These keys are for the runtimes openpi and gr00t. A preset contains them.
	StateKeys  []PartInput `yaml:"state_keys"`  // the server's keys of the state's parts, in vector order
	ActionKeys []PartInput `yaml:"action_keys"` // the server's keys of an action's parts, in vector order
	PromptKey  string      `yaml:"prompt_key"`  // the server's key of the task
	Nested     bool        `yaml:"nested"`      // a key such as images.top is the entry top of the map images
}

// PartInput is a part of the state or of an action. At the policy's server, each part has a separate key.
type PartInput struct {
	Key  string `yaml:"key"`
	Size int    `yaml:"size"` // number of elements; one entry of a list may omit it
}

// CameraInput is one camera of the robots, and its name at the policy's server.
type CameraInput struct {
	Name   string `yaml:"name"`   // as robots name it
	Key    string `yaml:"key"`    // the server's name of the picture; default: the preset's or the name
	Height int    `yaml:"height"` // pixels that the server gets
	Width  int    `yaml:"width"`  // pixels that the server gets

	// ResizeWithPad is for the runtimes openpi and gr00t. It is the height and width of the picture that the policy's
	// server gets. lean-server scales and pads the robot's picture, of Height and Width, to it as openpi-client does.
	ResizeWithPad []int `yaml:"resize_with_pad"`
	ChannelsFirst bool  `yaml:"channels_first"` // the server gets [3, height, width]
}

var defaultModel = ModelConfig{
	Runtime:  RuntimeONNX,
	Revision: "main",
	Device:   "cpu",
	Fallback: "none",
}

// Remote reports whether another process computes the policy.
func (m *ModelConfig) Remote() bool { return m.Runtime != RuntimeONNX && m.Runtime != "" }

// checkRuntime refuses an unknown runtime, an absent key that the runtime needs, and a key that it does not read.
func (c *Config) checkRuntime() error {
	m := &c.Model
	if m.Runtime != "" && !slices.Contains(runtimes, m.Runtime) {
		return c.Errorf("model.runtime", "model.runtime must be one of %s, got '%s'", strings.Join(runtimes, "|"),
			m.Runtime)
	}
	switch m.Runtime {
	case RuntimeLeRobot:
		if m.RepoOrPath == "" {
			return c.Missing("repo_or_path", "the folder of the checkpoint, such as "+
				"outputs/train/act/checkpoints/last/pretrained_model")
		}
		if m.Python == "" {
			return c.Missing("python", "the interpreter of the environment that has LeRobot, such as "+
				"~/lerobot/.venv/bin/python")
		}
	case RuntimeOpenPI:
		if m.URL == "" {
			return c.Missing("url", "the address of the server, such as ws://127.0.0.1:8000")
		}
	case RuntimeGR00T:
		if m.URL == "" {
			return c.Missing("url", "the address of the server, such as tcp://127.0.0.1:5555")
		}
	case RuntimeLeRobotAsync:
		if m.URL == "" {
			return c.Missing("url", "the address of the policy_server, such as 127.0.0.1:8080")
		}
	default:
		if m.RepoOrPath == "" {
			return c.Errorf("model.repo_or_path",
				"model.repo_or_path is required (the policy this server serves): write "+
					"model: {repo_or_path: FOLDER} into the manifest, where FOLDER is a bundle that edgert-export made")
		}
	}
	return c.checkUnread()
}

// Exclude sets the exclusive mode, with one session at a time, if the policy keeps state of one robot (policy is true).
// It returns an error if the manifest asks for more sessions.
func (c *Config) Exclude(policy bool) error {
	switch {
	case !policy:
		return nil
	case c.ServingMode == "shared":
		return c.Errorf("serving_mode", "serving_mode is shared, but the policy keeps state of one robot between its "+
			"requests: want exclusive or auto")
	case c.lines["max_sessions"] != 0 && c.MaxSessions != 1:
		return c.Errorf("max_sessions", "max_sessions is %s, but the policy keeps state of one robot between its "+
			"requests: want 1, or a server for each robot", c.MaxSessions)
	}
	c.ServingMode = "exclusive"
	return nil
}

// Missing returns the error of an absent key of model that the runtime needs. The parameter reason is an example of
// the key's value, or the reason why the key is needed.
func (c *Config) Missing(key, reason string) error {
	return c.Errorf("model."+key, "model.%s is required beside model.runtime %s: %s", key, c.Model.Runtime, reason)
}

// checkUnread refuses keys that the runtime would ignore.
func (c *Config) checkUnread() error {
	m := &c.Model
	mapped, running := []string{RuntimeOpenPI, RuntimeGR00T}, runtimes[2:]
	// the servers of the other runtimes have already loaded their policy
	loading := []string{RuntimeONNX, RuntimeLeRobot, RuntimeLeRobotAsync}
	only := map[string][]string{
		"python":             {RuntimeLeRobot},
		"compile":            {RuntimeLeRobot},
		"memory_limit":       {RuntimeLeRobot},
		"dataset_info":       {RuntimeLeRobot},
		"dtype":              runtimes[:2],
		"policy_type":        {RuntimeLeRobotAsync},
		"url":                running,
		"api_key":            mapped,
		"inputs":             runtimes[1:],
		"inputs.fps":         runtimes[1:],
		"inputs.state_names": runtimes[1:], "inputs.state_units": runtimes[1:],
		"inputs.action_names": runtimes[1:], "inputs.action_units": runtimes[1:],
		"inputs.preset":      mapped,
		"inputs.chunk_size":  running,
		"inputs.cameras":     running,
		"inputs.state_keys":  mapped,
		"inputs.action_keys": mapped,
		"inputs.prompt_key":  mapped,
		"inputs.nested":      mapped,
		"device":             loading,
		"repo_or_path":       loading,
		"fallback":           {RuntimeONNX},
		"cache_dir":          {RuntimeONNX},
	}
	for _, key := range slices.Sorted(maps.Keys(only)) {
		if runtime := cmp.Or(m.Runtime, RuntimeONNX); c.Stated("model."+key) && !slices.Contains(only[key], runtime) {
			return c.Errorf("model."+key, "model.%s is not read beside model.runtime %s, only beside %s: remove it",
				key, runtime, strings.Join(only[key], ", "))
		}
	}
	return c.checkInputs()
}

// checkInputs reports the first impossible value of model.inputs. The check does not depend on the
// runtime.
func (c *Config) checkInputs() (err error) {
	in := &c.Model.Inputs
	want := c.checker("model.inputs.", &err)
	want(in.FPS >= 0 && in.FPS <= policy.MaxFPS, "fps", "must be above 0 and at most %d Hz, got %v", policy.MaxFPS,
		in.FPS)
	want(in.ChunkSize >= 0 && in.ChunkSize <= policy.MaxRows, "chunk_size", "must be 1..%d, got %d", policy.MaxRows,
		in.ChunkSize)
	for _, vector := range []struct {
		key          string
		names, units []string
	}{{"state", in.StateNames, in.StateUnits}, {"action", in.ActionNames, in.ActionUnits}} {
		want(len(vector.names) == 0 || len(vector.units) == 0 || len(vector.names) == len(vector.units),
			vector.key+"_units", "has %d units, want one for each of the %d %s_names", len(vector.units),
			len(vector.names), vector.key)
		for i, name := range vector.names {
			want(name != "" && !slices.Contains(vector.names[:i], name), vector.key+"_names",
				"has %q, want names that are not empty and differ", name)
		}
	}
	for i, camera := range in.Cameras {
		want(camera.Name != "" && !slices.ContainsFunc(in.Cameras[:i], func(o CameraInput) bool {
			return o.Name == camera.Name
		}), "cameras", "has the name %q, want names that are not empty and differ", camera.Name)
		want((camera.Height == 0) == (camera.Width == 0), "cameras",
			"has height %d and width %d for %q, want both, or none where they are 480 and 640", camera.Height,
			camera.Width, camera.Name)
		want(c.Model.Runtime != RuntimeLeRobotAsync || len(camera.ResizeWithPad) == 0 && !camera.ChannelsFirst,
			"cameras",
			"has resize_with_pad or channels_first, which model.runtime %s does not read: remove it", c.Model.Runtime)
	}
	return err
}

// torchDevice matches the names that LeRobot's policy_server passes to PyTorch.
var torchDevice = regexp.MustCompile(`^(cpu|mps|xpu|cuda)(:[0-9]{1,2})?$`)

// checkDevice reports the first impossible value among the keys of device and data type.
func (c *Config) checkDevice() (err error) {
	m := c.Model
	want := c.checker("", &err)
	want(m.Revision != "", "model.revision", "is empty, want a label such as main")
	device, failed := policy.ParseDevice(m.Device)
	switch {
	case m.Runtime == RuntimeLeRobotAsync:
		want(torchDevice.MatchString(m.Device), "model.device",
			"must be cpu, cuda, cuda:N, mps or xpu, as PyTorch names the policy_server's device, got '%s'", m.Device)
	case failed != nil:
		return c.Errorf("model.device", "model.%w", failed)
	default:
		want(m.Fallback != "cpu" || device.Accelerator(), "model.fallback",
			"is cpu beside model.device '%s', want it beside cuda, tensorrt or openvino, or not at all", m.Device)
	}
	want(m.Runtime != RuntimeLeRobot || slices.Contains([]string{"cpu", "cuda", "auto"}, device.Kind), "model.device",
		"must be cpu, cuda, cuda:N or auto beside model.runtime lerobot, got '%s'", m.Device)
	want(!m.CUDAGraph, "model.cuda_graph",
		"is true, want false: a CUDA graph needs inputs and outputs in the GPU's memory, and they are in the host's")
	want(m.Fallback == "" || m.Fallback == "none" || m.Fallback == "cpu", "model.fallback",
		"must be none or cpu, got '%s'", m.Fallback)
	limit, failed := c.WorkerMemory()
	want(failed == nil, "model.memory_limit", "is no size: %w", failed)
	want(failed != nil || limit > 0 || m.MemoryLimit == "", "model.memory_limit", "must be above 0, got %s",
		m.MemoryLimit)
	want(m.Dtype == "" || slices.Contains(policy.DTypes, m.Dtype), "model.dtype",
		"must be one of %s, as the bundle was exported, or absent, got '%s'",
		strings.Join(policy.DTypes, "|"), m.Dtype)
	return err
}

// hubName matches the names of repositories on the hub, with @REVISION too, and some relative paths.
var hubName = regexp.MustCompile(
	`^(?:hf://|https://huggingface\.co/)?(?:models/)?([\w.-]+/[\w.-]+?)/?(?:@([\w./-]+))?$`)

// BundleError returns err, an error of loading the bundle, as an error of the manifest. If the bundle's folder is
// absent and model.repo_or_path may be a name on the hub, the error explains how to make a bundle from the hub, because
// the server fetches nothing.
func (c *Config) BundleError(err error) error {
	hub := hubName.FindStringSubmatch(c.named)
	if _, absent := os.Stat(c.Model.RepoOrPath); hub == nil || !errors.Is(absent, fs.ErrNotExist) {
		return c.Errorf("model.repo_or_path", "%w", err)
	}
	folder, from := path.Base(hub[1]), hub[1]
	if hub[2] != "" {
		from += " --revision " + hub[2]
	}
	return c.Errorf("model.repo_or_path", "%w. If %s is a name on the hub: `hf download %s --local-dir %s`; "+
		"of a LeRobot checkpoint `edgert-export %[4]s %[4]s-bundle --dataset-info meta/info.json` then makes a "+
		"bundle, whose folder belongs here", err, c.named, from, folder)
}

// HubName returns model.repo_or_path as written where it names no folder of this machine but may
// name a repository on the hub, else "".
func (c *Config) HubName() string {
	hub := hubName.FindStringSubmatch(c.named)
	if _, absent := os.Stat(c.Model.RepoOrPath); hub == nil || hub[2] != "" || !errors.Is(absent, fs.ErrNotExist) {
		return ""
	}
	return hub[1]
}

// Stated reports whether the manifest or a flag has set the key.
func (c *Config) Stated(key string) bool { return c.origin(key) != "default" }
