package edge

import (
	"slices"

	"edgert/internal/exit"
	"edgert/wire"
)

// terms are what an open session was agreed on; a later session must offer the
// same, or it would run another model's actions.
type terms struct {
	prefix    string
	model     string
	revision  string
	sha256    string
	horizon   int
	prefixEnd int
	shapes    []wire.CameraShape // of the policy's pictures, where the server says
}

// agree checks the server's side of the contract.
func (l *link) agree(prefix string, ack *wire.SessionAck) (terms, error) {
	t := terms{
		prefix: prefix, model: ack.ModelRepo, revision: ack.ModelRevision, sha256: ack.ModelSHA256,
		horizon: ack.ChunkSize, prefixEnd: ack.RTCExecutionHorizon,
		shapes: ack.CameraShapes,
	}
	if ack.ChunkSize < 2 || ack.ChunkSize > maxHorizon {
		return t, exit.Errorf(exit.Config, "%s says chunk_size %d, want 2 to %d", prefix, ack.ChunkSize, maxHorizon)
	}
	if len(ack.ActionNames) == 0 {
		l.log.Warn("the server does not name its action columns: their order cannot be checked, make sure it is this robot's", "want", l.names)
	} else if !slices.Equal(ack.ActionNames, l.names) {
		return t, exit.Errorf(exit.Config, "%s maps its chunk columns to %v, this robot has %v: wrong model or robot", prefix, ack.ActionNames, l.names)
	}
	if ack.StateDim != 0 && ack.StateDim != len(l.names) {
		return t, exit.Errorf(exit.Config, "%s wants a state of %d, this robot has %d joints", prefix, ack.StateDim, len(l.names))
	}
	if ack.TrainedFPS != 0 && ack.TrainedFPS != l.cfg.FPS {
		l.log.Warn("the policy was trained at another rate: it will move at another speed", "trained", ack.TrainedFPS, "fps", l.cfg.FPS)
	}
	if old := l.terms; old.prefix != "" {
		switch {
		case t.prefix != old.prefix, t.model != old.model, t.revision != old.revision, t.horizon != old.horizon:
			return t, exit.Errorf(exit.Config, "the server came back as another model: had %s@%s with %d rows, got %s@%s with %d", old.model, old.revision, old.horizon, t.model, t.revision, t.horizon)
		case old.sha256 != "" && t.sha256 != "" && t.sha256 != old.sha256:
			return t, exit.Errorf(exit.Config, "the server came back with other weights: had %s, got %s", old.sha256, t.sha256)
		}
	}
	return t, nil
}
