package faults

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/sim/fleet"
	"github.com/edge-rt/edge-rt/sim/netfault"
	"github.com/edge-rt/edge-rt/stage/stagetest"
)

func TestEveryScenarioIsSound(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range scenarioNames() {
		s, err := LoadScenario(name)
		if err != nil || s.Name != name || s.Script.Name == "" || seen[s.Script.Name] {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
		seen[s.Script.Name] = true
	}
	for _, kind := range netfault.Kinds {
		used := false
		for _, name := range scenarioNames() {
			s, _ := LoadScenario(name)
			for _, f := range s.Script.Faults {
				used = used || f.Kind == kind
			}
		}
		if !used {
			t.Errorf("no scenario has a %s", kind)
		}
	}
}

// The list names all schedules and scenarios, and each option with its effect.
func TestList(t *testing.T) {
	list := text(t, WriteList)
	for _, name := range slices.Concat(scenarioNames(), chunk.Schedules, optionNames()) {
		if !regexp.MustCompile(`(?m)(^|[\s,])` + regexp.QuoteMeta(name) + `([\s,]|$)`).MatchString(list) {
			t.Errorf("the list lacks %s:\n%s", name, list)
		}
	}
	for name, o := range options {
		if o.says == "" || !strings.Contains(list, o.says) {
			t.Errorf("the list does not say what %s does", name)
		}
	}
}

func TestRefusals(t *testing.T) {
	var err error
	code := func(want exit.Code, name string) {
		t.Helper()
		if exit.Of(err) != want || rttest.Says(err, "\n") {
			t.Errorf("%s: %v, code %v, want one line and %v", name, err, exit.Of(err), want)
		}
	}
	_, err = LoadScenario("none_such")
	code(exit.Usage, "an unknown scenario")
	_, err = LoadScenario("./none_such.yaml")
	code(exit.Usage, "a file that is not there")
	_, err = ParseContender("fast")
	code(exit.Usage, "an unknown schedule")
	_, err = ParseContender("drtc+fast")
	code(exit.Usage, "an unknown option")
	for _, name := range []string{
		// options that have no meaning for the schedule
		"rtc+spans", "async+s_min=7", "append+bare", "v1+counts", "async+compat+jk",
		"drtc+bare+spans", "drtc+s_min=7+s_min=8", "drtc+jk+fixed", "drtc+compat+compat", "drtc+s_min=0",
		"drtc+g=0.7", "sync+g=0", "async+g=1.1", "async+g=", "async+g=nan", "drtc+similarity=1", "async+similarity=-1",
		"async+buffer=1s", "rtc+buffer=0s", "rtc+buffer=2m", "rtc+K=2", "drtc+K=0", "drtc+K=101", "drtc+fixed+K=2",
		"drtc+jpeg=101", "drtc+jpeg", "drtc+plain=1",
	} {
		_, err = ParseContender(name)
		code(exit.Usage, name)
	}
	for name, change := range map[string]func(*Config){
		"no scenario": func(c *Config) { c.Scenarios = nil }, "no contender": func(c *Config) { c.Contenders = nil },
		"an odd number":  func(c *Config) { c.Episodes = 3 },
		"no time at all": func(c *Config) { c.Network, c.Compute = new(time.Duration), new(time.Duration) },
	} {
		cfg := config(t)
		change(&cfg)
		_, err = Play(context.Background(), cfg)
		code(exit.Usage, name)
	}
	for name, change := range map[string]func(*Config){
		"another world": func(c *Config) {
			c.World = "narrow"
		}, "its own network": func(c *Config) { c.Network = new(time.Second) },
		"cameras": func(c *Config) { c.Cameras = Cameras{1, 640, 480} },
	} {
		cfg := config(t)
		change(&cfg)
		_, err = Live(context.Background(), cfg)
		code(exit.Usage, "real time, "+name)
	}
}

// A value that is too large only for this policy is reported as a wrong flag, too.
func TestTooManyActionsForThePolicy(t *testing.T) {
	stagetest.NeedsRuntime(t)
	cfg := config(t)
	_, c := matchup(t, "none", "drtc+s_min=60")
	cfg.Contenders = append(cfg.Contenders, c)
	rttest.Ends(t, rttest.Err(Play(context.Background(), cfg)), exit.Usage, "s_min is 60")
}

// No two episodes are the same, and in virtual time the episodes of a pair have the same seed.
func TestEveryEpisodeIsAnother(t *testing.T) {
	type world struct {
		seed      uint64
		direction int
	}
	for _, live := range []bool{false, true} {
		cfg := Config{FirstSeed: 0, Episodes: 20, live: live}
		seen := map[world]bool{}
		faults := map[uint64]bool{}
		right := 0
		for i := range cfg.Episodes {
			seed, direction := cfg.episode(i)
			if live {
				direction = 1 // the only direction of edge-rt
			}
			seen[world{seed, direction}], faults[fleet.FaultSeed(seed, direction)] = true, true
			right += direction
		}
		if len(seen) != cfg.Episodes || len(faults) != cfg.Episodes || !live && right != 0 {
			t.Errorf("live %v: %d episodes are %d worlds with %d fates, %+d more on the right", live, cfg.Episodes,
				len(seen), len(faults), right)
		}
		if seed, _ := cfg.episode(0); seed != 0 {
			t.Errorf("live %v: the first seed is %d, want the 0 that was asked for", live, seed)
		}
	}
}

// matchup returns a scenario and a contender.
func matchup(t *testing.T, scenario, contender string) (Scenario, Contender) {
	t.Helper()
	s := rttest.Must(LoadScenario(scenario))(t)
	c := rttest.Must(ParseContender(contender))(t)
	return s, c
}

func config(t *testing.T) Config {
	t.Helper()
	cfg := Config{
		Episodes: 4, FirstSeed: fleet.DefaultSeed, Duration: 2 * time.Second,
		Bundle: "../../testdata/demo/still", Plain: "../../testdata/demo/plain",
	}
	none, drtc := matchup(t, "none", "drtc")
	blackout, plain := matchup(t, "blackout", "drtc+plain")
	loss, _ := matchup(t, "loss_20", "drtc")
	cfg.Scenarios = []Scenario{none, blackout, loss}
	cfg.Contenders = []Contender{drtc, plain}
	return cfg
}

// A small comparison writes all its files.
func TestPlay(t *testing.T) {
	stagetest.NeedsRuntime(t)
	cfg := config(t)
	report := rttest.Must(Play(context.Background(), cfg))(t)
	again := rttest.Must(Play(context.Background(), cfg))(t)
	again.TookS = report.TookS
	encode := func(r *Report) string {
		b := rttest.Must(json.Marshal(r))(t)
		return string(b)
	}
	if encode(report) != encode(again) || text(t, report.WriteCSV) != text(t, again.WriteCSV) {
		t.Error("the same comparison came out differently")
	}
	var parsed Report
	if err := json.Unmarshal([]byte(encode(report)), &parsed); err != nil || len(parsed.Cells) != 3 ||
		len(parsed.Cells[0].Rows) != 2 {
		t.Fatalf("JSON: %v, %+v", err, parsed)
	}
	if got := parsed.Cells[0].Rows[0].Metrics["reached"]; got.Mean != 0 || got.N != 4 {
		t.Errorf("standing still reaches %+v", got)
	}
	rttest.Want(t, parsed.Cells[0].Rows[0].Metrics["recovery_ms"].N, 0, "recoveries without a loss")
	rows, err := csv.NewReader(strings.NewReader(text(t, report.WriteCSV))).ReadAll()
	if err != nil || len(rows) != 1+3*2*120 || len(rows[0]) != 20 {
		t.Errorf("CSV: %d rows, %v", len(rows), err)
	}
	table := text(t, report.WriteTable)
	rttest.Contains(t, table, "none: no fault", "loss_20: 20 %", "drtc+plain", "reached/min")
	html := text(t, report.WriteHTML)
	if strings.Count(html, "<figure>") != 3 || strings.Contains(html, "NaN") {
		t.Error("the page does not hold one figure for each scenario, or a NaN")
	}
	rttest.Want(t, regexp.MustCompile(`(src|href)="?https?:|@import|url\(`).FindString(html), "",
		"the page loads something")
	foreign := regexp.MustCompile(`<style>[^.]|}(svg|text|path)`)
	rttest.Want(t, foreign.FindString(strings.ReplaceAll(html, "<style>\n:root", "")), "", "a style for the page")
	rttest.Want(t, strings.Count(html, `<td><a href="#`), 3, "rows of the overview")
	wellFormed(t, text(t, report.WriteSVG))
	queues := text(t, report.WriteQueues)
	wellFormed(t, queues)
	rttest.Want(t, strings.Count(queues, " actions from "), 2, "panels in the figure of the queues")
}

// The drawing of the queues states each contender's numbers of actions, requests and idle times.
func TestQueues(t *testing.T) {
	ticks := make([]fleet.Tick, 120)
	for i := range ticks {
		ticks[i].Step, ticks[i].Requested = int64(i)-1, i%40 == 0
		ticks[i].Starved = i >= 10 && i < 13 || i >= 50 && i < 59
	}
	svg := drawQueues("a title", []string{"sync"}, [][]fleet.Tick{ticks})
	wellFormed(t, svg)
	want := "sync: 107 actions from 3 requests, 35.7 for each; idle 2 times, 100 ms on average"
	if !strings.Contains(svg, want) || strings.Count(svg, `class="s"`) != 2 || strings.Count(svg, `class="o"`) != 3 {
		t.Errorf("%s\nwant %q, two idle times and three requests", svg, want)
	}
}

// Options with a value change the schedule; with g=0 the robot sends its request when no action is left.
func TestValuesOfOptions(t *testing.T) {
	for name, want := range map[string]chunk.Config{
		"async+g=0":          {Schedule: "async", Threshold: math.SmallestNonzeroFloat64},
		"async+g=1":          {Schedule: "async", Threshold: 1},
		"async+similarity=0": {Schedule: "async", Similarity: -1},
		"v1+buffer=300ms":    {Schedule: "v1", Buffer: 300 * time.Millisecond},
		"rtc+buffer=auto":    {Schedule: "rtc", Buffer: chunk.AutoBuffer},
		"drtc+K=2.5":         {Schedule: "drtc", EstimatorK: 2.5, Estimator: "jk"},
	} {
		if c, err := ParseContender(name); err != nil || c.Schedule != want || c.quality(7) != 7 {
			t.Errorf("%s: %+v, %v, want %+v", name, c, err, want)
		}
	}
	c, err := ParseContender("drtc+jpeg=0")
	if err != nil || c.quality(90) != 0 {
		t.Errorf("raw pictures have the quality %d, %v, want 0", c.quality(90), err)
	}
}

// The pictures of further cameras add to the bytes on the network, at the contender's quality.
func TestFurtherCameras(t *testing.T) {
	stagetest.NeedsRuntime(t)
	cfg := config(t)
	none, drtc := matchup(t, "none", "drtc")
	_, raw := matchup(t, "none", "drtc+jpeg=0")
	cfg.Scenarios = []Scenario{none}
	cfg.Contenders = []Contender{drtc, raw}
	cfg.Quality = 90
	sent := func() (kilobytes [2]float64) {
		report := rttest.Must(Play(context.Background(), cfg))(t)
		for i := range kilobytes {
			m := report.Cells[0].Rows[i].Metrics
			kilobytes[i] = m["kilobytes"].Mean / m["requests"].Mean
		}
		return kilobytes
	}
	before := sent()
	rttest.Do(t, cfg.Cameras.UnmarshalText([]byte("2x64x48")))
	after := sent()
	if grown := after[1] - before[1]; math.Abs(grown-2*64*48*3/1000.0) > 0.1 || after[0]-before[0] > grown/2 {
		t.Errorf("a request has %v kB as JPEG and raw, %v with two cameras; want 18.4 more raw", before, after)
	}
	for _, text := range []string{"", "640x480", "2x640", "0x640x480", "17x640x480", "2x640x0", "2x5000x10",
		"2x640x480x3",
		"2x640x480 "} {
		rttest.Want(t, exit.Of(new(Cameras).UnmarshalText([]byte(text))), exit.Usage, "--cameras %q", text)
	}
}

// A fault that lasts the whole episode is not shaded.
func TestWindowsOf(t *testing.T) {
	for _, ticks := range []int{389, 390, 600} { // 390 ticks are slightly less than 6.5 s
		script := rttest.Must(
			netfault.Parse([]byte("faults: [{kind: drop_chunk, share: 0.2}, {kind: blackout, at: 1s, for: 1s, every: " +
				"2s}]")))(t)
		windows := windowsOf(script, ticks)
		if first := windows[0]; first.from != 0 || first.to != float64(ticks)/fleet.FPS {
			t.Errorf("%d ticks: %+v, want the whole episode", ticks, first)
		}
		// The window begins on the next tick.
		if second := windows[1]; math.Abs(second.from-1) > 0.017 || math.Abs(second.to-second.from-1) > 1e-9 {
			t.Errorf("%d ticks: %+v, want 1 to 2 s", ticks, second)
		}
		svg := drawEpisode("", make([]fleet.Tick, ticks), script)
		rttest.Want(t, strings.Count(svg, `<rect class="w"`), len(windows)-1, "%d ticks: windows shaded", ticks)
	}
}

// A bar ends at the end of its axis, even if few episodes give it a wide interval.
func TestBars(t *testing.T) {
	rows := []Entry{
		{Schedule: "a", Metrics: map[string]Interval{"success": {
			Mean: 50,
			Low:  -585,
			High: 685,
			N:    2,
		}, "age_ms": {Mean: 1283, Low: 1200, High: 1300, N: 2}}},
		{Schedule: "b", Metrics: map[string]Interval{}},
	}
	svg := drawBars(metrics[0], rows)
	if !strings.Contains(svg, `width="110.0"`) || !strings.Contains(svg, "H350.0M") ||
		!strings.Contains(svg, ">none<") {
		t.Errorf("success: %s", svg)
	}
	for _, m := range metrics {
		if svg := drawBars(m, rows); m.Key == "age_ms" && !strings.Contains(svg, ">1283<") {
			t.Errorf("age: %s", svg)
		}
	}
	wellFormed(t, svg)
}

func text(t *testing.T, write func(io.Writer) error) string {
	t.Helper()
	var b bytes.Buffer
	rttest.Do(t, write(&b))
	return b.String()
}

func wellFormed(t *testing.T, svg string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := d.Token(); err == io.EOF {
			return
		} else if err != nil {
			t.Fatalf("the figure is not XML: %v", err)
		}
	}
}

