package edge

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/chunk/smoothing"
	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/uplink"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
)

const testPixels = 3 * 8 * 4

// queue is LeRobot's queue of n_obs_steps, as populate_queues feeds it: the first observation fills
// it.
type queue struct {
	n    int
	held []fed
}

type fed struct {
	state   []float32
	picture byte
}

func (q *queue) feed(f fed) {
	q.held = append(q.held, f)
	for len(q.held) < q.n {
		q.held = append(q.held, f)
	}
	q.held = q.held[len(q.held)-q.n:]
}

// published is a publisher that keeps the last message.
type published struct {
	wire.Publisher // the other methods are not called
	body           []byte
}

func (p *published) PutLatest(payload, _ []byte) (bool, error) {
	p.body = append(p.body[:0], payload...)
	return false, nil
}

// blank is a camera whose pictures the test paints.
type blank struct {
	camera.Source // the other methods are not called
	format        camera.Format
}

func (b blank) Format() camera.Format { return b.format }

// watcher is a rig with a sender and a camera. All bytes of a picture have the same value, the
// picture's number.
type watcher struct {
	*rig
	t      *testing.T
	sender *uplink.Sender
	box    *published
	camera *capture.Camera
	shown  []rt.Instant // instant of each picture
	pace   pace
	queue  queue
	sent   int
}

// pace is the timing of the pictures.
type pace int

const (
	seldom pace = iota // a picture at every third tick, alternately before and after the tick
	behind             // right after every tick
	turns              // alternately after and before a tick
	numPaces
)

func (p pace) before(i int) bool { return p == seldom && i%6 == 0 || p == turns && i%2 == 1 }
func (p pace) after(i int) bool {
	return p == seldom && i%6 == 3 || p == behind || p == turns && i%2 == 0
}

func newWatcher(t *testing.T, steps int) *watcher {
	w := &watcher{rig: newLookingRig(t, steps), t: t, box: &published{}, queue: queue{n: steps}}
	w.slope = 0.3
	w.camera = capture.New("top", blank{format: camera.Format{
		Width:  8,
		Height: 4,
		Pixels: camera.RGB8,
		FPS:    30,
	}}, 0)
	v := rttest.Must(capture.NewEncoder(w.camera, &capture.Config{Name: "top"}, capture.Encoding{}))(t)
	t.Cleanup(v.Close)
	w.sender = w.link.NewSender(uplink.SenderConfig{
		DOF:      testDOF,
		Cameras:  []*capture.Camera{w.camera},
		Encoders: []*capture.Encoder{v},
		Waker:    w.waker,
		Missing:  w.missing,
	})
	w.setSession(1, steps)
	return w
}

// setSession opens a session of a policy that looks at this number of steps together.
func (w *watcher) setSession(epoch uint32, steps int) {
	w.in.Open(&uplink.Session{Session: record.Session{Epoch: epoch}, Publisher: w.box, Steps: steps})
}

// show takes a picture.
func (w *watcher) show(at rt.Instant) {
	f := &w.camera.Newest.Back().Frame
	f.Format = w.camera.Source.Format()
	for i := range f.Pix {
		f.Pix[i] = byte(len(w.shown))
	}
	f.At = at
	w.shown = append(w.shown, at)
	w.camera.Newest.Publish(int64(at))
}

// tickOnce runs tick i. At the rig's pace the camera shows a picture before the tick, or after it
// but before the sender works. Every fourth tick answers the newest request. asked reports whether
// the tick sent a request.
func (w *watcher) tickOnce(i int, work bool) (now rt.Instant, asked bool) {
	now = w.Now()
	if w.pace.before(i) {
		w.show(now.Add(-time.Millisecond))
	}
	before := w.session.key
	w.step(1)
	if w.pace.after(i) {
		w.show(now.Add(time.Millisecond))
	}
	if work {
		w.sender.Work()
	}
	asked = w.session.key != before
	if i%4 == 3 {
		w.answerEpisode(w.session.key, 5, w.session.episode)
	}
	return now, asked
}

// feed puts the arm's state into the queue, with the newest picture from before the instant at. An empty queue gets the
// newest picture, even if it is later.
func (w *watcher) feed(at rt.Instant) {
	newest := len(w.shown) - 1
	for len(w.queue.held) > 0 && w.shown[newest] > at {
		newest--
	}
	w.queue.feed(fed{slices.Clone(w.arm.State), byte(newest)})
}

