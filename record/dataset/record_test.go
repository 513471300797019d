package dataset

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/record/recordtest"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// scene is a run for a test to record. Zero values mean defaults.
type scene struct {
	rate, multiplier int // actions per second; ticks per action
	seconds          float64
	cameras          []string
	cameraFPS        float64
	shutter          rt.Instant // offset of the pictures' times from the even grid; 0: 2 ms before
	w, h             int
	episodes         []record.Episode // nil: no marks
	events           []record.Event
	instance, robot  string
	robotType        string // empty: the robot's name
	units            string
	task             string
	start            rt.Instant
	first            int          // the tick with the first action
	lost             map[int]bool // ticks that the file lacks
	silent           [2]int       // ticks on which the arm does not answer
	slept            int          // tick after a suspension, on which the arm does not answer
	late             int64        // lateness in ns of the tick before a lost tick
	blind            [2]float64   // seconds without pictures
	mode             string
	slip             int    // tick from which on actions begin one tick later; 0: no slip
	taken            [2]int // ticks with a person's actions from a leader arm
	held             [2]int // ticks on which the gate keeps the first joint from reaching its action
	clipped          uint32 // joints that these ticks mark as clipped in speed
	phase            int    // added to the numbers in the pictures
	from             int    // first tick of the file

	size func(camera string, n int) (w, h int) // sides of a camera's picture n; nil: w and h
	torn func(camera string, n int) bool       // whether picture n lacks its end, like a torn one; nil: never
}

// The session of every action of a policy.
const (
	testSession = "0123456789abcdef0123456789abcdef"
	testModel   = "b28e269d16c0"
)

// oneCamera is the camera of most scenes with pictures.
var oneCamera = []string{"top"}

const testStart = rt.Instant(5_000_000_000)

// at returns the instant at this number of seconds after the beginning of the scene.
func (s *scene) at(second float64) rt.Instant { return after(s.start, second) }

func after(start rt.Instant, second float64) rt.Instant {
	return start + rt.Instant(math.Round(second*1e9))
}

func (s *scene) fill() {
	s.rate = cmp.Or(s.rate, 30)
	s.multiplier = cmp.Or(s.multiplier, 1)
	s.seconds = cmp.Or(s.seconds, 2)
	s.cameraFPS = cmp.Or(s.cameraFPS, 30)
	s.shutter = cmp.Or(s.shutter, -2_000_000)
	s.w, s.h = cmp.Or(s.w, 64), cmp.Or(s.h, 48)
	s.start = cmp.Or(s.start, testStart)
	s.instance = cmp.Or(s.instance, "one")
	s.robot = cmp.Or(s.robot, "so101")
	s.mode = cmp.Or(s.mode, "all")
}

// config writes the record and returns a configuration that exports it into a temporary folder.
func (s *scene) config(t testing.TB) Config {
	t.Helper()
	return testConfig(t, s.write(t, t.TempDir(), "a.mcap"))
}

// write writes the record into a folder, and returns its path.
func (s *scene) write(t testing.TB, dir, name string) (path string) {
	t.Helper()
	path = filepath.Join(dir, name)
	s.fill()
	f := recordtest.Create(t, path, map[string]string{
		"instance": s.instance, "robot": s.robot, "joints": "a.pos,b.pos,c.pos", "fps": strconv.Itoa(s.rate),
		"task":                     s.task,
		"interpolation_multiplier": strconv.Itoa(s.multiplier), "cameras": strings.Join(s.cameras, ","),
		"record": s.mode, "robot_type": s.robotType, "units": s.units,
	})
	ticks := s.rate * s.multiplier
	picture := 0
	f.Session(&record.Session{ID: testSession, Epoch: 3, SHA256: testModel})
	for i := range int(s.seconds * float64(ticks)) {
		second := float64(i) / float64(ticks)
		for ; len(s.cameras) > 0 && float64(picture)/s.cameraFPS <= second; picture++ {
			taken := float64(picture) / s.cameraFPS
			if i < s.from || taken >= s.blind[0] && taken < s.blind[1] {
				continue
			}
			for k, name := range s.cameras {
				w, h := s.w, s.h
				if s.size != nil {
					w, h = s.size(name, picture)
				}
				data := testPicture(t, picture+s.phase+100*k, w, h)
				if s.torn != nil && s.torn(name, picture) {
					data = append(data[:len(data)*3/4], 0xff, 0xd9)
				}
				f.Image(&record.Image{
					At:     s.at(taken) + s.shutter,
					Data:   record.Bytes{A: data},
					Format: "jpeg",
					Camera: name,
				})
			}
		}
		due := func(at rt.Instant) bool { return at > s.at(second-1/float64(ticks)) && at <= s.at(second) }
		for _, e := range s.episodes {
			if due(e.At) {
				f.Episode(&e)
			}
		}
		for _, e := range s.events {
			if due(e.At) {
				f.Event(&e)
			}
		}
		if i >= s.from && !s.lost[i] {
			f.Tick(s.tick(i))
		}
	}
	f.Close()
	return path
}

