package dataset

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"edgert/jpeg"
	"edgert/record"
	"edgert/rt"
)

// maxTorn is how many pictures a report names with their times; all are counted.
const maxTorn = 20

// Torn are the pictures of a camera that do not decode, or have another size than its
// others. No frame shows them.
type Torn struct {
	Camera    string      `json:"camera"`
	Record    string      `json:"record"`
	Count     int         `json:"count"`
	OtherSize int         `json:"other_size,omitempty"` // so many of them decode
	Times     []time.Time `json:"times"`                // of the first of them
}

// Why says why no frame shows them.
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

// When are the times, in words.
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

// fault is why no frame shows a picture; 0: a frame may.
type fault uint8

const (
	torn      fault = iota + 1 // it does not decode
	otherSize                  // than the camera's others
)

// checkPictures decodes each picture that a frame of the episodes may show, and takes away
// those that do not decode, and those of another size than a video of the camera has: a
// frame shows the one before then, as far as that is young enough.
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
	err = r.visit(record.Visitor{
		Image: func(m *record.Image) error {
			shown := func(e episode) bool {
				return m.At >= e.frames[0].at.Add(-age) && m.At <= e.frames[len(e.frames)-1].at
			}
			if !slices.Contains(r.cams, m.Camera) || !order.fresh(m.Camera, m.At) || !slices.ContainsFunc(episodes, shown) {
				return nil
			}
			if s, err := sizeOf(check, m.Data.A); err != nil {
				r.bad[m.Camera][m.At] = torn
			} else if s != r.sizes[m.Camera] {
				r.bad[m.Camera][m.At] = otherSize
			}
			return nil
		},
		Tick: func(*record.Tick) error { return ctx.Err() },
	})
	for name, all := range r.pictures {
		r.pictures[name] = slices.DeleteFunc(all, func(at rt.Instant) bool { return r.bad[name][at] != 0 })
	}
	return err
}

// tornPictures are those that checkPictures has found.
func (r *run) tornPictures() (out []Torn) {
	for _, name := range r.cams {
		if len(r.bad[name]) == 0 {
			continue
		}
		t := Torn{Camera: name, Record: r.name, Count: len(r.bad[name])}
		var all []rt.Instant
		for at, why := range r.bad[name] {
			all = append(all, at)
			if why == otherSize {
				t.OtherSize++
			}
		}
		slices.Sort(all)
		for _, at := range all[:min(len(all), maxTorn)] {
			t.Times = append(t.Times, time.Unix(0, int64(at)+r.wall))
		}
		out = append(out, t)
	}
	return out
}
