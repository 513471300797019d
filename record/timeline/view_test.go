package timeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/jpeg"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/webpage/webpagetest"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"golang.org/x/sys/unix"
)

const evil = `</script><script>document.title="owned"</script><img src=x onerror=alert(1)>"'&`

// evilCamera is the most hostile name that a camera may have.
const evilCamera = `<script>"'&<img onerror>`

// strange writes a record in which all names and texts are a stranger's.
func strange(t *testing.T, ticks int) (file string) {
	t.Helper()
	dir, clock := t.TempDir(), rttest.NewClock(1_000_000_000)
	r := rttest.Must(record.New(record.Config{
		Mode: record.All, Dir: dir, Size: 1 << 30, ID: "arm", Cameras: []string{evilCamera}, Clock: clock,
		Now: func() time.Time {
			return time.Date(2026, 11, 24, 14, 3, 20, 0, time.UTC).Add(time.Duration(clock.Now()))
		},
	}))(t)
	r.SetRun(map[string]string{"joints": evil + ",b", "units": "degrees," + evil, "fps": "250", evil: evil,
		"task": strings.Repeat("x", 2000)})
	var picture bytes.Buffer
	rttest.Do(t, jpeg.Encode(&picture, image.NewRGBA(image.Rect(0, 0, 640, 480)), nil))
	for i := range ticks {
		now := clock.Now()
		m := r.Ticks.Put()
		*m = record.Tick{At: now, Queue: 20, Lateness: 50_000, Starved: i%100 == 99}
		m.State.Set([]float32{float32(i), float32(math.NaN())})
		m.Goal.Set([]float32{float32(i + 1), 3})
		r.Ticks.Commit()
		if i%50 == 0 {
			r.Note(now, "operator", record.LevelInfo, fmt.Sprint(i, evil))
			data := picture.Bytes()
			if i == 100 {
				data = []byte("no picture")
			}
			r.Image(0, now, record.Bytes{A: data})
		}
		r.Collect()
		clock.Advance(4 * time.Millisecond) // memory keeps the pictures of the last 2500 of these steps
	}
	stop := new(atomic.Bool)
	stop.Store(true)
	r.Write(stop)
	files, _ := filepath.Glob(filepath.Join(dir, "*"+record.Extension))
	if len(files) != 1 {
		t.Fatalf("%d files", len(files))
	}
	return files[0]
}

// shown is the data on a page.
type shown struct {
	view
	Lines decoded `json:"lines"`
}

func show(t *testing.T, file string) (page string, s shown, seen seen) {
	t.Helper()
	in := rttest.Must(os.Open(file))(t)
	defer in.Close()
	var out strings.Builder
	seen = rttest.Must(writeHTML(&out, in, filepath.Base(file)))(t)
	page = out.String()
	_, rest, _ := strings.Cut(page, `<script type="application/json" id="data">`)
	data, _, _ := strings.Cut(rest, "</script>")
	if err := json.Unmarshal([]byte(data), &s); err != nil {
		t.Fatalf("%v: %.2000s", err, data)
	}
	return page, s, seen
}

// The page of a record shows the whole record, and shows the texts of a stranger as mere text.
func TestAStrangersRecordIsOnlyText(t *testing.T) {
	page, s, seen := show(t, strange(t, 2000))
	if n := strings.Count(page, "<script"); n != 2 || strings.Contains(page, "onerror") &&
		strings.Contains(page, "<img src=x") {
		t.Errorf("the page has %d scripts, want its own two", n)
	}
	for _, word := range []string{"http://", "https://", "src=\"", "@import", "innerHTML"} {
		if strings.Contains(page, word) {
			t.Errorf("the page holds %s", word)
		}
	}
	if s.Ticks != 2000 || s.Torn || len(s.Lines.Rows) != 400 || s.Lines.Joints[0] != evil ||
		s.Lines.Marks[0].Text != "0"+evil {
		t.Errorf("%d ticks, torn %v, %d rows, joint %q", s.Ticks, s.Torn, len(s.Lines.Rows), s.Lines.Joints[0])
	}
	if *s.Lines.Rows[0][0] != 80 || s.Lines.Rows[0][rowHead+perJoint] != nil || *s.Lines.Rows[0][rowHead+3] != 5 {
		t.Errorf("the first row is %v", s.Lines.Rows[0])
	}
	starved := 0.0
	for _, row := range s.Lines.Rows {
		if row != nil {
			starved += *row[4]
		}
	}
	rttest.Want(t, starved, 20, "starved ticks")
	if seen.Pictures != 40 || seen.Unreadable != 1 || len(s.Thumbnails) != 39 {
		t.Errorf("%+v, %d thumbnails, want 39 of 40", seen, len(s.Thumbnails))
	}
	for _, p := range s.Thumbnails {
		if size, err := jpeg.DecodeConfig(bytes.NewReader(p.JPEG)); err != nil || size.Width != thumbnailWidth ||
			size.Height != 120 || p.Camera != evilCamera {
			t.Fatalf("a thumbnail of %+v, %v", size, err)
		}
	}
	for _, pair := range s.Run {
		if len(pair[0])+len(pair[1]) > 2*(maxInfoText+8) {
			t.Errorf("%.30s has %d bytes", pair[0], len(pair[1]))
		}
	}
}

