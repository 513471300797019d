package netfault

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

const tick = time.Second / 60

func mustParse(t *testing.T, text string) *Script {
	t.Helper()
	return rttest.Must(Parse([]byte(text)))(t)
}

func TestParseRefuses(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"an unknown key", "faults: [{kind: drop_chunk, when: 1s}]", "unknown field"},
		{"an unknown kind", "faults: [{kind: lose_chunk}]", "kind is"},
		{"a wrong type", "faults: 7", "[1:9]"},
		{"a share above one", "faults: [{kind: drop_chunk, share: 1.5}]", "share is 1.5"},
		{"a negative share", "faults: [{kind: drop_chunk, share: -0.5}]", "share is -0.5"},
		{"a share of nothing", "faults: [{kind: drop_chunk, share: 0}]", "share is 0"},
		{"a second document", "faults: []\n---\nfaults: [{kind: blackout}]", "2 YAML documents"},
		{"an empty second document", "faults: []\n---\n", "2 YAML documents"},
		{"nothing", "", "no faults"},
		{"a comment", "# later\n", "no faults"},
		{"only a name", "name: a", "no faults"},
		{"a list without any", "faults:\n", "no faults"},
		{"a share that is no number", "faults: [{kind: drop_chunk, share: .nan}]", "share is NaN"},
		{"every first", "faults: [{kind: drop_chunk, nth: 1}]", "nth is 1"},
		{"every nothingth", "faults: [{kind: drop_chunk, nth: 0}]", "nth is 0"},
		{"nth and share", "faults: [{kind: drop_chunk, nth: 3, share: 0.5}]", "no share beside it"},
		{"nth where there is none", "faults: [{kind: duplicate_chunk, nth: 3}]", "has no nth"},
		{"a share where there is none", "faults: [{kind: blackout, share: 0.5}]", "has no share"},
		{"a spike without a delay", "faults: [{kind: spike, at: 1s}]", "delay is 0s"},
		{"a delay where there is none", "faults: [{kind: drop_chunk, delay: 1s}]", "delay is 1s"},
		{"a delay of hours", "faults: [{kind: spike, delay: 2h}]", "delay is 2h"},
		{"a time without a unit", "faults: [{kind: blackout, at: 5}]", `at is "5"`},
		{"a time before the start", "faults: [{kind: blackout, at: -5s}]", `at is "-5s"`},
		{"a restart without an end", "faults: [{kind: restart, at: 5s}]", "needs for"},
		{"a spike with for", "faults: [{kind: spike, delay: 1s, for: 2s}]", "has no for"},
		{"every without for", "faults: [{kind: blackout, every: 10s}]", "every without for"},
		{"windows that overlap", "faults: [{kind: blackout, every: 1s, for: 1s}]", "every is 1s"},
		{"a rate of nothing", "faults: [{kind: bandwidth}]", "bytes_per_second is 0"},
		{"a rate too low", "faults: [{kind: bandwidth, bytes_per_second: 10}]", "bytes_per_second is 10"},
		{"a trace without points", "faults: [{kind: trace}]", "0 points"},
		{"points where there are none", "faults: [{kind: blackout, points: [[0, 1]]}]", "1 points"},
		{"anywhere where there are none", "faults: [{kind: blackout, anywhere: true}]", "neither points nor anywhere"},
		{"half a point", "faults: [{kind: trace, points: [[0, 1], [2]]}]", "point 2: want [seconds"},
		{"a point before the beginning", "faults: [{kind: trace, points: [[-1, 1]]}]", "point 1: want"},
		{"a point that is no time", "faults: [{kind: trace, points: [[.nan, 1]]}]", "point 1: want"},
		{"a point of no time", "faults: [{kind: trace, points: [[~, 1]]}]", "point 1: want"},
		{"a point of minutes", "faults: [{kind: trace, points: [[0, 60001]]}]", "point 1: want"},
		{"points out of order", "faults: [{kind: trace, points: [[1, 1], [1, 2]]}]", "point 2 is at 1s"},
		{"a trace with for", "faults: [{kind: trace, for: 1s, points: [[0, 1]]}]", "has no for"},
		{"a trace with a delay", "faults: [{kind: trace, delay: 1s, points: [[0, 1]]}]", "delay is 1s"},
		{"a trace that begins again too soon", "faults: [{kind: trace, every: 1s, points: [[1, 1]]}]", "every is 1s"},
		{"anywhere without an end", "faults: [{kind: trace, anywhere: true, points: [[1, 1]]}]", "anywhere without"},
		{"too many points", "faults: [{kind: trace, points: [" + strings.Repeat("[0,1],\n", 4097) + "]}]",
			"4097 points"},
		{"too many", "faults: [" + strings.Repeat("{kind: blackout},", 65) + "]", "65 faults"},
		{"too long", strings.Repeat("#", 1<<19), "524288 bytes"},
	} {
		_, err := Parse([]byte(tt.text))
		if !errors.Is(err, errScript) || !rttest.Says(err, tt.want) || rttest.Says(err, "\n") {
			t.Errorf("%s: %v, want one line with %q", tt.name, err, tt.want)
		}
	}
}

