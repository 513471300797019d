package upstream

import (
	"cmp"
	"log/slog"
	"slices"

	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/server/remote"
)

// defaultHeight and defaultWidth are the size of a camera's pictures where the manifest gives no size.
const defaultHeight, defaultWidth = 480, 640

// FromManifest returns the configuration of the manifest's server. A missing key is an error that names the key. The
// manifest must have the rate, the joints and their units, because neither protocol has them.
func FromManifest(cfg *manifest.Config, log *slog.Logger) (c Config, err error) {
	m, in := &cfg.Model, &cfg.Model.Inputs
	source := cmp.Or(m.ID, m.Runtime+"/"+cmp.Or(in.Preset, "policy"))
	if c.Meta, err = remote.Describe(cfg, m.Runtime, source); err != nil {
		return c, err
	}
	if err := checkURL(m.Runtime, string(m.URL)); err != nil {
		return c, cfg.Errorf("model.url", "%w", err)
	}
	spec, err := presetOf(m.Runtime, in.Preset)
	if err != nil {
		return c, cfg.Errorf("model.inputs.preset", "model.inputs.%w", err)
	}
	if err := merge(cfg, &spec); err != nil {
		return c, err
	}
	if err := spec.resolve(len(c.Meta.StateNames), len(in.ActionNames)); err != nil {
		return c, cfg.Errorf("model.inputs", "model.inputs.%w", err)
	}
	c = Config{
		Kind: m.Runtime,
		URL:  string(m.URL),
		Key:  string(m.APIKey),
		Task: cfg.DefaultTask,
		Spec: spec,
		Meta: c.Meta,
		Log:  log,
	}
	for _, camera := range spec.Cameras {
		c.Meta.Cameras = append(c.Meta.Cameras, policy.Camera{Name: camera.Name, H: camera.Height, W: camera.Width})
	}
	if err := c.Meta.Check(); err != nil {
		return c, cfg.Errorf("model.inputs", "model.inputs: %w", err)
	}
	return c, nil
}

// merge replaces those parts of the preset's mapping in spec that the manifest sets.
func merge(cfg *manifest.Config, spec *Spec) error {
	in := &cfg.Model.Inputs
	preset := spec.Cameras
	if len(in.Cameras) > 0 {
		spec.Cameras = nil
	}
	for _, named := range in.Cameras {
		camera := Camera{Name: named.Name}
		if i := slices.IndexFunc(preset, func(c Camera) bool { return c.Name == named.Name }); i >= 0 {
			camera = preset[i]
		}
		camera.Key = cmp.Or(named.Key, camera.Key)
		camera.Height, camera.Width = named.Height, named.Width
		camera.ChannelsFirst = camera.ChannelsFirst || named.ChannelsFirst
		switch pad := named.ResizeWithPad; {
		case len(pad) == 0:
		case len(pad) == 2 && pad[0] > 0 && pad[1] > 0:
			camera.Pad = [2]int{pad[0], pad[1]}
		default:
			return cfg.Errorf("model.inputs.cameras",
				"model.inputs.cameras: resize_with_pad of %s is %v, want height and "+
					"width, such as [224, 224]", named.Name, pad)
		}
		spec.Cameras = append(spec.Cameras, camera)
	}
	for i := range spec.Cameras {
		c := &spec.Cameras[i]
		c.Height, c.Width = cmp.Or(c.Height, defaultHeight), cmp.Or(c.Width, defaultWidth)
	}
	if len(in.StateKeys) > 0 {
		spec.State = parts(in.StateKeys)
	}
	if len(in.ActionKeys) > 0 {
		spec.Actions = parts(in.ActionKeys)
	}
	spec.Prompt = cmp.Or(in.PromptKey, spec.Prompt)
	spec.Nested = spec.Nested || in.Nested
	return nil
}

func parts(named []manifest.PartInput) (list []Part) {
	for _, n := range named {
		list = append(list, Part(n))
	}
	return list
}
