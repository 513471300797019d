package dataset

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
)

// maxTorn limits the times in a report's list of torn pictures. Torn.Count counts all torn pictures.
const maxTorn = 20

// Torn are the pictures of one camera that do not decode, or whose size differs from the size of the camera's video. No
// frame shows them.
type Torn struct {
	Camera    string      `json:"camera"`
	Record    string      `json:"record"`
	Count     int         `json:"count"`
	OtherSize int         `json:"other_size,omitempty"` // pictures that decode but have another size
	Times     []time.Time `json:"times"`                // times of the first maxTorn pictures
}

// Why returns the reason why no frame shows the pictures, in words.
func (t *Torn) Why() string {
	const other = "another size than the camera's others"
	switch t.OtherSize {
	case 0:
		return "do not decode"
	case t.Count:
		return "have " + other
	}
	return fmt.Sprintf("do not decode or, %d of them, have %s", t.OtherSize, other)
}

// When returns the times in words.
func (t *Torn) When() string {
	var words []string
	for _, at := range t.Times {
		words = append(words, at.Format("2006-01-02 15:04:05.000"))
	}
	text := strings.Join(words, ", ")
	if more := t.Count - len(t.Times); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// fault is the reason why no frame may show a picture; 0: no fault.
type fault uint8

const (
	torn      fault = iota + 1 // the picture does not decode
	otherSize                  // the picture's size differs from the camera's size
)

// checkPictures decodes each picture that a frame of the episodes may show. It removes pictures that do not decode, and
// pictures whose size differs from the camera's video. In place of a removed picture a frame shows the previous
// picture, if that picture is young enough.
func (r *run) checkPictures(ctx context.Context, episodes []episode, age time.Duration) error {
	if len(r.cams) == 0 {
		return nil
	}
	check, err := jpeg.NewDecoder()
	if err != nil {
		return err
	}
	defer check.Close()
	r.bad = map[string]map[rt.Instant]fault{}
	for _, name := range r.cams {
		r.bad[name] = map[rt.Instant]fault{}
	}
	order := pictureOrder{}
	err = r.visit(ctx, record.Visitor{
		Image: func(m *record.Image) error {
			shown := func(e episode) bool {
				return m.At >= e.frames[0].at.Add(-age) && m.At <= e.frames[len(e.frames)-1].at
			}
			if !slices.Contains(r.cams, m.Camera) || !order.fresh(m.Camera, m.At) ||
				!slices.ContainsFunc(episodes, shown) {
				return nil
			}
			if s, err := sizeOf(check, m.Data.A); err != nil {
				r.bad[m.Camera][m.At] = torn
			} else if s != r.sizes[m.Camera] {
				r.bad[m.Camera][m.At] = otherSize
			}
			return nil
		},
	})
	for name, all := range r.pictures {
		r.pictures[name] = slices.DeleteFunc(all, func(at rt.Instant) bool { return r.bad[name][at] != 0 })
	}
	return err
}

// tornPictures returns the pictures that checkPictures has removed, by camera.
func (r *run) tornPictures() (out []Torn) {
	for _, name := range r.cams {
		if len(r.bad[name]) == 0 {
			continue
		}
		t := Torn{Camera: name, Record: r.name}
		for _, at := range slices.Sorted(maps.Keys(r.bad[name])) {
			if t.Count++; t.Count <= maxTorn {
				t.Times = append(t.Times, time.Unix(0, int64(at)+r.wall))
			}
			if r.bad[name][at] == otherSize {
				t.OtherSize++
			}
		}
		out = append(out, t)
	}
	return out
}
