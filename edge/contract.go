package edge

import (
	"log/slog"
	"math"
	"slices"

	"edgert/internal/exit"
	"edgert/wire"
)

// contract is what a session was opened on; a later session must offer the same.
type contract struct {
	prefix    string
	model     string
	revision  string
	sha256    string
	fps       float64 // actions per second of the run
	horizon   int
	prefixEnd int
	shapes    []wire.CameraShape // of the policy's pictures, where the server says
}

func (l *link) checkContract(prefix string, ack *wire.SessionAck) (contract, error) {
	t := contract{
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
	var err error
	if t.fps, err = l.cfg.agreedFPS(ack.TrainedFPS, l.log); err != nil {
		return t, err
	}
	if old := l.contract; old.prefix != "" {
		switch {
		case t.prefix != old.prefix, t.model != old.model, t.revision != old.revision, t.horizon != old.horizon:
			return t, exit.Errorf(exit.Config, "the server came back as another model: had %s@%s with %d rows, got %s@%s with %d", old.model, old.revision, old.horizon, t.model, t.revision, t.horizon)
		case old.sha256 != "" && t.sha256 != "" && t.sha256 != old.sha256:
			return t, exit.Errorf(exit.Config, "the server came back with other weights: had %s, got %s", old.sha256, t.sha256)
		}
	}
	return t, nil
}

// agreedFPS returns the rate at which the policy was trained, 0 where the server does not
// say: at twice that rate an arm moves at twice the speed it was shown.
func (c *Config) agreedFPS(trained float64, log *slog.Logger) (float64, error) {
	switch {
	case c.FPS == 0 && trained == 0:
		return 0, exit.Errorf(exit.Config, "the server does not say at which rate its policy was trained: give it as --fps")
	case trained == 0:
		return c.FPS, nil
	case c.FPS == 0 && !(trained >= 1 && trained <= maxFPS):
		return 0, exit.Errorf(exit.Config, "the policy was trained at %v actions per second, want 1 to %d: give --fps, with --fps-mismatch allow", trained, maxFPS)
	case c.FPS == 0:
		return trained, nil
	case math.Abs(c.FPS-trained) <= fpsTolerance:
	case c.FPSMismatch == fpsAllow:
		log.Warn("the policy was trained at another rate: the arm moves at another speed", "trained", trained, "fps", c.FPS)
	default:
		return 0, exit.Errorf(exit.Config, "the policy was trained at %v actions per second, and --fps is %v: the arm would move at %.2g times the speed it was shown. Leave --fps out, or add --fps-mismatch allow",
			trained, c.FPS, c.FPS/trained)
	}
	return c.FPS, nil
}
