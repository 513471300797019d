package timeline

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
)

// Bounds for the page of a record, which may come from any source.
const (
	viewColumns = 3000 // each at least viewWidth wide
	viewWidth   = 20 * time.Millisecond

	maxViewMarks   = 4000
	maxThumbnails  = 48
	thumbnailWidth = 160      // maximum width and height
	maxPixels      = 16 << 20 // largest number of pixels of a picture that is shrunk
	maxInfo        = 64       // most settings of the run
	maxInfoText    = 400      // most bytes of a setting
)

//go:embed view.html
var viewHTML []byte

// seen describes the contents of a record.
type seen struct {
	record.Info
	Ticks, Pictures, Shown int // Shown: pictures on the page
	Unreadable             int // pictures that are not a JPEG, or too large
	MarksLeftOut           uint64
}

// scan is the result of the first reading of a record.
type scan struct {
	first, last rt.Instant
	any         bool
	seen        seen
}

func (s *scan) note(at rt.Instant) {
	if !s.any {
		s.first = at
		s.last = at
		s.any = true
	}
	s.first, s.last = min(s.first, at), max(s.last, at)
}

// writeHTML writes a self-contained page that shows a record; the page loads no other file. writeHTML reads the
// record, in, twice.
func writeHTML(out io.Writer, in io.ReadSeeker, title string) (seen, error) {
	var s scan
	info, err := record.Read(in, record.Visitor{
		Tick:    func(m *record.Tick) error { s.note(m.At); s.seen.Ticks++; return nil },
		Event:   func(m *record.Event) error { s.note(m.At); return nil },
		Episode: func(m *record.Episode) error { s.note(m.At); return nil },
		Image:   func(m *record.Image) error { s.note(m.At); s.seen.Pictures++; return nil },
	})
	s.seen.Info = info
	if err != nil {
		return s.seen, err
	}
	if !s.any {
		return s.seen, cmp.Or(info.Cause, errors.New("it holds nothing to show: no tick, no event and no picture"))
	}
	span := uint64(s.last - s.first) // correct even for extreme times in an invented record
	width := max(viewWidth, time.Duration(span/viewColumns+1))
	fps, _ := strconv.ParseFloat(info.Run["fps"], 64)
	period := time.Duration(0)
	if fps >= 1 && fps <= 1000 {
		period = time.Duration(float64(time.Second) / fps)
	}
	t := New(Config{
		Width:   width,
		Columns: viewColumns,
		Zero:    s.first,
		Period:  period,
		Marks:   maxViewMarks,
		Joints:  names(info.Run["joints"]),
		Units:   names(info.Run["units"]),
	})
	if _, err := in.Seek(0, io.SeekStart); err != nil {
		return s.seen, err
	}
	pictures := thumbnails{every: max(1, (s.seen.Pictures+maxThumbnails-1)/maxThumbnails), wall: info.Wall,
		seen: map[string]int{}}
	v := t.Visitor()
	v.Image = pictures.take
	if _, err := record.Read(in, v); err != nil {
		return s.seen, err
	}
	s.seen.Shown, s.seen.Unreadable = len(pictures.made), pictures.unreadable
	s.seen.MarksLeftOut = t.made - min(t.made, uint64(len(t.marks)))
	data, err := json.Marshal(view{
		Title:      title,
		Run:        settings(info.Run),
		Torn:       info.Torn,
		Ticks:      s.seen.Ticks,
		Pictures:   s.seen.Pictures,
		LeftOut:    s.seen.MarksLeftOut,
		Thumbnails: append([]picture{}, pictures.made...),
		Lines:      t.answer(Since{}, s.last, info.Wall),
	})
	if err != nil {
		return s.seen, err
	}
	page := Compose(viewHTML)
	before, after, _ := bytes.Cut(page, []byte("/* data */"))
	for _, part := range [][]byte{before, data, after} {
		if _, err := out.Write(part); err != nil {
			return s.seen, err
		}
	}
	return s.seen, nil
}

// view is the data of a page.
type view struct {
	Title      string      `json:"title"`
	Run        [][2]string `json:"run"`
	Torn       bool        `json:"torn"`
	Ticks      int         `json:"ticks"`
	Pictures   int         `json:"pictures"`
	LeftOut    uint64      `json:"left_out"`
	Thumbnails []picture   `json:"thumbnails"`
	Lines      answer      `json:"lines"`
}

type picture struct {
	At     int64  `json:"at_ms"`
	Camera string `json:"camera"`
	JPEG   []byte `json:"jpeg"`
}

// settings returns the run's settings, sorted by name.
func settings(run map[string]string) [][2]string {
	out := [][2]string{}
	for _, name := range slices.Sorted(maps.Keys(run)) {
		out = append(out, [2]string{cut(name), cut(run[name])})
	}
	return out[:min(len(out), maxInfo)]
}

func cut(text string) string {
	if len(text) > maxInfoText {
		return strings.ToValidUTF8(text[:maxInfoText], "") + " …" // cuts between two characters
	}
	return text
}

// thumbnails shrinks a selection of the pictures.
type thumbnails struct {
	every, unreadable int
	seen              map[string]int // pictures so far, by camera
	wall              int64
	made              []picture
}

func (p *thumbnails) take(m *record.Image) error {
	p.seen[m.Camera]++
	if (p.seen[m.Camera]-1)%p.every != 0 || len(p.made) >= maxThumbnails {
		return nil
	}
	small, err := thumbnail(m.Data.A)
	if err != nil {
		p.unreadable++
		return nil
	}
	p.made = append(p.made, picture{(int64(m.At) + p.wall) / millis, cut(m.Camera), small})
	return nil
}

// thumbnail shrinks a picture and encodes it anew, so that no byte of a stranger's file gets into
// the page.
func thumbnail(data []byte) ([]byte, error) {
	size, err := jpeg.DecodeConfig(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	if size.Width <= 0 || size.Height <= 0 || size.Width*size.Height > maxPixels {
		return nil, fmt.Errorf("a picture of %dx%d, want at most %d pixels", size.Width, size.Height, maxPixels)
	}
	from, err := jpeg.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	scale := max(1, float64(size.Width)/thumbnailWidth, float64(size.Height)/thumbnailWidth)
	to := image.NewRGBA(image.Rect(0, 0, max(1, int(float64(size.Width)/scale)),
		max(1, int(float64(size.Height)/scale))))
	for y := range to.Rect.Dy() {
		for x := range to.Rect.Dx() {
			to.Set(x, y, from.At(from.Bounds().Min.X+int((float64(x)+.5)*scale),
				from.Bounds().Min.Y+int((float64(y)+.5)*scale)))
		}
	}
	var out bytes.Buffer
	err = jpeg.Encode(&out, to, &jpeg.Options{Quality: 70})
	return out.Bytes(), err
}