// The CSV has the columns of the DRTC program, in the same order.
func TestCSVGolden(t *testing.T) {
	var golden struct {
		Example struct{ CSV string } `json:"csv_example"`
	}
	rttest.ReadJSON(t, "../../testdata/golden/drtc_faults.json", &golden)
	head, _, _ := strings.Cut(golden.Example.CSV, "\n")
	rttest.Want(t, strings.Join(csvColumns[3:], ","), head, "columns")
}

// Each column has the value of its name, in the DRTC program's units. On a tick without an answer,
// the answer's values are empty.
func TestCSVColumns(t *testing.T) {
	ms := time.Millisecond
	tick := fleet.Tick{
		Seed:      9,
		Tick:      120,
		Step:      7,
		Size:      31,
		Estimate:  6,
		Cooldown:  4,
		Requested: true,
		Received:  true,
		Measured:  125 * ms,
		Sent:      1500 * ms,
		ServerIn:  1510 * ms,
		ServerOut: 1600 * ms,
		ReceiveAt: 1620 * ms,
		Overlap:   12,
		MeanL2:    0.5,
		MaxL2:     2.5,
	}
	want := map[string]string{
		"t": "1.99999992", "step": "7", "schedule_size": "31", "latency_estimate_steps": "6",
		"latency_estimate_ms": "99.999996", "cooldown": "4",
		"stall": "0", "obs_triggered": "1", "action_received": "1", "measured_latency_ms": "125", "obs_sent_ts": "1.5",
		"server_obs_received_ts": "1.51",
		"server_action_sent_ts":  "1.6", "action_received_ts": "1.62", "chunk_overlap_count": "12",
		"chunk_mean_l2": "0.5", "chunk_max_l2": "2.5",
	}
	own := len(csvColumns) - len(want) // number of the columns that identify the run
	got := fields(&tick)
	if len(got) != len(want) {
		t.Fatalf("%d fields, want %d", len(got), len(want))
	}
	for i, column := range csvColumns[own:] {
		rttest.Want(t, got[i], want[column], "%s", column)
	}
	tick.Received = false
	tick.Requested = false
	tick.Size = 0
	got = fields(&tick)
	for i, column := range csvColumns[own:] {
		switch {
		case column == "stall" && got[i] != "1", (column == "obs_triggered" || column == "action_received") &&
			got[i] != "0":
			t.Errorf("%s of a tick without anything is %q", column, got[i])
		case i > 8 && got[i] != "":
			t.Errorf("%s of a tick without an answer is %q, want it empty", column, got[i])
		}
	}
}

