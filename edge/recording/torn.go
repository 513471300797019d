package recording

import (
	"errors"
	"fmt"
	"time"

	"edgert/edge/event"
	"edgert/record"
	"edgert/rt"
)

// tornEvery is between two reports about a camera's torn pictures; the first is at once.
const tornEvery = 5 * time.Second

// torn counts pictures of a camera that do not decode. Owner: the thread that collects.
type torn struct {
	dropped  uint64 // that the capture thread has found, by their markers
	reported uint64
	count    uint64
	last     rt.Instant // when the newest was taken
	why      error
	reportAt rt.Instant // not before
}

// errMarkers is why the capture thread drops a picture.
var errMarkers = errors.New("its markers are cut or of another size")

// check counts the newest picture, if it does not decode. err: the encoder had to decode
// it, and says why not. behind: more pictures wait, and none of them shall be lost to this.
func (r *Recording) check(t *tap, at rt.Instant, err error, behind bool) {
	if err == nil && at != t.last && t.asItCame && !behind {
		err = r.decoder.Check(t.picture.Data)
	}
	if err != nil {
		t.torn.count++
		r.torn.Add(1)
		t.torn.last, t.torn.why = max(at, t.Frames.NewestAt()), err
	}
}

// reportTorn reports the pictures of a camera that are torn, at once and then each few
// seconds: a person at a leader shows in vain what a loose cable spoils.
func (r *Recording) reportTorn(i int, now rt.Instant) {
	t := &r.taps[i]
	if n := t.camera.Torn(); n > t.torn.dropped {
		t.torn.count += n - t.torn.dropped
		r.torn.Add(n - t.torn.dropped)
		t.torn.dropped, t.torn.last, t.torn.why = n, now, errMarkers
	}
	if t.torn.count == t.torn.reported || now < t.torn.reportAt {
		return
	}
	more := t.torn.count - t.torn.reported
	t.torn.reported, t.torn.reportAt = t.torn.count, now.Add(tornEvery)
	taken := time.Unix(0, int64(t.torn.last)+r.Recorder.Wall())
	r.cfg.Log.Warn("pictures are torn: a dataset has none of them; see the camera's cable and the other devices at its USB port",
		"camera", t.Frames.Name, "torn", more, "so_far", t.torn.count, "last", taken.Format(time.TimeOnly+".000"), "why", t.torn.why)
	r.Note(event.CameraSpoilt, record.LevelWarning, int64(i), int64(t.torn.count), fmt.Sprintf("camera %s: %d pictures are torn: %v", t.Frames.Name, more, t.torn.why))
}
