package edge

import (
	"math"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo/robot"
)

// Goal: the error of an end names the longest lack (reason for a missing chunk) since the last chunk, not
// the lack of the last tick.
func TestTheReasonOfAnEndIsWhatLasted(t *testing.T) {
	const limit = 200 // ticks of max_offline
	gone := func(r *rig) { r.in.Lose() }
	silent := func(joints robot.Joints) func(*rig) { return func(r *rig) { r.bus.silent = joints } }
	back := func(r *rig) {
		r.bus.silent = 0
		r.missing.Store(0)
	}
	blind := func(r *rig) { r.missing.Store(1) }
	why := "no server answers"
	for _, tt := range []struct {
		name string
		// each function causes a lack: the first from the start on, the second shortly before the run gives up
		lacks []func(*rig)
		lack  event.Lack
		says  []string
		never string
	}{
		{"the server, and at last the bus", []func(*rig){gone, silent(3)}, event.LackSession,
			[]string{"no chunk for 2s: gave up; no session: no server answers"}, "silent"},
		{"the bus, which is there again at last", []func(*rig){silent(3), back}, event.LackJoints,
			[]string{"joints were silent for 1.", "(shoulder_pan, shoulder_lift)"}, "session"},
		{"one joint, which answers at last", []func(*rig){silent(2), back}, event.LackJoints,
			[]string{"joints were silent for 1.", "(shoulder_lift)"}, "session"},
		{"one joint, and at last all", []func(*rig){silent(2), silent(3)}, event.LackJoints,
			[]string{"(shoulder_lift): gave up"}, "shoulder_pan"},
		{"the server, which is there again at last", []func(*rig){gone, func(r *rig) {
			r.openSession(2)
		}}, event.LackSession, []string{"no session: no server answers"}, "silent"},
		{"pictures, and at last the bus", []func(*rig){blind, silent(3)}, event.LackPictures,
			[]string{"no chunk for 2s: gave up; a camera gave no picture for 2s"}, "silent"},
		{"answers, and at last the server", []func(*rig){func(*rig) {}, gone}, event.LackAnswers,
			[]string{"no chunk for 2s: gave up"}, "session"},
		{"numbers", []func(*rig){func(r *rig) {
			r.answer(r.request(), float32(math.NaN()))
			r.step(1)
		}, func(*rig) {}}, event.LackAnswers, []string{"1 chunks of this run were not used (not_finite)"}, "shape"},
		{"a server that stands still, at last without a session", []func(*rig){func(*rig) {}, func(r *rig) {
			gone(r)
			r.in.Unheard.Store(true)
		}}, event.LackAnswers, []string{"the server does not answer: no server answers; check that"}, "cables"},
		{"a server that comes and goes", []func(*rig){func(r *rig) {
			for n := range 6 {
				r.openSession(uint32(1 + n%2))
				gone(r)
				r.step(15)
				r.openSession(uint32(2 + n))
				r.step(5)
			}
		}, gone}, event.LackAnswers, []string{"besides, there was no session for ", ": no server answers"}, "cables"},
		{"three, of which the camera lasted", []func(*rig){func(r *rig) {
			blind(r)
			r.step(60)
			silent(2)(r)
			r.step(50)
			r.bus.silent = 0
			gone(r)
		}, func(r *rig) {
			r.openSession(2)
		}}, event.LackPictures, []string{"a camera gave no picture for 2s"}, "no link"},
		{"the server and the bus", []func(*rig){func(r *rig) {
			gone(r)
			silent(3)(r)
		}, func(*rig) {}}, event.LackSession, []string{"no session: no server answers",
			"besides, joints were silent for 1."}, "cameras"},
	} {
		r := running(t, 60)
		so101 := rttest.Must(device.Robot("so101"))(t)
		e := &Edge{cfg: Config{MaxOffline: 2 * time.Second}, control: r.control, drive: r.drive, robot: so101}
		e.control.in.NoSession.Store(&why)
		for range 2 { // outages that are over must not be named
			blind(r)
			r.step(limit * 3 / 4)
			back(r)
			r.step(1)
			r.answer(r.session.key, 10)
			r.step(1)
		}
		tt.lacks[0](r)
		r.step(limit - 5)
		tt.lacks[1](r)
		for n := 0; r.run.state != stateDead && n < limit; n++ {
			r.step(1)
		}
		back(r)
		r.step(3) // the arm parks
		err := e.verdict(nil, nil)
		if err == nil || exit.Of(err) != exit.Absent {
			t.Errorf("%s: %v (code %d), want code %d", tt.name, err, exit.Of(err), exit.Absent)
			continue
		}
		rttest.Want(t, r.run.gaveUp.Longest(), tt.lack, "%s: lack", tt.name)
		for _, want := range tt.says {
			rttest.Fails(t, err, want)
		}
		if rttest.Says(err, tt.never) {
			t.Errorf("%s: it says %q, and the %s is not why", tt.name, err, tt.never)
		}
		if s := drive.EndingOf(err, ""); s.Reason != err.Error() || s.Code != int(exit.Absent) {
			t.Errorf("%s: the summary says %+v", tt.name, s)
		}
	}
}