// A limit of time ends the comparison after a whole pair of episodes, and all cells have played the same number.
func TestLimit(t *testing.T) {
	stagetest.NeedsRuntime(t)
	cfg := config(t)
	cfg.Limit = time.Nanosecond
	report, err := Play(context.Background(), cfg)
	if err != nil || report.Episodes != 2 {
		t.Fatalf("Play() = %+v, %v, want 2 episodes", report, err)
	}
	for _, c := range report.Cells {
		for _, r := range c.Rows {
			rttest.Want(t, r.Metrics["reached"].N, 2, "%s, %s: episodes", c.Faults, r.Schedule)
		}
	}
}

// Goal: after an interrupt the user gets the results of all cells so far, or a message that there
// are no results.
func TestInterruptedPlay(t *testing.T) {
	stagetest.NeedsRuntime(t)
	ctx, cancel := context.WithCancel(context.Background())
	cfg := config(t)
	cfg.Episodes = 100
	b := newComparison(&cfg)
	played := 0
	b.player = func(int) (player, error) {
		return fake(func(j job) {
			if played++; played == 5*b.cells()+1 { // now the sixth round has begun
				cancel()
			}
		}), nil
	}
	cfg.Workers = 1
	if err := b.run(ctx); err != nil || cfg.Episodes != 4 {
		t.Errorf("interrupted in the sixth round: %v, %d episodes; want the 4 that are whole pairs", err, cfg.Episodes)
	}
	rttest.Want(t, b.done, 5*b.cells(), "episodes that count")
	rttest.FailsAs(t, rttest.Err(Play(ctx, config(t))), context.Canceled)
}

