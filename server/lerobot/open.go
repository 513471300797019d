package lerobot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/edge-rt/edge-rt/internal/userfile"
	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/server/remote"
)

// Bounds for reading the policy's files.
const (
	infoMax  = 16 << 20
	filesMax = 10_000
)

// settings are the settings of the worker, which gets them as JSON in its environment.
type settings struct {
	Policy  string `json:"policy"`
	Hub     string `json:"hub"` // revision of the policy on the hub; empty: Policy is a folder
	Device  string `json:"device"`
	DType   string `json:"dtype"`
	Compile bool   `json:"compile"`
	Threads int    `json:"threads"`
	Info    info   `json:"info"`
	Inputs  inputs `json:"inputs"`
}

// info is the part of meta/info.json that the worker reads.
type info struct {
	FPS       float64            `json:"fps,omitempty"`
	RobotType string             `json:"robot_type,omitempty"`
	Features  map[string]feature `json:"features,omitempty"`
}

type feature struct {
	Names any `json:"names"`
}

type inputs struct {
	FPS         float64  `json:"fps"`
	StateNames  []string `json:"state_names"`
	ActionNames []string `json:"action_names"`
}

// Open starts the worker of a manifest and returns its policy when the worker has loaded it. It calls show with the
// progress, and writes the worker's output to log. Errors that the manifest's author corrects wrap manifest.ErrInvalid.
func Open(ctx context.Context, cfg *manifest.Config, log *slog.Logger, show func(text string)) (p *remote.Policy,
	err error) {
	python, err := exec.LookPath(cfg.Model.Python)
	if err != nil {
		return nil, cfg.Errorf("model.python", "model.python: %w: want the interpreter of the environment that has "+
			"LeRobot, such as ~/lerobot/.venv/bin/python", err)
	}
	with, err := settingsOf(cfg)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(with)
	if err != nil {
		return nil, err
	}
	w := &worker{
		python:   python,
		settings: string(text),
		log:      log,
		slots:    map[*remote.Row]int{},
		answer:   make([]byte, 4096),
		ended:    make(chan struct{}),
		state:    "loading",
	}
	w.ctx, w.stop = context.WithCancel(context.Background())
	w.patience.first, w.patience.least = batchFirst, batchLeast
	if w.file, err = newFile(); err != nil {
		return nil, err
	}
	w.process, w.hello, err = w.start(ctx, show)
	if err != nil {
		return nil, errors.Join(w.manifestError(cfg, err), w.file.Close())
	}
	if p, err = w.policy(with.Policy, &cfg.Model.Inputs, show); err != nil {
		return nil, errors.Join(cfg.Errorf("model.repo_or_path", "%w", err), w.Close())
	}
	w.meta = &p.Meta
	if cfg.MaxBatch == 0 && p.Device == "cpu" {
		p.MaxBatch = 1
	}
	if err := w.limitMemory(cfg); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	p.Exclusive = p.Exclusive && !(w.mayShare(cfg))
	return p, nil
}

// limitMemory sets the limit of the worker's memory.
func (w *worker) limitMemory(cfg *manifest.Config) error {
	loaded := w.process.memory()
	w.most = leakTimes*loaded + leakSlack
	if limit, _ := cfg.WorkerMemory(); limit != 0 { // manifest.Check has parsed the value before
		w.most = limit
	}
	if loaded > w.most {
		return cfg.Errorf("model.memory_limit",
			"model.memory_limit is %s, but the loaded policy occupies %d MiB already",
			cfg.Model.MemoryLimit, loaded>>20)
	}
	return nil
}

// mayShare reports whether several robots may use a policy of an unknown family. The manifest
// allows it by serving_mode: shared, with which its author states that the policy keeps no state.
func (w *worker) mayShare(cfg *manifest.Config) bool {
	var d loaded
	return json.Unmarshal(w.hello, &d) == nil && d.State == stateUnknown && cfg.ServingMode == "shared"
}

// The worker's description has one of these words for the state that a policy's family keeps.
const (
	stateNone    = "none"
	stateUnknown = "unknown"
)

// namedKey finds the manifest's key in an error of the worker. It lists the keys, because errors of LeRobot also name
// files and weights that begin with "model.".
var namedKey = regexp.MustCompile(`model\.(repo_or_path|python|device|dataset_info|memory_limit|inputs(\.[a-z_]+)?)\b`)

// manifestError returns the error of a load as an error of the manifest's key that is most probably at fault.
func (w *worker) manifestError(cfg *manifest.Config, err error) error {
	text := err.Error()
	switch key := namedKey.FindString(text); {
	case errors.Is(err, context.Canceled), errors.Is(err, policy.ErrMemory):
		return err
	case errors.Is(err, errPython):
		return cfg.Errorf("model.python",
			"model.python: %s: %w: want the interpreter (3.10 or newer) of the environment "+
				"that has LeRobot, such as ~/lerobot/.venv/bin/python", w.python, err)
	case strings.Contains(text, "ModuleNotFoundError"), strings.Contains(text, "ImportError"):
		part := "smolvla"
		if strings.Contains(text, "'peft'") { // the policy has an adapter, whatever its family
			part = "peft"
		}
		return cfg.Errorf("model.python",
			"model.python: %s: %w: install LeRobot with this policy's parts there, such as "+
				"pip install 'lerobot[%s]'", w.python, err, part)
	case key != "":
		return cfg.Errorf(key, "%w", err)
	}
	return cfg.Errorf("model.repo_or_path", "model.repo_or_path: %w", err)
}

