package sim

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// gridPoint returns the instant of grid point k, computed independently of Live.
func gridPoint(start rt.Instant, k int) rt.Instant {
	return start + rt.Instant(math.Ceil(float64(k)*1e9/60))
}

// newLive returns a live world with torque on. Its start is not a round number.
func newLive(seed uint64) (*Live, *rttest.Clock, rt.Instant) {
	const start = 1_234_567_891
	clock := rttest.NewClock(start)
	l := NewLive(NewWorld(seed, 1), clock, start)
	for j := range DOF {
		l.Torque(start, j, true)
	}
	return l, clock, start
}

// Goals written on the grid move the joints exactly as World.Step does, to the last bit, however
// often a reader reads the joints between grid points.
func TestGoalsOnTheGridEqualWorldStep(t *testing.T) {
	l, _, start := newLive(3)
	want := NewWorld(3, 1)
	var e Teacher
	for k := range 600 {
		goal := e.Goal(want.tip(), want.Target(), want.Post(), want.Q()[gripper])
		for j := range goal {
			raw := RawOf(j, goal[j])
			goal[j] = AngleOf(j, raw)
			l.Goal(gridPoint(start, k), j, raw)
		}
		for phase := range k % 5 {
			l.Present(gridPoint(start, k).Add(time.Duration(phase)*3*time.Millisecond), phase)
		}
		want.Step(goal[:])
		l.Present(gridPoint(start, k+1), 0)
		if got := l.world.q; got != want.Q() {
			t.Fatalf("grid point %d: q = %v, want %v", k+1, got, want.Q())
		}
	}
	r, c, o := want.Legs()
	if got := (Score{Reached: r, Collided: c, Timeouts: o}); l.Score() != got || r < 4 {
		t.Errorf("Score() = %+v, want %+v with at least 4 reached", l.Score(), got)
	}
}

// At whatever phase of the grid a goal is written, the joint moves by one servo tick of motion per
// period.
func TestTheTicksPhaseDoesNotMatter(t *testing.T) {
	for _, phase := range []time.Duration{0, 1, time.Millisecond, 8 * time.Millisecond, 16_666_000} {
		l, _, start := newLive(7)
		want := l.world.q
		for k := range 200 {
			now := gridPoint(start, k).Add(phase)
			scene, _ := l.sceneAt(now)
			if math.Abs(scene.Pan-want[pan]) > 1e-5 || math.Abs(scene.Elbow-want[elbow]) > 1e-5 {
				t.Fatalf("phase %v, tick %d: at %v, %v, want %v, %v", phase, k, scene.Pan, scene.Elbow, want[pan],
					want[elbow])
			}
			for j := range want {
				raw := 2048 + (k/20%3-1)*700 + 40*j
				want[j] = towards(want[j], AngleOf(j, raw), maxStep[j])
				l.Goal(now, j, raw)
			}
		}
	}
}

func TestMotionIsContinuousWithinATick(t *testing.T) {
	l, _, start := newLive(0)
	from := l.world.q[pan]
	l.Goal(start, pan, RawOf(pan, from+30))
	for _, part := range []float64{0.1, 0.25, 0.5, 0.9} {
		scene, _ := l.sceneAt(start.Add(time.Duration(part * 1e9 / 60)))
		if want := from + 3*part; math.Abs(scene.Pan-want) > 1e-6 {
			t.Errorf("%v of a tick: pan = %v, want %v", part, scene.Pan, want)
		}
	}
}

func TestWithoutTorqueAJointStays(t *testing.T) {
	l, _, start := newLive(0)
	q := l.world.q
	now := start.Add(5 * time.Millisecond)
	l.Goal(start, pan, 4000)
	l.Torque(now, pan, false)
	stopped, _ := l.sceneAt(now)
	if stopped.Pan <= q[pan] {
		t.Errorf("pan = %v after 5 ms, want more than %v", stopped.Pan, q[pan])
	}
	later, _ := l.sceneAt(now.Add(time.Second))
	rttest.Want(t, later.Pan, stopped.Pan, "pan a second later")
	l.Torque(now.Add(time.Second), pan, true)
	if back, _ := l.sceneAt(now.Add(time.Second)); back.Pan != stopped.Pan {
		t.Errorf("pan jumps to %v when torque comes back, want %v", back.Pan, stopped.Pan)
	}
	if on, _ := l.sceneAt(now.Add(2 * time.Second)); on.Pan <= stopped.Pan {
		t.Error("pan does not follow its old goal when torque is back")
	}
}

