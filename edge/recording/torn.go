package recording

import (
	"errors"
	"fmt"
	"time"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
)

// tornEvery is the interval of reports about a camera's torn pictures; the first report is
// immediate.
const tornEvery = 5 * time.Second

// torn counts pictures of a camera that do not decode. Owner: the collecting thread.
type torn struct {
	dropped  uint64 // pictures that the capture thread has dropped because of their markers
	reported uint64
	count    uint64
	last     rt.Instant // capture instant of the newest checked picture
	why      error
	reportAt rt.Instant // no report before this instant
}

// errMarkers is the reason why the capture thread drops a picture.
var errMarkers = errors.New("its markers are cut or of another size")

// check counts the newest picture as torn if it does not decode. err is the encoder's error, if the encoder had to
// decode the picture. If backlog is set, pictures have accumulated: then check does not decode the picture, so that no
// pictures are lost.
func (r *Recording) check(t *tap, at rt.Instant, err error, backlog bool) {
	if err == nil && at != t.last && t.asItCame && !backlog {
		err = r.decoder.Check(t.picture.Data)
	}
	if err != nil {
		t.torn.count++
		r.torn.Add(1)
		t.torn.last, t.torn.why = max(at, t.Frames.NewestAt()), err
	}
}

// reportTorn reports a camera's torn pictures, at once and then every tornEvery, since demonstrations
// with a loose cable are useless.
func (r *Recording) reportTorn(i int, now rt.Instant) {
	t := &r.taps[i]
	if n := t.camera.Torn(); n > t.torn.dropped {
		t.torn.count += n - t.torn.dropped
		r.torn.Add(n - t.torn.dropped)
		t.torn.dropped = n
		t.torn.last = now
		t.torn.why = errMarkers
	}
	if t.torn.count == t.torn.reported || now < t.torn.reportAt {
		return
	}
	more := t.torn.count - t.torn.reported
	t.torn.reported, t.torn.reportAt = t.torn.count, now.Add(tornEvery)
	taken := time.Unix(0, int64(t.torn.last)+r.Recorder.Wall())
	r.cfg.Log.Warn("pictures are torn, and a dataset leaves them out; check the camera's cable and the other devices "+
		"at its USB port",
		"camera", t.Frames.Name, "torn", more, "so_far", t.torn.count, "last", taken.Format(time.TimeOnly+".000"),
		"why", t.torn.why)
	r.Note(event.CameraSpoilt, record.LevelWarning, int64(i), int64(t.torn.count),
		fmt.Sprintf("camera %s: %d pictures are torn: %v", t.Frames.Name, more, t.torn.why))
}
