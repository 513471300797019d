package main

import (
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/stage"
)

// Figures are read from the text of Prometheus. A phase fails when a robot starves for longer than the phase's bound;
// ticks that starve because of a silent bus or a pulled cable do not count.
func TestJudge(t *testing.T) {
	read := func(text string) figures {
		all := rttest.Must(stage.ReadMetrics(strings.NewReader(text)))(t)
		return all
	}
	before := read("# HELP edge_rt_starved_ticks_total Ticks.\nedge_rt_starved_ticks_total 5\n" +
		"edge_rt_info{id=\"a b\"} 1\nedge_rt_sessions_total 1\n")
	if before[`edge_rt_info{id="a b"}`] != 1 || len(before) != 3 {
		t.Fatalf("read %v", before)
	}
	for _, tt := range []struct {
		name, now string
		cut       bool
		want      row
		fails     bool
	}{
		{"nothing", "edge_rt_starved_ticks_total 5\nedge_rt_sessions_total 1\n", false, row{}, false},
		{"it moves", "edge_rt_starved_ticks_total 5\nedge_rt_sessions_total 2\n", false, row{moved: 1}, false},
		{"it starves", "edge_rt_starved_ticks_total 7\n", false, row{starved: 2, hungry: 1, hunger: 0.2}, true},
		{"by its bus", "edge_rt_starved_ticks_total 7\nedge_rt_starved_by_bus_ticks_total 2\n", false, row{}, false},
		{"before a chunk", "edge_rt_starved_ticks_total 9\n" + startTicks + " 4\n", false, row{first: 0.4}, false},
		{"too long before it", "edge_rt_starved_ticks_total 11\n" + startTicks + " 6\n", false, row{first: 0.6}, true},
		{"without its cable", "edge_rt_starved_ticks_total 7\n", true, row{starved: 2, hungry: 1}, false},
	} {
		f := fleet{o: options{FPS: 10}, robots: []*robot{{before: before, now: read(tt.now), cut: tt.cut, runway: 1}}}
		got := f.count()
		if got.starved != tt.want.starved || got.hungry != tt.want.hungry || got.hunger != tt.want.hunger ||
			got.moved != tt.want.moved || got.first != tt.want.first || got.runway != 1 {
			t.Errorf("%s: counted %+v, want %+v", tt.name, got, tt.want)
		}
		var checks stage.Checks
		got.judge(phase{name: tt.name, hunger: 0.1}, &checks)
		rttest.Want(t, checks.Err() != nil, tt.fails, "whether %s fails (%v)", tt.name, checks.Err())
	}
}