// fake is a player that plays nothing: it passes each job to its function.
type fake func(job)

func (f fake) play(j job) (fleet.Outcome, []fleet.Tick, error) {
	f(j)
	return fleet.Outcome{}, nil, nil
}

func (f fake) close() {}

func TestInterval(t *testing.T) {
	// There are 5 values with mean 3 and standard deviation sqrt(2.5); t(4) is 2.776.
	got := interval([]float64{1, 2, 3, math.NaN(), 4, 5})
	if got.N != 5 || got.Mean != 3 || math.Abs(got.High-3-2.776*math.Sqrt(2.5/5)) > 0.01 ||
		math.Abs(got.High+got.Low-6) > 1e-9 {
		t.Errorf("interval = %+v", got)
	}
	rttest.Want(t, interval([]float64{math.NaN()}), Interval{}, "without values")
	for _, tt := range []struct {
		degrees int
		want    float64
	}{{1, 12.706}, {3, 3.182}, {10, 2.228}, {30, 2.042}, {199, 1.972}} {
		if got := student(tt.degrees); math.Abs(got-tt.want) > 0.01*tt.want {
			t.Errorf("student(%d) = %.4f, want %.3f", tt.degrees, got, tt.want)
		}
	}
	if d := difference([]float64{5, 6, 7}, []float64{4, 5, 6}); d.Mean != 1 || d.Low != 1 || d.High != 1 {
		t.Errorf("paired difference of a constant = %+v", d)
	}
}

