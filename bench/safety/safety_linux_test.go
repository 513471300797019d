package safety

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// programs builds edge-rt for the tests.
func programs(t *testing.T) (bin string) {
	t.Helper()
	bin = rttest.Must(rttest.Programs(t.TempDir(), "edge-rt"))(t)
	return bin
}

// The decoder warns about the spoilt picture, but decodes it.
func TestTheSpoiltPictureIsSpoilt(t *testing.T) {
	d, err := jpeg.NewDecoder()
	if errors.Is(err, jpeg.ErrNoLibrary) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, tt := range []struct {
		picture func() ([]byte, error)
		warned  bool
	}{{picture, false}, {spoiltPicture, true}} {
		file := rttest.Must(tt.picture())(t)
		if err := d.DecodeRGB(make([]byte, 3*320*240), file, 320, 240); err != nil || d.Warned() != tt.warned {
			t.Errorf("DecodeRGB = %v, warned %v, want %v", err, d.Warned(), tt.warned)
		}
	}
}

// soakTime is the length of the short soak; soakFaults are its faults.
const soakTime = 15 * time.Second

var soakFaults = []string{"blip-one", "blip-all", "silent-one", "unplug", "unplug-power", "encoder", "lost-5",
	"garbage", "pause", "router-loss", "sigkill"}

// The real edge-rt breaks no rule while some faults follow one another.
func TestShortSoak(t *testing.T) {
	rttest.RealTime(t)
	if testing.Short() {
		t.Skip("half a minute")
	}
	var log bytes.Buffer
	cfg := Config{
		Robot:   defaultRobot,
		Bin:     programs(t),
		Tree:    "../../testdata/demo",
		Only:    soakFaults,
		Workers: 1,
		Soak:    soakTime,
		Seed:    uint64(time.Now().UnixNano()),
		Env:     bench.Env{Log: &log},
	}
	seed := cfg.Seed
	report := rttest.Must(Run(t.Context(), cfg))(t)
	if len(report.Results) < 3 {
		t.Errorf("seed %d: only %d faults in %v", seed, len(report.Results)-1, soakTime)
	}
	for _, r := range report.Results {
		if r.violated() > 0 {
			t.Errorf("seed %d: %s: %s: %v %v", seed, r.Name, r.Did, r.Violations, r.Kept)
		}
	}
	t.Logf("seed %d\n%s", seed, &log)
}

// Each fault fits into the table, and a fault of the soak needs no run of its own.
func TestFaults(t *testing.T) {
	if len(faults) < 25 {
		t.Errorf("%d faults, want at least 25", len(faults))
	}
	seen := map[string]bool{}
	for _, f := range faults {
		if f.Name == "" || seen[f.Name] || strings.ContainsAny(f.Name, " /,|") {
			t.Errorf("fault %q: want a name of its own, fit for --only and for a folder", f.Name)
		}
		seen[f.Name] = true
		if f.Title == "" || strings.Contains(f.Title, "|") || f.For < 100*time.Millisecond || f.For > 20*time.Second {
			t.Errorf("%s: title %q for %v", f.Name, f.Title, f.For)
		}
		if f.Soak && (f.Lean || f.Args != nil || f.Bus != nil || f.Before != nil || f.Unarmed) {
			t.Errorf("%s cannot be mixed with others: it wants a run of its own", f.Name)
		}
		for _, l := range f.Script {
			if l.Until > f.For {
				t.Errorf("%s: its script lasts %v, the fault %v", f.Name, l.Until, f.For)
			}
		}
	}
	for _, name := range soakFaults {
		if !slices.ContainsFunc(faults, func(f fault) bool { return f.Name == name && f.Soak }) {
			t.Errorf("the short soak wants %s, which cannot be mixed", name)
		}
	}
}

// A robot of several parts gets a fault on each part and on both, as far as these can have it. On a base, the fault
// hits wheels instead of an arm's motors.
func TestFaultsOnParts(t *testing.T) {
	for _, tt := range []struct {
		robot, fault string
		want         []string
	}{
		{"so101", "unplug", []string{"unplug"}},
		{"so101", "server-kill", []string{"server-kill"}},
		{"bi_so101", "unplug", []string{"unplug@left", "unplug@right", "unplug@both"}},
		{"bi_so101", "overload", []string{"overload@left", "overload@right", "overload@both"}},
		{"bi_so101", "sigkill", []string{"sigkill"}},
		{"bi_so101", "server-kill", []string{"server-kill"}},
		{"lekiwi", "unplug", []string{"unplug"}},
		{"lekiwi", "overload", []string{"overload@arm"}},
		{"lekiwi", "blip-one", []string{"blip-one@arm", "blip-one@base", "blip-one@both"}},
	} {
		r := run{robot: must(robot.ByName(tt.robot))}
		r.parts = partsOf(r.robot)
		i := slices.IndexFunc(faults, func(f fault) bool { return f.Name == tt.fault })
		var got []string
		for _, f := range faults[i].on(r.parts) {
			got = append(got, f.Name)
		}
		rttest.Equal(t, got, tt.want, "%s, %s", tt.robot, tt.fault)
	}
	r := run{robot: must(robot.ByName("lekiwi")), fault: &fault{set: 2}}
	r.parts = partsOf(r.robot)
	two, _ := r.hit(0, []uint8{3, 4})
	all, _ := r.hit(0, nil)
	if r.fault.set = 3; !slices.Equal(two, []uint8{7, 8}) || !slices.Equal(all, []uint8{7, 8, 9}) {
		t.Errorf("on the base it hits %v and %v, want two and all wheels", two, all)
	}
	if both, struck := r.hit(0, nil); both != nil || !struck {
		t.Errorf("on both it hits %v, want the whole bus", both)
	}
}

