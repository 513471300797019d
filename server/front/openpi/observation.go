package openpi

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/edge-rt/edge-rt/internal/plain"
	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/server/front"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/ndarray"
)

// keys holds the keys that the manifest sets for an observation's parts. For a part without a key, openpi's and
// LeRobot's published keys are tried. A key such as images.top is the entry top of the map images, if the observation
// has no key with a dot.
type keys struct {
	cameras map[string]string // key of each picture, by the policy's name of the camera
	state   []string          // keys of the arrays that together are the state
	prompt  string            // key of the task
}

// cameraForms are the keys that are tried for a camera without a key; %s is the camera's name. They are the keys of
// openpi's droid, aloha and libero, and of LeRobot.
var cameraForms = []string{"observation/%s", "observation/%s_image", "observation/%s_image_left", "images.%s",
	"observation.images.%s", "observation/images/%s", "%s"}

// stateForms are the keys that are tried for a state without a key.
var stateForms = [][]string{
	{"observation/state"},
	{"state"},
	{"observation.state"},
	{"observation/joint_position", "observation/gripper_position"},
	{"observation/joint_position"},
}

// promptForms are the keys that are tried for a task without a key.
var promptForms = []string{"prompt", "task"}

// errKeys marks an observation that does not have all inputs of the policy.
var errKeys = errors.New("the observation does not fit the served policy")

// reader makes observations from a client's messages. A picture that needs no change is not copied, but uses the memory
// of the message.
//
// Owner: the client's goroutine.
type reader struct {
	keys    *keys
	meta    *policy.Meta
	cameras []string // the policy's cameras, by their names on the wire
	obs     wire.Observation
	buffers [][]byte // memory for pictures that must be changed
	held    *front.Held
}

// check refuses keys of cameras that the policy does not have.
func (k *keys) check(meta *policy.Meta) error {
	for _, name := range slices.Sorted(maps.Keys(k.cameras)) {
		if !slices.ContainsFunc(meta.Cameras, func(c policy.Camera) bool { return c.Name == name }) {
			return fmt.Errorf("%w: fronts.openpi.cameras has %s, and the policy has the cameras %s",
				manifest.ErrInvalid,
				name, strings.Join(cameraNames(meta), ", "))
		}
	}
	return nil
}

func cameraNames(meta *policy.Meta) (names []string) {
	for _, c := range meta.Cameras {
		names = append(names, c.Name)
	}
	return names
}

// read returns a message's observation and task. Both are valid until the next call.
func (r *reader) read(m ndarray.Map) (*wire.Observation, string, error) {
	r.obs.Images = r.obs.Images[:0]
	for i := range r.meta.Cameras {
		picture, err := r.picture(m, i)
		if err != nil {
			return nil, "", err
		}
		r.obs.Images = append(r.obs.Images, picture)
	}
	if err := r.state(m); err != nil {
		return nil, "", err
	}
	task, err := r.prompt(m)
	return &r.obs, task, err
}

func (r *reader) prompt(m ndarray.Map) (string, error) {
	forms := promptForms
	if r.keys.prompt != "" {
		forms = []string{r.keys.prompt}
	}
	for _, key := range forms {
		switch v := m.At(key).(type) {
		case nil:
		case string:
			return v, nil
		default:
			return "", fmt.Errorf("%w: its key %s is %s, want text", errKeys, key, ndarray.Kind(v))
		}
	}
	return "", nil // the server uses its default task
}

// find returns the array of a camera.
func (r *reader) find(m ndarray.Map, name string) (*ndarray.Array, string, error) {
	if key := r.keys.cameras[name]; key != "" {
		a, ok := m.At(key).(*ndarray.Array)
		if !ok {
			return nil, key, fmt.Errorf("%w: its key %s, the picture of camera %s, is %s, want an array; it has the "+
				"keys %s",
				errKeys, key, name, ndarray.Kind(m.At(key)), keysOf(m))
		}
		return a, key, nil
	}
	for _, form := range cameraForms {
		key := fmt.Sprintf(form, name)
		if a, ok := m.At(key).(*ndarray.Array); ok {
			return a, key, nil
		}
	}
	if only, key := onlyPicture(m); len(r.meta.Cameras) == 1 && only != nil {
		return only, key, nil
	}
	return nil, "", fmt.Errorf("%w: no key has the picture of camera %s; it has the keys %s: write "+
		"fronts.openpi.cameras: "+
		"[{name: %[2]s, key: KEY}] into the manifest", errKeys, name, keysOf(m))
}

// onlyPicture returns the picture of a message that has exactly one.
func onlyPicture(m ndarray.Map) (only *ndarray.Array, at string) {
	n := 0
	each(m, func(key string, v any) {
		if a, ok := v.(*ndarray.Array); ok && len(a.Shape) == 3 {
			only, at = a, key
			n++
		}
	})
	if n != 1 {
		return nil, ""
	}
	return only, at
}

// each calls the function do for each entry of m, and of the maps in m.
func each(m ndarray.Map, do func(key string, v any)) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if inner, ok := m[key].(ndarray.Map); ok {
			for _, name := range slices.Sorted(maps.Keys(inner)) {
				do(key+"."+name, inner[name])
			}
			continue
		}
		do(key, m[key])
	}
}

// keysOf returns the keys of a message for an error.
func keysOf(m ndarray.Map) string {
	const most = 24
	var names []string
	each(m, func(key string, _ any) {
		if len(names) < most {
			names = append(names, plain.Text(key))
		}
	})
	if len(names) == 0 {
		return "(none)"
	}
	return strings.Join(names, ", ")
}

const channels = 3 // RGB

