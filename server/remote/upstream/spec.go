// Package upstream is a client of policy servers that already run: openpi's over WebSocket, GR00T's
// over ZeroMQ. It makes such a server a runtime of lean-server.
//
// spec.go maps a robot's observation to the server's form, and the server's answer to joints; message.go writes and
// reads the messages, resize.go scales pictures, openpi.go and gr00t.go connect, and server.go keeps the connection.
package upstream

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The kinds of servers, as model.runtime names them.
const (
	openPI = "openpi"
	GR00T  = "gr00t"
)

// Spec maps a robot's observation to the server's observation, and the server's answer to the
// robot's actions.
type Spec struct {
	Cameras []Camera // in the order of the policy's cameras
	State   []Part   // parts that form the state together
	Actions []Part   // parts that form an action together
	Prompt  string   // key of the task; empty: the server does not get the task
	// Nested makes a key such as images.top the entry top of the map images. Without Nested, images.top is a single key
	// with a dot.
	Nested bool
}

// Camera is a picture of the observation.
type Camera struct {
	Name   string // name of the camera at the robots
	Key    string // key in the server's observation
	Height int    // height of the robot's picture, in pixels
	Width  int
	// Pad is the height and width of the frame that the server gets. Like openpi-client's
	// resize_with_pad, lean-server scales the picture into the frame and fills the rest with black.
	// Zero: the server gets the picture as it is.
	Pad [2]int
	// ChannelsFirst gives a picture the shape [3, height, width] rather than [height, width, 3].
	ChannelsFirst bool
}

// Part is a part of the state, or of the action, that has a key of its own at the server.
type Part struct {
	Key  string
	Size int // number of elements; one part may have 0, which means all elements that belong to no other part
}

// The names of the presets.
const (
	presetDroid  = "droid"
	presetAloha  = "aloha"
	presetLibero = "libero"
	presetSO100  = "so100"
)

// presets has, by kind and name, the specs of published configurations.
//
// Source: openpi's policies of droid, aloha and libero, and their example clients;
// Isaac-GR00T's example for SO100.
var presets = map[string]map[string]Spec{
	openPI: {
		presetDroid: {
			Cameras: padded(false, "exterior", "observation/exterior_image_1_left", "wrist",
				"observation/wrist_image_left"),
			State:   []Part{{"observation/joint_position", 7}, {"observation/gripper_position", 1}},
			Actions: actions,
			Prompt:  "prompt",
		},
		presetAloha: {
			Cameras: padded(true, "cam_high", "images.cam_high", "cam_low", "images.cam_low", "cam_left_wrist",
				"images.cam_left_wrist", "cam_right_wrist", "images.cam_right_wrist"),
			State:   []Part{{"state", 14}},
			Actions: actions,
			Prompt:  "prompt",
			Nested:  true,
		},
		presetLibero: {
			Cameras: padded(false, "image", "observation/image", "wrist_image", "observation/wrist_image"),
			State:   []Part{{"observation/state", 8}},
			Actions: actions,
			Prompt:  "prompt",
		},
	},
	GR00T: {
		presetSO100: {
			Cameras: []Camera{{Name: "front", Key: "video.front"}, {Name: "wrist", Key: "video.wrist"}},
			State:   []Part{{"state.single_arm", 5}, {"state.gripper", 1}},
			Actions: []Part{{"action.single_arm", 5}, {"action.gripper", 1}},
			Prompt:  "language.annotation.human.task_description",
			Nested:  true,
		},
	},
}

var actions = []Part{{Key: "actions"}}

// padded returns cameras whose pictures the published clients scale to 224x224.
func padded(channelsFirst bool, namesAndKeys ...string) (cameras []Camera) {
	for pair := range slices.Chunk(namesAndKeys, 2) {
		cameras = append(cameras, Camera{
			Name:          pair[0],
			Key:           pair[1],
			Pad:           [2]int{224, 224},
			ChannelsFirst: channelsFirst,
		})
	}
	return cameras
}