func TestFlagsOfAContender(t *testing.T) {
	for name, want := range map[string]string{
		"drtc": "--schedule drtc", "rtc+compat": "--schedule rtc --compat", "async+plain": "--schedule async",
		"drtc+s_min=10+spans": "--schedule drtc --s-min 10 --prefix spans",
		"drtc+spans+s_min=10": "--schedule drtc --prefix spans --s-min 10",
		"drtc+bare+counts":    "--schedule drtc --prefix none --cooldown counts",
		"drtc+max_last_10":    "--schedule drtc --estimator max_last_10",
		"async+g=0.7":         "--schedule async --chunk-size-threshold 0.7",
		"async+similarity=0":  "--schedule async --similarity 0",
		"rtc+buffer=300ms":    "--schedule rtc --buffer-time 300ms",
		"rtc+jk+K=2":          "--schedule rtc --estimator jk --estimator-k 2",
		"drtc+K=2":            "--schedule drtc --estimator-k 2 --estimator jk",
		"drtc+jpeg=60":        "--schedule drtc",
	} {
		c := rttest.Must(ParseContender(name))(t)
		rttest.Want(t, strings.Join(c.flags, " "), want, "%s", name)
	}
}

func TestReadSummary(t *testing.T) {
	name := filepath.Join(t.TempDir(), "edge.json")
	text := `{"targets_reached": 3, "collisions": 1, "targets_timed_out": 2, "actions": 500, "starved_ticks": 7, "starved_by_bus": 3, "requests": 40, "chunks": 38, "bus": {}}`
	rttest.Do(t, os.WriteFile(name, []byte(text), 0o600))
	o, err := readSummary(name)
	if err != nil || o.Success() != 0.5 || o.Starved != 4 || o.Requests != 40 || o.Actions != 500 {
		t.Errorf("%+v, %v", o, err)
	}
	rttest.Fails(t, rttest.Err(readSummary(name+"x")))
}

