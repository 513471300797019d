package latency

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record/why"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestRefusals(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no link":           {Schedule: "drtc"},
		"an unknown link":   {Schedule: "drtc", Links: []string{"lan", "wifi7"}},
		"a schedule":        {Schedule: "fast", Links: []string{"lan"}},
		"no programs there": {Schedule: "drtc", Links: []string{"lan"}, Bin: t.TempDir()},
	} {
		rttest.Want(t, exit.Of(rttest.Err(Measure(t.Context(), cfg))), exit.Usage, "the code of %s", name)
	}
}

// The payload of a robot is its two pictures at its rate of observations; the payload of a fleet
// grows with the number of robots.
func TestFleets(t *testing.T) {
	all := rttest.Must(fleets(3))(t)
	if len(all) != len(sizes)*len(qualities) {
		t.Fatalf("%d fleets", len(all))
	}
	raw := all[0]
	if raw.Pictures != "2 x 640x480" || raw.Quality != 0 || raw.Bytes != 2*640*480*3 ||
		math.Abs(raw.Rate["1"]-44.2368e6) > 1e-3 || math.Abs(raw.Rate["100"]-4423.68e6) > 1e-3 {
		t.Errorf("%+v", raw)
	}
	if q90, q60 := all[1].Bytes, all[2].Bytes; q90 >= raw.Bytes/4 || q60 >= q90 {
		t.Errorf("raw %d, JPEG of 90 and 60 %d and %d bytes", raw.Bytes, q90, q60)
	}
}

func TestTable(t *testing.T) {
	stages := []why.Stage{{Name: "exposure"}, {Name: "network", N: 3, P50: 1.5, P99: 12}}
	r := Report{Schedule: "drtc", FPS: 60, Seconds: 30, Links: []Link{
		{Name: "none", Title: "no fault", Stages: stages, Requests: 3, Ticks: 1800},
		{Name: "wifi", Title: "the Wi-Fi", Stages: []why.Stage{stages[0], {Name: "network", N: 3, P50: 7, P99: 80}},
			Requests: 3.25, Ticks: 1799, Starved: 4, Own: 1, Host: 2},
	}, Fleets: []Fleet{{Pictures: "2 x 640x480", Quality: 90, Bytes: 113_000, Rate: map[string]float64{"10": 27.1e6}}}}
	var out bytes.Buffer
	rttest.Do(t, r.WriteTable(&out))
	got := strings.Join(strings.Fields(out.String()), " ")
	rttest.Contains(t, got, "stage, ms none p50 p99 wifi p50 p99", "exposure - - - -",
		"network 1.50 12.00 7.00 80.00", "wifi: the Wi-Fi 3.25 1799 4 1 2", "2 x 640x480 90 113 0.0 27.1 0.0")
}
