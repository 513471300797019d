package recording

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/internal/terminal"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// frozenCamera is a sensor that repeats its picture until it is thawed.
type frozenCamera struct {
	clock rt.Clock
	shade byte
	n     uint64
	stop  *atomic.Bool
	until uint64
}

func (f *frozenCamera) Format() camera.Format {
	return camera.Format{Width: 2, Height: 2, Pixels: camera.Gray8, FPS: 10}
}
func (f *frozenCamera) Close() error { return nil }
func (f *frozenCamera) Live()        {}
func (f *frozenCamera) Grab(dst *camera.Frame) error {
	f.n++
	f.stop.Store(f.n >= f.until)
	f.clock.SleepUntil(f.clock.Now().Add(100 * time.Millisecond))
	dst.Format = f.Format()
	dst.At = f.clock.Now()
	dst.Sequence = f.n
	for i := range dst.Pix {
		dst.Pix[i] = f.shade
	}
	return nil
}

// The person gets one warning about a hanging camera, and one message when it works again.
func TestACameraThatHangsIsReported(t *testing.T) {
	clock, stop := rttest.NewClock(rt.Instant(time.Second)), new(atomic.Bool)
	f := &frozenCamera{clock: clock, stop: stop, until: 20}
	cam, out := capture.New("top", f, 0), new(strings.Builder)
	r := Reporter{Log: slog.New(terminal.NewLines(out, slog.LevelInfo))}
	report := func() { r.ReportCameras(clock.Now(), []*capture.Camera{cam}) }
	cam.Run(clock, stop, new(atomic.Int32))
	report()
	report()
	f.shade, f.until = 9, 21
	stop.Store(false)
	cam.Run(clock, stop, new(atomic.Int32))
	report()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "camera top\" why=\"it has repeated one picture for 1s") ||
		!strings.Contains(lines[1], "camera top gives pictures again") {
		t.Errorf("it says %q", lines)
	}
}
