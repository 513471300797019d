package uplink

import (
	"cmp"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/wire"
)

// Limits of the values in a server's answer.
const (
	MaxFPS       = 1000
	MaxHorizon   = 1024
	fpsTolerance = 1e-6 // Hz; closer rates are equal
)

// Contract is the agreement of a session; a later session must offer the same.
type Contract struct {
	Prefix    string
	Model     string
	Revision  string
	SHA256    string
	FPS       float64 // actions per second of the run
	Horizon   int     // number of a chunk's actions that are used
	PrefixEnd int
	Shapes    []wire.CameraShape // the policy's pictures, if the server sends their sizes
	Steps     int                // observations that the policy looks at together

	Simulation bool // the policy is for a simulated arm only
}

// checkContract returns the contract that a server offers, with an error if the run cannot accept it.
func (l *Link) checkContract(prefix string, ack *wire.SessionAck) (Contract, error) {
	log := l.Log.With("session", ack.SessionID)
	t := Contract{
		Prefix:     prefix,
		Model:      ack.ModelRepo,
		Revision:   ack.ModelRevision,
		SHA256:     ack.ModelSHA256,
		Horizon:    min(ack.ChunkSize, cmp.Or(l.ActionsPerChunk, ack.ChunkSize)),
		PrefixEnd:  ack.RTCExecutionHorizon,
		Shapes:     ack.CameraShapes,
		Steps:      max(ack.Steps, 1),
		Simulation: ack.Simulation,
	}
	if ack.Simulation {
		if why := l.RealArm(); why != "" {
			return t, exit.Errorf(exit.Config, "%s serves %s@%s (sha256 %.12s), which is for a simulated arm only "+
				"(simulation_only in its bundle.json): %s", prefix, t.Model, t.Revision, cmp.Or(t.SHA256, "unknown"),
				why)
		}
	}
	if ack.ChunkSize < 2 || ack.ChunkSize > MaxHorizon {
		return t, exit.Errorf(exit.Config, "%s announces chunk_size %d, want 2 to %d", prefix, ack.ChunkSize,
			MaxHorizon)
	}
	if len(ack.ActionNames) == 0 {
		log.Warn("the server does not name its action columns: their order cannot be checked, make sure it is this "+
			"robot's", "want", l.Names)
	} else if !slices.Equal(ack.ActionNames, l.Names) {
		return t, exit.Errorf(exit.Config, "%s maps its chunk columns to %v, this robot has %v: wrong model or robot",
			prefix, ack.ActionNames, l.Names)
	}
	if ack.StateDim != 0 && ack.StateDim != len(l.Names) {
		return t, exit.Errorf(exit.Config, "%s wants a state of %d, this robot has %d joints", prefix, ack.StateDim,
			len(l.Names))
	}
	err := cmp.Or(wire.CheckUnits("action_units", ack.ActionUnits, l.Units),
		wire.CheckUnits("state_units", ack.StateUnits, l.Units))
	if err != nil {
		return t, exit.With(exit.Config, err)
	}
	if t.FPS, err = l.agreedFPS(ack.TrainedFPS, log); err != nil {
		return t, err
	}
	if want := l.ExpectModel; !strings.HasPrefix(t.SHA256, want) {
		return t, exit.Errorf(exit.Config, "%s serves %s@%s with sha256 %s, want one beginning with %s "+
			"(--expect-model): another policy, or another export of it",
			prefix, t.Model, t.Revision, cmp.Or(t.SHA256, "unknown"), want)
	}
	if l.contract.Prefix == "" || l.changes(&t) {
		p := l.Patience(t.Horizon, t.FPS)
		said := paceOf(&ack.Capabilities)
		if p.hopeless(Pace{Least: time.Duration(float64(said.Least) / hopelessTimes)}) != nil {
			return t, p.hopeless(said)
		}
	}
	if old := l.contract; old.Prefix != "" {
		switch {
		case t.Prefix != old.Prefix, t.Model != old.Model, t.Revision != old.Revision, t.Horizon != old.Horizon:
			return t, exit.Errorf(exit.Config,
				"the server came back as another model: had %s@%s with %d rows, got %s@%s with %d", old.Model,
				old.Revision, old.Horizon, t.Model, t.Revision, t.Horizon)
		case t.Steps > l.room:
			return t, exit.Errorf(exit.Config, "the server came back as another model: it looks at %d observations "+
				"together, and this run keeps %d: start it again", t.Steps, l.room)
		case l.changes(&t):
			return t, l.checkChange(&t)
		}
	}
	return t, nil
}

// agreedFPS returns the rate of the run, in actions per second: FPS, or without it the rate at
// which the policy was trained. trained is 0 when the server does not send it. Other rates are
// refused unless OtherFPS allows them: at twice the trained rate an arm moves at twice the speed
// of the demonstrations.
func (l *Link) agreedFPS(trained float64, log *slog.Logger) (float64, error) {
	switch {
	case l.FPS == 0 && trained == 0:
		return 0, exit.Errorf(exit.Config,
			"the server does not announce the rate at which its policy was trained: give it as --fps")
	case trained == 0:
		return l.FPS, nil
	case l.FPS == 0 && !(trained >= 1 && trained <= MaxFPS):
		return 0, exit.Errorf(exit.Config, "the policy was trained at %v actions per second, want 1 to %d: give "+
			"--fps, with --fps-mismatch allow", trained, MaxFPS)
	case l.FPS == 0:
		return trained, nil
	case math.Abs(l.FPS-trained) <= fpsTolerance:
	case l.OtherFPS:
		log.Warn("the policy was trained at another rate: the arm moves at another speed", "trained", trained,
			"fps", l.FPS)
	default:
		return 0, exit.Errorf(exit.Config, "the policy was trained at %v actions per second, and --fps is %v: the "+
			"arm would move at %.2g times the speed it was shown. Leave --fps out, or add --fps-mismatch allow",
			trained, l.FPS, l.FPS/trained)
	}
	return l.FPS, nil
}