// judge compares the sent observation with the queue.
func (w *watcher) judge(when string, want []fed) {
	w.t.Helper()
	var o wire.Observation
	rttest.PanicOn(wire.ParseObservation(&o, w.box.body))
	w.sent++
	newest, past := want[len(want)-1], want[:len(want)-1]
	if !slices.Equal(o.State, newest.state) || !bytes.Equal(o.Images[0].Data,
		bytes.Repeat([]byte{newest.picture}, testPixels)) {
		w.t.Fatalf("%s: the newest is %v, picture %d, want %v", when, o.State, o.Images[0].Data[0], newest)
	}
	pictures := o.Past("observation.images.top")
	if o.PastStates.Rows != len(past) || len(pictures) != len(past) {
		w.t.Fatalf("%s: %d states and %d earlier pictures, want %d", when, o.PastStates.Rows, len(pictures),
			len(past))
	}
	after := o.Images[0].Data
	for i := len(past) - 1; i >= 0; i-- {
		p := after
		if len(pictures[i].Data) > 0 {
			p = pictures[i].Data
			if bytes.Equal(p, after) {
				w.t.Errorf("%s: a picture travels twice", when)
			}
		}
		if got := o.PastStates.Data[i*testDOF:][:testDOF]; !slices.Equal(got, past[i].state) ||
			!bytes.Equal(p, bytes.Repeat([]byte{past[i].picture}, testPixels)) {
			w.t.Fatalf("%s: step %d of %d is %v, picture %d, want %v", when, i-len(past), len(past), got, p[0], past[i])
		}
		after = p
	}
}

// breakCase is an event that may break a history. The test calls happen before each tick i; happen causes the event if
// i is equal to the parameter at. The functions before and after report whether the test empties LeRobot's queue before
// or after it feeds tick i to the queue.
type breakCase struct {
	name          string
	happen        func(w *watcher, i, at int)
	before, after func(i, at int) bool
	anew          uint64
}

func never(int, int) bool  { return false }
func once(i, at int) bool  { return i == at }
func twice(i, at int) bool { return i == at || i == at+1 }
func (c *breakCase) run(t *testing.T, at, steps int, pace pace) {
	w := newWatcher(t, steps)
	w.pace = pace
	w.show(w.Now().Add(-testPeriod))
	for i := range 200 {
		c.happen(w, i, at)
		now, asked := w.tickOnce(i, true)
		if c.before(i, at) {
			w.queue.held = nil
		}
		w.feed(now)
		if asked {
			w.judge(fmt.Sprintf("%s at %d, tick %d", c.name, at, i), w.queue.held)
		}
		if c.after(i, at) {
			w.queue.held = nil
		}
	}
	if anew, full := w.out.Steps.Counts(); anew != c.anew || full != 0 || w.sent < 20 {
		t.Errorf("%s at %d: begun anew %d times, %d left out, %d observations; want %d, 0 and some", c.name, at, anew,
			full, w.sent, c.anew)
	}
}

// Goal: the policy sees the content of LeRobot's queue, the last action steps. At the beginning the first step is in
// every place, and after a break the next step is the first.
func TestObservationsHoldWhatLeRobotsQueueHolds(t *testing.T) {
	for _, c := range []breakCase{
		{"nothing", func(*watcher, int, int) {}, never, never, 0},
		{"an episode begins", func(w *watcher, i, at int) {
			if i == at {
				w.operator.resets.Add(1)
			}
		}, once, never, 1},
		{"another session", func(w *watcher, i, at int) {
			if i == at {
				w.setSession(2, w.queue.n)
			}
		}, once, never, 1},
		{"an operator pauses for a tick", func(w *watcher, i, at int) {
			w.operator.pause.Store(i == at)
		}, never, once, 1},
		{"a joint does not answer in two ticks", func(w *watcher, i, at int) {
			if w.bus.silent = 0; i == at || i == at+1 {
				w.bus.silent = 2
			}
		}, twice, twice, 1},
	} {
		for at := 60; at < 68; at++ { // an observation leaves soon after one of these ticks
			for _, steps := range []int{2, 4, wire.MaxSteps} {
				c.run(t, at, steps, pace(at)%numPaces)
			}
		}
	}
}

// Goal: ticks between two actions are not steps of the history, as in the policy's training.
func TestHistoryCountsActionsNotTicks(t *testing.T) {
	w := newWatcher(t, 3)
	stages := rttest.Must(smoothing.NewChain(smoothing.Config{Multiplier: 2}, 100, testDOF))(t)
	w.core.Stages = stages
	w.show(w.Now().Add(-testPeriod))
	for i := range 200 {
		now, asked := w.tickOnce(i, true)
		if w.core.AtAction() {
			w.feed(now)
		}
		if asked {
			w.judge(fmt.Sprintf("tick %d", i), w.queue.held)
		}
	}
	if w.sent < 10 {
		t.Errorf("%d observations, want some", w.sent)
	}
}

