package upstream

import (
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/manifest"
)

// full is a manifest that describes everything that openpi's server does not describe itself.
const full = `model:
  runtime: openpi
  url: "ws://127.0.0.1:8000"
  inputs:
    preset: libero
    fps: 10
    chunk_size: 10
    action_names: [a.pos, b.pos, c.pos, d.pos, e.pos, f.pos, g.pos, h.pos]
    action_units: [degrees, degrees, degrees, degrees, degrees, degrees, degrees, degrees]
`

func load(t *testing.T, text string) (Config, error) {
	t.Helper()
	path := rttest.WriteFile(t, t.TempDir(), "server.yaml", text)
	cfg, err := manifest.Load(path)
	if err == nil {
		err = cfg.Check()
	}
	if err != nil {
		return Config{}, err
	}
	return FromManifest(&cfg, nil)
}

func TestManifestOfAPreset(t *testing.T) {
	c := rttest.Must(load(t, full))(t)
	rttest.Do(t, c.Meta.Check())
	camera := Camera{
		Name:   "wrist_image",
		Key:    "observation/wrist_image",
		Height: 480,
		Width:  640,
		Pad:    [2]int{224, 224},
	}
	if len(c.Spec.Cameras) != 2 || c.Spec.Cameras[1] != camera {
		t.Errorf("cameras %+v, want the second %+v", c.Spec.Cameras, camera)
	}
	if c.Spec.State[0] != (Part{"observation/state", 8}) || c.Spec.Actions[0] != (Part{"actions", 8}) {
		t.Errorf("state %v, actions %v", c.Spec.State, c.Spec.Actions)
	}
	if c.Meta.StateNames[7] != "h.pos" || c.Meta.StateUnits[0] != "degrees" {
		t.Errorf("state %v in %v, want those of the actions", c.Meta.StateNames, c.Meta.StateUnits)
	}
}

func TestCamerasReplaceThoseOfThePreset(t *testing.T) {
	c := rttest.Must(load(t,
		full+"    cameras:\n      - {name: image, height: 240, width: 320}\n      - {name: side, key: "+
			"observation/side, resize_with_pad: [96, 128]}\n"))(t)
	first, second := c.Spec.Cameras[0], c.Spec.Cameras[1]
	if first.Key != "observation/image" || first.Height != 240 || first.Pad != [2]int{224, 224} {
		t.Errorf("the first camera is %+v, want the preset's with the manifest's size", first)
	}
	if second.Key != "observation/side" || second.Pad != [2]int{96, 128} || second.Width != 640 {
		t.Errorf("the second camera is %+v", second)
	}
}

func TestWhatTheManifestLacks(t *testing.T) {
	without := func(key string) string {
		var lines []string
		for line := range strings.Lines(full) {
			if !strings.HasPrefix(strings.TrimSpace(line), key+":") {
				lines = append(lines, line)
			}
		}
		return strings.Join(lines, "")
	}
	for _, tt := range []struct{ name, text, want string }{
		{"rate", without("fps"), "model.inputs.fps is required beside model.runtime openpi: the server does not"},
		{"horizon", without("chunk_size"), "model.inputs.chunk_size is required"},
		{"joints", without("action_names"), "model.inputs.action_names is required"},
		{"units", without("action_units"), "model.inputs.action_units is required"},
		{"units of the state", full + "    state_names: [a.pos]\n", "model.inputs.state_units is required"},
		{"address", without("url"), "model.url is required"},
		{"scheme", strings.Replace(full, "ws://", "http://", 1), "want ws://HOST:PORT"},
		{"a password", strings.Replace(full, "ws://", "http://me:hidden@", 1), "is 'http://xxxxx@127.0.0.1:8000'"},
		{"no host", strings.Replace(full, "127.0.0.1:8000", "", 1), "want ws://HOST:PORT"},
		{"no port number", strings.Replace(full, "8000", "80000", 1), "want ws://HOST:PORT"},
		{"no port", strings.Replace(strings.Replace(full, "ws://127.0.0.1:8000", "tcp://127.0.0.1", 1), "openpi\n",
			"gr00t\n", 1), "want tcp://HOST:PORT"},
		{"a password", strings.Replace(strings.Replace(full, "ws://", "tcp://me:secret@", 1), "openpi\n", "gr00t\n", 1),
			"'tcp://xxxxx@127.0.0.1:8000', want tcp://HOST:PORT"},
		{"large chunk", strings.Replace(full, "chunk_size: 10", "chunk_size: -10", 1), "chunk_size must be 1..10000"},
		{"preset", strings.Replace(full, "libero", "so100", 1), "want one of aloha, droid, libero"},
		{"joints beside the preset", strings.Replace(strings.Replace(full, ", h.pos", "", 1), ", degrees]", "]", 1),
			"state_keys has 8 elements, and state_names has 7"},
		{"camera without a key", full + "    cameras: [{name: top}]\n", "top has no key"},
		{"padding", full + "    cameras: [{name: image, resize_with_pad: [224]}]\n",
			"resize_with_pad of image is [224]"},
		{"no padding", full + "    cameras: [{name: image, resize_with_pad: [0, 0]}]\n", "image is [0 0], want height"},
		{"an action twice", full + "    action_keys: [{key: a, size: 4}, {key: a, size: 4}]\n",
			"the key a occurs twice"},
		{"size", full + "    cameras: [{name: image, height: 9999, width: 640}]\n", "9999x640"},
		{"two cameras of a key", full + "    cameras: [{name: image}, {name: x, key: observation/image}]\n",
			"occurs twice"},
		{"key of the actions", full + "    action_keys: [{key: actions, size: 3}, {key: b, size: 3}]\n",
			"action_keys has 6"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(t, tt.text)
			rttest.FailsAs(t, err, manifest.ErrInvalid, tt.want)
		})
	}
}
