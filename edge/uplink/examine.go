package uplink

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/trained"
)

const (
	// settleTime is the time for which a finding holds back the first observation: the first pictures of many cameras
	// are dark until their automatic exposure has settled.
	settleTime   = time.Second
	examineEvery = 100 * time.Millisecond
)

// examiner compares the first observation for each policy with the policy's training, before the observation leaves and
// before the arm gets torque. Owner: the sender thread, except for found.
type examiner struct {
	link   *Link
	policy string     // the policy examined last, as Session.policy returns it
	done   bool       // the first observation of policy may leave
	began  rt.Instant // beginning of the examination
	next   rt.Instant
	err    error                    // with StrictObservations, the reason to end the run
	found  atomic.Pointer[[]string] // lasting differences of first observations
}

// Findings returns the lasting differences of the run's first observations from the training, as sentences.
func (s *Sender) Findings() []string {
	if found := s.examiner.found.Load(); found != nil {
		return *found
	}
	return nil
}

// due reports whether the session's policy has not been examined.
//
//rt:noalloc
func (x *examiner) due(open *Session) bool { return !x.done || x.policy != open.policy() }

// holds reports whether the observation o must not leave: it differs from the training and may soon agree with it, or
// --strict-observations ends the run.
//
//go:noinline
func (x *examiner) holds(o *wire.Observation, state []float32, open *Session) bool {
	now := x.link.Clock.Now()
	if x.policy != open.policy() {
		x.policy = open.policy()
		x.done = false
		x.began, x.next = now, now
	}
	if open.Trained == nil {
		return x.end([]string{"the server sends no statistics of its policy's training, so the first observation was " +
			"not compared with it (export a bundle again; other policies have none)"}, false)
	}
	if now < x.next {
		return true
	}
	found := open.Trained.Examine(x.link.Names, state, decoded(o.Images))
	if len(found) > 0 && now.Sub(x.began) < settleTime {
		x.next = now.Add(examineEvery)
		return true
	}
	return x.end(found, true)
}

// end ends the examination of a policy, and reports the findings. The parameter seen is whether the findings
// come from the comparison with the training. The result is the result of examiner.holds.
func (x *examiner) end(found []string, seen bool) (holds bool) {
	x.done = true
	l := x.link
	if len(found) == 0 {
		return false
	}
	if l.StrictObservations {
		x.err = exit.Errorf(exit.Config, "--strict-observations: %s", strings.Join(found, "; "))
		x.done = false
	}
	if !seen {
		l.Log.Info(found[0])
		return x.err != nil
	}
	for _, text := range found {
		l.Log.Warn("unlike the training: " + text)
		l.Record.Note(l.Clock.Now(), "observation", record.LevelWarning, text)
	}
	if before := x.found.Load(); before != nil {
		found = slices.Concat(*before, found)
	}
	x.found.Store(&found)
	return x.err != nil
}

// decoded returns the pictures in the form for the comparison. It leaves out pictures that cannot be decoded.
func decoded(images []wire.Image) (pictures []trained.Picture) {
	for i := range images {
		if m, err := capture.Decode(&images[i]); err == nil { // the server reports a picture that does not decode
			pictures = append(pictures, trained.Picture{
				Name: strings.TrimPrefix(m.Name, capture.ImageKey),
				W:    m.W,
				H:    m.H,
				RGB:  m.Data,
			})
		}
	}
	return pictures
}