// The size of a page is bounded for any length of a record and any number of pictures.
func TestAPageIsBounded(t *testing.T) {
	page, s, _ := show(t, strange(t, 20_000))
	if len(s.Lines.Rows) > viewColumns || len(s.Lines.Rows) < viewColumns/2 || len(s.Thumbnails) > maxThumbnails ||
		len(page) > 2<<20 {
		t.Errorf("%d columns, %d thumbnails, %d bytes", len(s.Lines.Rows), len(s.Thumbnails), len(page))
	}
}

// The page has pictures of each camera.
func TestPicturesOfTwoCameras(t *testing.T) {
	p := thumbnails{every: 2, seen: map[string]int{}}
	for _, name := range []string{"front", "wrist"} {
		_ = p.take(&record.Image{Camera: name})
	}
	rttest.Want(t, p.unreadable, 2, "pictures taken")
}

// The page of a record without an end shows its readable part. A file that is not a record is
// refused.
func TestATornRecordIsShown(t *testing.T) {
	const ticks = 10_000 // several chunks of the file
	file := strange(t, ticks)
	whole := rttest.Must(os.ReadFile(file))(t)
	shows := func(data []byte) (said string, err error) {
		rttest.Do(t, os.WriteFile(file, data, 0o600))
		var out strings.Builder
		err = Show(t.Context(), ShowConfig{File: file, HTML: filepath.Join(filepath.Dir(file), "out.html"), Out: &out})
		return out.String(), err
	}
	part := 0
	for i := 3; i < 20; i++ {
		said, err := shows(whole[:len(whole)*i/20])
		if err != nil && part == 0 {
			continue // not even the first chunk is whole
		}
		if err != nil || !strings.Contains(said, "has no end") {
			t.Fatalf("%d/20 of it: %q, %v", i, said, err)
		}
		if _, s, _ := show(t, file); s.Torn && s.Ticks > part {
			part = s.Ticks
			if part < ticks {
				break
			}
		}
	}
	if part == 0 || part >= ticks {
		t.Errorf("%d ticks of a torn record, want some of %d", part, ticks)
	}
	for _, data := range [][]byte{nil, []byte("no record"), whole[:300]} {
		if said, err := shows(data); exit.Of(err) != exit.Config {
			t.Errorf("%.20q: %q, %v; want code 3", data, said, err)
		}
	}
	rttest.Ends(t, Show(t.Context(),
		ShowConfig{File: file + ".none", Out: new(strings.Builder)}), exit.Usage)
	for _, flags := range []ShowConfig{{File: file, HTML: file}, {File: file, HTML: file + "-2.mcap"}} {
		flags.Out = new(strings.Builder)
		rttest.Ends(t, Show(t.Context(), flags), exit.Usage) // the page would replace the record
	}
	link := filepath.Join(t.TempDir(), "link")
	rttest.Do(t, os.Symlink(os.DevNull, link))
	rttest.Ends(t, Show(t.Context(), ShowConfig{File: file, HTML: link}), exit.Usage, "it is a folder, link")
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), ".view-*"))
	if len(left) != 0 {
		t.Errorf("%q remain", left)
	}
	rttest.Do(t, os.WriteFile(file, whole, 0o600))
	small := t.TempDir()
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=4k"); err != nil {
		t.Skipf("no small disk: %v", err)
	}
	defer unix.Unmount(small, unix.MNT_DETACH)
	full := ShowConfig{File: file, HTML: filepath.Join(small, "x.html"), Out: new(strings.Builder)}
	rttest.Ends(t, Show(t.Context(), full), exit.Usage, "x.html: no space left")
}