// presetOf returns a published configuration. Without a name, it returns the general form of the kind's servers, with
// one key for the state, one key for the actions and no cameras.
func presetOf(kind, name string) (Spec, error) {
	switch spec, ok := presets[kind][name]; {
	case ok:
		spec.Cameras = slices.Clone(spec.Cameras)
		return spec, nil
	case name != "":
		return spec, fmt.Errorf("preset is '%s', want one of %s, or none", name,
			strings.Join(slices.Sorted(maps.Keys(presets[kind])), ", "))
	case kind == GR00T:
		return Spec{Nested: true, Prompt: "language.annotation.human.task_description"}, nil
	}
	return Spec{State: []Part{{Key: "observation/state"}}, Actions: actions, Prompt: "prompt"}, nil
}

// These bound a spec. Larger numbers are mistakes in the manifest.
const (
	camerasMost = 16
	sideMost    = 4096
)

// resolve completes the sizes of parts and cameras, and checks the spec. Errors begin with the key of
// the manifest's model.inputs.
func (s *Spec) resolve(stateDim, actionDim int) (err error) {
	if s.State, err = resolve("state_keys", s.State, "state_names", stateDim); err != nil {
		return err
	}
	if s.Actions, err = resolve("action_keys", s.Actions, "action_names", actionDim); err != nil {
		return err
	}
	if len(s.Cameras) > camerasMost {
		return fmt.Errorf("cameras has %d entries, want at most %d", len(s.Cameras), camerasMost)
	}
	keys := map[string]bool{s.Prompt: true}
	for i := range s.Cameras {
		c := &s.Cameras[i]
		if c.Key == "" {
			return fmt.Errorf("cameras: %s has no key, want the server's name of this picture", c.Name)
		}
		if c.Pad == [2]int{} {
			c.Pad = [2]int{c.Height, c.Width}
		}
		for _, side := range []int{c.Height, c.Width, c.Pad[0], c.Pad[1]} {
			if side < 1 || side > sideMost {
				return fmt.Errorf("cameras: %s is %dx%d and padded to %dx%d (height x width), want sides of 1 to %d",
					c.Name, c.Height, c.Width, c.Pad[0], c.Pad[1], sideMost)
			}
		}
		if keys[c.Key] {
			return fmt.Errorf("cameras: the key %s occurs twice", c.Key)
		}
		keys[c.Key] = true
	}
	for _, part := range s.State {
		if keys[part.Key] {
			return fmt.Errorf("state_keys: the key %s occurs twice", part.Key)
		}
		keys[part.Key] = true
	}
	return nil
}

// resolve sets the size of the one part that has none. It gets the elements of total that belong to
// no other part.
func resolve(key string, parts []Part, names string, total int) ([]Part, error) {
	parts = slices.Clone(parts)
	if len(parts) == 0 {
		return nil, fmt.Errorf("%s is missing: write the server's key and size of each part, such as "+
			"[{key: state.single_arm, size: 5}, {key: state.gripper, size: 1}], or a preset", key)
	}
	sum, open := 0, -1
	for i, part := range parts {
		switch {
		case part.Key == "":
			return nil, fmt.Errorf("%s: an entry has no key", key)
		case slices.ContainsFunc(parts[:i], func(o Part) bool { return o.Key == part.Key }):
			return nil, fmt.Errorf("%s: the key %s occurs twice", key, part.Key)
		case part.Size < 0 || part.Size == 0 && open >= 0:
			return nil, fmt.Errorf("%s: the size of %s is %d, want at least 1; one entry may leave it out", key,
				part.Key, part.Size)
		case part.Size == 0:
			open = i
		}
		sum += part.Size
	}
	if open >= 0 {
		parts[open].Size = total - sum
		sum = total
	}
	if sum != total || open >= 0 && parts[open].Size < 1 {
		return nil, fmt.Errorf("%s has %d elements, and %s has %d names: they have to be the same number", key, sum,
			names, total)
	}
	return parts, nil
}
