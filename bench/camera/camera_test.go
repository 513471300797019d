package camera

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/bench/report"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// The loop ticks in slices with cameras and in those without, each camera's pictures are put into
// messages, and the tables agree with the JSON.
func TestMeasure(t *testing.T) {
	r, err := Measure(context.Background(), Config{
		Camera:   []string{"a=pattern:160x120@30", "b=sim:160x120@30,quality=60"},
		FPS:      60,
		Duration: 2 * time.Second,
		Slice:    time.Second,
		RT:       "off",
	})
	if errors.Is(err, jpeg.ErrNoLibrary) {
		t.Skip(err)
	}
	rttest.Do(t, err)
	if len(r.Cameras) != 2 || r.Slices != 1 {
		t.Fatalf("%d cameras in %d slices, want 2 in 1", len(r.Cameras), r.Slices)
	}
	for _, c := range r.Cameras {
		if c.Pictures == 0 || c.Pictures > c.Captured || c.Latency.P50 <= 0 || c.Bytes < 500 || c.How != "encoded" ||
			c.DevelopMS <= 0 {
			t.Errorf("%+v, want pictures with their latency", c)
		}
	}
	for name, ticks := range map[string]Ticks{"with": r.With, "without": r.Without} {
		sum := uint64(0)
		for _, n := range ticks.columns() {
			sum += n
		}
		if ticks.Ticks == 0 || sum != ticks.Ticks {
			t.Errorf("%s: %d ticks, %d in the histogram", name, ticks.Ticks, sum)
		}
	}
	var table, file bytes.Buffer
	rttest.Do(t, errors.Join(r.WriteTable(&table), report.WriteJSON(&file, r)))
	var back Report
	if err := json.Unmarshal(file.Bytes(), &back); err != nil || back.With.Ticks != r.With.Ticks ||
		!strings.Contains(table.String(), "without") {
		t.Errorf("JSON %v, table %q", err, table.String())
	}
}

// An interrupt ends a measurement within its slice.
func TestAnInterruptEndsASlice(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := Measure(ctx, Config{
		Camera:   []string{"a=pattern:160x120@30"},
		FPS:      60,
		Duration: 2 * time.Hour,
		Slice:    time.Hour,
		RT:       "off",
	})
	if errors.Is(err, jpeg.ErrNoLibrary) {
		t.Skip(err)
	}
	rttest.FailsAs(t, err, context.DeadlineExceeded)
}

func TestMeasureRefuses(t *testing.T) {
	good := Config{Camera: []string{"a=pattern"}, FPS: 60, Duration: 2 * time.Second, Slice: time.Second}
	for name, change := range map[string]func(*Config){
		"no camera":     func(c *Config) { c.Camera = []string{"nonsense"} },
		"half a round":  func(c *Config) { c.Duration = time.Second },
		"a tiny camera": func(c *Config) { c.Camera = []string{"a=pattern:16x16"} },
	} {
		cfg := good
		change(&cfg)
		rttest.Want(t, exit.Of(rttest.Err(Measure(t.Context(), cfg))), exit.Usage, "the code of %s", name)
	}
}