func must(r robot.Robot, err error) robot.Robot {
	if err != nil {
		panic(err)
	}
	return r
}

// The arm's behaviour is read from the writes to its servos.
func TestHistory(t *testing.T) {
	h := new(history)
	var r robot.Robot
	for id := uint8(1); id <= 6; id++ {
		r.Motors = append(r.Motors, robot.Motor{ID: id, Name: string(rune('a' + id - 1))})
	}
	h.open(r.Motors)
	at, aim := h.start, 2000
	send := func(id uint8, torque bool, by int) {
		was := servosim.Snapshot{Torque: h.motors[id].torque, Aim: aim}
		is := servosim.Snapshot{Torque: torque, Aim: aim + by}
		e := &servosim.Event{
			At:     at,
			ID:     id,
			Addr:   42,
			Data:   []byte{byte(is.Aim), byte(is.Aim >> 8)},
			Before: was,
			After:  is,
		}
		if !torque {
			e.Addr, e.Data = 40, []byte{0}
		}
		h.record(e)
	}
	pass := func(d time.Duration, by int, limp ...uint8) {
		for end := at.Add(d); at < end; at = at.Add(period) {
			aim += by
			for id := uint8(1); id <= 6; id++ {
				send(id, !slices.Contains(limp, id), by)
			}
		}
	}
	pass(time.Second, 5)
	from := at
	pass(time.Second, 5)
	held := at
	pass(2*time.Second, 0)
	pass(time.Second, 0, 3)
	pass(time.Second, 0, 1, 2, 3, 4, 5, 6)
	want := []phase{{"went on", time.Second}, {"held", 2 * time.Second}, {"held (c limp)", time.Second},
		{"limp", time.Second}}
	got := h.phases(from, at)
	same := len(got) == len(want)
	for i := 0; same && i < len(want); i++ {
		off := got[i].length - want[i].length
		same = got[i].what == want[i].what && max(off, -off) <= 2*slotTime
	}
	if !same {
		t.Errorf("it did %v, want %v", got, want)
	}
	if h.moves(held.Add(time.Second), held.Add(2*time.Second)) || !h.moves(from, held) {
		t.Error("it moves while it holds, or holds while it moves")
	}
	if last := h.lastDriven([]uint8{2}, from, at); last < held.Add(-2*period) || last > held.Add(period) {
		t.Errorf("last driven %v after it held, want 0", last.Sub(held))
	}
}

// WriteInto writes the table below its heading, and changes nothing else in the page.
func TestWriteInto(t *testing.T) {
	name := rttest.WriteFile(t, t.TempDir(), "page.md", "# Page\n\ntext\n\n## The table\n\nold\n\n"+
		"## The table of lekiwi\n\nkiwi\n")
	r := &Report{Robot: defaultRobot, Results: []Result{{
		Name:       "x",
		Title:      "a thing",
		Did:        "held",
		SafeMS:     17,
		SafeMaxMS:  43,
		Who:        whoItself,
		Violations: map[string]int{"step": 2},
	}}}
	for range 2 {
		rttest.Do(t, r.WriteInto(name))
	}
	got := rttest.ReadFile(t, name)
	for _, want := range []string{"# Page\n\ntext\n", "a thing (`x`)", "step 2", "by itself"} {
		rttest.Want(t, strings.Count(got, want), 1, "%q in\n%s: count", want, got)
	}
	if strings.Contains(got, "old") {
		t.Error("the old table is still there")
	}
	r.Robot = "lekiwi"
	rttest.Do(t, r.WriteInto(name))
	if after := rttest.ReadFile(t, name); strings.Count(after, "a thing") != 2 ||
		!strings.HasPrefix(after, strings.TrimSuffix(got, "kiwi\n")) {
		t.Errorf("the tables are\n%s", after)
	}
	r.Results = []Result{{Name: "x@left", Title: "a thing, on left", Did: "held"},
		{Name: "x@both", Title: "a thing, on both", Did: "limp"}, {Name: "y", Title: "another", Did: "went on"}}
	rttest.Do(t, r.WriteInto(name))
	rttest.Contains(t, rttest.ReadFile(t, name), "| fault | on left | on both |", "| a thing (`x`) | held | limp |",
		"| another (`y`) |  | went on |")
	rttest.Do(t, os.WriteFile(name, []byte("# Page\n"), 0o600))
	if r.WriteInto(name) == nil {
		t.Error("a page without the heading is taken")
	}
}