// Without a share, a fault acts on every message; with a share, on that share of the messages. A
// script without faults must have an empty list of faults.
func TestParse(t *testing.T) {
	s := mustParse(t, "---\nname: a\nfaults: [{kind: drop_chunk}, {kind: drop_chunk, share: 0.25}, {kind: blackout}]\n")
	if s.Name != "a" || len(s.Faults) != 3 || s.Faults[0].Share != 1 || s.Faults[1].Share != 0.25 ||
		s.Faults[2].Share != 1 {
		t.Errorf("%+v", s)
	}
	if s := mustParse(t, "name: b\nfaults: []\n...\n"); s.Name != "b" || len(s.Faults) != 0 {
		t.Errorf("%+v", s)
	}
}

func TestWindows(t *testing.T) {
	s := mustParse(t, `
name: windows
faults:
  - {kind: blackout, at: 2s, for: 1s, every: 10s}
  - {kind: restart, at: 5s, for: 500ms}
  - {kind: spike, at: 7s, delay: 300ms, every: 10s}
`)
	p := s.Plan(1, tick)
	for _, tt := range []struct {
		at         time.Duration
		lost, away bool
	}{
		{1999 * time.Millisecond, false, false}, {2 * time.Second, true, false}, {2999 * time.Millisecond, true, false},
		{3 * time.Second, false, false}, {5 * time.Second, true, true}, {5500 * time.Millisecond, false, false},
		{12500 * time.Millisecond, true, false}, {15 * time.Second, false, false},
	} {
		rttest.Want(t, p.Observation(tt.at).Lost, tt.lost, "observation at %v: lost", tt.at)
		rttest.Want(t, p.Chunk(tt.at).Lost, tt.lost, "chunk at %v: lost", tt.at)
		rttest.Want(t, p.ServerDown(tt.at), tt.away, "server at %v: away", tt.at)
	}
	for _, tt := range []struct {
		after, until, want time.Duration
	}{
		{-1, 6 * time.Second, 0}, {6 * time.Second, 7 * time.Second, 300 * time.Millisecond},
		{7 * time.Second, 16 * time.Second, 0}, {-1, 30 * time.Second, 900 * time.Millisecond},
	} {
		rttest.Want(t, p.Spikes(tt.after, tt.until), tt.want, "spikes after %v until %v", tt.after, tt.until)
	}
}

// Successive calls of NextOutage return exactly the times in which ServerDown returns true.
func TestNextOutage(t *testing.T) {
	for _, text := range []string{
		"faults: []",
		"faults: [{kind: blackout, at: 1s, for: 1s}]",
		"faults: [{kind: restart, at: 3s, for: 2s}]",
		"faults: [{kind: restart, for: 1s}, {kind: restart, at: 9s, for: 500ms}]",
		"faults: [{kind: restart, at: 2s, for: 300ms, every: 1500ms}]",
		"faults: [{kind: restart, at: 5s, for: 1s}, {kind: restart, at: 2s, for: 1s, every: 4s}, {kind: restart, at: " +
			"6500ms, for: 1s}]",
		// the server never comes back
		"faults: [{kind: restart, for: 1s, every: 2s}, {kind: restart, at: 1s, for: 1s, every: 2s}]",
	} {
		const grain, length = 50 * time.Millisecond, 20 * time.Second
		p := mustParse(t, text).Plan(1, tick)
		down := map[time.Duration]bool{}
		at := time.Duration(0)
		for range 100 {
			from, until, ok := p.NextOutage(at)
			if !ok || from >= length {
				break
			}
			if from < at || until <= from {
				t.Fatalf("%s: from %v on the server is away from %v to %v", text, at, from, until)
			}
			for i := from; i < until; i += grain {
				down[i] = true
			}
			at = until
		}
		for i := time.Duration(0); i < length; i += grain {
			if got := p.ServerDown(i); got != down[i] {
				t.Fatalf("%s: at %v away is %v, and by NextOutage %v", text, i, got, down[i])
			}
		}
	}
}

