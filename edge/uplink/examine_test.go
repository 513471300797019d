package uplink

import (
	"bytes"
	"image"
	"image/color"
	stdjpeg "image/jpeg"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/trained"
)

// halves returns a picture that is red above and blue below, upside down if turned is set.
func halves(t *testing.T, turned bool) wire.Image {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, 64, 48))
	for y := range 48 {
		for x := range 64 {
			c := color.RGBA{200, 20, 20, 255}
			if y >= 24 != turned {
				c = color.RGBA{20, 20, 100, 255}
			}
			m.Set(x, y, c)
		}
	}
	var out bytes.Buffer
	rttest.Do(t, stdjpeg.Encode(&out, m, nil))
	return wire.Image{Name: "observation.images.top", Codec: wire.JPEG, Data: out.Bytes()}
}

// halvesTrained returns the statistics of a training with the pictures of halves.
func halvesTrained() *trained.Statistics {
	c := trained.Camera{Name: "top", Mean: []float64{0.43, 0.08, 0.24}, Light: []float64{0.2, 0.3}}
	for cell := range trained.Side * trained.Side {
		top := []float64{0.78, 0.08, 0.08}
		if cell >= trained.Side*trained.Side/2 {
			top = []float64{0.08, 0.08, 0.39}
		}
		c.Grid = append(c.Grid, top...)
		c.GridStd = append(c.GridStd, 0.02, 0.02, 0.02)
	}
	return &trained.Statistics{State: trained.State{Min: []float64{0, 0}, Max: []float64{10, 10}},
		Cameras: []trained.Camera{c}}
}

// A first observation unlike the training is held back while it may change, and is then reported; with
// --strict-observations it never leaves. Each policy is examined once.
func TestFirstObservation(t *testing.T) {
	for _, tt := range []struct {
		name   string
		turned bool
		state  []float32
		strict bool
		says   string // text in the log, or in the error
	}{
		{"like the training", false, []float32{5, 5}, true, ""},
		{"upside down", true, []float32{5, 5}, false, "unlike the training: camera top is upside down"},
		{"upside down, strict", true, []float32{5, 5}, true, "--strict-observations: camera top is upside down"},
		{"a joint", false, []float32{5, 30}, true, "joint gripper.pos is at 30.0, and the training had 0.0 to 10.0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			clock := rttest.NewClock(1)
			l := New(Config{Names: testNames, Clock: clock, Log: slog.New(slog.NewTextHandler(&log, nil)),
				StrictObservations: tt.strict})
			s := &Sender{examiner: examiner{link: l}}
			open := &Session{Trained: halvesTrained()}
			open.SHA256 = "a"
			o := wire.Observation{Images: []wire.Image{halves(t, tt.turned)}}
			held := 0
			for s.examiner.due(open) && s.examiner.err == nil && s.examiner.holds(&o, tt.state, open) && held < 100 {
				held++
				clock.SleepUntil(clock.Now().Add(20 * time.Millisecond))
			}
			if wait := tt.says != ""; wait != (held >= 50) || held > 52 {
				t.Errorf("%d snapshots were held", held)
			}
			said := log.String()
			if tt.strict && tt.says != "" {
				if exit.Of(s.examiner.err) != exit.Config || !s.examiner.due(open) {
					t.Errorf("error %v, due %v", s.examiner.err, s.examiner.due(open))
				} else {
					said = s.examiner.err.Error()
				}
			}
			if !strings.Contains(said, tt.says) || len(s.Findings()) != min(1, len(tt.says)) {
				t.Errorf("it says %s, findings %q", said, s.Findings())
			}
			next := *open
			next.SHA256 = "b"
			if !s.examiner.due(&next) {
				t.Error("another policy is not examined")
			}
		})
	}
}

// Without statistics the run goes on, and the log reports that once. With --strict-observations the run ends.
func TestNoStatistics(t *testing.T) {
	for _, strict := range []bool{false, true} {
		var log bytes.Buffer
		l := New(Config{Clock: rttest.NewClock(1), Log: slog.New(slog.NewTextHandler(&log, nil)),
			StrictObservations: strict})
		x := examiner{link: l}
		open := new(Session)
		holds := x.holds(&wire.Observation{}, nil, open)
		if holds != strict || (x.err != nil) != strict || strings.Count(log.String(), "sends no statistics") != 1 {
			t.Errorf("strict %v: holds %v, %v, %s", strict, holds, x.err, &log)
		}
	}
}

// Pictures that do not decode are left out of the comparison and do not stop the sender.
func TestBrokenPicturesAreLeftOut(t *testing.T) {
	good := halves(t, false)
	broken := wire.Image{Name: "observation.images.wrist", Data: good.Data[:30]}
	got := decoded([]wire.Image{broken, good})
	if len(got) != 1 || got[0].Name != "top" || got[0].W != 64 || len(got[0].RGB) != 3*64*48 ||
		slices.Max(got[0].RGB[:3]) < 150 {
		t.Errorf("%d pictures are compared", len(got))
	}
}