// The episodes of the DRTC paper, with its parameters. Actions are missing while messages are
// dropped, but not while messages are doubled. The latency estimate falls sooner than the longest
// of the last ten round trips.
func TestThePapersEpisodes(t *testing.T) {
	stagetest.NeedsRuntime(t)
	ticks := func(contender, scenario string) []fleet.Tick {
		cfg := config(t)
		s, c := matchup(t, scenario, contender)
		cfg.Contenders = []Contender{c}
		cfg.Scenarios = []Scenario{s}
		cfg.Episodes = 2
		cfg.Duration = 25 * time.Second
		cfg.Network, cfg.Compute = new(10*time.Millisecond), new(100*time.Millisecond)
		report := rttest.Must(Play(context.Background(), cfg))(t)
		return report.traces[0]
	}
	starved := func(trace []fleet.Tick, from, to float64) (n int) {
		for _, tick := range trace[int(from*fleet.FPS):int(to*fleet.FPS)] {
			if tick.Starved {
				n++
			}
		}
		return n
	}
	mixture := ticks("drtc+compat", "paper_mixture")
	for _, tt := range []struct {
		from, to float64
		gaps     bool
		what     string
	}{
		{0.7, 4, false, "nothing"}, {4, 6.5, true, "observations dropped"}, {7, 9.5, true, "chunks dropped"},
		{9.5, 16, false, "everything doubled"}, {16, 25, false, "every message after the next one, then nothing"},
	} {
		rttest.Want(t, starved(mixture, tt.from, tt.to) > 0, tt.gaps, "%s, %g to %g s: ticks without an action",
			tt.what, tt.from, tt.to)
	}
	jk, longest := ticks("drtc+compat+jk", "paper_spikes"), ticks("drtc+compat+max_last_10", "paper_spikes")
	for _, tt := range []struct {
		at                        float64
		jkLeast, jkMost           int // bounds of the estimate, in ticks
		longestLeast, longestMost int
		what                      string
	}{
		{4.9, 1, 9, 1, 9, "before the spikes"},
		{5.95, 20, 24, 25, 25, "after half a second"}, // 25 is half a chunk, the maximum
		{9, 10, 15, 25, 25, "three seconds later"},
		{14.9, 8, 10, 8, 8, "before the second"},
		{16.45, 25, 25, 25, 25, "after a second"},
		{19.4, 15, 20, 25, 25, "three seconds later"},
		{24.9, 8, 12, 8, 8, "at the end"},
	} {
		i := int(tt.at * fleet.FPS)
		if got := jk[i].Estimate; got < tt.jkLeast || got > tt.jkMost {
			t.Errorf("jk, %s (%g s): %d ticks, want %d to %d", tt.what, tt.at, got, tt.jkLeast, tt.jkMost)
		}
		if got := longest[i].Estimate; got < tt.longestLeast || got > tt.longestMost {
			t.Errorf("max_last_10, %s (%g s): %d ticks, want %d to %d", tt.what, tt.at, got, tt.longestLeast,
				tt.longestMost)
		}
	}
}