// settingsOf returns the worker's settings.
func settingsOf(cfg *manifest.Config) (*settings, error) {
	m := &cfg.Model
	s := &settings{
		Policy:  m.RepoOrPath,
		Device:  m.Device,
		DType:   m.Dtype,
		Compile: m.Compile,
		Inputs:  inputs{m.Inputs.FPS, m.Inputs.StateNames, m.Inputs.ActionNames},
	}
	if cfg.Stated("threads") {
		s.Threads = cfg.Threads
	}
	if real, err := filepath.EvalSymlinks(s.Policy); err == nil {
		s.Policy = real // the real folder, because lerobot-train moves the link checkpoints/last
	}
	if hub := cfg.HubName(); hub != "" {
		s.Policy, s.Hub = hub, m.Revision
	} else if _, err := os.Stat(filepath.Join(m.RepoOrPath, "config.json")); err != nil {
		return nil, cfg.Errorf("model.repo_or_path", "model.repo_or_path: %w: want the folder pretrained_model of a "+
			"LeRobot checkpoint, or its name on the hub", err)
	}
	if m.DatasetInfo == "" {
		return s, nil
	}
	file := m.DatasetInfo
	if stat, err := os.Stat(file); err == nil && stat.IsDir() {
		file = filepath.Join(file, "meta", "info.json")
	}
	raw, err := userfile.Read(file, infoMax)
	if err == nil {
		err = json.Unmarshal(raw, &s.Info)
	}
	if err == nil && !(s.Info.FPS >= 0 && s.Info.FPS <= policy.MaxFPS) {
		err = fmt.Errorf("fps is %v, want above 0 and at most %d Hz", s.Info.FPS, policy.MaxFPS)
	}
	if err != nil {
		return nil, cfg.Errorf("model.dataset_info", "model.dataset_info: %s: %w: want meta/info.json of the data set "+
			"that the policy was trained with", file, err)
	}
	for key := range s.Info.Features {
		if key != "action" && key != "observation.state" {
			delete(s.Info.Features, key)
		}
	}
	return s, nil
}

// policy makes the policy from the worker's description. The units come from the manifest, because no checkpoint has
// them.
func (w *worker) policy(named string, in *manifest.Inputs, show func(text string)) (*remote.Policy, error) {
	var d loaded
	if err := json.Unmarshal(w.hello, &d); err != nil {
		return nil, fmt.Errorf("the worker's description: %w", err)
	}
	p := &remote.Policy{
		Meta:      d.Meta,
		Runtime:   w,
		Where:     d.Folder,
		Version:   fmt.Sprintf("LeRobot %s, torch %s, Python %s", d.LeRobot, d.Torch, d.Python),
		Program:   w.python,
		Device:    d.Device,
		ReadsTask: d.ReadsTask,
		Exclusive: d.State != stateNone,
		MaxBatch:  d.MaxBatch,
	}
	p.SourceRepo = sourceName(named)
	p.LeRobotVersion = d.LeRobot
	p.ActionUnits = in.ActionUnits
	p.StateUnits = in.StateUnits
	if d.RTC {
		p.RTC = "guided"
		p.PrefixEnd = d.ExecutionHorizon
	} else {
		p.RTC = "none"
		p.NumSteps = 0
	}
	if len(in.StateUnits) == 0 && slices.Equal(d.StateNames, d.ActionNames) {
		p.StateUnits = in.ActionUnits
	}
	if err := p.Check(); err != nil {
		return nil, fmt.Errorf("the worker's description: %w", err)
	}
	show("hashing " + d.Folder)
	var err error
	p.SHA256, err = digest(d.Folder, w.hello)
	w.folder, w.sha256 = d.Folder, p.SHA256
	return p, err
}

// sourceName returns the name under which a checkpoint is served when the manifest has no name: its name on the hub, or
// a name from the folders around pretrained_model.
func sourceName(named string) string {
	if !filepath.IsAbs(named) {
		return named
	}
	for at := named; at != "/"; at = filepath.Dir(at) {
		switch name := filepath.Base(at); name {
		case "pretrained_model", "last", "checkpoints":
		default:
			if strings.Trim(name, "0123456789") != "" {
				return name
			}
		}
	}
	return ""
}

// digest identifies a checkpoint and its description. It returns the SHA-256 of the lines that sha256sum prints for the
// files of folder, followed by the description.
func digest(folder string, description []byte) (string, error) {
	whole, files := sha256.New(), 0
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			return err
		}
		if files++; files > filesMax {
			return fmt.Errorf("%s has more than %d files: want the folder of one checkpoint", folder, filesMax)
		}
		sum, err := policy.HashFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, path)
		fmt.Fprintf(whole, "%s  %s\n", sum, name)
		return err
	})
	whole.Write(description)
	return hex.EncodeToString(whole.Sum(nil)), err
}
