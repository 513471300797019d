package lerobot

import (
	"errors"
	"fmt"
	"io"

	"github.com/edge-rt/edge-rt/wire/pickle"
)

// Errors of the readers of messages, beside those of pickle.Decode.
var (
	// ErrMessage marks a pickle that is not the expected message.
	ErrMessage = errors.New("lerobot: not the expected message")
	// ErrTooLarge marks an observation or a message beyond a limit.
	ErrTooLarge = errors.New("lerobot: too large")
)

// Policy is the request of a client, RemotePolicyConfig.
type Policy struct {
	Type            string
	Path            string // a path on the client's machine, never opened here
	Features        []Feature
	ActionsPerChunk int
	Device          string
	Rename          map[string]string
}

// Feature is one of the client's inputs, such as observation.state or observation.images.top.
type Feature struct {
	Name  string
	Kind  string   // float32, image or video
	Shape []int    // for a picture: height, width, channels
	Names []string // names of the state's values
}

// ParsePolicy reads a RemotePolicyConfig.
func ParsePolicy(src []byte) (*Policy, error) {
	d, err := message(src, "RemotePolicyConfig")
	if err != nil {
		return nil, err
	}
	r := &reader{dict: d, class: "RemotePolicyConfig"}
	p := &Policy{
		Type:            r.text("policy_type"),
		Path:            r.text("pretrained_name_or_path"),
		ActionsPerChunk: int(r.int("actions_per_chunk")),
		Device:          r.text("device"),
		Rename:          map[string]string{},
	}
	features := r.mapping("lerobot_features")
	for i, name := range features.Keys {
		f, err := feature(name, features.Values[i])
		if err != nil {
			return nil, err
		}
		p.Features = append(p.Features, f)
	}
	if v := d.Get("rename_map"); v != nil {
		renamed := r.mapping("rename_map")
		for i, from := range renamed.Keys {
			to, ok := renamed.Values[i].(string)
			if !ok {
				return nil, fmt.Errorf("%w: rename_map[%q] is %s, want a text", ErrMessage, from,
					pickle.Brief(renamed.Values[i]))
			}
			p.Rename[from] = to
		}
	}
	return p, r.err
}

// axesMost is the largest number of axes of a feature's shape.
const axesMost = 8

// feature reads a dict with dtype, shape and names, or a PolicyFeature with type and shape.
func feature(name string, v pickle.Value) (f Feature, err error) {
	f.Name = name
	if o, ok := v.(*pickle.Object); ok && o.Class == "PolicyFeature" && o.State != nil {
		v = o.State
	}
	d, ok := v.(*pickle.Dict)
	if !ok {
		return f, fmt.Errorf("%w: feature %q is %s, want a dict", ErrMessage, name, pickle.Brief(v))
	}
	f.Kind, _ = d.Get("dtype").(string)
	shape := items(d.Get("shape"))
	if n := len(shape); n > axesMost {
		return f, fmt.Errorf("%w: feature %q has a shape of %d axes, want at most %d", ErrMessage, name, n, axesMost)
	}
	for _, n := range shape {
		side, ok := n.(int64)
		if !ok || side < 0 || side > 1<<20 {
			return f, fmt.Errorf("%w: feature %q has a side of %s in its shape", ErrMessage, name, pickle.Brief(n))
		}
		f.Shape = append(f.Shape, int(side))
	}
	for _, n := range items(d.Get("names")) {
		text, ok := n.(string)
		if !ok {
			return f, fmt.Errorf("%w: feature %q has a name that is %s", ErrMessage, name, pickle.Brief(n))
		}
		f.Names = append(f.Names, text)
	}
	return f, nil
}

// Encode returns the pickle of p. Features are written as dicts.
func (p *Policy) Encode() []byte {
	features := &pickle.Dict{}
	for _, f := range p.Features {
		shape, names := &pickle.Tuple{}, &pickle.List{}
		for _, n := range f.Shape {
			shape.Items = append(shape.Items, int64(n))
		}
		for _, n := range f.Names {
			names.Items = append(names.Items, n)
		}
		features.Set(f.Name, dict("dtype", f.Kind, "shape", shape, "names", names))
	}
	rename := &pickle.Dict{}
	for from, to := range p.Rename {
		rename.Set(from, to)
	}
	return pickle.Append(nil, &pickle.Object{Class: "RemotePolicyConfig", State: dict("policy_type", p.Type,
		"pretrained_name_or_path", p.Path, "lerobot_features", features, "actions_per_chunk", int64(p.ActionsPerChunk),
		"device", p.Device, "rename_map", rename)})
}

// dict returns a dict. The parameter pairs has each key, a text, followed by its value.
func dict(pairs ...pickle.Value) *pickle.Dict {
	d := &pickle.Dict{}
	for i := 0; i < len(pairs); i += 2 {
		d.Set(pairs[i].(string), pairs[i+1])
	}
	return d
}

// Observation is a TimedObservation.
type Observation struct {
	Timestamp float64 // s, of the client's clock
	Timestep  int64   // step of the action that the client ran last
	MustGo    bool
	Values    *pickle.Dict // joint: number; camera: array [H][W][3] of u1; task: text
}

// ParseObservation reads a TimedObservation. Pictures are parts of src.
func ParseObservation(src []byte) (*Observation, error) {
	d, err := message(src, "TimedObservation")
	if err != nil {
		return nil, err
	}
	r := &reader{dict: d, class: "TimedObservation"}
	o := &Observation{
		Timestamp: r.float("timestamp"),
		Timestep:  r.int("timestep"),
		Values:    r.mapping("observation"),
	}
	o.MustGo, _ = d.Get("must_go").(bool)
	return o, r.err
}

