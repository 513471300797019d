package v4l2

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// The error of a camera that cannot be set up again names the cause. A camera that was unplugged meanwhile is gone.
func TestWhyACameraIsNotSetUpAgain(t *testing.T) {
	d := &device{path: "/dev/video7"}
	rttest.FailsAs(t, again(d.refused("start", unix.EBUSY)), camera.ErrStream, "another program uses the camera")
	rttest.FailsAs(t, again(d.refused("start", unix.ENOSPC)), camera.ErrStream, "does not fit on its USB bus")
	rttest.FailsAs(t, again(d.refused("start", unix.ENODEV)), camera.ErrGone)
}

// Time stamps may stand still or go back, for example where a driver converts the camera's clock. They do not make a
// picture older than the picture before it.
func TestTimeStampsThatGoBack(t *testing.T) {
	var s Source
	for i, tt := range []struct{ stamp, now, want int64 }{
		{100, 110, 100}, {133, 143, 133}, {200, 176, 176}, {90, 209, 209}, {123, 242, 242}, {300, 310, 310},
	} {
		b := buffer{flags: bufFlagStampSteady, timestamp: unix.NsecToTimeval(tt.stamp * 1000)}
		if at := s.takenAt(&b, rt.Instant(tt.now*1000)); at != rt.Instant(tt.want*1000) {
			t.Errorf("picture %d: taken at %d us, want %d", i, at/1000, tt.want)
		}
	}
}
