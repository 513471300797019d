package bus

import (
	"bytes"
	"encoding/json"
	"math"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/bench/report"
	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/stage"
)

func TestParseEcho(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		cycles     int
		lost       int // cycles without one of the replies
		fails      bool
	}{
		{"clean", "1180000 40000 48\n1190000 41000 48\n", 2, 0, false},
		{"a reply is missing", "1180000 40000 48\n100000000 41000 40\n", 2, 1, false},
		{"too few", "1180000 40000 48\n", 2, 0, true},
		{"no numbers", "echo: the port is gone\n", 1, 0, true},
		{"negative", "-1 40000 48\n", 1, 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all, err := parseEcho(tt.text, tt.cycles, 48)
			lost := 0
			for _, s := range all {
				if s.lost {
					lost++
				}
			}
			if (err != nil) != tt.fails || lost != tt.lost && !tt.fails {
				t.Errorf("parseEcho = %v, %v, %d lost; want %d, failure %v", all, err, lost, tt.lost, tt.fails)
			}
		})
	}
}

// six is a slice of the driver on an SO-101: two clean cycles, a cycle with a health read and a
// cycle that lost a reply.
func six() *driverSlice {
	us := func(n int) time.Duration { return time.Duration(n) * time.Microsecond }
	return &driverSlice{
		samples: []sample{{us(1200), us(40), false, 48, false}, {us(1300), us(50), false, 48, false},
			{us(1700), us(60), true, 78, false}, {us(3700), us(70), true, 48, true}},
		buses:  []traffic{{frames: [][]byte{make([]byte, 26), make([]byte, 14)}, in: 48}},
		allocs: 1,
		window: 4,
		calm:   []bool{true},
	}
}

func TestTheReportAddsUp(t *testing.T) {
	so101 := rttest.Must(robot.ByName("so101"))(t)
	r := &Report{
		Robot:  "so101",
		Motors: 6,
		Buses:  1,
		FPS:    100,
		places: []place{{robot: so101}},
	}
	rttest.Do(t, r.addDriver(six()))
	r.Echo.add([]sample{{took: 1300 * time.Microsecond, in: 48}, {took: 1300 * time.Microsecond, in: 48}}, r.BytesIn)
	r.addLosses(six())
	echo := func(us, cpu time.Duration) []sample {
		return []sample{{took: us * time.Microsecond, cpu: cpu * time.Microsecond, in: 48}}
	}
	r.addPair(six(), nil, echo(1000, 30), true)
	r.addPair(six(), nil, echo(1250, 40), true)
	r.addPair(six(), nil, echo(100, 1), false)
	r.sum()
	if r.BytesOut != 40 || r.BytesIn != 48 || r.WireUS != 880 || r.FloorUS != 1180 {
		t.Errorf("%d bytes out, %d in, wire %v us, floor %v us; want 40, 48, 880, 1180", r.BytesOut, r.BytesIn,
			r.WireUS, r.FloorUS)
	}
	if r.Driver.Cycles != 2 || r.Driver.Other != 2 || r.Driver.CPUMean != 45 || r.RatioP99 != 1 || r.RatioP50 >= 1 ||
		r.Allocs != 1 {
		t.Errorf("driver %+v, ratios %v, %v, allocations %d", r.Driver, r.RatioP50, r.RatioP99, r.Allocs)
	}
	if p := r.Pairs; p.All != 3 || p.Calm != 2 || math.Abs(p.P99-1.3) > 0.02 || math.Abs(p.CalmP99-1.17) > 0.02 ||
		math.Abs(p.CalmP50-1.08) > 0.02 || p.CalmCPU != 40 || p.EchoCPU != 35 {
		t.Errorf("pairs %+v, want 3 of which 2 are calm, p99 1.3 and 1.17, p50 1.08, CPU times 40 and 35 us", p)
	}
	if l := r.LostReply; l.CalmLost != 1 || l.CalmCost.Max != 2500 {
		t.Errorf("losses %+v, want the one to be calm", l)
	}
	if l := r.LostReply; l.Lost != 1 || l.WithoutLoss.P50 != 1200 || l.Cost.Max != 2500 {
		t.Errorf("losses %+v, want 1 that cost 2500 us beyond 1200", l)
	}
	var table, text bytes.Buffer
	if err := r.WriteTable(&table); err != nil || !strings.Contains(table.String(), "1180 us with the servos") {
		t.Errorf("table: %v\n%s", err, &table)
	}
	var back map[string]any
	if err := report.WriteJSON(&text, r); err != nil || json.Unmarshal(text.Bytes(), &back) != nil ||
		back["ratio_p99"] != 1.0 {
		t.Errorf("JSON: %v\n%s", err, &text)
	}
}