// Encode returns the pickle of o.
func (o *Observation) Encode() []byte {
	return pickle.Append(nil, &pickle.Object{Class: "TimedObservation", State: dict("timestamp", o.Timestamp,
		"timestep", o.Timestep, "observation", o.Values, "must_go", o.MustGo)})
}

// Number returns the value of a joint. ok is false when the observation has no number of that name.
func (o *Observation) Number(name string) (f float64, ok bool) {
	switch v := o.Values.Get(name).(type) {
	case float64:
		return v, true
	case int64:
		return float64(v), true
	case *pickle.Array: // a 0-dimensional array or tensor
		if one, ok := few(v, 1); ok && len(one) == 1 {
			return float64(one[0]), true
		}
	}
	return 0, false
}

// valuesMost bounds the number of values of an action. A pickle may use one large array in many actions. This takes no
// memory until the elements are copied for each action.
const valuesMost = 1024

// few returns the elements of an array. ok is false when the array has more elements than the limit most, or elements
// that are not floats.
func few(a *pickle.Array, most int) (_ []float32, ok bool) {
	if a.Len() > most {
		return nil, false
	}
	return a.Floats(nil)
}

// ParseActions reads a list of TimedAction. It returns first, the step of the first action, and rows, the values of the
// actions. The rows must have equal length, and the actions must have successive steps.
func ParseActions(src []byte) (first int64, rows [][]float32, err error) {
	v, err := pickle.Decode(src)
	if err != nil {
		return 0, nil, err
	}
	list, ok := v.(*pickle.List)
	if !ok || len(list.Items) == 0 {
		return 0, nil, fmt.Errorf("%w: got %s, want a list of TimedAction", ErrMessage, pickle.Brief(v))
	}
	for i, item := range list.Items {
		d, err := object(item, "TimedAction")
		if err != nil {
			return 0, nil, err
		}
		r := &reader{dict: d, class: "TimedAction"}
		step := r.int("timestep")
		action := d.Get("action")
		a, ok := action.(*pickle.Array)
		if !ok {
			r.wrong("action", action, "a tensor")
		}
		if r.err != nil {
			return 0, nil, r.err
		}
		row, ok := few(a, valuesMost)
		if i == 0 {
			first = step
		}
		if !ok || step != first+int64(i) || len(row) == 0 || i > 0 && len(row) != len(rows[0]) {
			return 0, nil, fmt.Errorf("%w: action %d of step %d has %d values of type %s, want 1 to %d floats in "+
				"steps that follow each other", ErrMessage, i, step, a.Len(), a.Type, valuesMost)
		}
		rows = append(rows, row)
	}
	return first, rows, nil
}

// Gather joins the pieces of an observation. The parameter most is the largest permitted size of the observation in
// bytes. Gather returns nil when the call ends before the last piece.
func Gather(next Next, most int) ([]byte, error) {
	whole := make([]byte, 0, most)
	for {
		m, err := next(whole[len(whole):most])
		switch {
		case errors.Is(err, io.EOF):
			return nil, nil
		case err != nil:
			return nil, err
		case m.State < begin || m.State > end:
			return nil, fmt.Errorf("%w: transfer state %d, want 1, 2 or 3", ErrMessage, m.State)
		case m.State == begin:
			whole = whole[:0]
		case m.State == end && len(whole) == 0:
			return m.Data, nil
		}
		if whole = append(whole, m.Data...); m.State == end {
			return whole, nil
		}
	}
}

// Pieces cuts an observation into messages.
func Pieces(data []byte, send func(*Message) error) error {
	for first := true; ; first = false {
		m := &Message{State: middle, Data: data[:min(piece, len(data))]}
		data = data[len(m.Data):]
		switch {
		case len(data) == 0:
			m.State = end
		case first:
			m.State = begin
		}
		if err := send(m); err != nil || m.State == end {
			return err
		}
	}
}

// message decodes a pickle of one object.
func message(src []byte, class string) (*pickle.Dict, error) {
	v, err := pickle.Decode(src)
	if err != nil {
		return nil, err
	}
	return object(v, class)
}

func object(v pickle.Value, class string) (*pickle.Dict, error) {
	o, ok := v.(*pickle.Object)
	if !ok || o.Class != class || o.State == nil {
		return nil, fmt.Errorf("%w: got %s, want a %s", ErrMessage, pickle.Brief(v), class)
	}
	return o.State, nil
}

// items returns the items of a list or tuple.
func items(v pickle.Value) []pickle.Value {
	switch v := v.(type) {
	case *pickle.List:
		return v.Items
	case *pickle.Tuple:
		return v.Items
	}
	return nil
}

// reader reads attributes and keeps the first error.
type reader struct {
	dict  *pickle.Dict
	class string
	err   error
}

func (r *reader) wrong(key string, v pickle.Value, want string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s.%s is %s, want %s", ErrMessage, r.class, key, pickle.Brief(v), want)
	}
}

func (r *reader) text(key string) string {
	v := r.dict.Get(key)
	s, ok := v.(string)
	if !ok {
		r.wrong(key, v, "a text")
	}
	return s
}

func (r *reader) int(key string) int64 {
	v := r.dict.Get(key)
	n, ok := v.(int64)
	if !ok {
		r.wrong(key, v, "an integer")
	}
	return n
}

func (r *reader) float(key string) float64 {
	v := r.dict.Get(key)
	switch f := v.(type) {
	case float64:
		return f
	case int64:
		return float64(f)
	}
	r.wrong(key, v, "a number")
	return 0
}

func (r *reader) mapping(key string) *pickle.Dict {
	v := r.dict.Get(key)
	d, ok := v.(*pickle.Dict)
	if !ok {
		r.wrong(key, v, "a dict")
		return &pickle.Dict{}
	}
	return d
}
