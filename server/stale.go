package server

import (
	"strings"

	"edgert/policy"
	"edgert/wire"
)

// staleCameras are those of the policy's cameras whose picture a robot calls
// older than it allows (`stale_cameras`): bit i is camera i. The chunk is made
// all the same, because it is the robot that knows how old an action may get.
type staleCameras uint32

// staleOf finds the policy's cameras among names. Others are no business of the
// policy's, and must not become labels of a metric.
//
//rt:noalloc
func staleOf(cameras []wire.CameraShape, names []string) (set staleCameras) {
	for i := range cameras {
		for _, name := range names {
			if name == cameras[i].Name {
				set |= 1 << i
			}
		}
	}
	return set
}

//rt:noalloc
func (s staleCameras) has(camera int) bool { return s&(1<<camera) != 0 }

// names lists the cameras of the set.
func (s staleCameras) names(cameras []wire.CameraShape) string {
	var names []string
	for i := range cameras {
		if s.has(i) {
			names = append(names, cameras[i].Name)
		}
	}
	return strings.Join(names, ", ")
}

// countStale counts the old pictures of the observation in hand, once it has
// turned out to be a good one.
//
//rt:noalloc
func (w *worker) countStale(s *Session, set staleCameras) {
	s.stale.Store(uint32(set))
	for i := 0; i < policy.MaxCameras && set != 0; i++ {
		if set.has(i) {
			w.stats.stale[i].Add(1)
			s.stalePictures.Add(1)
			set &^= 1 << i
		}
	}
}

// countWarned counts the pictures of the observation in hand that were used
// although they have stray bytes.
//
//rt:noalloc
func (w *worker) countWarned(s *Session, set uint32) {
	for i := 0; i < policy.MaxCameras && set != 0; i++ {
		if set&(1<<i) != 0 {
			w.stats.warned[i].Add(1)
			s.warnedPictures.Add(1)
			set &^= 1 << i
		}
	}
}

// tellStale logs when a robot's camera falls behind, and when it is back. A
// camera that does both again and again costs a line at each look.
//
// Owner: steward.
func (s *Server) tellStale() {
	for _, session := range s.sessions.all() {
		set := staleCameras(session.stale.Load())
		switch {
		case set == session.staleTold:
		case set == 0:
			s.log.Info("pictures are fresh again", "client", session.uuid)
		default:
			s.log.Warn("pictures are older than the robot allows", "client", session.uuid, "cameras", set.names(s.caps.CameraShapes))
		}
		session.staleTold = set
	}
}
