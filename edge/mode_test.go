package edge

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/edge/follow"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

var update = flag.Bool("update", false, "write the tables of mode.go into docs/lab/modes.md anew")

// Goal: the table agrees for every mode and request with a second version of it, written as conditions.
func TestModeAfterEveryRequest(t *testing.T) {
	for m := range numModes {
		for r := range numRequests {
			want := map[request]mode{goOn: autonomous, breaks: resting, align: aligning, lead: correcting, giveUp: m,
				stop: paused, end: ending}[r]
			switch {
			case m == ending:
				want = ending // no request leads out of the mode ending
			case m == correcting && r == align:
				want = correcting // the leader has reached the follower
			case m == aligning && r == giveUp:
				want = paused
			}
			got := modes[m][r]
			rttest.Want(t, got.to, want, "%v, %v", m, r)
			led := func(m mode) bool { return m == aligning || m == correcting }
			for _, tt := range []struct {
				do   effect
				want bool
				why  string
			}{
				{takeOver, !led(m) && led(want), "each take-over gives the leader one order"},
				{restart, led(want) && !led(m) || m == correcting && want != m, "no old action after another source"},
				{slowly, led(want) && !led(m) || (m == correcting) != (want == correcting),
					"a person's pose may be elsewhere"},
				{consent, m == paused && want != paused && want != ending, "only the end of a pause is a consent"},
				{latch, m == aligning && r == giveUp, "a failed alignment waits for an operator"},
			} {
				if (got.do&tt.do != 0) != tt.want {
					t.Errorf("%v, %v: effect %b is %v: %s", m, r, tt.do, !tt.want, tt.why)
				}
			}
		}
	}
}

// Goal: in each mode and phase of the arm at most one source writes, and it is a source that is permitted there.
func TestSources(t *testing.T) {
	for m := range numModes {
		for p := range follow.Done + 1 {
			permitted := map[follow.Phase][]source{
				follow.Unarmed: {nothing}, // no goal before the arming
				follow.Arming:  {nothing, arming},
				follow.Armed:   {nothing, policy, person, home},
				follow.Parking: {nothing, park},
				follow.Done:    {nothing},
			}[p]
			if got := sources[m][p]; !slices.Contains(permitted, got) {
				t.Errorf("%v: %v moves an arm in phase %d", m, got, p)
			}
		}
	}
	for m, want := range map[mode]source{autonomous: policy, paused: nothing, aligning: nothing, correcting: person,
		resting: home, ending: nothing} {
		rttest.Want(t, m.drives(), want, "%v: drives", m)
	}
}

// Goal: no sequence of requests leads out of a pause without an operator, to a person's driving
// without a take-over, or out of the ending.
func TestNoWayAroundARequest(t *testing.T) {
	reach := func(from mode, without ...request) map[mode]bool {
		seen := map[mode]bool{from: true}
		for queue := []mode{from}; len(queue) > 0; queue = queue[1:] {
			for r := range numRequests {
				if next := modes[queue[0]][r].to; !slices.Contains(without, r) && !seen[next] {
					seen[next] = true
					queue = append(queue, next)
				}
			}
		}
		return seen
	}
	for from := range numModes {
		seen := reach(from)
		if from != ending && len(seen) != int(numModes) || from == ending && len(seen) != 1 {
			t.Errorf("%v leads to %v, want every mode, and from the ending no other", from, seen)
		}
		if from != correcting && from != aligning && reach(from, align, lead)[correcting] {
			t.Errorf("%v leads to a person's driving without a take-over", from)
		}
	}
	if seen := reach(paused, goOn, breaks, align, lead); len(seen) != 2 || !seen[ending] {
		t.Errorf("a pause leads to %v without an operator, want the ending only", seen)
	}
	if seen := reach(aligning, goOn, breaks, lead); seen[correcting] || seen[autonomous] || seen[resting] {
		t.Errorf("a leader that does not arrive leads to %v", seen)
	}
}

var (
	requestNames = [numRequests]string{"no request", "break between episodes", "take-over, the leader comes",
		"take-over, the leader is limp", "the leader cannot come", "pause, or a motor has restarted", "end"}
	effectNames = []string{"counts", "restarts", "slowly", "consents", "latches"}
	sourceNames = [...]string{"-", "arming", "policy", "leader", "home", "parking"}
)

func (r request) String() string { return requestNames[r] }
func (s source) String() string  { return sourceNames[s] }

// modeTables formats the tables for documents.
func modeTables() string {
	var b strings.Builder
	row := func(first string, cells int, cell func(int) string) {
		fmt.Fprintf(&b, "| %s |", first)
		for i := range cells {
			fmt.Fprintf(&b, " %s |", cell(i))
		}
		b.WriteString("\n")
	}
	head := func(first string) {
		row(first, int(numModes), func(m int) string { return mode(m).String() })
		b.WriteString("|" + strings.Repeat("---|", int(numModes)+1) + "\n")
	}
	head("request \\ mode")
	for r := range numRequests {
		row(r.String(), int(numModes), func(m int) string {
			next := modes[m][r]
			text := next.to.String()
			if next.to == mode(m) {
				text = "-"
			}
			for i, name := range effectNames {
				if next.do&(1<<i) != 0 {
					text += ", " + name
				}
			}
			return text
		})
	}
	b.WriteString("\n")
	head("arm \\ mode")
	for p, name := range []string{"unarmed", "arming", "armed", "parking", "done"} {
		row(name, int(numModes), func(m int) string { return sources[m][p].String() })
	}
	return b.String()
}

// Goal: the document has the tables of the program; go test ./edge -update writes them.
func TestDocumentShowsTheModes(t *testing.T) {
	const (
		document = "../docs/lab/modes.md"
		first    = "<!-- edge/mode.go -->\n"
		last     = "<!-- end -->\n"
	)
	text := rttest.ReadFile(t, document)
	head, rest, ok := strings.Cut(text, first)
	drawn, tail, ok2 := strings.Cut(rest, last)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the tables", document)
	}
	if *update {
		rttest.Do(t, os.WriteFile(document, []byte(head+first+modeTables()+last+tail), 0o644))
		return
	}
	if drawn != modeTables() {
		t.Errorf("%s shows other tables than mode.go has: go test ./edge -update", document)
	}
}