// Goal: after a stall longer than its queue of steps, the sender begins a new history with the next
// observation and counts the steps that did not fit.
func TestHistoryBeginsAnewBehindASenderThatWasHeldUp(t *testing.T) {
	const late = 80 // ticks
	w := newWatcher(t, 4)
	w.show(w.Now().Add(-testPeriod))
	for i := range 40 {
		w.tickOnce(i, true)
	}
	for i := range late {
		w.tickOnce(40+i, false)
	}
	if anew, full := w.out.Steps.Counts(); anew != 1 || full != late-64 {
		t.Fatalf("begun anew %d times, %d left out; want 1 and %d", anew, full, late-64)
	}
	// The newest observation belongs to a step that was left out, so it has no history.
	w.box.body = nil
	w.sender.Work()
	snap, _, _ := w.out.Snapshots.Front()
	alone := fed{slices.Clone(snap.State), byte(len(w.shown) - 1)}
	w.judge("after the jam", []fed{alone, alone, alone, alone})
	for i, began := late, false; i < late+40; i++ {
		now, asked := w.tickOnce(40+i, true)
		if !began {
			w.queue.held, began = nil, true
		}
		w.feed(now)
		if asked {
			w.judge(fmt.Sprintf("tick %d", i), w.queue.held)
		}
	}
}

// Goal: a session of fewer steps gets as many observations as it has steps, and a session of one
// step gets no history.
func TestSessionsOfFewerSteps(t *testing.T) {
	w := newWatcher(t, 4)
	w.show(w.Now().Add(-testPeriod))
	epoch := uint32(1)
	for _, steps := range []int{2, 1, 4} {
		epoch++
		w.setSession(epoch, steps)
		w.queue = queue{n: steps}
		for i, sent := 0, w.sent; w.sent < sent+3; i++ {
			now, asked := w.tickOnce(i*int(epoch), true)
			w.feed(now)
			if asked {
				w.judge(fmt.Sprintf("%d steps, tick %d", steps, i), w.queue.held)
			}
		}
	}
}

// Goal: no history contains a picture from before a suspension.
func TestNoHistoryOfPicturesFromBeforeASuspend(t *testing.T) {
	w := newWatcher(t, wire.MaxSteps)
	w.show(w.Now().Add(-testPeriod))
	for i := range 40 {
		w.tickOnce(i, true)
	}
	unsent := w.link.Stats.Unsent.Load()
	w.out.ResumedAt.Store(int64(w.Now().Add(-time.Microsecond)))
	w.operator.resets.Add(1)
	w.box.body = nil
	w.step(1)
	w.sender.Work()
	if len(w.box.body) != 0 || w.link.Stats.Unsent.Load() != unsent+1 {
		t.Fatalf("%d bytes left, %d unsent, want none and one", len(w.box.body), w.link.Stats.Unsent.Load()-unsent)
	}
	w.show(w.Now().Add(-time.Nanosecond))
	for before := w.session.key; w.session.key == before; {
		now := w.Now()
		w.step(1)
		w.sender.Work()
		w.feed(now)
	}
	w.judge("after the suspend", w.queue.held)
}

// Goal: each step wakes the sender, with or without a request, so that the step gets the newest
// picture of its instant.
func TestEveryStepWakesTheSender(t *testing.T) {
	w := newWatcher(t, 2)
	w.show(w.Now().Add(-testPeriod))
	for i := range 40 {
		if w.tickOnce(i, false); !w.waker.Wait(0) {
			t.Fatalf("tick %d did not wake it", i)
		}
		w.sender.Work()
	}
}

func TestHistoryNoAlloc(t *testing.T) {
	w := newWatcher(t, 4)
	w.show(w.Now().Add(-testPeriod))
	w.shown = make([]rt.Instant, 1, 4096)
	for i := range 200 {
		w.tickOnce(i, true)
	}
	w.bus.writes = w.bus.writes[:0:0]
	i := 0
	rttest.NoAllocs(t, "a tick and its sender allocate %v times, want 0", 500, func() {
		now := w.Now()
		if i++; i%3 == 0 {
			w.show(now.Add(-time.Millisecond))
		}
		w.tick(rt.Tick{Deadline: now, Woke: now})
		w.sender.Work()
		for w.in.Sources.Peek() != nil {
			w.in.Sources.Release()
		}
		w.SleepUntil(now.Add(testPeriod))
	})
}

// Goal: raw pictures that exceed a message are refused before the run begins, with their sum; the
// same pictures as JPEG are accepted.
func TestRawPicturesThatNoMessageHolds(t *testing.T) {
	for _, tt := range []struct{ steps, quality, want int }{{2, 0, 0}, {3, 0, 18662400}, {16, 90, 0}} {
		cam := capture.New("top", blank{format: camera.Format{
			Width:  1920,
			Height: 1080,
			Pixels: camera.RGB8,
			FPS:    30,
		}}, 0)
		v := rttest.Must(capture.NewEncoder(cam, &capture.Config{Name: "top"},
			capture.Encoding{Quality: tt.quality}))(t)
		defer v.Close()
		e := &Edge{devices: devices{encoders: []*capture.Encoder{v}}, contract: uplink.Contract{Steps: tt.steps}}
		err := e.checkRaw()
		if tt.want == 0 && err != nil || tt.want != 0 &&
			(exit.Of(err) != exit.Config || !rttest.Says(err, strconv.Itoa(tt.want)+" bytes, want at most 16711680")) {
			t.Errorf("%d steps, quality %d: %v, want the sum %d", tt.steps, tt.quality, err, tt.want)
		}
	}
}