func TestSpeedIsThatOfNow(t *testing.T) {
	l, _, start := newLive(0)
	at := l.Present(start, pan)
	rttest.Want(t, l.Speed(start, pan), 0, "speed at rest")
	l.Goal(start, pan, at+1000)
	l.Torque(start, pan, true)
	now := start.Add(100 * time.Millisecond)
	want := 10 * float64(l.Present(now, pan)-at) // counts in a second at 180 degrees a second
	if v := l.Speed(now, pan); math.Abs(v-want) > 15 || v < 2000 {
		t.Errorf("speed %v under way, want %v", v, want)
	}
	rttest.Want(t, l.Speed(now.Add(time.Second), pan), 0, "speed at the goal")
	l.Goal(now.Add(time.Second), pan, -9000)
	if v := l.Speed(now.Add(3*time.Second), pan); v != 0 || l.Present(now.Add(3*time.Second), pan) != 0 {
		t.Errorf("speed %v at the end of the encoder's range", v)
	}
}

func TestTimeIsNotRewound(t *testing.T) {
	l, _, start := newLive(0)
	now := start.Add(time.Second)
	l.Goal(start, pan, 4000)
	want, at := l.sceneAt(now)
	rttest.Want(t, at, now, "look(%d) shows", now)
	got, at := l.sceneAt(now.Add(-time.Millisecond))
	if got != want || at != now {
		t.Errorf("a look back shows %v at %d, want %v at %d", got, at, want, now)
	}
}

func TestAnUntouchedWorldLosesTimeAfterTenMinutes(t *testing.T) {
	l, clock, _ := newLive(0)
	clock.Advance(time.Hour)
	s := l.Score()
	if s.SkippedTicks != 50*60*ticksPerSecond || s.Timeouts != catchUpTicksMax/legTicksMax {
		t.Errorf("after an hour Score() = %+v, want 50 minutes of ticks skipped and %d timeouts", s,
			catchUpTicksMax/legTicksMax)
	}
}

func TestEncodersRoundTripAndStayInRange(t *testing.T) {
	for j := range DOF {
		for raw := range 4096 {
			if got := RawOf(j, AngleOf(j, raw)); got != raw {
				t.Fatalf("joint %d: raw %d becomes %d", j, raw, got)
			}
		}
	}
	for _, tt := range []struct {
		joint int
		q     float64
		want  int
	}{
		{pan, 0, 2048}, {pan, 180, 4095}, {pan, -180, 0}, {pan, 500, 4095}, {pan, -500, 0},
		{pan, 90, 3071}, {gripper, 0, 1000}, {gripper, 100, 3000}, {gripper, 50.02, 2000}, {gripper, 1e9, 4095},
	} {
		rttest.Want(t, RawOf(tt.joint, tt.q), tt.want, "RawOf(%d, %v)", tt.joint, tt.q)
	}
}

func TestAFrameShowsTheInstantItNames(t *testing.T) {
	l, clock, start := newLive(1)
	clock.Advance(7 * time.Millisecond) // the grids of the camera and of the world differ
	cam := l.Camera("top", camera.Format{FPS: 30})
	origin := clock.Now()
	f := frameOf(cam)
	l.Goal(start, pan, 4000)
	reference := NewWorld(1, 1).scene()
	for k := range uint64(8) {
		rttest.Do(t, cam.Grab(&f))
		want := origin + rt.Instant(math.Ceil(float64(k)*1e9/30))
		if f.Sequence != k || f.At != want || clock.Now() != want {
			t.Fatalf("frame %d: sequence %d at %d, clock %d, want %d at %d", k, f.Sequence, f.At, clock.Now(), k, want)
		}
		scene := reference
		scene.Pan += min(180*f.At.Sub(start).Seconds(), AngleOf(pan, 4000)-reference.Pan)
		pix := make([]byte, len(f.Pix))
		scene.render(pix, NativeWidth, NativeHeight)
		rttest.Want(t, differing(pix, f.Pix, 1), 0,
			"frame %d: bytes that differ by more than one level from the scene at its instant", k)
	}
}

func differing(a, b []byte, levels int) (n int) {
	for i := range a {
		if d := int(a[i]) - int(b[i]); d > levels || d < -levels {
			n++
		}
	}
	return n
}

