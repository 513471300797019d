package manifest

import (
	"cmp"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/edge-rt/edge-rt/wire"
)

// Rollout gives a second model of the service to a part of the robots.
type Rollout struct {
	Model  RolloutModel `yaml:"model"`  // the new model; a text is its repo_or_path
	Share  float64      `yaml:"share"`  // 0..1 of all robots, chosen by a hash of the robot's id; default 0
	Robots []string     `yaml:"robots"` // the robot ids that get the new model whatever the share is
	Keep   []string     `yaml:"keep"`   // the robot ids that stay with the first model
}

// RolloutModel names the new bundle.
type RolloutModel struct {
	RepoOrPath string `yaml:"repo_or_path"` // bundle; relative to the manifest's folder
	SHA256     string `yaml:"sha256"`       // digest that the bundle must have, or its first digits; default: any
}

// UnmarshalYAML reads a mapping or a text.
func (m *RolloutModel) UnmarshalYAML(read func(any) error) error {
	var dir string
	if read(&dir) == nil {
		*m = RolloutModel{RepoOrPath: dir}
		return nil
	}
	type mapping RolloutModel
	return read((*mapping)(m))
}

// Active reports whether some robot may get the new model.
func (r *Rollout) Active() bool {
	return r.Model.RepoOrPath != "" && (r.Share > 0 || len(r.Robots) > 0)
}

// Takes reports whether a robot gets the new model. When the share grows, all robots that have the new model keep it.
func (r *Rollout) Takes(robot string) bool {
	const bits = 53 // the precision of a float64; with more bits, a hash could be rounded up to 1
	switch {
	case slices.Contains(r.Keep, robot):
		return false
	case slices.Contains(r.Robots, robot):
		return true
	}
	return float64(wire.Rendezvous("rollout", robot)>>(64-bits)) < r.Share*(1<<bits)
}

// digest matches the digest of a bundle, or at least its first eight digits.
var digest = regexp.MustCompile(`^[0-9a-f]{8,64}$`)

// checkRollout reports the first impossible value of the block rollout.
func (c *Config) checkRollout() (err error) {
	r := &c.Rollout
	want := c.checker("", &err)
	want(r.Share >= 0 && r.Share <= 1, "rollout.share", "must be 0..1 of the robots, got %g", r.Share)
	named := r.Model.RepoOrPath != ""
	want(named || r.Share == 0 && len(r.Robots)+len(r.Keep) == 0 && r.Model.SHA256 == "", "rollout",
		"names no model: add rollout.model, the folder of the new bundle, or remove the block")
	want(!named || !c.Model.Remote(), "rollout.model",
		"is read beside model.runtime onnx only, got model.runtime %s: give its robots a second server",
		c.Model.Runtime)
	want(r.Model.SHA256 == "" || digest.MatchString(r.Model.SHA256), "rollout.model.sha256",
		"must be the first 8 to 64 digits of a digest, as lean-server check prints it, got '%s'", r.Model.SHA256)
	wantRobots(want, "rollout.robots", r.Robots)
	wantRobots(want, "rollout.keep", r.Keep)
	for _, id := range r.Robots {
		want(!slices.Contains(r.Keep, id), "rollout.keep", "and rollout.robots both name '%s': remove it from one", id)
	}
	return err
}

// wantRobots checks a list of robot ids.
func wantRobots(want func(ok bool, key, format string, args ...any), key string, ids []string) {
	want(len(ids) <= maxSessionsMax, key, "must have at most %d robots, got %d", maxSessionsMax, len(ids))
	for _, id := range ids {
		failed := wire.CheckUUID(id)
		want(failed == nil, key, "names no robot: %w", failed)
	}
}

// File returns the path of the manifest; "" for a manifest that was not read from a file.
func (c *Config) File() string { return c.file }

// Info describes the manifest's file as it was read; nil for a manifest that was not read from a file.
func (c *Config) Info() os.FileInfo { return c.info }

// Reload reads the manifest again, with the same keys from the command line.
func (c *Config) Reload() (Config, error) { return Load(c.file, c.overrides...) }

// NewModel returns a copy of c in which the new model replaces c's model. The new model and the block rollout come from
// a later reading of the file (parameter read). Errors about the new model name the lines of that block.
func (c *Config) NewModel(read *Config) Config {
	out := *c
	out.Rollout = read.Rollout
	out.Model.RepoOrPath, out.named = read.Rollout.Model.RepoOrPath, read.Rollout.Model.RepoOrPath
	out.lines, out.flags = maps.Clone(read.lines), maps.Clone(read.flags)
	const served, block = "model.repo_or_path", "rollout.model"
	out.lines[served] = cmp.Or(read.lines[block+".repo_or_path"], read.lines[block])
	delete(out.flags, served)
	if flag := read.flags[block+".repo_or_path"]; flag != "" {
		out.flags[served] = flag
	}
	return out
}

// Changed returns the keys outside the block rollout whose values differ between two readings of the file, c and the
// argument. Settings that the server changed after a reading do not count.
func (c *Config) Changed(to *Config) (keys []string) {
	for i, s := range to.read {
		if !strings.HasPrefix(s.Key, "rollout.") && !reflect.DeepEqual(c.read[i].Value, s.Value) {
			keys = append(keys, s.Key)
		}
	}
	return keys
}
