package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/record/why"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// short are faults short enough for a test, one of each kind, which need no policy.
var short = []string{"silent-all", "cut-down", "nan", "pause"}

// With the real edge-rt under some faults, edge-rt why finds the injected fault, unless the machine
// starves the simulated motors.
func TestInjectedFaultsAreNamed(t *testing.T) {
	rttest.RealTime(t)
	if testing.Short() {
		t.Skip("half a minute")
	}
	bin := rttest.Must(rttest.Programs(t.TempDir(), "edge-rt"))(t)
	rows, err := play(t.Context(), options{Bin: bin, Tree: "../../testdata/demo", Only: short, Workers: 4, Tries: 2})
	if err != nil || len(rows) != len(short) {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for i := range rows {
		switch r := &rows[i]; {
		case r.right():
		case r.again():
			t.Logf("%s: disturbed: %v %s", r.name, r.disturbed, r.said)
		default:
			t.Errorf("%s was named %v, want %v: %+v", r.name, r.named(), r.want, r.found)
		}
	}
}

func TestRows(t *testing.T) {
	f := func(k why.Kind, c why.Cause, at int64) why.Finding {
		return why.Finding{Kind: k, Cause: c, To: rt.Instant(at)}
	}
	for _, tt := range []struct {
		name  string
		r     row
		found []why.Finding
		right bool
		again bool
	}{
		{"named", row{want: one(why.Lost)}, []why.Finding{f(why.Stutter, why.Lost, 3)}, true, false},
		{"what the arm showed comes first", row{want: one(why.Lost)},
			[]why.Finding{f(why.Warning, why.CameraSilent, 9), f(why.Stutter, why.Lost, 3)}, true, false},
		{"the longer comes first", row{want: one(why.Lost)},
			[]why.Finding{f(why.Stutter, why.Superseded, 9), f(why.Stutter, why.Lost, 3)}, false, false},
		{"the machine beside", row{want: one(why.Lost)},
			[]why.Finding{f(why.Stutter, why.HostSteal, 9), f(why.Stutter, why.Lost, 3)}, true, false},
		{"the machine injected", row{want: one(why.MachineBusy)}, []why.Finding{f(why.Overrun, why.MachineBusy, 9)},
			true, false},
		{"not found", row{want: one(why.Lost)}, nil, false, false},
		{"none wanted", row{}, nil, true, false},
		{"none wanted, and the machine", row{}, []why.Finding{f(why.Overrun, why.MachineBusy, 9)}, true, false},
		{"none wanted, and one found", row{}, []why.Finding{f(why.Jump, why.PolicyJump, 1)}, false, false},
		{"none wanted, and a policy that really jumps", row{jumps: true}, []why.Finding{f(why.Jump, why.PolicyJump, 1)},
			true, false},
		{"all of several", row{want: []why.Cause{why.Limp, why.Unplugged}, bus: true},
			[]why.Finding{f(why.Hold, why.Limp, 1), f(why.Stutter, why.Unplugged, 1)}, true, false},
		{"one of several", row{want: []why.Cause{why.Limp, why.Unplugged}, bus: true},
			[]why.Finding{f(why.Hold, why.Limp, 1)}, false, false},
		{"a bus that fails by itself", row{want: one(why.Lost)},
			[]why.Finding{f(why.Stutter, why.BusSilent, 9), f(why.Stutter, why.Lost, 3)}, false, true},
		{"what a bus that is made to fail brings along", row{want: one(why.Unplugged), bus: true},
			[]why.Finding{f(why.Stutter, why.RepliesLost, 9), f(why.Stutter, why.Unplugged, 3)}, false, false},
		{"a bus that is made to fail", row{want: one(why.BusSilent), bus: true},
			[]why.Finding{f(why.Stutter, why.BusSilent, 9)}, true, false},
	} {
		tt.r.take(tt.found, 0, everything)
		if tt.r.right() != tt.right || tt.r.again() != tt.again {
			t.Errorf("%s: right %v, again %v, named %v", tt.name, tt.r.right(), tt.r.again(), tt.r.named())
		}
	}
	late := row{want: one(why.BusSilent), bus: true}
	late.take([]why.Finding{{
		Kind:  why.Stutter,
		Cause: why.RepliesLost,
		From:  1,
		To:    2,
	}, {Kind: why.Stutter, Cause: why.BusSilent, From: 10, To: 11}}, 5, 20)
	if late.again() || !late.right() {
		t.Errorf("replies lost before the fault: again %v, right %v, want it right all the same", late.again(),
			late.right())
	}
	if r := (row{want: one(why.Lost)}); !r.again() {
		t.Error("what was not played is not played")
	}
}

func TestTable(t *testing.T) {
	rows := []row{
		{
			name:   "a",
			title:  "A",
			want:   one(why.Lost),
			played: true,
			found:  []why.Finding{{Kind: why.Stutter, Cause: why.Lost}, {Kind: why.Jump, Cause: why.PolicyJump}},
		},
		{name: "b", title: "B", played: true, found: []why.Finding{{Kind: why.Jump, Cause: why.PolicyJump}}},
		{name: "c", title: "C", want: one(why.Lost), said: "not played: a | b\nmore"},
	}
	text, wrong := table(rows)
	rttest.Contains(t, text, "| A (`a`) | lost | lost | policy-jump | right |",
		"| B (`b`) | nothing | policy-jump |  | **wrong** |", "| C (`c`) | lost | not played: a / b |  | not played |",
		"1 of 2 right.")
	rttest.Want(t, wrong, 1, "wrong")
	name := rttest.WriteFile(t, t.TempDir(), "page.md", "# P\n\n## The matrix\n\nold\n")
	rttest.Do(t, writeInto(name, text))
	if page := rttest.ReadFile(t, name); strings.Contains(page, "old") ||
		!strings.HasPrefix(page, "# P\n\n## The matrix\n") {
		t.Errorf("the page is\n%s", page)
	}
	if writeInto(filepath.Join(t.TempDir(), "away"), text) == nil {
		t.Error("a page that is away is taken")
	}
}

// The matrix has every fault of bench safety, except those of the clock and of the record, and each
// expected cause exists.
func TestTheMatrixIsWhole(t *testing.T) {
	var names []string
	for _, r := range allRows(options{}) {
		if slices.Contains(names, r.name) {
			t.Errorf("%s comes twice", r.name)
		}
		names = append(names, r.name)
		for _, c := range r.want {
			if c.Description() == "" {
				t.Errorf("%s wants %q, which is no cause", r.name, c)
			}
		}
	}
	for _, name := range jointFaults {
		if !slices.Contains(names, name) {
			t.Errorf("%s is no fault", name)
		}
	}
	page := rttest.ReadFile(t, "../../docs/lab/safety.md")
	for line := range strings.Lines(page) {
		head, _, ok := strings.Cut(line, "`) |") // the name is the last word of the first cell
		if !ok {
			continue
		}
		name := head[strings.LastIndexByte(head, '`')+1:]
		if !slices.Contains(names, name) && name != "clock-step" && name != "disk-full" {
			t.Errorf("%s of docs/lab/safety.md is not in the matrix", name)
		}
	}
}
