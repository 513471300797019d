package bringup

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/internal/plain"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

// A robot with false metrics spoils neither the JSON of the fleet nor another robot's line.
func TestAFleetWithLiars(t *testing.T) {
	clock := rttest.NewClock(1)
	f := &fleet{clock: clock, robots: map[string]*reading{}}
	put := func(id, state, rest string) {
		text := fmt.Sprintf(`{"edge_rt_state":{%q:1},"edge_rt_starved_ticks_total":%d%s}`, state, clock.Now(), rest)
		f.take(wire.Sample{Key: "@lerobot/m/main/s/" + id + "/telemetry", Payload: []byte(text)})
		clock.Advance(time.Nanosecond)
	}
	lies := []string{
		`,"edge_rt_runway_seconds":-1`, `,"edge_rt_runway_seconds":1e300`, `,"edge_rt_starved_ticks_total":1e300`,
		`,"edge_rt_overruns_total":{"own":-1}`, `,"edge_rt_round_trip_seconds":{"count":1,"sum":1e306}`,
		`,"edge_rt_info":{"robot":"` + strings.Repeat("x", maxFleetText+1) + `"}`,
	}
	for range 2 {
		put("honest", "STREAMING", `,"edge_rt_round_trip_seconds":{"count":1e-320,"sum":1}`)
		put("evil", "A\nB\tC", `,"edge_rt_info":{"robot":"\u001b[2J\nso101\t7"}`)
		for i, lie := range lies {
			put(fmt.Sprint("liar-", i), "STREAMING", lie)
		}
	}
	robots := f.list(clock.Now())
	if text, err := json.Marshal(FleetReport{robots}); err != nil || len(robots) != 2 || robots[1].ID != "honest" {
		t.Errorf("%s, %v", text, err)
	}
	var out strings.Builder
	f.write(plain.Writer(&out), robots)
	if text := out.String(); strings.Count(text, "\n") != 4 || strings.ContainsAny(text, "\x1b\t") ||
		!strings.HasPrefix(text, "2 robots, 1 streaming; 12 messages malformed") {
		t.Errorf("got %q", text)
	}
	for _, still := range []string{"paused", "waiting"} {
		put("honest", "STREAMING", `,"edge_rt_`+still+`":1`)
		out.Reset()
		f.write(plain.Writer(&out), f.list(clock.Now()))
		if !strings.Contains(out.String(), "  "+strings.ToUpper(still)+"  ") ||
			!strings.Contains(out.String(), ", 0 streaming") {
			t.Errorf("while %s: %s", still, out.String())
		}
	}
	size := func() (rows, columns int) { return 5, 8 }
	rttest.Want(t, fit("1 robots\nROBOT\na\nb\n", size), "1 robots\nROBOT\na\nb\n", "a view that fits")
	rttest.Want(t, fit("heads\nROBOT\na\nb\nc\n", size), "heads\nROBOT\na\n2 furthe\n", "a cut view")
	clock.Advance(fleetGone + time.Second)
	if text, err := json.Marshal(FleetReport{f.list(clock.Now())}); string(text) != `{"robots":[]}` {
		t.Errorf("without a robot: %s, %v", text, err)
	}
}
