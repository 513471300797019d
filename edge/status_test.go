package edge

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/operator"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/robot"
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

// Goal: the page's JSON has the names and types that scripts expect from ctl status and the
// summary.
func TestLiveKeepsTheKeys(t *testing.T) {
	live := jsonShapes(reflect.TypeFor[Live]())
	summary := jsonShapes(reflect.TypeFor[Summary]())
	ctl := jsonShapes(reflect.TypeFor[operator.Reply]())
	for key, shape := range live {
		// the summary has other elements under these keys, since some of their values are known only at the end
		grows := key == "frames" || key == "parts"
		if want := summary[key]; want != nil && !grows && shape != want {
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
	r.viewer = drive.NewViewer(robot.Robot{Motors: []robot.Motor{{Name: "pan"}, {Name: "lift"}}})
	r.slope = 0.1
	show := func() (l drive.Live) {
		r.viewer.Show(&l, r.Now())
		return l
	}
	if l := show(); l.Joints != nil {
		t.Fatalf("before the first tick: %+v", l)
	}
	r.step(1)
	if l := show(); len(l.Joints) != testDOF || l.Tick.ActionAgeMS != nil {
		t.Fatalf("before the first action: %+v; want a view, and no age", l)
	}
	r.serve(60, 3, 10)
	l := show()
	if j := l.Joints[1]; j.Name != "lift.pos" || math.Abs(j.State-float64(r.arm.State[1])) > 1e-3 ||
		math.Abs(j.Goal-float64(r.arm.Goal[1])) > 1e-3 {
		t.Errorf("view %+v, want %v %v", j, r.arm.State, r.arm.Goal)
	}
	age := *l.Tick.ActionAgeMS
	if age <= 0 || age > 1000 {
		t.Errorf("the action is %v ms old", age)
	}
	r.pause(true)
	r.bus.silent = 2
	r.step(30)
	l = show()
	if j := l.Joints[1]; *l.Tick.ActionAgeMS < age+250 || !j.Stale || !j.Frozen || l.Joints[0].Stale {
		t.Errorf("paused, joint 1 silent: the action is %v ms old (before: %v), joint %+v; want it older, stale and "+
			"frozen",
			*l.Tick.ActionAgeMS, age, j)
	}
	tick := rt.Tick{Deadline: 1, Woke: 2}
	rttest.NoAllocs(t, "Publish allocates %v times", 100, func() { tick.Woke++; r.viewer.Publish(tick, r.arm, 1) })
}
