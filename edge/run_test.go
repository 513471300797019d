package edge

import (
	"bytes"
	stdjpeg "image/jpeg"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/drive"
	"github.com/edge-rt/edge-rt/edge/uplink"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/systemd/notify"
	"github.com/edge-rt/edge-rt/wire"
)

// poisoned is a camera that lends its memory. Close invalidates the memory, as unmapping a driver's
// buffers does.
type poisoned struct {
	format camera.Format
	pix    []byte
	closed atomic.Bool
}

func (p *poisoned) Format() camera.Format { return p.format }
func (p *poisoned) Lends()                {}

func (p *poisoned) Grab(f *camera.Frame) error {
	f.Format, f.Pix = p.format, p.pix
	f.Sequence++
	return nil
}

func (p *poisoned) Close() error {
	p.closed.Store(true)
	for i := range p.pix {
		p.pix[i] = 0xee
	}
	return nil
}

// hung is a publisher that blocks until it is released.
type hung struct {
	published
	once           sync.Once
	entered, leave chan struct{}
}

func (h *hung) PutLatest(payload, attachment []byte) (bool, error) {
	h.once.Do(func() { close(h.entered); <-h.leave })
	return h.published.PutLatest(payload, attachment)
}

// Goal: a sender that hangs in the network at the end of a run may continue at any time. So the camera's memory, the
// encoder and the eventfd stay open. If the sender has ended, everything is closed.
func TestStuckSenderKeepsWhatItUses(t *testing.T) {
	for _, stuck := range []bool{true, false} {
		waker, err := rt.NewWaker()
		if err != nil {
			t.Skip(err)
		}
		film := &poisoned{format: camera.Format{
			Width:  32,
			Height: 16,
			Pixels: camera.RGB8,
			FPS:    30,
		}, pix: bytes.Repeat([]byte{240, 120, 0}, 32*16)}
		cam := capture.New("top", film, 0)
		f := &cam.Newest.Back().Frame
		film.Grab(f)
		f.At = 1
		cam.Newest.Publish(1)
		v, err := capture.NewEncoder(cam, &capture.Config{Name: "top"}, capture.Encoding{Quality: 90})
		if err != nil {
			t.Skip(err)
		}
		l := uplink.New(uplink.Config{
			Clock: rttest.NewClock(rt.Instant(time.Second)),
			Log:   slog.New(slog.DiscardHandler),
		})
		l.Out.Prepare(testHorizon, testDOF, 1)
		s := l.NewSender(uplink.SenderConfig{
			DOF:      testDOF,
			Cameras:  []*capture.Camera{cam},
			Encoders: []*capture.Encoder{v},
			Waker:    waker,
			Missing:  new(atomic.Int32),
		})
		out := &hung{entered: make(chan struct{}), leave: make(chan struct{})}
		l.In.Open(&uplink.Session{Session: record.Session{Epoch: 3}, Publisher: out})
		send := func(key int64) {
			snap := l.Out.Snapshots.Back()
			snap.Epoch, snap.At = 3, rt.Instant(time.Second)
			l.Out.Snapshots.Publish(key)
			s.Work()
		}
		notifier := rttest.Must(notify.Open())(t)
		var clock rt.Clock = rt.KernelClock()
		if stuck {
			clock = rttest.NewClock(rt.Instant(time.Second)) // with this clock, time limits end at once
		}
		e := &Edge{
			clock: clock, control: &control{}, sender: s,
			drive:   drive.New(drive.Config{Loop: rt.LoopConfig{Clock: clock, Period: testPeriod}}),
			devices: devices{cameras: s.Cameras, encoders: s.Encoders}, notifier: notifier,
		}
		e.onCloseUnlessStuck(func() { waker.Close() })
		e.onCloseUnlessStuck(e.closeCameras)
		sent := make(chan struct{})
		if stuck {
			e.drive.Go(func() error {
				defer close(sent)
				send(1)
				f := &cam.Newest.Back().Frame
				film.Grab(f)
				f.At = 2
				cam.Newest.Publish(2)
				send(2)
				return nil
			})
			<-out.entered
		}
		linked := make(chan error, 1)
		linked <- nil
		if _, aside := e.join(linked, nil); (aside == drive.ErrStuck) != stuck {
			t.Errorf("stuck %v: join() = %v", stuck, aside)
		}
		e.release()
		if film.closed.Load() == stuck {
			t.Errorf("stuck %v: the camera was closed: %v", stuck, film.closed.Load())
		}
		waker.Wake()
		rttest.Want(t, waker.Wait(time.Millisecond), stuck, "stuck %v: the waker works", stuck)
		if !stuck {
			continue
		}
		close(out.leave)
		<-sent
		var o wire.Observation
		rttest.Do(t, wire.ParseObservation(&o, out.body))
		im := rttest.Must(stdjpeg.Decode(bytes.NewReader(o.Images[0].Data)))(t)
		if r, _, b, _ := im.At(9, 9).RGBA(); r>>8 < 220 || b>>8 > 30 {
			t.Errorf("what it sends afterwards is another picture: red %d, blue %d", r>>8, b>>8)
		}
		v.Close()
	}
}
