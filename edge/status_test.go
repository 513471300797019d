package edge

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/rt"
)

// jsonShapes returns the type of each of a struct's keys.
func jsonShapes(t reflect.Type) map[string]reflect.Type {
	m := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		if key, _, _ := strings.Cut(f.Tag.Get("json"), ","); key != "" {
			m[key] = f.Type
		}
	}
	return m
}

// Goal: the page's JSON has the names and types that scripts know from ctl status and the summary.
func TestLiveKeepsTheKeys(t *testing.T) {
	live := jsonShapes(reflect.TypeFor[Live]())
	summary := jsonShapes(reflect.TypeFor[Summary]())
	ctl := jsonShapes(reflect.TypeFor[operator.Reply]())
	for key, shape := range live {
		if want := summary[key]; want != nil && key != "frames" && shape != want {
			t.Errorf("%s is %v, in the summary %v", key, shape, want)
		}
		if want := ctl[key]; want != nil && shape != want {
			t.Errorf("%s is %v, in the reply to ctl %v", key, shape, want)
		}
	}
	for _, key := range append(slices.DeleteFunc(slices.Clone(contractKeys), func(key string) bool {
		return slices.Contains([]string{"path_mallocs", "gc_cycles", "exit"}, key) // known only at the end
	}), "id", "state", "paused", "episode_id", "queue", "joints") {
		if live[key] == nil {
			t.Errorf("key %q is missing", key)
		}
	}
}

// Goal: in a run with a page each tick publishes a view, and the age of the arm's action grows
// while the arm holds.
func TestTicksLeaveAView(t *testing.T) {
	r := newRig(t)
	r.showViews()
	r.slope = 0.1
	r.step(1)
	if g, _, fresh := r.views.Front(); !fresh || g.source != 0 {
		t.Fatalf("before the first action: fresh %v, made from %v; want a view, and nothing", fresh, g.source)
	}
	r.serve(60, 3, 10)
	g, _, _ := r.views.Front()
	if !slices.Equal(g.state, r.arm.State) || !slices.Equal(g.goal, r.arm.Goal) || g.at != r.time.Now() &&
		g.at < r.run.lastMerge {
		t.Errorf("view %v %v, want %v %v", g.state, g.goal, r.arm.State, r.arm.Goal)
	}
	source := g.source
	if age := g.at.Sub(source); age <= 0 || age > time.Second {
		t.Errorf("the action is %v old", age)
	}
	r.operator.pause.Store(true)
	r.bus.silent = 2
	r.step(30)
	if g, _, _ = r.views.Front(); g.source != source || g.joints.Stale != 2 || g.joints.Frozen != 2 {
		t.Errorf("paused, joint 1 silent: made from %v (before %v), stale %b, frozen %b; want the same, 10 and 10",
			g.source, source, g.joints.Stale, g.joints.Frozen)
	}
	tick := rt.Tick{Deadline: 1, Woke: 2}
	if n := testing.AllocsPerRun(100, func() { tick.Woke++; r.publishView(tick) }); n != 0 {
		t.Errorf("show allocates %v times", n)
	}
}