// picture returns camera i's picture as bytes [height, width, 3]. Like openpi's policies, it also accepts
// floating-point values from 0 to 1, and the shape [3, height, width].
func (r *reader) picture(m ndarray.Map, i int) (wire.Image, error) {
	a, key, err := r.find(m, r.meta.Cameras[i].Name)
	if err != nil {
		return wire.Image{}, err
	}
	first := a.Is(channels, -1, -1)
	floats := a.DType == ndarray.Float32 || a.DType == "<f8" || a.DType == "<f2"
	if !first && !a.Is(-1, -1, channels) || !floats && a.DType != ndarray.Uint8 || a.Len() == 0 {
		return wire.Image{},
			fmt.Errorf("%w: its key %s is an array %s, want a picture: |u1 [height width 3] or [3 height "+
				"width]", errKeys, key, a)
	}
	h := a.Shape[0]
	w := a.Shape[1]
	data := a.Data
	if first {
		h, w = a.Shape[1], a.Shape[2]
	}
	if max(h, w) > wire.MaxImageSide || h*w*channels > wire.MaxImageBytes {
		return wire.Image{},
			fmt.Errorf("%w: its key %s is a picture of %dx%d (height x width), want sides to %d and at "+
				"most %d bytes", errKeys, key, h, w, wire.MaxImageSide, wire.MaxImageBytes)
	}
	if first || floats {
		switch data, err = r.convert(a, i, first); {
		case errors.Is(err, front.ErrNoMemory):
			return wire.Image{}, err
		case err != nil:
			return wire.Image{}, fmt.Errorf("%w: its key %s %w", errKeys, key, err)
		}
	}
	return wire.Image{
		Name:  r.cameras[i],
		Codec: wire.Raw,
		H:     h,
		W:     w,
		C:     channels,
		Data:  data,
	}, nil
}

// convert returns as bytes [height, width, 3] a picture that has floating-point values or, when first is true, its
// channels first.
func (r *reader) convert(a *ndarray.Array, i int, first bool) ([]byte, error) {
	for len(r.buffers) <= i {
		r.buffers = append(r.buffers, nil)
	}
	n := a.Len()
	if old := cap(r.buffers[i]); old < n {
		if err := r.held.Take(n - old); err != nil {
			return nil, err
		}
		r.buffers[i] = make([]byte, n)
	}
	dst := r.buffers[i][:n]
	plane, size := n/channels, len(a.Data)/n
	if a.DType == ndarray.Uint8 {
		for k := range plane {
			dst[k*channels] = a.Data[k]
			dst[k*channels+1] = a.Data[plane+k]
			dst[k*channels+2] = a.Data[2*plane+k]
		}
		return dst, nil
	}
	var values [1024]float32
	for at := 0; at < n; at += len(values) {
		part := values[:min(len(values), n-at)]
		(&ndarray.Array{DType: a.DType, Data: a.Data[at*size:]}).Floats(part)
		for k, v := range part {
			if !(v >= 0 && v <= 1) {
				return nil, fmt.Errorf("has the value %v, want 0 to 1 in a picture of %s", v, a.DType)
			}
			to := at + k
			if first {
				to = to%plane*channels + to/plane
			}
			dst[to] = byte(255 * v)
		}
	}
	return dst, nil
}

// kept returns how many bytes the buffers take.
func (r *reader) kept() (n int) {
	for _, b := range r.buffers {
		n += cap(b)
	}
	return n
}

// state fills the observation's state.
func (r *reader) state(m ndarray.Map) error {
	forms := stateForms
	if len(r.keys.state) > 0 {
		forms = [][]string{r.keys.state}
	}
	want := len(r.meta.StateNames)
	for _, form := range forms {
		r.obs.State = r.obs.State[:0]
		for _, key := range form {
			v := m.At(key)
			if _, inner := v.(ndarray.Map); (v == nil || inner) && len(r.keys.state) == 0 {
				r.obs.State = nil
				break
			}
			all, ok := numbers(r.obs.State, v)
			if !ok || len(all) > wire.MaxDOF {
				return fmt.Errorf("%w: its key %s, a part of the state, is %s, want numbers along one axis, and %d "+
					"in all",
					errKeys, key, ndarray.Kind(v), want)
			}
			r.obs.State = all
		}
		if r.obs.State != nil {
			return r.checkState(form)
		}
	}
	return fmt.Errorf("%w: no key has the state; it has the keys %s: write fronts.openpi.state_keys: [KEY] into the "+
		"manifest", errKeys, keysOf(m))
}

// numbers appends a part of the state to dst: v is an array along one axis, a list of numbers, or a number, as openpi's
// policies accept them. ok reports that v is one of these.
func numbers(dst []float32, v any) (_ []float32, ok bool) {
	switch v := v.(type) {
	case *ndarray.Array:
		n := len(dst)
		if v.Len() != slices.Max(append(v.Shape, 1)) || v.Len() > wire.MaxDOF {
			return dst, false
		}
		dst = append(dst, make([]float32, v.Len())...)
		v.Floats(dst[n:])
		return dst, true
	case []any:
		for _, one := range v {
			n, ok := ndarray.Number(one)
			if !ok {
				return dst, false
			}
			dst = append(dst, float32(n))
		}
		return dst, true
	}
	n, ok := ndarray.Number(v)
	return append(dst, float32(n)), ok
}

func (r *reader) checkState(form []string) error {
	if n, want := len(r.obs.State), len(r.meta.StateNames); n != want {
		return fmt.Errorf("%w: %s has %d values, want %d: %s", errKeys, strings.Join(form, " and "), n, want,
			strings.Join(r.meta.StateNames, ", "))
	}
	for i, v := range r.obs.State {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return fmt.Errorf("%w: %s is %v in the state", errKeys, r.meta.StateNames[i], v)
		}
	}
	return nil
}
