package follow

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

var update = flag.Bool("update", false, "write the tables into docs/lab/modes.md anew")

// reachable returns the sets of conditions that a joint can reach from a given set by all events except the parameter
// without.
func reachable(from Condition, without jointEvent) map[Condition]bool {
	seen := map[Condition]bool{from: true}
	for queue := []Condition{from}; len(queue) > 0; queue = queue[1:] {
		for e := range numEvents {
			if next := queue[0].after(e); e != without && !seen[next] {
				seen[next] = true
				queue = append(queue, next)
			}
		}
	}
	return seen
}

// Goal: the invariants of every joint hold in all reachable sets of conditions.
func TestEveryCondition(t *testing.T) {
	for c := range Condition(numConditions - 1) {
		check(t, c)
	}
	check(t, numConditions-1)
}

func check(t *testing.T, c Condition) {
	may := c.permission()
	must := func(when bool, most permission, what string) {
		if when && may > most {
			t.Errorf("a joint that is %q may be told %v: %s", c, may, what)
		}
	}
	must(c&Limp != 0, mayRelax, "limp stays limp")
	must(c&Restarted != 0, mayRelax, "nothing after a restart without an operator")
	must(c&Answering == 0, mayRelax, "no goal leaves while its motor is silent")
	must(c&Verified == 0, mayRelax, "after a silence its motor is compared first")
	must(c&EncoderFault != 0, mayRelax, "an encoder that complains is not driven")
	must(c&Torque == 0, mayArm, "no goal before it was armed")
	must(c&Overloaded != 0, mayRelieve, "an overload follows relief only")
	must(c&HeatOrSupply != 0, mayArm, "heat keeps the goal")
	if c == Torque|Answering|Verified && may != mayGoal {
		t.Errorf("a joint that is well may be told %v, want any goal", may)
	}
	if c == Torque|Answering|Verified|Overloaded && may != mayRelieve {
		t.Errorf("an overloaded joint may be told %v, want what relieves it", may)
	}
	if c == Answering|Verified && may != mayArm {
		t.Errorf("a joint that is well and limp may be told %v, want to be armed", may)
	}
}

// Goal: after a restart a joint gets a goal only with an operator's consent; after a silence, only after its motor was
// compared with its expected values. A limp joint never gets torque again.
func TestNoWayAround(t *testing.T) {
	for c := range reachable(Torque|Answering|Verified, numEvents) {
		for next := range reachable(c.after(motorRestarted), operatorResumed) {
			if next.permission() > mayRelax {
				t.Fatalf("%q, a restart and no consent lead to %q, which may be told %v", c, next, next.permission())
			}
		}
		for next := range reachable(c.after(torqueTaken), numEvents) {
			if next.permission() > mayRelax {
				t.Fatalf("%q and limp lead to %q, which may be told %v", c, next, next.permission())
			}
		}
		for next := range reachable(c.after(noReply), verifyPassed) {
			if next.permission() > mayRelax {
				t.Fatalf("%q, a silence and no comparison lead to %q, which may be told %v", c, next, next.permission())
			}
		}
		for next := range reachable(c.after(reconnected), torqueOn) {
			if next.permission() > mayArm {
				t.Fatalf("%q, away and back without being armed lead to %q, which may be told %v", c, next,
					next.permission())
			}
		}
	}
}

// Goal: every condition except limp can end.
func TestEveryFaultEnds(t *testing.T) {
	for c := range reachable(0, torqueTaken) {
		driven := false
		for next := range reachable(c, numEvents) {
			driven = driven || next.permission() == mayGoal
		}
		if !driven {
			t.Errorf("%q never gets a goal again", c)
		}
	}
}

// permissionNames are the names in documents.
var permissionNames = [...]string{"nothing", "torque off", "goal := present, torque on",
	"a goal that relieves the load", "any goal that passes the gate"}

func (p permission) String() string { return permissionNames[p] }

// tables formats the tables of permissions and of events' effects for documents.
func tables() string {
	var b strings.Builder
	b.WriteString("| has | lacks | permitted | state, reason |\n|---|---|---|---|\n")
	for _, r := range rules {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.has, r.lacks, r.may, r.why)
	}
	b.WriteString("\n| event: a joint | begins | ends |\n|---|---|---|\n")
	for _, e := range effects {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", e.name, e.begin, e.ends)
	}
	return b.String()
}

const (
	document = "../../docs/lab/modes.md"
	begins   = "<!-- edge/follow/joint.go -->\n"
	ends     = "<!-- end -->\n"
)

// Goal: the document has the tables of the program; go test ./edge/follow -update writes them.
func TestDocumentShowsTheTable(t *testing.T) {
	text := rttest.ReadFile(t, document)
	head, rest, ok := strings.Cut(text, begins)
	drawn, tail, ok2 := strings.Cut(rest, ends)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the tables", document)
	}
	if *update {
		rttest.Do(t, os.WriteFile(document, []byte(head+begins+tables()+ends+tail), 0o644))
		return
	}
	if drawn != tables() {
		t.Errorf("%s shows other tables than joint.go has: go test ./edge/follow -update", document)
	}
}