// tick returns tick i: every joint is at i, every goal is i + 0.5, every action i + 0.25.
func (s *scene) tick(i int) *record.Tick {
	late := int64(i%7) * 100_000
	if s.lost[i+1] {
		late = s.late
	}
	m := &record.Tick{At: s.at(float64(i)/float64(s.rate*s.multiplier)) + rt.Instant(late), Lateness: late}
	x := float32(i)
	m.State.Set([]float32{x, -x, 1})
	m.Goal.Set([]float32{x + 0.5, -x, 1})
	m.BusSilent = i >= s.silent[0] && i < s.silent[1]
	if i == s.slept && i > 0 {
		m.BusSilent, m.Suspended = true, 1e9
	}
	if i >= s.held[0] && i < s.held[1] {
		m.StepClipped, m.Held = s.clipped, 1&^s.clipped
	}
	begins := i%s.multiplier == 0
	if s.slip > 0 && i >= s.slip {
		begins = i%s.multiplier == 1
	}
	if i >= s.first && begins {
		m.Action.Set([]float32{x + 0.25, -x, 1})
		m.Intervention = i >= s.taken[0] && i < s.taken[1]
		m.Seq = uint64(i/10 + 1)
		m.Epoch = 3
		m.Index = int32(i % 10)
		m.Source = m.At - 20_000_000
	}
	return m
}

// shown returns the number and the instant of the picture that a tick shows.
func (s *scene) shown(tick int) (number int, at rt.Instant) {
	taken := func(n int) rt.Instant { return s.at(float64(n)/s.cameraFPS) + s.shutter }
	for taken(number+1) <= s.tick(tick).At {
		number++
	}
	return number, taken(number)
}

// begin and end return the messages of an episode, for a scene with the usual start.
func begin(number int, second float64, task string) record.Episode {
	e := record.Episode{At: after(testStart, second), Number: uint32(number)}
	e.Task.Set(task)
	return e
}

func end(number int, second float64, outcome string) record.Episode {
	return record.Episode{At: after(testStart, second), Number: uint32(number), Ended: true, Outcome: outcome}
}

// testPicture encodes a number in the picture, as a grey level and as the position of a bar.
func testPicture(t testing.TB, number, w, h int) []byte {
	t.Helper()
	rgb := make([]byte, 3*w*h)
	for y := range h {
		for x := range w {
			p := rgb[3*(y*w+x):][:3]
			p[0] = byte(40 + number%100)
			p[1] = byte(x * 255 / w)
			p[2] = byte(y * 255 / h)
			if x*100/w == number%100 {
				p[0] = 230
				p[1] = 230
				p[2] = 230
			}
		}
	}
	e := rttest.Must(jpeg.NewEncoder(90, jpeg.Chroma420))(t)
	defer e.Close()
	out := make([]byte, jpeg.MaxSize(w, h, jpeg.Chroma420))
	n := rttest.Must(e.EncodeRGB(out, rgb, w, h))(t)
	// the orientation 6 of Exif, which turns a picture in most programs, turns no frame of a dataset
	const exif = "\xff\xe1\x00\x22Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01\x00\x06" +
		"\x00\x00\x00\x00\x00\x00"
	return slices.Concat(out[:2], []byte(exif), out[2:n])
}

// testConfig exports into a temporary folder.
func testConfig(t testing.TB, records ...string) Config {
	return Config{
		Records:       records,
		Out:           filepath.Join(t.TempDir(), "set"),
		VCodec:        "h264",
		Missing:       dropEpisode,
		MaxGap:        defaultGap,
		MaxPictureAge: 250 * time.Millisecond,
	}
}

// testFolder returns a dataset's folder, so that a test can rewrite its files.
func testFolder(t testing.TB, dir string) *folder {
	t.Helper()
	rttest.Do(t, os.MkdirAll(filepath.Join(dir, marker), 0o777))
	t.Cleanup(func() { os.RemoveAll(filepath.Join(dir, marker)) })
	return &folder{dir: dir, file: 0o666, sub: 0o777}
}

// exported is a dataset read back.
type exported struct {
	*Report
	info *infoFile
	data map[string][][]float64 // all rows
}

// read reads the data that LeRobot would read.
func read(t testing.TB, dir string) exported {
	t.Helper()
	info := rttest.Must(readInfo(dir))(t)
	out := exported{info: info, data: map[string][][]float64{}}
	files := rttest.Must(filepath.Glob(filepath.Join(dir, "data/*/*.parquet")))(t)
	for _, file := range files {
		columns, _, err := readTable(file, nil)
		rttest.Do(t, err)
		for name, c := range columns {
			for i := range c.rows {
				if c.texts != nil {
					break // a column of texts has no numbers
				}
				out.data[name] = append(out.data[name], c.row(i))
			}
		}
	}
	return out
}

// firsts returns the first number of each row of a column.
func (e *exported) firsts(name string) (out []float64) {
	for _, row := range e.data[name] {
		out = append(out, row[0])
	}
	return out
}

// at returns the first numbers of some rows of a column.
func (e *exported) at(name string, rows ...int) (out []float64) {
	for _, i := range rows {
		out = append(out, e.data[name][i][0])
	}
	return out
}

func counted(from, n, step int) (out []float64) {
	for i := range n {
		out = append(out, float64(from+i*step))
	}
	return out
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s is\n%v, want\n%v", what, got, want)
	}
}

// load returns the content of a file.
func load(t testing.TB, path string) []byte {
	t.Helper()
	return rttest.Must(os.ReadFile(path))(t)
}