func TestASlowReaderSeesTheGap(t *testing.T) {
	l, clock, _ := newLive(1)
	cam := l.Camera("top", camera.Format{FPS: 50})
	f := frameOf(cam)
	var got []uint64
	for _, busy := range []time.Duration{0, time.Millisecond, 19 * time.Millisecond, 21 * time.Millisecond,
		95 * time.Millisecond, 0} {
		clock.Advance(busy)
		rttest.Do(t, cam.Grab(&f))
		got = append(got, f.Sequence)
	}
	want := []uint64{0, 1, 2, 4, 9, 10}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("sequences %v, want %v", got, want)
		}
	}
}

func TestAClosedCameraSaysSo(t *testing.T) {
	l, _, _ := newLive(1)
	cam := l.Camera("top", camera.Format{})
	rttest.Want(t, cam.Format(), camera.Format{Width: 160, Height: 120, Pixels: camera.RGB8, FPS: 30},
		"default format")
	cam.Close()
	f := frameOf(cam)
	rttest.FailsAs(t, cam.Grab(&f), camera.ErrClosed) // Grab after Close
}

func TestLiveNoAlloc(t *testing.T) {
	l, clock, _ := newLive(0)
	cam := l.Camera("top", camera.Format{})
	f := frameOf(cam)
	rttest.NoAllocs(t, "a bus cycle, a frame and a look allocate %v times, want 0", 100, func() {
		for j := range DOF {
			l.Goal(clock.Now(), j, 2000+l.Present(clock.Now(), j)/10)
			l.Torque(clock.Now(), j, true)
		}
		cam.Grab(&f)
		v := l.View()
		v.Render(f.Pix, f.Width, f.Height)
	})
}

// The test is for the race detector: a bus, two cameras and a reader of the score share one world.
func TestLiveIsSharedByThreads(t *testing.T) {
	clock := rt.KernelClock()
	l := NewLive(NewWorld(1, 1), clock, clock.Now())
	var wg sync.WaitGroup
	for range 2 {
		cam := l.Camera("top", camera.Format{FPS: 500})
		wg.Go(func() {
			f := frameOf(cam)
			last := rt.Instant(0)
			for range 20 {
				if err := cam.Grab(&f); err != nil || f.At < last || f.At > clock.Now() {
					t.Errorf("Grab = %v at %d after %d", err, f.At, last)
				}
				last = f.At
			}
		})
	}
	wg.Go(func() {
		for k := range 2000 {
			l.Torque(clock.Now(), k%DOF, k%7 != 0)
			l.Goal(clock.Now(), k%DOF, k)
			l.Present(clock.Now(), k%DOF)
			l.Score()
		}
	})
	wg.Wait()
}

// A joint with weight that loses its torque sinks to its rest position at its own speed, whatever
// the phase of the grid. A joint without weight stays.
func TestAJointWithoutTorqueSinks(t *testing.T) {
	clock := rttest.NewClock(rt.Instant(time.Second))
	live := NewLive(NewWorld(3, 1), clock, clock.Now())
	start := live.Present(clock.Now(), elbow)
	live.Torque(clock.Now(), elbow, true)
	live.Sink(clock.Now(), elbow, start-400, 600)
	live.Sink(clock.Now(), gripper, gripperZero+500, 600)
	rttest.Want(t, live.Speed(clock.Now(), elbow), 0, "speed of a held joint")
	live.Torque(clock.Now(), elbow, false)
	at := func(after time.Duration) int { return live.Present(clock.Now().Add(after), elbow) - start }
	for _, ms := range []int{50, 111, 333, 500} {
		if got, want := at(time.Duration(ms)*time.Millisecond), -600*ms/1000; got < want-1 || got > want+1 {
			t.Errorf("after %d ms it has sunk by %d counts, want %d", ms, -got, -want)
		}
	}
	if v := live.Speed(clock.Now().Add(500*time.Millisecond), elbow); v < -601 || v > -599 {
		t.Errorf("it sinks at %v counts per second, want 600", -v)
	}
	if got := at(time.Second); got != -400 {
		t.Errorf("it comes to rest %d counts lower, want 400", -got)
	}
	rttest.Want(t, live.Speed(clock.Now().Add(time.Second), elbow), 0, "speed at rest")
	rttest.Want(t, live.Present(clock.Now().Add(time.Second), gripper), gripperZero+500, "position of the gripper")
}

// frameOf returns a frame with room for the pictures of a camera.
func frameOf(cam camera.Source) camera.Frame {
	return camera.Frame{Pix: make([]byte, cam.Format().FrameBytes())}
}
