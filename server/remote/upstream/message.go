package upstream

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/tinylib/msgp/msgp"

	"github.com/edge-rt/edge-rt/internal/plain"
	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/server/remote"
	"github.com/edge-rt/edge-rt/wire/ndarray"
)

// errAnswer marks an answer of another form than the manifest describes.
var errAnswer = errors.New("the server's answer is of another form")

// errText is an error that the server reports as text.
var errText = errors.New("the server reports an error")

// textMost bounds the bytes of a server's text in an error.
const textMost = 400

// reported returns an error with a server's text. If the text is a traceback, the error has only its last line, which
// is the reason.
func reported(text string) error {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return fmt.Errorf("%w: %s", errText, short(lines[len(lines)-1]))
}

// short returns a server's text as one line, which it cuts to textMost bytes.
func short(text string) string {
	if text = plain.Text(text); len(text) > textMost {
		text = strings.ToValidUTF8(text[:textMost], "") + "…"
	}
	return text
}

// field is one entry of the server's observation.
type field struct {
	key     string // key in the map that contains the field
	camera  int    // index of the camera; -1: the field is no picture
	first   int    // index of the field's first element in the state
	size    int    // number of elements of the state; 0, with camera -1: the field is the task
	resizer *resizer
}

// group is a map within the observation, or a single entry outside a map.
type group struct {
	key    string
	nested bool
	fields []field
}

// messages writes observations and reads answers.
//
// Owner: the goroutine that owns the connection.
type messages struct {
	spec    *Spec
	kind    string
	style   ndarray.Style
	groups  []group
	horizon int
	dim     int
	buf     []byte
	picture []byte // scratch for a frame and its planes
	values  []float32
}

func newMessages(kind string, spec *Spec, meta *policy.Meta) *messages {
	m := &messages{
		spec:    spec,
		kind:    kind,
		style:   ndarray.OpenPI,
		horizon: meta.ChunkSize,
		dim:     meta.ActionDim,
	}
	if kind == GR00T {
		m.style = ndarray.GR00T
	}
	for i, c := range spec.Cameras {
		m.add(c.Key, field{camera: i, resizer: newResizer(c.Height, c.Width, c.Pad[0], c.Pad[1])})
		if n := 2 * c.Pad[0] * c.Pad[1] * channels; n > len(m.picture) {
			m.picture = make([]byte, n)
		}
	}
	first := 0
	for _, part := range spec.State {
		m.add(part.Key, field{camera: -1, first: first, size: part.Size})
		first += part.Size
	}
	if spec.Prompt != "" {
		m.add(spec.Prompt, field{camera: -1})
	}
	return m
}

// add adds a field to the observation. In a nested observation it puts the field into the map whose name precedes the
// dot in key. In a flat observation, GR00T's key of the task has no prefix.
func (m *messages) add(key string, f field) {
	outer, inner, dotted := strings.Cut(key, ".")
	if !m.spec.Nested {
		f.key = strings.TrimPrefix(key, "language.")
		m.groups = append(m.groups, group{key: f.key, fields: []field{f}})
		return
	}
	if !dotted {
		f.key = key
		m.groups = append(m.groups, group{key: key, fields: []field{f}})
		return
	}
	f.key = inner
	for i := range m.groups {
		if g := &m.groups[i]; g.nested && g.key == outer {
			g.fields = append(g.fields, f)
			return
		}
	}
	m.groups = append(m.groups, group{key: outer, nested: true, fields: []field{f}})
}

// observation returns the message of a row, which is valid until the next call.
func (m *messages) observation(row *remote.Row, token string) []byte {
	b := m.buf[:0]
	if m.kind == GR00T {
		entries := uint32(2)
		if token != "" {
			entries++
		}
		b = msgp.AppendMapHeader(b, entries)
		b = msgp.AppendString(msgp.AppendString(b, "endpoint"), "get_action")
		if token != "" {
			b = msgp.AppendString(msgp.AppendString(b, "api_token"), token)
		}
		b = msgp.AppendMapHeader(msgp.AppendString(b, "data"), 2)
		b = msgp.AppendNil(msgp.AppendString(b, "options"))
		b = msgp.AppendString(b, "observation")
	}
	b = msgp.AppendMapHeader(b, uint32(len(m.groups)))
	for i := range m.groups {
		g := &m.groups[i]
		if b = msgp.AppendString(b, g.key); g.nested {
			b = msgp.AppendMapHeader(b, uint32(len(g.fields)))
		}
		for k := range g.fields {
			if g.nested {
				b = msgp.AppendString(b, g.fields[k].key)
			}
			b = m.value(b, &g.fields[k], row)
		}
	}
	m.buf = b
	return b
}

