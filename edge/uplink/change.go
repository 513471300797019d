package uplink

import (
	"fmt"
	"slices"
	"strings"

	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/edge/recording"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/wire"
)

// Change makes a run continue with another model of its service, between two episodes.
type Change struct {
	// Between reports whether the run is between two episodes: no action of its model runs, and no action is left to
	// run. While no session is open, a true result lasts until Begin.
	Between func() bool
	// Begin requests an episode with another model while no session is open: earlier plans and requests are void.
	Begin func(to Contract)
}

// Due reports whether the server has another model, to which the run will change between two episodes. It returns false
// while the run has the model that --expect-model names. Any thread may call it.
func (l *Link) Due() bool {
	open := l.In.Sessions().Open
	return l.Change != nil && open != nil && l.receiver.moved.Load() == open.Epoch &&
		(l.ExpectModel == "" || !strings.HasPrefix(open.SHA256, l.ExpectModel))
}

// between reports whether the run may take another model now.
func (l *Link) between() bool {
	return l.Change != nil && l.contract.Prefix != "" && l.Change.Between()
}

// changes reports whether a contract has another policy than the run.
func (l *Link) changes(to *Contract) bool {
	from := l.contract.SHA256
	return l.contract.Prefix != "" && from != "" && to.SHA256 != "" && to.SHA256 != from
}

// model returns the digest of the only policy that the run accepts now, or the beginning of this digest. It returns ""
// if the run accepts any policy of its service.
func (l *Link) model() string {
	if l.contract.SHA256 == "" || l.between() {
		return l.ExpectModel
	}
	return l.contract.SHA256
}

// checkChange returns an error unless the run may change to the policy of the contract to. Change must be set, and the
// run must be between two episodes. The policy must have the sizes for which the run has allocated its memory.
func (l *Link) checkChange(to *Contract) error {
	from := &l.contract
	switch {
	case l.Change == nil:
		return exit.Errorf(exit.Config, "the server came back with other weights: had %s, got %s (--model-change "+
			"episode takes them between two episodes)", from.SHA256, to.SHA256)
	case to.PrefixEnd != from.PrefixEnd, !slices.Equal(to.Shapes, from.Shapes), to.FPS != from.FPS:
		return exit.Errorf(exit.Config, "the server came back as another model (sha256 %.12s): had %v Hz, prefix_end "+
			"%d and pictures of %v, got %v Hz, %d and %v: start the run again", to.SHA256, from.FPS, from.PrefixEnd,
			sizes(from.Shapes), to.FPS, to.PrefixEnd, sizes(to.Shapes))
	case !l.between():
		return fmt.Errorf("%s serves another model (sha256 %.12s), which this run takes when no episode is under "+
			"way and its actions have ended", to.Prefix, to.SHA256)
	}
	return nil
}

// sizes lists cameras for people.
func sizes(shapes []wire.CameraShape) (list []string) {
	for _, s := range shapes {
		list = append(list, fmt.Sprintf("%s %dx%d", s.Name, s.W, s.H))
	}
	return list
}

// begin begins an episode with the policy of another contract.
func (l *Link) begin(to *Contract) {
	l.Change.Begin(*to)
	text := fmt.Sprintf("the run goes on with another model: had sha256 %.12s, takes %.12s", l.contract.SHA256,
		to.SHA256)
	l.Log.Warn(text)
	recording.Note(l.Record, l.Clock, event.ModelChanged, record.LevelWarning, 0, 0, text)
}