// A picture whose header gives a huge size is not decoded.
func TestAHugePictureIsLeftOut(t *testing.T) {
	var small bytes.Buffer
	rttest.Do(t, jpeg.Encode(&small, image.NewGray(image.Rect(0, 0, 8, 8)), nil))
	b := small.Bytes()
	at := bytes.Index(b, []byte{0xFF, 0xC0}) + 5
	copy(b[at:], []byte{0xFF, 0xFF, 0xFF, 0xFF}) // bytes of the picture's height and width
	rttest.Fails(t, rttest.Err(thumbnail(b)), "65535x65535")
}

// An installed viewer opens the record; with --html it does not run.
func TestAViewerOpensTheRecord(t *testing.T) {
	file, bin := strange(t, 100), t.TempDir()
	got := filepath.Join(bin, "got")
	script := "#!/bin/sh\nprintf %s \"$1\" > " + got + "\n"
	rttest.WriteFile(t, bin, "rerun", script)
	t.Setenv("PATH", bin+":/usr/bin:/bin")
	var out strings.Builder
	if err := Show(t.Context(), ShowConfig{File: file, Out: &out}); err != nil ||
		!strings.Contains(out.String(), "rerun opens") {
		t.Fatalf("%q, %v", &out, err)
	}
	rttest.Want(t, rttest.ReadFile(t, got), file, "rerun's argument")
	t.Setenv("PATH", t.TempDir())
	out.Reset()
	page := strings.TrimSuffix(file, record.Extension) + ".html"
	if err := Show(t.Context(), ShowConfig{File: file, Out: &out}); err != nil ||
		!strings.Contains(out.String(), page) {
		t.Errorf("%q, %v; want it to say where the page is", &out, err)
	}
	if info, err := os.Stat(page); err != nil || info.Mode().Perm()&0o007 != 0 {
		t.Errorf("%v, %v; want a page that not everybody reads", info, err)
	}
}

// Goal: Debian's Chromium draws the page of a stranger's record from the file alone, and runs no
// script of the record.
func TestAStrangersRecordInChromium(t *testing.T) {
	file := strange(t, 1000)
	html := filepath.Join(t.TempDir(), "out.html")
	rttest.Do(t, Show(t.Context(), ShowConfig{File: file, HTML: html, Out: new(strings.Builder)}))
	b := webpagetest.Open(t, "file://"+html, 1000, 900, false)
	b.Wait("document.querySelectorAll('.plot').length === 7 && document.querySelectorAll('#thumbnails img').length " +
		"=== 19")
	b.Wait("[...document.querySelectorAll('#thumbnails img')].every(i => i.naturalWidth === 160)")
	rttest.Want(t, b.Eval("document.title"), filepath.Base(file), "the title")
	if n := b.Eval("document.scripts.length + ' ' + document.querySelectorAll('img[src=x]').length"); n != "3 0" &&
		n != "2 0" {
		t.Errorf("scripts and pictures: %s", n)
	}
	before := b.Eval("document.getElementById('span').textContent")
	b.Click("#in")
	b.Wait("document.getElementById('span').textContent !== " + strconv.Quote(before))
	if len(b.Errors) > 0 || len(b.Dialogs) > 0 {
		t.Errorf("errors %q, dialogs %q", b.Errors, b.Dialogs)
	}
}

// A setting that is too long is cut between two characters.
func TestSettingsAreCutBetweenCharacters(t *testing.T) {
	for _, text := range []string{strings.Repeat("ü", 400), "x" + strings.Repeat("把", 400), "short"} {
		got := cut(text)
		if !utf8.ValidString(got) || !strings.HasPrefix(text, strings.TrimSuffix(got, " …")) {
			t.Errorf("%q is cut to %q", text, got)
		}
	}
}

// A pipe is refused: opening it would block, and no signal would end the wait.
func TestAPipeIsNotOpened(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "x.mcap")
	rttest.Do(t, unix.Mkfifo(pipe, 0o600))
	rttest.Ends(t, Show(t.Context(), ShowConfig{File: pipe, Out: new(strings.Builder)}), exit.Usage)
}
