package servo_test

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/sim/servosim"
)

// armsOn opens arms on buses of their own.
func armsOn(t *testing.T, n int) (buses []*servosim.Bus, arms []*servo.Arm) {
	t.Helper()
	r := rttest.Must(robot.ByName("so101"))(t)
	for range n {
		bus := simOf(t, r, servosim.Config{Baud: r.Baud})
		arm := mustOpen(t, config(bus, r))
		rttest.Must(arm.Measure(200))(t)
		buses, arms = append(buses, bus), append(arms, arm)
	}
	return buses, arms
}

// overlapped returns an Overlap that reads arms, and a slice that holds each arm's stale joints of the last read.
func overlapped(arms []*servo.Arm, patience time.Duration) (o *rt.Overlap, stale []robot.Joints) {
	clock := rt.KernelClock()
	o, stale = rt.NewOverlap(clock), make([]robot.Joints, len(arms))
	for i, arm := range arms {
		at := make([]float32, 6)
		o.Add(func() { stale[i] = arm.Read(at, clock.Now().Add(patience)) }, arm.SetPause)
	}
	return o, stale
}

// Reading two buses at once takes at most 1.15 times as long as reading one.
func TestOverlapCostsOneBus(t *testing.T) {
	_, arms := armsOn(t, 3)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer rt.ReduceTimerSlack()()
	clock := rt.KernelClock()
	one, _ := overlapped(arms[:1], 10*time.Millisecond)
	two, _ := overlapped(arms[1:], 10*time.Millisecond)
	rttest.Eventually(t, "two buses take at most 1.15 times the time of one", func() bool {
		took := [2][]time.Duration{}
		for range 50 { // the two measurements take turns, since the machine's load changes
			for i, o := range []*rt.Overlap{one, two} {
				start := clock.Now()
				o.Run()
				took[i] = append(took[i], clock.Now().Sub(start))
				clock.SleepUntil(clock.Now().Add(2 * time.Millisecond))
			}
		}
		const share = 4 // the first quartile counts, because longer durations contain delays by the load
		slices.Sort(took[0])
		slices.Sort(took[1])
		single, double := took[0][len(took[0])/share], took[1][len(took[1])/share]
		t.Logf("one bus %v, two buses %v: %.2f times", single, double, float64(double)/float64(single))
		return double <= single+single*15/100
	})
}

// A silent bus takes no time from the other bus, and when each bus loses a reply, each repeats its request.
func TestOverlapKeepsTimesApart(t *testing.T) {
	buses, arms := armsOn(t, 2)
	const patience = 8 * time.Millisecond
	o, stale := overlapped(arms, patience)
	complete := 0
	mute := func(on bool) {
		for id := range uint8(6) {
			buses[0].Mute(id+1, on)
		}
	}
	mute(true)
	before := arms[1].Stats()
	for range 20 {
		if o.Run(); stale[1] == 0 {
			complete++
		}
		rttest.Want(t, stale[0], 1<<6-1, "stale on the silent bus")
	}
	if took := arms[1].Stats().Cycle.Quantile(0.5); complete < 18 || took > patience/2 {
		t.Errorf("beside a silent bus %d of 20 reads are complete, in %v", complete, took)
	}
	if after := arms[1].Stats(); after.Retries-before.Retries > 4 {
		t.Errorf("%d retries on the other bus", after.Retries-before.Retries)
	}
	mute(false)
	o.Run()
	retried := 0
	rttest.Eventually(t, "in 10 reads with a loss on both buses each was repeated", func() bool {
		counts := [2]uint64{arms[0].Stats().Retries, arms[1].Stats().Retries}
		for _, bus := range buses {
			bus.Mute(3, true)
		}
		o.Run()
		if arms[0].Stats().Retries > counts[0] && arms[1].Stats().Retries > counts[1] {
			retried++ // otherwise this machine was late, and no repeated request ended within 2.4 ms
		}
		for _, bus := range buses {
			bus.Mute(3, false)
		}
		o.Run()
		return retried == 10
	})
}