// value appends the value of one field. The shapes of GR00T's values begin with the dimensions batch and time.
func (m *messages) value(b []byte, f *field, row *remote.Row) []byte {
	var shape []int
	if m.kind == GR00T {
		shape = append(shape, 1, 1)
	}
	switch {
	case f.camera >= 0:
		c := &m.spec.Cameras[f.camera]
		frame := m.picture[:c.Pad[0]*c.Pad[1]*channels]
		f.resizer.resize(frame, row.Images[f.camera])
		if !c.ChannelsFirst {
			return m.style.AppendArray(b, ndarray.Uint8, append(shape, c.Pad[0], c.Pad[1], channels), frame)
		}
		first := m.picture[len(frame):][:len(frame)]
		planes(first, frame)
		return m.style.AppendArray(b, ndarray.Uint8, append(shape, channels, c.Pad[0], c.Pad[1]), first)
	case f.size > 0:
		data := make([]byte, 0, 4*f.size)
		for _, v := range row.State[f.first:][:f.size] {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
		return m.style.AppendArray(b, ndarray.Float32, append(shape, f.size), data)
	case m.kind == GR00T && m.spec.Nested:
		b = msgp.AppendArrayHeader(msgp.AppendArrayHeader(b, 1), 1)
	case m.kind == GR00T:
		b = msgp.AppendArrayHeader(b, 1)
	}
	return msgp.AppendString(b, row.Task)
}

// answer writes the actions of a server's answer to chunk, [horizon][dim].
func (m *messages) answer(chunk []float32, v any) error {
	all, ok := v.(ndarray.Map)
	// GR00T's answer is a list of action and info
	if list, isList := v.([]any); isList && m.kind == GR00T && len(list) > 0 {
		all, ok = list[0].(ndarray.Map)
	}
	if !ok {
		return fmt.Errorf("%w: it is %s, want a map with the actions", errAnswer, ndarray.Kind(v))
	}
	if text, failed := all["error"].(string); failed {
		return reported(text)
	}
	first := 0
	for _, part := range m.spec.Actions {
		a, err := m.part(all, &part)
		if err != nil {
			return err
		}
		if cap(m.values) < a.Len() {
			m.values = make([]float32, a.Len())
		}
		values := m.values[:a.Len()]
		a.Floats(values)
		for step := range m.horizon {
			copy(chunk[step*m.dim+first:][:part.Size], values[step*part.Size:])
		}
		first += part.Size
	}
	return nil
}

// part returns the array of one part, [horizon][size]. In GR00T's answers, the shape begins with a batch of one.
func (m *messages) part(all ndarray.Map, part *Part) (*ndarray.Array, error) {
	v := all.At(part.Key)
	if v == nil { // in a nested answer of GR00T, the keys do not begin with the modality
		v = all[strings.TrimPrefix(part.Key, "action.")]
	}
	a, ok := v.(*ndarray.Array)
	if !ok {
		return nil, fmt.Errorf("%w: its key %s is %s, want an array; it has the keys %s", errAnswer, part.Key,
			ndarray.Kind(v), keys(all))
	}
	shape := a.Shape
	if len(shape) == 3 && shape[0] == 1 {
		shape = shape[1:]
	}
	if part.Size == 1 && len(shape) == 1 {
		shape = []int{shape[0], 1}
	}
	switch {
	case len(shape) != 2 || shape[1] != part.Size:
		return nil, fmt.Errorf("%w: its key %s is an array %s, want [%d %d]: compare model.inputs.chunk_size and "+
			"model.inputs.action_names with the server's configuration", errAnswer, part.Key, a, m.horizon, part.Size)
	case shape[0] != m.horizon:
		return nil, &horizonError{got: shape[0], want: m.horizon}
	}
	return a, nil
}

// horizonError is the error for an answer with another number of actions than the spec has.
type horizonError struct{ got, want int }

func (e *horizonError) Error() string {
	return fmt.Sprintf("the server's chunks have %d actions, the manifest's model.inputs.chunk_size is %d: write "+
		"chunk_size: %[1]d", e.got, e.want)
}
func (e *horizonError) Unwrap() error { return errAnswer }

// keys returns the first keys of a map as a text for an error.
func keys(m ndarray.Map) string {
	return short(cmp.Or(strings.Join(slices.Sorted(maps.Keys(m)), ", "), "(none)"))
}

// isAnswer reports whether err is about the content of an answer, which leaves the connection intact.
func isAnswer(err error) bool {
	return errors.Is(err, errAnswer) || errors.Is(err, errText) || errors.Is(err, ndarray.ErrFormat)
}