func TestWhatIsRefused(t *testing.T) {
	good := Config{Robot: "so101", FPS: 100, Duration: time.Minute, Slice: time.Second}
	for name, change := range map[string]func(*Config){
		"no such arm":          func(c *Config) { c.Robot = "nope" },
		"a leader":             func(c *Config) { c.Robot = "koch_leader" },
		"less than a cycle":    func(c *Config) { c.Slice, c.FPS = time.Second/2, 1 },
		"a slice too long":     func(c *Config) { c.Slice = time.Hour },
		"a simulator's rate":   func(c *Config) { c.Port, c.Baud = device.ByPart{"/dev/ttyACM0"}, 500_000 },
		"a port of two":        func(c *Config) { c.Robot, c.Port = "bi_so101", device.ByPart{"left=/dev/ttyACM0"} },
		"a simulator's motors": func(c *Config) { c.Port, c.Plain = device.ByPart{"/dev/ttyACM0"}, true },
	} {
		c := good
		change(&c)
		rttest.Want(t, exit.Of(rttest.Err(c.check())), exit.Usage, "the code of %s", name)
	}
	rttest.Do(t, rttest.Err(good.check()))
}

// Without a clean cycle of the driver there are no frames that the C program could send.
func TestABusWithoutACleanCycle(t *testing.T) {
	lost := &driverSlice{samples: []sample{{lost: true}}, buses: []traffic{{}}}
	rttest.Ends(t, new(Report).addDriver(lost), exit.Failure, "no cycle of a slice")
}

// The real programs run a few cycles: on a busy machine only their counts are meaningful, not their
// times.
func TestMeasureOnTheSimulator(t *testing.T) {
	rttest.RealTime(t)
	if testing.Short() {
		t.Skip("builds a program and runs for seconds")
	}
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler")
	}
	bin := rttest.Must(rttest.Programs(t.TempDir(), "edge-rt"))(t)
	for _, tt := range []struct {
		cfg           Config
		out, in, wire int
		read          string
	}{
		{Config{Robot: "so101", Awake: true}, 40, 48, 880, "sync"},
		{Config{Robot: "bi_so101"}, 80, 96, 880, "sync"},
		{Config{Robot: "koch"}, 64, 56, 1200, "fast sync"},
		{Config{Robot: "koch", Plain: true, Baud: 4_000_000}, 64, 90, 385, "sync"},
	} {
		c := tt.cfg
		c.FPS = 50
		c.Duration = time.Second
		c.Slice = 500 * time.Millisecond
		c.Drop = 0.05
		c.Bin = bin
		r := rttest.Must(Measure(t.Context(), c))(t)
		if r.Driver.Cycles+r.Driver.Other == 0 || r.Echo.Cycles+r.Echo.Other != 25 || r.LostReply == nil ||
			r.LostReply.Cycles == 0 {
			t.Errorf("%s: %d driver and %d echo cycles, losses %v", c.Robot, r.Driver.Cycles, r.Echo.Cycles,
				r.LostReply)
		}
		if r.Driver.Cycles > 0 && (r.BytesOut != tt.out || r.BytesIn != tt.in || int(r.WireUS) != tt.wire ||
			r.Read != tt.read) {
			t.Errorf("%s: %d bytes out, %d in, %v us, %s; want %d, %d, %d, %s", c.Robot, r.BytesOut, r.BytesIn,
				r.WireUS, r.Read, tt.out, tt.in, tt.wire, tt.read)
		}
		if several := r.Buses > 1; several != (r.OneBus != nil) || several && r.OneBus.Cycles+r.OneBus.Other == 0 ||
			r.Allocs != 0 {
			t.Errorf("%s: one bus %+v of %d, %d allocations", c.Robot, r.OneBus, r.Buses, r.Allocs)
		}
	}
}

// The kernel may count the time that the host stole in one window only in the next window.
func TestCalmLasts(t *testing.T) {
	s := driverSlice{window: 2, calm: []bool{true, true, false, true}}
	var got []bool
	for i := range 9 {
		got = append(got, s.calmAt(i))
	}
	rttest.Equal(t, got, []bool{true, true, false, false, false, false, true, true, false}, "calmAt")
}

// The load that keeps the cores awake uses all core time that other programs leave, and measures
// this time.
func TestCoresStayAwake(t *testing.T) {
	rttest.RealTime(t)
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler")
	}
	a := rttest.Must(stayAwake(t.TempDir()))(t)
	const some = 3 * stage.StatTick
	rttest.Eventually(t, "what keeps the cores awake counts as idle", func() bool {
		with := a.host()
		return with.Idle-stage.ReadHost().Idle >= some
	})
	rttest.Do(t, a.check())
	threads := bench.ThreadsOf(a.child.PID())
	for _, thread := range threads {
		rttest.Want(t, thread.Policy, 5, "the class of thread %+v", thread)
	}
	if len(threads) < 2 {
		t.Errorf("%d threads, want one for every core and the first", len(threads))
	}
	rttest.Do(t, a.stop())
	// the process that keeps the cores awake has ended
	rttest.Ends(t, a.check(), exit.Failure, "was ended from outside")
}