// Random numbers are drawn per tick and not per message: all messages of one tick meet the same
// effect. The shares of affected ticks are the script's.
func TestDrawsAreCommon(t *testing.T) {
	s := mustParse(t, `
faults:
  - {kind: drop_observation, share: 0.2}
  - {kind: drop_chunk, share: 0.05}
  - {kind: jitter, delay: 30ms}
`)
	const n = 200_000
	p := s.Plan(7, tick)
	again := s.Plan(7, tick)
	other := s.Plan(8, tick)
	up := 0
	down := 0
	same := 0
	var late time.Duration
	for i := range n {
		at := time.Duration(i)*tick + tick/2
		o, c := p.Observation(at), p.Chunk(at)
		if o != again.Observation(at+tick/4) || c != again.Chunk(at-tick/4) {
			t.Fatalf("tick %d: another effect on the same tick", i)
		}
		up += boolInt(o.Lost)
		down += boolInt(c.Lost)
		same += boolInt(o.Lost == other.Observation(at).Lost)
		late += o.Delay
	}
	for name, tt := range map[string]struct{ got, want float64 }{
		"observations lost": {float64(up) / n, 0.2}, "chunks lost": {float64(down) / n, 0.05},
		"equal effects of two seeds": {float64(same) / n, 0.2*0.2 + 0.8*0.8},
		"mean jitter in ms":          {late.Seconds() * 1000 / n, 15},
	} {
		if math.Abs(tt.got-tt.want) > 0.01*max(tt.want, 1) {
			t.Errorf("%s: %.4f, want %.4f", name, tt.got, tt.want)
		}
	}
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestLine(t *testing.T) {
	pass, hold := Effect{}, Effect{Held: true, Reorders: true}
	swap := Effect{Reorders: true}
	for _, tt := range []struct {
		name    string
		effects []Effect
		want    []int
		lost    int
	}{
		{"nothing happens", []Effect{pass, pass}, []int{0, 1}, 0},
		{"lost", []Effect{{Lost: true}, pass}, []int{1}, 1},
		{"doubled", []Effect{{Duplicated: true}, pass}, []int{0, 0, 1}, 0},
		{"swapped, all along the window", []Effect{hold, hold, hold, hold}, []int{1, 0, 3, 2}, 0},
		{"held once", []Effect{hold, swap, swap}, []int{1, 0, 2}, 0},
		{"held as the window closes", []Effect{hold, pass, pass}, []int{1, 2}, 1},
		{"a lost one does not free the held", []Effect{hold, {Lost: true}, swap}, []int{2, 0}, 1},
	} {
		var l Line[int]
		var got []int
		lost := 0
		for i, f := range tt.effects {
			var n int
			got, n = l.Pass(f, i, got)
			lost += n
		}
		if !slices.Equal(got, tt.want) || lost != tt.lost {
			t.Errorf("%s: %v with %d lost, want %v with %d", tt.name, got, lost, tt.want, tt.lost)
		}
	}
}

// Every nth message of a direction is lost, whatever its time. Each Line has its own count, which
// pauses outside the fault's windows.
func TestEveryNth(t *testing.T) {
	p := mustParse(t, "faults: [{kind: drop_chunk, nth: 3, at: 1s, for: 2s}, {kind: drop_chunk, nth: 5, at: 1s, for: "+
		"2s}]").Plan(1, tick)
	var l, up Line[int]
	var lost []int
	for i := range 15 {
		at := time.Second + time.Duration(i)*100*time.Millisecond
		if i == 7 {
			at = 0 // outside the window messages are not counted
		}
		if l.Next(p.Chunk(at)).Lost {
			lost = append(lost, i)
		}
		if up.Next(p.Observation(at)).Lost {
			t.Errorf("observation %d is lost", i)
		}
	}
	rttest.Equal(t, lost, []int{2, 5, 9, 12}, "lost messages, every third")
}

func TestArrival(t *testing.T) {
	var l Line[int]
	slow := Effect{Rate: 10_000, Delay: 5 * time.Millisecond}
	rttest.Want(t, l.Arrival(0, slow, 1000), 105*time.Millisecond, "time of the first")
	rttest.Want(t, l.Arrival(50*time.Millisecond, slow, 1000), 205*time.Millisecond, "time of the next")
	rttest.Want(t, l.Arrival(60*time.Millisecond, Effect{}, 1000), 60*time.Millisecond, "without a limit")
}

// A trace delays or loses each message, in both directions, as the point at the message's time determines.
func TestTrace(t *testing.T) {
	const ms = time.Millisecond
	points := "points: [[0.5, 10], [1, ~], [1.5, 2.5]]"
	for _, tt := range []struct {
		text  string
		at    time.Duration
		delay time.Duration
		lost  bool
	}{
		{points, 400 * ms, 0, false},
		{points, 500 * ms, 10 * ms, false},
		{points, 999 * ms, 10 * ms, false},
		{points, 1000 * ms, 0, true},
		{points, 1500 * ms, 2500 * time.Microsecond, false},
		{points, time.Hour, 2500 * time.Microsecond, false}, // the last point remains in effect
		{points + ", every: 2s", 2400 * ms, 0, false},       // the trace begins again
		{points + ", every: 2s", 2500 * ms, 10 * ms, false},
		{points + ", at: 1s", 1400 * ms, 0, false},
		{points + ", at: 1s", 1500 * ms, 10 * ms, false},
	} {
		p := mustParse(t, "faults: [{kind: trace, "+tt.text+"}]").Plan(1, tick)
		for _, f := range []Effect{p.Observation(tt.at), p.Chunk(tt.at)} {
			if f.Delay != tt.delay || f.Lost != tt.lost {
				t.Errorf("%s at %v: %v, lost %v, want %v, %v", tt.text, tt.at, f.Delay, f.Lost, tt.delay, tt.lost)
			}
		}
	}
}

// With the key "anywhere" in a trace, each seed begins at another place and passes through the whole trace.
func TestTraceAnywhere(t *testing.T) {
	s := mustParse(t, "faults: [{kind: trace, anywhere: true, every: 4s, points: [[0, 0], [1, 1], [2, 2], [3, 3]]}]")
	begins := map[time.Duration]bool{}
	for seed := range uint64(64) {
		p, met := s.Plan(seed, tick), map[time.Duration]bool{}
		for at := time.Duration(0); at < 4*time.Second; at += 100 * time.Millisecond {
			met[p.Observation(at).Delay] = true
		}
		if len(met) != 4 || p.Observation(0) != p.Observation(4*time.Second) {
			t.Errorf("seed %d meets %v, want all four delays, and the same after 4s", seed, met)
		}
		begins[p.Observation(0).Delay] = true
	}
	if len(begins) != 4 {
		t.Errorf("64 seeds begin with %v, want each delay", begins)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("name: a\nfaults:\n  - {kind: drop_chunk, at: 1s, for: 2s, every: 10s, share: 0.5}\n"))
	f.Add([]byte("faults: [{kind: spike, delay: 1s}, {kind: bandwidth, bytes_per_second: 1000}]"))
	f.Add([]byte("faults: [{kind: drop_chunk, nth: 3}]"))
	f.Add([]byte("faults: [{kind: trace, every: 3s, anywhere: true, points: [[0, 1.5], [2, ~]]}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse(data)
		if err != nil {
			return
		}
		p := s.Plan(1, tick)
		for at := range 100 {
			p.Observation(time.Duration(at) * time.Second)
			p.Chunk(time.Duration(at) * time.Second)
			from, until, ok := p.NextOutage(time.Duration(at) * time.Second)
			if ok && (from < time.Duration(at)*time.Second || until <= from || !p.ServerDown(from)) {
				t.Errorf("from %d s on away from %v to %v", at, from, until)
			}
		}
		if d := p.Spikes(-1, time.Hour); d < 0 {
			t.Errorf("spikes of %v", d)
		}
	})
}

// When several faults limit the rate, the lowest rate applies, in whatever order the script has them.
func TestTightestRate(t *testing.T) {
	for _, text := range []string{
		"faults: [{kind: bandwidth, bytes_per_second: 5000}, {kind: bandwidth, bytes_per_second: 2000}, {kind: " +
			"bandwidth, bytes_per_second: 9000}]",
		"faults: [{kind: bandwidth, bytes_per_second: 2000}, {kind: bandwidth, bytes_per_second: 5000}]",
	} {
		p := mustParse(t, text).Plan(1, tick)
		if up, down := p.Observation(0).Rate, p.Chunk(0).Rate; up != 2000 || down != 2000 {
			t.Errorf("%s: %d and %d bytes per second, want 2000", text, up, down)
		}
	}
}

// The jitters of an observation and of the chunk of the same tick are independent, as are two
// jitter faults.
func TestJitterIsDrawnForEachDirection(t *testing.T) {
	one := mustParse(t, "faults: [{kind: jitter, delay: 100ms}]").Plan(1, tick)
	two := mustParse(t, "faults: [{kind: jitter, delay: 100ms}, {kind: jitter, delay: 100ms}]").Plan(1, tick)
	same, doubled := 0, 0
	for i := range 1000 {
		at := time.Duration(i) * tick
		if one.Observation(at).Delay == one.Chunk(at).Delay {
			same++
		}
		if two.Chunk(at).Delay == 2*one.Chunk(at).Delay {
			doubled++
		}
	}
	if same > 1 || doubled > 1 {
		t.Errorf("of 1000 ticks %d have one delay both ways, %d the same delay twice: want none", same, doubled)
	}
}
