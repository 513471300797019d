package timeline

import (
	"bytes"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
)

// Bounds for the page of a record, which may come from any source.
const (
	ViewColumns = 3000 // each at least viewWidth wide
	viewWidth   = 20 * time.Millisecond

	maxViewMarks   = 4000
	maxThumbnails  = 48
	thumbnailWidth = 160      // maximum width and height
	maxPixels      = 16 << 20 // of a picture to shrink
	maxInfo        = 64       // settings of the run
	maxInfoText    = 400      // bytes of a setting
)

//go:embed view.html
var viewHTML []byte

// Seen describes the contents of a record.
type Seen struct {
	record.Info
	Ticks, Pictures, Shown int // Shown: pictures on the page
	Unreadable             int // pictures that are no JPEG, or too large
	MarksLeftOut           uint64
}

// scan is the result of the first reading of a record.
type scan struct {
	first, last rt.Instant
	any         bool
	seen        Seen
}

func (s *scan) note(at rt.Instant) {
	if !s.any {
		s.first = at
		s.last = at
		s.any = true
	}
	s.first, s.last = min(s.first, at), max(s.last, at)
}

// WriteHTML writes a self-contained page that shows a record; the page loads no other file.
// WriteHTML reads in twice.
func WriteHTML(out io.Writer, in io.ReadSeeker, title string) (Seen, error) {
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
		return s.seen, errors.New("it holds nothing to show: no tick, no event and no picture")
	}
	span := uint64(s.last - s.first) // also correct for an invented record with extreme times
	width := max(viewWidth, time.Duration(span/ViewColumns+1))
	fps, _ := strconv.ParseFloat(info.Run["fps"], 64)
	period := time.Duration(0)
	if fps >= 1 && fps <= 1000 {
		period = time.Duration(float64(time.Second) / fps)
	}
	t := New(Config{
		Width:   width,
		Columns: ViewColumns,
		Zero:    s.first,
		Period:  period,
		Marks:   maxViewMarks,
		Joints:  Names(info.Run["joints"]),
		Units:   Names(info.Run["units"]),
	})
	if _, err := in.Seek(0, io.SeekStart); err != nil {
		return s.seen, err
	}
	pictures := thumbnails{every: max(1, (s.seen.Pictures+maxThumbnails-1)/maxThumbnails), wall: info.Wall}
	v := t.Visitor()
	v.Image = pictures.take
	if _, err := record.Read(in, v); err != nil {
		return s.seen, err
	}
	s.seen.Shown, s.seen.Unreadable = pictures.made, pictures.unreadable
	s.seen.MarksLeftOut = t.made - min(t.made, uint64(len(t.marks)))
	b := append([]byte(nil), `{"title":`...)
	b = appendText(b, title)
	b = appendInfo(append(b, `,"run":`...), info.Run)
	b = strconv.AppendBool(append(b, `,"torn":`...), info.Torn)
	b = strconv.AppendInt(append(b, `,"ticks":`...), int64(s.seen.Ticks), 10)
	b = strconv.AppendInt(append(b, `,"pictures":`...), int64(s.seen.Pictures), 10)
	b = strconv.AppendUint(append(b, `,"left_out":`...), s.seen.MarksLeftOut, 10)
	b = append(append(append(b, `,"thumbnails":[`...), pictures.json...), ']')
	b = t.AppendJSON(append(b, `,"lines":`...), Since{}, s.last, info.Wall)
	page := Compose(viewHTML)
	before, after, _ := bytes.Cut(page, []byte("/* data */"))
	for _, part := range [][]byte{before, append(b, '}'), after} {
		if _, err := out.Write(part); err != nil {
			return s.seen, err
		}
	}
	return s.seen, nil
}

// appendInfo appends the run's settings, sorted by name.
func appendInfo(b []byte, run map[string]string) []byte {
	var names []string
	for name := range run {
		names = append(names, name)
	}
	slices.Sort(names)
	b = append(b, '[')
	for i, name := range names[:min(len(names), maxInfo)] {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendTexts(b, []string{cut(name), cut(run[name])})
	}
	return append(b, ']')
}

func cut(text string) string {
	if len(text) > maxInfoText {
		return strings.ToValidUTF8(text[:maxInfoText], "") + " …" // not within a character
	}
	return text
}

// thumbnails shrinks a selection of the pictures.
type thumbnails struct {
	every, seen, made, unreadable int
	wall                          int64
	json                          []byte
}

func (p *thumbnails) take(m *record.Image) error {
	p.seen++
	if (p.seen-1)%p.every != 0 || p.made >= maxThumbnails {
		return nil
	}
	small, err := thumbnail(m.Data.A)
	if err != nil {
		p.unreadable++
		return nil
	}
	if p.made++; p.made > 1 {
		p.json = append(p.json, ',')
	}
	p.json = appendMillis(append(p.json, `{"at_ms":`...), int64(m.At)+p.wall)
	p.json = appendText(append(p.json, `,"camera":`...), cut(m.Camera))
	p.json = append(p.json, `,"jpeg":"`...)
	p.json = base64.StdEncoding.AppendEncode(p.json, small)
	p.json = append(p.json, `"}`...)
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
